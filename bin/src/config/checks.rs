//! Problems with the flags, all reported together, so that an operator who corrects one mistake does not meet
//! the next one at the following start.
//!
//! The checks look only at the values, not at the files they name, in the order of kube-apiserver. Every
//! value is checked again where it is used.

use std::fmt::Display;
use std::net::IpAddr;

use anyhow::anyhow;
use types::enablement::Enablement;
use types::features::Features;
use types::schema::registry::Registry;

use crate::audit;
use crate::config::authorization;
use crate::config::etcd;
use crate::flags::Flags;
use crate::host::machine;

/// Problems in the order in which they were found, without duplicates.
#[derive(Debug, Default)]
pub struct Flaws(Vec<String>);

impl Flaws {
    /// Adds the error of a check, if the check failed.
    pub fn take<V, E: Display>(&mut self, checked: Result<V, E>) {
        if let Err(why) = checked {
            self.push(format!("{why:#}"));
        }
    }

    /// Adds a problem, unless it is known already.
    pub fn push(&mut self, why: String) {
        if !self.0.contains(&why) {
            self.0.push(why);
        }
    }

    /// Succeeds if there are no problems.
    ///
    /// # Errors
    /// All problems on one line; several problems are in brackets.
    pub fn none(self) -> anyhow::Result<()> {
        go::join_errors(self.0).map_or(Ok(()), |flaws| Err(anyhow!(flaws)))
    }
}

/// Checks the flags that kube-apiserver checks together.
///
/// # Errors
/// All problems with these flags.
pub fn check(flags: &Flags) -> anyhow::Result<()> {
    // Errors in the flags of releases and gates are reported alone.
    let asked = flags.compatibility.asked().map_err(anyhow::Error::msg)?;
    let releases = asked.releases().unwrap_or_default();
    Features::parse(&flags.feature_gates.join(","), releases).map_err(anyhow::Error::msg)?;
    let mut flaws = Flaws::default();
    flags.fairness.check(&mut flaws);
    flags.edge.check(&mut flaws);
    flags.compatibility.check(asked, &mut flaws);
    if flags.secrecy.encryption_provider_config.is_none() {
        flaws.take(flags.secrecy.encryption(flags.naming));
    }
    flaws.take(etcd::check_storage(&flags.etcd));
    let is_shared = flags.fairness.enable_priority_and_fairness;
    flaws.take(crate::config::check_flow_control(is_shared, &flags.runtime_config, flags.naming));
    flaws.take(crate::config::port(flags.secure_port));
    authorization::check(&flags.authorization, &mut flaws);
    audit::check(&flags.audit, &flags.audit_webhook, &mut flaws);
    flags.admission.check(flags.naming, &mut flaws);
    flaws.take(Enablement::parse(&flags.runtime_config.join(","), &Registry::new(flags.naming)));
    flaws.take(crate::config::check_hidden_metrics(flags.metrics.show_hidden_metrics_for_version.as_deref()));
    flags.metrics.check(&mut flaws);
    let networks = flags.networks().0;
    flaws.take(api::state::allocation::Ranges::check_networks(&networks).map_err(anyhow::Error::msg));
    flags.check_node_port(&mut flaws);
    // A machine with addresses of only one family may still use the default range.
    if let Some(first) = networks.first().filter(|_| flags.service_cluster_ip_range.is_some())
        && flags.own_service.settings().is_ok_and(|own| own.has_endpoints)
        && let Some(public) = public_address(flags)
        && !first.is_of_family(public)
    {
        flaws.push(format!("service IP family \"{first}\" must match public address family \"{public}\""));
    }
    flaws.none()
}

/// Returns the address under which other machines reach the server, as far as it is known before the server
/// listens.
fn public_address(flags: &Flags) -> Option<IpAddr> {
    let bound = std::net::SocketAddr::new(flags.bind_address, 0);
    let configured = flags.advertise_address.filter(|address| !address.is_unspecified());
    machine::advertised_address(bound, configured).map(|address| address.ip())
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use super::*;
    use crate::flags;

    #[test]
    fn all_that_is_wrong_is_told_once_and_in_order() {
        for (arguments, want) in [
            ("", ""),
            (
                "--max-requests-inflight=-1 --max-mutating-requests-inflight=-1 --goaway-chance=1",
                "[--max-requests-inflight can not be negative value, --max-mutating-requests-inflight can not be negative \
                 value, --goaway-chance can not be less than 0 or greater than 0.02]",
            ),
            (
                "--strict-transport-security-directives=a,b --cors-allowed-origins=a",
                "[--strict-transport-security-directives invalid, allowed values: max-age=expireTime, includeSubDomains, \
                 preload. see https://tools.ietf.org/html/rfc6797#section-6.1 for more information, --cors-allowed-origins \
                 has an invalid regular expression: regular expression does not pin to start/end of host in the origin \
                 header, help: ",
            ),
            (
                "--runtime-config=api/all=false",
                "[--runtime-config=api/all=false conflicts with --enable-priority-and-fairness=true, invalid key with only \
                 api/all=false]",
            ),
            (
                "--audit-log-path=- --audit-log-mode=x --audit-log-version=y --audit-log-format=z",
                "[invalid audit log mode x, allowed modes are \"batch,blocking,blocking-strict\", invalid group version, \
                 allowed versions are [\"audit.k8s.io/v1\"], invalid audit log format z, allowed formats are \
                 \"legacy,json\"]",
            ),
            (
                "--encryption-provider-config-automatic-reload --storage-media-type=x",
                "[--encryption-provider-config-automatic-reload must be set with --encryption-provider-config, \
                 --storage-media-type \"x\" invalid, allowed values: application/json, \
                 application/vnd.kubernetes.protobuf, application/yaml]",
            ),
            (
                "--kubernetes-service-node-port=40000",
                "kubernetes service node port range 30000-32767 doesn't contain 40000",
            ),
            (
                "--kubernetes-service-node-port=65536",
                "[--kubernetes-service-node-port 65536 must be between 0 and 65535, inclusive. If 0, the Kubernetes master \
                 service will be of type ClusterIP, kubernetes service node port range 30000-32767 doesn't contain 65536]",
            ),
            (
                "--service-cluster-ip-range=10.0.0.0/24 --advertise-address=::1",
                "service IP family \"10.0.0.0/24\" must match public address family \"::1\"",
            ),
            (
                "--emulation-forward-compatible --runtime-config-emulation-forward-compatible=true",
                "[ServerRunOptions.EmulationForwardCompatible cannot be set to true if the emulation version is the same as \
                 the binary version, ServerRunOptions.RuntimeConfigEmulationForwardCompatible cannot be set to true if the \
                 emulation version is the same as the binary version]",
            ),
            ("--emulation-forward-compatible --emulated-version=1.35", ""),
            ("--emulated-version=x --goaway-chance=1", "could not parse \"x\" as version"),
            ("--feature-gates=DryRun --goaway-chance=1", "missing bool value for DryRun"),
            (
                "--emulated-version=1.37 --goaway-chance=1 --enable-admission-plugins=A",
                "[--goaway-chance can not be less than 0 or greater than 0.02, emulation version 1.37 is not between [1.33, \
                 1.36], enable-admission-plugins plugin \"A\" is unknown]",
            ),
            (
                "--admission-control=A --disable-admission-plugins=",
                "[admission-control and enable-admission-plugins/disable-admission-plugins flags are mutually exclusive, \
                 admission-control plugin \"A\" is unknown]",
            ),
            (
                "--authorization-mode=Nope --audit-log-path=- --audit-log-mode=x --enable-admission-plugins=A",
                "[authorization-mode \"Nope\" is not a valid mode, invalid audit log mode x, allowed modes are \
                 \"batch,blocking,blocking-strict\", enable-admission-plugins plugin \"A\" is unknown]",
            ),
            ("--enable-admission-plugins=LimitRanger,", "enable-admission-plugins plugin \"\" is unknown"),
            (
                "--service-cluster-ip-range=fd00::/64 --advertise-address=10.1.1.1",
                "service IP family \"fd00::/64\" must match public address family \"10.1.1.1\"",
            ),
            (
                "--service-cluster-ip-range=fd00::/64 --advertise-address=10.1.1.1 --endpoint-reconciler-type=none",
                "",
            ),
            ("--service-cluster-ip-range=fd00::/64 --advertise-address=fd01::1", ""),
            ("--advertise-address=fd01::1", ""),
        ] {
            let words = std::iter::once("cluster-apiserver").chain(arguments.split_whitespace());
            let flags = flags::parse(words.map(OsString::from)).unwrap().flags();
            let got = check(&flags).map_or_else(|error| error.to_string(), |()| String::new());
            assert!(got.starts_with(want) && got.is_empty() == want.is_empty(), "{arguments}: {got}");
        }
    }
}
