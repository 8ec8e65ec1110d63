//! `margay pfs stripe`: how files are laid out, through the mount.

use std::io::ErrorKind;
use std::path::Path;

use margay_sys_os::file::{attribute_of, set_attribute_of};

use crate::fuse::LAYOUT;

/// Longest value of the attribute.
const MOST: usize = 32;

/// Sets how a file is laid out, where `to` says that, and shows it.
///
/// # Errors
/// In words.
pub fn run(path: &Path, to: Option<(Option<usize>, Option<usize>)>) -> Result<(), String> {
    let shown = path.display();
    let mut found = attribute_of(path, LAYOUT, MOST).map_err(|error| {
        let why = match error.kind() {
            ErrorKind::NotFound => "it is not there".to_owned(),
            ErrorKind::PermissionDenied | ErrorKind::OutOfMemory => error.to_string(),
            _ => "it is not in a mounted parallel file system of Margay, or neither file nor \
                  directory; mount it: margay pfs mount NAME DIRECTORY"
                .to_owned(),
        };
        format!("cannot tell how {shown} is striped: {why}")
    })?;
    if let Some((unit, factor)) = to {
        let value = format!("{} {}", unit.unwrap_or(0), factor.unwrap_or(0));
        set_attribute_of(path, LAYOUT, value.as_bytes()).map_err(|error| {
            let why = match error.kind() {
                ErrorKind::AlreadyExists => {
                    "it has been written; stripes are those of an empty file: set them of a \
                     directory, and copy the file there"
                        .to_owned()
                }
                ErrorKind::InvalidInput => format!(
                    "the unit is from 64K to that of the file system (--unit of `margay pfs \
                     create`), the factor at most its directories without parity; now they are {}",
                    String::from_utf8_lossy(&found)
                ),
                ErrorKind::PermissionDenied => "only its owner may do that".to_owned(),
                _ => error.to_string(),
            };
            format!("cannot stripe {shown}: {why}")
        })?;
        found = attribute_of(path, LAYOUT, MOST)
            .map_err(|error| format!("cannot tell how {shown} is striped: {error}"))?;
    }
    let text = String::from_utf8_lossy(&found);
    let (unit, factor) = text.split_once(' ').unwrap_or((&text, "1"));
    println!("{shown}: stripe unit {unit}, {factor} in a row");
    Ok(())
}
