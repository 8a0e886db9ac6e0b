//! Tests of the server process: command line, exit codes, files and signals (docs/api/operations.md#shutdown,
//! #flags-and-features).

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

struct Dir(PathBuf);

impl Dir {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("cluster-process-{}-{name}", std::process::id()));
        // A process with the same identifier may have been killed before it could remove its directories.
        let _ = fs::remove_dir_all(&path);
        fs::create_dir(&path).unwrap();
        Dir(path)
    }

    fn data(&self) -> PathBuf {
        self.0.join("data")
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn command(data: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cluster-apiserver"));
    command.arg(format!("--data-dir={}", data.display())).args(arguments);
    command.env_remove("RUST_LOG").stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn run(data: &Path, arguments: &[&str]) -> Output {
    command(data, arguments).output().unwrap()
}

struct Running {
    child: Child,
    log: BufReader<std::process::ChildStderr>,
    /// The log line with the address and the kubeconfig.
    start: serde_json::Value,
    /// The log up to the line in `start`.
    seen: String,
}

impl Running {
    fn start(data: &Path, arguments: &[&str]) -> Self {
        let mut command = command(data, &["--secure-port=free", "--log-format=json"]);
        let mut child = command.args(arguments).spawn().unwrap();
        let log = BufReader::new(child.stderr.take().unwrap());
        // Dropping this value kills the process, so that a failed test leaves no process behind.
        let mut running = Running { child, log, start: serde_json::Value::Null, seen: String::new() };
        running.start = running.until_it_logs("serving");
        running
    }

    /// Reads the log up to the line with this message, and returns that line.
    fn until_it_logs(&mut self, message: &str) -> serde_json::Value {
        loop {
            let mut line = String::new();
            assert_ne!(self.log.read_line(&mut line).unwrap(), 0, "ended without having said {message}");
            self.seen.push_str(&line);
            let line: serde_json::Value = serde_json::from_str(&line).unwrap();
            if line["message"] == message {
                return line;
            }
        }
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Waits for the end of the process, and returns the exit code and the rest of the log.
    fn end(mut self) -> (Option<i32>, String) {
        let code = self.child.wait().unwrap().code();
        let mut rest = String::new();
        self.log.read_to_string(&mut rest).unwrap();
        (code, rest)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn every_startup_error_is_one_record_with_exit_code_1_and_changes_nothing() {
    let dir = Dir::new("wrong");
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = format!("--secure-port={}", taken.local_addr().unwrap().port());
    let tokens = dir.0.join("tokens");
    fs::write(&tokens, "secret-1,joe,1\nsecret-2,jane\n").unwrap();
    let file = tokens.display();
    let tokens = format!("--token-auth-file={file}");
    for (argument, want) in [
        ("--no-such-flag", "unknown flag: --no-such-flag".to_owned()),
        (
            "--naming=x",
            "invalid argument \"x\" for \"--naming\" flag: must be cluster or kubernetes".to_owned(),
        ),
        ("--tls-cert-file=x", "missing filename for serving cert".to_owned()),
        (
            &tokens,
            format!("token file '{file}' must have at least 3 columns (token, user name, user uid), found 2"),
        ),
        (
            &port,
            format!(
                "failed to create listener: failed to listen on {0}: listen tcp {0}: bind: address already in use",
                taken.local_addr().unwrap()
            ),
        ),
    ] {
        let output = run(&dir.data(), &[argument]);
        let record = String::from_utf8(output.stderr).unwrap();
        // The record begins with severity, time and process. The error is a JSON string.
        let error = record.split_once("main.rs:1] \"command failed\" err=").map(|(_, error)| error);
        let error = error.and_then(|error| serde_json::from_str::<String>(error.strip_suffix('\n')?).ok());
        assert_eq!(error.as_deref(), Some(want.as_str()), "{argument}: {record}");
        assert!(record.starts_with('E') && record.lines().count() == 1, "{argument}: {record}");
        assert_eq!((output.status.code(), output.stdout.len()), (Some(1), 0), "{argument}");
        assert!(!dir.data().exists(), "{argument}");
    }
    let version = run(&dir.data(), &["--version"]);
    assert_eq!(version.status.code(), Some(0));
    assert!(version.stdout.starts_with(b"cluster-apiserver "));
}

#[test]
fn the_first_start_needs_no_flags_and_later_starts_find_its_state() {
    let dir = Dir::new("start");
    let data = dir.data();
    let mut seen = Vec::new();
    // The third start has an advertised address of the other address family. Before the fourth start, the key
    // of the CA is removed.
    let [v4, v6] = ["--advertise-address=192.0.2.9", "--advertise-address=2001:db8::9"];
    for advertised in [v4, v4, v6, v6] {
        if seen.len() == 3 {
            fs::remove_file(data.join("pki/ca.key")).unwrap();
        }
        let running = Running::start(&data, &[advertised, "-v=4"]);
        assert_eq!(running.seen.contains("\"WARN\""), seen.len() == 3, "{}", running.seen);
        assert!(!running.seen.contains("ERROR"), "{}", running.seen);
        let kubeconfig = fs::read_to_string(data.join("admin.kubeconfig")).unwrap();
        let address = running.start["address"].as_str().unwrap().to_owned();
        assert!(kubeconfig.contains(&format!("server: \"{address}\"")), "{address} in {kubeconfig}");
        assert_eq!(
            running.start["connect"],
            format!("export KUBECONFIG={}", data.join("admin.kubeconfig").display())
        );
        running.signal(Signal::TERM);
        let (code, log) = running.end();
        assert_eq!(code, Some(0), "{log}");
        assert!(!log.contains("ERROR") && !log.contains("\"h2"), "{log}");
        seen.push([
            fs::read(data.join("pki/ca.crt")).unwrap(),
            fs::read(data.join("pki/admin.crt")).unwrap(),
        ]);
    }
    assert!(seen.iter().all(|files| *files == seen[0]));

    let other = run(&data, &["--naming=kubernetes"]);
    let why = format!("{} was made with --naming=cluster, not kubernetes", data.display());
    let line = String::from_utf8(other.stderr).unwrap();
    // In this naming profile, the line has the format that supervisors of kube-apiserver expect.
    assert!(
        line.starts_with('E') && line.ends_with(&format!("\"command failed\" err=\"{why}\"\n")),
        "{line}"
    );
    assert_eq!((line.lines().count(), other.status.code()), (1, Some(1)));
}

#[test]
fn the_first_signal_waits_for_the_shutdown_delay_and_the_second_ends_immediately() {
    let dir = Dir::new("signals");
    let running = Running::start(&dir.data(), &["--shutdown-delay-duration=400ms"]);
    let begun = Instant::now();
    running.signal(Signal::INT);
    assert_eq!(running.end().0, Some(0));
    assert!(begun.elapsed() >= Duration::from_millis(400));

    let mut running = Running::start(&dir.data(), &["--shutdown-delay-duration=1h"]);
    running.signal(Signal::TERM);
    running.until_it_logs("shutdown begins, no longer ready"); // so that the two signals are not merged
    running.signal(Signal::TERM);
    assert_eq!(running.end().0, Some(1));
}
