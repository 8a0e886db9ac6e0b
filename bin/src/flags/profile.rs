//! The value of `--naming`: the naming profile of a store.

use values::naming::{self, Naming};

/// The naming profile that `--naming` selects.
pub type Profile = &'static Naming;

/// Returns the naming profile with the name `text`.
///
/// # Errors
/// No naming profile has this name.
pub fn profile(text: &str) -> Result<Profile, String> {
    Naming::by_profile(text).ok_or_else(|| format!("must be {}", profiles(" or ")))
}

/// Returns the names of all profiles, separated by `between`.
pub fn profiles(between: &str) -> String {
    naming::ALL.map(|naming| naming.profile).join(between)
}
