//! `/version`: the identity of this server in the form that clients parse
//! (docs/api/discovery.md#discovery-documents).

use std::sync::OnceLock;

use bytes::Bytes;
use http::header::ACCEPT;
use http::{HeaderMap, Response, StatusCode};

use crate::types::discovery::{json_response, not_acceptable};
use crate::values::json::{Object, Value};
use crate::values::status::Status;

/// Major number of the API release that this server implements.
pub const MAJOR: &str = "1";
/// Minor number of the API release that this server implements.
pub const MINOR: &str = "36";
/// The minor numbers of releases that this server can be like: its own and the three before.
const MINORS: std::ops::RangeInclusive<u32> = 33..=36;

/// Minor numbers of the releases that this server is like.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Releases {
    /// Its gates and what it says of itself are those of this one.
    pub emulated: u32,
    /// The oldest one that may run beside it.
    pub compatible: u32,
}

impl Default for Releases {
    fn default() -> Releases {
        Releases { emulated: *MINORS.end(), compatible: *MINORS.end() - 1 }
    }
}

impl Releases {
    /// Reads the values of the two flags: `1.35` or `kube=1.35` each.
    ///
    /// # Errors
    /// A version that is none, that is of another component or given twice, and one that this server cannot be like.
    pub fn parse(emulated: &[String], compatible: &[String]) -> Result<Releases, String> {
        let emulated = minor(emulated)?.unwrap_or(*MINORS.end());
        let compatible = minor(compatible)?.unwrap_or(emulated.saturating_sub(1).max(*MINORS.start()));
        let wrong = [
            (!MINORS.contains(&emulated)).then(|| outside("emulation", emulated, *MINORS.end())),
            (compatible < *MINORS.start() || compatible > emulated)
                .then(|| outside("minCompatibilityVersion", compatible, emulated)),
        ];
        match wrong {
            [None, None] => Ok(Releases { emulated, compatible }),
            [Some(why), None] | [None, Some(why)] => Err(why),
            [Some(one), Some(other)] => Err(format!("[{one}, {other}]")),
        }
    }
}

fn outside(what: &str, minor: u32, newest: u32) -> String {
    format!("{what} version {MAJOR}.{minor} is not between [{MAJOR}.{}, {MAJOR}.{newest}]", MINORS.start())
}

/// The minor number in the values of one of the flags.
fn minor(values: &[String]) -> Result<Option<u32>, String> {
    let mut found: Option<&str> = None;
    for value in values.iter().filter(|value| !value.is_empty()) {
        let (component, version) = value.split_once('=').unwrap_or((COMPONENT, value));
        if component != COMPONENT {
            return Err(format!("component not registered: {component}"));
        }
        if let Some(before) = found.filter(|before| *before != version) {
            return Err(format!("duplicate version flag, {component}={before} and {component}={version}"));
        }
        found = Some(version);
    }
    let Some(version) = found else { return Ok(None) };
    let number = version.trim_start_matches('v').strip_prefix("1.").and_then(|minor| minor.parse().ok());
    number.map(Some).ok_or_else(|| format!("illegal version string {version:?}"))
}

/// The component that versions may be given for.
const COMPONENT: &str = "kube";

/// The releases that the process is like; set once, before the first request.
pub static RELEASES: OnceLock<Releases> = OnceLock::new();

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
        return Err(not_acceptable(&[]));
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
    let Releases { emulated, compatible } = RELEASES.get().copied().unwrap_or_default();
    let (emulated, compatible) = (emulated.to_string(), compatible.to_string());
    let members = [
        ("major", MAJOR),
        ("minor", MINOR),
        ("emulationMajor", MAJOR),
        ("emulationMinor", &emulated),
        ("minCompatibilityMajor", MAJOR),
        ("minCompatibilityMinor", &compatible),
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
    use crate::values::json;

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
    fn a_server_can_be_like_its_own_release_and_the_three_before() {
        for (emulated, compatible, want) in [
            (&[][..], &[][..], Ok((36, 35))),
            (&["1.35"], &["1.34"], Ok((35, 34))),
            (&["kube=1.33"], &[], Ok((33, 33))),
            (&["1.37"], &[], Err("emulation version 1.37 is not between [1.33, 1.36]")),
            (
                &["1.32"],
                &[],
                Err(
                    "[emulation version 1.32 is not between [1.33, 1.36], minCompatibilityVersion version 1.33 is not \
                     between [1.33, 1.32]]",
                ),
            ),
            (&[], &["1.37"], Err("minCompatibilityVersion version 1.37 is not between [1.33, 1.36]")),
            (&["1.34"], &["1.35"], Err("minCompatibilityVersion version 1.35 is not between [1.33, 1.34]")),
            (&["1.35", "kube=1.34"], &[], Err("duplicate version flag, kube=1.35 and kube=1.34")),
            (&["wardle=1.1"], &[], Err("component not registered: wardle")),
            (&["x"], &[], Err("illegal version string \"x\"")),
        ] {
            let owned = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
            let got = Releases::parse(&owned(emulated), &owned(compatible));
            let got = got.map(|releases| (releases.emulated, releases.compatible));
            assert_eq!(got, want.map_err(str::to_owned), "{emulated:?} {compatible:?}");
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
