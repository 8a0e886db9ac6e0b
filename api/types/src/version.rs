//! `/version`: the identity of this server in the form that clients parse
//! (docs/api/discovery.md#discovery-documents).

use bytes::Bytes;
use http::header::ACCEPT;
use http::{HeaderMap, Response, StatusCode};

use crate::discovery::{json_response, not_acceptable};
use values::field::go_quote;
use values::json::{Object, Value};
use values::release::{MAJOR, MINOR};
use values::status::Status;

/// Minor numbers of the releases that this server can emulate: its own release and the three releases before.
const MINORS: std::ops::RangeInclusive<u32> = 33..=36;

/// Minor numbers of the releases that this server emulates and is compatible with.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Releases {
    /// Release whose feature gates and reported version apply.
    pub emulated: u32,
    /// Oldest release that may run next to this server.
    pub compatible: u32,
}

impl Default for Releases {
    fn default() -> Releases {
        Releases { emulated: *MINORS.end(), compatible: *MINORS.end() - 1 }
    }
}

/// The releases that the operator requests. The releases may be out of range.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct RequestedReleases {
    emulated: Version,
    compatible: Version,
}

/// Major and minor number.
type Version = (u32, u32);

impl RequestedReleases {
    /// Parses the values of the two flags. A value has the form `1.35` or `kube=1.35`.
    ///
    /// # Errors
    /// A value is not a version, contains a patch number, is for another component, or occurs twice.
    pub fn parse(emulated: &[String], compatible: &[String]) -> Result<RequestedReleases, String> {
        let emulated = version(emulated)?.unwrap_or((1, *MINORS.end()));
        let before = (emulated.0, emulated.1.saturating_sub(1));
        let compatible = version(compatible)?.unwrap_or(before.max((1, *MINORS.start())));
        Ok(RequestedReleases { emulated, compatible })
    }

    /// Converts the requested releases to releases that this server supports.
    ///
    /// # Errors
    /// A message for each version that is out of range.
    pub fn releases(self) -> Result<Releases, Vec<String>> {
        let (oldest, newest) = ((1, *MINORS.start()), (1, *MINORS.end()));
        let checks = [
            ("emulation", self.emulated, newest),
            ("minCompatibilityVersion", self.compatible, self.emulated),
        ];
        let outside = checks.into_iter().filter(|(_, version, newest)| *version < oldest || version > newest);
        let wrong: Vec<String> = outside
            .map(|(what, (major, minor), newest)| {
                format!(
                    "{what} version {major}.{minor} is not between [{}.{}, {}.{}]",
                    oldest.0, oldest.1, newest.0, newest.1
                )
            })
            .collect();
        if wrong.is_empty() {
            Ok(Releases { emulated: self.emulated.1, compatible: self.compatible.1 })
        } else {
            Err(wrong)
        }
    }

    /// Returns whether the emulated release is the release of this server.
    pub fn is_own(self) -> bool {
        self.emulated == (1, *MINORS.end())
    }
}

/// Returns the version in the values of one of the flags.
fn version(values: &[String]) -> Result<Option<Version>, String> {
    let mut found: Vec<(&str, Vec<u32>)> = Vec::new();
    for value in values {
        let (component, text) = value.split_once('=').unwrap_or((COMPONENT, value));
        let (component, numbers) = (component.trim(), numbers(text.trim())?);
        if numbers.get(2).is_some_and(|patch| *patch != 0) {
            return Err(format!("patch version not allowed, got: {component}={}", dotted(&numbers)));
        }
        if let Some((_, before)) = found.iter().find(|(known, _)| *known == component) {
            let (before, now) = (dotted(before), dotted(&numbers));
            return Err(format!("duplicate version flag, {component}={before} and {component}={now}"));
        }
        found.push((component, numbers));
    }
    if let Some((other, _)) = found.iter().find(|(component, _)| *component != COMPONENT) {
        return Err(format!("component not registered: {other}"));
    }
    Ok(found.first().map(|(_, numbers)| (numbers[0], numbers[1])))
}

/// Returns the numbers at the start of a version: 1, 35 and 2 for `v1.35.2-beta.0`. A version must have at
/// least two numbers.
fn numbers(text: &str) -> Result<Vec<u32>, String> {
    let rest = text.strip_prefix('v').unwrap_or(text);
    if !rest.starts_with(|c: char| c.is_ascii_digit()) {
        return Err(format!("could not parse {text:?} as version"));
    }
    let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
    let mut numbers = Vec::new();
    for digits in rest[..end].split('.').take_while(|digits| !digits.is_empty()) {
        let illegal = |_| format!("illegal non-numeric version component {digits:?} in {text:?}");
        numbers.push(digits.parse().map_err(illegal)?);
    }
    if numbers.len() < 2 {
        return Err(format!("illegal version string {text:?}"));
    }
    Ok(numbers)
}

fn dotted(numbers: &[u32]) -> String {
    numbers.iter().map(u32::to_string).collect::<Vec<_>>().join(".")
}

/// The only component that the version flags accept, as in `kube=1.35`.
const COMPONENT: &str = "kube";

const OWN: &str = concat!("v1.36.0+cluster-apiserver.", env!("CARGO_PKG_VERSION"));

/// The source that the program was built from.
#[derive(Clone, Copy, Debug, Default)]
pub struct Build {
    /// Commit of the source; empty if unknown.
    pub commit: &'static str,
    /// Date of the commit in RFC 3339; empty if unknown.
    pub date: &'static str,
}

/// The version that a server reports about itself.
#[derive(Clone, Debug, Default)]
pub struct ServerVersion {
    /// The source that the program was built from.
    pub build: Build,
    /// Semantic version that the operator has configured instead of the version of the program.
    pub reported: Option<String>,
    /// The releases that the server emulates and is compatible with.
    pub releases: Releases,
}

impl ServerVersion {
    /// Returns the semantic version: `v1.36.0+cluster-apiserver.<version of this program>`, or the version
    /// that the operator has configured.
    ///
    /// Clients compare the part before `+` with their own version; the part after `+` identifies this server.
    pub fn git_version(&self) -> &str {
        self.reported.as_deref().unwrap_or(OWN)
    }

    /// Returns the output of `--version=raw`: the document of `/version` as a Go literal, without the
    /// emulated release.
    pub fn raw(&self) -> String {
        let members = [
            ("major", "Major"),
            ("minor", "Minor"),
            ("", "EmulationMajor"),
            ("", "EmulationMinor"),
            ("", "MinCompatibilityMajor"),
            ("", "MinCompatibilityMinor"),
            ("gitVersion", "GitVersion"),
            ("gitCommit", "GitCommit"),
            ("gitTreeState", "GitTreeState"),
            ("buildDate", "BuildDate"),
            ("goVersion", "GoVersion"),
            ("compiler", "Compiler"),
            ("platform", "Platform"),
        ];
        let document = self.document();
        let texts = members.map(|(name, label)| format!("{label}:{}", go_quote(document.str_at(&[name]))));
        format!("version.Info{{{}}}", texts.join(", "))
    }

    /// Responds to GET `/version` with indented JSON.
    ///
    /// # Errors
    /// 406 if the client does not accept JSON.
    pub fn respond(&self, headers: &HeaderMap) -> Result<Response<Bytes>, Status> {
        let accepted = headers.get(ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let is_json = |clause: &str| {
            let media_type = clause.split(';').next().unwrap_or_default().trim();
            ["*/*", "application/json"].contains(&media_type)
        };
        if !accepted.is_empty() && !accepted.split(',').any(is_json) {
            return Err(not_acceptable(&[]));
        }
        Ok(json_response(StatusCode::OK, &self.document(), true))
    }

    /// Returns the document of `/version`.
    pub fn document(&self) -> Value {
        let Build { commit, date } = self.build;
        let architecture = match std::env::consts::ARCH {
            "x86_64" => "amd64",
            "aarch64" => "arm64",
            other => other,
        };
        let platform = format!("{}/{architecture}", std::env::consts::OS);
        let Releases { emulated, compatible } = self.releases;
        let (emulated, compatible) = (emulated.to_string(), compatible.to_string());
        let members = [
            ("major", MAJOR),
            ("minor", MINOR),
            ("emulationMajor", MAJOR),
            ("emulationMinor", &emulated),
            ("minCompatibilityMajor", MAJOR),
            ("minCompatibilityMinor", &compatible),
            ("gitVersion", self.git_version()),
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
}

/// Checks the version that the server will report. The version must be a semantic version of the server's own
/// release.
///
/// # Errors
/// The text is not a semantic version, or the version is of another release.
pub fn check_reported(text: &str) -> Result<(), String> {
    let numbers = numbers(text)?;
    if numbers.len() != 3 {
        return Err(format!("illegal version string {text:?}"));
    }
    if dotted(&numbers) != format!("{MAJOR}.{MINOR}.0") {
        return Err(format!("version {text:?} must match major/minor/patch of default version {OWN:?}"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use values::json;

    #[test]
    fn the_version_document_is_served_as_json_only() {
        for (accept, is_answered) in [
            (None, true),
            (Some("*/*"), true),
            (Some("text/html, application/json;q=0.1"), true),
            (Some("application/*"), false),
            (Some("application/yaml"), false),
            (Some(""), true),
        ] {
            let headers = HeaderMap::from_iter(accept.map(|text| (ACCEPT, text.parse().unwrap())));
            let code = ServerVersion::default()
                .respond(&headers)
                .map_or_else(|status| status.code, |response| response.status());
            assert_eq!(code == StatusCode::OK, is_answered, "{accept:?}");
        }
    }

    #[test]
    fn the_emulated_release_is_the_own_one_or_one_of_the_three_before() {
        let outside = |what: &str, range: &str| vec![format!("{what} is not between {range}")];
        for (emulated, compatible, want) in [
            (&[][..], &[][..], Ok((36, 35))),
            (&["1.35"], &["1.34"], Ok((35, 34))),
            (&["v1.35.0"], &[], Ok((35, 34))),
            (&["kube=1.33"], &[], Ok((33, 33))),
            (&["1.37"], &[], Err(outside("emulation version 1.37", "[1.33, 1.36]"))),
            (&["2.0"], &[], Err(outside("emulation version 2.0", "[1.33, 1.36]"))),
            (
                &["0.1"],
                &[],
                Err(vec![
                    "emulation version 0.1 is not between [1.33, 1.36]".to_owned(),
                    "minCompatibilityVersion version 1.33 is not between [1.33, 0.1]".to_owned(),
                ]),
            ),
            (&[], &["1.37"], Err(outside("minCompatibilityVersion version 1.37", "[1.33, 1.36]"))),
            (&["1.34"], &["1.35"], Err(outside("minCompatibilityVersion version 1.35", "[1.33, 1.34]"))),
        ] {
            let got = RequestedReleases::parse(&owned(emulated), &owned(compatible)).unwrap().releases();
            let got = got.map(|releases| (releases.emulated, releases.compatible));
            assert_eq!(got, want, "{emulated:?} {compatible:?}");
        }
    }

    #[test]
    fn an_emulated_release_is_two_numbers_and_given_once() {
        for (values, want) in [
            (&["1.35", "kube=1.34"][..], "duplicate version flag, kube=1.35 and kube=1.34"),
            (&["1.35", "kube=1.35"], "duplicate version flag, kube=1.35 and kube=1.35"),
            (&["wardle=1.1"], "component not registered: wardle"),
            (&["wardle=x"], "could not parse \"x\" as version"),
            (&["x"], "could not parse \"x\" as version"),
            (&["kube="], "could not parse \"\" as version"),
            (&["1"], "illegal version string \"1\""),
            (&["1.35.1"], "patch version not allowed, got: kube=1.35.1"),
        ] {
            assert_eq!(RequestedReleases::parse(&owned(values), &[]).unwrap_err(), want, "{values:?}");
            assert_eq!(RequestedReleases::parse(&[], &owned(values)).unwrap_err(), want, "{values:?}");
        }
    }

    fn owned(texts: &[&str]) -> Vec<String> {
        texts.iter().map(|text| (*text).to_owned()).collect()
    }

    #[test]
    fn a_reported_version_must_belong_to_the_release_of_the_server() {
        for (text, want) in [
            ("v1.36.0", ""),
            ("v1.36.0-vendor.1+abc", ""),
            ("vx", "could not parse \"vx\" as version"),
            ("v1.36", "illegal version string \"v1.36\""),
            ("v1.35.0", "version \"v1.35.0\" must match major/minor/patch of default version \"v1.36.0+"),
        ] {
            let why = check_reported(text).err().unwrap_or_default();
            assert!(why.starts_with(want) && why.is_empty() == want.is_empty(), "{text}: {why}");
        }
        let raw = ServerVersion::default().raw();
        assert!(raw.starts_with("version.Info{Major:\"1\", Minor:\"36\", EmulationMajor:\"\", "), "{raw}");
    }

    #[test]
    fn the_version_document_has_all_members_and_a_version_that_clients_parse() {
        let body = ServerVersion::default().respond(&HeaderMap::new()).unwrap().into_body();
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
