//! Tests that check which calls share a connection.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::super::{Endpoint, post};

/// Starts a server that answers the requests of each connection with `answers` in order, and closes the
/// connection after the last answer.
async fn serve(answers: &'static [&'static str]) -> (Endpoint, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let connections = Arc::new(AtomicUsize::new(0));
    let counted = connections.clone();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            counted.fetch_add(1, Ordering::Relaxed);
            tokio::spawn(answer(stream, answers));
        }
    });
    (Endpoint::at_port("127.0.0.1", port, "/hook", None).unwrap(), connections)
}

async fn answer(mut stream: TcpStream, answers: &[&str]) {
    let mut held = Vec::new();
    for answer in answers {
        // Each request of this test has a head and a body of two bytes.
        let end = loop {
            if let Some(at) = held.windows(4).position(|four| four == b"\r\n\r\n")
                && held.len() >= at + 6
            {
                break at + 6;
            }
            match stream.read_buf(&mut held).await {
                Ok(0) | Err(_) => return,
                Ok(_) => {}
            }
        };
        held.drain(..end);
        let _ = stream.write_all(answer.as_bytes()).await;
    }
}

async fn send_request(endpoint: &Endpoint) -> Result<(), String> {
    let answered = post(endpoint, "agent", Bytes::from_static(b"{}"), Duration::from_secs(60)).await;
    answered.map(drop).map_err(|failure| failure.to_string())
}

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}";
const CLOSES: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}";
const FAILS: &str = "HTTP/1.1 500 Oops\r\nContent-Length: 0\r\n\r\n";
const CUT: &str = "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{}";

#[tokio::test]
async fn a_connection_is_kept_until_one_side_ends_it() {
    for (answers, calls, good, connections) in [
        (&[OK, OK, OK, OK][..], 4, 4, 1),
        (&[FAILS, OK, FAILS][..], 3, 1, 1),
        (&[CLOSES][..], 3, 3, 3),
        // The server closes the connection after its second response, and the third call opens a new
        // connection.
        (&[OK, OK][..], 4, 4, 2),
        (&[CUT][..], 2, 0, 2),
        // A request that was written and got no response is not written again.
        (&[""][..], 2, 0, 2),
    ] {
        let (endpoint, counted) = serve(answers).await;
        let mut succeeded = 0;
        for _ in 0..calls {
            succeeded += usize::from(send_request(&endpoint).await.is_ok());
            // The end of a connection takes a moment to arrive. After each pause the task of the connection
            // gets a turn before the next pause ends, even if this thread was delayed.
            for _ in 0..5 {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        }
        assert_eq!(
            (succeeded, counted.load(Ordering::Relaxed)),
            (good, connections),
            "{answers:?}, {calls} calls"
        );
    }
}

#[tokio::test]
async fn concurrent_calls_have_their_own_connections_and_few_are_kept() {
    let (endpoint, counted) = serve(&[OK; 64]).await;
    let many = super::KEPT_MAX + 8;
    let calls = futures_util::future::join_all((0..many).map(|_| send_request(&endpoint))).await;
    assert!(calls.iter().all(Result::is_ok), "{calls:?}");
    assert!(counted.load(Ordering::Relaxed) <= many);
    assert!(endpoint.pool().0.lock().connections.len() <= super::KEPT_MAX);
    let before = counted.load(Ordering::Relaxed);
    send_request(&endpoint).await.unwrap();
    assert_eq!(counted.load(Ordering::Relaxed), before);
    // Another endpoint of the same server may have other credentials, so it shares no connection.
    let (_, port) = endpoint.address();
    send_request(&Endpoint::at_port("127.0.0.1", port, "/hook", None).unwrap()).await.unwrap();
    assert_eq!(counted.load(Ordering::Relaxed), before + 1);
}

#[tokio::test]
async fn a_connection_that_is_reset_is_named_by_its_ends() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let _ = stream.read(&mut [0; 1024]).await;
        stream.set_zero_linger().unwrap();
    });
    let endpoint = Endpoint::at_port("127.0.0.1", port, "/hook", None).unwrap();
    let failure =
        post(&endpoint, "agent", Bytes::from_static(b"{}"), Duration::from_secs(60)).await.unwrap_err();
    assert!(failure.is_passing(), "{failure}");
    let said = failure.to_string();
    let want = format!("->127.0.0.1:{port}: read: connection reset by peer");
    assert!(said.starts_with("Post \"http://127.0.0.1:") && said.ends_with(&want), "{said}");
}
