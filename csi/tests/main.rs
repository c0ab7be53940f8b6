//! Tests the plugin as the kubelet uses it: through its socket, with real mounts. The tests need root, /dev/fuse and a
//! `foreread` command with FUSE.

mod common;
mod sanity;
mod stores;
mod volumes;
