//! Paths with slashes, as Go's package `path` cleans and joins them.

/// Returns the shortest path with the same meaning: without empty segments, `.` and a slash at the end, and with each `..`
/// applied to the segment before it. A path without segments becomes `.`, or `/` if it begins with a slash.
pub fn clean(path: &str) -> String {
    let is_rooted = path.starts_with('/');
    let mut segments: Vec<&str> = Vec::new();
    for segment in path.split('/') {
        match segment {
            "" | "." => {}
            ".." if segments.last().is_some_and(|last| *last != "..") => drop(segments.pop()),
            ".." if is_rooted => {}
            _ => segments.push(segment),
        }
    }
    let joined = segments.join("/");
    match (is_rooted, joined.is_empty()) {
        (true, _) => format!("/{joined}"),
        (false, true) => ".".to_owned(),
        (false, false) => joined,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_cleaned_as_by_go() {
        for (path, want) in [
            ("", "."),
            (".", "."),
            ("/", "/"),
            ("//", "/"),
            ("//a", "/a"),
            ("/a//b/./c/", "/a/b/c"),
            ("/a/../b", "/b"),
            ("/../a", "/a"),
            ("a/..", "."),
            ("../../a", "../../a"),
            ("a/../../b", "../b"),
            ("/...", "/..."),
        ] {
            assert_eq!(clean(path), want, "{path:?}");
        }
    }
}
