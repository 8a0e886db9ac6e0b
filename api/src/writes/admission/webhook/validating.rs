//! The plugin ValidatingAdmissionWebhook concurrently calls the webhooks that may refuse an object.

use std::sync::Arc;

use futures_util::future::join_all;

use super::{Outcome, Webhook, Webhooks, Write, is_sent};
use crate::writes::plugin::{AdmissionRecord, Plugin, Review, Step, Target};
use crate::writes::server::Server;
use values::json::Object;
use values::status::Status;
use wire::outgoing::Identities;

/// The admission plugin ValidatingAdmissionWebhook.
pub struct ValidatingWebhooks(Webhooks);

impl ValidatingWebhooks {
    /// Returns the plugin for this store. `identities` are the credentials of this server for webhooks.
    pub fn new(server: &Server, identities: Arc<Identities>) -> ValidatingWebhooks {
        ValidatingWebhooks(Webhooks::new(server, "validatingwebhookconfigurations", identities))
    }

    async fn run(&self, record: &AdmissionRecord<'_, &Object>, review: &mut Review) -> Result<(), Status> {
        let configurations = self.0.all()?;
        if configurations.is_empty() {
            return Ok(());
        }
        let served = self.0.types.now();
        let write = Write::from_record(record, record.new);
        let mut called = Vec::new();
        let mut webhooks: Vec<&Webhook> = Vec::new();
        for owner in configurations.iter() {
            webhooks.extend(&owner.webhooks);
        }
        for (index, webhook) in webhooks.into_iter().enumerate() {
            let matched =
                self.0.matched_resource(webhook, &write, record.write.resource, served.registry()).await?;
            if let Some(seen) = matched {
                called.push((index, webhook, seen));
            }
        }
        let write = &write;
        let mut calls = Vec::with_capacity(called.len());
        for (_, webhook, seen) in &called {
            calls.push(self.0.call_with_failure_policy(webhook, write, seen, false));
        }
        let outcomes = join_all(calls).await;
        let mut refusal = None;
        for ((index, webhook, _), outcome) in called.into_iter().zip(outcomes) {
            match outcome {
                Ok(Outcome::Answered(verdict, _)) => {
                    webhook.annotate(&verdict, review);
                    if let Some(denial) = &verdict.denial {
                        refusal.get_or_insert_with(|| denial.status(&webhook.name));
                    }
                }
                Ok(Outcome::FailedOpen) => {
                    let group = self.0.types.naming.group("admission", true);
                    let key = format!("failed-open.validating.webhook.{group}/round_0_index_{index}");
                    review.annotations.push((key, webhook.name.clone()));
                }
                Err(status) => {
                    refusal.get_or_insert(status);
                }
            }
        }
        review.webhook_refused = refusal.is_some();
        refusal.map_or(Ok(()), Err)
    }
}

impl Plugin for ValidatingWebhooks {
    fn handles(&self, target: &Target<'_>) -> bool {
        is_sent(target) && self.0.is_configured()
    }

    fn validate<'p>(&'p self, record: &'p AdmissionRecord<'_, &Object>, review: &'p mut Review) -> Step<'p> {
        Step::wait(self.run(record, review))
    }
}
