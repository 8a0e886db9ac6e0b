//! Admission of what stores no object of its own: reviews, commands on an object (a binding, an eviction, a request for
//! a token), connects, and the mutating point of deletions.

use super::Call;
use super::write::intent;
use crate::admission::{Operation, Options};
use crate::json::Object;
use crate::status::Status;
use crate::strategy::Endpoint;
use crate::write::{Caller, Intent};

/// Both points for an object that is a question or a command.
///
/// # Errors
/// The refusal of a plugin.
pub async fn command(call: &mut Call<'_>, options: Options<'_>, object: &mut Object) -> Result<(), Status> {
    let info = call.info;
    let intent = intent_of(call, options);
    let chain = intent.api.admission();
    let mut record = intent.record(None, Some(&mut *object));
    record.subresource = &info.subresource;
    let mutated = chain.mutate(record).await?;
    let mut record = intent.record(None, Some(&*object));
    record.subresource = &info.subresource;
    let validated = chain.validate(record).await?;
    call.take_review(mutated);
    call.take_review(validated);
    Ok(())
}

/// Both points for a connection.
///
/// # Errors
/// The refusal of a plugin.
pub async fn connect(call: &mut Call<'_>) -> Result<(), Status> {
    let info = call.info;
    let intent = intent_of(call, Options::None);
    let chain = intent.api.admission();
    let mut record = intent.record(None, None);
    (record.operation, record.subresource) = (Operation::Connect, &info.subresource);
    let mutated = chain.mutate(record).await?;
    let mut record = intent.record(None, None);
    (record.operation, record.subresource) = (Operation::Connect, &info.subresource);
    let validated = chain.validate(record).await?;
    call.take_review(mutated);
    call.take_review(validated);
    Ok(())
}

/// The mutating point of a deletion, or of a whole deletecollection, which has no name. The validating one comes for
/// each object in the write path.
///
/// # Errors
/// The refusal of a plugin.
pub async fn deletion(call: &mut Call<'_>, options: Options<'_>) -> Result<(), Status> {
    let intent = intent_of(call, options);
    let review = intent.api.admission().mutate(intent.record(None, None)).await?;
    call.take_review(review);
    Ok(())
}

fn intent_of<'w>(call: &Call<'w>, options: Options<'w>) -> Intent<'w> {
    intent(call, Endpoint::Main, options, "")
}
