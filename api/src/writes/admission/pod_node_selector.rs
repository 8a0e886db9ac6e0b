//! The plugin PodNodeSelector: pods get the node selector of their namespace, and may select only the labels
//! that the configuration allows in the namespace.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::namespace_lifecycle;
use crate::writes::plugin::{AdmissionRecord, Plugin, Review, Step, Target};
use crate::writes::pod::{self, pairs};
use crate::writes::server::MakePlugin;
use crate::writes::server::Server;
use crate::writes::server::store::ObjectStorage;
use types::schema::registry::Resource;
use values::json::{Object, Value};
use values::object::{at, meta};
use values::status::{Status, Subject};

/// The annotation of a namespace that contains the node selector of the namespace.
const ANNOTATION: &str = "scheduler.alpha.kubernetes.io/node-selector";

/// The member of the configuration that contains the node selector of namespaces without the annotation.
const DEFAULT: &str = "clusterDefaultNodeSelector";

type Labels = BTreeMap<String, String>;

/// The admission plugin PodNodeSelector.
pub struct PodNodeSelector {
    store: Arc<ObjectStorage>,
    namespaces: Arc<Resource>,
    /// For each namespace in the configuration, the labels that pods of the namespace may select. The entry
    /// [`DEFAULT`] is the default node selector.
    selectors: BTreeMap<String, Labels>,
}

/// Reads the configuration: `podNodeSelectorPluginConfig`, a map of selectors.
///
/// # Errors
/// Fails if a value is not a valid selector.
pub fn configure(config: Option<&Value>) -> Result<MakePlugin, String> {
    let mut selectors = BTreeMap::new();
    for (namespace, text) in pairs(config.and_then(|config| config.get("podNodeSelectorPluginConfig"))) {
        selectors.insert(namespace.to_owned(), parse(text)?);
    }
    Ok(Arc::new(move |server: &Server| {
        Arc::new(PodNodeSelector {
            store: server.store.clone(),
            namespaces: server.types.resource("", "v1", "namespaces"),
            selectors: selectors.clone(),
        })
    }))
}

/// Parses labels of the form `a=b,c=d`.
fn parse(text: &str) -> Result<Labels, String> {
    let pairs = text.split(',').filter(|pair| !text.is_empty() && !pair.is_empty());
    let pair = |pair: &str| {
        let (key, value) = pair.split_once('=').ok_or_else(|| format!("invalid selector: {pair}"))?;
        Ok((key.trim().to_owned(), value.trim().to_owned()))
    };
    pairs.map(pair).collect()
}

impl PodNodeSelector {
    /// Returns the selector of a namespace.
    fn of_namespace(&self, namespace: &str) -> Result<Labels, Status> {
        let found = self.store.get(&self.namespaces, "", namespace)?;
        let found = found.ok_or_else(|| namespace_lifecycle::missing(namespace))?;
        match pod::annotation(&found, ANNOTATION) {
            Some(text) => parse(text).map_err(Status::internal),
            None => Ok(self.selectors.get(DEFAULT).cloned().unwrap_or_default()),
        }
    }

    fn complete(&self, record: &mut AdmissionRecord<'_, &mut Object>) -> Result<(), Status> {
        let selector = self.of_namespace(record.write.namespace)?;
        let Some(new) = record.new.as_deref_mut() else { return Ok(()) };
        if conflicts(new, &selector) {
            return Err(forbidden(
                new,
                "pod node label selector conflicts with its namespace node label selector",
            ));
        }
        if !selector.is_empty() {
            let labels = new.object_entry("spec").object_entry("nodeSelector");
            for (key, value) in selector {
                labels.insert(key, value.into());
            }
        }
        Ok(())
    }

    fn check(&self, record: &AdmissionRecord<'_, &Object>) -> Result<(), Status> {
        let Some(new) = record.new else { return Ok(()) };
        if conflicts(new, &self.of_namespace(record.write.namespace)?) {
            return Err(forbidden(
                new,
                "pod node label selector conflicts with its namespace node label selector",
            ));
        }
        let Some(allowed) = self.selectors.get(record.write.namespace).filter(|allowed| !allowed.is_empty())
        else {
            return Ok(());
        };
        let mut given = pairs(at(new, "spec.nodeSelector"));
        if given.any(|(key, value)| allowed.get(key).is_none_or(|allowed| allowed != value)) {
            return Err(forbidden(
                new,
                "pod node label selector labels conflict with its namespace whitelist",
            ));
        }
        Ok(())
    }
}

/// Returns whether a pod and `selector` require different values of the same label.
fn conflicts(pod: &Object, selector: &Labels) -> bool {
    let mut given = pairs(at(pod, "spec.nodeSelector"));
    given.any(|(key, value)| selector.get(key).is_some_and(|required| required != value))
}

fn forbidden(pod: &Object, why: &str) -> Status {
    Status::forbidden(Subject { group: "", kind: "pods", name: meta(pod, "name") }, why)
}

impl Plugin for PodNodeSelector {
    fn handles(&self, target: &Target<'_>) -> bool {
        target.creates("", "pods")
    }

    fn mutate<'p>(&'p self, record: &'p mut AdmissionRecord<'_, &mut Object>, _: &'p mut Review) -> Step<'p> {
        self.complete(record).into()
    }

    fn validate<'p>(&'p self, record: &'p AdmissionRecord<'_, &Object>, _: &'p mut Review) -> Step<'p> {
        self.check(record).into()
    }
}
