//! Functions and lines of addresses in files, for those who know which file an address is in.

use std::collections::HashMap;
use std::fs::{self, File};

use crate::elf::Elf;
use crate::maps::Module;
use crate::{Frame, lines};

/// Files that were asked about; each is opened once.
#[derive(Default)]
pub struct Places {
    modules: HashMap<String, Module>,
}

impl Places {
    /// Returns the function at a distance from where the loader maps a file; none where the file
    /// has no instructions there.
    pub fn find_mapped(&mut self, path: &str, offset: u64) -> Option<Frame> {
        let elf = self.module(path).elf.as_ref()?;
        let address = elf.lowest().wrapping_add(offset);
        elf.has_code(address).then_some(())?;
        self.find(path, address)
    }

    fn module(&mut self, path: &str) -> &Module {
        self.modules.entry(path.to_owned()).or_insert_with(|| {
            // Opening a pipe would wait.
            let is_file = fs::metadata(path).is_ok_and(|facts| facts.is_file());
            let file = is_file.then(|| File::open(path).ok()).flatten();
            Module::new(path, String::new(), file.and_then(Elf::open))
        })
    }

    /// Returns the function at an address of a file, as the file counts addresses: the innermost
    /// one where functions were inlined into each other. None when there is no such file.
    pub fn find(&mut self, path: &str, address: u64) -> Option<Frame> {
        let module = self.module(path);
        module.elf.as_ref()?;
        let mut found = lines::frames(module, &[address]);
        found.remove(&address)?.into_iter().next()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_of_this_program_is_found_by_its_address() {
        let program = std::env::current_exe().unwrap();
        let path = program.to_str().unwrap();
        let elf = Elf::open(File::open(path).unwrap()).unwrap();
        let begin = elf.address_of(".text").unwrap();
        let mut places = Places::default();
        let frame = places.find(path, begin).unwrap();
        assert_eq!((frame.module.as_str(), frame.offset), (path, begin));
        assert_eq!(places.find("/does/not/exist", begin), None);
        let mapped = begin - elf.lowest();
        assert_eq!(places.find_mapped(path, mapped), Some(frame));
        assert_eq!(places.find_mapped(path, 0), None);
        assert_eq!(places.find_mapped(path, 1 << 40), None);
    }
}
