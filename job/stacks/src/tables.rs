//! The tables of a file by which stacks are walked: those that compilers write for exceptions
//! (`.eh_frame`).

use gimli::{
    BaseAddresses, EhFrame, EhFrameHdr, EndianSlice, FrameDescriptionEntry, LittleEndian,
    UnwindSection,
};

use crate::elf::Elf;

/// Bytes of a table.
pub(crate) type Bytes<'a> = EndianSlice<'a, LittleEndian>;

/// The tables of a file.
#[derive(Default)]
pub(crate) struct Tables {
    pub(crate) frames: Vec<u8>,
    index: Vec<u8>,
    pub(crate) bases: BaseAddresses,
}

impl Tables {
    pub(crate) fn of(elf: Option<&Elf>) -> Tables {
        let section = |name| elf.and_then(|elf| elf.section(name)).unwrap_or_default();
        let address = |name| elf.and_then(|elf| elf.address_of(name)).unwrap_or(0);
        Tables {
            frames: section(".eh_frame"),
            index: section(".eh_frame_hdr"),
            bases: BaseAddresses::default()
                .set_eh_frame(address(".eh_frame"))
                .set_eh_frame_hdr(address(".eh_frame_hdr"))
                .set_text(address(".text"))
                .set_got(address(".got")),
        }
    }

    /// What they say of the function at an address of the file.
    pub(crate) fn entry<'a>(
        &'a self,
        section: &EhFrame<Bytes<'a>>,
        address: u64,
    ) -> Option<FrameDescriptionEntry<Bytes<'a>>> {
        let header = EhFrameHdr::new(&self.index, LittleEndian).parse(&self.bases, 8);
        let found = header.ok().and_then(|header| {
            let table = header.table()?;
            let entry =
                table.fde_for_address(section, &self.bases, address, EhFrame::cie_from_offset);
            entry.ok()
        });
        // A static program may have no index.
        found.or_else(|| {
            let entry = section.fde_for_address(&self.bases, address, EhFrame::cie_from_offset);
            entry.ok()
        })
    }
}
