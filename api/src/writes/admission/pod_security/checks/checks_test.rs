//! Tests which pods each level allows.

use super::*;
use crate::writes::admission::pod_security::level::Level;
use values::naming::KUBERNETES;
use values::testing::object;

/// Returns the violations of the level `at` by a pod. `pod` is an object with `metadata` and `spec`.
fn violations(at: &str, pod: &str) -> String {
    let (level, version) = at.split_once(':').unwrap();
    let at = LevelVersion { level: Level::parse(level).unwrap(), version: Version::parse(version).unwrap() };
    details(&evaluate(at, Pod::new(StructView::from_object(&object(pod)), &KUBERNETES)))
}

/// Returns a pod that the restricted level allows, with additions to its spec and its container.
fn hardened(more_of_spec: &str, more_of_container: &str) -> String {
    format!(
        r#"{{"metadata":{{"name":"p"}},"spec":{{"securityContext":{{"runAsNonRoot":true,"seccompProfile":{{"type":"RuntimeDefault"}}}},
        "containers":[{{"name":"c","securityContext":{{"allowPrivilegeEscalation":false,"capabilities":{{"drop":["ALL"]}}}}{more_of_container}}}]{more_of_spec}}}}}"#
    )
}

/// Returns a pod with one container and these security contexts.
fn with_context(of_pod: &str, of_container: &str) -> String {
    format!(
        r#"{{"spec":{{"securityContext":{{{of_pod}}},"containers":[{{"name":"a","securityContext":{{{of_container}}}}}]}}}}"#
    )
}

#[test]
fn the_baseline_level_refuses_each_forbidden_setting() {
    for (at, pod, want) in [
        ("baseline:latest", r#"{"spec":{"containers":[{"name":"c"}]}}"#.to_owned(), ""),
        (
            "baseline:latest",
            r#"{"spec":{"hostNetwork":true,"hostPID":true,"hostIPC":true,"volumes":[{"name":"v","hostPath":{"path":"/"}},{"name":"w","emptyDir":{}}],
              "containers":[{"name":"c","ports":[{"hostPort":80},{"hostPort":443},{"hostPort":0}],"securityContext":{"privileged":true,"capabilities":{"add":["NET_ADMIN","CHOWN","BPF"]}}}]}}"#.to_owned(),
            r#"non-default capabilities (container "c" must not include "BPF", "NET_ADMIN" in securityContext.capabilities.add), host namespaces (hostNetwork=true, hostPID=true, hostIPC=true), hostPath volumes (volume "v"), hostPort (container "c" uses hostPorts 443, 80), privileged (container "c" must not set securityContext.privileged=true)"#,
        ),
        (
            "baseline:latest",
            r#"{"spec":{"initContainers":[{"name":"i","ports":[{"hostPort":1}]}],"containers":[{"name":"c","ports":[{"hostPort":1}]}],"ephemeralContainers":[{"name":"e","securityContext":{"privileged":true}}]}}"#.to_owned(),
            r#"hostPort (containers "i", "c" use hostPort 1), privileged (container "e" must not set securityContext.privileged=true)"#,
        ),
        (
            "baseline:latest",
            r#"{"metadata":{"annotations":{"container.apparmor.security.beta.kubernetes.io/a":"unconfined","container.apparmor.security.beta.kubernetes.io/b":"localhost/x"}},"spec":{"securityContext":{"appArmorProfile":{"type":"Unconfined"}},"containers":[{"name":"a","securityContext":{"appArmorProfile":{"type":"Unconfined"}}}]}}"#.to_owned(),
            r#"forbidden AppArmor profiles (pod and container "a" and annotation must not set AppArmor profile type to "Unconfined", "container.apparmor.security.beta.kubernetes.io/a="unconfined"")"#,
        ),
        (
            "baseline:latest",
            with_context(r#""appArmorProfile":{"type":"Unconfined"}"#, r#""appArmorProfile":{"type":"Localhost"}"#),
            r#"forbidden AppArmor profile (pod must not set AppArmor profile type to "Unconfined")"#,
        ),
        (
            "baseline:latest",
            with_context(r#""seLinuxOptions":{"type":"foo","user":"u"}"#, r#""seLinuxOptions":{"type":"bar","role":"r"}"#),
            r#"seLinuxOptions (pod and container "a" set forbidden securityContext.seLinuxOptions: types "bar", "foo"; user may not be set; role may not be set)"#,
        ),
        (
            "baseline:v1.30",
            with_context("", r#""seLinuxOptions":{"type":"container_engine_t"}"#),
            r#"seLinuxOptions (container "a" set forbidden securityContext.seLinuxOptions: type "container_engine_t")"#,
        ),
        ("baseline:v1.31", with_context("", r#""seLinuxOptions":{"type":"container_engine_t"}"#), ""),
        (
            "baseline:latest",
            with_context(r#""seccompProfile":{"type":"Unconfined"}"#, r#""seccompProfile":{"type":"Unconfined"}"#),
            r#"seccompProfile (pod and container "a" must not set securityContext.seccompProfile.type to "Unconfined")"#,
        ),
        (
            "baseline:latest",
            with_context(r#""seccompProfile":{"type":"Unconfined"},"seLinuxOptions":{"type":"foo"}"#, ""),
            r#"seLinuxOptions (pod set forbidden securityContext.seLinuxOptions: type "foo"), seccompProfile (pod must not set securityContext.seccompProfile.type to "Unconfined")"#,
        ),
        ("baseline:v1.18", with_context(r#""seccompProfile":{"type":"Unconfined"}"#, ""), ""),
        (
            "baseline:v1.18",
            r#"{"metadata":{"annotations":{"seccomp.security.alpha.kubernetes.io/pod":"unconfined","container.seccomp.security.alpha.kubernetes.io/c":"x","container.seccomp.security.alpha.kubernetes.io/other":"x"}},"spec":{"containers":[{"name":"c"}]}}"#.to_owned(),
            r#"seccompProfile (forbidden annotations container.seccomp.security.alpha.kubernetes.io/c="x", seccomp.security.alpha.kubernetes.io/pod="unconfined")"#,
        ),
        (
            "baseline:latest",
            with_context(r#""windowsOptions":{"hostProcess":true}"#, r#""windowsOptions":{"hostProcess":false}"#),
            "hostProcess (pod must not set securityContext.windowsOptions.hostProcess=true)",
        ),
        (
            "baseline:latest",
            with_context("", r#""procMount":"Unmasked""#),
            r#"procMount (container "a" must not set securityContext.procMount to "Unmasked")"#,
        ),
    ] {
        assert_eq!(violations(at, &pod), want, "{at} {pod}");
        assert_eq!(violations("privileged:latest", &pod), "", "{pod}");
    }
}

#[test]
fn newer_versions_of_the_baseline_level_allow_more_sysctls() {
    let sysctl = |name: &str| with_context(&format!(r#""sysctls":[{{"name":"{name}","value":"1"}}]"#), "");
    for (name, since) in [
        ("kernel.shm_rmid_forced", 0),
        ("net.ipv4.ip_local_reserved_ports", 27),
        ("net.ipv4.tcp_keepalive_time", 29),
        ("net.ipv4.tcp_rmem", 32),
    ] {
        assert_eq!(violations(&format!("baseline:v1.{since}"), &sysctl(name)), "", "{name}");
        if since > 0 {
            let said = violations(&format!("baseline:v1.{}", since - 1), &sysctl(name));
            assert_eq!(said, format!("forbidden sysctls ({name})"));
        }
    }
    assert_eq!(violations("baseline:latest", &sysctl("kernel.msgmax")), "forbidden sysctls (kernel.msgmax)");
}

#[test]
fn hosts_of_probes_and_lifecycle_handlers_are_refused_since_1_34() {
    let pod = r#"{"spec":{"containers":[{"name":"b","livenessProbe":{"httpGet":{"host":"h"}},"lifecycle":{"preStop":{"tcpSocket":{"host":"g"}}}},
        {"name":"a","readinessProbe":{"tcpSocket":{"host":"h"}}},{"name":"c","startupProbe":{"httpGet":{"host":""}}}]}}"#;
    assert_eq!(violations("baseline:v1.33", pod), "");
    assert_eq!(
        violations("baseline:v1.34", pod),
        r#"probe or lifecycle host (containers "a", "b" use probe or lifecycle hosts "g", "h")"#
    );
}

#[test]
fn the_restricted_level_refuses_more_settings_than_baseline() {
    let bare = r#"{"spec":{"containers":[{"name":"c"},{"name":"d"}]}}"#;
    let escalation = r#"allowPrivilegeEscalation != false (containers "c", "d" must set securityContext.allowPrivilegeEscalation=false)"#;
    let capabilities = r#"unrestricted capabilities (containers "c", "d" must set securityContext.capabilities.drop=["ALL"])"#;
    let root =
        r#"runAsNonRoot != true (pod or containers "c", "d" must set securityContext.runAsNonRoot=true)"#;
    let seccomp = r#"seccompProfile (pod or containers "c", "d" must set securityContext.seccompProfile.type to "RuntimeDefault" or "Localhost")"#;
    for (version, want) in [
        ("latest", [escalation, capabilities, root, seccomp].join(", ")),
        ("v1.22", [escalation, capabilities, root, seccomp].join(", ")),
        ("v1.21", [escalation, root, seccomp].join(", ")),
        ("v1.18", [escalation, root].join(", ")),
        ("v1.7", root.to_owned()),
    ] {
        assert_eq!(violations(&format!("restricted:{version}"), bare), want, "{version}");
    }
    for (at, pod, want) in [
        ("restricted:latest", hardened("", ""), ""),
        ("restricted:v1.0", hardened("", ""), ""),
        (
            "restricted:latest",
            hardened(r#","volumes":[{"name":"v","image":{"reference":"r"}},{"name":"w","csi":{}}]"#, ""),
            "",
        ),
        (
            "restricted:latest",
            hardened(
                r#","volumes":[{"name":"v","hostPath":{"path":"/"}},{"name":"w","nfs":{}},{"name":"x","nfs":{}}]"#,
                "",
            ),
            r#"restricted volume types (volumes "v", "w", "x" use restricted volume types "hostPath", "nfs")"#,
        ),
        (
            "restricted:latest",
            hardened(
                r#","initContainers":[{"name":"i","securityContext":{"runAsUser":0,"runAsNonRoot":false,"allowPrivilegeEscalation":false,"capabilities":{"drop":["ALL"],"add":["CHOWN","NET_BIND_SERVICE"]}}}]"#,
                "",
            ),
            r#"unrestricted capabilities (container "i" must not include "CHOWN" in securityContext.capabilities.add), runAsNonRoot != true (container "i" must not set securityContext.runAsNonRoot=false), runAsUser=0 (container "i" must not set runAsUser=0)"#,
        ),
        (
            "restricted:v1.21",
            hardened(
                r#","initContainers":[{"name":"i","securityContext":{"runAsUser":0,"allowPrivilegeEscalation":false,"capabilities":{"add":["NET_ADMIN"]}}}]"#,
                "",
            ),
            r#"non-default capabilities (container "i" must not include "NET_ADMIN" in securityContext.capabilities.add)"#,
        ),
    ] {
        assert_eq!(violations(at, &pod), want, "{at} {pod}");
    }
}

#[test]
fn linux_settings_are_not_required_of_windows_pods_since_1_25() {
    let pod = r#"{"spec":{"os":{"name":"windows"},"securityContext":{"runAsNonRoot":true},"containers":[{"name":"c"}]}}"#;
    assert_eq!(violations("restricted:v1.25", pod), "");
    assert!(violations("restricted:v1.24", pod).starts_with("allowPrivilegeEscalation != false"));
}

#[test]
fn root_in_a_user_namespace_is_allowed_since_1_35() {
    let pod = hardened(
        r#","hostUsers":false,"initContainers":[{"name":"i","securityContext":{"runAsUser":0,"runAsNonRoot":false,"procMount":"Unmasked","allowPrivilegeEscalation":false,"capabilities":{"drop":["ALL"]}}}]"#,
        "",
    );
    let mount = r#"procMount (container "i" must not set securityContext.procMount to "Unmasked")"#;
    assert_eq!(violations("baseline:v1.35", &pod), "");
    assert_eq!(violations("baseline:v1.34", &pod), mount);
    assert_eq!(violations("restricted:v1.35", &pod), mount);
    assert!(violations("restricted:v1.34", &pod).contains("runAsUser=0"));
}

#[test]
fn replaced_checks_are_at_their_indexes_in_the_baseline_table() {
    let baseline: [(usize, CheckFunction); 4] = [
        (CAPABILITIES, baseline::capabilities),
        (HOST_PATHS, baseline::host_paths),
        (PROC_MOUNT, baseline::proc_mount),
        (SECCOMP, baseline::seccomp_annotations),
    ];
    for (at, check) in baseline {
        assert!(std::ptr::fn_addr_eq(BASELINE[at].forms[0].1, check), "{at}");
    }
}
