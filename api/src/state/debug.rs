//! `/debug/flags/v` and `/debug/pprof/`: the log level, and profiles of the process
//! (docs/api/operations.md#debugging). The server serves these paths unless `--profiling=false` is set. The socket of
//! `--debug-socket-path` always serves these paths.
//!
//! Log level and profiles belong to the process, so the program that runs the server provides them as a
//! [`Debugging`]. Paths, parameters and responses are the same as in Go's `net/http/pprof`, which existing tools
//! support.

use std::num::IntErrorKind;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use http::header::{CONTENT_DISPOSITION, LOCATION, X_CONTENT_TYPE_OPTIONS};
use http::{HeaderValue, Method, StatusCode};

use values::field::go_quote;
use values::query::Query;
use wire::response::{Response, respond, respond_text};

/// Path for the log level.
const LEVEL_PATH: &str = "/debug/flags/v";

/// Path that resolves addresses to names.
const SYMBOL_PATH: &str = "/debug/pprof/symbol";

/// The parts of the process that can be debugged.
#[derive(Clone, Default)]
pub struct Debugging {
    /// Sets the log level; `None` if it cannot be changed.
    pub set_level: Option<Arc<dyn Fn(i32) + Send + Sync>>,
    /// Takes profiles; `None` if the program cannot take profiles.
    pub profiles: Option<Arc<dyn Profiles>>,
}

/// Default and maximum duration of a processor profile.
const PROFILED_FOR: (Duration, Duration) = (Duration::from_secs(30), Duration::from_secs(3600));

/// Profiles of the process, as compressed pprof documents.
pub trait Profiles: Send + Sync {
    /// Measures where the process spends processor time during the next `length`, and returns the profile.
    /// Returns `None` while another such profile is running.
    fn processor(&self, length: Duration) -> BoxFuture<'static, Option<Vec<u8>>>;

    /// Returns a profile of memory allocations by location.
    fn memory(&self, selected: MemoryProfile) -> BoxFuture<'static, Vec<u8>>;

    /// Returns each address that has a name, with this name.
    fn names(&self, addresses: Vec<u64>) -> BoxFuture<'static, Vec<(u64, String)>>;
}

/// The sample type that a memory profile shows by default. The profile contains both sample types.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum MemoryProfile {
    /// Memory that is allocated now.
    InUse,
    /// Memory that was allocated since the start.
    Allocated,
}

/// A request without its body.
#[derive(Clone, Copy, Debug)]
pub struct DebugRequest<'r> {
    /// The HTTP method of the request.
    pub method: &'r Method,
    /// The path of the request.
    pub path: &'r str,
    /// The query as it was sent.
    pub query: &'r str,
}

impl DebugRequest<'_> {
    /// Returns whether a request for this path may have a body.
    pub fn has_body(&self) -> bool {
        [LEVEL_PATH, SYMBOL_PATH].contains(&self.path)
    }
}

impl Debugging {
    /// Answers a request. Returns `None` if the request is for another path.
    pub async fn respond_to(&self, request: DebugRequest<'_>, body: &[u8]) -> Option<Response> {
        let DebugRequest { method, path, query } = request;
        Some(match path {
            LEVEL_PATH => self.set_level(method, body),
            SYMBOL_PATH => self.respond_symbols(method, query, body).await,
            "/debug/pprof" => redirect(method),
            "/debug/pprof/" => page("pprof", PROFILE_PAGE),
            _ if path.starts_with("/debug/pprof/") => {
                let profile = path.trim_start_matches("/debug/pprof/");
                match &self.profiles {
                    Some(profiles) => respond_profile(&**profiles, profile, &Query::parse(query)).await,
                    None => unknown_profile(),
                }
            }
            _ if path == "/debug/flags" || path.starts_with("/debug/flags/") => {
                page("flags", "v: the level of detail of the log. PUT a number to /debug/flags/v.")
            }
            _ => return None,
        })
    }

    /// Answers a request for the names of addresses. The addresses are in the query of a GET or the body of
    /// a POST, separated by `+`.
    async fn respond_symbols(&self, method: &Method, query: &str, body: &[u8]) -> Response {
        let body = String::from_utf8_lossy(body);
        let text = if *method == Method::POST { &*body } else { query };
        let number = |text: &str| match text.strip_prefix("0x") {
            Some(digits) => u64::from_str_radix(digits, 16).ok(),
            None => text.parse().ok(),
        };
        let addresses =
            text.split('+').filter_map(|text| number(text.trim()).filter(|&address| address != 0));
        let names = match &self.profiles {
            Some(profiles) => profiles.names(addresses.collect()).await,
            None => Vec::new(),
        };
        let mut page = format!("num_symbols: {}\n", u8::from(self.profiles.is_some()));
        for (address, name) in names {
            page.push_str(&format!("{address:#x} {name}\n"));
        }
        respond_text(StatusCode::OK, page)
    }

    /// Answers a request that sets the log level.
    fn set_level(&self, method: &Method, body: &[u8]) -> Response {
        let (code, line) = self.level_answer(method, body);
        let mut response = respond(code, "text/plain", format!("{line}\n"));
        response.headers_mut().insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        response
    }

    fn level_answer(&self, method: &Method, body: &[u8]) -> (StatusCode, String) {
        if method != Method::PUT {
            return (StatusCode::NOT_ACCEPTABLE, "unsupported http method".to_owned());
        }
        let text = String::from_utf8_lossy(body);
        match text.parse::<i32>() {
            Ok(level) => {
                if let Some(set) = &self.set_level {
                    set(level);
                }
                (StatusCode::OK, format!("successfully set klog.logging.verbosity to {text}"))
            }
            Err(error) => {
                let quoted = go_quote(&text);
                let why = match error.kind() {
                    IntErrorKind::PosOverflow | IntErrorKind::NegOverflow => "value out of range",
                    _ => "invalid syntax",
                };
                let why = format!("strconv.ParseInt: parsing {quoted}: {why}");
                (StatusCode::BAD_REQUEST, format!("failed set klog.logging.verbosity {text}: {why}"))
            }
        }
    }
}

/// Redirects to the page of the profiles.
fn redirect(method: &Method) -> Response {
    let body = if *method == Method::GET { "<a href=\"/debug/pprof/\">Found</a>.\n\n" } else { "" };
    let mut response = respond(StatusCode::FOUND, "text/html; charset=utf-8", body);
    response.headers_mut().insert(LOCATION, HeaderValue::from_static("/debug/pprof/"));
    response
}

const PROFILE_PAGE: &str = "\
Profiles, in the format of pprof:
<ul>
<li><a href=\"profile\">profile</a>: where processor time is spent in the next 30 seconds, or <code>?seconds=N</code></li>
<li><a href=\"heap\">heap</a>: where the memory was allocated that is in use</li>
<li><a href=\"allocs\">allocs</a>: where memory was allocated since the start</li>
</ul>
<p><code>go tool pprof FILE</code> shows them.</p>";

fn unknown_profile() -> Response {
    respond_text(StatusCode::NOT_FOUND, "Unknown profile\n")
}

async fn respond_profile(profiles: &dyn Profiles, name: &str, query: &Query) -> Response {
    let document = match name {
        "profile" => match profiles.processor(profiled_for(query.first("seconds"))).await {
            Some(document) => document,
            None => {
                let busy = "Could not enable CPU profiling: cpu profiling already in use\n";
                return respond_text(StatusCode::INTERNAL_SERVER_ERROR, busy);
            }
        },
        "heap" => profiles.memory(MemoryProfile::InUse).await,
        "allocs" => profiles.memory(MemoryProfile::Allocated).await,
        _ => return unknown_profile(),
    };
    let mut response = respond(StatusCode::OK, "application/octet-stream", document);
    let headers = response.headers_mut();
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    if let Ok(value) = HeaderValue::try_from(format!("attachment; filename=\"{name}\"")) {
        headers.insert(CONTENT_DISPOSITION, value);
    }
    response
}

fn profiled_for(seconds: Option<&str>) -> Duration {
    let seconds =
        seconds.and_then(|text| text.parse::<i64>().ok()).and_then(|seconds| u64::try_from(seconds).ok());
    let requested = seconds.filter(|&seconds| seconds > 0).map_or(PROFILED_FOR.0, Duration::from_secs);
    requested.min(PROFILED_FOR.1)
}

fn page(title: &str, text: &str) -> Response {
    let page = format!(
        "<html>\n<head>\n<title>/debug/{title}/</title>\n</head>\n<body>\n{text}\n</body>\n</html>\n"
    );
    respond(StatusCode::OK, "text/html; charset=utf-8", page)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_level_is_set_by_a_put_with_a_number() {
        let set = "successfully set klog.logging.verbosity to";
        let failed = |text: &str, why: &str| {
            format!("failed set klog.logging.verbosity {text}: strconv.ParseInt: parsing \"{text}\": {why}")
        };
        for (method, body, code, line) in [
            (Method::PUT, "4", 200, format!("{set} 4")),
            (Method::PUT, "-1", 200, format!("{set} -1")),
            (Method::PUT, "x", 400, failed("x", "invalid syntax")),
            (Method::PUT, "", 400, failed("", "invalid syntax")),
            (Method::PUT, "99999999999", 400, failed("99999999999", "value out of range")),
            (Method::GET, "4", 406, "unsupported http method".to_owned()),
            (Method::POST, "4", 406, "unsupported http method".to_owned()),
        ] {
            let (got, said) = Debugging::default().level_answer(&method, body.as_bytes());
            assert_eq!((got.as_u16(), said), (code, line), "{method} {body}");
        }
        assert_eq!(Debugging::default().set_level(&Method::GET, b"").headers()["content-type"], "text/plain");
    }

    #[test]
    fn a_profile_lasts_for_the_requested_seconds_or_30() {
        for (seconds, want) in [
            (None, 30),
            (Some("1"), 1),
            (Some("0"), 30),
            (Some("-5"), 30),
            (Some("x"), 30),
            (Some("1.5"), 30),
            (Some("99999999999999999999"), 30),
            (Some("9223372036854775807"), 3600),
        ] {
            assert_eq!(profiled_for(seconds), Duration::from_secs(want), "{seconds:?}");
        }
    }

    #[tokio::test]
    async fn the_profile_index_is_served_but_profiles_are_not_found_without_a_profiler() {
        for (path, code) in [
            ("/debug/pprof", Some(302)),
            ("/debug/pprof/", Some(200)),
            ("/debug/pprof/heap", Some(404)),
            ("/debug/pprof/symbol", Some(200)),
            ("/debug/flags", Some(200)),
            ("/debug/flags/v", Some(406)),
            ("/debug/other", None),
        ] {
            let request = DebugRequest { method: &Method::GET, path, query: "0x1+2" };
            let response = Debugging::default().respond_to(request, b"").await;
            assert_eq!(response.map(|response| response.status().as_u16()), code, "{path}");
        }
    }
}
