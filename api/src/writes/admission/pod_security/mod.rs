//! The plugin PodSecurity: pods must comply with the level of their namespace.
//!
//! ```text
//! labels of the namespace, defaults ─► policy: a level and version to enforce, to audit, to warn about
//! pod, template of a workload       ─► checks of that level ─► violations ─► 403 · annotation · warning
//! ```
//!
//! The plugin can refuse pods, but never refuses templates, because the pods of a template are checked when
//! they are created. When the level of a namespace becomes stricter, the writer gets warnings about existing
//! pods that the new level does not allow. The module `level` reads levels and policies, `checks` evaluates
//! pods, and `existing` checks the existing pods of a namespace. These modules do not depend on the write
//! (docs/api/pod-security.md).

mod checks;
mod config;
mod existing;
mod level;

use std::sync::Arc;

use checks::{Pod, details, evaluate};
use config::Config;
use level::{Level, LevelsByMode};

use super::parsed::Parsed;
use crate::writes::plugin::{AdmissionRecord, Operation, Plugin, Review, Step, Target};
use crate::writes::server::operations::Operations;
use crate::writes::server::store::ObjectStorage;
use crate::writes::server::types::TypeCatalog;
use crate::writes::server::{MakePlugin, Server};
use objects::validation::StructView;
use types::schema::registry::Resource;
use values::field::{FieldError, go_quote};
use values::json::{Object, Value};
use values::naming::Naming;
use values::object::meta;
use values::status::{Status, Subject};
use wire::metrics::Metrics;

/// Workloads by group and plural, with the path of the pod template.
const WORKLOADS: &[(&str, &str, &[&str])] = &[
    ("", "podtemplates", &["template"]),
    ("", "replicationcontrollers", &["spec", "template"]),
    ("apps", "replicasets", &["spec", "template"]),
    ("apps", "deployments", &["spec", "template"]),
    ("apps", "statefulsets", &["spec", "template"]),
    ("apps", "daemonsets", &["spec", "template"]),
    ("batch", "jobs", &["spec", "template"]),
    ("batch", "cronjobs", &["spec", "jobTemplate", "spec", "template"]),
];

/// Subresources of pods whose writes cannot change a field that a level checks.
const IGNORED: &[&str] =
    &["exec", "attach", "binding", "eviction", "log", "portforward", "proxy", "status", "token"];

/// The admission plugin PodSecurity.
pub struct PodSecurity {
    store: Arc<ObjectStorage>,
    types: Arc<TypeCatalog>,
    operations: Arc<Operations>,
    config: Arc<Config>,
    pods: Arc<Resource>,
    /// The policies of namespaces.
    policies: Parsed<(LevelsByMode, Vec<FieldError>)>,
}

/// Reads the configuration.
///
/// # Errors
/// Fails if the configuration is invalid; the text describes the error.
pub fn configure(config: Option<&Value>) -> Result<MakePlugin, String> {
    let config = Arc::new(config.map(Config::parse).transpose()?.unwrap_or_default());
    Ok(Arc::new(move |server| Arc::new(PodSecurity::new(server, config.clone()))))
}

impl PodSecurity {
    fn new(server: &Server, config: Arc<Config>) -> PodSecurity {
        let (defaults, naming) = (config.defaults, server.types.naming);
        PodSecurity {
            store: server.store.clone(),
            types: server.types.clone(),
            operations: server.operations.clone(),
            config,
            pods: server.types.resource("", "v1", "pods"),
            policies: Parsed::new(
                &server.store,
                server.types.resource("", "v1", "namespaces"),
                move |namespace| policy_of(namespace, naming, defaults),
            ),
        }
    }

    fn namespace<'p>(&'p self, record: &'p AdmissionRecord<'_, &Object>, review: &'p mut Review) -> Step<'p> {
        let Some(new) = record.new else { return Ok(()).into() };
        let (policy, errors) = policy_of(new, self.types.naming, self.config.defaults);
        let invalid = || {
            let table = &record.write.resource.table;
            let subject =
                Subject { group: &record.write.resource.group, kind: &table.kind, name: meta(new, "name") };
            Err(Status::invalid(subject, &errors))
        };
        let is_exempt = self.exempts_namespace(meta(new, "name"));
        let ignored = || self.ignored(new, policy).filter(|_| is_exempt);
        let Some(old) = record.old else {
            if !errors.is_empty() {
                return invalid().into();
            }
            review.warnings.extend(ignored());
            return Ok(()).into();
        };
        let (old_policy, old_errors) = policy_of(old, self.types.naming, self.config.defaults);
        if !errors.is_empty() && errors != old_errors {
            return invalid().into();
        }
        let (to, from) = (policy.enforce, old_policy.enforce);
        let relaxed = to.version == from.version && to.level <= from.level;
        if to.level == Level::Privileged || relaxed {
            return Ok(()).into();
        }
        if is_exempt {
            review.warnings.extend(ignored());
            return Ok(()).into();
        }
        Step::wait(async move {
            let is_exempt = |pod: &Object| self.exempts_class(StructView::from_object(pod).child("spec"));
            let found = existing::warnings(
                &self.store,
                self.types.naming,
                &self.pods,
                record.write.name,
                to,
                is_exempt,
            )
            .await?;
            review.warnings.extend(found);
            Ok(())
        })
    }

    /// Returns a warning for the writer of an exempt namespace whose labels set a policy. The policy has no
    /// effect.
    fn ignored(&self, namespace: &Object, policy: LevelsByMode) -> Option<String> {
        if policy.is_privileged() || policy.is_equivalent(self.config.defaults) {
            return None;
        }
        let labels = StructView::from_object(namespace).child("metadata").child("labels");
        let modes = [("enforce", policy.enforce), ("audit", policy.audit), ("warn", policy.warn)];
        let stated = modes.iter().filter(|(name, mode)| {
            let label = level::label(self.types.naming, name);
            mode.level != Level::Privileged && (labels.has(&label) || labels.has(&format!("{label}-version")))
        });
        let stated: Vec<String> = stated.map(|(name, mode)| format!("{name}={mode}")).collect();
        Some(format!(
            "namespace {} is exempt from Pod Security, and the policy ({}) will be ignored",
            go_quote(meta(namespace, "name")),
            stated.join(", ")
        ))
    }

    /// Checks a pod, or a workload with a pod template.
    fn pods(&self, record: &AdmissionRecord<'_, &Object>, review: &mut Review) -> Result<(), Status> {
        let Some(new) = record.new else { return Ok(()) };
        let naming = self.types.naming;
        let mut annotate = |name: &str, value: String| {
            review.annotations.push((level::label(naming, name), value));
        };
        let counts = Counts::new(&self.operations.metrics, record);
        if self.exempts_namespace(record.write.namespace) {
            annotate("exempt", "namespace".to_owned());
            counts.exempted();
            return Ok(());
        }
        if self.config.exempt.users.contains(&record.write.user.name) {
            annotate("exempt", "user".to_owned());
            counts.exempted();
            return Ok(());
        }
        let Some(of_namespace) = self.policies.get(&self.store, "", record.write.namespace)? else {
            return Err(Status::internal(format_args!(
                "failed to lookup namespace {}",
                record.write.namespace
            )));
        };
        let (policy, errors) = &*of_namespace;
        let template = WORKLOADS.iter().find(|(group, plural, _)| record.write.resource.is_of(group, plural));
        let whole = StructView::from_object(new);
        let object = match template {
            None => whole,
            Some((_, _, path)) => path.iter().fold(whole, |view, name| view.child(name)),
        };
        let enforces = template.is_none();
        if errors.is_empty() && policy.is_privileged() || !object.is_there() {
            if enforces && errors.is_empty() && record.old.is_none() {
                annotate("enforce-policy", policy.enforce.to_string());
            }
            return Ok(());
        }
        let pod = Pod::new(object, naming);
        let is_changed = |old| is_significant(pod, Pod::new(StructView::from_object(old), naming));
        if enforces && record.old.is_some_and(|old| !is_changed(old)) {
            return Ok(());
        }
        if self.exempts_class(pod.spec) {
            annotate("exempt", "runtimeClass".to_owned());
            counts.exempted();
            return Ok(());
        }
        if let Some(errors) = go::join_errors(errors) {
            annotate("error", format!("Failed to parse policy: {errors}"));
        }
        let would = |mode, level: level::LevelVersion| {
            let violations = evaluate(level, pod);
            if level.level != Level::Privileged {
                counts.evaluated(mode, level, violations.is_empty());
            }
            (!violations.is_empty())
                .then(|| format!("violate PodSecurity \"{level}\": {}", details(&violations)))
        };
        let mut refusal = None;
        if enforces {
            annotate("enforce-policy", policy.enforce.to_string());
            let violations = evaluate(policy.enforce, pod);
            counts.evaluated("enforce", policy.enforce, violations.is_empty());
            if !violations.is_empty() {
                let why = format!("violates PodSecurity \"{}\": {}", policy.enforce, details(&violations));
                refusal = Some(record.forbidden(&why));
            }
        }
        if let Some(would) = would("audit", policy.audit) {
            annotate("audit-violations", format!("would {would}"));
        }
        if let Some(refusal) = refusal {
            return Err(refusal);
        }
        if let Some(would) = would("warn", policy.warn) {
            review.warnings.push(format!("would {would}"));
        }
        Ok(())
    }

    fn exempts_namespace(&self, namespace: &str) -> bool {
        self.config.exempt.namespaces.iter().any(|exempt| exempt == namespace)
    }

    fn exempts_class(&self, spec: StructView<'_>) -> bool {
        let class = spec.text("runtimeClassName");
        !class.is_empty() && self.config.exempt.runtime_classes.iter().any(|exempt| exempt == class)
    }
}

impl Plugin for PodSecurity {
    fn handles(&self, target: &Target<'_>) -> bool {
        if !matches!(target.operation, Operation::Create | Operation::Update) {
            return false;
        }
        if target.resource.is_of("", "pods") {
            return !IGNORED.contains(&target.subresource);
        }
        target.is("", "namespaces") || WORKLOADS.iter().any(|(group, plural, _)| target.is(group, plural))
    }

    fn validate<'p>(&'p self, record: &'p AdmissionRecord<'_, &Object>, review: &'p mut Review) -> Step<'p> {
        if record.write.resource.is_of("", "namespaces") {
            self.namespace(record, review)
        } else {
            self.pods(record, review).into()
        }
    }
}

/// The counters for the outcomes of one write.
struct Counts<'w> {
    metrics: &'w Metrics,
    operation: &'static str,
    resource: &'static str,
    subresource: &'w str,
}

impl<'w> Counts<'w> {
    fn new(metrics: &'w Metrics, record: &'w AdmissionRecord<'_, &Object>) -> Counts<'w> {
        Counts {
            metrics,
            operation: if record.old.is_none() { "create" } else { "update" },
            resource: if record.write.resource.is_of("", "pods") { "pod" } else { "controller" },
            subresource: record.subresource,
        }
    }

    fn exempted(&self) {
        let labels = [self.operation, self.resource, self.subresource];
        self.metrics.pod_security_exemptions.count(&labels);
    }

    fn evaluated(&self, mode: &str, level: level::LevelVersion, is_allowed: bool) {
        let (decision, shown) = (if is_allowed { "allow" } else { "deny" }, level.to_string());
        let (level, version) = shown.split_once(':').unwrap_or((&shown, "latest"));
        let labels = [decision, mode, "", level, version, self.operation, self.resource, self.subresource];
        self.metrics.pod_security.count(&labels);
    }
}

fn policy_of(namespace: &Object, naming: &Naming, defaults: LevelsByMode) -> (LevelsByMode, Vec<FieldError>) {
    LevelsByMode::of_labels(
        StructView::from_object(namespace).child("metadata").child("labels"),
        naming,
        defaults,
    )
}

/// Returns whether an update of a pod changes a field that a level checks. Only a few such fields can change.
fn is_significant(new: Pod<'_>, old: Pod<'_>) -> bool {
    let changed = |name: &str| new.annotations.text(name) != old.annotations.text(name);
    let same = |a: StructView<'_>, b: StructView<'_>| {
        a.text("image") == b.text("image") && !changed(&new.seccomp_annotation_of(a.text("name")))
    };
    let listed = ["containers", "initContainers"].into_iter().any(|list| {
        let (a, b) = (new.spec.structs(list), old.spec.structs(list));
        a.len() != b.len() || a.zip(b).any(|(a, b)| !same(a, b))
    });
    let was = |container: StructView<'_>| {
        let name = container.text("name");
        old.spec.structs("ephemeralContainers").find(|old| old.text("name") == name)
    };
    changed(&new.seccomp_annotation())
        || listed
        || new
            .spec
            .structs("ephemeralContainers")
            .any(|container| was(container).is_none_or(|old| !same(container, old)))
}

#[cfg(test)]
#[path = "pod_security_test.rs"]
mod tests;
