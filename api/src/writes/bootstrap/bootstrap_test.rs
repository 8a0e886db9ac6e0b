//! Tests the bootstrap objects and their reconciliation. The expected results come from
//! docs/api/bootstrap.md#default-roles-and-bindings, from #flow-control-objects, and from published reference data.

use std::collections::BTreeMap;

use parking_lot::Mutex;

use super::*;
use values::json::parse;
use values::naming::{self, CLUSTER, KUBERNETES};

fn object(text: &str) -> Value {
    parse(text.replace('\'', "\"").as_bytes()).unwrap()
}

fn desired_object(kind: Kind, text: &str) -> Desired {
    let target = ObjectTarget {
        group: "g",
        version: "v1",
        resource: "r",
        namespace: String::new(),
        name: "x".to_owned(),
    };
    Desired { target, kind, object: object(text) }
}

/// Returns the step for an existing object: `keep`, or the verb and the object as JSON with single quotes.
fn step(kind: Kind, existing: &str, want: &str) -> String {
    let existing = (!existing.is_empty()).then(|| object(existing));
    let (verb, object) = match plan(existing.as_ref(), &desired_object(kind, want), &KUBERNETES) {
        BootstrapStep::Keep => return "keep".to_owned(),
        BootstrapStep::Create(object) => ("create", object),
        BootstrapStep::Update(object) => ("update", object),
        BootstrapStep::Replace(object) => ("replace", object),
    };
    let mut text = Vec::new();
    values::json::write(&object, &mut text);
    format!("{verb} {}", String::from_utf8(text).unwrap().replace('"', "'"))
}

/// Returns the annotation that says whether the server may update an object.
fn autoupdate(stem: &str, name: &str, value: &str) -> String {
    format!("'metadata':{{'annotations':{{'{stem}.{}/{name}':'{value}'}}}}", KUBERNETES.domain)
}

#[test]
fn bootstrap_roles_get_missing_rules_and_keep_additional_ones() {
    let get = "{'verbs':['get'],'apiGroups':[''],'resources':['pods']}";
    let both = "{'verbs':['get','list'],'apiGroups':[''],'resources':['pods']}";
    let list = "{'verbs':['list'],'apiGroups':[''],'resources':['pods']}";
    let off = autoupdate("rbac.authorization", "autoupdate", "false");
    let on = autoupdate("rbac.authorization", "autoupdate", "true");
    let select = |to: &str| {
        format!("'aggregationRule':{{'clusterRoleSelectors':[{{'matchLabels':{{'to':'{to}'}}}}]}}")
    };
    for (existing, want, steps) in [
        (String::new(), format!("{{'rules':[{get}]}}"), format!("create {{'rules':[{get}]}}")),
        (format!("{{'rules':[{get}]}}"), format!("{{'rules':[{get}]}}"), "keep".to_owned()),
        (format!("{{'rules':[{both}]}}"), format!("{{'rules':[{get}]}}"), "keep".to_owned()),
        (
            format!("{{'rules':[{get}]}}"),
            format!("{{'rules':[{both}]}}"),
            format!("update {{'rules':[{get},{list}]}}"),
        ),
        ("{'rules':null}".to_owned(), format!("{{'rules':[{get}]}}"), format!("update {{'rules':[{get}]}}")),
        ("{'a':1}".to_owned(), format!("{{'rules':[{get}]}}"), format!("update {{'a':1,'rules':[{get}]}}")),
        // The value "false" excludes the object from updates; other values do not.
        (format!("{{{off},'rules':[]}}"), format!("{{'rules':[{get}]}}"), "keep".to_owned()),
        (
            format!("{{{on},'rules':[]}}"),
            format!("{{'rules':[{get}]}}"),
            format!("update {{{on},'rules':[{get}]}}"),
        ),
        // Missing labels and annotations are added; changed labels and annotations stay.
        (
            "{'metadata':{'labels':{'a':'mine'}}}".to_owned(),
            "{'metadata':{'labels':{'a':'1','b':'2'},'annotations':{'c':'3'}}}".to_owned(),
            "update {'metadata':{'labels':{'a':'mine','b':'2'},'annotations':{'c':'3'}}}".to_owned(),
        ),
        (
            "{'metadata':{'labels':{'a':'1','z':''}}}".to_owned(),
            "{'metadata':{'labels':{'a':'1'}}}".to_owned(),
            "keep".to_owned(),
        ),
        // The controller owns the rules of an aggregated role; missing selectors are added.
        (
            format!("{{{},'rules':[{get}]}}", select("a")),
            format!("{{{},'rules':[]}}", select("a")),
            "keep".to_owned(),
        ),
        (
            format!("{{{},'rules':[{get}]}}", select("b")),
            format!("{{{}}}", select("a")),
            format!(
                "update {{'aggregationRule':{{'clusterRoleSelectors':[{{'matchLabels':{{'to':'b'}}}},\
                 {{'matchLabels':{{'to':'a'}}}}]}},'rules':[{get}]}}"
            ),
        ),
        (
            format!("{{'rules':[{get}]}}"),
            format!("{{{}}}", select("a")),
            format!("update {{'rules':[{get}],{}}}", select("a")),
        ),
    ] {
        assert_eq!(step(Kind::Role, &existing, &want), steps, "{existing} to {want}");
    }
}

#[test]
fn bootstrap_bindings_get_missing_subjects_and_are_replaced_if_their_role_differs() {
    let role = "'roleRef':{'apiGroup':'g','kind':'ClusterRole','name':'r'}";
    let other = "'roleRef':{'apiGroup':'g','kind':'ClusterRole','name':'other'}";
    let off = autoupdate("rbac.authorization", "autoupdate", "false");
    let jane = "{'kind':'User','name':'jane'}";
    let joe = "{'name':'joe','kind':'User'}";
    for (existing, want, steps) in [
        (String::new(), format!("{{{role}}}"), format!("create {{{role}}}")),
        (format!("{{{role},'subjects':[{jane}]}}"), format!("{{{role}}}"), "keep".to_owned()),
        (
            format!("{{{role},'subjects':[{{'name':'jane','kind':'User'}}]}}"),
            format!("{{{role},'subjects':[{jane}]}}"),
            "keep".to_owned(),
        ),
        (
            format!("{{{role},'subjects':[{jane}]}}"),
            format!("{{{role},'subjects':[{joe},{jane}]}}"),
            format!("update {{{role},'subjects':[{jane},{joe}]}}"),
        ),
        (
            format!("{{{role}}}"),
            format!("{{{role},'subjects':[{jane}]}}"),
            format!("update {{{role},'subjects':[{jane}]}}"),
        ),
        (format!("{{{other},'subjects':[{joe}]}}"), format!("{{{role}}}"), format!("replace {{{role}}}")),
        (format!("{{{off},{other}}}"), format!("{{{role}}}"), "keep".to_owned()),
    ] {
        assert_eq!(step(Kind::Binding, &existing, &want), steps, "{existing} to {want}");
    }
}

#[test]
fn flow_control_objects_are_updated_unless_suggested_ones_opt_out() {
    let domain = KUBERNETES.domain;
    let meta = |value: &str| autoupdate("apf", "autoupdate-spec", value);
    let (on, off) = (meta("true"), meta("false"));
    let want = format!("{{{on},'spec':{{'a':1,'b':[{{'c':2}}]}}}}");
    let mandatory = Kind::MandatoryFlowControl;
    let suggested = Kind::SuggestedFlowControl;
    let same = "'spec':{'b':[{'c':2}],'a':1,'d':null}";
    let right = "'spec':{'a':1,'b':[{'c':2}]}";
    let wrong = "'spec':{'a':1,'b':[{'c':3}]}";
    let more = "'spec':{'a':1,'b':[{'c':2}],'d':0}";
    for (kind, existing, steps) in [
        (mandatory, String::new(), format!("create {want}")),
        (mandatory, format!("{{{on},{same}}}"), "keep".to_owned()),
        (mandatory, format!("{{{on},{wrong}}}"), format!("update {{{on},{right}}}")),
        (mandatory, format!("{{{on},{more}}}"), format!("update {{{on},{right}}}")),
        (mandatory, format!("{{{off},{wrong}}}"), format!("update {{{on},{right}}}")),
        (suggested, format!("{{{on},{wrong}}}"), format!("update {{{on},{right}}}")),
        (suggested, format!("{{{off},{wrong}}}"), "keep".to_owned()),
        // Every spelling of a boolean is accepted and kept.
        (suggested, format!("{{{},{same}}}", meta("TRUE")), "keep".to_owned()),
        (suggested, format!("{{{},{wrong}}}", meta("f")), "keep".to_owned()),
        (suggested, format!("{{{},{wrong}}}", meta("1")), format!("update {{{},{right}}}", meta("1"))),
        // Without the annotation, the spec is updated as long as no client has changed it.
        (
            suggested,
            format!("{{'metadata':{{'generation':1}},{wrong}}}"),
            format!(
                "update {{'metadata':{{'generation':1,'annotations':{{'apf.{domain}/autoupdate-spec':'true'}}}},{right}}}"
            ),
        ),
        (
            suggested,
            format!("{{'metadata':{{'generation':2}},{wrong}}}"),
            format!(
                "update {{'metadata':{{'generation':2,'annotations':{{'apf.{domain}/autoupdate-spec':'false'}}}},{wrong}}}"
            ),
        ),
    ] {
        assert_eq!(step(kind, &existing, &want), steps, "{existing}");
    }
    let want = format!("{{{on},'spec':{{'type':'E','exempt':{{'seats':0}}}}}}");
    for (spec, is_kept) in [
        ("'type':'E','exempt':{'seats':10}", true),
        ("'type':'L','exempt':{'seats':10}", false),
        ("'type':'E'", false),
    ] {
        let got = step(mandatory, &format!("{{{on},'spec':{{{spec}}}}}"), &want);
        assert_eq!(got == "keep", is_kept, "{spec}: {got}");
    }
    for kind in [Kind::Namespace, Kind::PriorityClass] {
        assert_eq!(step(kind, "{'metadata':{}}", "{'value':7}"), "keep");
        assert_eq!(step(kind, "", "{'value':7}"), "create {'value':7}");
    }
}

/// An in-memory store that counts writes, and that can delay writes and answer with conflicts.
#[derive(Default)]
struct Memory {
    objects: Mutex<BTreeMap<String, Value>>,
    waiting: Mutex<usize>,
    most_waiting: Mutex<usize>,
    writes: Mutex<usize>,
    conflicts: Mutex<usize>,
}

impl Memory {
    fn key(target: &ObjectTarget) -> String {
        format!("{}/{}/{}/{}", target.group, target.resource, target.namespace, target.name)
    }

    async fn write(&self, change: impl FnOnce(&mut BTreeMap<String, Value>)) -> Result<WriteResult, ()> {
        {
            let mut conflicts = self.conflicts.lock();
            if *conflicts > 0 {
                *conflicts -= 1;
                return Ok(WriteResult::Conflict);
            }
        }
        {
            let mut waiting = self.waiting.lock();
            *waiting += 1;
            let mut most = self.most_waiting.lock();
            *most = (*most).max(*waiting);
        }
        tokio::task::yield_now().await;
        *self.waiting.lock() -= 1;
        *self.writes.lock() += 1;
        change(&mut self.objects.lock());
        Ok(WriteResult::Done)
    }
}

impl ObjectStore for Memory {
    type Error = ();

    fn get(&self, target: &ObjectTarget) -> Result<Option<Value>, ()> {
        Ok(self.objects.lock().get(&Memory::key(target)).cloned())
    }

    fn is_unreadable((): &()) -> bool {
        false
    }

    async fn create(&self, target: &ObjectTarget, object: Value) -> Result<WriteResult, ()> {
        if !target.namespace.is_empty() {
            let home = format!("/namespaces//{}", target.namespace);
            assert!(self.objects.lock().contains_key(&home), "{target:?} before its namespace");
        }
        self.write(|objects| assert!(objects.insert(Memory::key(target), object).is_none())).await
    }

    async fn update(&self, target: &ObjectTarget, object: Value) -> Result<WriteResult, ()> {
        self.write(|objects| assert!(objects.insert(Memory::key(target), object).is_some())).await
    }

    async fn delete(&self, target: &ObjectTarget, existing: &Value) -> Result<WriteResult, ()> {
        self.write(|objects| assert_eq!(objects.remove(&Memory::key(target)).as_ref(), Some(existing))).await
    }
}

#[tokio::test]
async fn reconcile_fills_an_empty_store_and_leaves_a_complete_one_unchanged() {
    let store = Memory::default();
    let all = desired(&KUBERNETES).len();
    let first = reconcile(&store, &KUBERNETES).await.unwrap();
    assert_eq!(first, ReconcileCounts { created: all, ..ReconcileCounts::default() });
    assert!(*store.most_waiting.lock() > 100, "writes share syncs: {} at once", store.most_waiting.lock());
    assert_eq!(store.objects.lock().len(), all, "no two objects share a key");
    *store.writes.lock() = 0;
    let second = reconcile(&store, &KUBERNETES).await.unwrap();
    assert_eq!(second, ReconcileCounts { unchanged: all, ..ReconcileCounts::default() });
    assert_eq!(*store.writes.lock(), 0);
    // If a client removed an object, the object is created again. If another writer changes an object first,
    // the object is read again.
    store.objects.lock().remove("rbac.authorization/clusterroles//view");
    let admin = "rbac.authorization/clusterrolebindings//cluster-admin";
    store.objects.lock().get_mut(admin).unwrap().as_object_mut().unwrap().remove("subjects");
    let discovery = "rbac.authorization/clusterrolebindings//system:discovery";
    store.objects.lock().get_mut(discovery).unwrap().as_object_mut().unwrap().insert("roleRef", Value::Null);
    *store.conflicts.lock() = 3;
    let third = reconcile(&store, &KUBERNETES).await.unwrap();
    assert_eq!(
        third,
        ReconcileCounts { unchanged: all - 3, created: 1, updated: 1, replaced: 1, given_up: 0 }
    );
    store.objects.lock().remove("rbac.authorization/clusterroles//view");
    *store.conflicts.lock() = 100;
    assert_eq!(reconcile(&store, &KUBERNETES).await.unwrap().given_up, 1);
}

#[test]
fn bootstrap_objects_use_the_names_of_the_naming_profile() {
    for naming in [&CLUSTER, &KUBERNETES] {
        for desired in desired(naming).into_iter().chain(flow_control(naming)) {
            let mut text = Vec::new();
            values::json::write(&desired.object, &mut text);
            let text = String::from_utf8(text).unwrap();
            let open = ["{suffix}", "{domain}", "{system}", "{word}"].iter().any(|name| text.contains(name));
            assert!(!open && !desired.target.name.is_empty(), "{text}");
            for foreign in naming::ALL.into_iter().filter(|other| *other != naming) {
                assert!(!text.contains(foreign.group_suffix) && !text.contains(foreign.domain), "{text}");
            }
        }
    }
    let names: Vec<String> =
        desired(&CLUSTER).into_iter().take(4).map(|desired| desired.target.name).collect();
    assert_eq!(names, ["cluster-system", "cluster-public", "default", "cluster-node-lease"]);
}

/// The rules of the role that only this server has, and not kube-apiserver.
const OWN_RULES: &[u8] = br#"[{"apiGroups":["*"],"resources":["*"],"verbs":["history"]}]"#;

/// Returns the published reference data, if the data is next to the workspace.
fn facts() -> Option<Value> {
    let path = testkit::reference("facts/rbac_bootstrap.json")?;
    Some(parse(&std::fs::read(path).unwrap()).unwrap())
}

#[test]
fn bootstrap_objects_equal_the_recorded_reference_facts() {
    let Some(facts) = facts() else { return };
    let mut all: BTreeMap<String, Value> = BTreeMap::new();
    for desired in desired(&KUBERNETES).into_iter().chain(flow_control(&KUBERNETES)) {
        let ObjectTarget { resource, namespace, name, .. } = &desired.target;
        all.insert(format!("{resource} {namespace}/{name}"), desired.object);
    }
    let empty = Value::Array(Vec::new());
    for (part, resource, common, members) in [
        ("cluster_roles", "clusterroles", Some("rbac"), &["rules", "aggregationRule"][..]),
        ("controller_cluster_roles", "clusterroles", Some("rbac"), &["rules"]),
        ("roles", "roles", Some("rbac"), &["rules"]),
        ("cluster_role_bindings", "clusterrolebindings", Some("rbac"), &["roleRef", "subjects"]),
        ("controller_cluster_role_bindings", "clusterrolebindings", Some("rbac"), &["roleRef", "subjects"]),
        ("role_bindings", "rolebindings", Some("rbac"), &["roleRef", "subjects"]),
        ("flow_schemas", "flowschemas", Some("flowcontrol"), &["spec"]),
        ("priority_level_configurations", "prioritylevelconfigurations", Some("flowcontrol"), &["spec"]),
        ("priority_classes", "priorityclasses", None, &["value", "globalDefault", "preemptionPolicy"]),
        ("namespaces", "namespaces", None, &[]),
    ] {
        for fact in facts.get(part).unwrap().as_array().unwrap() {
            let key = format!("{resource} {}/{}", fact.str_at(&["namespace"]), fact.str_at(&["name"]));
            let ours = all.remove(&key).unwrap_or_else(|| panic!("{key} is missing"));
            for member in members {
                let theirs = fact.get(member).filter(|value| **value != empty);
                assert!(plan::same(ours.get(member), theirs), "{member} of {key}: {:?}", ours.get(member));
            }
            let Some(common) = common else { continue };
            let common = facts.at(&["common_metadata", common]).unwrap();
            assert_eq!(ours.get("apiVersion"), common.get("apiVersion"), "{key}");
            let annotations = ours.at(&["metadata", "annotations"]);
            assert!(plan::same(annotations, common.get("annotations")), "{key}");
            for source in [common, fact] {
                let labels = source.get("labels").and_then(Value::as_object);
                for (name, value) in labels.into_iter().flat_map(values::json::Object::iter) {
                    assert_eq!(ours.at(&["metadata", "labels", name]), Some(value), "{name} of {key}");
                }
            }
        }
    }
    // kube-apiserver has no history of objects, so the reference data does not contain this role.
    let own = all.remove("clusterroles /system:aggregate-history-to-edit").unwrap();
    assert!(plan::same(own.get("rules"), parse(OWN_RULES).ok().as_ref()), "{own:?}");
    assert!(all.is_empty(), "no test knows of {:?}", all.keys());
}
