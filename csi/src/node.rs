//! The node service: stages a volume with one mount, publishes it with bind mounts, and removes both.
//!
//! ```text
//!   stage      no mount ──► mounted             same source, answers ──► done already        its server is gone ──► mounted again
//!   publish    bound             bound to it already ──► done        bound to a dead mount ──► mounted and bound again
//!   unpublish, unstage           no mount ──► done already
//! ```
//! An inline volume is not staged: `foreread mount` mounts it directly on the pod's folder. Each call reads the mount
//! table. A volume has at most one call at a time; further calls for the volume are refused (ABORTED), and the kubelet
//! retries them.

use crate::arguments::Arguments;
use crate::command::MountCommand;
use crate::metrics::CallCounts;
use crate::mounts::{MountAnswer, MountTable, is_ours, make_folder, remove_folder, resolved};
use crate::refusal::{invalid, one_line, refused};
use crate::secrets::SecretKeys;
use crate::spec;
use crate::spec::node_service_capability::{Rpc, Type, rpc};
use crate::spec::{
    NodePublishVolumeRequest, NodePublishVolumeResponse, NodeStageVolumeRequest,
    NodeStageVolumeResponse, NodeUnpublishVolumeRequest, NodeUnpublishVolumeResponse,
    NodeUnstageVolumeRequest, NodeUnstageVolumeResponse, VolumeCondition, VolumeUsage,
    volume_usage,
};
use crate::state::{Claim, Claims, number};
use crate::volume::{
    VolumeRequest, VolumeSpec, checked_capability, checked_id, file_name, is_inline_name,
};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tonic::{Code, Request, Response, Status};

/// Set by Kubernetes in the attributes of an inline volume.
const IS_INLINE: &str = "csi.storage.k8s.io/ephemeral";

/// Maximum checks of a path whose mounts keep changing.
const MAX_LOOKS: u32 = 4;

/// The node service; all clones share the same state.
#[derive(Clone)]
pub struct NodeService(Arc<NodeParts>);

pub struct NodeParts {
    pub arguments: Arguments,
    pub mounts: MountTable,
    pub command: MountCommand,
    pub counts: CallCounts,
    /// Volumes with a running call.
    pub busy: Claims<String>,
}

impl NodeParts {
    fn turn(&self, id: &str) -> Result<Claim<String>, Status> {
        self.busy.claim(&id.to_string()).ok_or_else(|| {
            let what = "another call for this volume is running";
            refused(Code::Aborted, what, "retry when it has ended")
        })
    }

    async fn stage(
        &self,
        request: NodeStageVolumeRequest,
    ) -> Result<NodeStageVolumeResponse, Status> {
        checked_id(&request.volume_id)?;
        let place = named("staging_target_path", &request.staging_target_path)?;
        let capability = request.volume_capability.as_ref();
        checked_capability(capability, false, &self.arguments)?;
        let keys = SecretKeys::checked(&request.secrets)?;
        let asked = VolumeRequest {
            id: &request.volume_id,
            attributes: &request.volume_context,
            capability,
            is_inline: false,
        };
        let volume = VolumeSpec::checked(&asked, &keys, &self.arguments)?;
        let _turn = self.turn(&request.volume_id)?;
        let name = file_name(&request.volume_id, false);
        self.mount(&name, &volume, &keys, &place).await?;
        Ok(NodeStageVolumeResponse {})
    }

    /// Mounts a volume at a path, unless it is mounted there.
    async fn mount(
        &self,
        name: &str,
        volume: &VolumeSpec,
        keys: &SecretKeys,
        place: &Path,
    ) -> Result<(), Status> {
        let state = &self.command.state;
        let mut has_ended = false;
        let mut looks = 0;
        // Checks again, because a mount started by a killed plugin may have appeared meanwhile.
        while looks == 0 || self.mounts.settled(place).await? {
            looks += 1;
            if looks > MAX_LOOKS {
                let what = format!("mounts keep changing at {}", place.display());
                let remedy = "end the processes that mount there; the kubelet retries the call";
                return Err(refused(Code::Unavailable, &what, remedy));
            }
            let Some(mount) = self.mounts.at(place) else {
                continue;
            };
            if !is_ours(&mount) {
                return Err(other(place, &mount.kind));
            }
            let (noted, own) = (state.note(name).source, number(&volume.source));
            match self.mounts.asked(place).await {
                // Without a recorded source, the mount is assumed to be that of this volume, because it is on the volume's folder.
                MountAnswer::Answers(_) if noted.is_none_or(|known| known == own) => {
                    return self.command.renew(name, keys);
                }
                MountAnswer::Answers(_) => {
                    let what = format!("{} has a mount of another source", place.display());
                    let remedy = "give the volume another volumeHandle";
                    return Err(refused(Code::AlreadyExists, &what, remedy));
                }
                MountAnswer::Silent => return Err(silent(place)),
                MountAnswer::Failed(_) => {
                    self.mounts.unmount(place, true).await?;
                    has_ended = true;
                }
            }
        }
        self.room(name)?;
        make_folder(place)?;
        let done = self.command.mount(name, volume, keys, place).await;
        if done.is_err() {
            // The mount may have appeared after the time limit.
            let _ = self.mounts.unmount(place, true).await;
        }
        // After any other code the kubelet assumes that nothing is mounted, and never unpublishes an inline volume.
        done.map_err(|status| match has_ended {
            true => Status::unavailable(status.message()),
            false => status,
        })
    }

    fn room(&self, name: &str) -> Result<(), Status> {
        let full = |what: String, setting: &str| {
            let remedy = format!("use another node, or set {setting} of the chart");
            Err(refused(Code::ResourceExhausted, &what, &remedy))
        };
        let mut others = self.command.state.names();
        others.retain(|known| known != name);
        let most = self.arguments.max_volumes;
        if others.len() >= most as usize {
            return full(format!("this node has {most} volumes"), "plugin.maxVolumes");
        }
        let most = self.arguments.max_inline;
        let inline = others.iter().filter(|known| is_inline_name(known)).count();
        if is_inline_name(name) && inline >= most as usize {
            let what = format!("this node has {most} inline volumes");
            return full(what, "inline.maxVolumes");
        }
        Ok(())
    }

    async fn publish(
        &self,
        request: NodePublishVolumeRequest,
    ) -> Result<NodePublishVolumeResponse, Status> {
        checked_id(&request.volume_id)?;
        let target = named("target_path", &request.target_path)?;
        let is_inline = is_inline(&request.volume_context);
        let capability = request.volume_capability.as_ref();
        checked_capability(capability, is_inline, &self.arguments)?;
        if is_inline {
            return self.publish_inline(&request, &target).await;
        }
        let not_staged =
            |what: &str| refused(Code::FailedPrecondition, what, "call NodeStageVolume first");
        if request.staging_target_path.is_empty() {
            return Err(not_staged("there is no staging_target_path"));
        }
        let staged = resolved(&request.staging_target_path)?;
        let _turn = self.turn(&request.volume_id)?;
        let name = file_name(&request.volume_id, false);
        let was_staged = || self.command.state.note(&name).source.is_some();
        let answer = match &self.mounts.at(&staged) {
            Some(mount) if is_ours(mount) => Some(self.mounts.asked(&staged).await),
            // The server had ended and the volume could not be mounted again.
            None if was_staged() => None,
            _ => {
                let what = format!("there is no foreread mount at {}", staged.display());
                return Err(not_staged(&what));
            }
        };
        match answer {
            // The kubelet publishes again from time to time (requiresRepublish), with the current Secret.
            Some(MountAnswer::Answers(_)) => {
                let keys = SecretKeys::checked(&request.secrets)?;
                self.command.renew(&name, &keys)?;
            }
            Some(MountAnswer::Silent) => return Err(silent(&staged)),
            Some(MountAnswer::Failed(_)) | None => self.mount_again(&request, &staged).await?,
        }
        let device = |place: &Path| self.mounts.at(place).map(|mount| mount.number);
        if let Some(mount) = self.mounts.at(&target) {
            if !is_ours(&mount) {
                return Err(other(&target, &mount.kind));
            }
            if Some(mount.number) == device(&staged) {
                return Ok(NodePublishVolumeResponse {});
            }
            let MountAnswer::Failed(_) = self.mounts.asked(&target).await else {
                let what = format!("{} shows another volume", target.display());
                let remedy = "call NodeUnpublishVolume first";
                return Err(refused(Code::AlreadyExists, &what, remedy));
            };
            self.mounts.unmount(&target, true).await?;
        }
        make_folder(&target)?;
        let bound = self.mounts.bind(&staged, &target).await;
        if bound.is_err() {
            let _ = remove_folder(&target);
        }
        bound.map(|()| NodePublishVolumeResponse {})
    }

    fn published(
        &self,
        request: &NodePublishVolumeRequest,
        keys: &SecretKeys,
        is_inline: bool,
    ) -> Result<VolumeSpec, Status> {
        let asked = VolumeRequest {
            id: &request.volume_id,
            attributes: &request.volume_context,
            capability: request.volume_capability.as_ref(),
            is_inline,
        };
        VolumeSpec::checked(&asked, keys, &self.arguments)
    }

    /// Mounts a staged volume again: its server has ended and a pod needs it, but the kubelet does not stage it again while other
    /// pods use it.
    async fn mount_again(
        &self,
        request: &NodePublishVolumeRequest,
        staged: &Path,
    ) -> Result<(), Status> {
        let name = file_name(&request.volume_id, false);
        let keys = SecretKeys::checked(&request.secrets)?;
        if self.command.state.note(&name).has_keys && keys.is_empty() {
            let what =
                "the mount of the volume has ended, and this call has no Secret to mount it again";
            let remedy = "give its Secret also as nodePublishSecretRef, or delete all pods of the volume on this node";
            return Err(refused(Code::FailedPrecondition, what, remedy));
        }
        let volume = self.published(request, &keys, false)?;
        self.mount(&name, &volume, &keys, staged).await
    }

    async fn publish_inline(
        &self,
        request: &NodePublishVolumeRequest,
        target: &Path,
    ) -> Result<NodePublishVolumeResponse, Status> {
        if !self.arguments.inline {
            let remedy = "use a PersistentVolume, or set inline.enabled of the chart";
            return Err(invalid("pods may not name sources on this node", remedy));
        }
        let keys = SecretKeys::checked(&request.secrets)?;
        let volume = self.published(request, &keys, true)?;
        let _turn = self.turn(&request.volume_id)?;
        let name = file_name(&request.volume_id, true);
        let done = self.mount(&name, &volume, &keys, target).await;
        // The kubelet retries if the code is Unavailable.
        let is_final = |status: &Status| status.code() != Code::Unavailable;
        if done.as_ref().is_err_and(is_final) {
            let _ = remove_folder(target);
        }
        done.map(|()| NodePublishVolumeResponse {})
    }

    /// Unmounts a path; if the server is gone, also if the mount is busy.
    async fn unmount(&self, place: &Path) -> Result<(), Status> {
        let Some(_) = self.mounts.at(place).filter(is_ours) else {
            // Other file systems are never unmounted.
            return self.mounts.unmount(place, false).await;
        };
        let lazily = !matches!(self.mounts.asked(place).await, MountAnswer::Answers(_));
        self.mounts.unmount(place, lazily).await
    }

    async fn unpublish(
        &self,
        request: NodeUnpublishVolumeRequest,
    ) -> Result<NodeUnpublishVolumeResponse, Status> {
        checked_id(&request.volume_id)?;
        let target = named("target_path", &request.target_path)?;
        let _turn = self.turn(&request.volume_id)?;
        self.unmount(&target).await?;
        remove_folder(&target)?;
        self.forget(&file_name(&request.volume_id, true))?;
        Ok(NodeUnpublishVolumeResponse {})
    }

    async fn unstage(
        &self,
        request: NodeUnstageVolumeRequest,
    ) -> Result<NodeUnstageVolumeResponse, Status> {
        checked_id(&request.volume_id)?;
        let place = named("staging_target_path", &request.staging_target_path)?;
        let _turn = self.turn(&request.volume_id)?;
        self.unmount(&place).await?;
        self.forget(&file_name(&request.volume_id, false))?;
        Ok(NodeUnstageVolumeResponse {})
    }

    fn forget(&self, name: &str) -> Result<(), Status> {
        self.command.state.forget(name).map_err(|error| {
            let what = format!("cannot remove the state of a mount: {error}");
            refused(Code::Internal, &what, "make the folder of --state writable")
        })
    }

    async fn stats(
        &self,
        request: spec::NodeGetVolumeStatsRequest,
    ) -> Result<spec::NodeGetVolumeStatsResponse, Status> {
        checked_id(&request.volume_id)?;
        if request.volume_path.is_empty() {
            return Err(invalid("there is no volume_path", "add one"));
        }
        let place =
            resolved(&request.volume_path).unwrap_or_else(|_| PathBuf::from(&request.volume_path));
        let Some(_) = self.mounts.at(&place).filter(is_ours) else {
            let what = format!("there is no foreread mount at {}", place.display());
            return Err(refused(Code::NotFound, &what, "publish the volume first"));
        };
        let mut usage = VolumeUsage {
            unit: volume_usage::Unit::Bytes.into(),
            ..VolumeUsage::default()
        };
        let (is_bad, message) = match self.mounts.asked(&place).await {
            MountAnswer::Answers(stat) => {
                let bytes = |blocks: u64| i64::try_from(blocks.saturating_mul(stat.f_frsize));
                usage.total = bytes(stat.f_blocks).unwrap_or(i64::MAX);
                usage.available = bytes(stat.f_bavail).unwrap_or(i64::MAX);
                usage.used = usage.total - usage.available;
                (false, "the mount answers".to_string())
            }
            MountAnswer::Failed(error) => (true, format!("the mount's server is gone: {error}")),
            MountAnswer::Silent => (true, "the mount does not answer".to_string()),
        };
        Ok(spec::NodeGetVolumeStatsResponse {
            usage: vec![usage],
            volume_condition: Some(VolumeCondition {
                abnormal: is_bad,
                message,
            }),
        })
    }
}

fn is_inline(attributes: &HashMap<String, String>) -> bool {
    attributes
        .get(IS_INLINE)
        .is_some_and(|value| value == "true")
}

fn named(what: &str, place: &str) -> Result<PathBuf, Status> {
    if place.is_empty() {
        return Err(invalid(&format!("there is no {what}"), "add one"));
    }
    resolved(place)
}

fn other(place: &Path, kind: &str) -> Status {
    let what = format!("{} is a mount of {kind}", place.display());
    refused(Code::FailedPrecondition, &what, "unmount it first")
}

fn silent(place: &Path) -> Status {
    let what = format!("the mount at {} does not answer", place.display());
    let remedy = "check the store; the kubelet retries the call";
    refused(Code::Unavailable, &what, remedy)
}

impl NodeService {
    pub fn new(parts: Arc<NodeParts>) -> NodeService {
        NodeService(parts)
    }

    /// Counts a call and logs its result. The call continues even if the caller disconnects, so that no mount is left half done.
    async fn call<T: Send + 'static>(
        &self,
        method: &'static str,
        id: &str,
        work: impl Future<Output = Result<T, Status>> + Send + 'static,
    ) -> Result<Response<T>, Status> {
        let timer = self.0.counts.begin(method);
        let done = tokio::spawn(work).await;
        let bug = || Status::internal("internal error in the plugin: please report it");
        let done = done.unwrap_or_else(|_| Err(bug()));
        let status = done.as_ref().err();
        let code = status.map_or(Code::Ok, Status::code);
        let seconds = self.0.counts.end(timer, code);
        let said = status.map(|status| format!(": {}", one_line(status.message())));
        // The kubelet asks each minute, for each volume of each pod.
        if method != "NodeGetVolumeStats" || said.is_some() {
            let (id, said) = (one_line(id), said.unwrap_or_default());
            eprintln!("foreread-csi: {method} {id}: {code:?} after {seconds:.3} s{said}");
        }
        done.map(Response::new)
    }
}

#[tonic::async_trait]
impl spec::node_server::Node for NodeService {
    async fn node_stage_volume(
        &self,
        request: Request<NodeStageVolumeRequest>,
    ) -> Result<Response<NodeStageVolumeResponse>, Status> {
        let (parts, request) = (Arc::clone(&self.0), request.into_inner());
        let id = request.volume_id.clone();
        let work = async move { parts.stage(request).await };
        self.call("NodeStageVolume", &id, work).await
    }

    async fn node_unstage_volume(
        &self,
        request: Request<NodeUnstageVolumeRequest>,
    ) -> Result<Response<NodeUnstageVolumeResponse>, Status> {
        let (parts, request) = (Arc::clone(&self.0), request.into_inner());
        let id = request.volume_id.clone();
        let work = async move { parts.unstage(request).await };
        self.call("NodeUnstageVolume", &id, work).await
    }

    async fn node_publish_volume(
        &self,
        request: Request<NodePublishVolumeRequest>,
    ) -> Result<Response<NodePublishVolumeResponse>, Status> {
        let (parts, request) = (Arc::clone(&self.0), request.into_inner());
        let id = request.volume_id.clone();
        let work = async move { parts.publish(request).await };
        self.call("NodePublishVolume", &id, work).await
    }

    async fn node_unpublish_volume(
        &self,
        request: Request<NodeUnpublishVolumeRequest>,
    ) -> Result<Response<NodeUnpublishVolumeResponse>, Status> {
        let (parts, request) = (Arc::clone(&self.0), request.into_inner());
        let id = request.volume_id.clone();
        let work = async move { parts.unpublish(request).await };
        self.call("NodeUnpublishVolume", &id, work).await
    }

    async fn node_get_volume_stats(
        &self,
        request: Request<spec::NodeGetVolumeStatsRequest>,
    ) -> Result<Response<spec::NodeGetVolumeStatsResponse>, Status> {
        let (parts, request) = (Arc::clone(&self.0), request.into_inner());
        let id = request.volume_id.clone();
        let work = async move { parts.stats(request).await };
        self.call("NodeGetVolumeStats", &id, work).await
    }

    async fn node_get_capabilities(
        &self,
        _: Request<spec::NodeGetCapabilitiesRequest>,
    ) -> Result<Response<spec::NodeGetCapabilitiesResponse>, Status> {
        let all = [
            rpc::Type::StageUnstageVolume,
            rpc::Type::GetVolumeStats,
            rpc::Type::VolumeCondition,
        ];
        let one = |kind: rpc::Type| spec::NodeServiceCapability {
            r#type: Some(Type::Rpc(Rpc {
                r#type: kind.into(),
            })),
        };
        Ok(Response::new(spec::NodeGetCapabilitiesResponse {
            capabilities: all.map(one).to_vec(),
        }))
    }

    async fn node_get_info(
        &self,
        _: Request<spec::NodeGetInfoRequest>,
    ) -> Result<Response<spec::NodeGetInfoResponse>, Status> {
        let arguments = &self.0.arguments;
        Ok(Response::new(spec::NodeGetInfoResponse {
            node_id: arguments.node_id.clone(),
            max_volumes_per_node: arguments.max_volumes.into(),
            ..spec::NodeGetInfoResponse::default()
        }))
    }
}
