//! The optional controller service: for a PersistentVolumeClaim, it provides a volume whose source is set by the
//! claim's storage class.
//!
//! ```text
//!   StorageClass models, source: s3://models/  +  claim in a namespace  ──►  volume foreread-pvc-9f0e..., source: s3://models/
//! ```
//! The controller creates and deletes nothing in a store. The controller stores no state, because a volume consists
//! only of its identifier and the parameters of the class. A volume's capacity is unknown (reported as 0), and any
//! requested capacity gives the same volume.

use crate::arguments::Arguments;
use crate::refusal::{invalid, refused};
use crate::secrets::{OF_KUBERNETES, SecretKeys};
use crate::spec;
use crate::spec::{controller_service_capability as controller_capability, plugin_capability};
use crate::volume::{VolumeRequest, VolumeSpec, checked_capability, checked_id};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use tonic::{Code, Request, Response, Status};

/// Prefix of the identifiers of provisioned volumes.
const OURS: &str = "foreread-";

#[derive(Clone)]
pub struct ControllerService {
    pub arguments: Arguments,
}

impl ControllerService {
    fn is_offered(&self) -> Result<(), Status> {
        match self.arguments.controller {
            true => Ok(()),
            false => Err(Status::unimplemented(
                "foreread-csi provisions claims only with --controller",
            )),
        }
    }

    fn created(&self, request: spec::CreateVolumeRequest) -> Result<spec::Volume, Status> {
        self.is_offered()?;
        checked_id(&request.name)?;
        if request.volume_capabilities.is_empty() {
            return Err(invalid("there are no volume_capabilities", "add one"));
        }
        if request.volume_content_source.is_some() {
            let what = "a volume of foreread cannot be a copy of another";
            return Err(invalid(what, "remove dataSource"));
        }
        let own = |name: &String| !name.starts_with(OF_KUBERNETES);
        let parameters = request.parameters.into_iter();
        let attributes: HashMap<_, _> = parameters.filter(|(name, _)| own(name)).collect();
        let id = format!("{OURS}{}", request.name);
        for capability in &request.volume_capabilities {
            checked_capability(Some(capability), false, &self.arguments)?;
            let asked = VolumeRequest {
                id: &id,
                attributes: &attributes,
                capability: Some(capability),
                is_inline: false,
            };
            VolumeSpec::checked(&asked, &SecretKeys::default(), &self.arguments)?;
        }
        Ok(spec::Volume {
            volume_id: id,
            volume_context: attributes,
            ..spec::Volume::default()
        })
    }
}

#[tonic::async_trait]
impl spec::controller_server::Controller for ControllerService {
    async fn create_volume(
        &self,
        request: Request<spec::CreateVolumeRequest>,
    ) -> Result<Response<spec::CreateVolumeResponse>, Status> {
        let volume = self.created(request.into_inner())?;
        Ok(Response::new(spec::CreateVolumeResponse {
            volume: Some(volume),
        }))
    }

    async fn delete_volume(
        &self,
        request: Request<spec::DeleteVolumeRequest>,
    ) -> Result<Response<spec::DeleteVolumeResponse>, Status> {
        self.is_offered()?;
        checked_id(&request.into_inner().volume_id)?;
        Ok(Response::new(spec::DeleteVolumeResponse {}))
    }

    async fn validate_volume_capabilities(
        &self,
        request: Request<spec::ValidateVolumeCapabilitiesRequest>,
    ) -> Result<Response<spec::ValidateVolumeCapabilitiesResponse>, Status> {
        self.is_offered()?;
        let request = request.into_inner();
        checked_id(&request.volume_id)?;
        if request.volume_capabilities.is_empty() {
            return Err(invalid("there are no volume_capabilities", "add one"));
        }
        if !request.volume_id.starts_with(OURS) {
            let what = "there is no such volume";
            return Err(refused(
                Code::NotFound,
                what,
                "provisioned volumes begin with foreread-",
            ));
        }
        let all = request.volume_capabilities.iter();
        let refused =
            all.filter_map(|one| checked_capability(Some(one), false, &self.arguments).err());
        let message = refused.map(|status| status.message().to_string()).next();
        let confirmed = spec::validate_volume_capabilities_response::Confirmed {
            volume_context: request.volume_context,
            volume_capabilities: request.volume_capabilities.clone(),
            parameters: request.parameters,
            mutable_parameters: request.mutable_parameters,
        };
        Ok(Response::new(spec::ValidateVolumeCapabilitiesResponse {
            confirmed: message.is_none().then_some(confirmed),
            message: message.unwrap_or_default(),
        }))
    }

    async fn controller_get_capabilities(
        &self,
        _: Request<spec::ControllerGetCapabilitiesRequest>,
    ) -> Result<Response<spec::ControllerGetCapabilitiesResponse>, Status> {
        use controller_capability::{Rpc, Type, rpc};
        let kind = rpc::Type::CreateDeleteVolume;
        let offered = self
            .arguments
            .controller
            .then(|| spec::ControllerServiceCapability {
                r#type: Some(Type::Rpc(Rpc {
                    r#type: kind.into(),
                })),
            });
        Ok(Response::new(spec::ControllerGetCapabilitiesResponse {
            capabilities: offered.into_iter().collect(),
        }))
    }
}

// The identity service: the plugin's name, its capabilities, and whether the plugin can mount.

const FUSE_DEVICE: &str = "/dev/fuse";

#[derive(Clone)]
pub struct IdentityService {
    pub arguments: Arguments,
    pub program: PathBuf,
}

/// The reason why this node cannot mount volumes, or `None` if it can mount them.
pub fn obstacle(program: &Path) -> Option<String> {
    if !Path::new(FUSE_DEVICE).exists() {
        let what = "there is no /dev/fuse: load the module fuse on the node, and let the container be privileged";
        return Some(what.to_string());
    }
    let is_there = program.components().count() == 1 || program.is_file();
    (!is_there).then(|| {
        format!(
            "there is no {}: give the path of the command with --foreread",
            program.display()
        )
    })
}

#[tonic::async_trait]
impl spec::identity_server::Identity for IdentityService {
    async fn get_plugin_info(
        &self,
        _: Request<spec::GetPluginInfoRequest>,
    ) -> Result<Response<spec::GetPluginInfoResponse>, Status> {
        Ok(Response::new(spec::GetPluginInfoResponse {
            name: self.arguments.driver_name.clone(),
            vendor_version: env!("CARGO_PKG_VERSION").to_string(),
            ..spec::GetPluginInfoResponse::default()
        }))
    }

    async fn get_plugin_capabilities(
        &self,
        _: Request<spec::GetPluginCapabilitiesRequest>,
    ) -> Result<Response<spec::GetPluginCapabilitiesResponse>, Status> {
        use plugin_capability::{Service, Type, service};
        let kind = service::Type::ControllerService;
        let offered = self.arguments.controller.then(|| spec::PluginCapability {
            r#type: Some(Type::Service(Service {
                r#type: kind.into(),
            })),
        });
        Ok(Response::new(spec::GetPluginCapabilitiesResponse {
            capabilities: offered.into_iter().collect(),
        }))
    }

    async fn probe(
        &self,
        _: Request<spec::ProbeRequest>,
    ) -> Result<Response<spec::ProbeResponse>, Status> {
        match obstacle(&self.program) {
            None => Ok(Response::new(spec::ProbeResponse { ready: Some(true) })),
            Some(why) => Err(Status::failed_precondition(why)),
        }
    }
}
