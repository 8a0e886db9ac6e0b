//! Tests that a write does not repeat the decoding, copying or encoding of the unchanged parts of an object.

use super::server_fixture::TestServer;
use values::json::{Value, sharing, write};

const POD: &str = "/api/v1/namespaces/default/pods/p";

fn text(value: &Value) -> String {
    let mut text = Vec::new();
    write(value, &mut text);
    String::from_utf8(text).expect("JSON is text")
}

#[tokio::test]
async fn an_update_shares_its_unchanged_sections_with_the_stored_object() {
    let server = TestServer::start();
    let (code, _, answer) =
        server.send("POST /api/v1/namespaces", r#"{"metadata":{"name":"default"}}"#).await;
    assert!(code == 201 || code == 409, "{answer:?}");
    let body =
        r#"{"metadata":{"name":"p","labels":{"a":"0"}},"spec":{"containers":[{"name":"c","image":"i"}]}}"#;
    let (code, _, made) = server.send("POST /api/v1/namespaces/default/pods", body).await;
    assert_eq!(code, 201, "{made:?}");
    let read = text(&made);
    assert!(read.contains(r#""labels":{"a":"0"}"#), "{read}");
    let seen = format!(r#""resourceVersion":"{}""#, made.str_at(&["metadata", "resourceVersion"]));
    sharing::take();
    for (request, body, changes, reads) in [
        // A client changes the object that it has read.
        (format!("PUT {POD}"), read.replace(r#""a":"0""#, r#""a":"1""#), false, 1),
        // A client sends an object that it built itself, without the fields that the server fills in.
        (format!("PUT {POD}"), body.replace(r#""a":"0""#, r#""a":"2""#), false, 0),
        (format!("MERGE {POD}"), r#"{"metadata":{"labels":{"a":"3"}}}"#.to_owned(), false, 1),
        (format!("STRATEGIC {POD}"), r#"{"metadata":{"labels":{"a":"4"}}}"#.to_owned(), false, 1),
        (
            format!("JSON {POD}"),
            r#"[{"op":"add","path":"/metadata/labels/a","value":"5"}]"#.to_owned(),
            false,
            1,
        ),
        // The changed part is copied. The validation of the status of a pod reads the containers.
        (format!("MERGE {POD}/status"), r#"{"status":{"phase":"Running"}}"#.to_owned(), true, 2),
        (format!("MERGE {POD}"), r#"{"spec":{"activeDeadlineSeconds":9}}"#.to_owned(), true, 1),
    ] {
        let body = body.replace(&seen, r#""resourceVersion":"""#);
        let (code, _, answer) = server.send(&request, &body).await;
        assert_eq!(code, 200, "{request} {body}: {answer:?}");
        let (copies, written) = sharing::take();
        let read = sharing::take_read();
        assert_eq!(copies > 0, changes, "{request} {body}");
        // Validation needs the whole specification, and parses the parts that no earlier stage has parsed.
        assert_eq!(read, reads, "{request} {body}");
        // The unchanged part is shared.
        assert_eq!(written, if changes { 1 } else { 2 }, "{request} {body}");
    }
}
