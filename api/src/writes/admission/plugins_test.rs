//! Tests the plugins with requests to a server: the changes that plugins make to an object, and the texts of
//! refusals.

use super::*;
use crate::writes::write::server_fixture::TestServer;
use values::json::{Value, parse};
use values::testing::text;

/// A file reader without files: configurations in these tests are self-contained.
struct NoFiles;

impl Files for NoFiles {
    fn read(&self, path: &str) -> Result<Vec<u8>, String> {
        Err(path.to_owned())
    }
}

/// Starts a server with these plugins in addition to the default plugins. Creates a namespace `n` with a
/// service account.
async fn server(enable: &str, config: &str) -> TestServer {
    let enable: Vec<String> = enable.split_whitespace().map(str::to_owned).collect();
    let config =
        format!("apiVersion: apiserver.config.k8s.io/v1\nkind: AdmissionConfiguration\nplugins: [{config}]");
    let wishes = Wishes { enable: &enable, config: Some(config.as_bytes()), ..Wishes::default() };
    let server = TestServer::admitting(Settings::parse(&wishes, &NoFiles).unwrap());
    create(&server, "/api/v1/namespaces", r#"{"metadata":{"name":"n"}}"#).await;
    create(&server, "/api/v1/namespaces/n/serviceaccounts", r#"{"metadata":{"name":"default"}}"#).await;
    server
}

async fn create(server: &TestServer, path: &str, body: &str) {
    let (code, _, answer) = server.send(&format!("POST {path}"), body).await;
    assert_eq!(code, 201, "{path}: {}", text(&answer));
}

/// Returns a pod `p` with one container `c`; the arguments add members to its metadata, its specification and
/// its container.
fn pod(metadata: &str, spec: &str, container: &str) -> String {
    format!(
        r#"{{"metadata":{{"name":"p"{metadata}}},"spec":{{"containers":[{{"name":"c","image":"i"{container}}}]{spec}}}}}"#
    )
}

/// Creates an object in a dry run. Returns the value at a path of members in the result, or the error of the
/// request.
async fn create_dry_run(server: &TestServer, path: &str, body: &str, at: &[&str]) -> String {
    let (code, _, answer) = server.send(&format!("POST {path}?dryRun=All"), body).await;
    if code != 201 {
        return format!("{code} {}", answer.str_at(&["message"]));
    }
    answer.at(at).map_or("-".to_owned(), text)
}

const PODS: &str = "/api/v1/namespaces/n/pods";

#[tokio::test]
async fn the_caches_of_plugins_follow_every_write() {
    let server = server("", "").await;
    create(&server, "/api/v1/namespaces", r#"{"metadata":{"name":"other"}}"#).await;
    create(&server, "/api/v1/namespaces/other/serviceaccounts", r#"{"metadata":{"name":"default"}}"#).await;
    let classes = "/apis/scheduling.k8s.io/v1/priorityclasses";
    let ranges = "/api/v1/namespaces/n/limitranges";
    let other = "/api/v1/namespaces/other/pods";
    let limits = |memory: &str| {
        let spec = format!(r#"{{"limits":[{{"type":"Container","default":{{"memory":"{memory}"}}}}]}}"#);
        format!(r#"{{"metadata":{{"name":"r"}},"spec":{spec}}}"#)
    };
    let seen = async || {
        let memory = async |pods: &str| {
            let (code, _, made) = server.send(&format!("POST {pods}?dryRun=All"), &pod("", "", "")).await;
            assert_eq!(code, 201, "{}", text(&made));
            let containers = made.at(&["spec", "containers"]).and_then(Value::as_array).unwrap_or_default();
            containers[0].str_at(&["resources", "limits", "memory"]).to_owned()
        };
        let priority = create_dry_run(&server, PODS, &pod("", "", ""), &["spec", "priority"]).await;
        let secrets = create_dry_run(&server, PODS, &pod("", "", ""), &["spec", "imagePullSecrets"]).await;
        [priority, memory(PODS).await, memory(other).await, secrets]
    };
    let secret = r#"[{"name":"s"}]"#;
    let account = format!(r#"{{"metadata":{{"name":"default"}},"imagePullSecrets":{secret}}}"#);
    assert_eq!(seen().await, ["0", "", "", "-"]);
    create(&server, classes, r#"{"metadata":{"name":"usual"},"value":3,"globalDefault":true}"#).await;
    assert_eq!(seen().await, ["3", "", "", "-"]);
    create(&server, ranges, &limits("1Mi")).await;
    assert_eq!(seen().await, ["3", "1Mi", "", "-"]);
    for (request, body, want) in [
        (format!("PUT {ranges}/r"), limits("2Mi"), ["3", "2Mi", "", "-"]),
        ("PUT /api/v1/namespaces/n/serviceaccounts/default".to_owned(), account, ["3", "2Mi", "", secret]),
        (format!("DELETE {classes}/usual"), String::new(), ["0", "2Mi", "", secret]),
        (format!("DELETE {ranges}/r"), String::new(), ["0", "", "", secret]),
    ] {
        assert_eq!(server.send(&request, &body).await.0, 200, "{request}");
        assert_eq!(seen().await, want, "{request}");
    }
}

#[tokio::test]
async fn no_object_can_be_created_in_a_terminating_or_missing_namespace() {
    let server = server("", "").await;
    create(&server, PODS, &pod("", "", "")).await;
    assert_eq!(server.send("DELETE /api/v1/namespaces/n", "").await.0, 200);
    let terminating =
        "is forbidden: unable to create new content in namespace n because it is being terminated";
    let eviction = r#"{"metadata":{"name":"p"}}"#;
    for (request, body, want) in [
        ("n/configmaps", r#"{"metadata":{"name":"m"}}"#, r#"403 configmaps "m""#),
        ("n/configmaps", r#"{"metadata":{"generateName":"g-"}}"#, r#"403 configmaps "g-""#),
        ("n/configmaps", "{}", r#"403 configmaps "Unknown""#),
        ("n/pods/p/eviction", eviction, r#"403 pods "p""#),
        ("n/pods/p/binding", r#"{"metadata":{"name":"p"},"target":{"name":"x"}}"#, r#"403 pods "p""#),
        ("n/serviceaccounts/default/token", "{}", r#"403 serviceaccounts "default""#),
        ("nope/pods/p/eviction", eviction, r#"404 namespaces "nope""#),
        ("nope/serviceaccounts/default/token", "{}", r#"404 namespaces "nope""#),
    ] {
        let (code, _, answer) = server.send(&format!("POST /api/v1/namespaces/{request}"), body).await;
        let why = if code == 403 { terminating } else { "not found" };
        let got = format!("{code} {}", answer.str_at(&["message"]));
        assert_eq!(got, format!("{want} {why}"), "{request}");
        if code == 403 {
            let name = want.split('"').nth(1).unwrap();
            assert_eq!(answer.str_at(&["details", "name"]), name, "{request}");
            let causes = answer.at(&["details", "causes"]).and_then(Value::as_array).unwrap();
            assert_eq!(causes[0].str_at(&["reason"]), "NamespaceTerminating", "{request}");
        }
    }
}

#[tokio::test]
async fn pods_get_the_priority_of_their_class() {
    let server = server("", "").await;
    let classes = "/apis/scheduling.k8s.io/v1/priorityclasses";
    create(&server, classes, r#"{"metadata":{"name":"high"},"value":7,"preemptionPolicy":"Never"}"#).await;
    let default = r#"{"metadata":{"name":"usual"},"value":3,"globalDefault":true}"#;
    assert_eq!(create_dry_run(&server, PODS, &pod("", "", ""), &["spec", "priority"]).await, "0");
    create(&server, classes, default).await;
    let why = "priority admission controller computed 7 from the given PriorityClass name";
    for (spec, at, want) in [
        ("", "priority", "3".to_owned()),
        ("", "priorityClassName", "\"usual\"".to_owned()),
        (r#","priorityClassName":"high""#, "priority", "7".to_owned()),
        (r#","priorityClassName":"high""#, "preemptionPolicy", "\"Never\"".to_owned()),
        (r#","priorityClassName":"high","priority":7"#, "priority", "7".to_owned()),
        (
            r#","priorityClassName":"none""#,
            "",
            "403 pods \"p\" is forbidden: no PriorityClass with name none was found".to_owned(),
        ),
        (
            r#","priorityClassName":"high","priority":1"#,
            "",
            format!(
                "403 pods \"p\" is forbidden: the integer value of priority (1) must not be provided in pod spec; {why}"
            ),
        ),
    ] {
        assert_eq!(create_dry_run(&server, PODS, &pod("", spec, ""), &["spec", at]).await, want, "{spec}");
    }
    let other = default.replace("usual", "other");
    let want = "403 priorityclasses.scheduling.k8s.io \"other\" is forbidden: PriorityClass usual is already marked as \
                default. Only one default can exist";
    assert_eq!(create_dry_run(&server, classes, &other, &[]).await, want);
    let (code, ..) =
        server.send(&format!("MERGE {classes}/usual"), r#"{"metadata":{"labels":{"a":"b"}}}"#).await;
    assert_eq!(code, 200);
}

#[tokio::test]
async fn pods_get_the_default_service_account_and_its_token_volume() {
    let server = server("", "").await;
    let accounts = "/api/v1/namespaces/n/serviceaccounts";
    let limited = r#"{"metadata":{"name":"limited","annotations":{"kubernetes.io/enforce-mountable-secrets":"true"}},"secrets":[{"name":"own"}],"imagePullSecrets":[{"name":"pull"}]}"#;
    create(&server, accounts, limited).await;
    let silent = r#"{"metadata":{"name":"silent"},"automountServiceAccountToken":false}"#;
    create(&server, accounts, silent).await;
    let (_, _, made_pod) = server.send(&format!("POST {PODS}?dryRun=All"), &pod("", "", "")).await;
    let name =
        made_pod.at(&["spec", "volumes"]).and_then(Value::as_array).unwrap()[0].str_at(&["name"]).to_owned();
    assert!(name.strip_prefix("kube-api-access-").is_some_and(|random| random.len() == 5), "{name}");
    assert_eq!(
        text(made_pod.at(&["spec", "volumes"]).unwrap()).replace(&name, "NAME"),
        r#"[{"name":"NAME","projected":{"sources":[{"serviceAccountToken":{"expirationSeconds":3607,"path":"token"}},{"configMap":{"name":"kube-root-ca.crt","items":[{"key":"ca.crt","path":"ca.crt"}]}},{"downwardAPI":{"items":[{"path":"namespace","fieldRef":{"apiVersion":"v1","fieldPath":"metadata.namespace"}}]}}],"defaultMode":420}}]"#
    );
    assert_eq!(
        text(
            made_pod.at(&["spec", "containers"]).and_then(Value::as_array).unwrap()[0]
                .get("volumeMounts")
                .unwrap()
        )
        .replace(&name, "NAME"),
        r#"[{"name":"NAME","readOnly":true,"mountPath":"/var/run/secrets/kubernetes.io/serviceaccount"}]"#
    );
    let mount =
        r#","volumeMounts":[{"name":"v","mountPath":"/var/run/secrets/kubernetes.io/serviceaccount"}]"#;
    let mirror = r#","annotations":{"kubernetes.io/config.mirror":"x"}"#;
    let environment = r#","env":[{"name":"E","valueFrom":{"secretKeyRef":{"name":"other","key":"k"}}}]"#;
    for (metadata, spec, container, at, want) in [
        ("", "", "", "serviceAccountName", "\"default\""),
        ("", "", "", "serviceAccount", "\"default\""),
        ("", r#","serviceAccountName":"silent""#, "", "volumes", "-"),
        ("", r#","automountServiceAccountToken":false"#, "", "volumes", "-"),
        (
            "",
            r#","volumes":[{"name":"v","emptyDir":{}}]"#,
            mount,
            "volumes",
            r#"[{"name":"v","emptyDir":{}}]"#,
        ),
        ("", r#","serviceAccountName":"limited""#, "", "imagePullSecrets", r#"[{"name":"pull"}]"#),
        (
            "",
            r#","serviceAccountName":"none""#,
            "",
            "",
            "403 pods \"p\" is forbidden: error looking up service account n/none: serviceaccount \"none\" not found",
        ),
        (
            "",
            r#","serviceAccountName":"limited""#,
            environment,
            "",
            "403 pods \"p\" is forbidden: container c with envVar E referencing secret.secretName=\"other\" is not allowed \
             because service account limited does not reference that secret",
        ),
        (
            "",
            r#","serviceAccountName":"limited","volumes":[{"name":"s","secret":{"secretName":"other"}}]"#,
            "",
            "",
            "403 pods \"p\" is forbidden: volume with secret.secretName=\"other\" is not allowed because service account \
             limited does not reference that secret",
        ),
        (
            "",
            r#","serviceAccountName":"limited","imagePullSecrets":[{"name":"other"}]"#,
            "",
            "",
            "403 pods \"p\" is forbidden: imagePullSecrets[0].name=\"other\" is not allowed because service account limited \
             does not reference that imagePullSecret",
        ),
        (
            mirror,
            r#","serviceAccountName":"default""#,
            "",
            "",
            "403 pods \"p\" is forbidden: a mirror pod may not reference service accounts",
        ),
        (mirror, "", environment, "", "403 pods \"p\" is forbidden: a mirror pod may not reference secrets"),
    ] {
        let got = create_dry_run(&server, PODS, &pod(metadata, spec, container), &["spec", at]).await;
        assert_eq!(got, want, "{metadata} {spec} {container}");
    }
}

#[tokio::test]
async fn an_object_without_a_class_gets_the_newest_default_class() {
    let server = server("", "").await;
    let classes = "/apis/storage.k8s.io/v1/storageclasses";
    let class = |name: &str, default: bool| {
        format!(
            r#"{{"metadata":{{"name":"{name}","annotations":{{"storageclass.kubernetes.io/is-default-class":"{default}"}}}},"provisioner":"x.io/p"}}"#
        )
    };
    let claims = "/api/v1/namespaces/n/persistentvolumeclaims";
    let claim = |spec: &str| {
        format!(
            r#"{{"metadata":{{"name":"c"}},"spec":{{"accessModes":["ReadWriteOnce"],"resources":{{"requests":{{"storage":"1Gi"}}}}{spec}}}}}"#
        )
    };
    create(&server, classes, &class("other", false)).await;
    assert_eq!(create_dry_run(&server, claims, &claim(""), &["spec", "storageClassName"]).await, "-");
    create(&server, classes, &class("b", true)).await;
    create(&server, classes, &class("a", true)).await;
    let (_, _, made_claim) = server.send(&format!("POST {claims}?dryRun=All"), &claim("")).await;
    assert!(["a", "b"].contains(&made_claim.str_at(&["spec", "storageClassName"])));
    assert_eq!(
        made_claim.at(&["metadata", "finalizers"]).map(text).unwrap(),
        r#"["kubernetes.io/pvc-protection"]"#
    );
    let named = claim(r#","storageClassName":"""#);
    assert_eq!(create_dry_run(&server, claims, &named, &["spec", "storageClassName"]).await, "\"\"");

    let mark = r#"{"metadata":{"name":"i","annotations":{"ingressclass.kubernetes.io/is-default-class":"true"}},"spec":{"controller":"x.io/c"}}"#;
    create(&server, "/apis/networking.k8s.io/v1/ingressclasses", mark).await;
    let ingress =
        r#"{"metadata":{"name":"i"},"spec":{"defaultBackend":{"service":{"name":"s","port":{"number":1}}}}}"#;
    let ingresses = "/apis/networking.k8s.io/v1/namespaces/n/ingresses";
    assert_eq!(create_dry_run(&server, ingresses, ingress, &["spec", "ingressClassName"]).await, "\"i\"");
}

#[tokio::test]
async fn pods_get_default_tolerations_and_new_nodes_get_a_not_ready_taint() {
    let server = server("", "").await;
    let node =
        create_dry_run(&server, "/api/v1/nodes", r#"{"metadata":{"name":"x"}}"#, &["spec", "taints"]).await;
    assert_eq!(node, r#"[{"key":"node.kubernetes.io/not-ready","effect":"NoSchedule"}]"#);
    let taint = |key: &str| {
        format!(
            r#"{{"key":"node.kubernetes.io/{key}","operator":"Exists","effect":"NoExecute","tolerationSeconds":300}}"#
        )
    };
    let own = r#"{"key":"node.kubernetes.io/not-ready","operator":"Exists"}"#;
    for (spec, want) in [
        (String::new(), format!("[{},{}]", taint("not-ready"), taint("unreachable"))),
        (format!(r#","tolerations":[{own}]"#), format!("[{own},{}]", taint("unreachable"))),
        (r#","tolerations":[{"operator":"Exists"}]"#.to_owned(), r#"[{"operator":"Exists"}]"#.to_owned()),
    ] {
        assert_eq!(
            create_dry_run(&server, PODS, &pod("", &spec, ""), &["spec", "tolerations"]).await,
            want,
            "{spec}"
        );
    }
}

#[tokio::test]
async fn runtime_classes_add_overhead_and_placement() {
    let server = server("", "").await;
    let class = r#"{"metadata":{"name":"r"},"handler":"h","overhead":{"podFixed":{"cpu":"10m"}},"scheduling":{"nodeSelector":{"a":"b"}}}"#;
    create(&server, "/apis/node.k8s.io/v1/runtimeclasses", class).await;
    for (spec, at, want) in [
        (r#","runtimeClassName":"r""#, "overhead", r#"{"cpu":"10m"}"#),
        (r#","runtimeClassName":"r","nodeSelector":{"c":"d"}"#, "nodeSelector", r#"{"a":"b","c":"d"}"#),
        (
            r#","runtimeClassName":"r","nodeSelector":{"a":"x"}"#,
            "",
            "403 pods \"p\" is forbidden: conflict: runtimeClass.scheduling.nodeSelector[a] = b; pod.spec.nodeSelector[a] = x",
        ),
        (
            r#","runtimeClassName":"r","overhead":{"cpu":"1"}"#,
            "",
            "403 pods \"p\" is forbidden: pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead",
        ),
        (
            r#","overhead":{"cpu":"1"}"#,
            "",
            "403 pods \"p\" is forbidden: pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead",
        ),
        (
            r#","runtimeClassName":"none""#,
            "",
            "403 pods \"p\" is forbidden: pod rejected: RuntimeClass \"none\" not found",
        ),
    ] {
        assert_eq!(create_dry_run(&server, PODS, &pod("", spec, ""), &["spec", at]).await, want, "{spec}");
    }
}

#[tokio::test]
async fn limit_ranges_give_defaults_and_bounds() {
    let server = server("", "").await;
    let limits = r#"{"metadata":{"name":"l"},"spec":{"limits":[{"type":"Container","defaultRequest":{"cpu":"100m"},"default":{"cpu":"200m","memory":"1Gi"},"max":{"cpu":"1"}}]}}"#;
    create(&server, "/api/v1/namespaces/n/limitranges", limits).await;
    let (_, _, filled) = server.send(&format!("POST {PODS}?dryRun=All"), &pod("", "", "")).await;
    assert_eq!(
        filled.str_at(&["metadata", "annotations", "kubernetes.io/limit-ranger"]),
        "LimitRanger plugin set: cpu, memory request for container c; cpu, memory limit for container c"
    );
    let container = &filled.at(&["spec", "containers"]).and_then(Value::as_array).unwrap()[0];
    assert_eq!(container.str_at(&["resources", "limits", "memory"]), "1Gi");
    assert_eq!(container.str_at(&["resources", "requests", "cpu"]), "100m");
    let many = pod("", "", r#","resources":{"limits":{"cpu":"2"},"requests":{"cpu":"2"}}"#);
    let why = "403 pods \"p\" is forbidden: maximum cpu usage per Container is 1, but limit is 2";
    assert_eq!(create_dry_run(&server, PODS, &many, &[]).await, why);
}

#[tokio::test]
async fn plugins_that_are_off_by_default_work_when_they_are_enabled() {
    let enable = "AlwaysPullImages ExtendedResourceToleration LimitPodHardAntiAffinityTopology NamespaceAutoProvision \
                  PodNodeSelector PodTolerationRestriction";
    let config = "{name: PodNodeSelector, configuration: {podNodeSelectorPluginConfig: {clusterDefaultNodeSelector: \
                  \"zone=a\", \"n\": \"zone=a,disk=ssd\"}}}, {name: PodTolerationRestriction, configuration: \
                  {apiVersion: podtolerationrestriction.admission.k8s.io/v1alpha1, kind: Configuration, whitelist: \
                  [{operator: Exists, effect: NoExecute}, {key: x.io/gpu, operator: Exists}]}}";
    let server = server(enable, config).await;
    let affinity = r#","affinity":{"podAntiAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":[{"topologyKey":"zone","labelSelector":{}}]}}"#;
    for (spec, container, at, want) in [
        ("", "", "nodeSelector", r#"{"zone":"a"}"#),
        (
            r#","nodeSelector":{"zone":"b"}"#,
            "",
            "",
            "403 pods \"p\" is forbidden: pod node label selector conflicts with its namespace node label selector",
        ),
        (
            r#","nodeSelector":{"disk":"hdd"}"#,
            "",
            "",
            "403 pods \"p\" is forbidden: pod node label selector labels conflict with its namespace whitelist",
        ),
        (
            r#","tolerations":[{"key":"other","operator":"Exists"}]"#,
            "",
            "",
            "500 pod tolerations (possibly merged with namespace default tolerations) conflict with its cluster whitelist",
        ),
        (
            affinity,
            "",
            "",
            "403 pods \"p\" is forbidden: affinity.PodAntiAffinity.RequiredDuringScheduling has TopologyKey zone but only \
             key kubernetes.io/hostname is allowed",
        ),
    ] {
        let got = create_dry_run(&server, PODS, &pod("", spec, container), &["spec", at]).await;
        assert_eq!(got, want, "{spec} {container}");
    }
    let (_, _, pulled) =
        server.send(&format!("POST {PODS}?dryRun=All"), &pod("", "", r#","imagePullPolicy":"Never""#)).await;
    let container = &pulled.at(&["spec", "containers"]).and_then(Value::as_array).unwrap()[0];
    assert_eq!(container.str_at(&["imagePullPolicy"]), "Always");
    create(&server, "/api/v1/namespaces/made/configmaps", r#"{"metadata":{"name":"m"}}"#).await;
    assert_eq!(server.send("GET /api/v1/namespaces/made", "").await.0, 200);
}

#[tokio::test]
async fn claims_grow_only_where_their_class_allows_it() {
    let server = server("", "").await;
    let class = |name: &str, more: &str| {
        format!(r#"{{"metadata":{{"name":"{name}"}},"provisioner":"x.io/p"{more}}}"#)
    };
    let classes = "/apis/storage.k8s.io/v1/storageclasses";
    create(&server, classes, &class("grows", r#","allowVolumeExpansion":true"#)).await;
    create(&server, classes, &class("fixed", "")).await;
    let claims = "/api/v1/namespaces/n/persistentvolumeclaims";
    let only = "only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must support \
                resize";
    for (class, bound, code, why) in [
        ("grows", true, 200, ""),
        ("grows", false, 422, "volumeAttributesClassName for bound claims"),
        ("fixed", true, 403, only),
        ("missing", true, 403, only),
    ] {
        let name = format!("{class}-{bound}");
        let body = format!(
            r#"{{"metadata":{{"name":"{name}"}},"spec":{{"storageClassName":"{class}","accessModes":["ReadWriteOnce"],"resources":{{"requests":{{"storage":"1Gi"}}}}}}}}"#
        );
        create(&server, claims, &body).await;
        if bound {
            let status = r#"{"status":{"phase":"Bound","capacity":{"storage":"1Gi"}}}"#;
            assert_eq!(server.send(&format!("MERGE {claims}/{name}/status"), status).await.0, 200);
        }
        let larger = r#"{"spec":{"resources":{"requests":{"storage":"2Gi"}}}}"#;
        let (got, _, answer) = server.send(&format!("MERGE {claims}/{name}"), larger).await;
        let message = answer.str_at(&["message"]);
        assert!(got == code && message.contains(why), "{name}: {got} {message}");
    }
}

#[test]
fn a_plugin_configuration_with_invalid_content_is_refused() {
    for (plugin, config, why) in [
        ("PodNodeSelector", r#"{"podNodeSelectorPluginConfig":{"n":"zone"}}"#, "invalid selector: zone"),
        ("PodTolerationRestriction", r#"{"default":1}"#, "Object 'Kind' is missing in '{\"default\":1}'"),
    ] {
        assert!(parse(config.as_bytes()).is_ok());
        let config = format!(
            "apiVersion: apiserver.config.k8s.io/v1\nkind: AdmissionConfiguration\n\
                 plugins: [{{name: {plugin}, configuration: {config}}}]"
        );
        let enable = [plugin.to_owned()];
        let wishes = Wishes { enable: &enable, config: Some(config.as_bytes()), ..Wishes::default() };
        let got = Settings::parse(&wishes, &NoFiles).unwrap_err();
        assert_eq!(
            got.to_string(),
            format!("failed to apply admission: couldn't init admission plugin \"{plugin}\": {why}")
        );
    }
}
