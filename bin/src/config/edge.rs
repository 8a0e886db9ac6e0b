//! Flags for the steps of request processing that need only the request head, and for debugging.

use std::path::PathBuf;

use api::state::edge;
use clap::Args;
use http::HeaderValue;
use types::schema::pattern::Pattern;

use crate::flags::problems::{FlagError, Problems};
use crate::flags::value_parsers;

/// Largest value of `--goaway-chance`. With a larger value, the server would spend most of its time on TLS
/// handshakes.
const GOAWAY_CHANCE_MAX: f64 = 0.02;

/// The text that kube-apiserver appends to the error for an invalid origin.
const ORIGINS_HELP: &str = "List of allowed origins for CORS, comma separated. An allowed origin can be a regular expression \
    to support subdomain matching. If this list is empty CORS will not be enabled. Please ensure each expression matches the \
    entire hostname by anchoring to the start with '^' or including the '//' prefix, and by anchoring to the end with '$' or \
    including the ':' port separator suffix. Examples of valid expressions are '//example\\.com(:|$)' and \
    '^https://example\\.com(:|$)'";

// This struct has no documentation comment, because clap would use the comment as the description of the whole command
// line.
#[derive(Clone, Debug, Args)]
pub struct EdgeFlags {
    /// Origins whose scripts may use the API from a browser, as regular expressions separated by commas.
    #[arg(long, value_name = "PATTERNS", value_delimiter = ',')]
    pub cors_allowed_origins: Vec<String>,

    /// Directives of the response header Strict-Transport-Security, separated by commas. Possible values:
    /// max-age=SECONDS, includeSubDomains, preload.
    #[arg(long, value_name = "DIRECTIVES", value_delimiter = ',')]
    pub strict_transport_security_directives: Vec<String>,

    /// Probability that the server closes the connection after a request over HTTP/2, so that clients spread
    /// over several servers. The value must be between 0 and 0.02.
    #[arg(long, value_name = "CHANCE", default_value_t = 0.0, allow_negative_numbers = true, value_parser = value_parsers::float)]
    pub goaway_chance: f64,

    /// After --shutdown-delay-duration, answer new requests with 429 while the requests in flight finish, and
    /// only then close the port.
    #[arg(long, value_name = "BOOL", default_value_t = false, num_args = 0..=1, require_equals = true,
          default_missing_value = "true", value_parser = value_parsers::boolean, action = clap::ArgAction::Set)]
    pub shutdown_send_retry_after: bool,

    /// Serve /debug/pprof (profiles) and /debug/flags (change of the log level) to users with permission for
    /// these paths.
    #[arg(long, value_name = "BOOL", default_value_t = true, num_args = 0..=1, require_equals = true,
          default_missing_value = "true", value_parser = value_parsers::boolean, action = clap::ArgAction::Set)]
    pub profiling: bool,

    /// Path of a Unix socket on which the server also serves /debug/flags and /debug/pprof. Clients need no
    /// credentials, but the permissions of the socket file restrict who can connect.
    #[arg(long, value_name = "PATH", default_value = "", hide_default_value = true)]
    pub debug_socket_path: String,

    /// Serve the files of /var/log below /logs to users with permission for that path.
    #[arg(long, value_name = "BOOL", default_value_t = false, num_args = 0..=1, require_equals = true,
          default_missing_value = "true", value_parser = value_parsers::boolean, action = clap::ArgAction::Set)]
    pub enable_logs_handler: bool,
}

/// Settings of the steps that need only the head of a request, and of debugging.
#[derive(Clone, Debug)]
pub struct EdgeSettings {
    /// The settings that the handler uses.
    pub edge: edge::Settings,
    /// Whether log files of the machine are served.
    pub serves_log_files: bool,
    /// Path of the debug socket, if configured. Requests on this socket need no credentials.
    pub debug_socket: Option<PathBuf>,
}

impl EdgeFlags {
    /// Returns the settings. Adds an error for each invalid pattern, each pattern that can match only a part of a host,
    /// each unknown directive, and a probability that is out of range.
    pub fn settings(&self, problems: &mut Problems) -> Option<EdgeSettings> {
        problems.take(chance(self.goaway_chance));
        let directives = &self.strict_transport_security_directives;
        let transport_security = problems.take_for(
            "strict-transport-security-directives",
            directives.join(","),
            transport_security(directives),
        );
        let origin = |text: &String| problems.take_for("cors-allowed-origins", text, origin(text));
        let origins: Vec<_> = self.cors_allowed_origins.iter().filter_map(origin).collect();
        let debug_socket = Some(&self.debug_socket_path).filter(|path| !path.is_empty());
        Some(EdgeSettings {
            edge: edge::Settings {
                transport_security: transport_security?,
                origins,
                refuses_when_leaving: self.shutdown_send_retry_after,
                goaway_chance: self.goaway_chance,
                is_debugged: self.profiling,
            },
            serves_log_files: self.enable_logs_handler,
            debug_socket: debug_socket.map(PathBuf::from),
        })
    }
}

fn chance(chance: f64) -> Result<(), FlagError> {
    if (0.0..=GOAWAY_CHANCE_MAX).contains(&chance) {
        return Ok(());
    }
    let text = "--goaway-chance can not be less than 0 or greater than 0.02";
    Err(FlagError::worded("goaway-chance", chance, text))
}

/// Parses the pattern of an origin. Patterns that can match only a part of a host are refused.
fn origin(text: &str) -> Result<Pattern, String> {
    if text.is_empty() {
        return Err(format!("empty value in --cors-allowed-origins, help: {ORIGINS_HELP}"));
    }
    let has = |marks: [&str; 2]| marks.iter().any(|mark| text.contains(mark));
    let pattern = Pattern::new(text.to_owned());
    let wrong = match pattern.compile() {
        Err(error) => Some(error),
        Ok(()) if !has(["^", "//"]) || !has(["$", ":"]) => {
            Some("regular expression does not pin to start/end of host in the origin header".to_owned())
        }
        Ok(()) => None,
    };
    match wrong {
        None => Ok(pattern),
        Some(why) => Err(format!(
            "--cors-allowed-origins has an invalid regular expression: {why}, help: {ORIGINS_HELP}"
        )),
    }
}

fn transport_security(directives: &[String]) -> Result<Option<HeaderValue>, String> {
    for directive in directives {
        if directive.trim().is_empty() {
            return Err("empty value in strict-transport-security-directives".to_owned());
        }
        let is_age = directive.strip_prefix("max-age=").is_some_and(|age| !age.contains('='));
        if !is_age && !matches!(directive.as_str(), "includeSubDomains" | "preload") {
            return Err("--strict-transport-security-directives invalid, allowed values: max-age=expireTime, \
                        includeSubDomains, preload. see https://tools.ietf.org/html/rfc6797#section-6.1 for more information"
                .to_owned());
        }
    }
    if directives.is_empty() {
        return Ok(None);
    }
    let value = HeaderValue::from_str(&directives.join("; "));
    value.map(Some).map_err(|_| {
        "--strict-transport-security-directives has characters that a header must not contain".to_owned()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(origins: &[&str], directives: &[&str], goaway_chance: f64) -> Result<edge::Settings, String> {
        let owned = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
        let flags = EdgeFlags {
            cors_allowed_origins: owned(origins),
            strict_transport_security_directives: owned(directives),
            goaway_chance,
            shutdown_send_retry_after: false,
            profiling: true,
            debug_socket_path: String::new(),
            enable_logs_handler: false,
        };
        let mut problems = Problems::default();
        let settings = flags.settings(&mut problems);
        problems.finish(settings).map(|settings| settings.edge).map_err(|errors| errors.to_string())
    }

    #[test]
    fn transport_security_directives_are_joined_into_one_header() {
        let parsed = settings(&[], &["max-age=300", "includeSubDomains"], 0.0).unwrap();
        assert_eq!(parsed.transport_security.unwrap(), "max-age=300; includeSubDomains");
        assert!(settings(&[], &[], 0.0).unwrap().transport_security.is_none());
    }

    #[test]
    fn invalid_http_settings_are_reported() {
        let anchored = "regular expression does not pin to start/end of host";
        for (origins, directives, chance, want) in [
            (&["example"][..], &[][..], 0.0, anchored),
            (&["//example"], &[], 0.0, anchored),
            (&["^https://a$", "//b(:|$)"], &[], 0.02, ""),
            (
                &["//a(:|$)", ""],
                &[],
                0.0,
                "empty value in --cors-allowed-origins, help: List of allowed origins",
            ),
            (&["^("], &[], 0.0, "--cors-allowed-origins has an invalid regular expression: error parsing"),
            (&[], &["foo"], 0.0, "--strict-transport-security-directives invalid, allowed values"),
            (&[], &["max-age=1=2"], 0.0, "--strict-transport-security-directives invalid"),
            (&[], &[" "], 0.0, "empty value in strict-transport-security-directives"),
            (&[], &[], 0.5, "--goaway-chance can not be less than 0 or greater than 0.02"),
            (&[], &[], f64::NAN, "--goaway-chance can not be less than 0 or greater than 0.02"),
        ] {
            let why = settings(origins, directives, chance).err().unwrap_or_default();
            assert!(
                why.contains(want) && why.is_empty() == want.is_empty(),
                "{origins:?} {directives:?}: {why}"
            );
        }
    }
}
