//! The identity service: the plugin's name, its capabilities, and whether it can mount.

use crate::arguments::Arguments;
use crate::spec;
use crate::spec::plugin_capability::{Service, Type, service};
use std::path::{Path, PathBuf};
use tonic::{Request, Response, Status};

const FUSE_DEVICE: &str = "/dev/fuse";

#[derive(Clone)]
pub struct IdentityService {
    pub arguments: Arguments,
    pub program: PathBuf,
}

/// Why this node cannot mount.
pub fn obstacle(program: &Path) -> Option<String> {
    if !Path::new(FUSE_DEVICE).exists() {
        let what = "there is no /dev/fuse: load the module fuse on the node, and let the container be privileged";
        return Some(what.to_string());
    }
    let is_there = program.components().count() == 1 || program.is_file();
    (!is_there).then(|| {
        format!(
            "there is no {}: name the command by --foreread",
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
