//! Deletes: answers, finalizers, collections, and what takes its time to go (semantics §5.3, §5.4, §5.6).

use serde_json::{Value, json};

use crate::place::{Place, names, outcome, version};

fn map(name: &str) -> Value {
    json!({"metadata": {"name": name}, "data": {"k": "v"}})
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_delete_answers_by_kind_and_by_what_is_left() {
    let place = Place::new("delete").await;
    let held = |name: &str| json!({"metadata": {"name": name, "finalizers": ["example.com/hold"]}});
    place.make("$core/configmaps", &[map("a"), map("b"), map("c"), held("h"), held("i"), held("j")]).await;
    place.make("$core/serviceaccounts", &[json!({"metadata": {"name": "s"}})]).await;
    place
        .make("$core/services", &[json!({"metadata": {"name": "svc"}, "spec": {"ports": [{"port": 80}]}})])
        .await;
    place.make("$batch/jobs", &[]).await;
    let uid = place.get("$core/configmaps/a").await["metadata"]["uid"].clone();
    let revision = place.version("$core/configmaps/b").await;

    let removed = place.ask("DELETE $core/configmaps/a", "").await.json();
    let want = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success",
        "details": {"name": "a", "kind": "configmaps", "uid": uid},
    });
    assert_eq!(removed, want, "§5.3 step 6");
    let account = place.version("$core/serviceaccounts/s").await;
    let removed = place.ask("DELETE $core/serviceaccounts/s", "").await.json();
    assert_eq!(removed["kind"], "ServiceAccount", "§5.3 step 6");
    assert!(version(&removed) > account, "§5.3 step 6: the deletion's own revision");

    place
        .check(&[
            ("5.3", "DELETE $core/configmaps/a", "", "404 NotFound: configmaps \"a\" not found"),
            ("5.3", "DELETE $core/services/svc", "", "200 Service"),
            // Preconditions.
            ("1.3", "DELETE $core/configmaps/b?resourceVersion=1", "", &format!("409 Conflict: Operation cannot be fulfilled on ConfigMap \"b\": the ResourceVersion in the precondition (1) does not match the ResourceVersion in record ({revision}). The object might have been modified")),
            ("1.3", "DELETE $core/configmaps/b?uid=x", "", "409 Conflict: Operation cannot be fulfilled on ConfigMap \"b\": the UID in the precondition (x) does not match the UID in record (…"),
            ("5.3", "DELETE $core/configmaps/b", r#"{"preconditions":{"resourceVersion":"1"}}"#, "409 Conflict: …"),
            ("5.3", "DELETE $core/configmaps/b", r#"{"preconditions":{"uid":"x"}}"#, "409 Conflict: …"),
            ("5.3", "DELETE $core/configmaps/b?uid=x&dryRun=nonsense&gracePeriodSeconds=x", "{}", "200 Success"),
            // Options.
            ("4.2", "DELETE $core/configmaps/c?propagationPolicy=Maybe", "", "422 Invalid: DeleteOptions.meta.k8s.io \"\" is invalid: propagationPolicy: Unsupported value: \"Maybe\": supported values: \"Foreground\", \"Background\", \"Orphan\", \"nil\""),
            ("4.2", "DELETE $core/configmaps/c?propagationPolicy=Orphan&orphanDependents=true", "", "422 Invalid: DeleteOptions.meta.k8s.io \"\" is invalid: propagationPolicy: Invalid value: \"Orphan\": orphanDependents and deletionPropagation cannot be both set"),
            ("4.1", "DELETE $core/configmaps/c?gracePeriodSeconds=x", "", "400 BadRequest: strconv.ParseInt: parsing \"x\": invalid syntax"),
            ("4.2", "DELETE $core/configmaps/c?dryRun=x", "", "422 Invalid: DeleteOptions.meta.k8s.io \"\" is invalid: dryRun: Unsupported value: [\"x\"]: supported values: \"All\""),
            ("4.2", "DELETE $core/configmaps/c", r#"{"kind":"ConfigMap","apiVersion":"v1"}"#, "400 BadRequest: …"),
            ("4.2", "DELETE $core/configmaps/c", r#"{"gracePeriodSeconds":"x"}"#, "400 BadRequest: …"),
            ("4.2", "DELETE $core/configmaps/c", "{", "400 BadRequest: …"),
            ("4.2", "DELETE $core/configmaps/c", r#"{"kind":"DeleteOptions","apiVersion":"v1","color":"blue","dryRun":["All"]}"#, "200 Success"),
            ("5.3", "DELETE $core/configmaps/c?dryRun=All", "", "200 Success"),
            ("5.3", "DELETE $core/configmaps/c?gracePeriodSeconds=-5", "", "200 Success"),
            ("5.3", "GET $core/configmaps/c", "", "404 NotFound: configmaps \"c\" not found"),
            // Held objects: 202 only when told `orphanDependents=false`.
            ("19.1", "DELETE $core/configmaps/h", "", "200 ConfigMap"),
            ("5.3", "DELETE $core/configmaps/h", "", "200 ConfigMap"),
            ("19.1", "DELETE $core/configmaps/i?orphanDependents=false", "", "202 ConfigMap"),
            ("19.1", "DELETE $core/configmaps/j", r#"{"orphanDependents":false}"#, "202 ConfigMap"),
            ("1.3", "POST $core/configmaps", r#"{"metadata":{"name":"h"}}"#, "409 AlreadyExists: object is being deleted: configmaps \"h\" already exists"),
        ])
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn finalizers_make_a_delete_two_phased() {
    let place = Place::new("finalizers").await;
    place
        .make(
            "$core/configmaps",
            &[json!({"metadata": {"name": "a", "finalizers": ["example.com/one", "example.com/two"]}})],
        )
        .await;
    let mut watch = place
        .client
        .watch(
            &place.full("$core/configmaps?watch=1&fieldSelector=metadata.name%3Da&sendInitialEvents=false&resourceVersionMatch=NotOlderThan"),
        )
        .await;
    let marked = place.ask("DELETE $core/configmaps/a", "").await.json();
    assert!(marked["metadata"]["deletionTimestamp"].is_string(), "§5.3 step 4");
    assert_eq!(marked["metadata"]["deletionGracePeriodSeconds"], 0, "§5.3 step 4");
    let again = place.ask("DELETE $core/configmaps/a", "").await.json();
    assert_eq!(again, marked, "§5.3 step 7: nothing changes");
    place
        .check(&[
            ("5.2", "PATCH $core/configmaps/a", r#"{"metadata":{"finalizers":["example.com/one","example.com/two","example.com/new"]}}"#, "422 Invalid: ConfigMap \"a\" is invalid: metadata.finalizers: Forbidden: no new finalizers can be added if the object is being deleted, found new finalizers []string{\"example.com/new\"}"),
            ("5.2", "PATCH $core/configmaps/a", r#"{"metadata":{"finalizers":["example.com/two"],"deletionTimestamp":null}}"#, "200 ConfigMap"),
            ("5.2", "PATCH $core/configmaps/a", r#"{"data":{"still":"here"}}"#, "200 ConfigMap"),
        ])
        .await;
    assert!(
        place.get("$core/configmaps/a").await["metadata"]["deletionTimestamp"].is_string(),
        "§5.2 step 7"
    );
    let last = place.ask("PATCH $core/configmaps/a", r#"{"metadata":{"finalizers":null}}"#).await;
    assert_eq!(outcome(&last), "200 ConfigMap", "§5.2 step 10");
    assert_eq!(place.ask("GET $core/configmaps/a", "").await.status, 404, "§5.2 step 10");
    let mut events = Vec::new();
    for _ in 0..4 {
        events.push(watch.expect().await.0);
    }
    assert_eq!(events, ["MODIFIED", "MODIFIED", "MODIFIED", "DELETED"], "§5.3");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_collection_is_deleted_as_it_was_selected() {
    let place = Place::new("collection").await;
    let labelled = |name: &str, color: &str| json!({"metadata": {"name": name, "labels": {"color": color}}});
    let maps: Vec<Value> = ["a", "b", "c", "d", "e"]
        .iter()
        .map(|name| labelled(name, "red"))
        .chain([labelled("x", "blue")])
        .collect();
    place.make("$core/secrets", &maps).await;
    for (section, request, body, deleted, left) in [
        ("5.3", "DELETE $core/secrets?labelSelector=color%3Dred&dryRun=All", "", "a b c d e", "a b c d e x"),
        ("5.3", "DELETE $core/secrets?labelSelector=color%3Dred&limit=2", "", "a b", "c d e x"),
        ("5.3", "DELETE $core/secrets?fieldSelector=metadata.name%3Dd", "", "d", "c e x"),
        ("5.3", "DELETE $core/secrets?labelSelector=color%3Dgreen", "", "", "c e x"),
        ("4.2", "DELETE $core/secrets?labelSelector=color%3Dred", r#"{"dryRun":["All"]}"#, "c e", "c e x"),
        ("5.3", "DELETE $core/secrets", "", "c e x", ""),
    ] {
        let list = place.ask(request, body).await;
        assert_eq!(outcome(&list), "200 SecretList", "§{section} {request}");
        assert_eq!(names(&list.json()).join(" "), deleted, "§{section} {request}");
        assert_eq!(names(&place.get("$core/secrets").await).join(" "), left, "§{section} {request}");
    }
    place
        .check(&[
            ("5.3", "DELETE $core/secrets?ignoreStoreReadErrorWithClusterBreakingPotential=true", "", "422 Invalid: DeleteOptions.meta.k8s.io \"\" is invalid: ignoreStoreReadErrorWithClusterBreakingPotential: …"),
            ("8.1", "DELETE $core/secrets?resourceVersionMatch=Exact", "", "422 Invalid: ListOptions.meta.k8s.io \"\" is invalid: …"),
            ("4.3", "DELETE $core/secrets?labelSelector=%21%21", "", "400 BadRequest: …"),
            ("4.3", "DELETE $core/secrets?fieldSelector=data.k%3Dv", "", "400 BadRequest: …"),
        ])
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn namespaces_end_slowly_and_take_nothing_in_meanwhile() {
    let place = Place::new("ending").await;
    // What holds its content holds the namespace.
    place
        .make("$core/configmaps", &[json!({"metadata": {"name": "a", "finalizers": ["example.com/hold"]}})])
        .await;
    place
        .check(&[
            (
                "5.4",
                "DELETE /api/v1/namespaces/default",
                "",
                "403 Forbidden: namespaces \"default\" is forbidden: this namespace may not be deleted",
            ),
            (
                "5.4",
                "DELETE /api/v1/namespaces/kube-system",
                "",
                "403 Forbidden: namespaces \"kube-system\" is forbidden: this namespace may not be deleted",
            ),
            (
                "5.4",
                "DELETE /api/v1/namespaces/kube-public",
                "",
                "403 Forbidden: namespaces \"kube-public\" is forbidden: this namespace may not be deleted",
            ),
            (
                "5.4",
                "DELETE /api/v1/namespaces/missing",
                "",
                "404 NotFound: namespaces \"missing\" not found",
            ),
            // Held, so that it cannot end while the rows below look at it.
            (
                "5.4",
                "PATCH /api/v1/namespaces/$ns",
                r#"{"metadata":{"finalizers":["example.com/hold"]}}"#,
                "200 Namespace",
            ),
            (
                "5.4",
                "PATCH /api/v1/namespaces/$ns",
                r#"{"spec":{"finalizers":["example.com/mine"]}}"#,
                "200 Namespace",
            ),
            ("5.4", "DELETE /api/v1/namespaces/$ns", "", "200 Namespace"),
        ])
        .await;
    let ending = place.get("/api/v1/namespaces/$ns").await;
    assert_eq!(ending["status"]["phase"], "Terminating", "§5.4");
    assert!(ending["metadata"]["deletionTimestamp"].is_string(), "§5.4");
    assert_eq!(ending["spec"]["finalizers"], json!(["kubernetes"]), "§5.4: only finalize changes them");
    let refused = place.ask("POST $core/configmaps", r#"{"metadata":{"name":"b"}}"#).await;
    let ns = &place.ns;
    assert_eq!(
        outcome(&refused),
        format!(
            "403 Forbidden: configmaps \"b\" is forbidden: unable to create new content in namespace {ns} because it is being terminated"
        )
    );
    assert_eq!(
        refused.json()["details"]["causes"],
        json!([{"reason": "NamespaceTerminating", "message": format!("namespace {ns} is being terminated"), "field": "metadata.namespace"}]),
        "§5.4"
    );
    place
        .check(&[
            ("5.4", "DELETE /api/v1/namespaces/$ns", "", "200 Namespace"),
            ("5.4", "POST /apis/authorization.k8s.io/v1/namespaces/$ns/localsubjectaccessreviews", r#"{"metadata":{"namespace":"$ns"},"spec":{"user":"x","resourceAttributes":{"namespace":"$ns","verb":"get","resource":"pods"}}}"#, "201 LocalSubjectAccessReview"),
            ("5.4", "PUT /api/v1/namespaces/$ns/finalize", r#"{"metadata":{"name":"$ns"},"spec":{"finalizers":[]}}"#, "200 Namespace"),
            ("5.4", "GET /api/v1/namespaces/$ns", "", "200 Namespace"),
            ("5.2", "PATCH /api/v1/namespaces/$ns", r#"{"metadata":{"finalizers":null}}"#, "200 Namespace"),
            ("5.4", "GET /api/v1/namespaces/$ns", "", "404 NotFound: namespaces \"$ns\" not found"),
        ])
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pods_are_bound_once_and_end_gracefully() {
    let place = Place::new("pods").await;
    let pod = |name: &str| json!({"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "i"}], "terminationGracePeriodSeconds": 30}});
    place.make("$core/pods", &[pod("a"), pod("b"), pod("c")]).await;
    let binding = r#"{"metadata":{"name":"a"},"target":{"kind":"Node","name":"n1"}}"#;
    place
        .check(&[
            ("5.6", "POST $core/pods/a/binding", r#"{"metadata":{"name":"a"},"target":{"kind":"Pod","name":"n1"}}"#, "422 Invalid: …"),
            ("5.6", "POST $core/pods/a/binding", r#"{"metadata":{"name":"a"},"target":{}}"#, "422 Invalid: …"),
            ("5.6", "POST $core/pods/a/binding", binding, "201 Success"),
            ("5.6", "POST $core/pods/a/binding", binding, "409 Conflict: Operation cannot be fulfilled on pods/binding \"a\": pod a is already assigned to node \"n1\""),
            ("5.6", "POST $core/bindings", r#"{"metadata":{"name":"b"},"target":{"kind":"Node","name":"n2"}}"#, "201 Success"),
            ("5.6", "POST $core/pods/none/binding", r#"{"metadata":{"name":"none"},"target":{"name":"n1"}}"#, "404 NotFound: pods \"none\" not found"),
        ])
        .await;
    let bound = place.get("$core/pods/a").await;
    assert_eq!(bound["spec"]["nodeName"], "n1", "§5.6");
    let scheduled = bound["status"]["conditions"]
        .as_array()
        .unwrap()
        .iter()
        .find(|c| c["type"] == "PodScheduled")
        .unwrap()
        .clone();
    assert_eq!(scheduled["status"], "True", "§5.6");
    assert_eq!(bound["status"]["phase"], "Pending");

    // A pod that some node runs is given its time; one that nobody runs goes at once.
    let ending = place.ask("DELETE $core/pods/a", "").await;
    assert_eq!(outcome(&ending), "200 Pod");
    assert_eq!(ending.json()["metadata"]["deletionGracePeriodSeconds"], 30, "§5.3 step 2");
    let longer = place.ask("DELETE $core/pods/a?gracePeriodSeconds=60", "").await.json();
    assert_eq!(version(&longer), version(&ending.json()), "§5.3 step 2: pending");
    let shorter = place.ask("DELETE $core/pods/a?gracePeriodSeconds=5", "").await.json();
    assert_eq!(shorter["metadata"]["deletionGracePeriodSeconds"], 5, "§5.3 step 2");
    place
        .check(&[
            ("5.3", "DELETE $core/pods/a?gracePeriodSeconds=0", "", "200 Pod"),
            ("5.3", "GET $core/pods/a", "", "404 NotFound: pods \"a\" not found"),
            ("5.3", "DELETE $core/pods/c", "", "200 Pod"),
            ("5.3", "GET $core/pods/c", "", "404 NotFound: pods \"c\" not found"),
            ("5.8", "GET $core/pods/none/log", "", "404 NotFound: pods \"none\" not found"),
        ])
        .await;
}
