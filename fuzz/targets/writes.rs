//! Write path: after any request by any verb in any encoding, the stored object is complete, valid and owned.
//!
//! ```text
//! a kind ─► a valid object ─► changes from the bytes ─► POST, PUT, patches, apply, status, DELETE ─► stored object
//! ```

use std::sync::LazyLock;

use objects::apply::Managed;
use objects::patch::PatchKind;
use objects::validation;
use types::schema::conform::conform;
use types::schema::decode::decode;
use types::schema::defaults;
use types::schema::registry::Resource;
use types::schema::table::Message;
use values::field::{Element, KeyScalar};
use values::json::{Object, Value, parse};
use values::naming::KUBERNETES;

use super::{patch, schema, text};
use crate::document;
use crate::input::Input;
use crate::server::{Answer, NAMESPACE, Server};

/// Maximum number of requests for one input.
const STEPS_MAX: usize = 8;

/// Name of the object in all requests.
const NAME: &str = "it";

/// The codes of refused writes. A 500 without a reason is kube-apiserver's response to applies and strategic
/// merges that do not fit their types.
const REFUSALS: &[u16] = &[400, 404, 409, 413, 422, 500];

/// The field managers of the writes.
const MANAGERS: &[&str] = &["one", "two"];

/// Valid objects of several kinds, by version and plural.
static OBJECTS: LazyLock<Object> = LazyLock::new(|| match parse(include_bytes!("../objects.json")) {
    Ok(Value::Object(objects)) => objects,
    other => panic!("{other:?}"),
});

/// Chooses a kind, and a sequence of requests for an object of this kind.
pub fn writes(data: &[u8]) {
    let mut input = Input::new(data);
    let (kind, valid) = OBJECTS.iter().nth(input.below(OBJECTS.len())).expect("one of them");
    let (api_version, plural) = kind.rsplit_once('/').expect("version and plural");
    let mut sequence = Sequence::begin(api_version, plural, valid);
    sequence.write("POST", "", "application/json", sequence.valid.clone(), &mut input);
    for _ in 0..STEPS_MAX {
        if input.is_empty() {
            break;
        }
        sequence.step(&mut input);
    }
}

struct Sequence {
    server: Server,
    resource: std::sync::Arc<Resource>,
    /// Path of the collection.
    path: String,
    valid: Value,
    /// The stored object as the server returns it.
    stored: Option<Value>,
}

impl Sequence {
    fn begin(api_version: &str, plural: &str, valid: &Value) -> Sequence {
        let server = Server::start();
        let (group, version) = api_version.rsplit_once('/').unwrap_or(("", api_version));
        let resource =
            server.api.types.builtin.resource(group, version, plural).expect("a built-in kind").clone();
        let prefix = if group.is_empty() { "/api" } else { "/apis" };
        let scope = if resource.namespaced() { format!("/namespaces/{NAMESPACE}") } else { String::new() };
        let path = format!("{prefix}/{api_version}{scope}/{plural}");
        let mut valid = valid.clone();
        let members = valid.as_object_mut().expect("an object");
        members.insert("apiVersion", api_version.into());
        members.insert("kind", resource.table.kind.clone().into());
        Sequence { server, resource, path, valid, stored: None }
    }

    fn message(&self) -> &Message {
        &self.resource.table.message
    }

    /// Sends one write.
    fn step(&mut self, input: &mut Input) {
        let item = format!("/{NAME}");
        let current = self.stored.clone().unwrap_or_else(|| self.valid.clone());
        let known = text(&current);
        let patch = |kind: PatchKind, path: &str, sequence: &mut Sequence, input: &mut Input| {
            let change = patch::build_patch(kind, sequence.message(), &known, input);
            sequence.send("PATCH", path, kind.media_type(), &change, input);
        };
        match input.below(12) {
            0 => self.write("POST", "", "application/json", self.valid.clone(), input),
            1 | 2 => self.write("PUT", &item, "application/json", current, input),
            3 => {
                let mut other = self.valid.clone();
                graft(&mut other, self.generated(input), input);
                self.write("PUT", &item, "application/json", other, input);
            }
            4 => patch(PatchKind::Merge, &item, self, input),
            5 => patch(PatchKind::Strategic, &item, self, input),
            6 => patch(PatchKind::Json, &item, self, input),
            7 | 8 => {
                let valid = self.valid.clone();
                self.write("PATCH", &item, PatchKind::Apply.media_type(), valid, input);
            }
            9 | 10 => {
                let endpoints = self.resource.table.subresources.iter();
                let endpoints =
                    endpoints.filter(|table| table.verbs.contains(&"patch") && table.name != "proxy");
                let endpoints: Vec<&str> = endpoints.map(|table| table.name).collect();
                if !endpoints.is_empty() {
                    let path = format!("{item}/{}", input.pick(&endpoints));
                    match input.below(3) {
                        0 => patch(PatchKind::Merge, &path, self, input),
                        1 => self.write("PUT", &path, "application/json", current, input),
                        _ => {
                            let media_type = PatchKind::Apply.media_type();
                            self.write("PATCH", &path, media_type, self.valid.clone(), input);
                        }
                    }
                }
            }
            _ => self.send("DELETE", &item, "application/json", b"", input),
        }
    }

    /// Returns a document that mostly fits the kind.
    fn generated(&self, input: &mut Input) -> Value {
        parse(&document::object(self.message(), input)).unwrap_or_default()
    }

    /// Sends an object with a few changes.
    fn write(&mut self, method: &str, path: &str, media_type: &str, mut object: Value, input: &mut Input) {
        for _ in 0..input.below(4) {
            graft(&mut object, self.generated(input), input);
        }
        if let Some(object) = object.as_object_mut() {
            object.insert("apiVersion", self.resource.api_version.as_str().into());
            object.insert("kind", self.resource.table.kind.clone().into());
            let applied = media_type == PatchKind::Apply.media_type();
            if applied {
                // The applier owns this field, although it is stored as another field, as in kube-apiserver.
                object.remove("stringData");
            }
            let metadata = object.object_entry("metadata");
            metadata.insert("name", NAME.into());
            metadata.retain(|name, _| {
                let own =
                    matches!(name, "name" | "labels" | "annotations" | "finalizers" | "ownerReferences");
                own || !applied && name == "managedFields"
            });
            // Empty values would be owned as well, but are not stored, so use the canonical form.
            if applied && let Ok(canonical) = conform(self.message(), Value::Object(object.clone())) {
                *object = canonical.object;
            }
        }
        self.send(method, path, media_type, &text(&object), input);
    }

    /// Sends a request and reads the stored object afterwards.
    fn send(&mut self, method: &str, path: &str, media_type: &str, body: &[u8], input: &mut Input) {
        let apply = media_type == PatchKind::Apply.media_type();
        let force = if apply && input.byte() & 1 == 1 { "&force=true" } else { "" };
        let dry_run = if input.one_in(16) { "&dryRun=All" } else { "" };
        let manager = input.pick(MANAGERS);
        let path = format!("{}{path}?fieldManager={manager}{force}{dry_run}", self.path);
        let answer = self.server.send_request(method, &path, media_type, body);
        let shown = || format!("{method} {path}\n{}\n{}", lossy_text(body), lossy_text(&answer.body));
        let taken = answer.code < 300;
        if !taken {
            assert!(REFUSALS.contains(&answer.code), "{}: {}", answer.code, shown());
            let status = answer.value();
            assert_ne!(status.str_at(&["reason"]), "InternalError", "{}", shown());
        }
        let before = self.stored.take();
        let now = self.server.send_request("GET", &format!("{}/{NAME}", self.path), "application/json", b"");
        let now = Some(now).filter(|now| now.code != 404);
        self.stored = now.as_ref().map(|now| self.check(now, &shown));
        let unchanged = self.stored == before;
        // A refused request or a dry run has no effect.
        assert!(unchanged || taken && dry_run.is_empty(), "{}", shown());
    }

    /// Checks the invariants of the stored object and returns it.
    fn check(&self, answer: &Answer, shown: &dyn Fn() -> String) -> Value {
        let served = || String::from_utf8_lossy(&answer.body);
        assert_eq!(answer.code, 200, "{}\n{}", served(), shown());
        let context = || format!("{}\n{}", served(), shown());
        let decoded =
            decode(self.message(), &answer.body).unwrap_or_else(|error| panic!("{error}: {}", context()));
        assert_eq!(decoded.strict, [""; 0], "{}", context());
        let object = decoded.object;
        schema::check_canonical(self.message(), object.clone());

        let mut defaulted = object.clone();
        defaults::apply(self.message(), &mut defaulted, &KUBERNETES);
        assert_eq!(defaulted, object, "not defaulted: {}", context());

        let stored = &self.resource.stored().table;
        let faults = validation::update(stored, validation::Settings::new(&KUBERNETES), &object, &object);
        assert!(faults.is_empty(), "{faults:?}: {}", context());

        let tree = answer.value();
        let scope = if self.resource.namespaced() { NAMESPACE } else { "" };
        for (member, expected) in [("name", NAME), ("namespace", scope)] {
            assert_eq!(tree.str_at(&["metadata", member]), expected, "{}", context());
        }
        for member in ["uid", "creationTimestamp", "resourceVersion"] {
            assert!(!tree.str_at(&["metadata", member]).is_empty(), "{member}: {}", context());
        }

        let given = tree.at(&["metadata", "managedFields"]).and_then(Value::as_array).unwrap_or_default();
        let managed = Managed::stored(&object);
        assert_eq!(managed.entries().len(), given.len(), "managed fields that cannot be read: {}", context());
        for entry in managed.entries() {
            let set = entry.set();
            assert!(!set.is_empty(), "{context}", context = context());
            set.for_each(&mut |path| {
                assert!(exists(&tree, path), "{} owns {path:?}: {}", entry.manager.name, context());
            });
        }
        tree
    }
}

/// Returns whether there is a value at a path.
fn exists(value: &Value, path: &[&Element<'_>]) -> bool {
    let Some((element, rest)) = path.split_first() else { return true };
    let next = match (element, value) {
        (Element::Field(name), Value::Object(members)) => members.get(name),
        // An omitted key of an element defaults to the empty value, as in all lists of this server.
        (Element::Key(keys), Value::Array(items)) => items.iter().find(|item| {
            let empty = Value::String(String::new());
            keys.iter().all(|(name, scalar)| KeyScalar::from_ref(item.get(name).unwrap_or(&empty)) == *scalar)
        }),
        (Element::Value(scalar), Value::Array(items)) => {
            items.iter().find(|item| KeyScalar::from_ref(item) == *scalar)
        }
        _ => None,
    };
    next.is_some_and(|next| exists(next, rest))
}

/// Copies a part of `other`, or all of it, into `value`.
fn graft(value: &mut Value, other: Value, input: &mut Input) {
    match (value, other) {
        (Value::Object(members), Value::Object(others)) if !others.is_empty() => {
            let mut others = others.into_members();
            let (name, other) = others.swap_remove(input.below(others.len()));
            match members.get_mut(&name) {
                Some(_) if input.one_in(12) => drop(members.remove(&name)),
                Some(member) => graft(member, other, input),
                None => drop(members.insert(name, other)),
            }
        }
        (Value::Array(items), Value::Array(mut others)) if !items.is_empty() && !others.is_empty() => {
            let at = input.below(items.len());
            let other = others.swap_remove(input.below(others.len()));
            match input.below(6) {
                0 => items.push(other),
                1 => drop(items.remove(at)),
                2 => items.reverse(),
                _ => graft(&mut items[at], other, input),
            }
        }
        (value, other) => *value = other,
    }
}

fn lossy_text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
