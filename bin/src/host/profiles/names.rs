//! Names of addresses of this process, from the symbol tables of the files that are mapped into it.
//!
//! Only the symbol tables are read, not the debugging information, which has hundreds of megabytes. Names are
//! those of functions, so an inlined function counts as its caller.

use std::collections::{BTreeSet, HashMap};
use std::fs::File;
use std::path::Path;

use memmap2::Mmap;
use object::{Object, ObjectSegment, ObjectSymbol, SymbolKind};

/// An executable mapping of a file.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Mapping {
    pub start: usize,
    pub end: usize,
    /// Offset of the mapping in the file.
    pub offset: u64,
    /// Path of the file, or a name in brackets.
    pub file: String,
}

/// Function names of some addresses.
pub struct Names {
    pub mappings: Vec<Mapping>,
    names: HashMap<usize, String>,
}

impl Names {
    /// Looks up the names of these addresses; addresses without a symbol are left out.
    pub fn of(addresses: &BTreeSet<usize>) -> Names {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
        let mappings: Vec<Mapping> = maps.lines().filter_map(mapping).collect();
        let mut names = HashMap::new();
        for mapping in &mappings {
            if addresses.range(mapping.start..mapping.end).next().is_some() {
                // A file that cannot be read contributes no names.
                let _ = add_names(mapping, addresses, &mut names);
            }
        }
        Names { mappings, names }
    }

    /// Returns the function name of an address.
    pub fn name(&self, address: usize) -> Option<&str> {
        self.names.get(&address).map(String::as_str)
    }
}

/// Parses a line of `/proc/self/maps`; `None` if the mapping is not executable (proc_pid_maps(5)).
fn mapping(line: &str) -> Option<Mapping> {
    let mut parts = line.split_ascii_whitespace();
    let (range, permissions, offset) = (parts.next()?, parts.next()?, parts.next()?);
    let (start, end) = range.split_once('-')?;
    let number = |text| usize::from_str_radix(text, 16).ok();
    let file = line.splitn(6, ' ').nth(5).unwrap_or_default().trim();
    let offset = u64::from_str_radix(offset, 16).ok()?;
    let mapping = Mapping { start: number(start)?, end: number(end)?, offset, file: file.to_owned() };
    permissions.contains('x').then_some(mapping)
}

fn add_names(
    mapping: &Mapping,
    addresses: &BTreeSet<usize>,
    names: &mut HashMap<usize, String>,
) -> Option<()> {
    // The program's file may have been replaced under its path.
    let own = std::env::current_exe().ok();
    let is_own = own.is_some_and(|own| Path::new(&mapping.file) == own);
    let path = if is_own { Path::new("/proc/self/exe") } else { Path::new(&mapping.file) };
    if !path.is_absolute() {
        return None;
    }
    let file = File::open(path).ok()?;
    // SAFETY: the file is mapped already, and the process runs its code: truncating it in place breaks the
    // process in any case.
    let bytes = unsafe { Mmap::map(&file) }.ok()?;
    let object = object::File::parse(&*bytes).ok()?;
    // Find the address in the file that the mapping begins with.
    let end = mapping.offset + (mapping.end - mapping.start) as u64;
    let begins = |offset: u64| (mapping.offset..end).contains(&offset);
    let goes_on = |(offset, len)| (offset..offset + len).contains(&mapping.offset);
    // Mappings begin at a page boundary, so the mapping may also contain the end of the previous segment.
    let segment = (object.segments().find(|segment| begins(segment.file_range().0)))
        .or_else(|| object.segments().find(|segment| goes_on(segment.file_range())))?;
    let base = mapping.start as u64 - mapping.offset;
    let bias = base.wrapping_add(segment.file_range().0).wrapping_sub(segment.address());
    for symbol in object.symbols().chain(object.dynamic_symbols()) {
        let begin = symbol.address().wrapping_add(bias);
        let Some(end) = begin.checked_add(symbol.size()) else { continue };
        let (Ok(begin), Ok(end)) = (usize::try_from(begin), usize::try_from(end)) else { continue };
        if symbol.kind() != SymbolKind::Text || begin >= end || begin < mapping.start || end > mapping.end {
            continue;
        }
        for &address in addresses.range(begin..end) {
            if let Ok(name) = symbol.name() {
                // The alternate format leaves out the hash at the end.
                names.entry(address).or_insert_with(|| format!("{:#}", rustc_demangle::demangle(name)));
            }
        }
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_maps_are_read() {
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

    #[test]
    fn functions_of_the_program_and_of_libraries_have_names() {
        let (own, foreign) =
            (lines_of_maps_are_read as *const () as usize, libc::getpid as *const () as usize);
        let names = Names::of(&[own, foreign, 1].into_iter().collect());
        assert!(names.name(own).unwrap().ends_with("::lines_of_maps_are_read"));
        assert!(names.name(foreign).unwrap().ends_with("getpid"));
        assert_eq!(names.name(1), None);
    }
}
