//! Tests of allocation for services. Each case has the spec that a client sends, and the stored spec or the
//! error.

use engine::{Change, Engine, Expected, Payload, Write};

use super::*;
use crate::state::allocation::{Allocations, Ranges};
use types::schema::registry::Registry;
use values::json::{parse, write};
use values::naming::KUBERNETES;
use values::testing::object;

/// A store with services, and an allocator.
struct Cluster {
    directory: std::path::PathBuf,
    engine: Engine,
    registry: Registry,
    allocations: Allocations,
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

impl Cluster {
    fn new(networks: &str, ports: &str) -> Cluster {
        let directory = std::env::temp_dir().join(format!("allocation-{}", values::names::uid()));
        let engine = Engine::open(engine::Options::new(&directory)).unwrap();
        let registry = Registry::new(&KUBERNETES);
        let ranges = Ranges {
            networks: Ranges::parse_networks(networks).unwrap(),
            ports: crate::state::allocation::Ports::parse(ports).unwrap(),
        };
        let allocations = Allocations::new(engine.clone(), &registry, ranges);
        Cluster { directory, engine, registry, allocations }
    }

    /// Begins a write and returns the spec that the write would store, or the error.
    fn begin(&self, spec: &str, old: Option<&str>) -> Result<(Object, Option<Reservation<'_>>), String> {
        let resource = self.registry.resource("", "v1", "services").unwrap();
        let of = |spec: &str| object(&format!(r#"{{"metadata":{{"name":"s"}},"spec":{spec}}}"#));
        let (mut service, old) = (of(spec), old.map(of));
        let reservation = self.allocations.begin(resource, &mut service, old.as_ref());
        let reservation = reservation.map_err(|status| {
            let text = status.into_message();
            text.split_once(" is invalid: ").map_or(text.clone(), |(_, cause)| cause.to_owned())
        })?;
        Ok((service, reservation))
    }

    fn spec_text(&self, spec: &str, old: Option<&str>) -> String {
        match self.begin(spec, old) {
            Ok((service, _)) => {
                let mut out = Vec::new();
                write(service.get("spec").unwrap(), &mut out);
                String::from_utf8(out).unwrap()
            }
            Err(text) => text,
        }
    }

    async fn store(&self, name: &str, service: Option<&Object>) {
        let change = match service {
            None => Change::Delete(None),
            Some(service) => {
                let mut value = Vec::new();
                write(&Value::Object(service.clone()), &mut value);
                Change::Put(Payload { value: value.into(), ..Payload::default() })
            }
        };
        let key = format!("/core/services/default/{name}").into();
        self.engine.commit(Write { key, expected: Expected::Any, change }).await.unwrap();
    }
}

/// The upper bands have one address and one port left, so the result is predictable.
#[tokio::test]
async fn a_new_service_gets_its_missing_addresses_and_ports() {
    // See docs/api/validation.md#services.
    let single = r#""ipFamilies":["IPv4"],"ipFamilyPolicy":"SingleStack""#;
    let cluster = Cluster::new("10.0.0.0/29", "30000-30001");
    for last in 2..=6 {
        let taken = object(&format!(r#"{{"spec":{{"clusterIPs":["10.0.0.{last}"]}}}}"#));
        cluster.store(&last.to_string(), Some(&taken)).await;
    }
    cluster.store("port", Some(&object(r#"{"spec":{"ports":[{"nodePort":30000}]}}"#))).await;
    for (spec, want) in [
        (
            r#"{"type":"ClusterIP"}"#,
            format!(r#"{{"type":"ClusterIP",{single},"clusterIP":"10.0.0.1","clusterIPs":["10.0.0.1"]}}"#),
        ),
        (
            r#"{"type":"ClusterIP","clusterIP":"10.0.0.1"}"#,
            format!(r#"{{"type":"ClusterIP","clusterIP":"10.0.0.1","clusterIPs":["10.0.0.1"],{single}}}"#),
        ),
        (
            r#"{"type":"ClusterIP","clusterIP":"None","selector":{"a":"b"}}"#,
            format!(
                r#"{{"type":"ClusterIP","clusterIP":"None","selector":{{"a":"b"}},"clusterIPs":["None"],{single}}}"#
            ),
        ),
        (
            r#"{"type":"ClusterIP","clusterIP":"None"}"#,
            r#"{"type":"ClusterIP","clusterIP":"None","clusterIPs":["None"],"ipFamilies":["IPv4","IPv6"],"ipFamilyPolicy":"RequireDualStack"}"#.to_owned(),
        ),
        (r#"{"type":"ExternalName"}"#, r#"{"type":"ExternalName"}"#.to_owned()),
        (
            r#"{"type":"ClusterIP","ipFamilyPolicy":"PreferDualStack"}"#,
            r#"{"type":"ClusterIP","ipFamilyPolicy":"PreferDualStack","ipFamilies":["IPv4"],"clusterIP":"10.0.0.1","clusterIPs":["10.0.0.1"]}"#.to_owned(),
        ),
        (
            r#"{"type":"NodePort","ports":[{"port":1},{"port":1,"protocol":"UDP"}]}"#,
            format!(
                r#"{{"type":"NodePort","ports":[{{"port":1,"nodePort":30001}},{{"port":1,"protocol":"UDP","nodePort":30001}}],{single},"clusterIP":"10.0.0.1","clusterIPs":["10.0.0.1"]}}"#
            ),
        ),
        (
            r#"{"type":"LoadBalancer","allocateLoadBalancerNodePorts":false,"ports":[{"port":1}]}"#,
            format!(
                r#"{{"type":"LoadBalancer","allocateLoadBalancerNodePorts":false,"ports":[{{"port":1}}],{single},"clusterIP":"10.0.0.1","clusterIPs":["10.0.0.1"]}}"#
            ),
        ),
        (
            r#"{"type":"LoadBalancer","allocateLoadBalancerNodePorts":false,"externalTrafficPolicy":"Local"}"#,
            format!(
                r#"{{"type":"LoadBalancer","allocateLoadBalancerNodePorts":false,"externalTrafficPolicy":"Local",{single},"clusterIP":"10.0.0.1","clusterIPs":["10.0.0.1"],"healthCheckNodePort":30001}}"#
            ),
        ),
        // Unavailable items.
        (
            r#"{"type":"ClusterIP","clusterIP":"10.0.0.2"}"#,
            r#"spec.clusterIPs: Invalid value: ["10.0.0.2"]: failed to allocate IP 10.0.0.2: provided IP is already allocated"#.to_owned(),
        ),
        (
            r#"{"type":"ClusterIP","clusterIP":"10.0.1.2"}"#,
            r#"spec.clusterIPs: Invalid value: ["10.0.1.2"]: failed to allocate IP 10.0.1.2: the provided network does not match the current range"#.to_owned(),
        ),
        (
            r#"{"type":"ClusterIP","clusterIP":"10.0.0.7"}"#,
            r#"spec.clusterIPs: Invalid value: ["10.0.0.7"]: failed to allocate IP 10.0.0.7: the provided IP (10.0.0.7) is not in the valid range. The range of valid IPs is 10.0.0.0/29"#.to_owned(),
        ),
        // The error for an address of a family without a network names the address, not the derived family.
        (
            r#"{"type":"ClusterIP","clusterIP":"FD00::1"}"#,
            r#"spec.clusterIPs[0]: Invalid value: ["FD00::1"]: IPv6 is not configured on this cluster"#.to_owned(),
        ),
        (
            r#"{"type":"ClusterIP","ipFamilies":["IPv4","IPv6"]}"#,
            r#"spec.ipFamilyPolicy: Invalid value: "SingleStack": must be 'RequireDualStack' or 'PreferDualStack' when multiple IP families are specified"#.to_owned(),
        ),
        (
            r#"{"type":"ClusterIP","ipFamilyPolicy":"RequireDualStack","ipFamilies":["IPv4","IPv6"]}"#,
            r#"[spec.ipFamilyPolicy: Invalid value: "RequireDualStack": this cluster is not configured for dual-stack services, spec.ipFamilies[1]: Invalid value: "IPv6": not configured on this cluster]"#.to_owned(),
        ),
        (
            r#"{"type":"ClusterIP","clusterIP":"None","ipFamilies":["IPv6"]}"#,
            r#"{"type":"ClusterIP","clusterIP":"None","ipFamilies":["IPv6","IPv4"],"clusterIPs":["None"],"ipFamilyPolicy":"RequireDualStack"}"#.to_owned(),
        ),
        (
            r#"{"type":"ClusterIP","clusterIP":"None","ipFamilies":["IPv6"],"ipFamilyPolicy":"SingleStack"}"#,
            r#"{"type":"ClusterIP","clusterIP":"None","ipFamilies":["IPv6"],"ipFamilyPolicy":"SingleStack","clusterIPs":["None"]}"#.to_owned(),
        ),
        (
            r#"{"type":"ClusterIP","clusterIP":"x"}"#,
            r#"spec.clusterIPs[0]: Invalid value: "x": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"#.to_owned(),
        ),
        (
            r#"{"type":"ClusterIP","clusterIPs":["10.0.0.1"]}"#,
            r#"spec.clusterIPs: Invalid value: ["10.0.0.1"]: must be empty when `clusterIP` is not specified"#.to_owned(),
        ),
        (
            r#"{"type":"ClusterIP","clusterIP":"10.0.0.1","clusterIPs":["10.0.0.3"]}"#,
            r#"spec.clusterIPs: Invalid value: ["10.0.0.3"]: first value must match `clusterIP`"#.to_owned(),
        ),
        (
            r#"{"type":"ClusterIP","ipFamilyPolicy":"RequireDualStack"}"#,
            r#"spec.ipFamilyPolicy: Invalid value: "RequireDualStack": this cluster is not configured for dual-stack services"#.to_owned(),
        ),
        (
            r#"{"type":"ClusterIP","ipFamilies":["IPv6"]}"#,
            r#"spec.ipFamilies[0]: Invalid value: "IPv6": not configured on this cluster"#.to_owned(),
        ),
        (
            r#"{"type":"NodePort","ports":[{"port":1,"nodePort":30000}]}"#,
            "spec.ports[0].nodePort: Invalid value: 30000: provided port is already allocated".to_owned(),
        ),
        (
            r#"{"type":"NodePort","ports":[{"port":1,"nodePort":1}]}"#,
            "spec.ports[0].nodePort: Invalid value: 1: provided port is not in the valid range. The range of valid \
             ports is 30000-30001"
                .to_owned(),
        ),
        (
            r#"{"type":"NodePort","ports":[{"port":1},{"port":2}]}"#,
            "Internal error occurred: failed to allocate a nodePort: range is full".to_owned(),
        ),
        (
            r#"{"type":"LoadBalancer","externalTrafficPolicy":"Local","healthCheckNodePort":30000}"#,
            "Internal error occurred: failed to allocate requested HealthCheck NodePort 30000: provided port is already allocated".to_owned(),
        ),
        // Only ports with equal numbers share a node port, and the health check port is never shared.
        (
            r#"{"type":"NodePort","ports":[{"port":1,"nodePort":30001},{"port":2,"protocol":"UDP","nodePort":30001}]}"#,
            "spec.ports[1].nodePort: Invalid value: 30001: provided port is already allocated".to_owned(),
        ),
        (
            r#"{"type":"NodePort","ports":[{"port":1,"nodePort":30001},{"port":1,"protocol":"UDP","nodePort":30001}]}"#,
            format!(
                r#"{{"type":"NodePort","ports":[{{"port":1,"nodePort":30001}},{{"port":1,"protocol":"UDP","nodePort":30001}}],{single},"clusterIP":"10.0.0.1","clusterIPs":["10.0.0.1"]}}"#
            ),
        ),
        (
            r#"{"type":"LoadBalancer","externalTrafficPolicy":"Local","healthCheckNodePort":30001,"ports":[{"port":1,"nodePort":30001}]}"#,
            "Internal error occurred: failed to allocate requested HealthCheck NodePort 30001: provided port is already allocated".to_owned(),
        ),
    ] {
        // Nothing was committed, so each case leaves the pools unchanged.
        assert_eq!(cluster.spec_text(spec, None), want, "{spec}");
    }
    cluster.store("1", Some(&object(r#"{"spec":{"clusterIPs":["10.0.0.1"]}}"#))).await;
    assert_eq!(
        cluster.spec_text(r#"{"type":"ClusterIP"}"#, None),
        "Internal error occurred: failed to allocate a serviceIP: range is full"
    );
    // Deletions and changes of services release items.
    cluster.store("4", None).await;
    let (service, held) = cluster.begin(r#"{"type":"ClusterIP"}"#, None).unwrap();
    assert_eq!(at(&service, "spec.clusterIP").and_then(Value::as_str), Some("10.0.0.4"));
    cluster.store("1", Some(&object(r#"{"spec":{"clusterIPs":["None"]}}"#))).await;
    let (service, _) = cluster.begin(r#"{"type":"ClusterIP"}"#, None).unwrap();
    assert_eq!(at(&service, "spec.clusterIP").and_then(Value::as_str), Some("10.0.0.1"));
    drop(held);
}

#[test]
fn a_service_gets_addresses_of_both_families_on_request() {
    let cluster = Cluster::new("10.0.0.0/24,fd00::/120", "30000-32767");
    for (spec, families, policy) in [
        (r#"{"type":"ClusterIP"}"#, "IPv4", "SingleStack"),
        (r#"{"type":"ClusterIP","ipFamilies":["IPv6"]}"#, "IPv6", "SingleStack"),
        (r#"{"type":"ClusterIP","clusterIP":"fd00::7"}"#, "IPv6", "SingleStack"),
        (r#"{"type":"ClusterIP","ipFamilyPolicy":"PreferDualStack"}"#, "IPv4,IPv6", "PreferDualStack"),
        (
            r#"{"type":"ClusterIP","ipFamilyPolicy":"RequireDualStack","ipFamilies":["IPv6"]}"#,
            "IPv6,IPv4",
            "RequireDualStack",
        ),
        (
            r#"{"type":"ClusterIP","ipFamilyPolicy":"PreferDualStack","clusterIP":"10.0.0.9","clusterIPs":["10.0.0.9","fd00::9"]}"#,
            "IPv4,IPv6",
            "PreferDualStack",
        ),
    ] {
        let (service, held) = cluster.begin(spec, None).unwrap();
        assert_eq!(texts(&service, "ipFamilies").join(","), families, "{spec}");
        assert_eq!(text(&service, "ipFamilyPolicy"), policy, "{spec}");
        let addresses = texts(&service, "clusterIPs");
        let given: Vec<_> =
            addresses.iter().map(|address| Family::from_address(address.parse().unwrap()).name()).collect();
        assert_eq!(given.join(","), families, "{spec}");
        assert_eq!(text(&service, "clusterIP"), addresses[0], "{spec}");
        drop(held);
    }
}

/// Checks that a service without a policy has one family, even if the client names two families.
#[test]
fn two_families_without_a_dual_stack_policy_are_refused() {
    let cluster = Cluster::new("10.0.0.0/24,fd00::/120", "30000-32767");
    let detail = |what: &str| {
        format!(
            r#"spec.ipFamilyPolicy: Invalid value: "SingleStack": must be 'RequireDualStack' or 'PreferDualStack' when multiple {what} are specified"#
        )
    };
    for (spec, want) in [
        (r#"{"type":"ClusterIP","ipFamilies":["IPv6","IPv4"]}"#, detail("IP families")),
        (
            r#"{"type":"ClusterIP","clusterIP":"10.0.0.9","clusterIPs":["10.0.0.9","fd00::9"]}"#,
            detail("cluster IPs"),
        ),
    ] {
        assert_eq!(cluster.spec_text(spec, None), want, "{spec}");
    }
}

#[test]
fn a_second_network_without_free_addresses_refuses_dual_stack_services() {
    for second in ["fd00::/128", "fd00::/127"] {
        let cluster = Cluster::new(&format!("10.0.0.0/24,{second}"), "30000-32767");
        let spec = r#"{"type":"ClusterIP","ipFamilyPolicy":"PreferDualStack"}"#;
        let held: Vec<_> = (0..2).map(|_| cluster.begin(spec, None)).collect();
        let refused = held[1].as_ref().map(|_| ()).unwrap_err();
        assert!(refused.ends_with("failed to allocate a serviceIP: range is full"), "{second}: {refused}");
    }
}

#[test]
fn a_service_update_keeps_omitted_addresses_and_ports() {
    let cluster = Cluster::new("10.0.0.0/24,fd00::/120", "30000-32767");
    let address = r#""clusterIP":"10.0.0.5","clusterIPs":["10.0.0.5"]"#;
    let stored = format!(r#"{address},"ipFamilies":["IPv4"],"ipFamilyPolicy":"SingleStack""#);
    let dual = r#""clusterIP":"10.0.0.5","clusterIPs":["10.0.0.5","fd00::5"],"ipFamilies":["IPv4","IPv6"]"#;
    for (spec, old, want) in [
        (
            r#"{"type":"ClusterIP"}"#.to_owned(),
            format!(r#"{{"type":"ClusterIP",{stored}}}"#),
            format!(r#"{{"type":"ClusterIP",{stored}}}"#),
        ),
        (
            r#"{"type":"NodePort","ports":[{"name":"a","port":2},{"name":"b","port":3}]}"#.to_owned(),
            format!(
                r#"{{"type":"NodePort","ports":[{{"name":"b","port":3,"nodePort":30002}},{{"name":"a","port":1,"nodePort":30001}}],{stored}}}"#
            ),
            format!(
                r#"{{"type":"NodePort","ports":[{{"name":"a","port":2,"nodePort":30001}},{{"name":"b","port":3,"nodePort":30002}}],{stored}}}"#
            ),
        ),
        // The server removes an item that the new type does not use and the client did not change.
        (
            format!(r#"{{"type":"ExternalName","externalName":"x",{stored}}}"#),
            format!(r#"{{"type":"ClusterIP",{stored}}}"#),
            r#"{"type":"ExternalName","externalName":"x"}"#.to_owned(),
        ),
        (
            format!(r#"{{"type":"ClusterIP","ports":[{{"port":1,"nodePort":30001}}],{stored}}}"#),
            format!(r#"{{"type":"NodePort","ports":[{{"port":1,"nodePort":30001}}],{stored}}}"#),
            format!(r#"{{"type":"ClusterIP","ports":[{{"port":1}}],{stored}}}"#),
        ),
        (
            format!(r#"{{"type":"ClusterIP","ports":[{{"port":1,"nodePort":30001}}],{stored}}}"#),
            format!(
                r#"{{"type":"NodePort","ports":[{{"port":1,"nodePort":30001}},{{"port":2,"nodePort":30002}}],{stored}}}"#
            ),
            format!(r#"{{"type":"ClusterIP","ports":[{{"port":1}}],{stored}}}"#),
        ),
        (
            format!(
                r#"{{"type":"ExternalName","externalName":"x","internalTrafficPolicy":"Cluster",{}}}"#,
                stored.replace("SingleStack", "PreferDualStack")
            ),
            format!(r#"{{"type":"ClusterIP","internalTrafficPolicy":"Cluster",{stored}}}"#),
            r#"{"type":"ExternalName","externalName":"x","ipFamilyPolicy":"PreferDualStack"}"#.to_owned(),
        ),
        // A load-balancer service has node ports, whether or not the client sets them.
        (
            format!(
                r#"{{"type":"ClusterIP","allocateLoadBalancerNodePorts":false,"ports":[{{"port":1,"nodePort":30001}}],{stored}}}"#
            ),
            format!(
                r#"{{"type":"LoadBalancer","allocateLoadBalancerNodePorts":false,"ports":[{{"port":1,"nodePort":30001}}],{stored}}}"#
            ),
            format!(r#"{{"type":"ClusterIP","ports":[{{"port":1}}],{stored}}}"#),
        ),
        (
            format!(
                r#"{{"type":"LoadBalancer","allocateLoadBalancerNodePorts":false,"ports":[{{"port":1}}],{stored}}}"#
            ),
            format!(r#"{{"type":"NodePort","ports":[{{"port":1,"nodePort":30001}}],{stored}}}"#),
            format!(
                r#"{{"type":"LoadBalancer","allocateLoadBalancerNodePorts":false,"ports":[{{"port":1,"nodePort":30001}}],{stored}}}"#
            ),
        ),
        // Ports of different protocols may share a node port.
        (
            format!(
                r#"{{"type":"NodePort","ports":[{{"port":1,"protocol":"TCP","nodePort":30002}},{{"port":2,"protocol":"TCP","nodePort":30002}}],{stored}}}"#
            ),
            format!(r#"{{"type":"NodePort","ports":[{{"port":1,"protocol":"TCP","nodePort":30001}}],{stored}}}"#),
            "duplicate nodePort: {TCP 30002}".to_owned(),
        ),
        (
            format!(
                r#"{{"type":"NodePort","ports":[{{"port":1,"protocol":"TCP","nodePort":30002}},{{"port":2,"protocol":"UDP","nodePort":30002}}],{stored}}}"#
            ),
            format!(r#"{{"type":"NodePort","ports":[{{"port":1,"protocol":"TCP","nodePort":30001}}],{stored}}}"#),
            format!(
                r#"{{"type":"NodePort","ports":[{{"port":1,"protocol":"TCP","nodePort":30002}},{{"port":2,"protocol":"UDP","nodePort":30002}}],{stored}}}"#
            ),
        ),
        // The second family is dropped only if the policy changes.
        (
            format!(r#"{{"type":"ClusterIP",{dual},"ipFamilyPolicy":"SingleStack"}}"#),
            format!(r#"{{"type":"ClusterIP",{dual},"ipFamilyPolicy":"RequireDualStack"}}"#),
            format!(r#"{{"type":"ClusterIP",{stored}}}"#),
        ),
        (
            format!(r#"{{"type":"ClusterIP",{address},"ipFamilyPolicy":"RequireDualStack"}}"#),
            format!(r#"{{"type":"ClusterIP",{dual},"ipFamilyPolicy":"RequireDualStack"}}"#),
            r#"spec.ipFamilyPolicy: Invalid value: "RequireDualStack": must be 'SingleStack' to release the secondary cluster IP"#.to_owned(),
        ),
    ] {
        let same = |text: &str| parse(text.as_bytes()).ok();
        let got = cluster.spec_text(&spec, Some(&old));
        match same(&want) {
            Some(want) => {
                let (got, want) = (same(&got).expect(&got), want);
                let (got, want) = (got.as_object().unwrap(), want.as_object().unwrap());
                for name in got.iter().chain(want.iter()).map(|(name, _)| name) {
                    assert_eq!(got.get(name), want.get(name), "{name} of {spec} after {old}");
                }
            }
            None => assert_eq!(got, want, "{spec} after {old}"),
        }
    }
    // A second family is added on request. A change to a type with more items allocates the additional items.
    let (service, _) = cluster
        .begin(
            &format!(r#"{{"type":"ClusterIP",{}}}"#, stored.replace("SingleStack", "PreferDualStack")),
            Some(&format!(r#"{{"type":"ClusterIP",{stored}}}"#)),
        )
        .unwrap();
    assert_eq!(texts(&service, "clusterIPs").len(), 2);
    assert_eq!(texts(&service, "clusterIPs")[0], "10.0.0.5");
    let (service, _) = cluster.begin(r#"{"type":"ClusterIP"}"#, Some(r#"{"type":"ExternalName"}"#)).unwrap();
    assert_eq!(texts(&service, "clusterIPs").len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_writes_never_get_the_same_address_or_port() {
    let cluster = std::sync::Arc::new(Cluster::new("10.0.0.0/26", "30000-30063"));
    let askers = (0..64).map(|asker| {
        let cluster = cluster.clone();
        tokio::spawn(async move {
            let spec = r#"{"type":"NodePort","ports":[{"port":1}]}"#;
            match cluster.begin(spec, None) {
                Ok((service, held)) => {
                    cluster.store(&asker.to_string(), Some(&service)).await;
                    drop(held);
                    let port = number(&ports(&service)[0], "nodePort");
                    Some((text(&service, "clusterIP").to_owned(), port))
                }
                Err(_) => None,
            }
        })
    });
    let (mut addresses, mut node_ports, mut given) = (HashSet::new(), HashSet::new(), 0);
    for asker in askers.collect::<Vec<_>>() {
        if let Some((address, port)) = asker.await.unwrap() {
            assert!(addresses.insert(address.clone()), "{address} twice");
            assert!(node_ports.insert(port), "{port} twice");
            given += 1;
        }
    }
    assert_eq!(given, 62, "all addresses of the network are given out");
}
