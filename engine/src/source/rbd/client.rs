//! A connection to a cluster, a pool, an open image: each closes itself, in the order that librbd needs.
//!
//! ```text
//!   Cluster ◄── Pool ◄── Image ◄── a read in progress
//!      └ shutdown  └ destroy  └ close, once no read is in flight (see `flight.rs`)
//! ```
//!
//! Never: opens anything for writing.
#![allow(unsafe_code)]

use super::address::Address;
use super::api::{Api, Handle, ImageInfo};
use super::flight::{Buffers, Gate};
use std::ffi::{CStr, CString, c_char, c_int};
use std::ptr::{null, null_mut};
use std::sync::Arc;

/// What was being done when librbd gave this (positive) error number.
pub struct Refused {
    pub errno: i32,
    pub step: Step,
}

/// The steps to an open image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    Create,
    ReadConf,
    /// An option that was given.
    Option,
    Connect,
    Pool,
    Image,
    /// Questions to an open image.
    Stat,
}

fn done(step: Step, result: c_int) -> Result<(), Refused> {
    if result < 0 {
        Err(Refused {
            errno: result.saturating_neg(),
            step,
        })
    } else {
        Ok(())
    }
}

/// A name for C. One with a zero byte in it becomes empty, which nothing is called; `address.rs` lets none through.
fn name(text: &str) -> CString {
    CString::new(text).unwrap_or_default()
}

fn pointer(text: Option<&CString>) -> *const c_char {
    text.map_or(null(), |text| text.as_ptr())
}

/// A connection to a cluster.
struct Cluster {
    api: &'static Api,
    handle: Handle,
}

// SAFETY: `rados_t` may be used by several threads at once, and on another thread than the one that made it.
unsafe impl Send for Cluster {}
// SAFETY: as above.
unsafe impl Sync for Cluster {}

impl Cluster {
    fn connect(
        api: &'static Api,
        address: &Address,
        options: &[(String, String)],
    ) -> Result<Cluster, Refused> {
        let (id, conf) = (
            name(address.id.as_deref().unwrap_or("admin")),
            address.conf.as_deref().map(name),
        );
        let mut handle = null_mut();
        // SAFETY: the handle is written on success only, and the name lives until the call has returned.
        done(Step::Create, unsafe {
            (api.rados_create)(&mut handle, id.as_ptr())
        })?;
        let cluster = Cluster { api, handle };
        // SAFETY: a live handle that is not connected; null means the usual places.
        done(Step::ReadConf, unsafe {
            (api.rados_conf_read_file)(handle, pointer(conf.as_ref()))
        })?;
        // SAFETY: as above; null means CEPH_ARGS.
        done(Step::ReadConf, unsafe {
            (api.rados_conf_parse_env)(handle, null())
        })?;
        for (key, value) in options {
            let (key, value) = (name(key), name(value));
            // SAFETY: as above; both names live until the call has returned.
            done(Step::Option, unsafe {
                (api.rados_conf_set)(handle, key.as_ptr(), value.as_ptr())
            })?;
        }
        // SAFETY: as above.
        done(Step::Connect, unsafe { (api.rados_connect)(handle) })?;
        Ok(cluster)
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        // SAFETY: made by rados_create, not used any more: pools hold on to their cluster.
        unsafe { (self.api.rados_shutdown)(self.handle) }
    }
}

/// A pool, or a namespace in one.
pub struct Pool {
    cluster: Cluster,
    handle: Handle,
}

// SAFETY: `rados_ioctx_t` may be used by several threads as long as no thread changes its namespace; that is done before
// any other thread has it.
unsafe impl Send for Pool {}
// SAFETY: as above.
unsafe impl Sync for Pool {}

impl Pool {
    pub fn open(
        api: &'static Api,
        address: &Address,
        options: &[(String, String)],
    ) -> Result<Pool, Refused> {
        let cluster = Cluster::connect(api, address, options)?;
        let (pool, namespace) = (name(&address.pool), name(&address.namespace));
        let mut handle = null_mut();
        // SAFETY: a connected cluster; the handle is written on success only.
        done(Step::Pool, unsafe {
            (api.rados_ioctx_create)(cluster.handle, pool.as_ptr(), &mut handle)
        })?;
        let pool = Pool { cluster, handle };
        if !address.namespace.is_empty() {
            // SAFETY: a live pool that no other thread has yet.
            unsafe { (api.rados_ioctx_set_namespace)(handle, namespace.as_ptr()) }
        }
        Ok(pool)
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        // SAFETY: made by rados_ioctx_create; images hold on to their pool. The cluster is shut down after this.
        unsafe { (self.cluster.api.rados_ioctx_destroy)(self.handle) }
    }
}

/// How an image is laid out in objects: what `rbd-aligned` takes as `object`, `stripe-unit` and `stripe-count`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RbdLayout {
    /// Bytes of an object.
    pub object_bytes: u64,
    /// Bytes that go to one object before the next one's turn.
    pub stripe_unit_bytes: u64,
    /// Objects that take turns.
    pub stripe_count: u64,
}

/// What distinguishes one image from another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    pub id: String,
    pub snap: Option<u64>,
    /// In bytes.
    pub size: u64,
}

/// An open image, read-only.
pub struct Image {
    pub(super) api: &'static Api,
    pub(super) handle: Handle,
    /// Counts the reads in flight.
    pub(super) gate: Arc<Gate>,
    pub(super) buffers: Arc<Buffers>,
    pub identity: Identity,
    pool: Option<Arc<Pool>>,
}

// SAFETY: `rbd_image_t` may be used by several threads at once, and on another thread than the one that opened it.
unsafe impl Send for Image {}
// SAFETY: as above.
unsafe impl Sync for Image {}

impl Image {
    pub fn open(pool: &Arc<Pool>, address: &Address) -> Result<Image, Refused> {
        let api = pool.cluster.api;
        let (image, snap) = (name(&address.image), address.snap.as_deref().map(name));
        let mut handle = null_mut();
        // SAFETY: a live pool; the names live until the call has returned; the handle is written on success only.
        done(Step::Image, unsafe {
            (api.rbd_open_read_only)(
                pool.handle,
                image.as_ptr(),
                &mut handle,
                pointer(snap.as_ref()),
            )
        })?;
        let identity = Identity {
            id: String::new(),
            snap: None,
            size: 0,
        };
        let (gate, buffers, pool) = (Arc::default(), Arc::default(), Some(Arc::clone(pool)));
        let mut image = Image {
            api,
            handle,
            gate,
            buffers,
            identity,
            pool,
        };
        image.identity = image.identify(snap.as_deref())?;
        Ok(image)
    }

    fn identify(&self, snap: Option<&CStr>) -> Result<Identity, Refused> {
        let (mut size, mut number, mut id) = (0, 0, [0; 256]);
        // SAFETY: a live image; an integer is written.
        done(Step::Stat, unsafe {
            (self.api.rbd_get_size)(self.handle, &mut size)
        })?;
        // SAFETY: a live image, a buffer and its length.
        done(Step::Stat, unsafe {
            (self.api.rbd_get_id)(self.handle, id.as_mut_ptr().cast(), id.len())
        })?;
        if let Some(snap) = snap {
            // SAFETY: a live image; the name lives until the call has returned; an integer is written.
            let result =
                unsafe { (self.api.rbd_snap_get_id)(self.handle, snap.as_ptr(), &mut number) };
            done(Step::Stat, result)?;
        }
        let id = CStr::from_bytes_until_nul(&id)
            .map_or(String::new(), |id| id.to_string_lossy().into_owned());
        Ok(Identity {
            id,
            snap: snap.map(|_| number),
            size,
        })
    }

    pub fn layout(&self) -> Result<RbdLayout, Refused> {
        let (mut unit, mut count) = (0, 0);
        let empty = ImageInfo {
            size: 0,
            object_size: 0,
            objects: 0,
            order: 0,
            prefix: [0; 24],
            parent_pool: 0,
            parent_name: [0; 96],
        };
        let mut info = empty;
        // SAFETY: a live image, a struct of theirs and its size.
        done(Step::Stat, unsafe {
            (self.api.rbd_stat)(self.handle, &mut info, size_of::<ImageInfo>())
        })?;
        // SAFETY: a live image; an integer is written.
        done(Step::Stat, unsafe {
            (self.api.rbd_get_stripe_unit)(self.handle, &mut unit)
        })?;
        // SAFETY: as above.
        done(Step::Stat, unsafe {
            (self.api.rbd_get_stripe_count)(self.handle, &mut count)
        })?;
        Ok(RbdLayout {
            object_bytes: info.object_size,
            stripe_unit_bytes: unit,
            stripe_count: count,
        })
    }
}

impl Drop for Image {
    fn drop(&mut self) {
        if !self.gate.drained() {
            // Reads that never ended still point into it: it stays open, with everything that it needs.
            std::mem::forget(self.pool.take());
            return;
        }
        // SAFETY: opened by us, and no read is in flight. Reads hold no image, so this is not librbd's thread.
        unsafe { (self.api.rbd_close)(self.handle) };
    }
}
