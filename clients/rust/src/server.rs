//! The server process.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use kube::config::{KubeConfigOptions, Kubeconfig};

use crate::features::TestFeatures;

/// Environment variable with the path of the program.
const PROGRAM: &str = "CLUSTER_APISERVER";

/// Maximum time of a start.
const PATIENCE: Duration = Duration::from_secs(30);

/// Interval of the checks whether the process has ended. Readiness needs no checks, because the server sends
/// a message when it is ready.
const LOOK: Duration = Duration::from_millis(50);

/// Settings of a server to start.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Path of the program. `None` means the path in the environment variable `CLUSTER_APISERVER`, or else
    /// `cluster-apiserver` in the search path.
    pub program: Option<PathBuf>,
    /// The naming profile. Clients of Kubernetes need `kubernetes`.
    pub naming: String,
    /// Further flags of the server.
    pub flags: Vec<OsString>,
    /// Whether the directory is kept when the server is dropped, so that the store and the log can be
    /// examined.
    pub keeps_directory: bool,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings { program: None, naming: "kubernetes".to_owned(), flags: Vec::new(), keeps_directory: false }
    }
}

/// Reason why a server did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The program cannot be started.
    #[error("cannot start {program:?}: {source}; set {PROGRAM} to the path of the program cluster-apiserver")]
    Program {
        /// Path of the program.
        program: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// A file cannot be created.
    #[error("cannot use {path:?}: {source}")]
    Directory {
        /// The file or directory.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// The process ended, or it was not ready in time.
    #[error("the server {what}; its log:\n{log}")]
    NotReady {
        /// Description of the failure.
        what: String,
        /// The log of the server.
        log: String,
    },
}

/// A server process that starts with an empty store. Dropping this value ends the process.
pub struct TestServer {
    settings: Settings,
    directory: PathBuf,
    process: Child,
}

impl TestServer {
    /// Starts a server with default settings, and waits until the server is ready.
    ///
    /// # Errors
    /// See [`StartError`].
    pub fn start() -> Result<TestServer, StartError> {
        TestServer::start_with(Settings::default())
    }

    /// Starts a server with the test features, and waits until the server is ready.
    ///
    /// # Errors
    /// See [`StartError`].
    pub fn start_with(settings: Settings) -> Result<TestServer, StartError> {
        let directory = new_directory()?;
        let started = launch(&settings, &directory);
        let process = match started {
            Ok(process) => process,
            Err(error) => {
                remove(&settings, &directory);
                return Err(error);
            }
        };
        Ok(TestServer { settings, directory, process })
    }

    /// Returns the path of the administrator's kubeconfig.
    pub fn kubeconfig(&self) -> PathBuf {
        data_dir(&self.directory).join("admin.kubeconfig")
    }

    /// Returns the directory of the server, which has the file `log` and the data directory `data`.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Returns the log of the server so far.
    pub fn log(&self) -> String {
        log(&self.directory)
    }

    /// Returns the id of the server process.
    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Returns a new client with the administrator's rights.
    ///
    /// # Errors
    /// The kubeconfig cannot be read.
    pub async fn client(&self) -> kube::Result<kube::Client> {
        kube::Client::try_from(self.config().await?)
    }

    /// Returns the configuration of a client with the administrator's rights.
    ///
    /// # Errors
    /// The kubeconfig cannot be read.
    pub async fn config(&self) -> kube::Result<kube::Config> {
        let file = Kubeconfig::read_from(self.kubeconfig()).map_err(kube::Error::InferKubeconfig)?;
        let options = KubeConfigOptions::default();
        kube::Config::from_custom_kubeconfig(file, &options).await.map_err(kube::Error::InferKubeconfig)
    }

    /// Returns a client of the test features of this server, which sends its requests with `client`.
    pub fn features(&self, client: kube::Client) -> TestFeatures {
        TestFeatures::new(client)
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        end(&mut self.process);
        remove(&self.settings, &self.directory);
    }
}

/// Creates a directory with a unique name. The name is short, because the path of a socket in the directory
/// must not exceed 107 bytes.
fn new_directory() -> Result<PathBuf, StartError> {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    loop {
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("cluster-apiserver-{}-{number}", std::process::id()));
        match fs::create_dir(&path) {
            Ok(()) => return Ok(path),
            // An earlier process with the same id did not remove its directory.
            Err(source) if source.kind() == io::ErrorKind::AlreadyExists => {}
            Err(source) => return Err(StartError::Directory { path, source }),
        }
    }
}

fn launch(settings: &Settings, directory: &Path) -> Result<Child, StartError> {
    let in_directory = |name: &str| directory.join(name);
    let failed = |path: PathBuf| move |source| StartError::Directory { path, source };
    let (socket, log_file) = (in_directory("ready"), in_directory("log"));
    let ready = UnixDatagram::bind(&socket).map_err(failed(socket.clone()))?;
    ready.set_read_timeout(Some(LOOK)).map_err(failed(socket.clone()))?;
    let stderr = File::create(&log_file).map_err(failed(log_file.clone()))?;
    let given = settings.program.clone().or_else(|| std::env::var_os(PROGRAM).map(PathBuf::from));
    let program = given.unwrap_or_else(|| PathBuf::from("cluster-apiserver"));
    let mut process = Command::new(&program)
        .arg(format!("--data-dir={}", data_dir(directory).display()))
        .arg(format!("--naming={}", settings.naming))
        .args(["--secure-port=free", "--durability=relaxed", "--testing", "--exit-with-parent"])
        .args(&settings.flags)
        .env("NOTIFY_SOCKET", &socket)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(stderr)
        .spawn()
        .map_err(|source| StartError::Program { program, source })?;
    match until_ready(&ready, &mut process) {
        Ok(()) => Ok(process),
        Err(what) => {
            end(&mut process);
            Err(StartError::NotReady { what, log: log(directory) })
        }
    }
}

/// Waits until the server sends the message that it is ready. If there is no message, the error describes the
/// reason.
fn until_ready(ready: &UnixDatagram, process: &mut Child) -> Result<(), String> {
    let deadline = Instant::now() + PATIENCE;
    let mut message = [0; 256];
    loop {
        if let Ok(length) = ready.recv(&mut message)
            && message[..length].starts_with(b"READY=1")
        {
            return Ok(());
        }
        match process.try_wait() {
            Ok(Some(status)) => return Err(format!("ended with {status}")),
            Ok(None) if Instant::now() < deadline => {}
            Ok(None) => return Err(format!("was not ready after {PATIENCE:?}")),
            Err(error) => return Err(format!("cannot be observed: {error}")),
        }
    }
}

fn data_dir(directory: &Path) -> PathBuf {
    directory.join("data")
}

fn log(directory: &Path) -> String {
    fs::read_to_string(directory.join("log")).unwrap_or_default()
}

/// Kills a process, because its store is no longer needed.
fn end(process: &mut Child) {
    // Ignore an error, because the process may already have ended.
    let _ = process.kill();
    let _ = process.wait();
}

fn remove(settings: &Settings, directory: &Path) {
    if !settings.keeps_directory {
        // Ignore an error, because the system cleans its temporary directory.
        let _ = fs::remove_dir_all(directory);
    }
}
