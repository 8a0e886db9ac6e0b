//! Labels secrets with legacy tokens with the day of their last use, which controllers that remove unused ones read
//! (docs/api/authentication.md#service-account-tokens).

use std::sync::Arc;

use super::Ending;
use crate::state::tokens::uses::{last_used_label, today};
use crate::values::json::Value;
use crate::writes::bootstrap::{ObjectStore, Target};
use crate::writes::context::Context;
use crate::writes::loopback::Loopback;

/// Labels the secrets that authentication names.
pub(super) async fn follow(api: Arc<Context>) -> Ending {
    loop {
        let (namespace, name) = api.tokens().uses.next().await;
        let target = Target { group: "", version: "v1", resource: "secrets", namespace, name };
        label(&api, &target).await;
    }
}

/// Labels a secret with the day. What fails is told and not tried again: the next use of the token does that.
async fn label(api: &Context, target: &Target) {
    let (loopback, label, today) = (Loopback::new(api), last_used_label(api.naming()), today());
    let Ok(Some(Value::Object(mut secret))) = loopback.get(target) else { return };
    let labels = secret.object_entry("metadata").object_entry("labels");
    if labels.get(&label).and_then(Value::as_str) == Some(today.as_str()) {
        return;
    }
    labels.insert(label, today.into());
    if let Err(error) = loopback.update(target, secret.into()).await
        && error.code != 409
    {
        let Target { namespace, name, .. } = target;
        tracing::warn!(%namespace, secret = %name, error = error.message, "the last use of a token is not noted");
    }
}
