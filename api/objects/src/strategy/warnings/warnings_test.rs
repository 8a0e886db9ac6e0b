//! Tests of warnings, as a table of objects and texts.

use super::*;
use values::naming::KUBERNETES;
use values::testing;

fn texts(advice: Advice, object: &str) -> Vec<String> {
    let new = testing::object(object);
    Texts::collect(advice, WrittenObject { new: &new, old: None, naming: &KUBERNETES })
}

#[test]
fn pod_writes_get_warnings() {
    let container = r#"{"name":"c"}"#;
    let more =
        |spec: &str| format!(r#"{{"metadata":{{"name":"p"}},"spec":{{"containers":[{container}],{spec}}}}}"#);
    let of = |members: &str| {
        format!(r#"{{"metadata":{{"name":"p"}},"spec":{{"containers":[{{"name":"c",{members}}}]}}}}"#)
    };
    let null = "a null labelSelector results in matching no pod";
    for (object, want) in [
        (more(r#""hostname":"x""#), vec![]),
        (
            r#"{"metadata":{"name":"a.b"},"spec":{}}"#.to_owned(),
            vec!["metadata.name: this is used in the Pod's hostname, which can result in surprising behavior; a DNS label is recommended: [must not contain dots]".to_owned()],
        ),
        (
            more(r#""nodeSelector":{"beta.kubernetes.io/os":"linux"}"#),
            vec![r#"spec.nodeSelector[beta.kubernetes.io/os]: deprecated since v1.14; use "kubernetes.io/os" instead"#.to_owned()],
        ),
        (
            more(r#""topologySpreadConstraints":[{"topologyKey":"failure-domain.beta.kubernetes.io/zone"}]"#),
            vec![
                r#"spec.topologySpreadConstraints[0].topologyKey: failure-domain.beta.kubernetes.io/zone is deprecated since v1.17; use "topology.kubernetes.io/zone" instead"#.to_owned(),
                format!("spec.topologySpreadConstraints[0].labelSelector: {null}"),
            ],
        ),
        (
            more(r#""affinity":{"podAntiAffinity":{"preferredDuringSchedulingIgnoredDuringExecution":[{"podAffinityTerm":{}}]}}"#),
            vec![format!("spec.affinity.podAntiAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].podAffinityTerm.labelSelector: {null}")],
        ),
        (
            more(r#""volumes":[{"name":"v","rbd":{}},{"name":"w","storageos":{}}]"#),
            vec![
                "spec.volumes[0].rbd: deprecated in v1.28, non-functional in v1.31+".to_owned(),
                "spec.volumes[1].storageOS: deprecated in v1.22, non-functional in v1.25+".to_owned(),
            ],
        ),
        (
            more(r#""imagePullSecrets":[{"name":"a"},{"name":"a"},{}],"hostAliases":[{"ip":"::FFFF:1.2.3.4"},{"ip":"::A"},{"ip":"01.2.3.4"}]"#),
            vec![
                r#"spec.imagePullSecrets[1].name: duplicate name "a""#.to_owned(),
                r#"spec.imagePullSecrets[2].name: invalid empty name """#.to_owned(),
                r#"spec.hostAliases[0].ip: non-standard IP address "::FFFF:1.2.3.4" is invalid: use "1.2.3.4""#.to_owned(),
                r#"spec.hostAliases[1].ip: IPv6 address "::A" should be in RFC 5952 canonical format ("::a")"#.to_owned(),
                r#"spec.hostAliases[2].ip: non-standard IP address "01.2.3.4" is invalid: use "1.2.3.4""#.to_owned(),
            ],
        ),
        (
            of(r#""resources":{"limits":{"memory":"1500m"}},"env":[{"name":"A","value":"1"},{"name":"A","value":"2"},{"name":"A","value":"$(A)3"}]"#),
            vec![
                r#"spec.containers[0].resources.limits[memory]: fractional byte value "1500m" is invalid, must be an integer"#.to_owned(),
                r#"spec.containers[0].env[1]: hides previous definition of "A", which may be dropped when using apply"#.to_owned(),
            ],
        ),
        (
            of(r#""ports":[{"containerPort":80,"protocol":"TCP","hostIP":"1.2.3.4"},{"containerPort":80,"protocol":"TCP","hostPort":8},{"containerPort":80,"protocol":"TCP","hostPort":8,"hostIP":"1.2.3.4"}]"#),
            vec![
                "spec.containers[0].ports[0]: hostIP set without hostPort: {Name: HostPort:0 ContainerPort:80 Protocol:TCP HostIP:1.2.3.4}".to_owned(),
                "spec.containers[0].ports[1]: overlapping port definition with spec.containers[0].ports[0]".to_owned(),
                "spec.containers[0].ports[2]: overlapping port definition with spec.containers[0].ports[0]".to_owned(),
                "spec.containers[0].ports[2]: dangerously ambiguous port definition with spec.containers[0].ports[1]".to_owned(),
            ],
        ),
        (
            more(r#""volumes":[{"name":"v","projected":{"sources":[{"secret":{"name":"s","items":[{"path":"a/b"}]}},{"serviceAccountToken":{"path":"a"}}]}}]"#),
            vec![r#"volume "v" (Projected): overlapping paths: "a" (ServiceAccountToken) with "a/b" (Secret "s")"#.to_owned()],
        ),
        (
            more(r#""volumes":[{"name":"v","projected":{"sources":[{},{"podCertificate":{}},{"secret":null}]}}]"#),
            vec![r#"volume "v" (Projected) has no sources provided"#.to_owned(); 2],
        ),
        (
            r#"{"metadata":{"name":"p"},"spec":{
                "initContainers":[{"name":"i","ports":[{"containerPort":1,"name":"http"}]},{"name":"s","restartPolicy":"Always","ports":[{"containerPort":2,"name":"http"},{"containerPort":3}]}],
                "containers":[{"name":"c","ports":[{"containerPort":4},{"containerPort":5,"name":"http"},{"containerPort":6,"name":"other"}]},{"name":"d","ports":[{"containerPort":6,"name":"other"}]}]}}"#.to_owned(),
            vec![
                "spec.containers[1].ports[0]: duplicate port definition with spec.containers[0].ports[2]".to_owned(),
                r#"spec.initContainers[1].ports[0]: duplicate port name "http" with spec.initContainers[0].ports[0], services and probes that select ports by name will use spec.initContainers[0].ports[0]"#.to_owned(),
                r#"spec.containers[0].ports[1]: duplicate port name "http" with spec.initContainers[0].ports[0], services and probes that select ports by name will use spec.initContainers[0].ports[0]"#.to_owned(),
                r#"spec.containers[1].ports[0]: duplicate port name "other" with spec.containers[0].ports[2], services and probes that select ports by name will use spec.containers[0].ports[2]"#.to_owned(),
            ],
        ),
    ] {
        assert_eq!(texts(super::pod, &object), want, "{object}");
    }
}

#[test]
fn template_writes_get_warnings_about_repeated_port_names() {
    let object = r#"{"metadata":{"name":"d","generation":1},"spec":{"template":{"spec":{"containers":[{"name":"c","ports":[{"containerPort":1,"name":"http"}]},{"name":"d","ports":[{"containerPort":2,"name":"http"}]}]}}}}"#;
    let (place, other) =
        ("spec.template.spec.containers[1].ports[0]", "spec.template.spec.containers[0].ports[0]");
    let want = format!(
        r#"{place}: duplicate port name "http" with {other}, services and probes that select ports by name will use {other}"#
    );
    assert_eq!(texts(template, object), [want]);
}

#[test]
fn writes_of_other_kinds_get_warnings() {
    for (advice, object, want) in [
        (
            node as Advice,
            r#"{"spec":{"externalID":"e","configSource":null}}"#,
            "spec.externalID: this field is deprecated, and is unused by Kubernetes",
        ),
        (
            network::service,
            r#"{"spec":{"clusterIPs":["None"],"sessionAffinity":"ClientIP"}}"#,
            "spec.SessionAffinity is ignored for headless services",
        ),
        (
            network::service,
            r#"{"spec":{"externalIPs":["192.0.2.9"]}}"#,
            "spec.externalIPs is deprecated and may no longer be implemented in some clusters",
        ),
        (
            network::service,
            r#"{"spec":{"clusterIPs":["None"],"externalIPs":["192.0.2.9"]}}"#,
            "spec.externalIPs is ignored for headless services",
        ),
        (
            network::service,
            r#"{"spec":{"type":"ExternalName","externalIPs":["192.0.2.9"]}}"#,
            r#"spec.externalIPs is ignored when spec.type is "ExternalName""#,
        ),
        (
            network::service,
            r#"{"spec":{"loadBalancerSourceRanges":["10.0.0.1/8"]}}"#,
            r#"spec.loadBalancerSourceRanges[0]: CIDR value "10.0.0.1/8" is ambiguous in this context (should be "10.0.0.0/8" or "10.0.0.1/32"?)"#,
        ),
        (
            cron_job,
            r#"{"metadata":{"name":"a"},"spec":{"schedule":"TZ=UTC * * * * *"}}"#,
            "cannot use TZ or CRON_TZ in spec.spec.schedule, use timeZone instead, see https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/ for more details",
        ),
        (
            volume,
            r#"{"spec":{"persistentVolumeReclaimPolicy":"Recycle"}}"#,
            "spec.persistentVolumeReclaimPolicy: The Recycle reclaim policy is deprecated. Instead, the recommended approach is to use dynamic provisioning.",
        ),
        (
            volume_claim,
            r#"{"spec":{"resources":{"requests":{"storage":"1500m"}}}}"#,
            r#"spec.resources.requests[storage]: fractional byte value "1500m" is invalid, must be an integer"#,
        ),
        (
            network::ingress,
            r#"{"metadata":{"annotations":{"kubernetes.io/ingress.class":"x"}}}"#,
            r#"annotation "kubernetes.io/ingress.class" is deprecated, please use 'spec.ingressClassName' instead"#,
        ),
        (
            network::balancer_status,
            r#"{"status":{"loadBalancer":{"ingress":[{"ip":"2001:DB8::1"}]}}}"#,
            r#"status.loadBalancer.ingress[0]: IPv6 address "2001:DB8::1" should be in RFC 5952 canonical format ("2001:db8::1")"#,
        ),
        (
            job,
            r#"{"metadata":{"name":"j"},"spec":{"completionMode":"Indexed","completions":100001,"parallelism":10001}}"#,
            "spec: In Indexed Jobs with a number of completions higher than 10^5 and a parallelism higher than 10^4, Kubernetes might not be able to track completedIndexes when a big number of indexes fail",
        ),
        (
            cron_job,
            r#"{"metadata":{"name":"j"},"spec":{"jobTemplate":{"spec":{"completionMode":"Indexed","completions":100001,"parallelism":10001}}}}"#,
            "spec.jobTemplate.spec: In Indexed Jobs with a number of completions higher than 10^5 and a parallelism higher than 10^4, Kubernetes might not be able to track completedIndexes when a big number of indexes fail",
        ),
        (
            network::endpoint_slice,
            r#"{"addressType":"FQDN","endpoints":[{"addresses":["a.b"]}]}"#,
            "spec.addressType: FQDN endpoints are deprecated",
        ),
        (
            stateful_set,
            r#"{"spec":{"revisionHistoryLimit":-1}}"#,
            "spec.revisionHistoryLimit: a negative value retains all historical revisions; a value >= 0 is recommended",
        ),
        (
            storage::storage_class,
            r#"{"allowedTopologies":[{"matchLabelExpressions":[{"key":"beta.kubernetes.io/arch"}]}]}"#,
            r#"allowedTopologies[0].matchLabelExpressions[0].key: deprecated since v1.14; use "kubernetes.io/arch" instead"#,
        ),
        (
            storage::storage_capacity,
            r#"{"nodeTopology":{"matchLabels":{"beta.kubernetes.io/os":"a"}}}"#,
            r#"nodeTopology.matchLabels.beta.kubernetes.io/os: deprecated since v1.14; use "kubernetes.io/os" instead"#,
        ),
        (
            storage::storage_capacity,
            r#"{"nodeTopology":{"matchExpressions":[{"key":"beta.kubernetes.io/os","operator":"Exists"}]}}"#,
            r#"nodeTopology.matchExpressions[0].key: beta.kubernetes.io/os is deprecated since v1.14; use "kubernetes.io/os" instead"#,
        ),
    ] {
        assert_eq!(texts(advice, object), [want], "{object}");
    }
}

#[test]
fn a_warning_names_source_ranges_that_programs_read_differently() {
    let ambiguous = |given: &str, network: &str, host: &str| {
        format!(
            "CIDR value \"{given}\" is ambiguous in this context (should be \"{network}\" or \"{host}\"?)"
        )
    };
    let odd = |given: &str, better: &str| {
        format!("non-standard CIDR value \"{given}\" is invalid: use \"{better}\"")
    };
    let long = |given: &str, better: &str| {
        format!("IPv6 CIDR value \"{given}\" should be in RFC 5952 canonical format (\"{better}\")")
    };
    for (given, want) in [
        ("10.0.0.0/8", vec![]),
        (" 10.0.0.1/8", vec![]),
        ("10.0.0.1/8", vec![ambiguous("10.0.0.1/8", "10.0.0.0/8", "10.0.0.1/32")]),
        ("010.0.0.0/8", vec![odd("010.0.0.0/8", "10.0.0.0/8")]),
        ("10.0.0.0/08", vec![odd("10.0.0.0/08", "10.0.0.0/8")]),
        (
            "010.0.0.1/8",
            vec![ambiguous("010.0.0.1/8", "10.0.0.0/8", "10.0.0.1/32"), odd("010.0.0.1/8", "10.0.0.0/8")],
        ),
        ("::ffff:10.0.0.0/104", vec![odd("::ffff:10.0.0.0/104", "10.0.0.0/8")]),
        (
            "::ffff:10.0.0.1/104",
            vec![
                ambiguous("::ffff:10.0.0.1/104", "10.0.0.0/8", "10.0.0.1/128"),
                odd("::ffff:10.0.0.1/104", "10.0.0.0/8"),
            ],
        ),
        (
            "::ffff:10.0.0.1/90",
            vec![
                ambiguous("::ffff:10.0.0.1/90", "::ffc0:0:0/90", "10.0.0.1/128"),
                odd("::ffff:10.0.0.1/90", "::ffc0:0:0/90"),
            ],
        ),
        ("FD00::/64", vec![long("FD00::/64", "fd00::/64")]),
        ("FD00::1/64", vec![ambiguous("FD00::1/64", "fd00::/64", "fd00::1/128")]),
        ("10.0.0.0/33", vec![]),
    ] {
        let object = format!(r#"{{"spec":{{"loadBalancerSourceRanges":["{given}"]}}}}"#);
        let want: Vec<String> =
            want.iter().map(|text| format!("spec.loadBalancerSourceRanges[0]: {text}")).collect();
        assert_eq!(texts(network::service, &object), want, "{given}");
    }
}

#[test]
fn an_unchanged_template_gets_its_warnings_only_once() {
    let object = |generation: u32| {
        testing::object(&format!(
            r#"{{"metadata":{{"name":"d","generation":{generation}}},"spec":{{"template":{{"spec":{{"terminationGracePeriodSeconds":-1}}}}}}}}"#
        ))
    };
    let (old, same, changed) = (object(1), object(1), object(2));
    for (new, count) in [(&same, 0), (&changed, 1)] {
        let written = WrittenObject { new, old: Some(&old), naming: &KUBERNETES };
        assert_eq!(Texts::collect(template, written).len(), count);
    }
}

#[test]
fn claim_templates_of_stateful_sets_get_warnings_at_every_write() {
    let set = testing::object(
        r#"{"spec":{"volumeClaimTemplates":[{"spec":{"resources":{"requests":{"storage":"1500m"}}}}]}}"#,
    );
    for (old, place) in [(None, ""), (Some(&set), ".Spec")] {
        let written = WrittenObject { new: &set, old, naming: &KUBERNETES };
        let want = format!(
            "spec.volumeClaimTemplates[0]{place}.resources.requests[storage]: fractional byte value \"1500m\" is invalid, must be an integer"
        );
        assert_eq!(Texts::collect(stateful_set, written), [want]);
    }
}

#[test]
fn endpoint_slices_of_host_names_get_a_warning_on_creation() {
    let slice = testing::object(r#"{"addressType":"FQDN","endpoints":[{"addresses":["a.b"]}]}"#);
    for (old, count) in [(None, 1), (Some(&slice), 0)] {
        let written = WrittenObject { new: &slice, old, naming: &KUBERNETES };
        assert_eq!(Texts::collect(network::endpoint_slice, written).len(), count);
    }
}

#[test]
fn resource_slices_with_capitals_in_the_driver_name_get_a_warning() {
    let want = "spec.driver: driver names should be lowercase; \"DRA.a\" contains uppercase characters";
    assert_eq!(texts(resource_slice, r#"{"spec":{"driver":"DRA.a"}}"#), [want]);
    assert!(texts(resource_slice, r#"{"spec":{"driver":"dra.a"}}"#).is_empty());
}

#[test]
fn webhooks_and_policies_with_reserved_names_get_a_warning() {
    for (name, is_reserved) in [("a.static.k8s.io", true), ("static.k8s.io", false), ("a.k8s.io", false)] {
        let want = "metadata.name: names ending with \".static.k8s.io\" are reserved for static manifest-based \
                    configurations and cannot be managed via the API";
        let object = format!(r#"{{"metadata":{{"name":"{name}"}}}}"#);
        let want: Vec<&str> = is_reserved.then_some(want).into_iter().collect();
        assert_eq!(texts(reserved_name, &object), want, "{name}");
    }
}
