//! Shared code of the tests: a plugin on a socket, a client for it, and searches in /proc.

pub use foreread_testing::machine::{Running, can_mount, runs, signal, wait_until};

use foreread_csi::spec;
use foreread_csi::spec::identity_client::IdentityClient;
use foreread_csi::spec::node_client::NodeClient;
use foreread_csi::spec::volume_capability::access_mode::Mode;
use foreread_csi::spec::volume_capability::{AccessMode, AccessType, MountVolume};
use std::collections::HashMap;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tonic::transport::{Channel, Endpoint, Uri};
use tonic::{Code, Status};

/// How long an event is waited for before a test fails.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// The command foreread of this build, where it can mount; else a line says what is missing.
pub fn foreread() -> Option<PathBuf> {
    let program = Path::new(env!("CARGO_BIN_EXE_foreread-csi")).with_file_name("foreread");
    let version = Command::new(&program).arg("--version").output().ok();
    let has = |word: &str| {
        let out = version
            .as_ref()
            .map(|out| String::from_utf8_lossy(&out.stdout));
        out.is_some_and(|text| text.contains(word))
    };
    can_mount().then_some(())?;
    if !(has("fuse") && has("object")) {
        println!(
            "skipped: needs foreread beside the tests (cargo build --workspace --all-features)"
        );
        return None;
    }
    Some(program)
}

/// A plugin with its folders; all that it mounted is taken away in the end.
pub struct Plugin {
    pub dir: tempfile::TempDir,
    arguments: Vec<String>,
    variables: HashMap<String, String>,
    process: Option<Running>,
    said: Arc<Mutex<String>>,
    runtime: tokio::runtime::Runtime,
    channel: Option<Channel>,
}

impl Plugin {
    /// Nothing where it cannot run here.
    pub fn start(more: &[&str]) -> Option<Plugin> {
        Plugin::with(more, &[])
    }

    pub fn with(more: &[&str], variables: &[(&str, &str)]) -> Option<Plugin> {
        let program = foreread()?;
        let dir = tempfile::tempdir().expect("a folder");
        let at = |name: &str| dir.path().join(name).display().to_string();
        let arguments = [
            "--endpoint".to_string(),
            format!("unix://{}", at("csi.sock")),
            "--node-id=node-1".to_string(),
            "--foreread".to_string(),
            program.display().to_string(),
            "--state".to_string(),
            at("state"),
            "--metrics=127.0.0.1:0".to_string(),
        ];
        let more = more
            .iter()
            .map(|word| word.replace("DIR", &dir.path().display().to_string()));
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime");
        let mut plugin = Plugin {
            arguments: arguments.into_iter().chain(more).collect(),
            variables: map(variables),
            dir,
            process: None,
            said: Arc::default(),
            runtime,
            channel: None,
        };
        plugin.begin();
        Some(plugin)
    }

    /// Starts it, again after [`Plugin::kill`].
    pub fn begin(&mut self) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_foreread-csi"));
        let mut process = command
            .args(&self.arguments)
            .envs(&self.variables)
            .stderr(Stdio::piped())
            .spawn()
            .expect("started");
        let err = BufReader::new(process.stderr.take().expect("piped"));
        let (serves, ready): (_, Receiver<()>) = channel();
        let said = Arc::clone(&self.said);
        foreread_os::threads::spawn("said", move || {
            for line in err.lines().map_while(Result::ok) {
                let is_ready = line.contains(" at /");
                *said.lock().expect("not poisoned") += &format!("{line}\n");
                if is_ready {
                    let _ = serves.send(());
                }
            }
        })
        .expect("a thread");
        self.process = Some(Running(process));
        ready
            .recv_timeout(PATIENCE)
            .unwrap_or_else(|_| panic!("it does not serve: {}", self.said()));
        let socket = self.path("csi.sock");
        let connect = tower::service_fn(move |_: Uri| {
            let socket = socket.clone();
            async move {
                let stream = tokio::net::UnixStream::connect(socket).await?;
                Ok::<_, std::io::Error>(hyper_util::rt::TokioIo::new(stream))
            }
        });
        let endpoint = Endpoint::from_static("http://csi");
        let channel = self
            .runtime
            .block_on(endpoint.connect_with_connector(connect));
        self.channel = Some(channel.expect("connected"));
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub fn text(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }

    pub fn said(&self) -> String {
        self.said.lock().expect("not poisoned").clone()
    }

    /// Ends it by SIGKILL.
    pub fn kill(&mut self) {
        drop(self.process.take().expect("started"));
    }

    pub fn id(&self) -> u32 {
        self.process.as_ref().expect("started").0.id()
    }

    fn run<T>(
        &self,
        work: impl Future<Output = Result<tonic::Response<T>, Status>>,
    ) -> Result<T, Status> {
        self.runtime.block_on(work).map(tonic::Response::into_inner)
    }

    fn node(&self) -> NodeClient<Channel> {
        NodeClient::new(self.channel.clone().expect("connected"))
    }

    pub fn identity(&self) -> IdentityClient<Channel> {
        IdentityClient::new(self.channel.clone().expect("connected"))
    }

    pub fn probe(&self) -> Result<spec::ProbeResponse, Status> {
        self.run(self.identity().probe(spec::ProbeRequest {}))
    }

    pub fn stage(&self, volume: &TestVolume) -> Result<(), Status> {
        let request = spec::NodeStageVolumeRequest {
            volume_id: volume.id.clone(),
            staging_target_path: self.text(&volume.id),
            volume_capability: Some(volume.capability()),
            secrets: volume.secrets.clone(),
            volume_context: volume.attributes.clone(),
            ..Default::default()
        };
        self.run(self.node().node_stage_volume(request)).map(drop)
    }

    pub fn publish(&self, volume: &TestVolume, target: &str) -> Result<(), Status> {
        let is_inline = volume.attributes.contains_key(EPHEMERAL);
        let staged = if is_inline {
            String::new()
        } else {
            self.text(&volume.id)
        };
        let request = spec::NodePublishVolumeRequest {
            volume_id: volume.id.clone(),
            staging_target_path: staged,
            target_path: self.text(target),
            volume_capability: Some(volume.capability()),
            secrets: volume.secrets.clone(),
            volume_context: volume.attributes.clone(),
            ..Default::default()
        };
        self.run(self.node().node_publish_volume(request)).map(drop)
    }

    pub fn unpublish(&self, volume: &TestVolume, target: &str) -> Result<(), Status> {
        let request = spec::NodeUnpublishVolumeRequest {
            volume_id: volume.id.clone(),
            target_path: self.text(target),
        };
        self.run(self.node().node_unpublish_volume(request))
            .map(drop)
    }

    pub fn unstage(&self, volume: &TestVolume) -> Result<(), Status> {
        let request = spec::NodeUnstageVolumeRequest {
            volume_id: volume.id.clone(),
            staging_target_path: self.text(&volume.id),
        };
        self.run(self.node().node_unstage_volume(request)).map(drop)
    }

    /// Stages it and publishes it to the first pod.
    #[track_caller]
    pub fn mount(&self, volume: &TestVolume) {
        self.stage(volume).expect("staged");
        self.publish(volume, "pod-1").expect("published");
    }

    #[track_caller]
    pub fn unmount(&self, volume: &TestVolume) {
        self.unpublish(volume, "pod-1").expect("unpublished");
        self.unstage(volume).expect("unstaged");
    }

    pub fn stats(
        &self,
        volume: &TestVolume,
        target: &str,
    ) -> Result<spec::NodeGetVolumeStatsResponse, Status> {
        let request = spec::NodeGetVolumeStatsRequest {
            volume_id: volume.id.clone(),
            volume_path: self.text(target),
            ..Default::default()
        };
        self.run(self.node().node_get_volume_stats(request))
    }

    /// What is served at a path by HTTP.
    pub fn page(&self, path: &str) -> String {
        use std::io::{Read, Write};
        let said = self.said();
        let address = said
            .rsplit("http://")
            .next()
            .and_then(|rest| rest.split('/').next());
        let mut stream =
            std::net::TcpStream::connect(address.expect("an address")).expect("connected");
        write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\n\r\n").expect("sent");
        let mut text = String::new();
        stream.read_to_string(&mut text).expect("read");
        text
    }

    /// The mounts of foreread below the plugin's folder.
    pub fn mounts(&self) -> Vec<foreread_os::host::Mount> {
        let mounts = foreread_os::host::Host::here().mounts().into_iter();
        let real = self.dir.path().canonicalize().expect("there");
        mounts
            .filter(|mount| mount.point.starts_with(&real))
            .collect()
    }

    /// The processes that have a text in their arguments, but the plugin.
    pub fn servers(&self, text: &str) -> Vec<u32> {
        let processes = std::fs::read_dir("/proc").expect("there").flatten();
        let numbers = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        let own = self.process.as_ref().map(|process| process.0.id());
        let has = |pid: &u32| {
            let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            Some(*pid) != own && String::from_utf8_lossy(&line).contains(text)
        };
        numbers.filter(has).collect()
    }

    /// The one process that serves the mount at a place.
    pub fn server(&self, place: &str) -> u32 {
        let [server] = self.servers(&self.text(place))[..] else {
            panic!("one server");
        };
        server
    }
}

impl Drop for Plugin {
    fn drop(&mut self) {
        drop(self.process.take());
        for mount in self.mounts().iter().rev() {
            runs(&["umount", "-l", &mount.point.display().to_string()]);
        }
        // One that a test has stopped would stay.
        for server in self.servers(&self.text("")) {
            runs(&["kill", "-KILL", &server.to_string()]);
        }
        if std::thread::panicking() {
            println!("the plugin said:\n{}", self.said());
        }
    }
}

pub const EPHEMERAL: &str = "csi.storage.k8s.io/ephemeral";

pub struct TestVolume {
    pub id: String,
    pub attributes: HashMap<String, String>,
    pub secrets: HashMap<String, String>,
    pub mode: Mode,
}

impl TestVolume {
    pub fn new(id: &str, attributes: &[(&str, &str)]) -> TestVolume {
        TestVolume {
            id: id.to_string(),
            attributes: map(attributes),
            secrets: HashMap::new(),
            mode: Mode::MultiNodeReaderOnly,
        }
    }

    pub fn with_secrets(self, secrets: &[(&str, &str)]) -> TestVolume {
        TestVolume {
            secrets: map(secrets),
            ..self
        }
    }

    fn capability(&self) -> spec::VolumeCapability {
        spec::VolumeCapability {
            access_type: Some(AccessType::Mount(MountVolume::default())),
            access_mode: Some(AccessMode {
                mode: self.mode.into(),
            }),
        }
    }
}

pub fn map(all: &[(&str, &str)]) -> HashMap<String, String> {
    let all = all.iter();
    all.map(|(name, value)| (name.to_string(), value.to_string()))
        .collect()
}

pub fn refused<T>(done: Result<T, Status>, code: Code) -> String {
    let status = done.err().expect("refused");
    let line = status.message().to_string();
    assert_eq!(status.code(), code, "{line}");
    assert!(!line.contains('\n') && line.len() < 2000, "{line}");
    line
}

/// The key of versitygw.
pub const KEY: &str = "testkey";
pub const SECRET: &str = "hushhushhush";

/// versitygw, an S3 server over a folder, with one bucket, `bucket`: started on a free port, ended with the value.
pub struct Gateway {
    _server: Running,
    pub endpoint: String,
    dir: tempfile::TempDir,
}

impl Gateway {
    /// Nothing, with a line that says so, where versitygw is not installed.
    pub fn start() -> Option<Gateway> {
        let version = Command::new("versitygw").arg("--version").output();
        if version.is_err() {
            println!("skipped: needs versitygw (./setup builds it)");
            return None;
        }
        let dir = tempfile::tempdir().expect("a folder");
        std::fs::create_dir_all(dir.path().join("files/bucket/data")).expect("a bucket");
        std::fs::create_dir(dir.path().join("users")).expect("made");
        let (server, port) = foreread_testing::machine::server(|port| {
            let mut command = Command::new("versitygw");
            let line = format!("--port 127.0.0.1:{port} --quiet --iam-cache-disable --iam-dir");
            command.args(line.split(' ')).arg(dir.path().join("users"));
            command.arg("posix").arg(dir.path().join("files"));
            command.envs([("ROOT_ACCESS_KEY", KEY), ("ROOT_SECRET_KEY", SECRET)]);
            command
        });
        Some(Gateway {
            _server: server,
            endpoint: format!("http://127.0.0.1:{port}"),
            dir,
        })
    }

    pub fn put(&self, name: &str, bytes: &[u8]) {
        let path = self.dir.path().join("files/bucket/data").join(name);
        std::fs::write(path, bytes).expect("room");
    }

    /// One more key, which may read everything.
    pub fn add_key(&self, key: &str, secret: &str) {
        self.administer(&["create-user", "-a", key, "-s", secret, "-r", "admin"]);
    }

    pub fn remove_key(&self, key: &str) {
        self.administer(&["delete-user", "-a", key]);
    }

    fn administer(&self, what: &[&str]) {
        let mut command = Command::new("versitygw");
        let own = ["admin", "-a", KEY, "-s", SECRET, "--endpoint-url"];
        command.args(own).arg(&self.endpoint);
        let done = command.args(what).output().expect("started");
        assert!(done.status.success(), "{done:?}");
    }
}
