//! Tests which proof opens the store for which access, and which keys the store then permits.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use auth::authz::{Module, Policy};
use auth::{Attributes, Authorizer, User};
use engine::{Change, Durability, Engine, Expected, KeyRange, Options, Payload, Revision};
use futures_util::FutureExt;

use super::access::{Component, Store, StoreScope, engine_for_path};
use super::backends::{Backend, Backends};
use super::{collection, key};
use crate::request::Verb;
use testkit::TempDir;
use types::schema::registry::{Registry, Resource};
use values::naming::KUBERNETES;

/// An engine in a temporary directory.
struct Scratch {
    engine: Engine,
    backends: Backends,
    _directory: TempDir,
}

impl Scratch {
    fn new() -> Scratch {
        let directory = TempDir::new();
        let options = Options { durability: Durability::Relaxed, ..Options::new(directory.path()) };
        let engine = Engine::open(options).unwrap();
        let backends = Backends::new(Backend::new(engine.clone(), None), Vec::new());
        Scratch { engine, backends, _directory: directory }
    }
}

fn authorizer() -> Authorizer {
    Authorizer::new(vec![Module::AlwaysAllow], Arc::new(Policy::default()), "rbac")
}

fn attributes<'a>(
    user: &'a User,
    verb: &'a str,
    resource: (&'a str, &'a str),
    object: (&'a str, &'a str),
) -> Attributes<'a> {
    let (group, resource) = resource;
    let (namespace, name) = object;
    Attributes {
        resource_request: true,
        verb,
        group,
        version: "v1",
        resource,
        namespace,
        name,
        ..Attributes::path(user, verb, "/x")
    }
}

/// Returns the panic message of `act`; `None` if `act` does not panic.
fn refusal<T>(act: impl FnOnce() -> T) -> Option<String> {
    let payload = catch_unwind(AssertUnwindSafe(act)).err()?;
    Some(payload.downcast_ref::<String>().cloned().unwrap_or_default())
}

fn builtin(registry: &Registry, group: &str, plural: &str) -> Arc<Resource> {
    registry.resource(group, "v1", plural).unwrap().clone()
}

#[tokio::test]
async fn a_permission_opens_the_store_only_for_the_permitted_resource() {
    let scratch = Scratch::new();
    let registry = Registry::new(&KUBERNETES);
    let (secrets, nodes) = (builtin(&registry, "", "secrets"), builtin(&registry, "", "nodes"));
    let deployments = builtin(&registry, "apps", "deployments");
    let (user, authorizer) = (User::new("jane", ["dev"]), authorizer());
    let scope = StoreScope { verb: Verb::Get, resource: &secrets, namespace: "ns", name: "a" };
    let of = |verb, resource, object| attributes(&user, verb, resource, object);
    for (what, permitted, opens) in [
        ("the same", of("get", ("", "secrets"), ("ns", "a")), true),
        ("another verb", of("list", ("", "secrets"), ("ns", "a")), false),
        ("another resource", of("get", ("", "configmaps"), ("ns", "a")), false),
        ("another group", of("get", ("apps", "secrets"), ("ns", "a")), false),
        ("another namespace", of("get", ("", "secrets"), ("other", "a")), false),
        ("all namespaces", of("get", ("", "secrets"), ("", "a")), false),
        ("another name", of("get", ("", "secrets"), ("ns", "b")), false),
        ("no name", of("get", ("", "secrets"), ("ns", "")), false),
        ("a path", Attributes { resource_request: false, ..of("get", ("", "secrets"), ("ns", "a")) }, false),
    ] {
        let proof = authorizer.authorize(&permitted).await.unwrap();
        let refused = refusal(|| Store::open(&scratch.backends, &proof, scope));
        assert_eq!(refused.is_none(), opens, "{what}: {refused:?}");
    }
    // A request for a namespace is authorized within that namespace, but the store treats namespaces as
    // cluster-scoped.
    let namespaces = builtin(&registry, "", "namespaces");
    for (resource, permitted) in [
        (&namespaces, of("get", ("", "namespaces"), ("ns", "ns"))),
        (&nodes, of("get", ("", "nodes"), ("", "ns"))),
    ] {
        let proof = authorizer.authorize(&permitted).await.unwrap();
        let reach = StoreScope { verb: Verb::Get, resource, namespace: "", name: "ns" };
        assert_eq!(refusal(|| Store::open(&scratch.backends, &proof, reach)), None);
    }
    let permitted = of("get", ("apps", "deployments"), ("ns", "a"));
    let proof = authorizer.authorize(&permitted).await.unwrap();
    let reach = StoreScope { resource: &deployments, ..scope };
    assert_eq!(refusal(|| Store::open(&scratch.backends, &proof, reach)), None);

    // The permission to create applies to a new object of any name. For a subresource, the permission applies
    // only to the object with the given name.
    for (subresource, opens) in [("", true), ("token", false)] {
        let permitted = Attributes { subresource, ..of("create", ("", "secrets"), ("ns", "b")) };
        let proof = authorizer.authorize(&permitted).await.unwrap();
        let reach = StoreScope { verb: Verb::Create, name: "", ..scope };
        let refused = refusal(|| Store::open(&scratch.backends, &proof, reach));
        assert_eq!(refused.is_none(), opens, "{subresource}: {refused:?}");
    }

    let permitted = Attributes::path(&user, "post", "/backup");
    let proof = authorizer.authorize(&permitted).await.unwrap();
    assert!(refusal(|| engine_for_path(&scratch.engine, &proof, "/backup")).is_none());
    assert!(refusal(|| engine_for_path(&scratch.engine, &proof, "/metrics")).is_some());
}

#[tokio::test]
async fn a_store_handle_reaches_only_its_resource_and_writes_only_with_a_writing_verb() {
    let scratch = Scratch::new();
    let registry = Registry::new(&KUBERNETES);
    let (secrets, pods) = (builtin(&registry, "", "secrets"), builtin(&registry, "", "pods"));
    let (user, authorizer) = (User::new("jane", ["dev"]), authorizer());
    // The columns are: verb, namespace and name of the permission; resource, namespace and name of the
    // access; whether the access may read; whether the access may write.
    for (verb, (namespace, name), (resource, of, object), reads, writes) in [
        (Verb::Get, ("ns", "a"), (&secrets, "ns", "a"), true, false),
        (Verb::Get, ("ns", "a"), (&secrets, "ns", "b"), false, false),
        (Verb::Get, ("ns", "a"), (&secrets, "nsx", "a"), false, false),
        (Verb::Get, ("ns", "a"), (&pods, "ns", "a"), false, false),
        (Verb::List, ("", ""), (&secrets, "ns", "a"), true, false),
        (Verb::List, ("ns", ""), (&secrets, "other", "a"), false, false),
        (Verb::Update, ("ns", "a"), (&secrets, "ns", "a"), true, true),
        (Verb::Update, ("ns", "a"), (&secrets, "ns", "b"), false, false),
        (Verb::Create, ("ns", ""), (&secrets, "ns", "new"), true, true),
        (Verb::Create, ("ns", ""), (&pods, "ns", "new"), false, false),
        (Verb::DeleteCollection, ("ns", ""), (&secrets, "ns", "a"), true, true),
        (Verb::DeleteCollection, ("ns", ""), (&secrets, "other", "a"), false, false),
    ] {
        let permitted = attributes(&user, verb.as_str(), ("", "secrets"), (namespace, name));
        let proof = authorizer.authorize(&permitted).await.unwrap();
        let reach = StoreScope { verb, resource: &secrets, namespace, name };
        let store = Store::open(&scratch.backends, &proof, reach);
        let key = key(resource, of, object);
        let what = format!("{verb:?} {namespace}/{name} of {key:?}");
        assert_eq!(refusal(|| store.get(&key).unwrap()).is_none(), reads, "{what}");
        let write = store.commit(key, Expected::Any, Change::Put(Payload::default()));
        assert_eq!(AssertUnwindSafe(write).catch_unwind().await.is_ok(), writes, "{what}");
    }
    let permitted = attributes(&user, "list", ("", "secrets"), ("ns", ""));
    let proof = authorizer.authorize(&permitted).await.unwrap();
    let reach = StoreScope { verb: Verb::List, resource: &secrets, namespace: "ns", name: "" };
    let store = Store::open(&scratch.backends, &proof, reach);
    for (range, is_within) in [
        (KeyRange::prefix(&collection(&secrets, "ns")), true),
        (KeyRange::prefix(&key(&secrets, "ns", "a")), true),
        (KeyRange::prefix(&collection(&secrets, "")), false),
        (KeyRange::prefix(&collection(&secrets, "other")), false),
        (KeyRange { end: None, ..KeyRange::prefix(&collection(&secrets, "ns")) }, false),
        (KeyRange::all(), false),
    ] {
        assert_eq!(refusal(|| store.view().count(&range)).is_none(), is_within, "{range:?}");
        let start = range.start.clone();
        let tails = refusal(|| store.tail(Revision::ZERO, start).map(drop)).is_none();
        assert_eq!(tails, range.start.starts_with(&collection(&secrets, "ns")), "{range:?}");
    }
    // Every component may read the whole store, and only the loopback may write.
    for (part, writes) in
        [(Component::Loopback, true), (Component::Routing, false), (Component::Estimates, false)]
    {
        let store = Store::open_for(&scratch.backends, part);
        assert_eq!(refusal(|| store.view().count(&KeyRange::all())), None);
        let write = store.commit(key(&pods, "ns", "p"), Expected::Any, Change::Put(Payload::default()));
        let wrote = AssertUnwindSafe(write).catch_unwind().await;
        assert_eq!(wrote.is_ok(), writes, "{part:?}");
    }
}

#[tokio::test]
async fn a_derived_permission_covers_one_object_of_the_same_namespace() {
    let scratch = Scratch::new();
    let registry = Registry::new(&KUBERNETES);
    let (bindings, pods) = (builtin(&registry, "", "bindings"), builtin(&registry, "", "pods"));
    let (user, authorizer) = (User::new("jane", ["dev"]), authorizer());
    let permitted = attributes(&user, "create", ("", "bindings"), ("ns", ""));
    let proof = authorizer.authorize(&permitted).await.unwrap();
    let requested = StoreScope { verb: Verb::Create, resource: &bindings, namespace: "ns", name: "" };
    let pod = StoreScope { resource: &pods, name: "p", ..requested };
    for (what, reach, opens) in [
        ("one pod", pod, true),
        ("all pods", StoreScope { name: "", ..pod }, false),
        ("another namespace", StoreScope { namespace: "other", ..pod }, false),
        ("another verb", StoreScope { verb: Verb::Delete, ..pod }, false),
    ] {
        let refused = refusal(|| Store::open_derived(&scratch.backends, &proof, requested, reach));
        assert_eq!(refused.is_none(), opens, "{what}: {refused:?}");
    }
}
