//! The checks of pod security, with the levels and releases in which each check applies, and the evaluation
//! of a pod.
//!
//! The restricted level includes the checks of the baseline level. If the restricted level has a stricter
//! check of the same property, that check replaces the baseline check. Source: the Pod Security Standards of
//! the Kubernetes documentation.

mod baseline;
mod offenders;
mod restricted;

use std::borrow::Cow;

use super::level::{Level, LevelVersion, Version};
use objects::validation::StructView;
use values::naming::Naming;

/// A pod, or a pod template.
#[derive(Clone, Copy)]
pub struct Pod<'p> {
    /// The value of `metadata.annotations`.
    pub annotations: StructView<'p>,
    /// The specification at `spec`.
    pub spec: StructView<'p>,
    /// The naming profile, for names of annotations.
    pub naming: &'p Naming,
}

/// A container of a pod.
#[derive(Clone, Copy)]
struct Container<'p> {
    name: &'p str,
    body: StructView<'p>,
    /// The value of `securityContext`.
    context: StructView<'p>,
}

impl<'p> Pod<'p> {
    /// Returns the pod in an object with `metadata` and `spec`.
    pub fn new(object: StructView<'p>, naming: &'p Naming) -> Pod<'p> {
        let annotations = object.child("metadata").child("annotations");
        Pod { annotations, spec: object.child("spec"), naming }
    }

    /// Returns the value of `spec.securityContext`.
    fn context(self) -> StructView<'p> {
        self.spec.child("securityContext")
    }

    /// Returns the name of the annotation that set the seccomp profile of a pod before the field existed.
    pub fn seccomp_annotation(self) -> String {
        format!("seccomp.security.alpha.{}/pod", self.naming.domain)
    }

    /// Returns the name of the annotation that set the seccomp profile of one container before the field
    /// existed.
    pub fn seccomp_annotation_of(self, container: &str) -> String {
        format!("container.seccomp.security.alpha.{}/{container}", self.naming.domain)
    }

    /// Returns the containers of all three kinds, in the order in which they may run.
    fn containers(self) -> impl Iterator<Item = Container<'p>> {
        ["initContainers", "containers", "ephemeralContainers"].into_iter().flat_map(move |list| {
            self.spec.structs(list).map(|body| Container {
                name: body.text("name"),
                body,
                context: body.child("securityContext"),
            })
        })
    }

    fn is_windows(self) -> bool {
        self.spec.child("os").text("name") == "windows"
    }

    /// Returns whether the pod has its own user namespace. With a user namespace, root in the pod is not root
    /// on the node.
    fn has_user_namespace(self) -> bool {
        self.spec.flag("hostUsers") == Some(false)
    }
}

/// A reason why a pod is not allowed: `reason (detail)`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Violation {
    /// The check that failed, in words.
    pub reason: Cow<'static, str>,
    /// The fields of the pod that made the check fail.
    pub detail: String,
}

impl Violation {
    fn new(reason: impl Into<Cow<'static, str>>, detail: impl Into<String>) -> Option<Violation> {
        Some(Violation { reason: reason.into(), detail: detail.into() })
    }
}

/// A function that checks a pod and returns the violation, if any.
type CheckFunction = fn(Pod<'_>) -> Option<Violation>;

/// A check of a level.
struct Check {
    /// The variants of the check, each with the first minor release in which the variant applies. A variant
    /// applies until the release of the next variant.
    forms: &'static [(u64, CheckFunction)],
    /// The position in [`BASELINE`] of the check that this check replaces.
    replaces: Option<usize>,
}

impl Check {
    fn form(&self, version: Version) -> Option<CheckFunction> {
        let applies = |since: u64| Version::Minor(since) <= version;
        self.forms.iter().rev().find(|(since, _)| applies(*since)).map(|(_, check)| *check)
    }
}

const fn check(forms: &'static [(u64, CheckFunction)]) -> Check {
    Check { forms, replaces: None }
}

const CAPABILITIES: usize = 1;
const HOST_PATHS: usize = 3;
const PROC_MOUNT: usize = 7;
const SECCOMP: usize = 9;

/// The checks of the baseline level, sorted by the bytes of the check names. Messages list violations in this
/// order.
static BASELINE: &[Check] = &[
    check(&[(0, baseline::app_armor)]),
    check(&[(0, baseline::capabilities)]),
    check(&[(0, baseline::host_namespaces)]),
    check(&[(0, baseline::host_paths)]),
    check(&[(0, baseline::host_ports)]),
    check(&[(34, baseline::probe_hosts)]),
    check(&[(0, baseline::privileged)]),
    check(&[(0, baseline::proc_mount), (35, baseline::proc_mount_on_node)]),
    check(&[(0, baseline::se_linux), (31, baseline::se_linux_with_engine)]),
    check(&[(0, baseline::seccomp_annotations), (19, baseline::seccomp)]),
    check(&[
        (0, baseline::sysctls),
        (27, baseline::sysctls_1_27),
        (29, baseline::sysctls_1_29),
        (32, baseline::sysctls_1_32),
    ]),
    check(&[(0, baseline::host_process)]),
];

/// The checks that the restricted level adds, also sorted by the bytes of the check names.
static RESTRICTED: &[Check] = &[
    check(&[(8, restricted::privilege_escalation), (25, restricted::privilege_escalation_on_linux)]),
    Check {
        forms: &[(22, restricted::capabilities), (25, restricted::capabilities_on_linux)],
        replaces: Some(CAPABILITIES),
    },
    Check { forms: &[(35, baseline::proc_mount)], replaces: Some(PROC_MOUNT) },
    Check { forms: &[(0, restricted::volumes)], replaces: Some(HOST_PATHS) },
    check(&[(0, restricted::run_as_non_root), (35, restricted::run_as_non_root_on_node)]),
    check(&[(23, restricted::run_as_user), (35, restricted::run_as_user_on_node)]),
    Check {
        forms: &[(19, restricted::seccomp), (25, restricted::seccomp_on_linux)],
        replaces: Some(SECCOMP),
    },
];

/// Returns the violations of the level `at` that a pod contains.
pub fn evaluate(at: LevelVersion, pod: Pod<'_>) -> Vec<Violation> {
    let restricted = if at.level == Level::Restricted { RESTRICTED } else { &[] };
    let restricted = restricted.iter().filter_map(|check| Some((check.replaces, check.form(at.version)?)));
    let baseline = if at.level == Level::Privileged { &[] } else { BASELINE };
    let is_replaced = |at: usize| restricted.clone().any(|(replaces, _)| replaces == Some(at));
    baseline
        .iter()
        .enumerate()
        .filter(|(position, _)| !is_replaced(*position))
        .filter_map(|(_, check)| check.form(at.version))
        .chain(restricted.clone().map(|(_, form)| form))
        .filter_map(|form| form(pod))
        .collect()
}

/// Formats violations as `reason (detail), reason (detail)`.
pub fn details(violations: &[Violation]) -> String {
    let shown: Vec<_> = violations.iter().map(|v| format!("{} ({})", v.reason, v.detail)).collect();
    shown.join(", ")
}

/// Formats violations as `reason, reason`.
pub fn reasons(violations: &[Violation]) -> String {
    let shown: Vec<&str> = violations.iter().map(|violation| &*violation.reason).collect();
    shown.join(", ")
}

#[cfg(test)]
#[path = "checks/checks_test.rs"]
mod tests;
