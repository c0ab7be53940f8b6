//! The name of an image: `rbd:POOL/[NAMESPACE/]IMAGE[@SNAP][?conf=PATH&id=NAME]`.
//!
//! Parsing does not contact the cluster. A name contains no key or secret; these are in Ceph's keyrings.

use crate::source::{self, EINVAL, SourceName, SourceOpenError};

const REMEDY: &str = "write rbd:POOL/[NAMESPACE/]IMAGE[@SNAP][?conf=PATH&id=NAME]";
/// Maximum bytes of the name of a pool, namespace, image or snapshot. Ceph's own limits are lower.
const MAX_NAME: usize = 4096;

/// The address of an image: its cluster, pool, namespace, name and snapshot.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Address {
    pub pool: String,
    /// The empty name is the pool itself.
    pub namespace: String,
    pub image: String,
    /// A snapshot never changes.
    pub snap: Option<String>,
    /// The configuration; if `None`, `CEPH_CONF` or the usual places.
    pub conf: Option<String>,
    /// The user, without `client.`; if `None`, `admin`.
    pub id: Option<String>,
}

pub fn parse(name: &SourceName) -> Result<Address, SourceOpenError> {
    let text = source::text(name)?;
    let error = |why: &str| SourceOpenError::new(name, why, REMEDY.to_string(), EINVAL);
    let rest = text
        .strip_prefix("rbd:")
        .ok_or_else(|| error("it is not the name of an RBD image"))?;
    let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (path, snap) = path
        .split_once('@')
        .map_or((path, None), |(path, snap)| (path, Some(snap)));
    let parts: Vec<&str> = path.split('/').collect();
    let (pool, namespace, image) = match parts[..] {
        [pool, image] => (pool, "", image),
        [pool, namespace, image] => (pool, namespace, image),
        [_] => return Err(error("the image is missing")),
        _ => return Err(error("it has too many parts")),
    };
    if pool.is_empty()
        || image.is_empty()
        || snap == Some("")
        || (parts.len() == 3 && namespace.is_empty())
    {
        return Err(error("a part of the name is empty"));
    }
    let mut address = Address {
        pool: pool.into(),
        namespace: namespace.into(),
        image: image.into(),
        snap: snap.map(str::to_string),
        ..Address::default()
    };
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        match pair.split_once('=') {
            Some(("conf", path)) if !path.is_empty() => address.conf = Some(path.to_string()),
            Some(("id", id)) if !id.is_empty() => address.id = Some(id.to_string()),
            _ => return Err(error("after the ?, only conf=PATH and id=NAME are allowed")),
        }
    }
    let all = [
        Some(&address.pool),
        Some(&address.namespace),
        Some(&address.image),
        address.snap.as_ref(),
    ];
    let all = all
        .into_iter()
        .chain([address.conf.as_ref(), address.id.as_ref()])
        .flatten();
    for name in all {
        if name.len() > MAX_NAME || name.contains('\0') {
            return Err(error("a part of the name is invalid"));
        }
    }
    Ok(address)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each notation, and what it means: pool, namespace, image, snapshot, configuration, user.
    const NOTATIONS: &str = "\
        rbd:p/i = p '' i None None None
        rbd:p/n/i = p 'n' i None None None
        rbd:p/i@s = p '' i Some(\"s\") None None
        rbd:p/i?conf=a/b.conf = p '' i None Some(\"a/b.conf\") None
        rbd:p/i@s?id=x&conf=c = p '' i Some(\"s\") Some(\"c\") Some(\"x\")";
    /// Each name that is refused, and why. `LONG` is one letter too many.
    const REFUSED: &str = "\
        rbd:i = the image is missing
        rbd: = the image is missing
        rbd:/i = a part of the name is empty
        rbd:p/ = a part of the name is empty
        rbd:p//i = a part of the name is empty
        rbd:p/i@ = a part of the name is empty
        rbd:p/a/b/c = it has too many parts
        rbd:p/i?key=secret = after the ?, only conf=PATH and id=NAME are allowed
        rbd:p/i?conf= = after the ?, only conf=PATH and id=NAME are allowed
        rbd:p/i\0 = a part of the name is invalid
        rbd:p/LONG = a part of the name is invalid";

    fn rows(table: &str) -> impl Iterator<Item = (&str, &str)> {
        let rows = table.lines();
        rows.map(|row| row.trim_start().rsplit_once(" = ").expect(row))
    }

    #[test]
    fn the_notations() {
        for (text, wanted) in rows(NOTATIONS) {
            let Address {
                pool,
                namespace,
                image,
                snap,
                conf,
                id,
            } = parse(&text.into()).expect(text);
            let found = format!("{pool} '{namespace}' {image} {snap:?} {conf:?} {id:?}");
            assert_eq!(found, wanted, "{text}");
        }
    }

    #[test]
    fn invalid_names_are_one_line_errors() {
        let long = "i".repeat(MAX_NAME + 1);
        assert!(parse(&format!("rbd:p/{}", &long[1..]).as_str().into()).is_ok());
        for (text, why) in rows(REFUSED) {
            let text = text.replace("LONG", &long);
            let error = parse(&text.as_str().into()).expect_err(&text);
            assert_eq!((error.why.as_str(), error.errno), (why, EINVAL), "{text}");
        }
    }
}
