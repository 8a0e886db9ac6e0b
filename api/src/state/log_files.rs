//! `/logs`: files of the machine's log directory, if the operator enables it
//! (docs/api/operations.md#files-of-logs).
//!
//! The route does not negotiate content; clients must accept any media type. The module does not access the
//! file system: [`LogFiles`] provides the contents of the directory, and gets only cleaned relative paths.

use std::io::{ErrorKind, Read};
use std::sync::Arc;
use std::time::SystemTime;

use http::header::{ACCEPT, CONTENT_LENGTH, CONTENT_TYPE, LAST_MODIFIED, LOCATION};
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use jiff::Timestamp;

use types::openapi::http_date;
use values::memory::Account;
use values::status::Status;
use wire::response::{Response, respond, respond_text};
use wire::server::{Aborted, Body, PIECE_BYTES};

/// The path of the directory.
const PATH: &str = "/logs";

/// Maximum number of names listed for a directory.
const NAMES_MAX: usize = 10_000;

/// Maximum length of a file name in bytes.
const NAME_BYTES_MAX: usize = 255;

/// The content of a path.
pub enum LogContent {
    /// The names in a directory. Names of subdirectories end with a slash.
    Directory(Vec<String>),
    /// A file in its current state.
    File {
        /// Size in bytes.
        len: u64,
        /// Time of the last modification.
        modified: SystemTime,
        /// Reader of the content.
        content: Box<dyn Read + Send>,
    },
}

/// The directory of log files.
pub trait LogFiles: Send + Sync {
    /// Opens a path below the directory. Lists at most `names_max` names of a directory. May block.
    ///
    /// # Errors
    /// The path does not exist or cannot be read.
    fn open(&self, path: &str, names_max: usize) -> std::io::Result<LogContent>;
}

/// Answers a path. Returns `None` if the path is not below `/logs`.
pub async fn respond_to(
    files: &Arc<dyn LogFiles>,
    account: &Account,
    method: &Method,
    path: &str,
    headers: &HeaderMap,
) -> Option<Result<Response, Status>> {
    let rest = path.strip_prefix(PATH)?;
    if !rest.is_empty() && !rest.starts_with('/') {
        return None;
    }
    Some(if method != Method::GET {
        Err(Status::method_not_allowed())
    } else if accepts_anything(headers) {
        Ok(serve(files.clone(), account, path.to_owned(), rest).await)
    } else {
        Err(Status::no_such_representation(""))
    })
}

fn accepts_anything(headers: &HeaderMap) -> bool {
    let mut clauses = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok()).peekable();
    clauses.peek().is_none()
        || clauses
            .flat_map(|value| value.split(','))
            .any(|clause| clause.split(';').next().is_some_and(|kind| kind.trim() == "*/*"))
}

/// Returns a path without empty segments and `..`; `None` if the path leads out of the directory.
fn cleaned(path: &str) -> Option<String> {
    let mut parts = Vec::new();
    for part in path.split('/').filter(|part| !matches!(*part, "" | ".")) {
        match part {
            ".." => drop(parts.pop()?),
            part if part.contains('\0') || part.len() > NAME_BYTES_MAX => return None,
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

async fn serve(files: Arc<dyn LogFiles>, account: &Account, path: String, below: &str) -> Response {
    let Some(relative) = cleaned(below) else { return not_found() };
    let opened = tokio::task::spawn_blocking(move || files.open(&relative, NAMES_MAX)).await;
    let opened = match opened {
        Ok(opened) => opened,
        Err(_) => return respond_text(StatusCode::INTERNAL_SERVER_ERROR, "500 Internal Server Error\n"),
    };
    match opened {
        // The names in the listing are relative to the directory, so its path must end with a slash.
        Ok(LogContent::Directory(_)) if !path.ends_with('/') => {
            let mut response = respond_text(StatusCode::MOVED_PERMANENTLY, "");
            let last = format!("{}/", path.rsplit('/').next().unwrap_or_default());
            if let Ok(location) = HeaderValue::from_str(&last) {
                response.headers_mut().insert(LOCATION, location);
            }
            response
        }
        Ok(LogContent::Directory(names)) => {
            respond(StatusCode::OK, "text/html; charset=utf-8", listing(&names))
        }
        Ok(LogContent::File { len, modified, content }) => file(len, modified, content, account.clone()),
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            respond_text(StatusCode::FORBIDDEN, "403 Forbidden\n")
        }
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => not_found(),
        Err(_) => respond_text(StatusCode::INTERNAL_SERVER_ERROR, "500 Internal Server Error\n"),
    }
}

fn not_found() -> Response {
    respond_text(StatusCode::NOT_FOUND, "404 page not found\n")
}

fn listing(names: &[String]) -> String {
    let mut text =
        "<!doctype html>\n<meta name=\"viewport\" content=\"width=device-width\">\n<pre>\n".to_owned();
    for name in names {
        let link = percent_encoding::utf8_percent_encode(name, LINK);
        text.push_str(&format!("<a href=\"{link}\">{}</a>\n", escaped(name)));
    }
    text.push_str("</pre>\n");
    text
}

/// Characters that are not escaped in a link.
const LINK: &percent_encoding::AsciiSet =
    &percent_encoding::NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~').remove(b'/');

fn escaped(name: &str) -> String {
    name.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&#34;")
}

/// Sends the bytes that the file has now. Bytes that are appended in the meantime are not sent. The memory of
/// each chunk is charged before the chunk is read.
fn file(len: u64, modified: SystemTime, content: Box<dyn Read + Send>, account: Account) -> Response {
    let start = (content, len, account);
    let chunks = futures_util::stream::try_unfold(start, |(mut content, rest, account)| async move {
        if rest == 0 {
            return Ok(None);
        }
        let room = account.answer(PIECE_BYTES.min(usize::try_from(rest).unwrap_or(PIECE_BYTES)));
        let charge = room.await.map_err(|_| Aborted)?;
        let read = tokio::task::spawn_blocking(move || {
            let mut chunk = vec![0; PIECE_BYTES.min(usize::try_from(rest).unwrap_or(PIECE_BYTES))];
            let count = content.read(&mut chunk)?;
            chunk.truncate(count);
            std::io::Result::Ok((chunk, content))
        });
        match read.await {
            // The file became shorter, so fewer bytes exist than the header announced.
            Ok(Ok((chunk, _))) if chunk.is_empty() => Err(Aborted),
            Ok(Ok((chunk, content))) => {
                let left = rest - chunk.len() as u64;
                Ok(Some((charge.hold(chunk), (content, left, account))))
            }
            Ok(Err(_)) | Err(_) => Err(Aborted),
        }
    });
    let mut response = http::Response::new(if len == 0 { Body::empty() } else { Body::stream(chunks) });
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    headers.insert(CONTENT_LENGTH, HeaderValue::from(len));
    if let Ok(modified) = Timestamp::try_from(modified) {
        headers.insert(LAST_MODIFIED, http_date(modified));
    }
    response
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;
    use std::time::UNIX_EPOCH;

    use super::*;

    struct Two;

    impl LogFiles for Two {
        fn open(&self, path: &str, _: usize) -> std::io::Result<LogContent> {
            match path {
                "" => Ok(LogContent::Directory(vec!["a&b.log".to_owned(), "sub/".to_owned()])),
                "a&b.log" => Ok(LogContent::File {
                    len: 3,
                    modified: UNIX_EPOCH,
                    content: Box::new(Cursor::new(b"onetwo".to_vec())),
                }),
                _ => Err(ErrorKind::NotFound.into()),
            }
        }
    }

    #[tokio::test]
    async fn log_files_are_served_to_clients_that_accept_any_media_type() {
        let files: Arc<dyn LogFiles> = Arc::new(Two);
        for (path, accept, want) in [
            ("/logs/", "*/*", Some(200)),
            ("/logs", "*/*", Some(301)),
            ("/logs/a&b.log", "text/html, */*;q=0.8", Some(200)),
            ("/logs/./sub/../a&b.log", "*/*", Some(200)),
            ("/logs/../../etc/shadow", "*/*", Some(404)),
            ("/logs/none", "*/*", Some(404)),
            ("/logs/none", "application/json", Some(406)),
            ("/logsx", "*/*", None),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(ACCEPT, HeaderValue::from_static(accept));
            let answer = respond_to(&files, &Account::detached(), &Method::GET, path, &headers).await;
            let code = answer.map(|answer| match answer {
                Ok(response) => response.status().as_u16(),
                Err(status) => status.code.as_u16(),
            });
            assert_eq!(code, want, "{path} {accept}");
        }
        let content = Box::new(Cursor::new(b"onetwo".to_vec()));
        let response = file(3, UNIX_EPOCH, content, Account::detached());
        assert_eq!(response.headers()[LAST_MODIFIED], "Thu, 01 Jan 1970 00:00:00 GMT");
        let body = http_body_util::BodyExt::collect(response.into_body()).await.unwrap().to_bytes();
        assert_eq!(body, "one");
        assert!(listing(&["a&b.log".to_owned()]).contains("<a href=\"a%26b.log\">a&amp;b.log</a>\n"));
    }
}
