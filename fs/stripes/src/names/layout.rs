//! How files are laid out: what the log says of it, and what a directory says of new files in it.

use margay_core_stripes::{Layout, Over};

use super::Names;
use crate::change::{Change, Shape, kind};

/// The extended attribute of a directory that says how new files in it are laid out: bytes of a
/// unit and units of the file in a row, as decimal numbers; 0 is as the file system has it.
pub const ATTRIBUTE: &[u8] = b"system.margay.stripes";

/// What the log says of the layout of a file; nothing where that is as it was at first.
#[must_use]
pub fn shape(base: &Layout, layout: &Layout) -> Option<Shape> {
    (base != layout).then(|| shape_of(layout))
}

/// The same, as it has to be said.
#[must_use]
pub fn shape_of(layout: &Layout) -> Shape {
    Shape {
        data: layout.data as u32,
        unit: layout.unit_bytes as u32,
        over: layout.over.0,
    }
}

/// The layout that the log says; none where it is impossible.
#[must_use]
pub fn layout(base: &Layout, shape: Shape) -> Option<Layout> {
    let spread = base.spread(Over(shape.over)).ok()?;
    let (unit, data) = (shape.unit as usize, shape.data as usize);
    spread.striped(Some(unit), Some(data)).ok()
}

/// What a directory says, and as it is stored; 0 for what it leaves to the file system.
pub fn encode(unit: usize, data: usize) -> Vec<u8> {
    format!("{unit} {data}").into_bytes()
}

/// What a directory says: bytes of a unit and units in a row.
pub fn decode(value: &[u8]) -> Option<(Option<usize>, Option<usize>)> {
    let (unit, data) = std::str::from_utf8(value).ok()?.split_once(' ')?;
    let number = |text: &str| Some(text.parse().ok().filter(|n: &usize| *n > 0));
    Some((number(unit)?, number(data)?))
}

impl Names {
    /// How new files in a directory are laid out. Where the directory wants wider rows than there
    /// are directories, they are as wide as possible.
    pub fn layout_in(&self, folder: u64) -> Layout {
        let inode = self.get(folder).ok();
        let said = inode.and_then(|inode| decode(inode.attributes.get(ATTRIBUTE)?));
        let Some((unit, data)) = said else {
            return self.current;
        };
        let most = self.current.over.count() - self.current.parity;
        let striped = self.current.striped(unit, data.map(|data| data.min(most)));
        striped.unwrap_or(self.current)
    }

    /// The changes by which a new file or directory is laid out as its directory says.
    pub(super) fn layout_of_new(&self, folder: u64, ino: u64, mode: u32) -> Option<Change> {
        match mode & kind::MASK {
            kind::FILE => {
                let shape = shape(&self.base, &self.layout_in(folder))?;
                Some(Change::Laid(ino, shape, vec![], true))
            }
            kind::FOLDER => {
                let value = self.get(folder).ok()?.attributes.get(ATTRIBUTE)?.clone();
                Some(Change::Attribute(ino, ATTRIBUTE.to_vec(), Some(value)))
            }
            _ => None,
        }
    }
}
