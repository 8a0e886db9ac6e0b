//! Warnings about volumes, claims and storage classes.

use std::fmt::{self, Display};

use super::{SPEC, Texts, WrittenObject, node_label_deprecation};
use crate::validation::{FieldPath, StructView};
use values::field::go_quote;

/// Warns about annotations that were replaced by fields.
fn annotations(texts: &mut Texts, written: WrittenObject, annotations: &[(&str, &str, &str)]) {
    for (name, since, field) in annotations {
        let name = format!("volume.beta.{}", written.naming.label(name));
        if written.annotation(&name) {
            let path = format_args!("metadata.annotations[{name}]");
            texts.at(path, &format!("deprecated since {since}; use \"{field}\" attribute instead"));
        }
    }
}

const CLASS: (&str, &str, &str) = ("storage-class", "v1.8", "storageClassName");

/// Warns about a persistent volume.
pub(in crate::strategy) fn volume(texts: &mut Texts, written: WrittenObject) {
    annotations(texts, written, &[CLASS, ("mount-options", "v1.31", "mountOptions")]);
    let spec = written.view().child("spec");
    if spec.text("persistentVolumeReclaimPolicy") == "Recycle" {
        texts.at(
            SPEC.child("persistentVolumeReclaimPolicy"),
            "The Recycle reclaim policy is deprecated. Instead, the recommended approach is to use dynamic provisioning.",
        );
    }
    let affinity = SPEC.child("nodeAffinity");
    let required = affinity.child("required");
    let list = required.child("nodeSelectorTerms");
    let terms = spec.child("nodeAffinity").child("required");
    for (at, term) in terms.structs("nodeSelectorTerms").enumerate() {
        texts.node_selector_term(&list.index(at), term, true, written.naming);
    }
    for (kind, shown, why) in [
        ("cephfs", "cephfs", "deprecated in v1.28, non-functional in v1.31+"),
        ("photonPersistentDisk", "photonPersistentDisk", "deprecated in v1.11, non-functional in v1.16+"),
        ("scaleIO", "scaleIO", "deprecated in v1.16, non-functional in v1.22+"),
        ("storageos", "storageOS", "deprecated in v1.22, non-functional in v1.25+"),
        ("glusterfs", "glusterfs", "deprecated in v1.25, non-functional in v1.26+"),
        ("flocker", "flocker", "deprecated in v1.22, non-functional in v1.25+"),
        ("quobyte", "quobyte", "deprecated in v1.22, non-functional in v1.25+"),
        ("rbd", "rbd", "deprecated in v1.28, non-functional in v1.31+"),
    ] {
        if spec.has(kind) {
            texts.at(SPEC.child(shown), why);
        }
    }
}

/// Warns about a persistent volume claim.
pub(in crate::strategy) fn volume_claim(texts: &mut Texts, written: WrittenObject) {
    annotations(texts, written, &[CLASS]);
    claim(texts, &SPEC, written.view().child("spec"));
}

/// Warns about the specification of a claim.
pub(super) fn claim(texts: &mut Texts, path: &FieldPath, spec: StructView) {
    let resources = path.child("resources");
    for list in ["requests", "limits"] {
        texts.fraction(&resources.child(list), spec.child("resources").child(list), "storage");
    }
}

pub(super) fn storage_class(texts: &mut Texts, written: WrittenObject) {
    let list = FieldPath::ROOT.child("allowedTopologies");
    for (at, term) in written.view().structs("allowedTopologies").enumerate() {
        let place = list.index(at);
        let expressions = place.child("matchLabelExpressions");
        for (at, expression) in term.structs("matchLabelExpressions").enumerate() {
            if let Some(why) = node_label_deprecation(expression.text("key"), written.naming) {
                texts.at(expressions.index(at).child("key"), &why);
            }
        }
    }
}

pub(super) fn storage_capacity(texts: &mut Texts, written: WrittenObject) {
    let topology = written.view().child("nodeTopology");
    let root = FieldPath::ROOT.child("nodeTopology");
    let labels = root.child("matchLabels");
    for (label, _) in topology.map("matchLabels") {
        if let Some(why) = node_label_deprecation(label, written.naming) {
            texts.at(labels.child(label), &why);
        }
    }
    let expressions = root.child("matchExpressions");
    for (at, expression) in topology.structs("matchExpressions").enumerate() {
        let place = expressions.index(at);
        texts.node_label(place.child("key"), expression.text("key"), written.naming);
    }
}

/// A file of a volume, and the source of the file; `None` if the volume has only one source.
struct File<'v> {
    path: &'v str,
    source: Option<Source<'v>>,
}

impl Display for File<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&go_quote(self.path))?;
        self.source.map_or(Ok(()), |source| write!(f, " ({source})"))
    }
}

/// Type of the source of a volume, and the name of the object if the source refers to one.
#[derive(Clone, Copy)]
struct Source<'v>(&'static str, Option<&'v str>);

impl Display for Source<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Source(kind, name) = self;
        f.write_str(kind)?;
        name.map_or(Ok(()), |name| write!(f, " {}", go_quote(name)))
    }
}

/// Maximum number of files that are compared with each other. A larger volume is not a typing mistake of a
/// person.
const FILES_MAX: usize = 256;

/// Warns about files of one volume whose paths are equal, or of which one path is below the other.
pub(super) fn overlaps(texts: &mut Texts, volume: StructView) {
    let mut all = Vec::new();
    let what = if volume.has("configMap") {
        let source = volume.child("configMap");
        files(source, None, &mut all);
        Source("ConfigMap", Some(source.text("name")))
    } else if volume.has("secret") {
        let source = volume.child("secret");
        files(source, None, &mut all);
        Source("Secret", Some(source.text("secretName")))
    } else if volume.has("downwardAPI") {
        files(volume.child("downwardAPI"), None, &mut all);
        Source("DownwardAPI", None)
    } else {
        for source in volume.child("projected").structs("sources") {
            if !PROJECTIONS.iter().any(|kind| source.has(kind)) {
                texts.add(format!(
                    "volume {} (Projected) has no sources provided",
                    go_quote(volume.text("name"))
                ));
            }
            projected(source, &mut all);
        }
        Source("Projected", None)
    };
    let mut seen: Vec<File> = Vec::new();
    for file in all {
        let file = File { path: file.path.trim_end_matches('/'), ..file };
        if file.path.is_empty() {
            continue;
        }
        for other in seen.iter().filter(|other| is_within(file.path, other.path)) {
            let volume = go_quote(volume.text("name"));
            texts.add(format!("volume {volume} ({what}): overlapping paths: {file} with {other}"));
        }
        if seen.len() < FILES_MAX {
            seen.push(file);
        }
    }
}

/// Collects the files that the items of a source specify.
fn files<'v>(of: StructView<'v>, source: Option<Source<'v>>, all: &mut Vec<File<'v>>) {
    all.extend(of.structs("items").map(|item| File { path: item.text("path"), source }));
}

/// Members of a source of a projected volume. A source is empty if its only member was dropped because the
/// feature of the member is disabled.
const PROJECTIONS: [&str; 6] =
    ["secret", "configMap", "downwardAPI", "serviceAccountToken", "clusterTrustBundle", "podCertificate"];

/// Collects the files of one source of a projected volume.
fn projected<'v>(source: StructView<'v>, all: &mut Vec<File<'v>>) {
    for (member, kind) in [("configMap", "ConfigMap"), ("secret", "Secret")] {
        if source.has(member) {
            let of = source.child(member);
            return files(of, Some(Source(kind, Some(of.text("name")))), all);
        }
    }
    if source.has("downwardAPI") {
        files(source.child("downwardAPI"), Some(Source("DownwardAPI", None)), all);
    } else if source.has("serviceAccountToken") {
        let path = source.child("serviceAccountToken").text("path");
        all.push(File { path, source: Some(Source("ServiceAccountToken", None)) });
    } else if source.has("clusterTrustBundle") {
        let bundle = source.child("clusterTrustBundle");
        let name = if bundle.has("name") { bundle.text("name") } else { bundle.text("signerName") };
        all.push(File { path: bundle.text("path"), source: Some(Source("ClusterTrustBundle", Some(name))) });
    }
}

/// Returns whether two paths are equal or one path is below the other.
fn is_within(a: &str, b: &str) -> bool {
    let below =
        |a: &str, b: &str| a.strip_prefix(b).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    below(a, b) || below(b, a)
}
