//! Starts, kills and restarts the server binary.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use crate::PATIENCE;
use crate::client::{Client, Identity};

pub use testkit::TempDir;

/// Options of a server process.
#[derive(Clone, Debug)]
pub struct Options {
    /// Value of the flag `--naming`.
    pub naming: &'static str,
    /// Additional flags. The text `$dir` in a flag means the data directory.
    pub flags: Vec<String>,
    /// Files that are created in the data directory before the first start: name and content.
    pub files: Vec<(&'static str, String)>,
    /// Environment variables of the process. The text `$dir` in a value means the data directory.
    pub environment: Vec<(&'static str, String)>,
}

impl Default for Options {
    fn default() -> Self {
        Options { naming: "kubernetes", flags: Vec::new(), files: Vec::new(), environment: Vec::new() }
    }
}

/// A server process and its data directory; dropping this value ends the process and removes the directory.
pub struct Server {
    options: Options,
    directory: TempDir,
    child: Child,
    client: Client,
}

impl Server {
    /// Starts a server with an empty data directory and waits until it is ready.
    pub async fn start(options: Options) -> Server {
        Self::start_in(TempDir::new(), options).await
    }

    /// Starts a server on the given data directory and waits until it is ready.
    pub async fn start_in(directory: TempDir, options: Options) -> Server {
        for (name, content) in &options.files {
            std::fs::write(directory.path().join(name), content).expect("the data directory is writable");
        }
        let (child, client) = launch(&options, directory.path()).await;
        Server { options, directory, child, client }
    }

    /// Starts a server with the `kubernetes` naming profile.
    pub async fn start_upstream() -> Server {
        Self::start(Options::default()).await
    }

    /// Returns the administrator's client.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Returns the path of the administrator's kubeconfig, which the server wrote.
    pub fn kubeconfig(&self) -> PathBuf {
        self.directory.path().join(KUBECONFIG)
    }

    /// Returns the path of the data directory.
    pub fn data_dir(&self) -> &Path {
        self.directory.path()
    }

    /// Returns the process id, for signals and for reading memory use.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Kills the process immediately, without a shutdown.
    pub fn kill(&mut self) {
        self.child.kill().expect("the process can be killed");
        self.child.wait().expect("the process can be waited for");
    }

    /// Ends the process with SIGTERM and returns its exit code.
    pub fn terminate(&mut self) -> Option<i32> {
        self.end_with(rustix::process::Signal::TERM)
    }

    /// Sends the process a signal that ends it, and returns its exit code; `None` if it did not exit by
    /// itself.
    pub fn end_with(&mut self, signal: rustix::process::Signal) -> Option<i32> {
        let pid = rustix::process::Pid::from_raw(self.child.id().cast_signed()).expect("a child has a pid");
        rustix::process::kill_process(pid, signal).expect("the signal can be sent");
        self.child.wait().expect("the process can be waited for").code()
    }

    /// Starts the process on the same data directory and kills it while it starts.
    pub fn start_and_kill(&mut self, after: Duration) {
        self.child = spawn(&self.options, self.directory.path());
        std::thread::sleep(after);
        self.kill();
    }

    /// Starts the process on the same data directory and does not wait until it is ready.
    pub fn begin(&mut self) {
        self.child = begin(&self.options, self.directory.path());
    }

    /// Waits until the process is ready.
    pub async fn ready(&mut self) {
        self.client = ready(&mut self.child, self.directory.path()).await;
    }

    /// Restarts the process on the same data directory.
    pub async fn restart(&mut self) {
        let (child, client) = launch(&self.options, self.directory.path()).await;
        self.child = child;
        self.client = client;
    }

    /// Kills the process and restarts it with these flags instead of the previous flags.
    pub async fn restart_with(&mut self, flags: &[&str]) {
        self.kill();
        self.options.flags = flags.iter().map(|flag| (*flag).to_owned()).collect();
        self.restart().await;
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// First port and number of ports of [`free_port`]. Systems take the ports of outgoing connections and of listeners
/// without a fixed port from a higher range.
const FREE_PORTS: (u32, u32) = (20_000, 9_000);

/// Returns a port of 127.0.0.1 that is free now. Connections and listeners of other tests do not take the port before
/// the caller uses it, or while the caller's server restarts.
pub fn free_port() -> u16 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let (first, count) = FREE_PORTS;
    // Another process begins at another port.
    let begin = std::process::id().wrapping_mul(101);
    for _ in 0..count {
        let at = begin.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed)) % count;
        let port = u16::try_from(first + at).expect("the range has ports");
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
    panic!("no port of {FREE_PORTS:?} is free");
}

/// Name of the administrator's kubeconfig in the data directory.
const KUBECONFIG: &str = "admin.kubeconfig";

/// Path that returns 200 once the server is ready. Key services are excluded, because some tests stop them.
const READY: &str = "/readyz?exclude=kms-providers";

/// Returns the path of the server binary, which is built first if necessary.
pub fn binary() -> &'static Path {
    // The result of a failed build is kept, so that other tests do not repeat the build.
    static BINARY: OnceLock<Option<PathBuf>> = OnceLock::new();
    let path = BINARY.get_or_init(|| {
        if let Some(path) = std::env::var_os("CLUSTER_APISERVER") {
            return Some(path.into());
        }
        let test = std::env::current_exe().expect("the test's own path is known");
        let profile_dir = test.ancestors().nth(2).expect("tests live in target/<profile>/deps").to_owned();
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let profile = match profile_dir.file_name().and_then(|name| name.to_str()) {
            Some("debug") | None => "dev",
            Some(name) => name,
        };
        // Select a test target of the server's package: any other selection has other features, and would
        // rebuild everything after `cargo test --workspace`.
        let built = Command::new(cargo)
            .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
            .args(["test", "--quiet", "--workspace", "--no-run", "--test", "tools", "--profile", profile])
            .status()
            .expect("cargo runs");
        built.success().then(|| profile_dir.join("cluster-apiserver"))
    });
    path.as_deref().expect("the server binary builds")
}

/// Starts the process on a data directory, for tests in which the start does not end in a ready server.
pub fn spawn(options: &Options, directory: &Path) -> Child {
    let log = std::fs::File::options().create(true).append(true).open(directory.join("server.log"));
    let log = log.expect("the data directory is writable");
    let expanded = |text: &str| text.replace("$dir", &directory.display().to_string());
    Command::new(binary())
        .envs(options.environment.iter().map(|(name, value)| (name, expanded(value))))
        .arg(format!("--data-dir={}", directory.display()))
        .arg(format!("--naming={}", options.naming))
        .arg("--secure-port=free")
        // Tests create pods in namespaces before the controller has created the service account.
        .arg("--disable-admission-plugins=ServiceAccount")
        .args(options.flags.iter().map(|flag| expanded(flag)))
        .stdin(Stdio::null())
        .stdout(log.try_clone().expect("a file handle can be cloned"))
        .stderr(log)
        .spawn()
        .expect("the server binary runs")
}

async fn launch(options: &Options, directory: &Path) -> (Child, Client) {
    let mut child = begin(options, directory);
    let client = ready(&mut child, directory).await;
    (child, client)
}

fn begin(options: &Options, directory: &Path) -> Child {
    // A file of the previous run would contain the previous port.
    let _ = std::fs::remove_file(directory.join(KUBECONFIG));
    spawn(options, directory)
}

async fn ready(child: &mut Child, directory: &Path) -> Client {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(client) = Identity::from_kubeconfig(&directory.join(KUBECONFIG)).map(Client::new)
            && client.try_get(READY).await.is_some_and(|reply| reply.status == 200)
        {
            return client;
        }
        if let Some(status) = child.try_wait().expect("the process can be queried") {
            panic!("the server ended with {status}: {}", log_of(directory));
        }
        assert!(Instant::now() < deadline, "the server was not ready in time: {}", log_of(directory));
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

impl Server {
    /// Returns the log of all starts of the server so far. The server queues its lines, so the line of an event may be
    /// absent for a short time after the event.
    pub fn log(&self) -> String {
        log_of(self.directory.path())
    }

    /// Waits until the log contains `text` at least `count` times, and returns the log.
    pub async fn until_logged(&self, text: &str, count: usize) -> String {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let log = self.log();
            if log.matches(text).count() >= count {
                return log;
            }
            assert!(Instant::now() < deadline, "{text:?} is not {count} times in {log}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

fn log_of(directory: &Path) -> String {
    std::fs::read_to_string(directory.join("server.log")).unwrap_or_default()
}
