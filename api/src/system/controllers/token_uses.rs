//! Labels secrets of legacy tokens with the date of their last use. Controllers that remove unused tokens
//! read the label (docs/api/authentication.md#service-account-tokens).

use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::{self, StreamExt};

use super::{Ending, WRITES_MAX};
use crate::state::tokens::uses::{TokenUse, last_used_label};
use crate::writes::bootstrap::ObjectTarget;
use crate::writes::loopback::Loopback;
use crate::writes::server::Server;
use objects::store::ObjectName;
use objects::strategy::Endpoint;
use types::schema::registry::Resource;
use values::clock;
use values::json::{Object, Value};
use values::object::meta;
use values::status::Status;

/// Pause after a batch in which a secret could not be labelled. The next use of the token of this secret leads
/// to another attempt.
const FAILURE_PAUSE: Duration = Duration::from_secs(1);

/// Runs the controller, which labels the secrets that authentication reports.
pub(super) async fn follow(server: Arc<Server>) -> Ending {
    let loopback = Loopback::new(&server);
    let target = ObjectTarget {
        group: "",
        version: "v1",
        resource: "secrets",
        namespace: String::new(),
        name: String::new(),
    };
    let secrets = loopback.resource(&target)?;
    let label = last_used_label(server.types.naming);
    loop {
        let noted = server.access.tokens.uses.take().await.into_iter().map(async |used| {
            let Err(error) = write(&loopback, secrets, &used, &label).await else { return true };
            let TokenUse { namespace, secret, .. } = &used;
            tracing::warn!(%namespace, %secret, error = error.message, "last use of a token not recorded");
            false
        });
        let mut noted = stream::iter(noted).buffer_unordered(WRITES_MAX);
        let mut all_noted = true;
        while let Some(is_noted) = noted.next().await {
            all_noted &= is_noted;
        }
        if !all_noted {
            tokio::time::sleep(FAILURE_PAUSE).await;
        }
    }
}

/// Labels a secret with the date, if the secret is still the one whose token was used.
async fn write(
    loopback: &Loopback<'_>,
    secrets: &Resource,
    used: &TokenUse,
    label: &str,
) -> Result<(), Status> {
    let today = clock::today();
    let make = |old: &Object| {
        let labels = old.get("metadata").and_then(|metadata| metadata.get("labels"));
        let noted = labels.and_then(|labels| labels.get(label)).and_then(Value::as_str);
        if meta(old, "uid") != used.uid || noted == Some(today.as_str()) {
            return None;
        }
        let mut new = old.clone();
        new.object_entry("metadata").object_entry("labels").insert(label.to_owned(), today.as_str().into());
        Some(new)
    };
    loopback
        .change(secrets, ObjectName { namespace: &used.namespace, name: &used.secret }, Endpoint::Main, make)
        .await
}
