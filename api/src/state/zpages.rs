//! `/statusz` and `/flagz`: what the process is and what its flags are, for people who look for the cause of something
//! (docs/api/operations.md#statusz-and-flagz). Nothing to be read by programs: the separator is another at each start.

use std::sync::OnceLock;
use std::time::Duration;

use http::header::ACCEPT;
use http::{HeaderMap, StatusCode};

use crate::types::features::{Feature, Features};
use crate::types::version::{self, Releases};
use crate::values::names;
use crate::values::naming::Naming;
use crate::wire::response::{Response, respond_text};

const WARNING: &str = "Warning: This endpoint is not meant to be machine parseable, has no formatting compatibility guarantees \
                       and is for debugging purposes only.";

/// What may be between a name and a value.
const SEPARATORS: [&str; 4] = [":", ": ", "=", " "];

/// What the pages show.
pub struct Sources<'s> {
    /// Vocabulary.
    pub naming: &'static Naming,
    /// Which of the pages are served.
    pub features: &'s Features,
    /// Flags and their values.
    pub flags: &'s [(String, String)],
    /// How long the process lives.
    pub age: Duration,
}

/// Answers a path; `None` if it is none of these.
pub fn respond(sources: &Sources<'_>, path: &str, headers: &HeaderMap) -> Option<Response> {
    let (title, lines) = match path {
        "/statusz" if sources.features.has(Feature::ComponentStatusz) => ("statusz", status(sources.age)),
        "/flagz" if sources.features.has(Feature::ComponentFlagz) => ("flags", sources.flags.to_vec()),
        _ => return None,
    };
    if !accepts_text(headers) {
        return Some(respond_text(StatusCode::NOT_ACCEPTABLE, "Only text/plain is served here\n"));
    }
    let separator = separator();
    let mut text = format!("\n{} {title}\n{WARNING}\n\n", sources.naming.system("apiserver"));
    for (name, value) in lines {
        text.push_str(&format!("{name}{separator}{value}\n"));
    }
    Some(respond_text(StatusCode::OK, text))
}

fn status(age: Duration) -> Vec<(String, String)> {
    let Releases { emulated, .. } = version::RELEASES.get().copied().unwrap_or_default();
    let seconds = age.as_secs();
    let began = crate::values::clock::now_seconds() - i64::try_from(seconds).unwrap_or(0);
    [
        ("Started", crate::values::clock::format_seconds(began)),
        ("Up", format!("{} hr {:02} min {:02} sec", seconds / 3600, seconds / 60 % 60, seconds % 60)),
        ("Binary version", version::git_version().to_owned()),
        ("Emulation version", format!("{}.{emulated}", version::MAJOR)),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .into()
}

fn separator() -> &'static str {
    static CHOSEN: OnceLock<&str> = OnceLock::new();
    CHOSEN.get_or_init(|| SEPARATORS[usize::from(names::random::<1>()[0]) % SEPARATORS.len()])
}

fn accepts_text(headers: &HeaderMap) -> bool {
    let accepted = headers.get(ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let is_text = |clause: &str| {
        let media_type = clause.split(';').next().unwrap_or_default().trim();
        matches!(media_type, "*/*" | "text/*" | "text/plain")
    };
    accepted.is_empty() || accepted.split(',').any(is_text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::values::naming::KUBERNETES;

    #[test]
    fn pages_are_text_that_a_gate_may_close() {
        let flags = [("v".to_owned(), "4".to_owned())];
        let sources = |features| Sources {
            naming: &KUBERNETES,
            features,
            flags: &flags,
            age: Duration::from_secs(3_725),
        };
        let closed = Features::parse("ComponentFlagz=false", Releases::default()).unwrap();
        let open = Features::default();
        for (features, path, accept, code) in [
            (&open, "/flagz", "", Some(200)),
            (&open, "/statusz", "text/plain;q=0.1, a/b", Some(200)),
            (&open, "/statusz", "application/json", Some(406)),
            (&open, "/statusz/", "", None),
            (&closed, "/flagz", "", None),
            (&closed, "/statusz", "*/*", Some(200)),
        ] {
            let headers = HeaderMap::from_iter([(ACCEPT, accept.parse().unwrap())]);
            let answer = respond(&sources(features), path, &headers);
            assert_eq!(answer.map(|answer| answer.status().as_u16()), code, "{path} {accept}");
        }
        assert_eq!(status(Duration::from_secs(3_725))[1].1, "1 hr 02 min 05 sec");
    }
}
