//! Removal of repeated owner references before an object is stored.

use hashbrown::HashSet;

use values::json::{self, Object};
use values::object::metadata_mut;

/// Addition to the warning if owners are checked after admission plugins, which may have changed them.
pub const AFTER_ADMISSION: &str = " after mutating admission happens";

/// Removes owner references that repeat an earlier reference, and returns the warning for the writer. `when`
/// is empty or [`AFTER_ADMISSION`].
pub fn without_repeated_owners(object: &mut Object, when: &str) -> Option<String> {
    let owners = object.get("metadata")?.get("ownerReferences")?.as_array()?;
    if owners.len() < 2 {
        return None;
    }
    let owners = metadata_mut(object).get_mut("ownerReferences")?.as_array_mut()?;
    let mut seen = HashSet::with_capacity(owners.len());
    let mut repeated: Vec<String> = Vec::new();
    owners.retain(|owner| {
        // The reference server compares whole entries. Comparing the texts of the entries is equivalent.
        let mut text = Vec::new();
        json::write(owner, &mut text);
        let is_new = seen.insert(text);
        if !is_new {
            repeated.push(owner.str_at(&["uid"]).to_owned());
        }
        is_new
    });
    (!repeated.is_empty()).then(|| {
        format!(
            ".metadata.ownerReferences contains duplicate entries{when}; API server dedups owner references in 1.20+, \
             and may reject such requests as early as 1.24; please fix your requests; duplicate UID(s) observed: {}",
            repeated.join(", ")
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use values::testing::object;

    #[test]
    fn repeated_owner_references_are_dropped() {
        let owner = |uid: &str, name: &str| format!(r#"{{"uid":"{uid}","name":"{name}"}}"#);
        let of = |owners: &[String]| {
            object(&format!(r#"{{"metadata":{{"ownerReferences":[{}]}}}}"#, owners.join(",")))
        };
        let (a, b) = (owner("u", "a"), owner("u", "b"));
        for (owners, kept, uids) in [
            (vec![], vec![], None),
            (vec![a.clone()], vec![a.clone()], None),
            (vec![a.clone(), b.clone()], vec![a.clone(), b.clone()], None),
            (vec![a.clone(), b.clone(), a.clone(), a.clone()], vec![a.clone(), b.clone()], Some("u, u")),
        ] {
            for when in ["", AFTER_ADMISSION] {
                let mut given = of(&owners);
                let warning = without_repeated_owners(&mut given, when);
                assert_eq!(given, of(&kept), "{owners:?}");
                let end = uids.map(|uids| format!("duplicate UID(s) observed: {uids}"));
                assert_eq!(warning.is_some(), end.is_some(), "{owners:?}");
                if let (Some(warning), Some(end)) = (warning, end) {
                    assert!(
                        warning.starts_with(&format!(
                            ".metadata.ownerReferences contains duplicate entries{when}; "
                        )),
                        "{warning}"
                    );
                    assert!(warning.ends_with(&end), "{warning}");
                }
            }
        }
    }
}
