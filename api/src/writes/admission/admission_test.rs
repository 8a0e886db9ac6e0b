//! Tests the mutating and the validating point of admission with a plugin that records its calls.

use parking_lot::Mutex;

use super::*;
use crate::writes::plugin::{AdmissionRecord, Plugin, Review, Step, Target};
use crate::writes::server::MakePlugin;
use crate::writes::write::server_fixture::TestServer;
use values::json::{Object, Value};
use values::object::{meta, metadata_mut, set_meta};
use values::status::Status;

/// A plugin that records its calls, labels objects at the mutating point, and refuses objects with a certain
/// name.
#[derive(Default)]
pub struct Probe {
    calls: Mutex<Vec<String>>,
}

impl Plugin for Probe {
    fn handles(&self, _: &Target<'_>) -> bool {
        true
    }

    fn mutate<'p>(
        &'p self,
        record: &'p mut AdmissionRecord<'_, &mut Object>,
        review: &'p mut Review,
    ) -> Step<'p> {
        Step::wait(async move {
            // Wait here, because plugins such as webhooks may wait.
            tokio::task::yield_now().await;
            let new = record.new.as_deref().map(text);
            self.note("mutate", record, new);
            if let Some(new) = &mut record.new {
                metadata_mut(new).object_entry("labels").insert("probed", "yes".into());
            }
            review.warnings.push("seen by the probe".to_owned());
            review.annotations.push(("probe".to_owned(), "mutated".to_owned()));
            Ok(())
        })
    }

    fn validate<'p>(&'p self, record: &'p AdmissionRecord<'_, &Object>, _: &'p mut Review) -> Step<'p> {
        Step::wait(async move {
            tokio::task::yield_now().await;
            self.note("validate", record, record.new.map(text));
            if record.new.is_some_and(|new| meta(new, "name") == "refused") {
                return Err(Status::bad_request("the probe refuses it"));
            }
            Ok(())
        })
    }
}

impl Probe {
    fn note<N>(&self, point: &str, record: &AdmissionRecord<'_, N>, new: Option<String>) {
        let old = record.old.map(text);
        let shown = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
        self.calls.lock().push(format!(
            "{point} {:?}{} {}/{} {} by {}: {} => {}",
            record.write.operation,
            if record.write.dry_run() { " (dry run)" } else { "" },
            record.write.resource.table.plural,
            record.subresource,
            record.write.name,
            record.write.user.name,
            shown(old),
            shown(new),
        ));
    }
}

/// Formats the version and kind of an object, and the fields that the tests change.
fn text(object: &Object) -> String {
    let member = |name: &str| object.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
    let labelled =
        object.get("metadata").is_some_and(|metadata| metadata.at(&["labels", "probed"]).is_some());
    let spec = object.get("spec").and_then(|spec| spec.get("maxReplicas").or_else(|| spec.get("replicas")));
    let spec = spec.and_then(Value::as_i64).map(|count| format!(" {count}")).unwrap_or_default();
    format!("{} {}{spec}{}", member("apiVersion"), member("kind"), if labelled { " labelled" } else { "" })
}

/// Starts a server that runs this plugin after all other plugins, and creates the namespace `n`.
async fn server_with(name: &'static str, last: std::sync::Arc<dyn Plugin>) -> TestServer {
    let make: MakePlugin = std::sync::Arc::new(move |_| last.clone());
    let server = TestServer::admitting(Settings::default().without("ServiceAccount").with_last(name, make));
    server.send("POST /api/v1/namespaces", r#"{"metadata":{"name":"n"}}"#).await;
    server
}

/// Starts a server that runs the probe after all other plugins.
async fn probed() -> (TestServer, std::sync::Arc<Probe>) {
    let probe = std::sync::Arc::<Probe>::default();
    let server = server_with("Probe", probe.clone()).await;
    probe.calls.lock().clear();
    (server, probe)
}

/// A plugin that sets the name and the namespace of an object from its annotations `set-name` and
/// `set-namespace`, if present.
struct Mover;

impl Plugin for Mover {
    fn handles(&self, _: &Target<'_>) -> bool {
        true
    }

    fn mutate<'p>(&'p self, record: &'p mut AdmissionRecord<'_, &mut Object>, _: &'p mut Review) -> Step<'p> {
        let Some(new) = &mut record.new else { return Ok(()).into() };
        for (annotation, member) in [("set-name", "name"), ("set-namespace", "namespace")] {
            let requested =
                new.get("metadata").and_then(|metadata| metadata.at(&["annotations", annotation]));
            let requested = requested.cloned();
            match requested.as_ref().and_then(Value::as_str) {
                None => {}
                Some("") => set_meta(new, member, None),
                Some(text) => set_meta(new, member, Some(text.into())),
            }
        }
        Ok(()).into()
    }
}

#[tokio::test]
async fn a_plugin_cannot_change_the_namespace_or_the_name_of_a_stored_object() {
    let server = server_with("Mover", std::sync::Arc::new(Mover)).await;
    let maps = "/api/v1/namespaces/n/configmaps";
    for name in ["u", "v"] {
        server.send(&format!("POST {maps}"), &format!(r#"{{"metadata":{{"name":"{name}"}}}}"#)).await;
    }
    let other = "400 the namespace of the provided object does not match the namespace sent on the request";
    let immutable = "field is immutable";
    let renamed =
        format!(r#"422 ConfigMap "zz" is invalid: metadata.name: Invalid value: "zz": {immutable}"#);
    let unnamed = format!(
        r#"422 ConfigMap "" is invalid: [metadata.name: Invalid value: "": {immutable}, metadata.name: Required value: name or generateName is required]"#
    );
    for (request, name, set, want) in [
        ("POST MAPS", "a", r#""set-namespace":"other""#, other),
        ("POST MAPS", "a", r#""set-namespace":"""#, "201 n/a"),
        ("POST MAPS", "b", r#""set-name":"c""#, "201 n/c"),
        ("POST /api/v1/namespaces", "m", r#""set-namespace":"other""#, "201 /m"),
        ("PUT MAPS/u", "u", r#""set-namespace":"other""#, other),
        ("PUT MAPS/u", "u", r#""set-namespace":"""#, "200 n/u"),
        ("MERGE MAPS/v", "v", r#""set-namespace":"other""#, other),
        ("MERGE MAPS/v", "v", r#""set-namespace":"""#, "200 n/v"),
        ("PUT MAPS/u", "u", r#""set-name":"zz""#, &renamed),
        ("PUT MAPS/u", "u", r#""set-name":"""#, &unnamed),
    ] {
        let body = format!(r#"{{"metadata":{{"name":"{name}","annotations":{{{set}}}}}}}"#);
        let (code, _, answer) = server.send(&request.replace("MAPS", maps), &body).await;
        let metadata = |name: &str| answer.str_at(&["metadata", name]);
        let got = match answer.str_at(&["message"]) {
            "" => format!("{code} {}/{}", metadata("namespace"), metadata("name")),
            message => format!("{code} {message}"),
        };
        assert_eq!(got, want, "{request} {set}");
    }
}

#[tokio::test]
async fn a_plugin_is_called_for_every_operation_in_the_version_of_the_request() {
    let (server, probe) = probed().await;
    let maps = "/api/v1/namespaces/n/configmaps";
    let scalers = "/apis/autoscaling/v1/namespaces/n/horizontalpodautoscalers";
    let scaler = |max: u32| {
        format!(
            r#"{{"metadata":{{"name":"h"}},"spec":{{"maxReplicas":{max},"scaleTargetRef":{{"kind":"ReplicationController","name":"x"}}}}}}"#
        )
    };
    for (request, body, code, want) in [
        (
            format!("POST {maps}"),
            r#"{"metadata":{"name":"m"}}"#.to_owned(),
            201,
            &[
                "mutate Create configmaps/ m by system:anonymous: - => v1 ConfigMap",
                "validate Create configmaps/ m by system:anonymous: - => v1 ConfigMap labelled",
            ][..],
        ),
        (
            format!("POST {maps}?dryRun=All"),
            r#"{"metadata":{"name":"refused"}}"#.to_owned(),
            400,
            &[
                "mutate Create (dry run) configmaps/ refused by system:anonymous: - => v1 ConfigMap",
                "validate Create (dry run) configmaps/ refused by system:anonymous: - => v1 ConfigMap labelled",
            ],
        ),
        (
            format!("POST {scalers}"),
            scaler(1),
            201,
            &[
                "mutate Create horizontalpodautoscalers/ h by system:anonymous: - => autoscaling/v1 \
                 HorizontalPodAutoscaler 1",
                "validate Create horizontalpodautoscalers/ h by system:anonymous: - => autoscaling/v1 \
                 HorizontalPodAutoscaler 1 labelled",
            ],
        ),
        (
            format!("PUT {scalers}/h"),
            scaler(2),
            200,
            &[
                "mutate Update horizontalpodautoscalers/ h by system:anonymous: autoscaling/v1 \
                 HorizontalPodAutoscaler 1 labelled => autoscaling/v1 HorizontalPodAutoscaler 2",
                "validate Update horizontalpodautoscalers/ h by system:anonymous: autoscaling/v1 \
                 HorizontalPodAutoscaler 1 labelled => autoscaling/v1 HorizontalPodAutoscaler 2 labelled",
            ],
        ),
        (
            format!("DELETE {maps}/m"),
            String::new(),
            200,
            &[
                "mutate Delete configmaps/ m by system:anonymous: v1 ConfigMap labelled => -",
                "validate Delete configmaps/ m by system:anonymous: v1 ConfigMap labelled => -",
            ],
        ),
        (
            format!("APPLY {maps}/a?fieldManager=t"),
            r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"}}"#.to_owned(),
            201,
            &[
                "mutate Create configmaps/ a by system:anonymous: - => v1 ConfigMap",
                "validate Create configmaps/ a by system:anonymous: - => v1 ConfigMap labelled",
            ],
        ),
        (
            format!("DELETE {maps}"),
            String::new(),
            200,
            &[
                "mutate Delete configmaps/  by system:anonymous: v1 ConfigMap labelled => -",
                "validate Delete configmaps/  by system:anonymous: v1 ConfigMap labelled => -",
            ],
        ),
    ] {
        let (got, warnings, answer) = server.send(&request, &body).await;
        assert_eq!(got, code, "{request}: {answer:?}");
        assert_eq!(std::mem::take(&mut *probe.calls.lock()), want, "{request}");
        assert_eq!(warnings, [r#"299 - "seen by the probe""#], "{request}");
    }
}

#[tokio::test]
async fn a_field_that_a_plugin_adds_to_a_new_object_has_no_manager() {
    let (server, _) = probed().await;
    let maps = "/api/v1/namespaces/n/configmaps";
    let map = r#"{"metadata":{"name":"m","annotations":{"a":"b"}}}"#;
    let (_, _, made) = server.send(&format!("POST {maps}?fieldManager=t"), map).await;
    assert_eq!(made.str_at(&["metadata", "labels", "probed"]), "yes");
    let owned = made.at(&["metadata", "managedFields"]).and_then(Value::as_array).unwrap();
    assert_eq!(owned[0].str_at(&["manager"]), "t");
    let fields = owned[0].at(&["fieldsV1", "f:metadata"]).and_then(Value::as_object).unwrap();
    assert!(fields.get("f:annotations").is_some() && fields.get("f:labels").is_none(), "{owned:?}");
}

#[tokio::test]
async fn bindings_evictions_and_connections_pass_mutation_and_validation() {
    let (server, probe) = probed().await;
    let pods = "/api/v1/namespaces/n/pods";
    let pod = r#"{"metadata":{"name":"p"},"spec":{"containers":[{"name":"c","image":"i"}]}}"#;
    server.send(&format!("POST {pods}"), pod).await;
    probe.calls.lock().clear();
    for (request, body, want) in [
        (
            "POST PODS/p/exec?command=ls",
            "",
            "Connect pods/exec p by system:anonymous: - => v1 PodExecOptions",
        ),
        (
            "POST PODS/p/binding",
            r#"{"metadata":{"name":"p"},"target":{"name":"x"}}"#,
            "Create pods/binding p by system:anonymous: - => v1 Binding",
        ),
        (
            "POST PODS/p/eviction",
            r#"{"metadata":{"name":"p"}}"#,
            "Create pods/eviction p by system:anonymous: - => policy/v1 Eviction",
        ),
    ] {
        let (code, _, answer) = server.send(&request.replace("PODS", pods), body).await;
        let calls = std::mem::take(&mut *probe.calls.lock());
        let labelled = if want.ends_with('-') { "" } else { " labelled" };
        let want = [format!("mutate {want}"), format!("validate {want}{labelled}")];
        assert_eq!(calls, want, "{request}: {code} {answer:?}");
    }
}
