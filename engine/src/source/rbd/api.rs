//! librados and librbd, loaded when the first image is opened. Nothing is linked.
//!
//! The libraries are never closed again: they have threads, and thread-local state with destructors. Never: calls
//! anything by itself.
#![allow(unsafe_code)]

use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_NOW};
use std::collections::BTreeMap;
use std::ffi::{c_char, c_int, c_void};
use std::sync::{Mutex, PoisonError};

/// A handle of theirs.
pub type Handle = *mut c_void;
/// What is called on one of their threads when a read has ended: completion, argument.
pub type Callback = extern "C" fn(Handle, Handle);

/// `rbd_image_info_t` of `rbd/librbd.h`, whose layout is part of the ABI `librbd.so.1`.
#[repr(C)]
pub struct ImageInfo {
    pub size: u64,
    pub object_size: u64,
    pub objects: u64,
    pub order: c_int,
    pub prefix: [c_char; 24],
    pub parent_pool: i64,
    pub parent_name: [c_char; 96],
}

/// Why there is no librbd.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LibraryError {
    /// A library is not there or cannot be loaded: its name, and what the loader says.
    Library(String, String),
    /// A library is there but not the one that is needed: its name and the function that it lacks.
    Function(String, &'static str),
}

macro_rules! functions {
    ($($from:ident $name:ident($($arg:ty),*) $(-> $result:ty)?;)*) => {
        /// The functions that are used.
        pub struct Api {
            $(pub $name: unsafe extern "C" fn($($arg),*) $(-> $result)?,)*
        }

        impl Api {
            fn bind(rados: (&str, &Library), rbd: (&str, &Library)) -> Result<Api, LibraryError> {
                Ok(Api {
                    $($name: {
                        let (file, library) = functions!(@ $from rados rbd);
                        // SAFETY: the type is that of the function in the public headers of the ABI that the file's
                        // number means; the library is never closed, so the pointer stays good.
                        let symbol = unsafe { library.get::<unsafe extern "C" fn($($arg),*) $(-> $result)?>(stringify!($name)) };
                        *symbol.map_err(|_| LibraryError::Function(file.to_string(), stringify!($name)))?
                    },)*
                })
            }
        }
    };
    (@ rados $rados:ident $rbd:ident) => { $rados };
    (@ rbd $rados:ident $rbd:ident) => { $rbd };
}

functions! {
    rados rados_create(*mut Handle, *const c_char) -> c_int;
    rados rados_conf_read_file(Handle, *const c_char) -> c_int;
    rados rados_conf_parse_env(Handle, *const c_char) -> c_int;
    rados rados_conf_set(Handle, *const c_char, *const c_char) -> c_int;
    rados rados_connect(Handle) -> c_int;
    rados rados_shutdown(Handle);
    rados rados_ioctx_create(Handle, *const c_char, *mut Handle) -> c_int;
    rados rados_ioctx_set_namespace(Handle, *const c_char);
    rados rados_ioctx_destroy(Handle);
    rbd rbd_version(*mut c_int, *mut c_int, *mut c_int);
    rbd rbd_open_read_only(Handle, *const c_char, *mut Handle, *const c_char) -> c_int;
    rbd rbd_close(Handle) -> c_int;
    rbd rbd_get_size(Handle, *mut u64) -> c_int;
    rbd rbd_get_id(Handle, *mut c_char, usize) -> c_int;
    rbd rbd_snap_get_id(Handle, *const c_char, *mut u64) -> c_int;
    rbd rbd_stat(Handle, *mut ImageInfo, usize) -> c_int;
    rbd rbd_get_stripe_unit(Handle, *mut u64) -> c_int;
    rbd rbd_get_stripe_count(Handle, *mut u64) -> c_int;
    rbd rbd_aio_create_completion(Handle, Option<Callback>, *mut Handle) -> c_int;
    rbd rbd_aio_read(Handle, u64, usize, *mut c_char, Handle) -> c_int;
    rbd rbd_aio_get_return_value(Handle) -> isize;
    rbd rbd_aio_release(Handle);
}

impl Api {
    /// The libraries of these names, loaded once for each pair of names and for good.
    pub fn load(rados: &str, rbd: &str) -> Result<&'static Api, LibraryError> {
        static LOADED: Mutex<BTreeMap<(String, String), &'static Api>> =
            Mutex::new(BTreeMap::new());
        let mut loaded = LOADED.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (rados.to_string(), rbd.to_string());
        if let Some(api) = loaded.get(&key) {
            return Ok(api);
        }
        // librados first and visible to all: librbd is to find this one and no second.
        let (rados_library, rbd_library) = (open(rados)?, open(rbd)?);
        let api = Api::bind((rados, &rados_library), (rbd, &rbd_library));
        // Even where a function is missing: what was started by loading cannot be stopped.
        std::mem::forget((rados_library, rbd_library));
        let api: &'static Api = Box::leak(Box::new(api?));
        loaded.insert(key, api);
        Ok(api)
    }

    /// The version of the programming interface, for messages.
    pub fn version(&self) -> String {
        let (mut major, mut minor, mut extra) = (0, 0, 0);
        // SAFETY: it writes three integers, and these are three.
        unsafe { (self.rbd_version)(&mut major, &mut minor, &mut extra) };
        format!("{major}.{minor}.{extra}")
    }
}

fn open(name: &str) -> Result<Library, LibraryError> {
    // SAFETY: loading runs the initialisers of Ceph's libraries, which may run at any time and on any thread.
    let library = unsafe { Library::open(Some(name), RTLD_NOW | RTLD_GLOBAL) };
    library.map_err(|error| LibraryError::Library(name.to_string(), error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_that_is_not_there_is_named() {
        match Api::load("libforeread-nothing.so.9", "librbd.so.1") {
            Err(LibraryError::Library(name, _)) => assert_eq!(name, "libforeread-nothing.so.9"),
            other => panic!("{:?}", other.map(|_| ())),
        }
    }

    /// The C library has none of the functions, and is everywhere.
    #[test]
    fn a_library_without_a_function_is_named_with_it() {
        match Api::load("libc.so.6", "libc.so.6") {
            Err(missing) => assert_eq!(
                missing,
                LibraryError::Function("libc.so.6".to_string(), "rados_create")
            ),
            Ok(_) => panic!("libc is no librados"),
        }
    }
}
