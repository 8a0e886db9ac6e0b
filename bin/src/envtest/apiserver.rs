//! The stand-in for kube-apiserver, which translates a command line of kube-apiserver into a command line of
//! this server.
//!
//! | on the command line | effect |
//! |---|---|
//! | nothing | `--naming=kubernetes --durability=relaxed`, a short shutdown, and the controllers of the mode |
//! | `--etcd-servers` of the stand-in for etcd | removed: the store is in the data directory of the stand-in |
//! | `--etcd-servers` of an etcd | kept: the store is there, and the directory `store` in `--cert-dir` has the copy |
//! | `--insecure-port=0` | removed: envtest passes this flag, because old API servers need it |
//! | `--version` | the text of kube-apiserver |
//!
//! Every other flag is kept, and has precedence over the flags that the stand-in adds.

use std::ffi::OsString;
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use http::Uri;
use types::version::ServerVersion;

use crate::envtest::etcd::DATA_DIR_PATH;
use crate::envtest::{line, orphan};
use crate::flags::sources::ENVTEST_MODE;
use crate::flags::words::{VersionFormat, Words};

/// Directory of the server in the data directory of the stand-in for etcd.
const STORE_OF_ETCD: &str = "cluster-apiserver";

/// Directory of the server in `--cert-dir`.
const STORE_OF_CERTS: &str = "store";

/// Maximum time of the shutdown. The time is short, because the test waits for the shutdown and no longer needs the
/// stored objects. A twentieth of this time, 40 ms, is the wait for clients that do not close their connections.
const SHUTDOWN: &str = "800ms";

/// How long the start waits for an etcd that does not listen yet, and the pause between two attempts. On a busy
/// machine, a real etcd or the stand-in for etcd may need seconds until it listens.
const ETCD_WAIT: Duration = Duration::from_secs(20);
const ETCD_PAUSE: Duration = Duration::from_millis(20);

/// Limits of the request for the data directory: the time to connect or to wait for a byte, and the size of
/// the response.
const ANSWER_WAIT: Duration = Duration::from_secs(2);
const ANSWER_BYTES_MAX: u64 = 64 << 10;

/// The result of translating a command line.
#[derive(Debug, Eq, PartialEq)]
pub enum Start {
    /// Continue with this command line.
    Continue(Vec<OsString>),
    /// Print this text and exit.
    Print(String),
}

/// The behaviour of the server besides its API.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Mode {
    /// The behaviour of kube-apiserver alone: no controllers.
    Exact,
    /// The behaviour of a cluster: all controllers of this server.
    Full,
}

impl Mode {
    fn read(value: Option<&str>) -> Result<Mode, String> {
        match value {
            None | Some("" | "exact") => Ok(Mode::Exact),
            Some("full") => Ok(Mode::Full),
            Some(other) => Err(format!(
                "environment variable {ENVTEST_MODE}: {other:?} is not accepted: must be exact or full"
            )),
        }
    }
}

/// Translates a command line of kube-apiserver, whose first word is the program name, into a command line of the
/// server. Also makes this process end when its parent ends. `command` has the flags of the server.
///
/// # Errors
/// A flag has no value, or the mode is unknown. The error has one line.
pub fn start(arguments: Vec<OsString>, command: &clap::Command) -> Result<Start, String> {
    let is_question =
        |word: &OsString| word.to_str().is_some_and(|word| word.starts_with("--help") || word == "-h");
    if !arguments.iter().any(is_question) {
        // Watch the parent before all steps that take time, such as the wait for etcd.
        orphan::exit_with_parent("kube-apiserver")
            .map_err(|error| format!("cannot watch the parent process: {error}"))?;
    }
    let mode = std::env::var_os(ENVTEST_MODE).map(|mode| mode.to_string_lossy().into_owned());
    let mode = Mode::read(mode.as_deref())?;
    translated(arguments, command, mode, &data_dir_of_stand_in)
}

/// Translates a command line. `stand_in` returns the data directory of the stand-in for etcd at a URL.
fn translated(
    arguments: Vec<OsString>,
    command: &clap::Command,
    mode: Mode,
    stand_in: &dyn Fn(&str) -> Option<PathBuf>,
) -> Result<Start, String> {
    let words = Words::read(command, arguments)?;
    if words.help.is_none() && words.version == Some(VersionFormat::Name) {
        let version = ServerVersion::default();
        // Programs that parse the text expect a version without build metadata (the part after `+`).
        let version = version.git_version().split('+').next().unwrap_or_default().to_owned();
        return Ok(Start::Print(format!("Kubernetes {version}\n")));
    }
    if words.others.iter().any(|word| !word.is_empty()) {
        let words: Vec<String> = words.others.iter().map(|word| go::quote(word).to_string()).collect();
        return Err(format!("\"kube-apiserver\" does not take any arguments, got [{}]", words.join(" ")));
    }
    let mut arguments = words.flags;
    let program = if arguments.is_empty() { OsString::new() } else { arguments.remove(0) };
    arguments.retain(|word| line::value(word, "insecure-port") != Some("0"));
    let question = match (words.help, words.version) {
        (Some(help), _) => Some(help),
        (None, Some(_)) => Some("--version=raw"),
        (None, None) => None,
    };
    let in_certs = line::last(&arguments, "cert-dir").filter(|dir| !dir.is_empty());
    let mut data_dir = match in_certs {
        Some(dir) => PathBuf::from(dir).join(STORE_OF_CERTS),
        None => std::env::temp_dir().join(format!("kube-apiserver-{}", std::process::id())),
    };
    if question.is_none() {
        let servers = arguments.iter().filter_map(|word| line::value(word, "etcd-servers"));
        let first = servers.flat_map(|urls| urls.split(',')).map(str::trim).find(|url| !url.is_empty());
        let first = first.ok_or("--etcd-servers must be specified")?;
        if let Some(dir) = stand_in(first) {
            data_dir = dir.join(STORE_OF_ETCD);
            arguments.retain(|word| line::value(word, "etcd-servers").is_none());
        }
    }
    let mut flag = OsString::from("--data-dir=");
    flag.push(data_dir);
    let mut line = vec![program, "--naming=kubernetes".into(), flag, "--durability=relaxed".into()];
    line.push(format!("--shutdown-deadline={SHUTDOWN}").into());
    if mode == Mode::Exact {
        line.push("--controllers=".into());
    }
    line.extend(arguments);
    line.extend(words.reported_version.map(|version| format!("--version={version}").into()));
    line.extend(question.map(OsString::from));
    Ok(Start::Continue(line))
}

/// Returns the data directory of the stand-in for etcd at a URL, or `None` if another server responds there.
fn data_dir_of_stand_in(url: &str) -> Option<PathBuf> {
    let uri: Uri = url.parse().ok()?;
    if uri.scheme_str() != Some("http") {
        return None;
    }
    let host = uri.host()?.trim_matches(['[', ']']);
    let port = uri.port_u16().unwrap_or(2379);
    let until = Instant::now() + ETCD_WAIT;
    loop {
        match request_directory(host, port) {
            Ok(answer) => return data_dir_in(&answer),
            Err(error) if error.kind() == ErrorKind::ConnectionRefused && Instant::now() < until => {
                std::thread::sleep(ETCD_PAUSE);
            }
            Err(_) => return None,
        }
    }
}

/// Sends the request for the data directory, and returns the whole response.
fn request_directory(host: &str, port: u16) -> std::io::Result<Vec<u8>> {
    let mut last = std::io::Error::other("the name has no address");
    for address in (host, port).to_socket_addrs()? {
        let mut stream = match TcpStream::connect_timeout(&address, ANSWER_WAIT) {
            Ok(stream) => stream,
            Err(error) => {
                last = error;
                continue;
            }
        };
        stream.set_read_timeout(Some(ANSWER_WAIT))?;
        let request = format!("GET {DATA_DIR_PATH} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes())?;
        let mut answer = Vec::new();
        stream.take(ANSWER_BYTES_MAX).read_to_end(&mut answer)?;
        return Ok(answer);
    }
    Err(last)
}

/// Returns the data directory in a response.
fn data_dir_in(answer: &[u8]) -> Option<PathBuf> {
    let text = std::str::from_utf8(answer).ok()?;
    let (head, body) = text.split_once("\r\n\r\n")?;
    if !head.starts_with("HTTP/1.1 200 ") {
        return None;
    }
    let body: serde_json::Value = serde_json::from_str(body).ok()?;
    body.get("dataDir")?.as_str().map(PathBuf::from)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::definition::command;

    const EXACT: &str =
        "--naming=kubernetes --data-dir=DIR --durability=relaxed --shutdown-deadline=800ms --controllers=";

    fn read(line: &str, mode: Mode) -> Result<String, String> {
        let stand_in = |url: &str| (url == "http://127.0.0.1:1").then(|| PathBuf::from("/etcd"));
        let arguments = line.split(' ').map(OsString::from).collect();
        Ok(match translated(arguments, &command(), mode, &stand_in)? {
            Start::Print(text) => text,
            Start::Continue(line) => {
                line.into_iter().map(|word| word.into_string().unwrap()).collect::<Vec<_>>().join(" ")
            }
        })
    }

    #[test]
    fn the_command_line_of_a_test_suite_becomes_one_of_the_server() {
        for (line, dir, rest) in [
            ("x --etcd-servers=http://127.0.0.1:1 --v=1", "/etcd/cluster-apiserver", "--v=1"),
            // The test library fabric8 writes values as separate words, and a Boolean flag at the end.
            (
                "x --cert-dir /c --etcd-servers http://127.0.0.1:1 --service-account-issuer https://a/ --service-account-issuer /c/sa.crt --allow-privileged",
                "/etcd/cluster-apiserver",
                "--cert-dir=/c --service-account-issuer=https://a/ --service-account-issuer=/c/sa.crt --allow-privileged",
            ),
            (
                "x --cert-dir=/c --etcd-servers=http://127.0.0.1:2 --insecure-port=0  --insecure-port=1",
                "/c/store",
                "--cert-dir=/c --etcd-servers=http://127.0.0.1:2 --insecure-port=1",
            ),
            ("x --cert-dir=/c --help", "/c/store", "--cert-dir=/c --help"),
        ] {
            let want = format!("x {} {rest}", EXACT.replace("DIR", dir));
            assert_eq!(read(line, Mode::Exact).as_deref(), Ok(&*want), "{line}");
        }
        let full = read("x --etcd-servers=http://127.0.0.1:1", Mode::Full).unwrap();
        assert!(!full.contains("--controllers"), "{full}");
        assert_eq!(read("x --cert-dir=/c", Mode::Exact), Err("--etcd-servers must be specified".to_owned()));
        assert_eq!(
            read("x --etcd-servers=http://127.0.0.1:1 verify", Mode::Exact),
            Err("\"kube-apiserver\" does not take any arguments, got [\"verify\"]".to_owned())
        );
        let version = read("x --version", Mode::Exact).unwrap();
        assert!(version.starts_with("Kubernetes v1.") && !version.contains('+'), "{version}");
    }

    #[test]
    fn the_data_directory_is_read_only_from_the_etcd_stand_in() {
        for (answer, want) in [
            ("HTTP/1.1 200 OK\r\na: b\r\n\r\n{\"dataDir\":\"/a b\"}", Some("/a b")),
            ("HTTP/1.1 404 Not Found\r\n\r\n404 page not found\n", None),
            ("HTTP/1.1 200 OK\r\n\r\n{\"health\":\"true\"}", None),
            ("HTTP/1.1 200 OK\r\n\r\n", None),
            ("", None),
        ] {
            assert_eq!(data_dir_in(answer.as_bytes()), want.map(PathBuf::from), "{answer}");
        }
    }

    #[test]
    fn the_envtest_mode_is_exact_unless_the_variable_is_full() {
        assert_eq!(Mode::read(None), Ok(Mode::Exact));
        assert_eq!(Mode::read(Some("")), Ok(Mode::Exact));
        assert_eq!(Mode::read(Some("full")), Ok(Mode::Full));
        assert!(Mode::read(Some("all")).unwrap_err().contains("must be exact or full"));
    }
}
