//! Admission of what stores no object of its own: reviews, commands on an object (a binding, an eviction, a request for
//! a token), and connects.

use super::Call;
use super::write::intent;
use crate::admission::{Options, Record, Target};
use crate::json::Object;
use crate::status::Status;
use crate::strategy::Endpoint;
use crate::write::Caller;

/// Both points for an object that is a question or a command.
///
/// # Errors
/// The refusal of a plugin.
pub async fn command(call: &mut Call<'_>, options: Options<'_>, object: &mut Object) -> Result<(), Status> {
    both(call, options, Some(object)).await
}

/// Both points for a connection.
///
/// # Errors
/// The refusal of a plugin.
pub async fn connect(call: &mut Call<'_>) -> Result<(), Status> {
    both(call, Options::None, None).await
}

/// The mutating point of the deletion of an object that cannot be read.
///
/// # Errors
/// The refusal of a plugin.
pub async fn deletion(call: &mut Call<'_>, options: Options<'_>) -> Result<(), Status> {
    let intent = intent(call, Endpoint::Main, options, "");
    let asked = intent.api.admission().about(&intent.target());
    let review = asked.mutate(intent.record(None, None)).await?;
    call.take_review(review);
    Ok(())
}

async fn both(
    call: &mut Call<'_>,
    options: Options<'_>,
    mut object: Option<&mut Object>,
) -> Result<(), Status> {
    let subresource = &*call.info.subresource;
    let intent = intent(call, Endpoint::Main, options, "");
    let asked = intent.api.admission().about(&Target { subresource, ..intent.target() });
    let record = Record { subresource, ..intent.record(None, object.as_deref_mut()) };
    let mutated = asked.mutate(record).await?;
    let record = Record { subresource, ..intent.record(None, object.as_deref()) };
    let validated = asked.validate(record).await?;
    for mut review in [mutated, validated] {
        // Nothing can fail any more that a share was taken for.
        std::mem::take(&mut review.charges).into_iter().for_each(|charge| charge.keep());
        call.take_review(review);
    }
    Ok(())
}
