//! The body of a request, read within its limits and charged to the account of the request.

use bytes::Bytes;

use crate::requests::request::Request;
use values::memory::{Charge, MemoryExhausted};
use values::status::{Status, StatusReason};
use wire::server::{BODY_BYTES_MAX, BodyError, Incoming, read_charged};

/// Reads the request body, within its limits.
pub(super) async fn read(request: &Request<'_>, incoming: Incoming) -> Result<(Bytes, Charge), Status> {
    let timeout = request.server().operations.limits.request_timeout;
    let read = read_charged(incoming, BODY_BYTES_MAX, timeout, &request.account).await;
    let read = read.map_err(|error| match error {
        BodyError::NoMemory => Status::no_memory(MemoryExhausted::Busy),
        BodyError::TooLarge => Status::too_large(BODY_BYTES_MAX),
        BodyError::Timeout => {
            Status::new(StatusReason::Timeout, "Timeout: request body did not arrive in time")
        }
        BodyError::Disconnected => Status::bad_request("unable to read the request body"),
    })?;
    if let (Some(notes), Some(testing)) = (&request.tested, &request.server().operations.testing) {
        notes.keep_body(&testing.recording, &read.0);
    }
    Ok(read)
}
