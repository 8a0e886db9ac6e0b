//! The use of quotas. The module `usage` computes the usage of an object, and `hold` reads the limits and the
//! usage of a quota. The module `ledger` assigns shares of quotas to writes and describes the protocol;
//! `account` makes the decisions for one namespace.

mod account;
mod hold;
mod inputs;
mod ledger;
pub mod usage;

pub use hold::{Quota, to_value};
pub use inputs::{QuotaRefusal, QuotaRequest, QuotaStore, Total};
pub use ledger::Ledger;
pub use usage::{QuotaScope, Usage, count_name, counted_by, counts_objects};
