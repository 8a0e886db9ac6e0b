//! Lists the files whose code is mapped into this process, from `/proc` (proc_pid_maps(5)).

use std::path::{Path, PathBuf};

/// An executable mapping of a file.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct FileMapping {
    pub start: usize,
    pub end: usize,
    /// Offset of the mapping in the file.
    pub offset: u64,
    /// Path of the file, or a name in brackets such as `[vdso]`.
    pub file: String,
}

/// Returns the executable mappings of this process.
pub fn executable() -> Vec<FileMapping> {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    maps.lines().filter_map(mapping).collect()
}

/// Returns the path at which the file of a mapping can be opened. For the program itself, the result is a
/// path in `/proc`, because the file may have been replaced since the start.
pub fn readable_path(mapping: &FileMapping) -> PathBuf {
    let own = std::env::current_exe().ok();
    let is_own = own.is_some_and(|own| Path::new(&mapping.file) == own);
    if is_own { PathBuf::from("/proc/self/exe") } else { PathBuf::from(&mapping.file) }
}

/// Parses a line of `/proc/self/maps`. Returns `None` if the mapping is not executable.
fn mapping(line: &str) -> Option<FileMapping> {
    let mut parts = line.split_ascii_whitespace();
    let (range, permissions, offset) = (parts.next()?, parts.next()?, parts.next()?);
    let (start, end) = range.split_once('-')?;
    let number = |text| usize::from_str_radix(text, 16).ok();
    let file = line.splitn(6, ' ').nth(5).unwrap_or_default().trim();
    let offset = u64::from_str_radix(offset, 16).ok()?;
    let mapping = FileMapping { start: number(start)?, end: number(end)?, offset, file: file.to_owned() };
    permissions.contains('x').then_some(mapping)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_proc_maps_are_parsed() {
        let read = |line| mapping(line).map(|it| (it.start, it.end, it.offset, it.file));
        for (line, want) in [
            (
                "55d0c8a00000-55d0c8b00000 r-xp 0001f000 08:01 1234  /usr/bin/a program",
                Some((0x55d0_c8a0_0000, 0x55d0_c8b0_0000, 0x1f000, "/usr/bin/a program".to_owned())),
            ),
            (
                "7ffd1000-7ffd2000 r-xp 00000000 00:00 0                          [vdso]",
                Some((0x7ffd_1000, 0x7ffd_2000, 0, "[vdso]".to_owned())),
            ),
            ("7f00-7f10 rw-p 00000000 00:00 0 ", None),
            ("7f00-7f10 r-xp 00000000 00:00 0", Some((0x7f00, 0x7f10, 0, String::new()))),
            ("", None),
            ("x-y r-xp 0 0 0", None),
        ] {
            assert_eq!(read(line), want, "{line}");
        }
    }
}
