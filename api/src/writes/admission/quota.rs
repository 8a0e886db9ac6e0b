//! The plugin ResourceQuota: the total usage of the objects in a namespace stays within the quotas of the
//! namespace.
//!
//! Only one plugin runs after this plugin, so most writes that other plugins refuse are not counted. If a
//! write fails, its share is released at once (`crate::writes::quotas`). The quota controller counts the
//! usage again (`crate::system::controllers::resource_quota`).

use std::sync::Arc;

use engine::Revision;

use super::Collection;
use crate::writes::plugin::{AdmissionRecord, Operation, Pending, Plugin, Review, Step, Target, Writer};
use crate::writes::pod::{self, Amounts};
use crate::writes::quotas::{
    Ledger, Quota, QuotaRefusal, QuotaRequest, QuotaScope, QuotaStore, Usage, usage,
};
use crate::writes::server::MakePlugin;
use crate::writes::server::Server;
use crate::writes::server::store::ObjectStorage;
use crate::writes::server::types::TypeCatalog;
use objects::store;
use objects::strategy::Endpoint;
use types::schema::registry::Resource;
use values::json::{Object, Value};
use values::status::Status;

/// The admission plugin ResourceQuota.
pub struct ResourceQuota {
    store: Arc<ObjectStorage>,
    types: Arc<TypeCatalog>,
    ledger: Arc<Ledger>,
    quotas: Arc<Resource>,
    /// The quotas of all namespaces.
    all: Collection,
    limited: Vec<Limited>,
}

/// A resource that objects may use only if a quota covers the resource.
#[derive(Clone, Debug)]
struct Limited {
    group: String,
    plural: String,
    /// Substrings of the names of the limited resources.
    contains: Vec<String>,
    /// Scopes of the objects that are limited.
    scopes: Vec<QuotaScope>,
}

/// Reads the configuration: `limitedResources`.
///
/// # Errors
/// Fails for a limit without a resource.
pub fn configure(config: Option<&Value>) -> Result<MakePlugin, String> {
    let list = config.and_then(|config| config.get("limitedResources")).and_then(Value::as_array);
    let mut limited = Vec::new();
    let mut wrong = Vec::new();
    for (at, item) in list.unwrap_or_default().iter().enumerate() {
        if item.str_at(&["resource"]).is_empty() {
            wrong.push(format!("limitedResources[{at}].resource: Required value"));
        }
        let scopes = item.get("matchScopes").and_then(Value::as_array).unwrap_or_default();
        let contains = item.get("matchContains").and_then(Value::as_array).unwrap_or_default();
        limited.push(Limited {
            group: item.str_at(&["apiGroup"]).to_owned(),
            plural: item.str_at(&["resource"]).to_owned(),
            contains: contains.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
            scopes: scopes.iter().map(QuotaScope::read).collect(),
        });
    }
    if let Some(wrong) = go::join_errors(&wrong) {
        return Err(wrong);
    }
    Ok(Arc::new(move |server: &Server| {
        let quotas = server.types.resource("", "v1", "resourcequotas");
        let all = Collection::new(server.store.engine(), &quotas);
        Arc::new(ResourceQuota {
            store: server.store.clone(),
            types: server.types.clone(),
            ledger: server.quotas.clone(),
            quotas,
            all,
            limited: limited.clone(),
        })
    }))
}

/// The quotas in the server's store. Writes of quotas use the identity `writer`.
pub struct StoredQuotas {
    /// Access to the store.
    pub store: Arc<ObjectStorage>,
    /// The resource of quotas.
    pub resource: Arc<Resource>,
    /// The identity under which quotas are written.
    pub writer: Arc<dyn Writer>,
}

impl QuotaStore for StoredQuotas {
    fn has_any(&self, namespace: &str) -> bool {
        has_any(&self.store, &self.resource, namespace)
    }

    fn read(&self, namespace: &str) -> Result<Vec<(Revision, Object)>, Status> {
        let entries = self.store.snapshot().prefix(&store::collection(&self.resource, namespace));
        let object = |entry: engine::Entry| {
            let revision = entry.revision();
            Ok((revision, store::read(entry)?.object(&self.resource)?))
        };
        entries.map(object).collect()
    }

    fn replace(&self, seen: Revision, quota: Object) -> Pending<'_, bool> {
        self.writer.replace(&self.resource, Endpoint::Status, seen, quota)
    }
}

fn has_any(store: &ObjectStorage, quotas: &Resource, namespace: &str) -> bool {
    store.snapshot().prefix(&store::collection(quotas, namespace)).next().is_some()
}

impl ResourceQuota {
    async fn charge(&self, record: &AdmissionRecord<'_, &Object>, review: &mut Review) -> Result<(), Status> {
        let Some(new) = record.new.filter(|_| record.is_namespaced()) else { return Ok(()) };
        let are_there = !self.all.is_empty(self.store.engine())
            && has_any(&self.store, &self.quotas, record.write.namespace);
        if self.limited.is_empty() && !are_there {
            return Ok(());
        }
        let is_whole_pod = record.write.resource.is_of("", "pods") && record.subresource.is_empty();
        if let Some(old) = record.old.filter(|_| is_whole_pod)
            && !usage::moves_between_deadline_scopes(old, new)
        {
            return Ok(());
        }
        let usage = Usage::from_object(self.types.naming, record.write.resource, new);
        if let Some((name, _)) = usage.amounts.iter().find(|(_, amount)| amount.is_negative()) {
            return Err(record.forbidden(&format!("quota usage is negative for resource(s): {name}")));
        }
        let before = record.old.map(|old| Usage::from_object(self.types.naming, record.write.resource, old));
        let mut delta = usage.amounts.clone();
        if let Some(before) = before.as_ref().filter(|before| before.has_scopes_of(&usage)) {
            let less = before.amounts.iter().map(|(name, amount)| (name.clone(), amount.negated())).collect();
            pod::add(&mut delta, &less);
        }
        delta.retain(|_, amount| !amount.is_zero());
        if before.is_some() && delta.is_empty() {
            return Ok(());
        }
        self.check_limited(record, &usage, &delta)?;
        if !are_there {
            return Ok(());
        }
        let key_prefix = record.write.resource.stored().key_prefix.clone();
        let ask = QuotaRequest { usage, before, key_prefix, dry_run: record.write.dry_run() };
        let (store, resource) = (self.store.clone(), self.quotas.clone());
        let store = Arc::new(StoredQuotas { store, resource, writer: record.writer.shared() });
        match self.ledger.take(store, record.write.namespace, ask).await {
            Ok(None) => Ok(()),
            Ok(Some(share)) => {
                review.charges.push(Box::new(share));
                Ok(())
            }
            Err(QuotaRefusal::Exceeded(why)) => Err(record.forbidden(&why)),
            Err(QuotaRefusal::Failed(status)) => Err(status),
        }
    }

    /// Checks that a quota covers every limited resource that the object uses.
    fn check_limited(
        &self,
        record: &AdmissionRecord<'_, &Object>,
        usage: &Usage,
        delta: &Amounts,
    ) -> Result<(), Status> {
        let (mut uncovered, mut scopes): (Vec<&str>, Vec<&QuotaScope>) = (Vec::new(), Vec::new());
        for limited in &self.limited {
            if (&limited.group, &*limited.plural)
                != (&record.write.resource.group, &*record.write.resource.table.plural)
            {
                continue;
            }
            let is_limited =
                |name: &&String| limited.contains.iter().any(|part| name.contains(part.as_str()));
            uncovered.extend(delta.keys().filter(is_limited).map(String::as_str));
            scopes.extend(limited.scopes.iter().filter(|scope| usage.is_in(scope)));
        }
        if uncovered.is_empty() && scopes.is_empty() {
            return Ok(());
        }
        let stored = self.store.list(&self.quotas, record.write.namespace)?;
        let covering: Vec<Quota> =
            stored.iter().map(Quota::parse).filter(|quota| quota.covers(usage)).collect();
        uncovered.retain(|name| !covering.iter().any(|quota| quota.hard.contains_key(*name)));
        uncovered.sort_unstable();
        uncovered.dedup();
        if !uncovered.is_empty() {
            return Err(record.forbidden(&format!("insufficient quota to consume: {}", uncovered.join(","))));
        }
        scopes.retain(|scope| {
            !covering.iter().any(|quota| quota.scopes_of(usage).any(|own| own.is_like(scope)))
        });
        if scopes.is_empty() {
            return Ok(());
        }
        let scopes: Vec<String> = scopes.iter().map(ToString::to_string).collect();
        Err(record.forbidden(&format!("insufficient quota to match these scopes: [{}]", scopes.join(" "))))
    }
}

impl Plugin for ResourceQuota {
    fn handles(&self, target: &Target<'_>) -> bool {
        let resource = target.resource;
        let is_main = target.subresource.is_empty();
        let is_update = target.operation == Operation::Update;
        // Events are not counted, because the store deletes events after some time.
        let is_event = resource.is_of("", "events") || resource.is_of("events", "events");
        if !resource.namespaced() || resource.storage.is_none() || is_event {
            return false;
        }
        match target.operation {
            Operation::Create => is_main,
            Operation::Update if is_main => {
                ["services", "persistentvolumeclaims", "pods"].iter().any(|plural| resource.is_of("", plural))
            }
            _ => is_update && target.subresource == "resize" && resource.is_of("", "pods"),
        }
    }

    fn validate<'p>(&'p self, record: &'p AdmissionRecord<'_, &Object>, review: &'p mut Review) -> Step<'p> {
        Step::wait(self.charge(record, review))
    }
}

#[cfg(test)]
mod quota_test;
