//! A server that imitates the Hugging Face Hub, for measurements. The server runs until standard input ends.
//!
//! Usage: `hub FOLDER`. The server offers the files in FOLDER as the model `u/r`. The program prints two addresses: that of the hub, and
//! that of the server to which the hub redirects for the files' content. Then the program reads an address from standard input, for example
//! that of a slow link; from then on the hub redirects to this address instead.

use foreread::source::FileSource;
use foreread_testing::HubServer;
use std::path::Path;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = std::env::args_os().nth(1).ok_or("usage: hub FOLDER")?;
    let hub = HubServer::start()?;
    put(&hub, Path::new(&folder), "")?;
    let [own, content] = hub.addresses();
    println!("{own} {content}");
    let mut lines = std::io::stdin().lines();
    let proxy = lines.next().ok_or("no address")??;
    hub.send_to(proxy.trim().parse()?);
    while lines.next().is_some() {}
    Ok(())
}

fn put(hub: &HubServer, folder: &Path, below: &str) -> Result<(), Box<dyn std::error::Error>> {
    for entry in std::fs::read_dir(folder)? {
        let (path, name) = {
            let entry = entry?;
            let name = entry.file_name().into_string().map_err(|_| "a name")?;
            (entry.path(), format!("{below}{name}"))
        };
        if path.is_dir() {
            put(hub, &path, &format!("{name}/"))?;
        } else {
            hub.put("u/r", &name, FileSource::open(&path)?);
        }
    }
    Ok(())
}
