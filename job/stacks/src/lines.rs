//! Functions, files and lines of addresses in a file.

use std::collections::HashMap;

use addr2line::Context;
use gimli::{Dwarf, EndianSlice, LittleEndian, SectionId};

use crate::Frame;
use crate::elf::Elf;
use crate::maps::Module;
use crate::names::plain;

/// Debug information that is larger is not read.
const MOST_BYTES: usize = 1 << 30;
/// Functions that were inlined into each other at one address.
const MOST_INLINED: usize = 32;

/// Returns the functions at each of `addresses` of a file, those that were inlined first.
pub(crate) fn frames(module: &Module, addresses: &[u64]) -> HashMap<u64, Vec<Frame>> {
    let plain_frame = |address: u64| Frame {
        function: String::new(),
        file: None,
        line: None,
        module: module.path.clone(),
        offset: address,
        is_python: false,
    };
    let mut found: HashMap<u64, Vec<Frame>> =
        (addresses.iter().map(|&at| (at, vec![plain_frame(at)]))).collect();
    let Some(elf) = &module.elf else {
        return found;
    };
    // Of the libraries that programs stand on names are enough, and those are many.
    let separate = match elf.has(".debug_info") || crate::is_library(&module.path) {
        true => None,
        false => elf.debug_file(&module.root, &module.path),
    };
    let of_names = [Some(elf), separate.as_ref()];
    for symbols in of_names.into_iter().flatten().filter_map(Elf::symbols) {
        for (&address, frames) in &mut found {
            if let Some(name) = symbols.function(address) {
                frames[0].function = plain(&name, false);
            }
        }
    }
    if !crate::is_library(&module.path) {
        with_lines(separate.as_ref().unwrap_or(elf), &mut found);
    }
    found
}

fn with_lines(elf: &Elf, found: &mut HashMap<u64, Vec<Frame>>) -> Option<()> {
    const WANTED: [SectionId; 10] = [
        SectionId::DebugAbbrev,
        SectionId::DebugAddr,
        SectionId::DebugAranges,
        SectionId::DebugInfo,
        SectionId::DebugLine,
        SectionId::DebugLineStr,
        SectionId::DebugRanges,
        SectionId::DebugRngLists,
        SectionId::DebugStr,
        SectionId::DebugStrOffsets,
    ];
    if !elf.has(".debug_info") {
        return None;
    }
    let mut sections: Vec<(SectionId, Vec<u8>)> = Vec::new();
    let mut total = 0;
    for id in WANTED {
        let bytes = elf.section(id.name()).unwrap_or_default();
        total += bytes.len();
        if total > MOST_BYTES {
            return None;
        }
        sections.push((id, bytes));
    }
    let load = |id: SectionId| {
        let bytes = sections.iter().find(|(own, _)| *own == id);
        let bytes = bytes.map_or(&[][..], |(_, bytes)| bytes);
        Ok::<_, gimli::Error>(EndianSlice::new(bytes, LittleEndian))
    };
    let context = Context::from_dwarf(Dwarf::load(load).ok()?).ok()?;
    for (&address, frames) in found.iter_mut() {
        if let Some(better) = at(&context, address, &frames[0]) {
            *frames = better;
        }
    }
    Some(())
}

fn at(
    context: &Context<EndianSlice<LittleEndian>>,
    address: u64,
    known: &Frame,
) -> Option<Vec<Frame>> {
    let mut iter = context.find_frames(address).skip_all_loads().ok()?;
    let mut frames = Vec::new();
    while let Ok(Some(frame)) = iter.next()
        && frames.len() < MOST_INLINED
    {
        let name = frame.function.as_ref().and_then(|function| {
            let is_fortran = function.language.is_some_and(|language| {
                matches!(
                    language,
                    gimli::DW_LANG_Fortran77
                        | gimli::DW_LANG_Fortran90
                        | gimli::DW_LANG_Fortran95
                        | gimli::DW_LANG_Fortran03
                        | gimli::DW_LANG_Fortran08
                        | gimli::DW_LANG_Fortran18
                )
            });
            Some(plain(&function.raw_name().ok()?, is_fortran))
        });
        let location = frame.location.as_ref();
        frames.push(Frame {
            function: name.unwrap_or_else(|| known.function.clone()),
            file: location.and_then(|l| l.file).map(str::to_owned),
            line: location.and_then(|l| l.line).filter(|&line| line != 0),
            ..known.clone()
        });
    }
    let has_line = frames.iter().any(|frame| frame.line.is_some());
    has_line.then_some(frames)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tables::Tables;

    #[test]
    fn damaged_debug_information_is_no_reason_to_panic() {
        let whole = std::fs::read("/proc/self/exe").unwrap();
        let elf = Elf::of_bytes(whole.clone()).unwrap();
        let addresses: Vec<u64> = (0..64)
            .map(|n| elf.address_of(".text").unwrap() + n * 1009)
            .collect();
        let module = |elf: Option<Elf>| Module {
            path: "program".into(),
            root: String::new(),
            tables: Tables::of(elf.as_ref()),
            python: None,
            elf,
        };
        let lines = |bytes: Vec<u8>| {
            let found = frames(&module(Elf::of_bytes(bytes)), &addresses);
            found.values().filter(|f| f[0].line.is_some()).count()
        };
        assert!(lines(whole.clone()) > 0, "tests have lines");
        let debug = [
            ".debug_info",
            ".debug_abbrev",
            ".debug_line",
            ".debug_ranges",
        ];
        let places: Vec<(usize, usize)> = debug
            .iter()
            .filter_map(|name| elf.section(name))
            .filter_map(|bytes| {
                let head = bytes.get(..64)?;
                let at = whole.windows(64).position(|part| part == head)?;
                Some((at, bytes.len()))
            })
            .collect();
        let mut random = fastrand::Rng::with_seed(7);
        for _ in 0..12 {
            let mut damaged = whole.clone();
            for &(at, len) in &places {
                for _ in 0..40 {
                    // The first units are those that are looked up.
                    let scale = random.u32(6..20);
                    let within = random.usize(..len.min(1 << scale));
                    damaged[at + within] = random.u8(..);
                }
            }
            let _ = lines(damaged);
        }
    }
}
