//! Levels and versions of pod security, and the policy that the labels of a namespace define.

use std::fmt;

use objects::validation::StructView;
use values::field::FieldError;
use values::json::Value;
use values::naming::Naming;

/// Returns a label of namespaces or an annotation of audit events, for example
/// `pod-security.kubernetes.io/enforce`.
pub fn label(naming: &Naming, name: &str) -> String {
    format!("pod-security.{}/{name}", naming.domain)
}

/// A pod security level. Later variants are stricter.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Level {
    /// Everything is allowed.
    Privileged,
    /// Known ways to gain privileges on the node are forbidden.
    Baseline,
    /// Only pods that follow current hardening practice are allowed.
    Restricted,
}

impl Level {
    /// Parses a level.
    ///
    /// # Errors
    /// Returns a text that lists the accepted values.
    pub fn parse(text: &str) -> Result<Level, &'static str> {
        match text {
            "privileged" => Ok(Level::Privileged),
            "baseline" => Ok(Level::Baseline),
            "restricted" => Ok(Level::Restricted),
            _ => Err("must be one of privileged, baseline, restricted"),
        }
    }
}

/// The release that defines the checks.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Version {
    /// A release, written `v1.N`.
    Minor(u64),
    /// The newest checks. This variant sorts after all releases.
    Latest,
}

impl Version {
    /// Parses `latest` or `v1.N`.
    ///
    /// # Errors
    /// Returns a text that lists the accepted values.
    pub fn parse(text: &str) -> Result<Version, &'static str> {
        if text == "latest" {
            return Ok(Version::Latest);
        }
        let minor = text.strip_prefix("v1.").filter(|minor| {
            minor.bytes().all(|byte| byte.is_ascii_digit()) && (!minor.starts_with('0') || *minor == "0")
        });
        let minor =
            minor.and_then(|minor| minor.parse::<i64>().ok()).and_then(|minor| u64::try_from(minor).ok());
        minor.map(Version::Minor).ok_or("must be \"latest\" or \"v1.x\"")
    }
}

/// A level, and the release that defines its checks.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct LevelVersion {
    /// The level of the checks.
    pub level: Level,
    /// The release that defines the level.
    pub version: Version,
}

impl LevelVersion {
    /// The level that allows everything.
    pub const PRIVILEGED: LevelVersion = LevelVersion { level: Level::Privileged, version: Version::Latest };
}

/// Formats the level and version, for example `restricted:v1.30`.
impl fmt::Display for LevelVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.level {
            Level::Privileged => "privileged",
            Level::Baseline => "baseline",
            Level::Restricted => "restricted",
        })?;
        match self.version {
            Version::Minor(minor) => write!(f, ":v1.{minor}"),
            Version::Latest => f.write_str(":latest"),
        }
    }
}

/// The levels of the three modes. A mode is an action for pods that the level does not allow.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct LevelsByMode {
    /// If this level does not allow a pod, the pod is refused.
    pub enforce: LevelVersion,
    /// If this level does not allow a pod, the audit event gets an annotation.
    pub audit: LevelVersion,
    /// If this level does not allow a pod, the client gets a warning.
    pub warn: LevelVersion,
}

impl LevelsByMode {
    /// The policy that allows everything.
    pub const PRIVILEGED: LevelsByMode = LevelsByMode {
        enforce: LevelVersion::PRIVILEGED,
        audit: LevelVersion::PRIVILEGED,
        warn: LevelVersion::PRIVILEGED,
    };

    /// Returns whether all modes have the level that allows everything.
    pub fn is_privileged(&self) -> bool {
        [self.enforce, self.audit, self.warn].iter().all(|mode| mode.level == Level::Privileged)
    }

    /// Returns whether two policies have the same effect. The version of a level that allows everything does
    /// not matter.
    pub fn is_equivalent(self, other: LevelsByMode) -> bool {
        let modes = |policy: LevelsByMode| [policy.enforce, policy.audit, policy.warn];
        modes(self).into_iter().zip(modes(other)).all(|(own, other)| {
            own.level == other.level && (own.level == Level::Privileged || own.version == other.version)
        })
    }

    /// Returns the policy of a namespace with these labels, and the errors in the labels. If the level to
    /// enforce is invalid, the strictest level is enforced, because ignoring the label would allow more pods.
    ///
    /// If a namespace enforces a level and has no label for warnings, the enforced level is also used for
    /// warnings. Otherwise a client that writes a template would get no message, although the pods of the
    /// template will be refused.
    pub fn of_labels(
        labels: StructView<'_>,
        naming: &Naming,
        defaults: LevelsByMode,
    ) -> (LevelsByMode, Vec<FieldError>) {
        let mut policy = defaults;
        let mut errors = Vec::new();
        let mut read = |mode: &str, into: &mut LevelVersion, if_bad| {
            read(labels, &label(naming, mode), into, if_bad, &mut errors)
        };
        let enforced = read("enforce", &mut policy.enforce, Level::Restricted);
        read("audit", &mut policy.audit, Level::Privileged);
        let warned = read("warn", &mut policy.warn, Level::Privileged);
        if enforced == Label::Good && warned == Label::Absent && policy.enforce.level > policy.warn.level {
            policy.warn.level = policy.enforce.level;
            if !labels.has(&label(naming, "warn-version")) {
                policy.warn.version = policy.enforce.version;
            }
        }
        (policy, errors)
    }
}

/// Whether a label exists and is valid.
#[derive(Clone, Copy, Eq, PartialEq)]
enum Label {
    Absent,
    Good,
    Bad,
}

/// Reads the level label and the version label of a mode.
fn read(
    labels: StructView<'_>,
    label: &str,
    into: &mut LevelVersion,
    if_bad: Level,
    errors: &mut Vec<FieldError>,
) -> Label {
    let mut refuse = |label: &str, value: &Value, why: &str| {
        errors.push(FieldError::invalid(format!("metadata.labels[{label}]"), value, why));
    };
    let mut found = Label::Absent;
    if let Some(value) = labels.get(label) {
        found = Label::Good;
        into.level = Level::parse(value.as_str().unwrap_or_default()).unwrap_or_else(|why| {
            refuse(label, value, why);
            found = Label::Bad;
            if_bad
        });
    }
    let label = format!("{label}-version");
    if let Some(value) = labels.get(&label) {
        into.version = Version::parse(value.as_str().unwrap_or_default()).unwrap_or_else(|why| {
            refuse(&label, value, why);
            Version::Latest
        });
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use values::naming::KUBERNETES;
    use values::testing::object;

    #[test]
    fn namespace_labels_select_the_pod_security_policy() {
        let level = "must be one of privileged, baseline, restricted";
        let version = "must be \"latest\" or \"v1.x\"";
        for (labels, want, wrong) in [
            ("", "privileged:latest privileged:latest privileged:latest", &[][..]),
            ("enforce=baseline", "baseline:latest privileged:latest baseline:latest", &[]),
            ("enforce=baseline enforce-version=v1.8", "baseline:v1.8 privileged:latest baseline:v1.8", &[]),
            (
                "enforce=baseline enforce-version=v1.8 warn-version=v1.9",
                "baseline:v1.8 privileged:latest baseline:v1.9",
                &[],
            ),
            ("enforce=baseline warn=privileged", "baseline:latest privileged:latest privileged:latest", &[]),
            (
                "audit=restricted audit-version=v1.0",
                "privileged:latest restricted:v1.0 privileged:latest",
                &[],
            ),
            ("enforce=x", "restricted:latest privileged:latest privileged:latest", &[level]),
            ("audit=x warn=y", "privileged:latest privileged:latest privileged:latest", &[level, level]),
            ("warn-version=v1.01", "privileged:latest privileged:latest privileged:latest", &[version]),
            ("warn-version=v2.1", "privileged:latest privileged:latest privileged:latest", &[version]),
            ("warn-version=v1.", "privileged:latest privileged:latest privileged:latest", &[version]),
            (
                "warn-version=v1.99999999999999999999",
                "privileged:latest privileged:latest privileged:latest",
                &[version],
            ),
        ] {
            let pairs: Vec<String> = labels
                .split_whitespace()
                .map(|pair| {
                    let (name, value) = pair.split_once('=').unwrap();
                    format!(r#""{}":"{value}""#, label(&KUBERNETES, name))
                })
                .collect();
            let labels_of = object(&format!("{{{}}}", pairs.join(",")));
            let (policy, errors) = LevelsByMode::of_labels(
                StructView::from_object(&labels_of),
                &KUBERNETES,
                LevelsByMode::PRIVILEGED,
            );
            let got = format!("{} {} {}", policy.enforce, policy.audit, policy.warn);
            assert_eq!(got, want, "{labels}");
            let got: Vec<_> = errors.iter().map(|error| error.detail.as_str()).collect();
            assert_eq!(got, wrong, "{labels}");
        }
    }
}
