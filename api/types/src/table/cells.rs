//! Translations of the schema's prose descriptions of columns into the cell language.
//!
//! The schema describes how each cell is computed. Most descriptions are already in the cell language; this module
//! lists the other descriptions with their translations. A translation depends only on the text, not on the kind or the
//! column, so equal texts always have the same meaning. Placeholders of the naming profile (`{domain}`) occur in
//! descriptions and in translations, and are filled in before the cell is parsed.

use super::cell::Cell;
use super::parse::CellError;
use values::naming::Naming;

/// Text in the schema → expression.
static PROSE: &[(&str, &str)] = &[
    // Cells of pods.
    ("readyContainers/totalContainers", "podReady"),
    ("trueReadinessGates/len(spec.readinessGates)|\"<none>\" if no gates", "readinessGates|\"<none>\""),
    // Cells of workloads.
    ("status.updatedReplicas", "int(status.updatedReplicas)|0"),
    ("status.availableReplicas", "int(status.availableReplicas)|0"),
    ("spec.maxReplicas", "int(spec.maxReplicas)|0"),
    ("status.currentReplicas", "int(status.currentReplicas)|0"),
    ("revision (integer cell)", "int(revision)|0"),
    (
        "labelSelectorString(spec.selector)|\"\" (invalid -> \"<invalid>\")",
        "labelSelectorString(spec.selector,\"<invalid>\")",
    ),
    ("controller ownerReference \"lower(kind[.group])/name\"|\"<none>\"", "controllerOwner|\"<none>\""),
    (
        "\"\" if no status.startTime; humanDuration(status.completionTime|now - status.startTime)",
        "jobDuration",
    ),
    (
        "\"True\"/\"False\" of spec.suspend|\"<unset>\" (string cell)",
        "either(spec.suspend,\"true\",\"True\",\"False\")|\"<unset>\"",
    ),
    // Cells of networking kinds.
    (
        "join(ports \"{port}/{protocol}\" or \"{port}:{nodePort}/{protocol}\" if nodePort>0, \",\")|\"<none>\"",
        "servicePorts|\"<none>\"",
    ),
    ("sorted unique status.loadBalancer.ingress[].(ip|hostname) joined \",\"", "ingressAddress"),
    (
        "\"<none>\" or \"{kind}[.{apiGroup}]/{name}\" of spec.parameters",
        "spec.parameters \"{kind}[.{apiGroup}]/{name}\"|\"<none>\"",
    ),
    (
        "spec.parentRef lower(\"{resource}[.{group}]\")[\"/\"+namespace]\"/\"+name | \"<none>\"",
        "spec.parentRef \"{lower resource}[.{lower group}][/{namespace}]/{name}\"|\"<none>\"",
    ),
    (
        "metadata.name + \" (default)\" if annotation ingressclass.{domain}/is-default-class==\"true\"",
        "nameIfDefault(\"ingressclass.{domain}/is-default-class\")",
    ),
    // Cells of nodes and volumes.
    (
        "sorted unique roles joined \",\"|\"<none>\"; role from label node-role.{domain}/<role> or value of {domain}/role",
        "nodeRoles(\"node-role.{domain}/\",\"{domain}/role\")|\"<none>\"",
    ),
    ("first status.addresses type InternalIP|\"<none>\"", "nodeAddress(\"InternalIP\")|\"<none>\""),
    ("first status.addresses type ExternalIP|\"<none>\"", "nodeAddress(\"ExternalIP\")|\"<none>\""),
    ("status.nodeInfo.kernelVersion|\"<unknown>\" + \" ({architecture})\" if set", "nodeKernel"),
    (
        "\"Terminating\" if deletionTimestamp else status.phase",
        "\"Terminating\" if metadata.deletionTimestamp else status.phase",
    ),
    ("\"{claimRef.namespace}/{claimRef.name}\" or \"\"", "spec.claimRef \"{namespace}/{name}\""),
    (
        "status.capacity.storage if spec.volumeName set else \"\"",
        "status.capacity.storage|\"0\" if spec.volumeName set else \"\"",
    ),
    ("spec.volumeAttributesClassName|\"<unset>\"", "firstGiven(spec.volumeAttributesClassName,\"<unset>\")"),
    (
        "annotation volume.beta.{domain}/storage-class | spec.storageClassName",
        "firstGiven(annotation(\"volume.beta.{domain}/storage-class\"),spec.storageClassName)",
    ),
    (
        "annotation volume.beta.{domain}/storage-class | spec.storageClassName | \"\"",
        "firstGiven(annotation(\"volume.beta.{domain}/storage-class\"),spec.storageClassName)",
    ),
    (
        "metadata.name + \" (default)\" if annotation storageclass.{domain}/is-default-class (or beta key) ==\"true\"",
        "nameIfDefault(\"storageclass.{domain}/is-default-class\",\"storageclass.beta.{domain}/is-default-class\")",
    ),
    ("allowVolumeExpansion|false (boolean cell)", "bool(allowVolumeExpansion)|false"),
    (
        "join(spec.tokenRequests[].audience,\",\")|\"<unset>\" if null",
        "join(spec.tokenRequests[].audience,\",\") if spec.tokenRequests set else \"<unset>\"",
    ),
    // Cells of events.
    ("age(series.lastObservedTime if series; else lastTimestamp; else first-seen cell)", "eventLastSeen"),
    ("age(firstTimestamp|eventTime)", "eventFirstSeen"),
    (
        "lower(involvedObject.kind)[\"/\"+involvedObject.name if set]",
        "\"{lower involvedObject.kind}[/{involvedObject.name}]\"",
    ),
    ("\"{source.component|reportingController}[, {source.host|reportingInstance}]\"", "eventSource"),
    ("series.count if series; else count; 0 becomes 1", "eventCount"),
    // Cells of access control and quotas.
    ("User subjects joined \", \"", "subjects(\"User\")"),
    ("Group subjects joined \", \"", "subjects(\"Group\")"),
    ("ServiceAccount subjects \"{namespace}/{name}\" joined \", \"", "subjects(\"ServiceAccount\")"),
    ("quotaList(names not starting \"limits.\")", "quotaRequests"),
    ("quotaList(names starting \"limits.\")", "quotaLimits"),
    (
        "last condition type in Issued/Denied/Failed | \"Pending\"",
        "lastCondition(\"Issued\",\"Denied\",\"Failed\")|\"Pending\"",
    ),
    // Cells of the server's own kinds.
    (
        "condition Healthy: True->\"Healthy\" else \"Unhealthy\"; none->\"Unknown\"",
        "either(condition Healthy.status,\"True\",\"Healthy\",\"Unhealthy\")|\"Unknown\"",
    ),
    (
        "condition Available: \"True\"; else \"{status} ({reason})\" if reason else status; none->\"Unknown\"",
        "available",
    ),
    ("spec.matchingPrecedence (integer cell)", "int(spec.matchingPrecedence)|0"),
    (
        "spec.limited.nominalConcurrencyShares (integer cell)|\"<none>\"",
        "int(spec.limited.nominalConcurrencyShares)|\"<none>\"",
    ),
    (
        "spec.limited.limitResponse.queuing.queues (integer cell)|\"<none>\"",
        "int(spec.limited.limitResponse.queuing.queues)|\"<none>\"",
    ),
    (
        "...queuing.handSize (integer cell)|\"<none>\"",
        "int(spec.limited.limitResponse.queuing.handSize)|\"<none>\"",
    ),
    (
        "...queuing.queueLengthLimit (integer cell)|\"<none>\"",
        "int(spec.limited.limitResponse.queuing.queueLengthLimit)|\"<none>\"",
    ),
    (
        "type of last True condition in Running/Succeeded/Failed | \"Unknown\"",
        "lastTrueCondition(\"Running\",\"Succeeded\",\"Failed\")|\"Unknown\"",
    ),
    // Cells of devices.
    ("sum(status.pools[].totalDevices)", "poolDevices(\"totalDevices\")"),
    ("sum(status.pools[].availableDevices)", "poolDevices(\"availableDevices\")"),
    ("sum(status.pools[].allocatedDevices)", "poolDevices(\"allocatedDevices\")"),
    ("sum(status.pools[].unavailableDevices)", "poolDevices(\"unavailableDevices\")"),
    ("count(status.pools[].validationError set)", "poolErrors"),
    // Default cells.
    ("rfc3339(metadata.creationTimestamp) UTC", "rfc3339(metadata.creationTimestamp)"),
];

/// Parses a column's text from the schema to a cell. The text uses the names of `naming`.
///
/// # Errors
/// The text is not in the cell language and has no translation here.
pub fn parse(text: &str, naming: &Naming) -> Result<Cell, CellError> {
    // This runs once per resource, for its first table, so the cost of filling in all texts is irrelevant.
    let translated = PROSE.iter().find(|(prose, _)| naming.fill(prose) == text);
    match translated {
        Some((_, expression)) => Cell::parse(&naming.fill(expression)),
        None => Cell::parse(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use values::naming::CLUSTER;

    #[test]
    fn every_translation_parses_and_every_text_is_unique() {
        for (at, (prose, expression)) in PROSE.iter().enumerate() {
            parse(&CLUSTER.fill(prose), &CLUSTER).unwrap_or_else(|error| panic!("{prose}: {error}"));
            assert!(!PROSE[..at].iter().any(|(other, _)| other == prose), "{prose} twice");
            assert_ne!(prose, expression);
        }
    }
}
