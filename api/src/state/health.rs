//! Health endpoints: `/livez`, `/readyz`, `/healthz` and their individual checks
//! (docs/api/operations.md#health).
//!
//! The checks report the state of this process: which startup steps are done, whether the store accepts writes,
//! and whether the process is shutting down. Each startup step has several names in kube-apiserver, and probes
//! can use these names. Each name has a check, which passes when this server has completed the corresponding
//! step.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::time::Instant;

use engine::{Durability, LossCounts};
use http::StatusCode;

use crate::state::secrecy::Secrecy;
use objects::store::backends::{Backend, Backends};
use values::naming::Naming;
use values::query::Query;
use wire::metrics::Metrics;
use wire::metrics::requests::Labels;
use wire::response::{Response, respond_text};
use wire::server::LifecycleStage;

/// The inputs of the checks.
pub struct HealthInputs<'c> {
    /// The stores that keep the objects.
    pub backends: &'c Backends,
    /// Startup and shutdown state of the process.
    pub stage: LifecycleStage,
    /// The naming profile, for names of checks.
    pub naming: &'static Naming,
    /// Encryption of stored values, if configured.
    pub secrecy: Option<&'c Secrecy>,
    /// Whether liveness ignores startup steps that are not done.
    pub within_grace: bool,
    /// Whether flow control shares the server among requests.
    pub is_shared: bool,
    /// Whether this server has a client certificate for extension servers.
    pub has_certificate: bool,
    /// The counters of `/metrics`.
    pub metrics: &'c Metrics,
}

impl HealthInputs<'_> {
    fn has(&self, part: OptionalPart) -> bool {
        match part {
            OptionalPart::Ledger => self.backends.main().ledger().is_some(),
            OptionalPart::Apart(at) => self.backends.separate().nth(at).is_some(),
            OptionalPart::Keys => self.secrecy.is_some_and(Secrecy::has_services),
            OptionalPart::FairShares => self.is_shared,
            OptionalPart::Bounds => !self.is_shared,
            OptionalPart::Certificate => self.has_certificate,
        }
    }
}

/// An optional part of the server. The health checks of an optional part exist only on servers with this
/// part.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum OptionalPart {
    /// A ledger outside this server that decides writes.
    Ledger,
    /// The backend with this index, for resources that have a separate store.
    Apart(usize),
    /// Key management services for encryption.
    Keys,
    /// Flow control that shares the server among requests.
    FairShares,
    /// Limits for all requests together, without flow control.
    Bounds,
    /// A client certificate for extension servers.
    Certificate,
}

/// The result of a check: success, or the reason of the failure.
type Verdict = Result<(), String>;

/// The condition that a check tests.
#[derive(Clone, Copy)]
enum Test {
    /// The process responds.
    Answers,
    /// The store accepts writes.
    Store,
    /// The ledger can decide writes.
    Ledger,
    /// The separate store with this index accepts writes.
    Apart(usize),
    /// The key management services are healthy.
    Keys,
    /// The startup has reached this stage.
    Reached(LifecycleStage),
    /// No shutdown has begun.
    Stays,
}

/// A named check.
struct Check {
    /// The name, with placeholders that the naming profile fills.
    name: &'static str,
    test: Test,
    endpoints: &'static [Endpoint],
    /// The optional part of the server that the check tests. Without this part, the check does not exist.
    needs: Option<OptionalPart>,
}

/// The endpoints that combine checks.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Endpoint {
    Livez,
    Readyz,
    Healthz,
}

use Endpoint::{Healthz, Livez, Readyz};

const ALL: &[Endpoint] = &[Healthz, Livez, Readyz];

/// Placeholder for the name of the store's check, which the naming profile defines.
const STORE: &str = "{store}";

/// Placeholder for the name of the second check of the store, which is part of readiness only.
const READINESS: &str = "{store}-readiness";

/// Name of the check of the store's ledger.
const LEDGER: &str = "etcd";

const fn check(name: &'static str, test: Test, endpoints: &'static [Endpoint]) -> Check {
    Check { name, test, endpoints, needs: None }
}

const fn step(name: &'static str, reached: LifecycleStage) -> Check {
    check(name, Test::Reached(reached), ALL)
}

impl Check {
    const fn requiring(self, part: OptionalPart) -> Check {
        Check { needs: Some(part), ..self }
    }
}

/// All checks in the order in which they are listed. A store that refuses writes does not fail liveness,
/// because a restart does not free space on its disk.
const CHECKS: &[Check] = &[
    check("ping", Test::Answers, ALL),
    check("log", Test::Answers, ALL),
    check(STORE, Test::Store, &[Healthz, Readyz]),
    check(STORE, Test::Ledger, &[Livez]),
    check(READINESS, Test::Store, &[Readyz]),
    check(LEDGER, Test::Ledger, ALL).requiring(OptionalPart::Ledger),
    check("etcd-readiness", Test::Ledger, &[Readyz]).requiring(OptionalPart::Ledger),
    check("etcd-override-0", Test::Apart(0), ALL).requiring(OptionalPart::Apart(0)),
    check("etcd-override-1", Test::Apart(1), ALL).requiring(OptionalPart::Apart(1)),
    check("etcd-override-readiness-0", Test::Apart(0), &[Readyz]).requiring(OptionalPart::Apart(0)),
    check("etcd-override-readiness-1", Test::Apart(1), &[Readyz]).requiring(OptionalPart::Apart(1)),
    check("kms-providers", Test::Keys, ALL).requiring(OptionalPart::Keys),
    check("informer-sync", Test::Reached(LifecycleStage::TypesServed), &[Readyz]),
    check("loopback-serving-certificate", Test::Answers, &[Healthz, Livez]),
    step("poststarthook/start-apiserver-admission-initializer", LifecycleStage::TypesServed),
    step("poststarthook/generic-apiserver-start-informers", LifecycleStage::TypesServed),
    step("poststarthook/priority-and-fairness-config-consumer", LifecycleStage::Bootstrapped)
        .requiring(OptionalPart::FairShares),
    step("poststarthook/priority-and-fairness-filter", LifecycleStage::Bootstrapped)
        .requiring(OptionalPart::FairShares),
    step("poststarthook/max-in-flight-filter", LifecycleStage::TypesServed).requiring(OptionalPart::Bounds),
    step("poststarthook/storage-object-count-tracker-hook", LifecycleStage::TypesServed),
    step("poststarthook/start-apiextensions-informers", LifecycleStage::TypesServed),
    step("poststarthook/start-apiextensions-controllers", LifecycleStage::Serving),
    step("poststarthook/crd-informer-synced", LifecycleStage::TypesServed),
    step("poststarthook/start-system-namespaces-controller", LifecycleStage::Serving),
    step("poststarthook/peer-endpoint-reconciler-controller", LifecycleStage::Serving),
    step("poststarthook/start-cluster-authentication-info-controller", LifecycleStage::Serving),
    step("poststarthook/start-kube-apiserver-identity-lease-controller", LifecycleStage::Serving),
    step("poststarthook/start-kube-apiserver-identity-lease-garbage-collector", LifecycleStage::Serving),
    step("poststarthook/storage-readiness", LifecycleStage::TypesServed),
    step("poststarthook/start-legacy-token-tracking-controller", LifecycleStage::Serving),
    step("poststarthook/start-service-ip-repair-controllers", LifecycleStage::Serving),
    step("poststarthook/rbac/bootstrap-roles", LifecycleStage::Bootstrapped),
    step("poststarthook/scheduling/bootstrap-system-priority-classes", LifecycleStage::Bootstrapped),
    step("poststarthook/priority-and-fairness-config-producer", LifecycleStage::Bootstrapped),
    step("poststarthook/bootstrap-controller", LifecycleStage::Serving),
    step("poststarthook/start-kubernetes-service-cidr-controller", LifecycleStage::Serving),
    step("poststarthook/aggregator-reload-proxy-client-cert", LifecycleStage::Serving)
        .requiring(OptionalPart::Certificate),
    step("poststarthook/start-kube-aggregator-informers", LifecycleStage::Serving),
    step("poststarthook/apiservice-status-local-available-controller", LifecycleStage::Serving),
    step("poststarthook/apiservice-status-remote-available-controller", LifecycleStage::Serving),
    step("poststarthook/apiservice-registration-controller", LifecycleStage::Serving),
    step("poststarthook/apiservice-wait-for-first-sync", LifecycleStage::Serving),
    step("poststarthook/apiservice-discovery-controller", LifecycleStage::Serving),
    step("poststarthook/kube-apiserver-autoregistration", LifecycleStage::Serving),
    step("autoregister-completion", LifecycleStage::Serving),
    step("poststarthook/apiservice-openapi-controller", LifecycleStage::Serving),
    step("poststarthook/apiservice-openapiv3-controller", LifecycleStage::Serving),
    check("shutdown", Test::Stays, &[Readyz]),
];

impl Check {
    fn name(&self, naming: &'static Naming) -> Cow<'static, str> {
        match self.name {
            STORE => naming.store_check.into(),
            READINESS => format!("{}-readiness", naming.store_check).into(),
            name if name.contains("kube") => {
                name.replace("kubernetes", naming.word).replace("kube-", naming.system_prefix).into()
            }
            name => name.into(),
        }
    }

    /// Runs the check and counts its outcome.
    fn counted(&self, checked: &HealthInputs<'_>, endpoint: Endpoint) -> Verdict {
        let verdict = self.run(checked, endpoint);
        let (name, health) = (self.name(checked.naming), &checked.metrics.health);
        let status = if verdict.is_ok() { "success" } else { "error" };
        health.state.set(&[&name, endpoint.name()], verdict.is_ok().into());
        health.counts.count(&[&name, status, endpoint.name()]);
        verdict
    }

    fn run(&self, checked: &HealthInputs<'_>, endpoint: Endpoint) -> Verdict {
        match self.test {
            Test::Answers => Ok(()),
            Test::Store => takes_writes(checked.backends.main()),
            Test::Ledger => checked.backends.main().ledger().map_or(Ok(()), |ledger| ledger.health()),
            Test::Apart(at) => checked.backends.separate().nth(at).map_or(Ok(()), takes_writes),
            Test::Keys => checked.secrecy.map_or(Ok(()), Secrecy::health),
            Test::Reached(stage) => {
                step_done(stage, checked.stage, endpoint == Livez && checked.within_grace)
            }
            Test::Stays if checked.stage >= LifecycleStage::Leaving => {
                Err("process is shutting down".to_owned())
            }
            Test::Stays => Ok(()),
        }
    }
}

fn takes_writes(backend: &Backend) -> Verdict {
    backend.engine().health().map_err(|error| error.to_string())?;
    backend.ledger().map_or(Ok(()), |ledger| ledger.health())
}

/// Passes if the startup has reached `required`, or if the grace period has not ended.
fn step_done(required: LifecycleStage, stage: LifecycleStage, within_grace: bool) -> Verdict {
    if stage >= required || within_grace { Ok(()) } else { Err("not finished".to_owned()) }
}

impl Endpoint {
    fn named(name: &str) -> Option<Endpoint> {
        ALL.iter().copied().find(|endpoint| endpoint.name() == name)
    }

    fn name(self) -> &'static str {
        self.path().trim_start_matches('/')
    }

    fn path(self) -> &'static str {
        match self {
            Livez => "/livez",
            Readyz => "/readyz",
            Healthz => "/healthz",
        }
    }

    /// Returns the checks of the endpoint. If the check of the store and the check of the ledger have the same
    /// name, the checks of the ledger are left out.
    fn checks(
        self,
        naming: &'static Naming,
        has: impl Fn(OptionalPart) -> bool,
    ) -> impl Iterator<Item = &'static Check> {
        let is_twice = naming.store_check == LEDGER;
        let is_there = move |check: &&Check| {
            check.needs.is_none_or(&has) && !(is_twice && check.needs == Some(OptionalPart::Ledger))
        };
        CHECKS.iter().filter(move |check| check.endpoints.contains(&self)).filter(is_there)
    }
}

/// Answers a health path; returns `None` for other paths. Requests for all checks of an endpoint are counted.
/// Requests for single checks are not counted.
pub fn respond(checked: &HealthInputs<'_>, path: &str, query: &Query) -> Option<Response> {
    let path = path.strip_prefix('/')?;
    let (name, single) = path.split_once('/').map_or((path, None), |(name, single)| (name, Some(single)));
    let endpoint = Endpoint::named(name)?;
    let Some(single) = single else {
        let began = Instant::now();
        let verdicts: Vec<(Cow<'_, str>, Verdict)> = endpoint
            .checks(checked.naming, |part| checked.has(part))
            .map(|check| (check.name(checked.naming), check.counted(checked, endpoint)))
            .collect();
        let verdicts: Vec<(&str, Verdict)> =
            verdicts.iter().map(|(name, verdict)| (&**name, verdict.clone())).collect();
        let is_relaxed = checked.backends.main().engine().durability() == Durability::Relaxed;
        let remarks = Remarks { is_relaxed, losses: checked.backends.unaccepted_losses() };
        let response = combined(endpoint, &verdicts, remarks, query);
        let requests = &checked.metrics.requests;
        return Some(match requests.measure(Labels::of_path(endpoint.path()), response.status(), began) {
            Some(measured) => response.map(|body| body.observed(measured)),
            None => response,
        });
    };
    let mut checks = endpoint.checks(checked.naming, |part| checked.has(part));
    let check = checks.find(|check| check.name(checked.naming) == single)?;
    Some(match check.counted(checked, endpoint) {
        Ok(()) => respond_text(StatusCode::OK, "ok"),
        Err(why) => {
            respond_text(StatusCode::INTERNAL_SERVER_ERROR, format!("internal server error: {why}\n"))
        }
    })
}

/// Conditions that an operator should know although no check fails.
#[derive(Clone, Copy, Default)]
struct Remarks {
    /// Whether writes are acknowledged before they are on disk.
    is_relaxed: bool,
    /// Losses of the store that the operator has not accepted.
    losses: LossCounts,
}

/// Returns the response of an endpoint with these results of its checks.
fn combined(endpoint: Endpoint, verdicts: &[(&str, Verdict)], remarks: Remarks, query: &Query) -> Response {
    let (text, failed) = report(endpoint, verdicts, remarks, query);
    if failed {
        respond_text(StatusCode::INTERNAL_SERVER_ERROR, text)
    } else if query.first("verbose").is_some() {
        respond_text(StatusCode::OK, text)
    } else {
        respond_text(StatusCode::OK, "ok")
    }
}

/// Returns a second name under which a check can be excluded. The second name of a check of an additional etcd is the
/// name of the same check of the first etcd.
fn group_of(name: &str) -> &str {
    match name.strip_prefix("etcd-override-") {
        Some(rest) if rest.starts_with("readiness-") => "etcd-readiness",
        Some(_) => LEDGER,
        None => name,
    }
}

/// Returns one line for each check and one line for the endpoint, and whether a check failed.
fn report(
    endpoint: Endpoint,
    verdicts: &[(&str, Verdict)],
    remarks: Remarks,
    query: &Query,
) -> (String, bool) {
    let excluded: BTreeSet<Cow<'_, str>> = query.all("exclude").map(Into::into).collect();
    let mut unmatched = excluded.clone();
    let mut failed = false;
    let mut lines = String::new();
    for (name, verdict) in verdicts {
        unmatched.remove(*name);
        if excluded.contains(*name) || excluded.contains(group_of(name)) {
            lines.push_str(&format!("[+]{name} excluded: ok\n"));
            continue;
        }
        match verdict {
            Ok(()) => lines.push_str(&format!("[+]{name} ok\n")),
            Err(why) => {
                tracing::debug!(endpoint = endpoint.name(), check = name, %why, "health check failed");
                failed = true;
                lines.push_str(&format!("[-]{name} failed: reason withheld\n"));
            }
        }
    }
    let Remarks { is_relaxed, losses } = remarks;
    if !losses.is_empty() {
        lines.push_str(&format!(
            "[+]store-losses {} lost revisions and {} unreadable records are not accepted: controllers that delete because \
             something is absent are off; stop the server and run accept-loss, or restore the store from a backup\n",
            losses.lost, losses.damaged
        ));
    }
    if is_relaxed {
        // Relaxed durability is not a failure, but the operator must be informed that an acknowledged write may not be
        // on disk.
        lines.push_str("[+]durability relaxed: a machine crash may lose the last acknowledged writes\n");
    }
    if !unmatched.is_empty() {
        let names: Vec<String> = unmatched.iter().map(|name| values::field::go_quote(name)).collect();
        lines.push_str(&format!(
            "warn: some health checks cannot be excluded: no matches for {}\n",
            names.join(",")
        ));
    }
    let outcome = if failed { "failed" } else { "passed" };
    lines.push_str(&format!("{} check {outcome}\n", endpoint.name()));
    (lines, failed)
}

/// Returns the paths outside the resource API, which the server adds to its list of all paths. `parts` are
/// the optional parts that the server has.
pub fn paths(naming: &'static Naming, parts: &[OptionalPart]) -> Vec<String> {
    let mut paths: Vec<String> = [
        "/.well-known/openid-configuration",
        "/metrics",
        "/metrics/slis",
        "/openapi/v2",
        "/openapi/v3",
        "/openapi/v3/",
        "/openid/v1/jwks",
        "/version",
        crate::state::backup::PATH,
    ]
    .map(str::to_owned)
    .into();
    for endpoint in ALL {
        let name = endpoint.name();
        paths.push(format!("/{name}"));
        let checks = endpoint.checks(naming, |part| parts.contains(&part));
        paths.extend(checks.map(|check| format!("/{name}/{}", check.name(naming))));
    }
    paths
}

#[cfg(test)]
mod tests {
    use super::*;
    use values::naming::{CLUSTER, KUBERNETES};

    #[test]
    fn startup_checks_fail_until_their_stage_is_reached_or_the_grace_period_ends() {
        for (required, stage, within_grace, done) in [
            (LifecycleStage::TypesServed, LifecycleStage::Starting, false, false),
            (LifecycleStage::TypesServed, LifecycleStage::TypesServed, false, true),
            (LifecycleStage::Bootstrapped, LifecycleStage::TypesServed, false, false),
            (LifecycleStage::Serving, LifecycleStage::Bootstrapped, true, true),
            (LifecycleStage::Serving, LifecycleStage::Bootstrapped, false, false),
            (LifecycleStage::Serving, LifecycleStage::Leaving, false, true),
        ] {
            let verdict = step_done(required, stage, within_grace);
            assert_eq!(verdict.is_ok(), done, "{required:?} at {stage:?}: {verdict:?}");
        }
    }

    #[test]
    fn losses_appear_in_readyz_with_a_remedy_but_do_not_fail_it() {
        let remarks = Remarks { losses: LossCounts { lost: 3, damaged: 1 }, ..Remarks::default() };
        let (text, failed) = report(Readyz, &[("ping", Ok(()))], remarks, &Query::parse("verbose"));
        let line = text.lines().nth(1).unwrap();
        assert!(
            line.starts_with("[+]store-losses 3 lost revisions and 1 unreadable records are not accepted"),
            "{text}"
        );
        assert!(line.contains("controllers that delete because something is absent are off"), "{text}");
        assert!(line.contains("accept-loss") && text.ends_with("readyz check passed\n") && !failed, "{text}");
    }

    #[test]
    fn health_reports_have_a_line_for_each_check() {
        let verdicts = [("ping", Ok(())), ("log", Err("no".to_owned()))];
        for (query, want) in [
            ("", "[+]ping ok\n[-]log failed: reason withheld\nreadyz check failed\n"),
            ("exclude=log", "[+]ping ok\n[+]log excluded: ok\nreadyz check passed\n"),
            (
                "exclude=log&exclude=nope&exclude=also&exclude=nope",
                "[+]ping ok\n[+]log excluded: ok\n\
                 warn: some health checks cannot be excluded: no matches for \"also\",\"nope\"\n\
                 readyz check passed\n",
            ),
            ("exclude=ping&exclude=log", "[+]ping excluded: ok\n[+]log excluded: ok\nreadyz check passed\n"),
            (
                "exclude=ping,log",
                "[+]ping ok\n[-]log failed: reason withheld\n\
                 warn: some health checks cannot be excluded: no matches for \"ping,log\"\n\
                 readyz check failed\n",
            ),
        ] {
            let (text, failed) = report(Readyz, &verdicts, Remarks::default(), &Query::parse(query));
            assert_eq!(text, want, "{query}");
            assert_eq!(failed, want.ends_with("failed\n"), "{query}");
        }
    }

    #[test]
    fn each_health_endpoint_has_its_own_checks() {
        let (paths, spec) = (paths(&KUBERNETES, &[OptionalPart::FairShares]), super::paths(&CLUSTER, &[]));
        let bounded = super::paths(&KUBERNETES, &[OptionalPart::Bounds, OptionalPart::Certificate]);
        for (name, is_shared) in [
            ("priority-and-fairness-config-consumer", true),
            ("priority-and-fairness-filter", true),
            ("max-in-flight-filter", false),
            ("aggregator-reload-proxy-client-cert", false),
        ] {
            let path = format!("/livez/poststarthook/{name}");
            assert_eq!((paths.contains(&path), bounded.contains(&path)), (is_shared, !is_shared), "{name}");
        }
        for (path, there) in [
            ("/livez/ping", true),
            ("/readyz/shutdown", true),
            ("/livez/shutdown", false),
            ("/healthz/shutdown", false),
            ("/readyz/informer-sync", true),
            ("/healthz/informer-sync", false),
            ("/readyz/etcd", true),
            ("/livez/etcd", true),
            ("/readyz/etcd-readiness", true),
            ("/livez/etcd-readiness", false),
            ("/healthz/poststarthook/rbac/bootstrap-roles", true),
        ] {
            assert_eq!(paths.iter().any(|known| known == path), there, "{path}");
        }
        assert!(spec.iter().any(|known| known == "/readyz/store"));
        let with_ledger = super::paths(&KUBERNETES, &[OptionalPart::Ledger]);
        for path in ["/livez/etcd", "/readyz/etcd", "/readyz/etcd-readiness"] {
            assert_eq!(with_ledger.iter().filter(|known| *known == path).count(), 1, "{path}");
        }
    }
}
