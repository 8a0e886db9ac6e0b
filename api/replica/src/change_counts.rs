//! Counts the changes that etcd reports, from all servers
//! (docs/api/operations.md#accesses-to-the-store).

use std::sync::Arc;

use super::Replica;
use super::keys::{KeyMeaning, custom_type};
use types::served::Types;
use wire::metrics::Metrics;

/// The data that a replica gets when its server begins to serve types.
pub(super) struct Serving {
    pub(super) types: Arc<Types>,
    metrics: Arc<Metrics>,
}

impl Replica {
    /// Sets the served types. After this call, custom objects are converted to the form of their type, and
    /// changes are counted.
    pub fn serve(&self, types: Arc<Types>, metrics: Arc<Metrics>) {
        let _ = self.serving.set(Serving { types, metrics });
    }

    /// Counts a change. Watches count the changes of types that expire.
    pub(super) fn count_change(&self, place: &KeyMeaning) {
        let Some(Serving { types, metrics }) = self.serving.get() else { return };
        let (group, plural) = match place {
            KeyMeaning::Builtin(resource, _) if !resource.table.behavior.expires => {
                (&*resource.group, &*resource.table.plural)
            }
            KeyMeaning::Custom(key) => match custom_type(key) {
                Some((group, plural)) if types.now().registry().has(group, plural) => (group, plural),
                _ => return,
            },
            KeyMeaning::Builtin(..) | KeyMeaning::Other => return,
        };
        metrics.store_events.count(&[group, plural]);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use engine::{Durability, Engine, Options, Role};
    use etcd::rpc::{EVENT_DELETE, EVENT_PUT, Event, KeyValue};
    use etcd::{Client, Config};

    use super::super::apply::{Batch, by_revision};
    use super::*;
    use api::state::allocation::Ranges;
    use types::schema::registry::Registry;
    use types::served::Served;
    use values::naming::KUBERNETES;

    fn event(kind: i32, key: &str, mod_revision: i64) -> Event {
        let key = key.to_owned().into();
        Event { kind, kv: Some(KeyValue { key, mod_revision, ..KeyValue::default() }) }
    }

    #[tokio::test]
    async fn each_change_of_a_served_type_is_counted_once() {
        let directory = std::env::temp_dir().join(format!("api-counting-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&directory);
        let role = Role::Follower;
        let options = Options { durability: Durability::Relaxed, role, ..Options::new(&directory) };
        let engine = Engine::open(options).unwrap();
        let client = Client::new(Config { endpoints: Vec::new(), tls: None, deadline: Duration::ZERO });
        let ports = Ranges::default().ports;
        let replica = Replica::new(client, engine.clone(), &KUBERNETES, "/registry", &ports);
        let served = Served::new(Registry::new(&KUBERNETES), String::new(), Vec::new(), "");
        let (types, metrics) = (Arc::new(Types::new(served)), Arc::<Metrics>::default());
        let keys = ["pods/n/a", "events/n/a", "other.example/things/n/a", "ranges/servicenodeports"];
        let mut batch = Batch::new(&replica);
        for at in 1..=3 {
            if at == 2 {
                // Changes before this point are part of the initial state.
                replica.serve(types.clone(), metrics.clone());
            }
            let put = |key: &&str| event(EVENT_PUT, &format!("/registry/{key}"), at);
            let mut events: Vec<Event> = keys.iter().map(put).collect();
            events.push(event(EVENT_DELETE, "/registry/minions/a", at));
            for (at, events) in by_revision(&events) {
                batch.events(at, &events).await.unwrap();
            }
        }
        batch.apply().await.unwrap();
        let mut page = metrics.page();
        metrics.write(&mut page);
        let page = page.into_text();
        let counted: Vec<&str> = page
            .lines()
            .filter_map(|line| line.strip_prefix("apiserver_storage_events_received_total"))
            .collect();
        let want = [r#"{group="",resource="nodes"} 2"#, r#"{group="",resource="pods"} 2"#];
        assert_eq!(counted, want);
        engine.close().await;
        let _ = std::fs::remove_dir_all(&directory);
    }
}
