//! Deletes: responses, finalizers, collections, namespaces and grace periods (docs/api/delete.md,
//! #namespace-lifecycle, docs/api/subresources.md).

use serde_json::{Value, json};

use crate::definitions::{DEFINITIONS, definition};
use crate::fixture::{Fixture, names, outcome, version};

fn map(name: &str) -> Value {
    json!({"metadata": {"name": name}, "data": {"k": "v"}})
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_answer_of_a_delete_depends_on_kind_and_finalizers() {
    let fixture = Fixture::new("delete").await;
    let held = |name: &str| json!({"metadata": {"name": name, "finalizers": ["example.com/hold"]}});
    fixture.make("$core/configmaps", &[map("a"), map("b"), map("c"), held("h"), held("i"), held("j")]).await;
    fixture.make("$core/serviceaccounts", &[json!({"metadata": {"name": "s"}})]).await;
    fixture
        .make("$core/services", &[json!({"metadata": {"name": "svc"}, "spec": {"ports": [{"port": 80}]}})])
        .await;
    fixture.make("$batch/jobs", &[]).await;
    let versions = json!([{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}}]);
    fixture.make(DEFINITIONS, &[definition("deletes", versions)]).await;
    let uid = fixture.get("$core/configmaps/a").await["metadata"]["uid"].clone();
    let revision = fixture.version("$core/configmaps/b").await;

    let removed = fixture.send("DELETE $core/configmaps/a", "").await.json();
    let want = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success",
        "details": {"name": "a", "kind": "configmaps", "uid": uid},
    });
    assert_eq!(removed, want, "deletion-answers");
    let account = fixture.version("$core/serviceaccounts/s").await;
    let removed = fixture.send("DELETE $core/serviceaccounts/s", "").await.json();
    assert_eq!(removed["kind"], "ServiceAccount", "deletion-answers");
    assert!(version(&removed) > account, "deletion-answers: the response has the revision of the deletion");

    fixture
        .check(&[
            ("delete", "DELETE $core/configmaps/a", "", "404 NotFound: configmaps \"a\" not found"),
            ("delete", "DELETE $core/services/svc", "", "200 Service"),
            // The next rows have preconditions.
            ("messages", "DELETE $core/configmaps/b?resourceVersion=1", "", &format!("409 Conflict: Operation cannot be fulfilled on ConfigMap \"b\": the ResourceVersion in the precondition (1) does not match the ResourceVersion in record ({revision}). The object might have been modified")),
            ("messages", "DELETE $core/configmaps/b?uid=x", "", "409 Conflict: Operation cannot be fulfilled on ConfigMap \"b\": the UID in the precondition (x) does not match the UID in record (…"),
            ("messages", &format!("DELETE {DEFINITIONS}/deletes.g.example.com?uid=x"), "", "409 Conflict: Operation cannot be fulfilled on customresourcedefinitions.apiextensions.k8s.io \"deletes.g.example.com\": Precondition failed: UID in precondition: x, UID in object meta: …"),
            ("delete", "DELETE $core/configmaps/b", r#"{"preconditions":{"resourceVersion":"1"}}"#, "409 Conflict: …"),
            ("delete", "DELETE $core/configmaps/b", r#"{"preconditions":{"uid":"x"}}"#, "409 Conflict: …"),
            ("delete", "DELETE $core/configmaps/b?uid=x&dryRun=nonsense&gracePeriodSeconds=x", "{}", "200 Success"),
            // The next rows have delete options.
            ("options", "DELETE $core/configmaps/c?propagationPolicy=Maybe", "", "422 Invalid: DeleteOptions.meta.k8s.io \"\" is invalid: propagationPolicy: Unsupported value: \"Maybe\": supported values: \"Foreground\", \"Background\", \"Orphan\", \"nil\""),
            ("options", "DELETE $core/configmaps/c?propagationPolicy=Orphan&orphanDependents=true", "", "422 Invalid: DeleteOptions.meta.k8s.io \"\" is invalid: propagationPolicy: Invalid value: \"Orphan\": orphanDependents and deletionPropagation cannot be both set"),
            ("query-parameters", "DELETE $core/configmaps/c?gracePeriodSeconds=x", "", "400 BadRequest: strconv.ParseInt: parsing \"x\": invalid syntax"),
            ("options", "DELETE $core/configmaps/c?dryRun=x", "", "422 Invalid: DeleteOptions.meta.k8s.io \"\" is invalid: dryRun: Unsupported value: [\"x\"]: supported values: \"All\""),
            ("options", "DELETE $core/configmaps/c", r#"{"gracePeriodSeconds":"x"}"#, "400 BadRequest: json: cannot unmarshal string into Go struct field DeleteOptions.gracePeriodSeconds of type int64"),
            ("options", "DELETE $core/configmaps/c", r#"{"gracePeriodSeconds":1.5}"#, "400 BadRequest: json: cannot unmarshal number 1.5 into Go struct field DeleteOptions.gracePeriodSeconds of type int64"),
            ("options", "DELETE $core/configmaps", r#"{"orphanDependents":"x"}"#, "400 BadRequest: json: cannot unmarshal string into Go struct field DeleteOptions.orphanDependents of type bool"),
            ("options", "DELETE $core/configmaps/c", r#"{"propagationPolicy":1}"#, "400 BadRequest: json: cannot unmarshal number into Go struct field DeleteOptions.propagationPolicy of type v1.DeletionPropagation"),
            ("options", "DELETE $core/configmaps/c", r#"{"preconditions":"x"}"#, "400 BadRequest: json: cannot unmarshal string into Go struct field DeleteOptions.preconditions of type v1.Preconditions"),
            ("options", "DELETE $core/configmaps/c", r#"{"preconditions":{"uid":1}}"#, "400 BadRequest: json: cannot unmarshal number into Go struct field Preconditions.preconditions.uid of type types.UID"),
            ("options", "DELETE $core/configmaps/c", r#"{"dryRun":"All"}"#, "400 BadRequest: json: cannot unmarshal string into Go struct field DeleteOptions.dryRun of type []string"),
            ("options", "DELETE $core/configmaps/c", "[]", "400 BadRequest: couldn't get version/kind; json parse error: json: cannot unmarshal array into Go value of type struct {…"),
            ("options", "DELETE $core/configmaps/c", r#"{"kind":"ConfigMap","apiVersion":"v1"}"#, "400 BadRequest: no kind \"ConfigMap\" is registered for version \"v1\" in scheme \"k8s.io/apimachinery/pkg/apis/meta/internalversion/scheme/register.go:27\""),
            ("options", "DELETE $core/configmaps", r#"{"kind":"Pod"}"#, "400 BadRequest: no kind \"Pod\" is registered for version \"meta.k8s.io/v1\" in scheme …"),
            ("options", "DELETE $core/configmaps/c", r#"{"kind":"DeleteOptions","apiVersion":"a/b/c"}"#, "400 BadRequest: unexpected GroupVersion string: a/b/c"),
            ("options", "DELETE $core/configmaps/c", "{", "400 BadRequest: couldn't get version/kind; json parse error: unexpected end of JSON input"),
            ("options", "DELETE $core/configmaps/c", r#"{"kind":"DeleteOptions","apiVersion":"v1","color":"blue","dryRun":["All"]}"#, "200 Success"),
            ("delete", "DELETE $core/configmaps/c?dryRun=All", "", "200 Success"),
            ("delete", "DELETE $core/configmaps/c?gracePeriodSeconds=-5", "", "200 Success"),
            ("delete", "GET $core/configmaps/c", "", "404 NotFound: configmaps \"c\" not found"),
            // Objects with finalizers: 202 only with `orphanDependents=false`.
            ("deletion-answers", "DELETE $core/configmaps/h", "", "200 ConfigMap"),
            ("delete", "DELETE $core/configmaps/h", "", "200 ConfigMap"),
            ("deletion-answers", "DELETE $core/configmaps/i?orphanDependents=false", "", "202 ConfigMap"),
            ("deletion-answers", "DELETE $core/configmaps/j", r#"{"orphanDependents":false}"#, "202 ConfigMap"),
            ("messages", "POST $core/configmaps", r#"{"metadata":{"name":"h"}}"#, "409 AlreadyExists: object is being deleted: configmaps \"h\" already exists"),
        ])
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_delete_of_an_object_with_finalizers_has_two_phases() {
    let fixture = Fixture::new("finalizers").await;
    fixture
        .make(
            "$core/configmaps",
            &[json!({"metadata": {"name": "a", "finalizers": ["example.com/one", "example.com/two"]}})],
        )
        .await;
    let mut watch = fixture
        .client
        .watch(
            &fixture.full("$core/configmaps?watch=1&fieldSelector=metadata.name%3Da&sendInitialEvents=false&resourceVersionMatch=NotOlderThan"),
        )
        .await;
    let marked = fixture.send("DELETE $core/configmaps/a", "").await.json();
    assert!(marked["metadata"]["deletionTimestamp"].is_string(), "marked-objects");
    assert_eq!(marked["metadata"]["deletionGracePeriodSeconds"], 0, "marked-objects");
    let again = fixture.send("DELETE $core/configmaps/a", "").await.json();
    assert_eq!(again, marked, "deletion-answers: a second delete changes nothing");
    fixture
        .check(&[
            ("update", "PATCH $core/configmaps/a", r#"{"metadata":{"finalizers":["example.com/one","example.com/two","example.com/new"]}}"#, "422 Invalid: ConfigMap \"a\" is invalid: metadata.finalizers: Forbidden: no new finalizers can be added if the object is being deleted, found new finalizers []string{\"example.com/new\"}"),
            ("update", "PATCH $core/configmaps/a", r#"{"metadata":{"finalizers":["example.com/two"],"deletionTimestamp":null}}"#, "200 ConfigMap"),
            ("update", "PATCH $core/configmaps/a", r#"{"data":{"still":"here"}}"#, "200 ConfigMap"),
        ])
        .await;
    assert!(
        fixture.get("$core/configmaps/a").await["metadata"]["deletionTimestamp"].is_string(),
        "what-an-update-keeps"
    );
    let last = fixture.send("PATCH $core/configmaps/a", r#"{"metadata":{"finalizers":null}}"#).await;
    assert_eq!(outcome(&last), "200 ConfigMap", "update-that-completes-a-deletion");
    assert_eq!(
        fixture.send("GET $core/configmaps/a", "").await.status,
        404,
        "update-that-completes-a-deletion"
    );
    let mut events = Vec::new();
    for _ in 0..4 {
        events.push(watch.expect().await.0);
    }
    assert_eq!(events, ["MODIFIED", "MODIFIED", "MODIFIED", "DELETED"], "delete");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_collection_is_deleted_as_it_was_selected() {
    let fixture = Fixture::new("collection").await;
    let labelled = |name: &str, color: &str| json!({"metadata": {"name": name, "labels": {"color": color}}});
    let maps: Vec<Value> = ["a", "b", "c", "d", "e"]
        .iter()
        .map(|name| labelled(name, "red"))
        .chain([labelled("x", "blue")])
        .collect();
    let before = version(&fixture.get("$core/secrets").await);
    fixture.make("$core/secrets", &maps).await;
    for (section, request, body, deleted, left) in [
        // A resource version selects the objects that existed at that version.
        ("delete", &*format!("DELETE $core/secrets?resourceVersion={before}"), "", "", "a b c d e x"),
        (
            "delete",
            "DELETE $core/secrets?labelSelector=color%3Dred&dryRun=All",
            "",
            "a b c d e",
            "a b c d e x",
        ),
        ("delete", "DELETE $core/secrets?labelSelector=color%3Dred&limit=2", "", "a b", "c d e x"),
        ("delete", "DELETE $core/secrets?fieldSelector=metadata.name%3Dd", "", "d", "c e x"),
        ("delete", "DELETE $core/secrets?labelSelector=color%3Dgreen", "", "", "c e x"),
        (
            "options",
            "DELETE $core/secrets?labelSelector=color%3Dred",
            r#"{"dryRun":["All"]}"#,
            "c e",
            "c e x",
        ),
        ("delete", "DELETE $core/secrets", "", "c e x", ""),
    ] {
        let list = fixture.send(request, body).await;
        assert_eq!(outcome(&list), "200 SecretList", "{section} {request}");
        assert_eq!(names(&list.json()).join(" "), deleted, "{section} {request}");
        assert_eq!(names(&fixture.get("$core/secrets").await).join(" "), left, "{section} {request}");
    }
    fixture
        .check(&[
            (
                "delete",
                "DELETE $core/secrets?ignoreStoreReadErrorWithClusterBreakingPotential=true",
                "null",
                "200 SecretList",
            ),
            (
                "delete",
                "DELETE $core/secrets?ignoreStoreReadErrorWithClusterBreakingPotential=true",
                "",
                "200 SecretList",
            ),
            (
                "list-options",
                "DELETE $core/secrets?resourceVersionMatch=Exact",
                "",
                "422 Invalid: ListOptions.meta.k8s.io \"\" is invalid: …",
            ),
            ("selectors", "DELETE $core/secrets?labelSelector=%21%21", "", "400 BadRequest: …"),
            ("selectors", "DELETE $core/secrets?fieldSelector=data.k%3Dv", "", "400 BadRequest: …"),
        ])
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn terminating_namespaces_accept_no_new_objects() {
    let fixture = Fixture::new("ending").await;
    // An object with a finalizer delays the deletion of its namespace.
    fixture
        .make("$core/configmaps", &[json!({"metadata": {"name": "a", "finalizers": ["example.com/hold"]}})])
        .await;
    fixture
        .check(&[
            (
                "namespace-lifecycle",
                "DELETE /api/v1/namespaces/default",
                "",
                "403 Forbidden: namespaces \"default\" is forbidden: this namespace may not be deleted",
            ),
            (
                "namespace-lifecycle",
                "DELETE /api/v1/namespaces/kube-system",
                "",
                "403 Forbidden: namespaces \"kube-system\" is forbidden: this namespace may not be deleted",
            ),
            (
                "namespace-lifecycle",
                "DELETE /api/v1/namespaces/kube-public",
                "",
                "403 Forbidden: namespaces \"kube-public\" is forbidden: this namespace may not be deleted",
            ),
            (
                "delete",
                "DELETE /apis/scheduling.k8s.io/v1/priorityclasses/system-node-critical",
                "",
                "403 Forbidden: priorityclasses.scheduling.k8s.io \"system-node-critical\" is forbidden: this is a system priority class and cannot be deleted",
            ),
            (
                "namespace-lifecycle",
                "DELETE /api/v1/namespaces/missing",
                "",
                "404 NotFound: namespaces \"missing\" not found",
            ),
            // This object has a finalizer, so that the namespace still exists for the rows below.
            (
                "namespace-lifecycle",
                "PATCH /api/v1/namespaces/$ns",
                r#"{"metadata":{"finalizers":["example.com/hold"]}}"#,
                "200 Namespace",
            ),
            (
                "namespace-lifecycle",
                "PATCH /api/v1/namespaces/$ns",
                r#"{"spec":{"finalizers":["example.com/mine"]}}"#,
                "200 Namespace",
            ),
            ("namespace-lifecycle", "DELETE /api/v1/namespaces/$ns", "", "200 Namespace"),
        ])
        .await;
    let ending = fixture.get("/api/v1/namespaces/$ns").await;
    assert_eq!(ending["status"]["phase"], "Terminating", "namespace-lifecycle");
    assert!(ending["metadata"]["deletionTimestamp"].is_string(), "namespace-lifecycle");
    assert_eq!(
        ending["spec"]["finalizers"],
        json!(["kubernetes"]),
        "namespace-lifecycle: only the finalize subresource changes the finalizers"
    );
    let refused = fixture.send("POST $core/configmaps", r#"{"metadata":{"name":"b"}}"#).await;
    let ns = &fixture.ns;
    assert_eq!(
        outcome(&refused),
        format!(
            "403 Forbidden: configmaps \"b\" is forbidden: unable to create new content in namespace {ns} because it is being terminated"
        )
    );
    assert_eq!(
        refused.json()["details"]["causes"],
        json!([{"reason": "NamespaceTerminating", "message": format!("namespace {ns} is being terminated"), "field": "metadata.namespace"}]),
        "namespace-lifecycle"
    );
    fixture
        .check(&[
            ("namespace-lifecycle", "DELETE /api/v1/namespaces/$ns", "", "200 Namespace"),
            ("namespace-lifecycle", "POST /apis/authorization.k8s.io/v1/namespaces/$ns/localsubjectaccessreviews", r#"{"metadata":{"namespace":"$ns"},"spec":{"user":"x","resourceAttributes":{"namespace":"$ns","verb":"get","resource":"pods"}}}"#, "201 LocalSubjectAccessReview"),
            ("namespace-lifecycle", "PUT /api/v1/namespaces/$ns/finalize", r#"{"metadata":{"name":"$ns","finalizers":["example.com/hold"]},"spec":{"finalizers":[]}}"#, "200 Namespace"),
            ("namespace-lifecycle", "GET /api/v1/namespaces/$ns", "", "200 Namespace"),
            ("update", "PATCH /api/v1/namespaces/$ns", r#"{"metadata":{"finalizers":null}}"#, "200 Namespace"),
            ("namespace-lifecycle", "GET /api/v1/namespaces/$ns", "", "404 NotFound: namespaces \"$ns\" not found"),
        ])
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pods_are_bound_once_and_terminate_gracefully() {
    let fixture = Fixture::new("pods").await;
    let pod = |name: &str| json!({"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "i"}], "terminationGracePeriodSeconds": 30}});
    fixture.make("$core/pods", &[pod("a"), pod("b"), pod("c")]).await;
    let binding = r#"{"metadata":{"name":"a"},"target":{"kind":"Node","name":"n1"}}"#;
    fixture
        .check(&[
            ("subresources", "POST $core/pods/a/binding", r#"{"metadata":{"name":"a"},"target":{"kind":"Pod","name":"n1"}}"#, "500 -: target.kind: Unsupported value: \"Pod\": supported values: \"Node\", \"<empty>\""),
            ("subresources", "POST $core/pods/a/binding", r#"{"metadata":{"name":"a"},"target":{}}"#, "500 -: target.name: Required value"),
            ("subresources", "POST $core/pods/a/binding", binding, "201 Success"),
            ("subresources", "POST $core/pods/a/binding", binding, "409 Conflict: Operation cannot be fulfilled on pods/binding \"a\": pod a is already assigned to node \"n1\""),
            ("subresources", "POST $core/bindings", r#"{"metadata":{"name":"b"},"target":{"kind":"Node","name":"n2"}}"#, "201 Success"),
            ("subresources", "POST $core/pods/none/binding", r#"{"metadata":{"name":"none"},"target":{"name":"n1"}}"#, "404 NotFound: pods \"none\" not found"),
        ])
        .await;
    let bound = fixture.get("$core/pods/a").await;
    assert_eq!(bound["spec"]["nodeName"], "n1", "subresources");
    let scheduled = bound["status"]["conditions"]
        .as_array()
        .unwrap()
        .iter()
        .find(|c| c["type"] == "PodScheduled")
        .unwrap()
        .clone();
    assert_eq!(scheduled["status"], "True", "subresources");
    assert_eq!(bound["status"]["phase"], "Pending");

    // A pod on a node has a grace period; a pod without a node is removed at once.
    let ending = fixture.send("DELETE $core/pods/a", "").await;
    assert_eq!(outcome(&ending), "200 Pod");
    assert_eq!(ending.json()["metadata"]["deletionGracePeriodSeconds"], 30, "grace-periods");
    let longer = fixture.send("DELETE $core/pods/a?gracePeriodSeconds=60", "").await.json();
    assert_eq!(version(&longer), version(&ending.json()), "grace-periods: a longer period changes nothing");
    let shorter = fixture.send("DELETE $core/pods/a?gracePeriodSeconds=5", "").await.json();
    assert_eq!(shorter["metadata"]["deletionGracePeriodSeconds"], 5, "grace-periods");
    fixture
        .check(&[
            ("delete", "DELETE $core/pods/a?gracePeriodSeconds=0", "", "200 Pod"),
            ("delete", "GET $core/pods/a", "", "404 NotFound: pods \"a\" not found"),
            ("delete", "DELETE $core/pods/c", "", "200 Pod"),
            ("delete", "GET $core/pods/c", "", "404 NotFound: pods \"c\" not found"),
            ("logs", "GET $core/pods/none/log", "", "404 NotFound: pods \"none\" not found"),
        ])
        .await;
}
