//! Hot spares: directories that wait to take the place of a stripe directory that fails. The
//! registry has them, so that they are there after a restart.

use std::fs;
use std::path::Path;

use crate::registry;

/// Adds a spare. It becomes a stripe directory only when it is used.
///
/// # Errors
/// In words: where it is not empty, or in use.
pub fn add(name: &str, path: &str) -> Result<(), String> {
    let mut known = registry::find(name)?;
    if known.directories.iter().any(|other| other == path) {
        return Err(format!("{path} is a stripe directory of '{name}'"));
    }
    if known.spares.iter().any(|other| other == path) {
        return Err(format!("{path} is a spare of '{name}' already"));
    }
    check(path)?;
    known.spares.push(path.to_owned());
    registry::write(&known)
}

/// Refuses a directory that could not take the place of another one.
///
/// # Errors
/// In words.
pub fn check(path: &str) -> Result<(), String> {
    if registry::elsewhere(path).is_some() {
        // Its host is asked when it is wanted.
        return Ok(());
    }
    let is_new = !Path::new(path).exists();
    if is_new {
        fs::create_dir(path).map_err(|error| format!("cannot make the spare {path}: {error}"))?;
    }
    let entries = fs::read_dir(path).map_err(|error| format!("{path}: {error}"))?;
    let is_used = |name: std::ffi::OsString| name != "lost+found";
    if entries.flatten().any(|entry| is_used(entry.file_name())) {
        return Err(format!(
            "the directory {path} is not empty; name an empty one, or remove what is in it"
        ));
    }
    Ok(())
}

/// Removes a spare from the list.
///
/// # Errors
/// In words: where it is none.
pub fn remove(name: &str, path: &str) -> Result<(), String> {
    let mut known = registry::find(name)?;
    let before = known.spares.len();
    known.spares.retain(|spare| spare != path);
    if known.spares.len() == before {
        return Err(format!("{path} is no spare of '{name}'"));
    }
    registry::write(&known)
}
