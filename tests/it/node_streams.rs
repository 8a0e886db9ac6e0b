//! Many concurrent streams over the node agent of these tests (docs/api/nodes.md): the server's memory and
//! processor time for followed logs and forwarded ports.
//!
//! `STREAMED_LOGS` and `STREAMED_PORTS` set the numbers of streams. The test prints the costs, and fails
//! if a cost exceeds its limit.

use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

use http_body_util::BodyExt;
use tests::PATIENCE;
use tokio::io::{AsyncWriteExt, BufReader};

use crate::nodes::{PODS, cluster, echo, head_of, pod, until};
use crate::support::{anonymous_bytes, from_environment};

/// Returns the processor time that a process has used.
fn processor_time(pid: u32) -> Duration {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("the server runs");
    let after_name = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let fields: Vec<u64> =
        after_name.split_whitespace().skip(11).take(2).filter_map(|ticks| ticks.parse().ok()).collect();
    // Linux counts in hundredths of a second.
    Duration::from_millis(fields.iter().sum::<u64>() * 10)
}

/// Maximum anonymous memory that each stream may add to the server: the buffers of two connections with their
/// TLS, and a margin.
const ADDED_BYTES_MAX: u64 = 400 * 1024;

/// Duration of the measurement.
const LOOK: Duration = Duration::from_secs(5);

/// Prints the costs of `streams`, and returns the memory while they are open.
async fn cost(pid: u32, streams: &str, count: usize, before: u64) -> u64 {
    tokio::time::sleep(Duration::from_millis(500)).await;
    let (began, busy) = (Instant::now(), processor_time(pid));
    tokio::time::sleep(LOOK).await;
    let busy = processor_time(pid).saturating_sub(busy).as_secs_f64() / began.elapsed().as_secs_f64();
    let memory = anonymous_bytes(pid);
    let each = memory.saturating_sub(before) / count.max(1) as u64;
    eprintln!("{count} {streams}: {} KiB each, {:.1} % of a processor in all", each / 1024, busy * 100.0);
    assert!(each < ADDED_BYTES_MAX, "{each} bytes for each of {count} {streams}");
    memory
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_concurrent_streams_use_only_the_memory_of_their_buffers() {
    let (log_count, port_count) =
        (from_environment("STREAMED_LOGS", 200), from_environment("STREAMED_PORTS", 50));
    let (server, agent, _keys) = cluster().await;
    let client = server.client();
    let echo = echo().await;
    pod(client, "slow", "n", &["slow"]).await;
    let before = anonymous_bytes(server.pid());
    let mut logs = Vec::new();
    for _ in 0..log_count {
        let response = client.another().open("GET", &format!("{PODS}/slow/log?follow=true"), &[], b"").await;
        assert_eq!(response.status(), 200);
        logs.push(response.into_body());
    }
    until("all logs are open", || agent.seen.open.load(SeqCst) == log_count).await;
    let after_logs = cost(server.pid(), "followed logs, a line a second each", log_count, before).await;
    let mut forwards = Vec::new();
    for _ in 0..port_count {
        let mut stream = BufReader::new(client.connect().await.unwrap());
        let request = format!(
            "POST {PODS}/p/portforward HTTP/1.1\r\nhost: h\r\nconnection: Upgrade\r\nupgrade: SPDY/3.1\r\n\
             x-stream-protocol-version: portforward.k8s.io\r\n\r\n"
        );
        stream.write_all(request.as_bytes()).await.unwrap();
        assert!(head_of(&mut stream).await.starts_with("HTTP/1.1 101 "));
        stream.write_all(&opened(1, "error", echo, true)).await.unwrap();
        stream.write_all(&opened(3, "data", echo, false)).await.unwrap();
        // The data exceeds all buffers, and the client does not read the responses.
        let data = [&[0, 0, 0, 3, 0, 0, 0x40, 0][..], &[b'x'; 0x4000]].concat();
        let sending = tokio::spawn(async move {
            for _ in 0..1000 {
                if stream.write_all(&data).await.is_err() {
                    break;
                }
            }
            stream
        });
        forwards.push(sending);
    }
    until("all connections are open", || agent.seen.open.load(SeqCst) == log_count + port_count).await;
    cost(server.pid(), "forwarded ports whose clients do not read", port_count, after_logs).await;
    // The server serves other requests meanwhile, and the streams have received all their data.
    assert_eq!(client.get("/readyz").await.status, 200);
    for body in &mut logs {
        let mut heard = String::new();
        while !heard.contains("line 2\n") {
            let frame = tokio::time::timeout(PATIENCE, body.frame()).await.unwrap().unwrap().unwrap();
            heard.push_str(std::str::from_utf8(frame.data_ref().unwrap()).unwrap());
        }
    }
    drop(logs);
    forwards.iter().for_each(tokio::task::JoinHandle::abort);
    drop(forwards);
    until("all connections are closed", || agent.seen.open.load(SeqCst) == 0).await;
}

/// Returns a frame that opens a stream of a forwarded port, with the headers in a stored block.
fn opened(stream: u32, kind: &str, port: u16, is_first: bool) -> Vec<u8> {
    let port = port.to_string();
    let headers = [("streamtype", kind), ("port", port.as_str()), ("requestid", "0")];
    let mut block = (headers.len() as u32).to_be_bytes().to_vec();
    for text in headers.iter().flat_map(|(name, value)| [name, value]) {
        block.extend_from_slice(&(text.len() as u32).to_be_bytes());
        block.extend_from_slice(text.as_bytes());
    }
    let mut payload = stream.to_be_bytes().to_vec();
    payload.extend_from_slice(&[0; 6]);
    payload.extend_from_slice(if is_first { &[0x78, 0x01] } else { &[] });
    payload.push(0);
    payload.extend_from_slice(&(block.len() as u16).to_le_bytes());
    payload.extend_from_slice(&(!(block.len() as u16)).to_le_bytes());
    payload.extend_from_slice(&block);
    payload.extend_from_slice(&[0, 0, 0, 0xff, 0xff]);
    [&[0x80, 3, 0, 1][..], &(payload.len() as u32).to_be_bytes(), &payload].concat()
}
