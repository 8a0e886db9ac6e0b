//! Feature gates: optional behaviour, switched by `--feature-gates` (docs/api/operations.md#flags-and-features).
//!
//! `Name=true,kube:Other=false` → [`Features::parse`] → [`Features`], with warnings for the operator.
//!
//! `AllAlpha` and `AllBeta` switch all gates of their stage that the flag does not name, regardless of order. The gate
//! of a stable feature may be locked: setting it to its value is allowed with a warning, another value is an error.
//! Knows the names of gates, not their effects.

use std::fmt;

/// A gate.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Feature {
    /// gzip for large responses to get and list.
    ApiResponseCompression,
    /// Deletion of unreadable objects.
    AllowUnsafeMalformedObjectDeletion,
    /// CBOR request and response bodies.
    CborServingAndStorage,
    /// Dry runs.
    DryRun,
    /// Server-side apply.
    ServerSideApply,
    /// The `fieldValidation` parameter.
    ServerSideFieldValidation,
    /// Lists in chunks.
    ApiListChunking,
    /// The streams of a container's log apart.
    PodLogsQuerySplitStreams,
    /// Lists as the initial events of a watch.
    WatchList,
}

/// The maturity of the behaviour behind a gate.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Stage {
    /// Disabled by default.
    Alpha,
    /// Enabled by default.
    Beta,
    /// Always enabled.
    Stable,
}

struct Gate {
    feature: Feature,
    name: &'static str,
    stage: Stage,
    default: bool,
    /// It may be named, but not changed.
    locked: bool,
}

const fn gate(feature: Feature, name: &'static str, stage: Stage) -> Gate {
    let default = !matches!(stage, Stage::Alpha);
    Gate { feature, name, stage, default, locked: matches!(stage, Stage::Stable) }
}

/// Every gate this server knows.
static GATES: [Gate; 9] = [
    gate(Feature::ApiResponseCompression, "APIResponseCompression", Stage::Beta),
    gate(Feature::AllowUnsafeMalformedObjectDeletion, "AllowUnsafeMalformedObjectDeletion", Stage::Alpha),
    gate(Feature::CborServingAndStorage, "CBORServingAndStorage", Stage::Alpha),
    gate(Feature::DryRun, "DryRun", Stage::Stable),
    gate(Feature::ServerSideApply, "ServerSideApply", Stage::Stable),
    gate(Feature::ServerSideFieldValidation, "ServerSideFieldValidation", Stage::Stable),
    gate(Feature::ApiListChunking, "APIListChunking", Stage::Stable),
    gate(Feature::PodLogsQuerySplitStreams, "PodLogsQuerySplitStreams", Stage::Alpha),
    // A watch with initial events needs no mechanism that could be disabled, so the gate is locked.
    Gate { feature: Feature::WatchList, name: "WatchList", stage: Stage::Beta, default: true, locked: true },
];

/// The set of enabled gates.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Features {
    open: [bool; GATES.len()],
    /// Warnings for the operator about named gates, in order.
    pub warnings: Vec<String>,
}

impl Default for Features {
    fn default() -> Self {
        Features { open: GATES.each_ref().map(|gate| gate.default), warnings: Vec::new() }
    }
}

impl Features {
    /// Whether a gate is enabled.
    pub fn has(&self, feature: Feature) -> bool {
        GATES.iter().zip(self.open).any(|(gate, open)| gate.feature == feature && open)
    }

    /// Each gate with its stage and whether it is enabled, and the two names for all of a stage.
    pub fn all(&self) -> impl Iterator<Item = (&'static str, Stage, bool)> {
        let gates = GATES.iter().zip(self.open).map(|(gate, open)| (gate.name, gate.stage, open));
        [("AllAlpha", Stage::Alpha, false), ("AllBeta", Stage::Beta, false)].into_iter().chain(gates)
    }

    /// The same with a gate enabled, for tests and for embedding.
    #[must_use]
    pub fn with(mut self, feature: Feature) -> Self {
        for (gate, open) in GATES.iter().zip(&mut self.open) {
            *open |= gate.feature == feature;
        }
        self
    }

    /// Parses the value of the flag. The last value of a repeated gate wins.
    ///
    /// # Errors
    /// A malformed pair, a value that is not a boolean, and a gate that is unknown or locked to another value.
    pub fn parse(text: &str) -> Result<Features, String> {
        let mut named: [Option<bool>; GATES.len()] = [None; GATES.len()];
        let (mut all_alpha, mut all_beta) = (None, None);
        let mut features = Features::default();
        for pair in text.split(',').map(str::trim).filter(|pair| !pair.is_empty()) {
            let Some((name, value)) = pair.split_once('=') else {
                return Err(format!("missing bool value for {pair}"));
            };
            let (name, value) = (name.trim(), value.trim());
            let open = boolean(value).ok_or_else(|| {
                let why = format!("strconv.ParseBool: parsing {value:?}: invalid syntax");
                format!("invalid value of {name}={value}, err: {why}")
            })?;
            // Gates may be given per component; this server answers to upstream's component name.
            let name = match name.split_once(':') {
                None => name,
                Some((COMPONENT, name)) => name,
                Some((other, _)) => return Err(format!("component not registered: {other}")),
            };
            match name {
                "AllAlpha" => all_alpha = Some(open),
                "AllBeta" => all_beta = Some(open),
                _ => {
                    let at = GATES.iter().position(|gate| gate.name == name);
                    let at = at.ok_or_else(|| format!("unrecognized feature gate: {name}"))?;
                    named[at] = Some(open);
                }
            }
        }
        for (at, gate) in GATES.iter().enumerate() {
            let of_stage = match gate.stage {
                Stage::Alpha => all_alpha,
                Stage::Beta => all_beta,
                Stage::Stable => None,
            };
            if gate.locked && named[at].is_some_and(|open| open != gate.default) {
                let (name, default) = (gate.name, gate.default);
                let asked = !default;
                return Err(format!(
                    "cannot set feature gate {name} to {asked}, feature is locked to {default}"
                ));
            }
            if named[at].is_some() && gate.stage == Stage::Stable {
                let text = "setting GA feature gate. It will be removed in a future release.";
                features.warnings.push(format!("{}: {text}", gate.name));
            }
            features.open[at] = match named[at].or(of_stage) {
                Some(open) if !gate.locked => open,
                _ => gate.default,
            };
        }
        Ok(features)
    }
}

/// The component prefix that gates of this server may have.
const COMPONENT: &str = "kube";

impl fmt::Display for Features {
    /// The gates that differ from their defaults.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let changed = GATES.iter().zip(self.open).filter(|(gate, open)| gate.default != *open);
        for (at, (gate, open)) in changed.enumerate() {
            write!(f, "{}{}={open}", if at > 0 { "," } else { "" }, gate.name)?;
        }
        Ok(())
    }
}

/// A boolean by Go's rules.
fn boolean(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Some(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gate_is_enabled_individually() {
        for gate in &GATES {
            assert_eq!(Features::default().has(gate.feature), gate.default, "{}", gate.name);
            assert!(Features::default().with(gate.feature).has(gate.feature), "{}", gate.name);
        }
    }

    #[test]
    fn gates_are_parsed_as_documented() {
        for (text, want) in [
            ("", Ok("")),
            ("AllowUnsafeMalformedObjectDeletion=true", Ok("AllowUnsafeMalformedObjectDeletion=true")),
            (" CBORServingAndStorage = T , ", Ok("CBORServingAndStorage=true")),
            ("CBORServingAndStorage=true,CBORServingAndStorage=false", Ok("")),
            ("kube:CBORServingAndStorage=true", Ok("CBORServingAndStorage=true")),
            ("APIResponseCompression=false", Ok("APIResponseCompression=false")),
            (
                "CBORServingAndStorage=false,AllAlpha=true",
                Ok("AllowUnsafeMalformedObjectDeletion=true,PodLogsQuerySplitStreams=true"),
            ),
            ("AllBeta=false", Ok("APIResponseCompression=false")),
            ("DryRun=true", Ok("")),
            ("Nothing=true", Err("unrecognized feature gate: Nothing")),
            ("DryRun=false", Err("cannot set feature gate DryRun to false, feature is locked to true")),
            ("DryRun", Err("missing bool value for DryRun")),
            (
                "DryRun=maybe",
                Err(
                    "invalid value of DryRun=maybe, err: strconv.ParseBool: parsing \"maybe\": invalid syntax",
                ),
            ),
            ("wardle:DryRun=true", Err("component not registered: wardle")),
        ] {
            let got = Features::parse(text).map(|features| features.to_string());
            assert_eq!(got, want.map(str::to_owned).map_err(str::to_owned), "{text}");
        }
    }

    #[test]
    fn naming_a_stable_gate_gives_a_warning() {
        let warnings = |text: &str| Features::parse(text).unwrap().warnings;
        assert_eq!(
            warnings("DryRun=true"),
            ["DryRun: setting GA feature gate. It will be removed in a future release."]
        );
        assert!(warnings("APIResponseCompression=true").is_empty());
    }
}
