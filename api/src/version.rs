//! `/version`: the identity of this server in the form that clients parse
//! (docs/api/discovery.md#discovery-documents).

use std::sync::OnceLock;

use bytes::Bytes;
use http::header::ACCEPT;
use http::{HeaderMap, Response, StatusCode};

use crate::discovery::{json_response, not_acceptable};
use crate::json::{Object, Value};
use crate::status::Status;

/// Major number of the API release that this server implements.
pub const MAJOR: &str = "1";
/// Minor number of the API release that this server implements.
pub const MINOR: &str = "36";
/// Oldest minor number that this server is compatible with.
const MINOR_COMPATIBLE: &str = "35";

/// The release as a semantic version: `v1.36.0+cluster-apiserver.<version of this program>`.
///
/// Clients compare the part before `+` with their own version; the rest identifies this server.
pub fn git_version() -> &'static str {
    concat!("v1.36.0+cluster-apiserver.", env!("CARGO_PKG_VERSION"))
}

/// What the program was built from.
#[derive(Clone, Copy, Debug)]
pub struct Build {
    /// The commit; empty if it is not known.
    pub commit: &'static str,
    /// Its date, RFC 3339; empty if it is not known.
    pub date: &'static str,
}

/// The build of this program; set once, before the first request.
pub static BUILD: OnceLock<Build> = OnceLock::new();

/// The response to GET `/version`: indented JSON.
///
/// # Errors
/// 406 if the client does not accept it.
pub fn respond(headers: &HeaderMap) -> Result<Response<Bytes>, Status> {
    static DOCUMENT: OnceLock<Response<Bytes>> = OnceLock::new();
    let accepted = headers.get(ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let is_json = |clause: &str| {
        let media_type = clause.split(';').next().unwrap_or_default().trim();
        ["*/*", "application/json"].contains(&media_type)
    };
    if !accepted.is_empty() && !accepted.split(',').any(is_json) {
        return Err(not_acceptable());
    }
    Ok(DOCUMENT.get_or_init(|| json_response(StatusCode::OK, &document(), true)).clone())
}

/// The document of `/version`.
pub fn document() -> Value {
    let Build { commit, date } = BUILD.get().copied().unwrap_or(Build { commit: "", date: "" });
    let architecture = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    let platform = format!("{}/{architecture}", std::env::consts::OS);
    let members = [
        ("major", MAJOR),
        ("minor", MINOR),
        ("emulationMajor", MAJOR),
        ("emulationMinor", MINOR),
        ("minCompatibilityMajor", MAJOR),
        ("minCompatibilityMinor", MINOR_COMPATIBLE),
        ("gitVersion", git_version()),
        ("gitCommit", commit),
        ("gitTreeState", if commit.is_empty() { "archive" } else { "clean" }),
        ("buildDate", if date.is_empty() { "1970-01-01T00:00:00Z" } else { date }),
        // The key is part of the protocol; there is no Go version.
        ("goVersion", ""),
        ("compiler", "rustc"),
        ("platform", &platform),
    ];
    let members: Object = members.into_iter().map(|(name, value)| (name.into(), value.into())).collect();
    members.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json;

    #[test]
    fn the_document_is_json_or_nothing() {
        for (accept, is_answered) in [
            (None, true),
            (Some("*/*"), true),
            (Some("text/html, application/json;q=0.1"), true),
            (Some("application/*"), false),
            (Some("application/yaml"), false),
            (Some(""), true),
        ] {
            let headers = HeaderMap::from_iter(accept.map(|text| (ACCEPT, text.parse().unwrap())));
            let code = respond(&headers).map_or_else(|status| status.code, |response| response.status());
            assert_eq!(code == StatusCode::OK, is_answered, "{accept:?}");
        }
    }

    #[test]
    fn the_document_has_its_members_and_a_version_that_clients_parse() {
        let body = respond(&HeaderMap::new()).unwrap().into_body();
        assert!(body.starts_with(b"{\n  \"major\": \"1\",\n  \"minor\": \"36\",\n"));
        let document = json::parse(&body).unwrap();
        let names: Vec<&str> = document.as_object().unwrap().iter().map(|(name, _)| name).collect();
        assert_eq!(
            names.join(" "),
            "major minor emulationMajor emulationMinor minCompatibilityMajor minCompatibilityMinor gitVersion \
             gitCommit gitTreeState buildDate goVersion compiler platform"
        );
        let version = document.str_at(&["gitVersion"]);
        let (release, build) = version.strip_prefix('v').unwrap().split_once('+').unwrap();
        assert_eq!(release, format!("{MAJOR}.{MINOR}.0"));
        assert!(build.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'.' || b == b'-'), "{build}");
    }
}
