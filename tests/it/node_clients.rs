//! The oldest and the newest installed kubectl with the node agent of these tests (docs/api/nodes.md): logs,
//! commands with and without a terminal, copies, debugging containers, forwarded ports and proxies.
//!
//! Newer releases use WebSocket, and SPDY in a second round. The oldest release supports only SPDY.

use std::process::Stdio;
use std::sync::atomic::Ordering::SeqCst;

use serde_json::json;
use tests::{PATIENCE, Server, TempDir};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::net::TcpStream;
use tokio::process::{Child, ChildStdout, Command};

use crate::kubectl::{Kubectl, finish};
use crate::nodes::{PODS, cluster, echo, pod, until};

/// Environment variables that select the protocol of kubectl.
const PROTOCOLS: [&[(&str, &str)]; 2] =
    [&[], &[("KUBECTL_REMOTE_COMMAND_WEBSOCKETS", "false"), ("KUBECTL_PORT_FORWARD_WEBSOCKETS", "false")]];

/// Starts a command whose output is read while it runs.
fn started(mut command: Command) -> (Child, Lines<BufReader<ChildStdout>>) {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().expect("kubectl runs");
    let lines = BufReader::new(child.stdout.take().expect("the output is a pipe")).lines();
    (child, lines)
}

/// Returns the next line of output.
async fn line(lines: &mut Lines<BufReader<ChildStdout>>) -> String {
    let read = tokio::time::timeout(PATIENCE, lines.next_line()).await.expect("kubectl prints a line");
    read.expect("the output can be read").expect("kubectl prints another line")
}

/// Waits for a command to end, and returns its exit code.
async fn ended(mut child: Child) -> Option<i32> {
    tokio::time::timeout(PATIENCE, child.wait())
        .await
        .expect("kubectl ends")
        .expect("kubectl can be waited for")
        .code()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kubectl_logs_execs_attaches_and_copies() {
    let (server, agent, _keys) = cluster().await;
    for kubectl in Kubectl::releases(&server).await {
        let with = kubectl.program().display().to_string();
        assert_eq!(kubectl.ok("logs p --tail=3").await, "/containerLogs/default/p/c?tailLines=3\n", "{with}");
        for variables in PROTOCOLS {
            let with = format!("{with} {variables:?}");
            let run = async |arguments: &str, stdin: &str| {
                let mut command = kubectl.command(arguments);
                command.envs(variables.iter().copied());
                command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
                let ran =
                    finish(command, stdin).await.unwrap_or_else(|| panic!("{with} {arguments} does not end"));
                (ran.code, ran.out, ran.err)
            };
            let ok = |out: &str| (Some(0), out.to_owned(), String::new());
            assert_eq!(run("exec p -- echo hello", "").await, ok("hello\n"), "{with}");
            assert_eq!(run("exec -i p -- cat", "to be echoed").await, ok("to be echoed"), "{with}");
            let long: String = "0123456789abcdef\n".repeat(60_000);
            assert_eq!(run("exec -i p -- cat", &long).await, ok(&long), "{with}");
            let (code, out, err) = run("exec p -- sh -c 'echo out; echo err >&2; exit 3'", "").await;
            assert_eq!((code, out.as_str()), (Some(3), "out\n"), "{with} {err}");
            assert_eq!(err, "err\ncommand terminated with exit code 3\n", "{with}");
            let (code, _, err) = run("exec p -- no-such-command", "").await;
            assert!(code != Some(0) && err.contains("No such file or directory"), "{with} {err}");
            let (code, out, _) = run("attach -i p", "some input\n").await;
            assert_eq!((code, out.as_str()), (Some(0), "attached\nsome input\n"), "{with}");
        }
        assert_eq!(agent.seen.upgrade.lock()["headers"]["upgrade"], "SPDY/3.1");
        let directory = tests::server::TempDir::new();
        let (from, back) = (directory.path().join("from"), directory.path().join("back"));
        let content: String = "some content\n".repeat(100_000);
        std::fs::write(&from, &content).unwrap();
        kubectl.ok(&format!("cp {} p:/copied", from.display())).await;
        let copied = agent.seen.root.path().join("copied");
        assert_eq!(std::fs::read_to_string(&copied).unwrap(), content, "{with}");
        let ran = kubectl.run(&format!("cp p:copied {}", back.display()), "").await;
        assert_eq!(ran.code, Some(0), "{with} {}", ran.err);
        assert_eq!(std::fs::read_to_string(&back).unwrap(), content, "{with}");
        std::fs::remove_file(&copied).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kubectl_forwards_ports_and_proxies() {
    let (server, agent, _keys) = cluster().await;
    let echo = echo().await;
    for kubectl in Kubectl::releases(&server).await {
        for variables in PROTOCOLS {
            let mut command = kubectl.command(&format!("port-forward p :{echo}"));
            command.envs(variables.iter().copied());
            let (mut child, mut lines) = started(command);
            // kubectl prints: Forwarding from 127.0.0.1:40001 -> 40002
            let said = line(&mut lines).await;
            let port = said.split([':', ' ']).rev().nth(2).and_then(|port| port.parse().ok());
            let port: u16 = port.unwrap_or_else(|| panic!("{said}"));
            let mut connections = Vec::new();
            for number in 0..10_u8 {
                connections.push(tokio::spawn(async move {
                    let mut connection = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
                    let sent = vec![number; 200_000];
                    let (mut reader, mut writer) = connection.split();
                    let mut heard = Vec::new();
                    // After one direction has ended, the other direction stays open.
                    let (sending, reading) = tokio::join!(
                        async {
                            writer.write_all(&sent).await?;
                            writer.shutdown().await
                        },
                        reader.read_to_end(&mut heard)
                    );
                    sending.unwrap();
                    reading.unwrap();
                    assert!(heard == sent, "{number}: {} bytes", heard.len());
                }));
            }
            for connection in connections {
                tokio::time::timeout(PATIENCE, connection).await.unwrap().unwrap();
            }
            assert_eq!(agent.seen.upgrade.lock()["url"], "/portForward/default/p", "{variables:?}");
            child.kill().await.unwrap();
            until("connections end with kubectl", || agent.seen.open.load(SeqCst) == 0).await;
        }
        let summary = r#"{"node":{"nodeName":"n"}}"#;
        let path = "/api/v1/nodes/n/proxy/stats/summary";
        assert_eq!(kubectl.ok(&format!("get --raw {path}")).await, summary);
        let (mut child, mut lines) = started(kubectl.command("proxy --port=0"));
        // kubectl prints: Starting to serve on 127.0.0.1:40003
        let said = line(&mut lines).await;
        let address = said.rsplit(' ').next().unwrap_or_default();
        let mut connection = TcpStream::connect(address).await.unwrap_or_else(|why| panic!("{said}: {why}"));
        let request = format!("GET {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n");
        connection.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        tokio::time::timeout(PATIENCE, connection.read_to_string(&mut answer)).await.unwrap().unwrap();
        assert!(answer.starts_with("HTTP/1.1 200 ") && answer.contains(summary), "{answer}");
        child.kill().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kubectl_exec_has_a_terminal_whose_size_can_change() {
    let (server, agent, _keys) = cluster().await;
    if !Command::new("script")
        .arg("--version")
        .stdout(Stdio::null())
        .status()
        .await
        .is_ok_and(|s| s.success())
    {
        return testkit::skip("script, which makes terminals, not found");
    }
    for kubectl in Kubectl::releases(&server).await {
        for variables in PROTOCOLS {
            let with = format!("{} {variables:?}", kubectl.program().display());
            agent.seen.sizes.lock().clear();
            let exec = kubectl.line("exec -it p -- sh -c 'read line; echo got $line; exit 7'");
            // The size of the terminal changes while the command runs, as soon as the file exists.
            let directory = TempDir::new();
            let resize = directory.path().join("resize");
            let resized =
                format!("while [ ! -e {} ]; do sleep 0.1; done; stty rows 44 < /dev/tty", resize.display());
            let session = format!("stty rows 33 cols 99; ({resized}) & exec {exec}");
            let mut command = kubectl.prepared(Command::new("script"));
            command.args(["--quiet", "--return", "--command", &session, "/dev/null"]);
            command.envs(variables.iter().copied());
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
            let mut child = command.spawn().unwrap();
            let mut input = child.stdin.take().unwrap();
            let sizes = || String::from_utf8_lossy(&agent.seen.sizes.lock()).into_owned();
            let has = |size: &str| sizes().contains(size);
            until(&format!("{with}: the first size"), || has(r#"{"Width":99,"Height":33}"#)).await;
            std::fs::write(&resize, "").unwrap();
            until(&format!("{with}: the second size"), || has(r#"{"Width":99,"Height":44}"#)).await;
            input.write_all(b"hello\n").await.unwrap();
            let ran = tokio::time::timeout(PATIENCE, child.wait_with_output()).await;
            let ran = ran.unwrap_or_else(|_| panic!("{with} does not end")).unwrap();
            let out = String::from_utf8_lossy(&ran.stdout).into_owned();
            assert!(
                out.contains("got hello") && ran.status.code() == Some(7),
                "{with}: {:?} {out}",
                ran.status
            );
        }
    }
}

/// Starts a debugging container in a pod with kubectl, and sets its status to running once it exists.
async fn debugged(server: &Server, kubectl: &Kubectl, variables: &[(&str, &str)], name: &str) {
    let client = server.client();
    pod(client, name, "n", &["c"]).await;
    let mut command = kubectl.command(&format!("debug {name} -i --image=i --container=dbg -- cat"));
    command.envs(variables.iter().copied());
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let ran = tokio::spawn(async move { finish(command, "some input\n").await });
    let path = format!("{PODS}/{name}");
    let has_container = |object: Option<&serde_json::Value>| {
        object.is_some_and(|pod| pod["spec"]["ephemeralContainers"][0]["name"] == "dbg")
    };
    client.until(&path, has_container).await;
    let running = json!({"status": {"ephemeralContainerStatuses": [{"name": "dbg", "image": "i", "imageID": "i",
        "ready": true, "restartCount": 0, "state": {"running": {"startedAt": "2020-01-01T00:00:00Z"}}}]}});
    assert_eq!(client.patch(&format!("{path}/status"), "merge", &running).await.status, 200);
    let ran =
        ran.await.unwrap().unwrap_or_else(|| panic!("{} debug does not end", kubectl.program().display()));
    assert_eq!((ran.code, ran.out.as_str()), (Some(0), "attached\nsome input\n"), "{}", ran.err);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kubectl_debugs_a_pod_in_an_ephemeral_container() {
    let (server, agent, _keys) = cluster().await;
    for (at, kubectl) in Kubectl::releases(&server).await.iter().enumerate() {
        for (round, variables) in PROTOCOLS.into_iter().enumerate() {
            let name = format!("debugged-{at}-{round}");
            debugged(&server, kubectl, variables, &name).await;
            let url = agent.seen.upgrade.lock()["url"].clone();
            let begin = format!("/attach/default/{name}/dbg?");
            assert!(url.as_str().is_some_and(|url| url.starts_with(&begin)), "{url}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kubectl_follows_logs_until_the_agent_is_killed() {
    let (server, agent, _keys) = cluster().await;
    let releases = Kubectl::releases(&server).await;
    let mut running = Vec::new();
    for kubectl in &releases {
        // The first client follows the log until the test ends it.
        let (mut child, mut lines) = started(kubectl.command("logs -f p"));
        assert_eq!(line(&mut lines).await, "/containerLogs/default/p/c?follow=true");
        while line(&mut lines).await != "line 3" {}
        child.kill().await.unwrap();
        until("the log is not followed any more", || agent.seen.open.load(SeqCst) == 0).await;
    }
    for kubectl in &releases {
        // Other clients are still connected when the agent ends.
        let (child, mut lines) = started(kubectl.command("logs -f p"));
        while line(&mut lines).await != "line 3" {}
        running.push((child, lines, format!("{} logs", kubectl.program().display())));
        for variables in PROTOCOLS {
            let mut command = kubectl.command("exec p -- sh -c 'echo up; exec sleep 1000'");
            command.envs(variables.iter().copied());
            let (child, mut lines) = started(command);
            assert_eq!(line(&mut lines).await, "up");
            running.push((child, lines, format!("{} exec {variables:?}", kubectl.program().display())));
        }
    }
    agent.kill();
    for (child, mut lines, what) in running {
        eprintln!("waiting for {what}");
        while let Ok(Some(_)) = lines.next_line().await {}
        // The exit code is not checked, because an agent that has ended reports no outcome.
        ended(child).await;
    }
    for kubectl in &releases {
        for arguments in ["logs p", "exec p -- echo hello", "attach p", "get --raw /api/v1/nodes/n/proxy/x"] {
            let ran = kubectl.run(arguments, "").await;
            assert!(ran.code != Some(0) && ran.err.contains("connection refused"), "{arguments}: {ran:?}");
        }
    }
}
