//! Feature gates: behaviour that is not for everybody yet, or not for ever, switched by `--feature-gates`
//! (docs/api/operations.md#flags-and-features).
//!
//! `Name=true,kube:Other=false` → [`Features::parse`] → [`Features`], and what the operator should know.
//!
//! `AllAlpha` and `AllBeta` switch all gates of their stage that are not named themselves, wherever they stand. A gate
//! that belongs to everybody by now is locked: naming it with its value is allowed and warned of, another value is
//! not. Knows what gates are called and nothing of what they do.

use std::fmt;

/// A gate.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Feature {
    /// gzip for large answers to get and list.
    ApiResponseCompression,
    /// Deletion of objects that cannot be read.
    AllowUnsafeMalformedObjectDeletion,
    /// CBOR bodies and answers.
    CborServingAndStorage,
    /// Dry runs.
    DryRun,
    /// Server-side apply.
    ServerSideApply,
    /// The `fieldValidation` parameter.
    ServerSideFieldValidation,
    /// Lists in chunks.
    ApiListChunking,
    /// Lists as the beginning of a watch.
    WatchList,
}

/// How settled the behaviour behind a gate is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Stage {
    /// Off unless asked for.
    Alpha,
    /// On unless refused.
    Beta,
    /// On for everybody.
    Stable,
}

struct Gate {
    feature: Feature,
    name: &'static str,
    stage: Stage,
    default: bool,
    /// It can be named, but not changed.
    locked: bool,
}

const fn gate(feature: Feature, name: &'static str, stage: Stage) -> Gate {
    let default = !matches!(stage, Stage::Alpha);
    Gate { feature, name, stage, default, locked: matches!(stage, Stage::Stable) }
}

/// Every gate this server knows.
static GATES: [Gate; 8] = [
    gate(Feature::ApiResponseCompression, "APIResponseCompression", Stage::Beta),
    gate(Feature::AllowUnsafeMalformedObjectDeletion, "AllowUnsafeMalformedObjectDeletion", Stage::Alpha),
    gate(Feature::CborServingAndStorage, "CBORServingAndStorage", Stage::Alpha),
    gate(Feature::DryRun, "DryRun", Stage::Stable),
    gate(Feature::ServerSideApply, "ServerSideApply", Stage::Stable),
    gate(Feature::ServerSideFieldValidation, "ServerSideFieldValidation", Stage::Stable),
    gate(Feature::ApiListChunking, "APIListChunking", Stage::Stable),
    // Watches are what every list here could be; there is nothing to switch off.
    Gate { feature: Feature::WatchList, name: "WatchList", stage: Stage::Beta, default: true, locked: true },
];

/// Which gates are open.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Features {
    open: [bool; GATES.len()],
    /// What naming some of the gates should tell the operator, in order.
    pub warnings: Vec<String>,
}

impl Default for Features {
    fn default() -> Self {
        Features { open: GATES.each_ref().map(|gate| gate.default), warnings: Vec::new() }
    }
}

impl Features {
    /// Whether a gate is open.
    pub fn has(&self, feature: Feature) -> bool {
        GATES.iter().zip(self.open).any(|(gate, open)| gate.feature == feature && open)
    }

    /// The same with a gate opened, for tests and for those who assemble a server themselves.
    #[must_use]
    pub fn with(mut self, feature: Feature) -> Self {
        for (gate, open) in GATES.iter().zip(&mut self.open) {
            *open |= gate.feature == feature;
        }
        self
    }

    /// Reads the value of the flag. A gate named twice has the last value.
    ///
    /// # Errors
    /// A pair that is none, a value that is no boolean, a gate that is unknown or locked to another value.
    pub fn parse(text: &str) -> Result<Features, String> {
        let mut named: [Option<bool>; GATES.len()] = [None; GATES.len()];
        let (mut all_alpha, mut all_beta) = (None, None);
        let mut features = Features::default();
        for pair in text.split(',').map(str::trim).filter(|pair| !pair.is_empty()) {
            let Some((name, value)) = pair.split_once('=') else {
                return Err(format!("missing bool value for {pair}"));
            };
            let (name, value) = (name.trim(), value.trim());
            let open = boolean(value)
                .ok_or_else(|| format!("invalid value of {name}={value}, err: must be true or false"))?;
            // Gates may be given per component; this server is the one that upstream's profile calls so.
            let name = name.strip_prefix(COMPONENT).unwrap_or(name);
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

/// What a gate of this component may begin with.
const COMPONENT: &str = "kube:";

impl fmt::Display for Features {
    /// The gates that are not as they would be by themselves.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let changed = GATES.iter().zip(self.open).filter(|(gate, open)| gate.default != *open);
        for (at, (gate, open)) in changed.enumerate() {
            write!(f, "{}{}={open}", if at > 0 { "," } else { "" }, gate.name)?;
        }
        Ok(())
    }
}

/// A boolean as Go reads one.
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
    fn a_gate_is_asked_for_by_itself() {
        for gate in &GATES {
            assert_eq!(Features::default().has(gate.feature), gate.default, "{}", gate.name);
            assert!(Features::default().with(gate.feature).has(gate.feature), "{}", gate.name);
        }
    }

    #[test]
    fn gates_are_read_as_semantics_16_5_says() {
        for (text, want) in [
            ("", Ok("")),
            ("AllowUnsafeMalformedObjectDeletion=true", Ok("AllowUnsafeMalformedObjectDeletion=true")),
            (" CBORServingAndStorage = T , ", Ok("CBORServingAndStorage=true")),
            ("CBORServingAndStorage=true,CBORServingAndStorage=false", Ok("")),
            ("kube:CBORServingAndStorage=true", Ok("CBORServingAndStorage=true")),
            ("APIResponseCompression=false", Ok("APIResponseCompression=false")),
            ("CBORServingAndStorage=false,AllAlpha=true", Ok("AllowUnsafeMalformedObjectDeletion=true")),
            ("AllBeta=false", Ok("APIResponseCompression=false")),
            ("DryRun=true", Ok("")),
            ("Nothing=true", Err("unrecognized feature gate: Nothing")),
            ("DryRun=false", Err("cannot set feature gate DryRun to false, feature is locked to true")),
            ("DryRun", Err("missing bool value for DryRun")),
            ("DryRun=maybe", Err("invalid value of DryRun=maybe, err: must be true or false")),
        ] {
            let got = Features::parse(text).map(|features| features.to_string());
            assert_eq!(got, want.map(str::to_owned).map_err(str::to_owned), "{text}");
        }
    }

    #[test]
    fn naming_what_is_settled_is_told() {
        let told = |text: &str| Features::parse(text).unwrap().warnings;
        assert_eq!(
            told("DryRun=true"),
            ["DryRun: setting GA feature gate. It will be removed in a future release."]
        );
        assert!(told("APIResponseCompression=true").is_empty());
    }
}
