//! The plugin as the kubelet uses it: by its socket, with real mounts. The tests need root, /dev/fuse and a command foreread that mounts.

mod chart;
mod common;
mod hostile;
mod sanity;
mod stores;
mod volumes;
