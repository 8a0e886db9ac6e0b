//! `/statusz` and `/flagz`: status and flags of the process, for people who diagnose problems
//! (docs/api/operations.md#statusz-and-flagz). The text form is not meant to be parsed, so its separator
//! differs at each start. Programs request an object in one of the versions.

use std::sync::OnceLock;
use std::time::Duration;

use http::header::{ACCEPT, WARNING};
use http::{HeaderMap, HeaderValue, StatusCode};

use types::features::{Feature, Features};
use types::version::ServerVersion;
use values::clock;
use values::json::{self, Object, Value};
use values::names;
use values::naming::Naming;
use values::status::Status;
use values::yaml;
use wire::response::{Response, respond, respond_text};

const NOT_PARSEABLE: &str = "Warning: This endpoint is not meant to be machine parseable, has no formatting compatibility \
                             guarantees and is for debugging purposes only.";

/// Media types of the pages. A client that requests JSON or YAML must also send the parameters of the object
/// type.
const MEDIA_TYPES: [&str; 3] = ["application/json", "application/yaml", "text/plain"];

/// Name of the component in the pages, independent of the name of the program.
const COMPONENT: &str = "apiserver";

/// Possible separators between a name and a value.
const SEPARATORS: [&str; 4] = [":", ": ", "=", " "];

/// Versions of the objects, and whether the version is deprecated.
const VERSIONS: [(&str, bool); 2] = [("v1beta1", false), ("v1alpha1", true)];

/// Other paths for diagnosis. The pages list these paths.
const PATHS: [&str; 5] = ["/healthz", "/livez", "/metrics", "/readyz", "/version"];

/// The data that the pages show.
pub struct ZpagesSources<'s> {
    /// The naming profile in use.
    pub naming: &'static Naming,
    /// The feature gates, which select the pages that are served.
    pub features: &'s Features,
    /// The version that the server reports.
    pub version: &'s ServerVersion,
    /// Flags and their values.
    pub flags: &'s [(String, String)],
    /// Time since the start of the process.
    pub age: Duration,
}

/// A page of this module.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum ZPage {
    Statusz,
    Flagz,
}

impl ZPage {
    const ALL: [ZPage; 2] = [ZPage::Statusz, ZPage::Flagz];

    fn path(self) -> &'static str {
        match self {
            ZPage::Statusz => "/statusz",
            ZPage::Flagz => "/flagz",
        }
    }

    fn kind(self) -> &'static str {
        match self {
            ZPage::Statusz => "Statusz",
            ZPage::Flagz => "Flagz",
        }
    }

    fn is_served(self, features: &Features) -> bool {
        features.has(match self {
            ZPage::Statusz => Feature::ComponentStatusz,
            ZPage::Flagz => Feature::ComponentFlagz,
        })
    }
}

/// The format of a page.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum PageFormat {
    Text,
    Json(&'static str, bool),
    Yaml(&'static str, bool),
}

/// Returns the paths of the pages that are served.
pub fn paths(features: &Features) -> impl Iterator<Item = &'static str> {
    ZPage::ALL.into_iter().filter(|page| page.is_served(features)).map(ZPage::path)
}

/// Answers a path; returns `None` for other paths.
///
/// # Errors
/// 406 if the client accepts none of the formats.
pub fn respond_to(
    sources: &ZpagesSources<'_>,
    path: &str,
    headers: &HeaderMap,
) -> Option<Result<Response, Status>> {
    let page = ZPage::ALL.into_iter().find(|page| page.path() == path && page.is_served(sources.features))?;
    let Some(form) = accepted(page, sources.naming, headers) else {
        return Some(Err(Status::not_acceptable(&MEDIA_TYPES)));
    };
    Some(Ok(match form {
        PageFormat::Text => respond_text(StatusCode::OK, text(sources, page)),
        PageFormat::Json(version, is_old) => {
            let mut body = Vec::new();
            json::write(&object(sources, page, version), &mut body);
            body.push(b'\n');
            warned(respond(StatusCode::OK, "application/json", body), page, is_old)
        }
        PageFormat::Yaml(version, is_old) => {
            let mut body = Vec::new();
            yaml::write(&object(sources, page, version), &mut body);
            warned(respond(StatusCode::OK, "application/yaml", body), page, is_old)
        }
    }))
}

fn warned(mut response: Response, page: ZPage, is_old: bool) -> Response {
    let text = match page {
        ZPage::Statusz => {
            "299 - \"This version of the statusz endpoint is deprecated. Please use a newer version.\""
        }
        ZPage::Flagz => {
            "299 - \"This version of the flagz endpoint is deprecated. Please use a newer version.\""
        }
    };
    if is_old {
        response.headers_mut().insert(WARNING, HeaderValue::from_static(text));
    }
    response
}

fn text(sources: &ZpagesSources<'_>, page: ZPage) -> String {
    let (lines, title) = match page {
        ZPage::Statusz => (status(sources), "statusz"),
        ZPage::Flagz => (sources.flags.to_vec(), "flagz"),
    };
    let separator = separator();
    let mut text = format!("\n{COMPONENT} {title}\n{NOT_PARSEABLE}\n\n");
    for (name, value) in lines {
        text.push_str(&format!("{name}{separator}{value}\n"));
    }
    text
}

fn emulated(version: &ServerVersion) -> String {
    format!("{}.{}", values::release::MAJOR, version.releases.emulated)
}

fn binary_version(version: &ServerVersion) -> &str {
    version.git_version().trim_start_matches('v')
}

/// Returns the start time of the process, in seconds since the epoch.
fn began(age: Duration) -> i64 {
    clock::now_seconds() - i64::try_from(age.as_secs()).unwrap_or(0)
}

fn status(sources: &ZpagesSources<'_>) -> Vec<(String, String)> {
    let seconds = sources.age.as_secs();
    [
        ("Started", clock::format_seconds(began(sources.age))),
        ("Up", format!("{} hr {:02} min {:02} sec", seconds / 3600, seconds / 60 % 60, seconds % 60)),
        ("Binary version", binary_version(sources.version).to_owned()),
        ("Emulation version", emulated(sources.version)),
        ("Paths", debugging_paths(sources.features).join(" ")),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .into()
}

fn debugging_paths(features: &Features) -> Vec<&'static str> {
    let mut all: Vec<&str> = paths(features).chain(PATHS).collect();
    all.sort_unstable();
    all
}

fn object(sources: &ZpagesSources<'_>, page: ZPage, version: &str) -> Value {
    let mut object = Object::new();
    object.push("kind", page.kind().into());
    object.push("apiVersion", sources.naming.api_version("config", true, version).into());
    object.push("metadata", Value::from(Object::from_iter([("name".into(), COMPONENT.into())])));
    match page {
        ZPage::Statusz => {
            object.push("startTime", clock::format_seconds(began(sources.age)).into());
            object.push("uptimeSeconds", i64::try_from(sources.age.as_secs()).unwrap_or(i64::MAX).into());
            // The format requires the key; there is no Go version.
            object.push("goVersion", "".into());
            object.push("binaryVersion", binary_version(sources.version).into());
            object.push("emulationVersion", emulated(sources.version).into());
            let paths = debugging_paths(sources.features).into_iter().map(Value::from);
            object.push("paths", Value::Array(paths.collect()));
        }
        ZPage::Flagz => {
            let flags = sources.flags.iter().map(|(name, value)| (name.clone().into(), value.clone().into()));
            object.push("flags", Value::from(Object::from_iter(flags)));
        }
    }
    object.into()
}

/// Returns the separator of this process, which is chosen at random, so that programs cannot depend on the separator.
fn separator() -> &'static str {
    static CHOSEN: OnceLock<&str> = OnceLock::new();
    CHOSEN.get_or_init(|| SEPARATORS[usize::from(names::random::<1>()[0]) % SEPARATORS.len()])
}

/// Returns the format of the first clause of `Accept` that can be served; text if the header is empty.
fn accepted(page: ZPage, naming: &Naming, headers: &HeaderMap) -> Option<PageFormat> {
    let accepted = headers.get(ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    if accepted.trim().is_empty() {
        return Some(PageFormat::Text);
    }
    accepted.split(',').find_map(|clause| {
        let mut parts = clause.split(';').map(str::trim);
        let media_type = parts.next().unwrap_or_default();
        let parameters: Vec<(&str, &str)> = parts.filter_map(|part| part.split_once('=')).collect();
        let parameter = |name: &str| parameters.iter().find(|(key, _)| *key == name).map(|(_, value)| *value);
        if matches!(media_type, "*/*" | "text/*" | "text/plain") {
            return Some(PageFormat::Text);
        }
        let is_of_page = parameter("as") == Some(page.kind())
            && parameter("g").is_some_and(|group| group == naming.group("config", true));
        let version = VERSIONS.into_iter().find(|(version, _)| is_of_page && parameter("v") == Some(version));
        let (version, is_old) = version?;
        match media_type {
            "application/json" => Some(PageFormat::Json(version, is_old)),
            "application/yaml" => Some(PageFormat::Yaml(version, is_old)),
            _ => None,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::version::Releases;
    use values::naming::KUBERNETES;

    #[test]
    fn zpages_are_served_as_text_or_versioned_objects_if_their_gate_is_enabled() {
        let flags = [("v".to_owned(), "4".to_owned())];
        let version = ServerVersion::default();
        let sources = |features| ZpagesSources {
            naming: &KUBERNETES,
            features,
            version: &version,
            flags: &flags,
            age: Duration::from_secs(3_725),
        };
        let closed = Features::parse("ComponentFlagz=false", Releases::default()).unwrap();
        let open = Features::default();
        let beta = "application/json;v=v1beta1;g=config.k8s.io;as=Statusz";
        for (features, path, accept, code) in [
            (&open, "/flagz", "", Some(200)),
            (&open, "/statusz", "text/plain;q=0.1, a/b", Some(200)),
            (&open, "/statusz", "application/json", Some(406)),
            (&open, "/statusz", "application/json;v=v1beta1;g=config.k8s.io", Some(406)),
            (&open, "/statusz", "application/json;v=v2;g=config.k8s.io;as=Statusz,*/*", Some(200)),
            (&open, "/statusz", beta, Some(200)),
            (&open, "/flagz", beta, Some(406)),
            (&open, "/statusz/", "", None),
            (&closed, "/flagz", "", None),
            (&closed, "/statusz", "*/*", Some(200)),
        ] {
            let headers = HeaderMap::from_iter([(ACCEPT, accept.parse().unwrap())]);
            let answer = respond_to(&sources(features), path, &headers);
            let got = answer.map(|answer| answer.map_or_else(|status| status.code, |page| page.status()));
            assert_eq!(got.map(|code| code.as_u16()), code, "{path} {accept}");
        }
        assert_eq!(status(&sources(&open))[1].1, "1 hr 02 min 05 sec");
    }

    #[test]
    fn the_first_accepted_version_of_a_zpage_is_used_and_a_deprecated_one_warns() {
        let clause = |media: &str, version: &str| format!("{media};g=config.k8s.io;v={version};as=Flagz");
        let (old, new) = (clause("application/json", "v1alpha1"), clause("application/json", "v1beta1"));
        for (accept, want) in [
            (format!("{old},{new}"), PageFormat::Json("v1alpha1", true)),
            (format!("{new},{old}"), PageFormat::Json("v1beta1", false)),
            (format!("a/b, {}", clause("application/yaml", "v1beta1")), PageFormat::Yaml("v1beta1", false)),
        ] {
            let headers = HeaderMap::from_iter([(ACCEPT, accept.parse().unwrap())]);
            assert_eq!(accepted(ZPage::Flagz, &KUBERNETES, &headers), Some(want), "{accept}");
        }
        let features = Features::default();
        let flags = [("v".to_owned(), "4".to_owned())];
        let version = ServerVersion::default();
        let sources = ZpagesSources {
            naming: &KUBERNETES,
            features: &features,
            version: &version,
            flags: &flags,
            age: Duration::ZERO,
        };
        let flagz = object(&sources, ZPage::Flagz, "v1beta1");
        assert_eq!(flagz.str_at(&["apiVersion"]), "config.k8s.io/v1beta1");
        assert_eq!(flagz.str_at(&["metadata", "name"]), "apiserver");
        assert_eq!(flagz.str_at(&["flags", "v"]), "4");
        let statusz = object(&sources, ZPage::Statusz, "v1beta1");
        assert!(statusz.get("paths").and_then(Value::as_array).unwrap().contains(&"/flagz".into()));
    }
}
