//! Files and links as they are put in their places: by a rename, so that who uses the old one keeps
//! it.

use std::cell::RefCell;
use std::collections::HashSet;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

thread_local! {
    /// What this thread has put in its place.
    static PLACES: RefCell<HashSet<PathBuf>> = RefCell::default();
}

/// Copies a folder with its modes and links.
///
/// # Errors
/// When a file cannot be read or written.
pub(crate) fn copy_folder(from: &Path, to: &Path) -> Result<()> {
    for entry in
        fs::read_dir(from).with_context(|| format!("{}: cannot be read", from.display()))?
    {
        let entry = entry?;
        let (source, target) = (entry.path(), to.join(entry.file_name()));
        let kind = entry.file_type()?;
        if kind.is_dir() {
            copy_folder(&source, &target)?;
        } else if kind.is_symlink() {
            let points_at = fs::read_link(&source)?;
            relink(
                points_at.to_str().context("a link that is not text")?,
                &target,
            )?;
        } else {
            copy(
                &source,
                &target,
                entry.metadata()?.permissions().mode() & 0o777,
            )?;
        }
    }
    Ok(())
}

/// Copies a file.
///
/// # Errors
/// When it cannot be read or written.
pub(crate) fn copy(from: &Path, to: &Path, mode: u32) -> Result<()> {
    let bytes = fs::read(from).with_context(|| format!("{}: cannot be read", from.display()))?;
    put(&bytes, to, mode)
}

/// Writes a file beside its place and renames it; leaves a file with the same bytes and mode as it
/// is.
///
/// # Errors
/// When it cannot be written.
pub(crate) fn put(bytes: &[u8], to: &Path, mode: u32) -> Result<()> {
    PLACES.with_borrow_mut(|all| all.insert(to.to_path_buf()));
    let same_mode = |file: &fs::Metadata| file.permissions().mode() & 0o777 == mode;
    if fs::symlink_metadata(to).is_ok_and(|file| file.is_file() && same_mode(&file))
        && fs::read(to)? == bytes
    {
        return Ok(());
    }
    let partial = partial(to)?;
    fs::write(&partial, bytes)
        .and_then(|()| fs::set_permissions(&partial, fs::Permissions::from_mode(mode)))
        .and_then(|()| fs::rename(&partial, to))
        .with_context(|| format!("{}: cannot be written", to.display()))
}

/// Makes a symbolic link, or lets it point elsewhere.
///
/// # Errors
/// When it cannot be written.
pub(crate) fn relink(target: &str, link: &Path) -> Result<()> {
    PLACES.with_borrow_mut(|all| all.insert(link.to_path_buf()));
    if fs::read_link(link).is_ok_and(|old| old == Path::new(target)) {
        return Ok(());
    }
    let partial = partial(link)?;
    symlink(target, &partial)
        .and_then(|()| fs::rename(&partial, link))
        .with_context(|| format!("{}: cannot be written", link.display()))
}

/// Removes the files and links below `folder` that this thread has not put there, but those that
/// `stays` names: what an older build left.
///
/// # Errors
/// When the folder cannot be read or a file cannot be removed.
pub(crate) fn prune(folder: &Path, stays: &dyn Fn(&Path) -> bool) -> Result<()> {
    for entry in
        fs::read_dir(folder).with_context(|| format!("{}: cannot be read", folder.display()))?
    {
        let entry = entry?;
        let path = entry.path();
        if entry.file_type()?.is_dir() {
            prune(&path, stays)?;
            // Of use only when it is empty now.
            let _ = fs::remove_dir(&path);
        } else if !stays(&path) && !PLACES.with_borrow(|all| all.contains(&path)) {
            fs::remove_file(&path)
                .with_context(|| format!("{}: cannot be removed", path.display()))?;
        }
    }
    Ok(())
}

/// A free name beside `path`, in a folder that exists.
fn partial(path: &Path) -> Result<PathBuf> {
    let folder = path.parent().context("a path without a folder")?;
    fs::create_dir_all(folder).with_context(|| format!("{}: cannot be made", folder.display()))?;
    let mut name = path
        .file_name()
        .context("a path without a name")?
        .to_owned();
    name.push(format!(".partial{}", std::process::id()));
    let partial = folder.join(name);
    if fs::symlink_metadata(&partial).is_ok() {
        fs::remove_file(&partial)?;
    }
    Ok(partial)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_put_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::create_dir_all(at("old/deep")).unwrap();
        for name in ["old/deep/file", "old/kept", "stale"] {
            fs::write(at(name), "an older build's").unwrap();
        }
        put(b"new", &at("lib/new"), 0o644).unwrap();
        relink("new", &at("lib/link")).unwrap();
        prune(folder.path(), &|path| path.ends_with("kept")).unwrap();
        assert!(at("lib/new").exists() && at("lib/link").exists() && at("old/kept").exists());
        assert!(!at("stale").exists() && !at("old/deep").exists());
    }
}
