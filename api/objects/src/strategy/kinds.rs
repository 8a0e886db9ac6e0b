//! Strategies of single kinds: changes on create and update that tables cannot express. The schema of a kind
//! selects its strategy (option `strategy`).

use super::dropped::{self, Dropped};
use super::warnings;
use super::{Creation, Endpoint, NONE, Strategy, sort_members};
use crate::custom::definition::conditions::{self, Deletion, State};
use crate::custom::definition::{Definition, formats};
use types::schema::TEMPLATE_GENERATION;
use values::clock;
use values::json::{Object, Value};
use values::names;
use values::object::{self, copy_path, meta, same_at, set_meta};

pub(super) use super::pods::POD;
pub(super) use super::storage::{CSI_DRIVER, PERSISTENT_VOLUME, PERSISTENT_VOLUME_CLAIM};

pub(super) const NAMESPACE: Strategy = Strategy {
    create: Some(create_namespace),
    update: Some(|endpoint, new, old| {
        if endpoint == Endpoint::Main {
            copy_path(new, old, "spec.finalizers");
        }
    }),
    ..NONE
};

pub(super) const DAEMON_SET: Strategy = Strategy {
    create: Some(|object, _| {
        let count = template_generation(object).max(1);
        set_template_generation(object, count);
    }),
    update: Some(|_, new, old| {
        let changed = !same_at(new, old, "spec.template");
        set_template_generation(new, template_generation(old).saturating_add(i64::from(changed)));
    }),
    warnings: Some(warnings::template),
    dropped: dropped::TEMPLATE,
    ..NONE
};

pub(super) const JOB: Strategy =
    Strategy { create: Some(create_job), warnings: Some(warnings::job), dropped: dropped::TEMPLATE, ..NONE };

/// Drops the configuration source of a node, because dynamic node configuration was removed.
pub(super) const NODE: Strategy = Strategy {
    create: Some(|object, _| copy_path(object, &Object::new(), "status.config")),
    update: Some(|endpoint, new, old| {
        let was_configured = object::at(old, "status.config").is_some_and(|config| !config.is_null());
        if endpoint == Endpoint::Status && !was_configured {
            copy_path(new, &Object::new(), "status.config");
        }
    }),
    warnings: Some(warnings::node),
    dropped: &[Dropped { below: "spec", sets: &[&["configSource"]] }],
    ..NONE
};

/// Removes the load balancer addresses from a service that is no longer of type `LoadBalancer`.
pub(super) const SERVICE: Strategy = Strategy {
    update: Some(|endpoint, service, _| {
        if endpoint == Endpoint::Main {
            forget_balancer(service);
        }
    }),
    ..warnings::SERVICE
};

/// Removes everything except names from references to secrets.
pub(super) const SERVICE_ACCOUNT: Strategy = Strategy {
    create: Some(|object, _| keep_names_of_secrets(object)),
    update: Some(|_, object, _| keep_names_of_secrets(object)),
    warnings: Some(warnings::service_account),
    ..NONE
};

/// Gives a limit range without a name a random name.
pub(super) const LIMIT_RANGE: Strategy = Strategy {
    create: Some(|object, _| {
        if meta(object, "name").is_empty() {
            set_meta(object, "name", Some(names::uid().into()));
        }
    }),
    ..NONE
};

/// Drops the fields of coordinated leader election, because this feature is disabled.
pub(super) const LEASE: Strategy =
    Strategy { dropped: &[Dropped { below: "spec", sets: &[&["strategy", "preferredHolder"]] }], ..NONE };

/// Drops the topology map of endpoints, which is read but never stored. The node and the zone of an endpoint
/// have their own fields.
pub(super) const ENDPOINT_SLICE: Strategy = Strategy {
    create: Some(|object, _| drop_topology(object, None)),
    update: Some(|_, new, old| {
        if !same_at(new, old, "endpoints") {
            drop_topology(new, Some(old));
        }
    }),
    warnings: Some(warnings::endpoint_slice),
    ..NONE
};

/// Removes the reported status of devices that are no longer allocated to the claim.
pub(super) const RESOURCE_CLAIM: Strategy = Strategy {
    update: Some(|endpoint, new, old| {
        if endpoint == Endpoint::Status {
            forget_devices(new, old);
        }
    }),
    ..NONE
};

pub(super) const RESOURCE_SLICE: Strategy = Strategy {
    dropped: &[Dropped {
        below: "spec",
        sets: &[
            &[
                "devices[].attributes{}.bools",
                "devices[].attributes{}.ints",
                "devices[].attributes{}.strings",
                "devices[].attributes{}.versions",
            ],
            &["devices[].nodeAllocatableResourceMappings"],
        ],
    }],
    warnings: Some(warnings::resource_slice),
    ..NONE
};

pub(super) const CERTIFICATE_SIGNING_REQUEST: Strategy = Strategy {
    create: Some(create_signing_request),
    update: Some(|endpoint, new, old| {
        if endpoint == Endpoint::Status {
            for decision in ["Approved", "Denied"] {
                keep_conditions(new, old, decision);
            }
        }
        if matches!(endpoint, Endpoint::Status | Endpoint::Approval) {
            time_conditions(new, old);
        }
    }),
    ..NONE
};

pub(super) const API_SERVICE: Strategy = Strategy { create: Some(create_api_service), ..NONE };

/// Strategy of webhook configurations and admission policies.
pub(super) const ADMISSION: Strategy = Strategy { warnings: Some(warnings::reserved_name), ..NONE };

pub(super) const CUSTOM_RESOURCE_DEFINITION: Strategy = Strategy {
    create: Some(|object, _| {
        // No names are granted yet.
        let mut names = Object::new();
        names.push("plural", "".into());
        names.push("kind", "".into());
        let mut status = Object::new();
        status.push("conditions", Value::Null);
        status.push("acceptedNames", names.into());
        status.push("storedVersions", Value::Null);
        object.insert("status", status.into());
        add_stored_version(object);
    }),
    update: Some(|endpoint, object, _| {
        if endpoint == Endpoint::Main {
            add_stored_version(object);
        }
    }),
    warnings: Some(|texts, written| {
        let old = written.old.map(Definition::read);
        texts.extend(formats::warnings(&Definition::read(written.new), old.as_ref()));
    }),
    delete: Some(|object, naming| {
        let finalizer = conditions::finalizer(naming);
        if !object::finalizers(object).contains(&&*finalizer) {
            let held = object::finalizers(object).into_iter().map(Value::from);
            let held = held.chain([finalizer.into()]).collect();
            object::set_finalizers(object, held);
        }
        let mut state = State::from_definition(&Definition::read(object));
        state.set(Deletion::Pending.condition(), &clock::now());
        state.write(object);
    }),
    ..NONE
};

/// Adds the storage version to `storedVersions`, the versions in which objects may be stored.
fn add_stored_version(definition: &mut Object) {
    let versions = object::at(definition, "spec.versions").and_then(Value::as_array).unwrap_or_default();
    let mut stored =
        versions.iter().filter(|version| version.get("storage").and_then(Value::as_bool) == Some(true));
    let Some(name) = stored.next().map(|version| Value::from(version.str_at(&["name"]))) else { return };
    let versions = definition.object_entry("status").entry("storedVersions");
    match versions {
        Value::Array(names) if names.contains(&name) => {}
        Value::Array(names) => names.push(name),
        _ => *versions = Value::Array(vec![name]),
    }
}

/// Sets the server's finalizer in `spec.finalizers`, the name as a label, and the phase Active.
fn create_namespace(object: &mut Object, creation: &mut Creation) {
    let naming = creation.naming;
    let name = meta(object, "name").to_owned();
    let spec = object.object_entry("spec");
    let finalizers = spec.entry("finalizers");
    if !matches!(finalizers, Value::Array(_)) {
        *finalizers = Value::Array(Vec::new());
    }
    if let Some(list) = finalizers.as_array_mut()
        && !list.iter().any(|item| item.as_str() == Some(naming.word))
    {
        list.push(naming.word.into());
    }
    if !name.is_empty() {
        let labels = object::metadata_mut(object).object_entry("labels");
        labels.insert(naming.label("metadata.name"), name.into());
    }
    object.object_entry("status").insert("phase", "Active".into());
}

/// Makes a job select its pods by its own uid, except if `manualSelector` is true. Labels and selectors of the writer
/// are kept, and validation checks these labels and selectors.
fn create_job(object: &mut Object, creation: &mut Creation) {
    let uid = meta(object, "uid").to_owned();
    let name = meta(object, "name").to_owned();
    let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) else { return };
    if spec.get("manualSelector").and_then(Value::as_bool) == Some(true) {
        return;
    }
    let batch = |label: &str| format!("batch.{}", creation.naming.label(label));
    let labels = spec.object_entry("template").object_entry("metadata").object_entry("labels");
    for (label, value) in [
        (batch("controller-uid"), &uid),
        (batch("job-name"), &name),
        ("controller-uid".to_owned(), &uid),
        ("job-name".to_owned(), &name),
    ] {
        if !labels.contains(&label) {
            labels.insert(label, value.as_str().into());
        }
    }
    sort_members(labels);
    let labels = labels.clone();
    let selector = spec.object_entry("selector").object_entry("matchLabels");
    let identity = batch("controller-uid");
    if !selector.contains(&identity) {
        selector.insert(identity, uid.into());
        sort_members(selector);
    }
    // A job without its own labels gets the labels of its template, which this function extended.
    if !creation.is_labelled {
        object::metadata_mut(object).insert("labels", labels.into());
    }
}

/// Sets the requester to the user of the request. The value in the request body is ignored.
fn create_signing_request(object: &mut Object, creation: &mut Creation) {
    let user = creation.user;
    let spec = object.object_entry("spec");
    spec.insert("username", user.name.as_str().into());
    spec.insert("uid", user.uid.as_str().into());
    spec.insert("groups", user.groups.as_slice().into());
    let mut extra = Object::new();
    for (name, values) in &user.extra {
        extra.push(name.clone(), values.as_slice().into());
    }
    spec.remove("extra");
    if !extra.is_empty() {
        spec.insert("extra", extra.into());
    }
}

/// Keeps the stored conditions of the type `decision`, because another endpoint makes the decisions about a
/// certificate request. If the number of these conditions changes, the written conditions stay, and validation refuses
/// the written conditions.
fn keep_conditions(new: &mut Object, old: &Object, decision: &str) {
    let is_one = |condition: &&Value| condition.str_at(&["type"]) == decision;
    let before = object::at(old, "status.conditions").and_then(Value::as_array).unwrap_or_default();
    let kept: Vec<&Value> = before.iter().filter(is_one).collect();
    let conditions = new.get_mut("status").and_then(Value::as_object_mut);
    let Some(conditions) = conditions.and_then(|status| status.get_mut("conditions")?.as_array_mut()) else {
        return;
    };
    if conditions.iter().filter(is_one).count() == kept.len() {
        let own = conditions.iter_mut().filter(|condition| is_one(&&**condition));
        own.zip(kept).for_each(|(own, kept)| *own = kept.clone());
    }
}

/// Removes the load balancer addresses if the service has another type.
fn forget_balancer(service: &mut Object) {
    let kind = object::at(service, "spec.type").and_then(Value::as_str);
    if kind != Some("LoadBalancer") && object::at(service, "status.loadBalancer.ingress").is_some() {
        copy_path(service, &Object::new(), "status.loadBalancer.ingress");
    }
}

/// Removes everything except names from the secrets of a service account.
fn keep_names_of_secrets(account: &mut Object) {
    let is_more = |secret: &Value| {
        secret.as_object().is_some_and(|secret| secret.iter().any(|(name, _)| name != "name"))
    };
    let secrets = account.get("secrets").and_then(Value::as_array).unwrap_or_default();
    if !secrets.iter().any(is_more) {
        return;
    }
    let secrets = account.get_mut("secrets").and_then(Value::as_array_mut);
    for secret in secrets.into_iter().flatten().filter_map(Value::as_object_mut) {
        secret.retain(|name, _| name == "name");
    }
}

/// Removes the reported status of devices that are no longer allocated.
fn forget_devices(new: &mut Object, old: &Object) {
    let identity = |device: &Value| {
        ["driver", "pool", "device", "shareID"].map(|name| device.str_at(&[name]).to_owned())
    };
    let allocated = |claim: &Object| -> Vec<_> {
        let results = object::at(claim, "status.allocation.devices.results").and_then(Value::as_array);
        results.unwrap_or_default().iter().map(identity).collect()
    };
    let (before, now) = (allocated(old), allocated(new));
    let is_back = |device: &Value| {
        let device = identity(device);
        before.contains(&device) && !now.contains(&device)
    };
    let Some(status) = new.get_mut("status").and_then(Value::as_object_mut) else { return };
    let said = status.get("devices").and_then(Value::as_array).unwrap_or_default();
    if said.iter().any(is_back) {
        let left: Vec<Value> = said.iter().filter(|device| !is_back(device)).cloned().collect();
        if left.is_empty() {
            _ = status.remove("devices");
        } else {
            _ = status.insert("devices", Value::Array(left));
        }
    }
}

/// Part after the last `/` of the label that contains the node in the old topology map of an endpoint.
const TOPOLOGY_NODE: &str = "hostname";

/// Removes the old topology map of endpoints. If the map in the stored slice contains a node, that node is
/// kept as `nodeName`.
fn drop_topology(slice: &mut Object, old: Option<&Object>) {
    let node = |endpoint: &Object| {
        let topology = endpoint.get("deprecatedTopology")?.as_object()?;
        let (_, node) = topology.iter().find(|(label, _)| label.rsplit('/').next() == Some(TOPOLOGY_NODE))?;
        node.as_str().map(str::to_owned)
    };
    let before = old.and_then(|old| old.get("endpoints")).and_then(Value::as_array).unwrap_or_default();
    let known: Vec<String> = before.iter().filter_map(Value::as_object).filter_map(node).collect();
    let endpoints = slice.get_mut("endpoints").and_then(Value::as_array_mut);
    for endpoint in endpoints.into_iter().flatten().filter_map(Value::as_object_mut) {
        let named = node(endpoint).filter(|node| known.contains(node));
        endpoint.remove("deprecatedTopology");
        if let Some(node) = named
            && endpoint.get("nodeName").is_none_or(Value::is_null)
        {
            endpoint.insert("nodeName", node.into());
        }
    }
}

/// Sets the missing times of conditions of a certificate request.
fn time_conditions(new: &mut Object, old: &Object) {
    let now = Value::from(clock::now());
    let before = object::at(old, "status.conditions").and_then(Value::as_array).unwrap_or_default();
    let status = new.object_entry("status");
    let conditions = status.get_mut("conditions").and_then(Value::as_array_mut);
    for condition in conditions.into_iter().flatten().filter_map(Value::as_object_mut) {
        let is_same =
            |other: &&Value| ["type", "status"].iter().all(|name| other.get(name) == condition.get(name));
        let since = before.iter().find(is_same).and_then(|other| other.get("lastTransitionTime"));
        let since = since.filter(|time| !time.is_null()).unwrap_or(&now).clone();
        for (name, time) in [("lastUpdateTime", now.clone()), ("lastTransitionTime", since)] {
            if condition.get(name).is_none_or(Value::is_null) {
                condition.insert(name, time);
            }
        }
    }
}

/// Returns the template generation of a daemon set from its annotation; 0 if the annotation is missing or
/// invalid.
fn template_generation(set: &Object) -> i64 {
    let annotation = |set: &Object| {
        let annotations = set.get("metadata")?.get("annotations")?;
        annotations.get(TEMPLATE_GENERATION)?.as_str()?.parse().ok()
    };
    annotation(set).unwrap_or(0)
}

fn set_template_generation(set: &mut Object, count: i64) {
    let annotations = object::metadata_mut(set).object_entry("annotations");
    annotations.insert(TEMPLATE_GENERATION, count.to_string().into());
    sort_members(annotations);
}

/// Marks an API service without a service as available, because this server itself serves it.
fn create_api_service(object: &mut Object, _: &mut Creation) {
    if object::at(object, "spec.service").is_some_and(|service| !service.is_null()) {
        return;
    }
    let mut condition = Object::new();
    for (name, value) in [
        ("type", "Available".to_owned()),
        ("status", "True".to_owned()),
        ("lastTransitionTime", clock::now()),
        ("reason", "Local".to_owned()),
        ("message", "Local APIServices are always available".to_owned()),
    ] {
        condition.push(name, value.into());
    }
    object.object_entry("status").insert("conditions", Value::Array(vec![condition.into()]));
}

#[cfg(test)]
#[path = "kinds_test.rs"]
mod tests;
