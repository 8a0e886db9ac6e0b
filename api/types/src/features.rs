//! Feature gates: optional behaviour that `--feature-gates` switches on or off
//! (docs/api/operations.md#flags-and-features).
//!
//! `Name=true,kube:Other=false` → [`Features::parse`] → [`Features`], with warnings for the operator.
//!
//! `AllAlpha` and `AllBeta` switch all gates of their stage that the flag does not name, regardless of order.
//! The gate of a stable feature may be locked: setting the gate to its fixed value causes a warning, and any
//! other value is an error. A server that emulates an older release has no gates of later releases. This
//! module declares the gates; other modules implement their effects.

mod upstream;

use std::collections::BTreeMap;
use std::fmt;

use crate::version::Releases;

/// A feature gate with an effect in this server.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Feature {
    /// gzip compression of large responses to get and list.
    ApiResponseCompression,
    /// Deletion of objects that cannot be read.
    AllowUnsafeMalformedObjectDeletion,
    /// CBOR request and response bodies.
    CborServingAndStorage,
    /// Permissions to act as another user only for some verbs.
    ConstrainedImpersonation,
    /// Dry runs of write requests.
    DryRun,
    /// Server-side apply of configurations.
    ServerSideApply,
    /// The query parameter `fieldValidation` of write requests.
    ServerSideFieldValidation,
    /// Lists in chunks, with a limit and a continue token.
    ApiListChunking,
    /// Separate reading of the streams of a container's log.
    PodLogsQuerySplitStreams,
    /// Lists as the initial events of a watch.
    WatchList,
    /// `/flagz`: the values of the process's flags.
    ComponentFlagz,
    /// `/statusz`: information about the process.
    ComponentStatusz,
    /// Forwarding of requests for types that only another server on the same store serves.
    PeerProxy,
    /// Egress network of each token issuer in the authentication configuration.
    IssuerNetworks,
}

/// The maturity of the behaviour behind a gate.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum FeatureStage {
    /// Experimental behaviour, disabled by default.
    Alpha,
    /// Mature behaviour, enabled by default.
    Beta,
    /// Stable behaviour that is always enabled.
    Stable,
    /// Deprecated behaviour that will be removed.
    Deprecated,
}

struct Gate {
    feature: Feature,
    name: &'static str,
    stage: FeatureStage,
    default: bool,
    /// Whether the flag may name the gate, but not change its value.
    locked: bool,
}

const fn gate(feature: Feature, name: &'static str, stage: FeatureStage) -> Gate {
    let default = !matches!(stage, FeatureStage::Alpha);
    Gate { feature, name, stage, default, locked: matches!(stage, FeatureStage::Stable) }
}

/// Gates with an effect in this server.
static GATES: [Gate; 14] = [
    gate(Feature::ApiResponseCompression, "APIResponseCompression", FeatureStage::Beta),
    gate(
        Feature::AllowUnsafeMalformedObjectDeletion,
        "AllowUnsafeMalformedObjectDeletion",
        FeatureStage::Alpha,
    ),
    gate(Feature::CborServingAndStorage, "CBORServingAndStorage", FeatureStage::Alpha),
    gate(Feature::ConstrainedImpersonation, "ConstrainedImpersonation", FeatureStage::Beta),
    gate(Feature::DryRun, "DryRun", FeatureStage::Stable),
    gate(Feature::ServerSideApply, "ServerSideApply", FeatureStage::Stable),
    gate(Feature::ServerSideFieldValidation, "ServerSideFieldValidation", FeatureStage::Stable),
    gate(Feature::ApiListChunking, "APIListChunking", FeatureStage::Stable),
    gate(Feature::ComponentFlagz, "ComponentFlagz", FeatureStage::Beta),
    gate(Feature::ComponentStatusz, "ComponentStatusz", FeatureStage::Beta),
    gate(Feature::PodLogsQuerySplitStreams, "PodLogsQuerySplitStreams", FeatureStage::Alpha),
    gate(Feature::IssuerNetworks, "StructuredAuthenticationConfigurationEgressSelector", FeatureStage::Beta),
    gate(Feature::PeerProxy, "UnknownVersionInteroperabilityProxy", FeatureStage::Beta),
    // A watch with initial events needs no mechanism that could be disabled, so the gate is locked.
    Gate {
        feature: Feature::WatchList,
        name: "WatchList",
        stage: FeatureStage::Beta,
        default: true,
        locked: true,
    },
];

/// A gate of kube-apiserver without an effect in this server.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Inert {
    stage: FeatureStage,
    default: bool,
}

/// Returns the gate with this name, if it has no effect in this server.
fn inert(name: &str) -> Option<Inert> {
    INERT.iter().find(|(names, _)| names.contains(&name)).map(|(_, inert)| *inert)
}

/// Gates without an effect, by stage and default.
const INERT: [(&[&str], Inert); 6] = [
    (upstream::ALPHA, Inert { stage: FeatureStage::Alpha, default: false }),
    (upstream::BETA, Inert { stage: FeatureStage::Beta, default: true }),
    (upstream::BETA_OFF, Inert { stage: FeatureStage::Beta, default: false }),
    (upstream::STABLE, Inert { stage: FeatureStage::Stable, default: true }),
    (upstream::DEPRECATED_ON, Inert { stage: FeatureStage::Deprecated, default: true }),
    (upstream::DEPRECATED, Inert { stage: FeatureStage::Deprecated, default: false }),
];

/// The set of enabled feature gates.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Features {
    open: [bool; GATES.len()],
    /// The values that the operator has set for gates without an effect.
    inert: BTreeMap<&'static str, bool>,
    /// Setting for all gates of a stage.
    of_stage: OfStage,
    /// Warnings for the operator about the gates in the flag, in order.
    pub warnings: Vec<String>,
}

/// Settings for all gates of a stage.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
struct OfStage {
    alpha: Option<bool>,
    beta: Option<bool>,
}

impl OfStage {
    fn wish(self, stage: FeatureStage) -> Option<bool> {
        match stage {
            FeatureStage::Alpha => self.alpha,
            FeatureStage::Beta => self.beta,
            FeatureStage::Stable | FeatureStage::Deprecated => None,
        }
    }
}

impl Default for Features {
    fn default() -> Self {
        Features {
            open: GATES.each_ref().map(|gate| gate.default),
            inert: BTreeMap::new(),
            of_stage: OfStage::default(),
            warnings: Vec::new(),
        }
    }
}

impl Features {
    /// Returns whether a gate is enabled.
    pub fn has(&self, feature: Feature) -> bool {
        GATES.iter().zip(self.open).any(|(gate, open)| gate.feature == feature && open)
    }

    /// Returns whether the gate with this name is enabled, with or without an effect in this server.
    pub fn is_open(&self, name: &str) -> bool {
        self.all().iter().any(|(known, _, open)| *known == name && *open)
    }

    /// Returns each gate with its stage and its value, sorted by name. The gates include `AllAlpha` and
    /// `AllBeta`.
    pub fn all(&self) -> Vec<(&'static str, FeatureStage, bool)> {
        let with_effect = GATES.iter().zip(self.open).map(|(gate, open)| (gate.name, gate.stage, open));
        let inert = INERT.iter().flat_map(|(names, inert)| names.iter().map(move |name| (*name, *inert)));
        let inert = inert.map(|(name, Inert { stage, default })| {
            let open = self.inert.get(name).copied().or(self.of_stage.wish(stage)).unwrap_or(default);
            (name, stage, open)
        });
        let stages = [
            ("AllAlpha", FeatureStage::Alpha, self.of_stage.alpha == Some(true)),
            ("AllBeta", FeatureStage::Beta, self.of_stage.beta == Some(true)),
        ];
        let mut all: Vec<_> = with_effect.chain(inert).chain(stages).collect();
        all.sort_unstable_by_key(|(name, ..)| *name);
        all
    }

    /// Returns whether `name` is the gate of a stable feature. kube-apiserver has removed these gates.
    pub fn is_forgotten(&self, name: &str) -> bool {
        GATES.iter().any(|gate| gate.name == name && gate.stage == FeatureStage::Stable)
    }

    /// Returns the same set with a gate enabled, for tests and for embedding.
    #[must_use]
    pub fn with(mut self, feature: Feature) -> Self {
        for (gate, open) in GATES.iter().zip(&mut self.open) {
            *open |= gate.feature == feature;
        }
        self
    }

    /// Parses the value of the flag for a server that emulates `releases`. The last value of a repeated gate
    /// wins.
    ///
    /// # Errors
    /// A pair is malformed, a value is not a boolean, or a gate is unknown, locked to another value, or not
    /// yet in the emulated release.
    pub fn parse(text: &str, releases: Releases) -> Result<Features, String> {
        let mut named: BTreeMap<&str, bool> = BTreeMap::new();
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
            // Gates may be given per component; this server accepts upstream's component name.
            let name = match name.split_once(':') {
                None => name,
                Some((COMPONENT, name)) => name,
                Some((other, _)) => return Err(format!("component not registered: {other}")),
            };
            match name {
                "AllAlpha" => features.of_stage.alpha = Some(open),
                "AllBeta" => features.of_stage.beta = Some(open),
                _ => drop(named.insert(name, open)),
            }
        }
        for (gate, open) in GATES.iter().zip(&mut features.open).filter(|(gate, _)| !gate.locked) {
            let is_there = !comes_after(gate.name, releases);
            *open = is_there && features.of_stage.wish(gate.stage).unwrap_or(gate.default);
        }
        for (name, open) in named {
            features.name(name, open, releases)?;
        }
        features.check_dependencies()?;
        Ok(features)
    }

    /// Rejects gates that are enabled without the gates that they depend on.
    fn check_dependencies(&self) -> Result<(), String> {
        let all = self.all();
        let state = |name: &str| all.iter().find(|(known, ..)| *known == name).map(|(.., open)| *open);
        let mut errors = Vec::new();
        for (name, needed) in upstream::DEPENDENCIES {
            let disabled: Vec<&str> =
                needed.iter().filter(|needed| state(needed) == Some(false)).copied().collect();
            if state(name) == Some(true) && !disabled.is_empty() {
                let disabled = disabled.join(" ");
                errors.push(format!(
                    "{name} is enabled, but depends on features that are disabled: [{disabled}]"
                ));
            }
        }
        go::join_errors(&errors).map_or(Ok(()), Err)
    }

    /// Sets one gate.
    fn name(&mut self, name: &str, open: bool, releases: Releases) -> Result<(), String> {
        let known = GATES.iter().position(|gate| gate.name == name);
        let (stage, default, locked) = match (known.map(|at| &GATES[at]), inert(name)) {
            (Some(gate), _) => (gate.stage, gate.default, gate.locked),
            (None, Some(Inert { stage, default })) => (stage, default, stage == FeatureStage::Stable),
            (None, None) => return Err(format!("unrecognized feature gate: {name}")),
        };
        // A gate that the emulated release does not have is disabled, even if its default in a later release
        // is true.
        if open && comes_after(name, releases) {
            let Releases { emulated, compatible } = releases;
            return Err(format!(
                "cannot set feature gate {name} to {open}, feature is PreAlpha at emulated version 1.{emulated}, min \
                 compatibility version 1.{compatible}"
            ));
        }
        if locked && open != default {
            return Err(format!("cannot set feature gate {name} to {open}, feature is locked to {default}"));
        }
        let kind = match stage {
            FeatureStage::Stable => Some("GA"),
            FeatureStage::Deprecated => Some("deprecated"),
            FeatureStage::Alpha | FeatureStage::Beta => None,
        };
        if let Some(kind) = kind {
            let text = format!("setting {kind} feature gate. It will be removed in a future release.");
            self.warnings.push(format!("{name}: {text}"));
        }
        match known {
            Some(at) => self.open[at] = open,
            None => {
                let mut names = INERT.iter().flat_map(|(names, _)| names.iter());
                self.inert.extend(names.find(|known| **known == name).map(|known| (*known, open)));
            }
        }
        Ok(())
    }
}

/// Returns whether the emulated release does not have the gate yet.
fn comes_after(name: &str, releases: Releases) -> bool {
    upstream::CAME_LATER.iter().any(|(later, minor)| *later == name && *minor > releases.emulated)
}

/// Component prefix that gates of this server may have.
const COMPONENT: &str = "kube";

impl fmt::Display for Features {
    /// Writes the gates that differ from their defaults.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let changed = GATES.iter().zip(self.open).filter(|(gate, open)| gate.default != *open);
        for (at, (gate, open)) in changed.enumerate() {
            write!(f, "{}{}={open}", if at > 0 { "," } else { "" }, gate.name)?;
        }
        Ok(())
    }
}

/// Parses a boolean by Go's rules.
pub fn boolean(text: &str) -> Option<bool> {
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
    fn a_feature_gate_needs_the_gates_that_it_depends_on() {
        let why = "is enabled, but depends on features that are disabled:";
        for (text, want) in [
            ("ClusterTrustBundle=true,ClusterTrustBundleProjection=true", Ok(())),
            (
                "ClusterTrustBundleProjection=true",
                Err(format!("ClusterTrustBundleProjection {why} [ClusterTrustBundle]")),
            ),
            ("ImageVolumeWithDigest=true", Ok(())),
            ("GangScheduling=true", Err(format!("GangScheduling {why} [GenericWorkload]"))),
            ("GangScheduling=true,GenericWorkload=true", Ok(())),
            (
                "StorageVersionAPI=true,APIServerIdentity=false,UnknownVersionInteroperabilityProxy=false",
                Err(format!("StorageVersionAPI {why} [APIServerIdentity]")),
            ),
            ("AllAlpha=true", Ok(())),
        ] {
            assert_eq!(Features::parse(text, Releases::default()).map(drop), want, "{text}");
        }
    }

    #[test]
    fn every_dependency_names_known_gates_or_features_that_cannot_be_disabled() {
        let all = Features::default().all();
        let is_known = |name: &str| all.iter().any(|(known, ..)| *known == name);
        let known: Vec<&str> =
            upstream::DEPENDENCIES.iter().map(|(name, _)| *name).filter(|name| is_known(name)).collect();
        // Most gates of the table must be known, because a misspelled name would be skipped silently.
        assert!(known.len() * 2 > upstream::DEPENDENCIES.len(), "{known:?}");
        assert_eq!(Features::default().check_dependencies(), Ok(()));
    }

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
            (
                "AllBeta=false",
                Ok(
                    "APIResponseCompression=false,ConstrainedImpersonation=false,ComponentFlagz=false,ComponentStatusz=false,StructuredAuthenticationConfigurationEgressSelector=false,UnknownVersionInteroperabilityProxy=false",
                ),
            ),
            ("ConcurrentWatchObjectDecode=true", Ok("")),
            (
                "DynamicResourceAllocation=false",
                Err("cannot set feature gate DynamicResourceAllocation to false, feature is locked to true"),
            ),
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
            let got = Features::parse(text, Releases::default()).map(|features| features.to_string());
            assert_eq!(got, want.map(str::to_owned).map_err(str::to_owned), "{text}");
        }
    }

    #[test]
    fn an_emulated_release_does_not_have_gates_of_later_releases() {
        let older = Releases { emulated: 33, compatible: 33 };
        let why = "cannot set feature gate ShardedListAndWatch to true, feature is PreAlpha at emulated version 1.33, min \
                   compatibility version 1.33";
        assert_eq!(Features::parse("ShardedListAndWatch=true", older).unwrap_err(), why);
        assert!(Features::parse("ShardedListAndWatch=false", older).is_ok());
        assert!(Features::parse("ShardedListAndWatch=true", Releases::default()).is_ok());
        let why = "cannot set feature gate ConstrainedImpersonation to true, feature is PreAlpha at emulated version \
                   1.34, min compatibility version 1.33";
        let older = Releases { emulated: 34, compatible: 33 };
        assert_eq!(Features::parse("ConstrainedImpersonation=true", older).unwrap_err(), why);
        for (text, releases, want) in [
            ("", older, false),
            ("ConstrainedImpersonation=false", older, false),
            ("AllBeta=true", older, false),
            ("", Releases { emulated: 35, compatible: 34 }, true),
        ] {
            let features = Features::parse(text, releases).unwrap();
            assert_eq!(features.has(Feature::ConstrainedImpersonation), want, "{text}");
        }
    }

    #[test]
    fn gates_without_an_effect_are_listed_with_their_set_values() {
        let features =
            Features::parse("AllAlpha=true,KMSv1=true,PodsAPI=false", Releases::default()).unwrap();
        let all = features.all();
        assert!(all.windows(2).all(|pair| pair[0].0 < pair[1].0), "names are sorted and unique");
        for (name, want) in [("AllAlpha", true), ("KMSv1", true), ("PodsAPI", false), ("MemoryQoS", true)] {
            assert!(all.iter().any(|(gate, _, open)| *gate == name && *open == want), "{name}");
        }
        assert_eq!(features.warnings.len(), 1);
    }

    #[test]
    fn naming_a_stable_gate_gives_a_warning() {
        let warnings = |text: &str| Features::parse(text, Releases::default()).unwrap().warnings;
        assert_eq!(
            warnings("DryRun=true"),
            ["DryRun: setting GA feature gate. It will be removed in a future release."]
        );
        assert!(warnings("APIResponseCompression=true").is_empty());
    }
}
