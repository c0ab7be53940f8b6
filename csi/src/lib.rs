//! The node plugin of foreread for Kubernetes, by the Container Storage Interface: it mounts stores of objects as volumes that can be read.
//!
//! ```text
//!   kubelet ──unix socket──► node ──► volume: what is asked for, checked ──► command: `foreread mount -d`, one for each volume
//!                             │        secrets: keys for its environment           │
//!                             └─────► mounts: the mount table is the state ◄───────┘
//!
//!   NodeStageVolume     foreread mount -d s3://models/ .../globalmount       one mount, one cache, for all pods of the node
//!   NodePublishVolume   bind mount .../globalmount on the pod's folder        read-only
//! ```
//! What is mounted is looked up in the mount table each time, so the plugin may be killed and started again. A mount belongs to a process
//! that is not its child: it goes on without the plugin.
//!
//! Source: Container Storage Interface specification 1.11 (`proto/csi.proto`); docs/kubernetes.md says how it is used.

pub mod arguments;
mod claims;
mod command;
mod controller;
mod identity;
mod metrics;
mod mounts;
mod node;
mod page;
mod refusal;
mod secrets;
mod server;
mod state;
mod stores;
mod volume;

pub use server::run;

/// Messages and services of the specification, made by `build.rs`.
pub mod spec {
    #![allow(
        clippy::all,
        clippy::pedantic,
        missing_docs,
        rustdoc::all,
        reason = "made of proto/csi.proto"
    )]
    tonic::include_proto!("csi.v1");
}
