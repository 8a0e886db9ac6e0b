//! Start-up: brings the store into the initial state of a cluster, before the first client is served.
//!
//! ```text
//! custom types ─► damaged records of its own objects ─► bundled objects ─► flow control ─► rules of the aggregated roles among them ─► API services ─► the server's own service ─► start date of token tracking
//! ```
//!
//! Each step writes only objects that are missing or wrong, so on an initialized store the step only reads.

use crate::system::controllers;
use crate::writes::bootstrap::{self, ObjectStore, ObjectTarget, ReconcileCounts, WriteResult};
use crate::writes::loopback::Loopback;
use crate::writes::server::Server;
use values::clock;
use values::json::{Object, Value};
use values::status::{Status, StatusReason};

/// Serves the custom types that were established before. This function must be called before the first request.
/// The cost is one read of each definition.
///
/// # Errors
/// The store failed.
pub fn load_types(server: &Server) -> Result<(), Status> {
    controllers::definitions::load(server)
}

/// Creates missing bootstrap objects, and sets the rules of the aggregated roles among them, so that the
/// first clients have the corresponding permissions.
///
/// # Errors
/// The store failed.
pub async fn prepare(server: &Server) -> Result<ReconcileCounts, Status> {
    renew_damaged(server).await?;
    let mut outcome =
        bootstrap::reconcile(&Loopback::new(server).without_admission(), server.types.naming).await?;
    outcome += controllers::flow_control::prepare(server).await?;
    controllers::aggregation::prepare(server).await?;
    controllers::api_services::prepare(server).await?;
    controllers::own_service::prepare(server).await?;
    controllers::service_cidr::prepare(server).await?;
    track_legacy_tokens(server).await?;
    Ok(outcome)
}

/// Returns the object that contains the start date of the tracking of legacy token uses.
fn legacy_tokens(server: &Server) -> ObjectTarget {
    let naming = server.types.naming;
    ObjectTarget {
        group: "",
        version: "v1",
        resource: "configmaps",
        namespace: naming.system("system"),
        name: naming.system("apiserver-legacy-service-account-token-tracking"),
    }
}

/// Records the date from which the server labels the secrets of legacy tokens with the last use. Controllers
/// that remove unused tokens count from this date.
async fn track_legacy_tokens(server: &Server) -> Result<(), Status> {
    const SINCE: &str = "since";
    let loopback = Loopback::new(server).without_admission();
    let target = legacy_tokens(server);
    let is_date = |text: &str| {
        let shape = |byte: u8| if byte.is_ascii_digit() { b'0' } else { byte };
        text.bytes().map(shape).eq(*b"0000-00-00")
    };
    let found = match loopback.get(&target) {
        Err(error) if error.reason == StatusReason::StorageReadError => {
            tracing::error!(%error, "cannot read the date since which tokens in secrets are tracked");
            return Ok(());
        }
        found => found?,
    };
    if found.as_ref().is_some_and(|found| is_date(found.str_at(&["data", SINCE]))) {
        return Ok(());
    }
    let today = clock::today();
    let object = |members: &[(&str, &str)]| -> Object {
        members.iter().map(|(name, text)| ((*name).to_owned().into(), (*text).into())).collect()
    };
    // A conflict means that another server has just written the same values.
    let _: WriteResult = match found {
        Some(Value::Object(mut found)) => {
            found.object_entry("data").insert(SINCE, today.as_str().into());
            loopback.update(&target, found.into()).await?
        }
        _ => {
            let mut made = object(&[("kind", "ConfigMap"), ("apiVersion", "v1")]);
            made.push("metadata", object(&[("name", &target.name), ("namespace", &target.namespace)]).into());
            made.push("data", object(&[(SINCE, &today)]).into());
            loopback.create(&target, made.into()).await?
        }
    };
    Ok(())
}

/// Removes the server's own objects whose records cannot be read, so that the following steps create them
/// again. The removal happens only after an operator has accepted the loss of these records, because changes that
/// clients made to these objects are lost too.
async fn renew_damaged(server: &Server) -> Result<(), Status> {
    if !server.store.backends.is_whole() {
        return Ok(());
    }
    let loopback = Loopback::new(server).without_admission();
    let bundled = [bootstrap::desired(server.types.naming), bootstrap::flow_control(server.types.naming)];
    let mut targets: Vec<ObjectTarget> =
        bundled.into_iter().flatten().map(|desired| desired.target).collect();
    targets.extend(controllers::api_services::own(server));
    targets.extend(controllers::own_service::own(server));
    targets.push(controllers::service_cidr::target(server.types.naming));
    targets.push(legacy_tokens(server));
    for target in targets {
        if loopback.remove_damaged(&target).await? {
            let ObjectTarget { resource, namespace, name, .. } = target;
            tracing::error!(
                resource,
                namespace,
                name,
                "bootstrap object is damaged: recreated with its initial content"
            );
        }
    }
    Ok(())
}
