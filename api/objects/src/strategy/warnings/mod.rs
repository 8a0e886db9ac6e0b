//! Warnings for the writers of valid objects (docs/api/writes.md#warnings-about-objects): about settings that
//! are deprecated, that have no effect, or that contradict each other.
//!
//! Texts and conditions are the same as in kube-apiserver. The strategy of a kind selects the warnings about objects of
//! the kind.

mod devices;
mod network;
mod pod;
mod secret;
mod storage;

use quantity::Quantity;

use super::dropped::{self, Dropped};
use super::{NONE, Strategy};
use crate::validation::{FieldPath, StructView, names};
use values::field::go_quote;
use values::json::Object;
use values::naming::Naming;
use values::object;

/// A valid object, and the object that it replaces, if there is one.
#[derive(Clone, Copy)]
pub(super) struct WrittenObject<'w> {
    pub(super) new: &'w Object,
    pub(super) old: Option<&'w Object>,
    pub(super) naming: &'static Naming,
}

impl<'w> WrittenObject<'w> {
    fn view(self) -> StructView<'w> {
        StructView::from_object(self.new)
    }

    fn annotation(self, name: &str) -> bool {
        self.view().child("metadata").child("annotations").has(name)
    }

    /// Returns whether the object is new or its generation changes. Writes of only metadata or status do not
    /// change the generation.
    fn is_specified_anew(self) -> bool {
        let generation = |object: &Object| object::at(object, "metadata.generation").cloned();
        self.old.is_none_or(|old| generation(old) != generation(self.new))
    }
}

/// Collected warning texts for a writer.
#[derive(Default)]
pub(super) struct Texts(Vec<String>);

impl Texts {
    /// Adds texts that another function collected.
    pub(super) fn extend(&mut self, texts: Vec<String>) {
        self.0.extend(texts);
    }

    fn add(&mut self, text: impl Into<String>) {
        self.0.push(text.into());
    }

    /// Adds the text `<path>: <text>`.
    fn at(&mut self, path: impl std::fmt::Display, text: &str) {
        self.0.push(format!("{path}: {text}"));
    }

    /// Warns about a fractional number of bytes.
    fn fraction(&mut self, path: &FieldPath, amounts: StructView, name: &str) {
        if let Some(amount) = amounts.quantity(name).filter(|amount| !is_whole_after_rounding(*amount)) {
            let path = path.key(name);
            let text = amount.to_text();
            self.at(path, &format!("fractional byte value \"{text}\" is invalid, must be an integer"));
        }
    }

    /// Warns about a deprecated node label.
    fn node_label(&mut self, path: impl std::fmt::Display, label: &str, naming: &Naming) {
        if let Some(why) = node_label_deprecation(label, naming) {
            self.at(path, &format!("{label} is {why}"));
        }
    }

    /// Warns about the expressions of one term of a node selector. `judges_values` is true if validation does
    /// not check the values of the expressions.
    fn node_selector_term(
        &mut self,
        path: &FieldPath,
        term: StructView,
        judges_values: bool,
        naming: &Naming,
    ) {
        let list = path.child("matchExpressions");
        for (at, expression) in term.structs("matchExpressions").enumerate() {
            let place = list.index(at);
            self.node_label(place.child("key"), expression.text("key"), naming);
            if !judges_values {
                continue;
            }
            let values = place.child("values");
            for (at, value) in expression.texts("values").enumerate() {
                for fault in names::label_value(value) {
                    self.at(values.index(at), &format!("{value} is invalid, {fault}"));
                }
            }
        }
    }

    /// Warns about a name that is not a DNS label, if pods derive their names or host names from this name.
    fn host_name(&mut self, written: WrittenObject, used: &str) {
        let faults = names::label(written.view().child("metadata").text("name"));
        if !faults.is_empty() {
            let faults = faults.join(" ");
            self.at(
                "metadata.name",
                &format!(
                    "this is used in {used}, which can result in surprising behavior; a DNS label is recommended: \
                     [{faults}]"
                ),
            );
        }
    }
}

/// Returns whether an amount, rounded up to thousandths, is a whole number.
fn is_whole_after_rounding(amount: Quantity) -> bool {
    amount.rounded_up_to_milli().is_whole()
}

/// Returns the reason why a node label is deprecated; `None` if the label is not deprecated.
fn node_label_deprecation(label: &str, naming: &Naming) -> Option<String> {
    let (since, instead) = naming.stable_node_label(label)?;
    Some(format!("deprecated since {since}; use \"{instead}\" instead"))
}

/// Function that collects the warnings of one kind.
type Advice = fn(&mut Texts, WrittenObject);

/// Returns a strategy that only produces warnings.
const fn only(advice: Advice) -> Strategy {
    Strategy { warnings: Some(advice), ..NONE }
}

/// Returns a strategy that produces warnings and drops fields.
const fn dropping(advice: Advice, dropped: &'static [Dropped]) -> Strategy {
    Strategy { warnings: Some(advice), dropped, ..NONE }
}

const POD_NAMES: &str = "Pod names and hostnames";
const SPEC: FieldPath<'static> = FieldPath::ROOT.child("spec");

pub(super) const DEPLOYMENT: Strategy = dropping(
    |texts, written| {
        if written.old.is_none() {
            texts.host_name(written, POD_NAMES);
        }
        template(texts, written);
    },
    dropped::TEMPLATE,
);
pub(super) const REPLICA_SET: Strategy = DEPLOYMENT;
pub(super) const REPLICATION_CONTROLLER: Strategy = DEPLOYMENT;
pub(super) const STATEFUL_SET: Strategy = dropping(stateful_set, dropped::STATEFUL_SET);
pub(super) const CRON_JOB: Strategy = dropping(cron_job, dropped::JOB_TEMPLATE);
pub(super) const POD_TEMPLATE: Strategy = dropping(
    |texts, written| {
        pod::template(
            texts,
            &FieldPath::ROOT.child("template"),
            written.view().child("template"),
            written.naming,
        )
    },
    dropped::BARE_TEMPLATE,
);
pub(super) const SERVICE: Strategy =
    Strategy { status_warnings: Some(network::balancer_status), ..only(network::service) };
pub(super) const ENDPOINTS: Strategy = only(network::endpoints);
pub(super) const SECRET: Strategy = only(secret::secret);
pub(super) const INGRESS: Strategy =
    Strategy { status_warnings: Some(network::balancer_status), ..only(network::ingress) };
pub(super) const NETWORK_POLICY: Strategy = only(network::network_policy);
pub(super) const STORAGE_CLASS: Strategy = only(storage::storage_class);
pub(super) const STORAGE_CAPACITY: Strategy = only(storage::storage_capacity);
pub(super) const RUNTIME_CLASS: Strategy = only(runtime_class);

pub(super) use devices::resource_slice;
pub(super) use network::endpoint_slice;
pub(super) use pod::{ARMOR, pod, pod_status};
pub(super) use storage::{volume, volume_claim};

/// Warns about the pod template of a workload.
pub(super) fn template(texts: &mut Texts, written: WrittenObject) {
    if written.is_specified_anew() {
        let template = written.view().child("spec").child("template");
        pod::template(texts, &SPEC.child("template"), template, written.naming);
    }
}

fn stateful_set(texts: &mut Texts, written: WrittenObject) {
    template(texts, written);
    let spec = written.view().child("spec");
    let list = SPEC.child("volumeClaimTemplates");
    for (at, claim) in spec.structs("volumeClaimTemplates").enumerate() {
        let element = list.index(at);
        let member = element.child("Spec");
        // The paths of warnings contain this member only for an update.
        let place = if written.old.is_some() { &member } else { &element };
        storage::claim(texts, place, claim.child("spec"));
    }
    if spec.int("revisionHistoryLimit").is_some_and(|limit| limit < 0) {
        texts.at(
            SPEC.child("revisionHistoryLimit"),
            "a negative value retains all historical revisions; a value >= 0 is recommended",
        );
    }
}

/// Maximum number of completions of an indexed job without a warning. A job above both this limit and
/// [`PARALLELISM_MAX`] may have more finished indexes than fit into its status.
const COMPLETIONS_MAX: i64 = 100_000;
const PARALLELISM_MAX: i64 = 10_000;

pub(super) fn job(texts: &mut Texts, written: WrittenObject) {
    if written.old.is_none() {
        texts.host_name(written, POD_NAMES);
    }
    if written.is_specified_anew() {
        job_spec(texts, &SPEC, written.view().child("spec"), written.naming);
    }
}

fn job_spec(texts: &mut Texts, path: &FieldPath, spec: StructView, naming: &Naming) {
    let is_over = |name: &str, most: i64| spec.int(name).is_some_and(|number| number > most);
    if spec.text("completionMode") == "Indexed"
        && is_over("completions", COMPLETIONS_MAX)
        && is_over("parallelism", PARALLELISM_MAX)
    {
        texts.at(
            path,
            "In Indexed Jobs with a number of completions higher than 10^5 and a parallelism higher than 10^4, \
             Kubernetes might not be able to track completedIndexes when a big number of indexes fail",
        );
    }
    pod::template(texts, &path.child("template"), spec.child("template"), naming);
}

fn cron_job(texts: &mut Texts, written: WrittenObject) {
    if written.old.is_none() {
        texts.host_name(written, POD_NAMES);
    }
    let spec = written.view().child("spec");
    if written.is_specified_anew() {
        let template = SPEC.child("jobTemplate");
        job_spec(texts, &template.child("spec"), spec.child("jobTemplate").child("spec"), written.naming);
    }
    if spec.text("schedule").contains("TZ") {
        texts.add(
            "cannot use TZ or CRON_TZ in spec.spec.schedule, use timeZone instead, see \
             https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/ for more details",
        );
    }
}

pub(super) fn node(texts: &mut Texts, written: WrittenObject) {
    let spec = written.view().child("spec");
    if spec.has("configSource") {
        texts.at(SPEC.child("configSource"), "the feature is removed");
    }
    if !spec.text("externalID").is_empty() {
        texts.at(SPEC.child("externalID"), "this field is deprecated, and is unused by Kubernetes");
    }
    let list = SPEC.child("podCIDRs");
    for (at, range) in spec.texts("podCIDRs").enumerate() {
        network::range(texts, list.index(at), range);
    }
}

pub(super) fn service_account(texts: &mut Texts, written: WrittenObject) {
    let annotation = written.naming.label("enforce-mountable-secrets");
    let had = written.old.is_some_and(|old| {
        StructView::from_object(old).child("metadata").child("annotations").text(&annotation) == "true"
    });
    if !had && written.view().child("metadata").child("annotations").text(&annotation) == "true" {
        texts.at(
            format_args!("metadata.annotations[{annotation}]"),
            "deprecated in v1.32+; prefer separate namespaces to isolate access to mounted secrets",
        );
    }
}

/// Warns about names that are reserved for objects from files that the server reads at its start.
pub(super) fn reserved_name(texts: &mut Texts, written: WrittenObject) {
    let suffix = format!(".{}", written.naming.group("static", true));
    if written.view().child("metadata").text("name").ends_with(&suffix) {
        let suffix = go_quote(&suffix);
        let text = format!(
            "names ending with {suffix} are reserved for static manifest-based configurations and cannot be managed via the API"
        );
        texts.at("metadata.name", &text);
    }
}

fn runtime_class(texts: &mut Texts, written: WrittenObject) {
    let selector = written.view().child("scheduling").child("nodeSelector");
    for (label, _) in selector.members() {
        if let Some(why) = node_label_deprecation(label, written.naming) {
            texts.at("scheduling.nodeSelector", &why);
        }
    }
}

impl Texts {
    /// Runs `advice` and returns the texts in the order in which `advice` added the texts.
    pub(super) fn collect(advice: Advice, written: WrittenObject) -> Vec<String> {
        let mut texts = Texts::default();
        advice(&mut texts, written);
        texts.0
    }
}

#[cfg(test)]
#[path = "warnings_test.rs"]
mod tests;
