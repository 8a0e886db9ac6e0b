//! Status objects for messages of a node's agent: an error response, and the outcome of a command.

use http::StatusCode;

use super::{Cause, Details, RemoteStatus, Status, StatusReason};
use crate::json::{self, Object, Value};

/// Reason of a command that ended with a non-zero code. [`EXIT_CODE`] is the reason of the cause that
/// contains the code.
const NON_ZERO: &str = "NonZeroExitCode";
const EXIT_CODE: &str = "ExitCode";

impl Status {
    /// Returns the Status for an unsuccessful response of an agent about the log of a pod. `message` is the
    /// text for `code`.
    pub fn of_agent(code: StatusCode, text: &str, message: String, pod: &str) -> Status {
        let reason = match code.as_u16() {
            400 => return Status::bad_request(text),
            500 => return Status::internal(text),
            401 => StatusReason::Unauthorized,
            403 => StatusReason::Forbidden,
            404 => StatusReason::NotFound,
            405 => StatusReason::MethodNotAllowed,
            406 => StatusReason::NotAcceptable,
            409 => StatusReason::Conflict,
            415 => StatusReason::UnsupportedMediaType,
            422 => StatusReason::Invalid,
            429 => StatusReason::TooManyRequests,
            503 => StatusReason::ServiceUnavailable,
            504 => StatusReason::Timeout,
            501.. => StatusReason::InternalError,
            _ => StatusReason::Unknown,
        };
        // As in the reference server, the verb is omitted but the space after it stays.
        let message = format!("{message} ( pods/log {pod})");
        let details = Details { name: pod.to_owned(), kind: "pods/log".to_owned(), ..Details::default() };
        let mut status = Status::new(reason, message).with_details(details);
        status.code = code;
        status
    }

    /// Returns the Status of a command that ended with a code other than 0.
    fn exit_code(code: u8) -> Status {
        let message =
            format!("command terminated with non-zero exit code: command terminated with exit code {code}");
        let cause = Cause { reason: EXIT_CODE.to_owned(), message: code.to_string(), ..Cause::default() };
        let remote = RemoteStatus { reason: NON_ZERO.to_owned(), ..RemoteStatus::default() };
        let mut status = Status::new(StatusReason::Unknown, message)
            .with_details(Details { causes: vec![cause], ..Details::default() });
        status.remote = Some(Box::new(remote));
        status
    }
}

/// Returns the outcome of a command in this server's wording. `content` is the content of the error stream:
/// empty, or a Status.
pub fn outcome(content: &[u8]) -> Vec<u8> {
    let failed = |why: String| without_type(Status::internal(why).to_value());
    if content.is_empty() {
        return success();
    }
    let content_text = || String::from_utf8_lossy(content).into_owned();
    let Ok(status) = json::parse(content) else {
        return failed(format!("error stream protocol error: no Status in {:?}", content_text()));
    };
    match status.str_at(&["status"]) {
        "Success" => success(),
        "Failure" if status.str_at(&["reason"]) == NON_ZERO => {
            let causes = status.at(&["details", "causes"]).and_then(Value::as_array).unwrap_or_default();
            match causes.iter().find(|cause| cause.str_at(&["reason"]) == EXIT_CODE) {
                None => failed(format!("error stream protocol error: no {EXIT_CODE} cause given")),
                Some(cause) => match cause.str_at(&["message"]).parse() {
                    Ok(code) => {
                        let mut status = Status::exit_code(code).to_value();
                        if let Some(members) = status.as_object_mut() {
                            members.remove("code");
                        }
                        without_type(status)
                    }
                    Err(_) => failed(format!(
                        "error stream protocol error: invalid exit code value {:?}",
                        cause.str_at(&["message"])
                    )),
                },
            }
        }
        "Failure" => failed(status.str_at(&["message"]).to_owned()),
        _ => failed("error stream protocol error: unknown error".to_owned()),
    }
}

/// Returns the outcome of a command that could not be started or whose connection was lost. `response` is
/// the response of the agent, which may be a Status.
pub fn failure(why: &str, response: &[u8]) -> Vec<u8> {
    match json::parse(response) {
        Ok(status) if status.str_at(&["kind"]) == "Status" => without_type(status),
        _ => without_type(Status::internal(why).to_value()),
    }
}

fn success() -> Vec<u8> {
    let mut status = Object::new();
    status.push("metadata", Object::new().into());
    status.push("status", "Success".into());
    without_type(status.into())
}

/// Returns the text of a Status as it is sent in a stream: without `apiVersion` and `kind`.
fn without_type(mut status: Value) -> Vec<u8> {
    if let Some(members) = status.as_object_mut() {
        members.remove("kind");
        members.remove("apiVersion");
    }
    let mut text = Vec::new();
    json::write(&status, &mut text);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outcomes_of_commands_are_statuses_without_kind_and_version() {
        let internal = |why: &str| {
            format!(
                r#"{{"metadata":{{}},"status":"Failure","message":"Internal error occurred: {why}","reason":"InternalError","details":{{"causes":[{{"message":"{why}"}}]}},"code":500}}"#
            )
        };
        let success = r#"{"metadata":{},"status":"Success"}"#;
        for (said, want) in [
            ("", success.to_owned()),
            (r#"{"metadata":{},"status":"Success"}"#, success.to_owned()),
            (
                r#"{"metadata":{},"status":"Failure","message":"x","reason":"NonZeroExitCode","details":{"causes":[{"reason":"ExitCode","message":"3"}]}}"#,
                r#"{"metadata":{},"status":"Failure","message":"command terminated with non-zero exit code: command terminated with exit code 3","reason":"NonZeroExitCode","details":{"causes":[{"reason":"ExitCode","message":"3"}]}}"#.to_owned(),
            ),
            (r#"{"status":"Failure","message":"no such container"}"#, internal("no such container")),
            (r#"{"status":"Maybe"}"#, internal("error stream protocol error: unknown error")),
            (
                r#"{"status":"Failure","reason":"NonZeroExitCode"}"#,
                internal("error stream protocol error: no ExitCode cause given"),
            ),
            ("garbage", internal(r#"error stream protocol error: no Status in \"garbage\""#)),
        ] {
            assert_eq!(String::from_utf8(outcome(said.as_bytes())).unwrap(), want, "{said}");
        }
        let text = br#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","code":404}"#;
        let text = failure("unused", text);
        assert_eq!(text, br#"{"metadata":{},"status":"Failure","code":404}"#);
        assert_eq!(failure("why", b"no JSON"), internal("why").into_bytes());
    }
}
