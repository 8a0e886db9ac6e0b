//! The use of quotas: `usage` computes what an object uses, and `hold` reads what a quota allows. `ledger`
//! lets writes take their shares one after the other and describes the protocol; `account` is the part for
//! one namespace.

mod account;
mod hold;
mod inputs;
mod ledger;
pub mod usage;

pub use hold::{Quota, to_value};
pub use inputs::{Ask, QuotaStore, Refusal, Total};
pub use ledger::Ledger;
pub use usage::{Scope, Usage, count_name, counted_by, counts_objects};
