//! Names of addresses of this process, from the symbol tables of the files that are mapped into it.
//!
//! Only the symbol tables are read, because the debugging information has hundreds of megabytes. Symbol
//! tables do not have inlined functions, so the code of an inlined function has the name of its caller.

use std::collections::{BTreeSet, HashMap};
use std::fs::File;

use memmap2::Mmap;
use object::{Object, ObjectSegment, ObjectSymbol, SymbolKind};

use crate::host::platform::mappings::{self, FileMapping};

/// Function names of some addresses.
pub struct Names {
    pub mappings: Vec<FileMapping>,
    names: HashMap<usize, String>,
}

impl Names {
    /// Looks up the names of these addresses. Addresses without a symbol are left out.
    pub fn for_addresses(addresses: &BTreeSet<usize>) -> Names {
        let mappings = mappings::executable();
        let mut names = HashMap::new();
        for mapping in &mappings {
            if addresses.range(mapping.start..mapping.end).next().is_some() {
                // If a file cannot be read, its addresses have no names.
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

fn add_names(
    mapping: &FileMapping,
    addresses: &BTreeSet<usize>,
    names: &mut HashMap<usize, String>,
) -> Option<()> {
    let path = mappings::readable_path(mapping);
    if !path.is_absolute() {
        return None;
    }
    let file = File::open(path).ok()?;
    // SAFETY: the process already runs the mapped code of this file. So if another process truncates the
    // file, this process fails even without this second mapping.
    let bytes = unsafe { Mmap::map(&file) }.ok()?;
    let object = object::File::parse(&*bytes).ok()?;
    // Find the virtual address in the file at which the mapping begins.
    let end = mapping.offset + (mapping.end - mapping.start) as u64;
    let begins = |offset: u64| (mapping.offset..end).contains(&offset);
    let goes_on = |(offset, len)| (offset..offset + len).contains(&mapping.offset);
    // A mapping begins at a page boundary, so it may also contain the end of the previous segment.
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
                // The alternate format omits the hash at the end of a name.
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
    fn functions_of_the_program_and_of_libraries_have_names() {
        let (own, foreign) = (
            functions_of_the_program_and_of_libraries_have_names as *const () as usize,
            libc::getpid as *const () as usize,
        );
        let names = Names::for_addresses(&[own, foreign, 1].into_iter().collect());
        assert!(names.name(own).unwrap().ends_with("::functions_of_the_program_and_of_libraries_have_names"));
        assert!(names.name(foreign).unwrap().ends_with("getpid"));
        assert_eq!(names.name(1), None);
    }
}
