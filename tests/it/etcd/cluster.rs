//! An etcd for tests: members on loopback, each in a directory of its own, which can be stopped, killed and
//! started again.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use etcd::rpc::{KeyValue, PutRequest, RangeRequest, Request, TxnRequest};
use etcd::{Client, Config, Endpoint};
use parking_lot::Mutex;
use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use tests::server::free_port;
use tests::{Options, PATIENCE, Server, TempDir};

/// A cluster, whose processes end when it is dropped.
pub struct Etcd {
    members: Vec<Member>,
    client: Client,
}

struct Member {
    directory: TempDir,
    arguments: Vec<String>,
    url: String,
    child: Option<Child>,
}

/// Stops a process and waits until all of its threads have stopped, or lets it continue.
pub fn pause(id: u32, paused: bool) {
    let signal = if paused { Signal::STOP } else { Signal::CONT };
    let pid = Pid::from_raw(id.cast_signed()).expect("a child has a pid");
    kill_process(pid, signal).expect("the signal can be sent");
    // The thread that receives the signal stops the other threads when it runs the next time.
    while paused && has_running_threads(id) {
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn has_running_threads(id: u32) -> bool {
    let threads = std::fs::read_dir(format!("/proc/{id}/task")).expect("the process exists");
    threads.flatten().any(|thread| {
        let status = std::fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
        // The state follows the name, which is in parentheses.
        status.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with(['R', 'S', 'D']))
    })
}

/// Returns the path of the etcd binary; prints a line and returns `None` if there is no binary.
fn binary() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let found = std::env::split_paths(&path).map(|dir| dir.join("etcd")).find(|file| file.is_file());
    if found.is_none() {
        testkit::skip("etcd not found");
    }
    found
}

impl Etcd {
    /// Starts a cluster with this number of members and waits until it responds.
    pub async fn start(members: usize) -> Option<Etcd> {
        Etcd::start_with(members, &[]).await
    }

    /// Like [`Etcd::start`], with additional flags.
    pub async fn start_with(members: usize, flags: &[&str]) -> Option<Etcd> {
        let binary = binary()?;
        let ports: Vec<(u16, u16)> = (0..members).map(|_| (free_port(), free_port())).collect();
        let peers: Vec<String> = ports
            .iter()
            .enumerate()
            .map(|(at, (_, peer))| format!("m{at}=http://127.0.0.1:{peer}"))
            .collect();
        let mut all = Vec::new();
        for (at, (client, peer)) in ports.iter().enumerate() {
            let directory = TempDir::new();
            let (client, peer) = (format!("http://127.0.0.1:{client}"), format!("http://127.0.0.1:{peer}"));
            let arguments = [
                ("name", format!("m{at}")),
                ("data-dir", directory.path().join("data").display().to_string()),
                ("listen-client-urls", client.clone()),
                ("advertise-client-urls", client.clone()),
                ("listen-peer-urls", peer.clone()),
                ("initial-advertise-peer-urls", peer),
                ("initial-cluster", peers.join(",")),
                ("heartbeat-interval", "50".to_owned()),
                ("election-timeout", "500".to_owned()),
            ];
            let arguments = arguments.into_iter().map(|(name, value)| format!("--{name}={value}"));
            let arguments = arguments.chain(flags.iter().map(|flag| (*flag).to_owned())).collect();
            let mut member = Member { directory, arguments, url: client, child: None };
            member.start(&binary);
            all.push(member);
        }
        let endpoints = all.iter().map(|member| Endpoint::parse(&member.url).expect("a URL")).collect();
        let client = Client::new(Config { endpoints, tls: None, deadline: Duration::from_secs(30) });
        let etcd = Etcd { members: all, client };
        etcd.answers().await;
        Some(etcd)
    }

    /// Waits until a quorum read succeeds.
    pub async fn answers(&self) {
        let until = std::time::Instant::now() + PATIENCE;
        let request = RangeRequest { key: "x".into(), ..RangeRequest::default() };
        while let Err(error) = self.client.range(&request).await {
            assert!(std::time::Instant::now() < until, "{error}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Returns a client of all members.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Returns the value of `--etcd-servers`.
    pub fn urls(&self) -> String {
        self.members.iter().map(|member| member.url.as_str()).collect::<Vec<_>>().join(",")
    }

    /// Starts a server on this etcd.
    pub async fn server(&self, flags: &[&str]) -> Server {
        Server::start(self.options(flags)).await
    }

    /// Returns the options of a server on this etcd.
    pub fn options(&self, flags: &[&str]) -> Options {
        let mut all = vec![format!("--etcd-servers={}", self.urls())];
        all.extend(flags.iter().map(|flag| (*flag).to_owned()));
        Options { flags: all, ..Options::default() }
    }

    /// Kills a member of the cluster.
    pub fn kill(&mut self, member: usize) {
        self.members[member].kill();
    }

    /// Starts a member again on its existing data.
    pub fn restart(&mut self, member: usize) {
        let binary = binary().expect("the etcd binary exists");
        self.members[member].start(&binary);
    }

    /// Makes a member start again with an empty directory, as a member of another cluster.
    pub fn wipe(&mut self, member: usize) {
        self.kill(member);
        let data = self.members[member].directory.path().join("data");
        std::fs::remove_dir_all(data).expect("the data directory exists");
        self.restart(member);
    }

    /// Saves a snapshot; returns false without `etcdctl`.
    pub fn save(&self, file: &Path) -> bool {
        let command = |arguments: &[&str]| {
            let saved = Command::new("etcdctl").env("ETCDCTL_API", "3").args(arguments).output().ok()?;
            assert!(saved.status.success(), "{}", String::from_utf8_lossy(&saved.stderr));
            Some(())
        };
        let endpoints = format!("--endpoints={}", self.urls());
        command(&[&endpoints, "snapshot", "save", &file.display().to_string()]).is_some()
    }

    /// Makes the only member start again with the contents of a snapshot.
    pub fn restore(&mut self, member: usize, file: &Path) {
        self.kill(member);
        let of = &self.members[member];
        let data = of.directory.path().join("data");
        std::fs::remove_dir_all(&data).expect("the data directory exists");
        let kept = ["--name=", "--data-dir=", "--initial-cluster=", "--initial-advertise-peer-urls="];
        let flags = of.arguments.iter().filter(|flag| kept.iter().any(|start| flag.starts_with(start)));
        let restored = Command::new("etcdctl")
            .env("ETCDCTL_API", "3")
            .args(["snapshot", "restore"])
            .arg(file)
            .args(flags)
            .output()
            .expect("etcdctl runs");
        assert!(restored.status.success(), "{}", String::from_utf8_lossy(&restored.stderr));
        self.restart(member);
    }

    /// Ends a lease before its expiry.
    pub async fn revoke(&self, lease: i64) {
        self.post("/v3/lease/revoke", &format!("{{\"ID\":\"{lease}\"}}")).await;
    }

    /// Posts to the JSON gateway of the first member.
    async fn post(&self, path: &str, body: &str) {
        let host = self.members[0].url.trim_start_matches("http://");
        let request = format!(
            "POST {path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        let mut stream = TcpStream::connect(host).await.expect("the member listens");
        stream.write_all(request.as_bytes()).await.expect("the member reads");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.expect("the member answers");
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }

    /// Stops all members without ending them, or lets them continue.
    pub fn pause(&self, paused: bool) {
        for member in &self.members {
            if let Some(child) = &member.child {
                pause(child.id(), paused);
            }
        }
    }

    /// Stops a single member, or lets it continue.
    pub fn pause_one(&self, member: usize, paused: bool) {
        pause(self.members[member].child.as_ref().expect("the member runs").id(), paused);
    }

    /// Starts a proxy for each member.
    pub async fn proxies(&self) -> Vec<Proxy> {
        let mut proxies = Vec::new();
        for member in &self.members {
            proxies.push(Proxy::start(member.url.trim_start_matches("http://").to_owned()).await);
        }
        proxies
    }

    /// Puts a key and returns its revision.
    pub async fn put(&self, key: &str, value: Vec<u8>) -> i64 {
        let put = PutRequest { key: key.to_owned().into(), value: value.into(), lease: 0 };
        let request = TxnRequest { success: vec![Request::Put(put).into()], ..TxnRequest::default() };
        let answer = self.client.txn(&request).await.expect("etcd accepts the put");
        answer.header.expect("a response has a header").revision
    }

    /// Reads a key of the cluster.
    pub async fn get(&self, key: &str) -> Option<KeyValue> {
        let request = RangeRequest { key: key.to_owned().into(), ..RangeRequest::default() };
        self.client.range(&request).await.expect("etcd answers").kvs.into_iter().next()
    }
}

impl Member {
    fn start(&mut self, binary: &PathBuf) {
        let log = std::fs::File::options().create(true).append(true).open(self.directory.path().join("log"));
        let log = log.expect("the directory is writable");
        let mut command = Command::new(binary);
        command.args(&self.arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        self.child = Some(command.spawn().expect("etcd runs"));
    }

    fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            // The signal also kills a stopped process.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A proxy between servers and a member: it forwards bytes, delays them, closes connections, and stops.
pub struct Proxy {
    /// URL that the proxy listens on.
    pub url: String,
    gate: Arc<Gate>,
    accepting: JoinHandle<()>,
}

/// The behaviour of a stopped proxy.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Stop {
    /// The proxy closes its connections.
    Cut,
    /// The proxy keeps its connections, but forwards nothing.
    Hold,
}

struct Gate {
    delay_ms: AtomicU64,
    cuts: watch::Sender<u64>,
    /// The number of the member's bytes after which the proxy stops, and how it stops.
    stop: Mutex<Option<(usize, Stop)>>,
    is_stopped: watch::Sender<bool>,
}

impl Proxy {
    async fn start(member: String) -> Proxy {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
        let url = format!("http://{}", listener.local_addr().expect("a listener has an address"));
        let gate = Arc::new(Gate {
            delay_ms: AtomicU64::new(0),
            cuts: watch::Sender::new(0),
            stop: Mutex::new(None),
            is_stopped: watch::Sender::new(false),
        });
        let of_connections = gate.clone();
        let accepting = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let (gate, member) = (of_connections.clone(), member.clone());
                tokio::spawn(async move {
                    let mut cut = gate.cuts.subscribe();
                    gate.is_open().await;
                    let Ok(server) = TcpStream::connect(&member).await else { return };
                    let (from_client, to_client) = client.into_split();
                    let (from_server, to_server) = server.into_split();
                    tokio::select! {
                        () = gate.pass(from_client, to_server, false) => {}
                        () = gate.pass(from_server, to_client, true) => {}
                        _ = cut.changed() => {}
                    }
                });
            }
        });
        Proxy { url, gate, accepting }
    }

    /// Delays all bytes by this time.
    pub fn delay(&self, ms: u64) {
        self.gate.delay_ms.store(ms, Ordering::Relaxed);
    }

    /// Closes all connections of the proxy.
    pub fn cut(&self) {
        self.gate.cut();
    }

    /// Stops the proxy after this many more bytes from the member. [`Proxy::open`] ends the stop.
    pub fn stop_after(&self, bytes: usize, stop: Stop) {
        *self.gate.stop.lock() = Some((bytes, stop));
    }

    /// Waits until the proxy has stopped.
    pub async fn stopped(&self) {
        let mut is_stopped = self.gate.is_stopped.subscribe();
        let stopped = tokio::time::timeout(PATIENCE, is_stopped.wait_for(|stopped| *stopped)).await;
        stopped.expect("the proxy passes that many bytes").expect("the proxy runs");
    }

    /// Lets the proxy forward bytes again.
    pub fn open(&self) {
        self.gate.is_stopped.send_replace(false);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

impl Gate {
    fn cut(&self) {
        self.cuts.send_modify(|cuts| *cuts += 1);
    }

    /// Waits until the proxy is not stopped.
    async fn is_open(&self) {
        let _ = self.is_stopped.subscribe().wait_for(|stopped| !stopped).await;
    }

    async fn pass(&self, mut from: OwnedReadHalf, mut to: OwnedWriteHalf, are_members: bool) {
        let mut bytes = vec![0; 16 * 1024];
        while let Ok(len) = from.read(&mut bytes).await
            && len > 0
        {
            tokio::time::sleep(Duration::from_millis(self.delay_ms.load(Ordering::Relaxed))).await;
            if are_members {
                self.count(len);
            }
            self.is_open().await;
            if to.write_all(&bytes[..len]).await.is_err() {
                break;
            }
        }
    }

    /// Counts bytes, and stops the proxy if it is due.
    fn count(&self, bytes: usize) {
        let mut stop = self.stop.lock();
        let Some((left, how)) = *stop else { return };
        *stop = (left > bytes).then(|| (left - bytes, how));
        if stop.is_none() {
            self.is_stopped.send_replace(true);
            if how == Stop::Cut {
                self.cut();
            }
        }
    }
}
