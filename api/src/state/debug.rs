//! `/debug/flags/v` and `/debug/pprof/`: how much is logged from now on, and what there is instead of profiles
//! (docs/api/operations.md#debugging). Served unless `--profiling=false`.
//!
//! How much is logged belongs to the process, which is one: the program says once how it is changed.

use std::sync::OnceLock;

use http::header::LOCATION;
use http::{HeaderValue, Method, StatusCode};

use crate::values::field::go_quote;
use crate::wire::response::{Response, respond, respond_text};

/// Path of the level of detail of the log.
pub const LEVEL_PATH: &str = "/debug/flags/v";

/// Sets the level of detail of the log of the process.
pub static SET_LEVEL: OnceLock<fn(i32)> = OnceLock::new();

/// Answers a path without a body; `None` if it is none of these.
pub fn respond_to(path: &str) -> Option<Response> {
    Some(match path {
        "/debug/pprof" => {
            let mut response = respond_text(StatusCode::FOUND, "");
            response.headers_mut().insert(LOCATION, HeaderValue::from_static("/debug/pprof/"));
            response
        }
        "/debug/pprof/" => page(
            "profiles",
            "This server takes no profiles of itself: use perf or a debugger on its process.",
        ),
        // A profile is not turned into names here.
        "/debug/pprof/symbol" => respond_text(StatusCode::OK, "num_symbols: 0\n"),
        _ if path.starts_with("/debug/pprof/") => respond_text(StatusCode::NOT_FOUND, "Unknown profile\n"),
        _ if path == "/debug/flags" || path.starts_with("/debug/flags/") => {
            page("flags", "v: the level of detail of the log. PUT a number to /debug/flags/v.")
        }
        _ => return None,
    })
}

fn page(title: &str, text: &str) -> Response {
    let page = format!(
        "<html>\n<head>\n<title>/debug/{title}/</title>\n</head>\n<body>\n{text}\n</body>\n</html>\n"
    );
    respond(StatusCode::OK, "text/html; charset=utf-8", page)
}

/// Answers a request for another level of detail of the log.
pub fn set_level(method: &Method, body: &[u8]) -> Response {
    if method != Method::PUT {
        return respond_text(StatusCode::NOT_ACCEPTABLE, "unsupported http method\n");
    }
    let text = String::from_utf8_lossy(body);
    match text.parse::<i32>() {
        Ok(level) => {
            if let Some(set) = SET_LEVEL.get() {
                set(level);
            }
            respond_text(StatusCode::OK, format!("successfully set klog.logging.verbosity to {text}\n"))
        }
        Err(_) => {
            let quoted = go_quote(&text);
            let why = format!("strconv.ParseInt: parsing {quoted}: invalid syntax");
            let said = format!("failed set klog.logging.verbosity {text}: {why}\n");
            respond_text(StatusCode::BAD_REQUEST, said)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_level_is_a_number_that_is_put() {
        for (method, body, code) in [
            (Method::PUT, "4", 200),
            (Method::PUT, "-1", 200),
            (Method::PUT, "x", 400),
            (Method::PUT, "", 400),
            (Method::PUT, "99999999999", 400),
            (Method::GET, "4", 406),
            (Method::POST, "4", 406),
        ] {
            assert_eq!(set_level(&method, body.as_bytes()).status(), code, "{method} {body}");
        }
    }

    #[test]
    fn there_are_pages_and_no_profiles() {
        for (path, code) in [
            ("/debug/pprof", Some(302)),
            ("/debug/pprof/", Some(200)),
            ("/debug/pprof/heap", Some(404)),
            ("/debug/flags", Some(200)),
            ("/debug/other", None),
        ] {
            assert_eq!(respond_to(path).map(|response| response.status().as_u16()), code, "{path}");
        }
    }
}
