//! How a parallel file system is made, and how it is removed with all that it stores.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use margay_core_stripes::Layout;
use margay_fs_stripes::{Disk, Read, Store, StoreMaking, read_state};
use margay_svc_pfs_options::Reaching;

use crate::disks::{Disks, Others, Refusal};
use crate::registry::{self, Known};
use crate::{OPENED_WITHIN, connect, fuse, spares};

/// Makes a file system, and says how it is mounted.
///
/// # Errors
/// In words.
pub fn create(
    name: &str,
    directories: &[PathBuf],
    layout: Layout,
    spares: &[PathBuf],
    reaching: &Reaching,
) -> Result<(), String> {
    make(
        name,
        directories,
        layout,
        spares,
        Others::new(None, reaching),
    )?;
    if layout.parity == 0 && directories.len() > 1 {
        println!("no parity: the loss of any of the directories is the loss of all data");
    }
    println!("'{name}' is made; mount it with: margay pfs mount {name} DIRECTORY");
    Ok(())
}

/// Makes a file system.
///
/// # Errors
/// In words. Nothing of it is left then.
pub fn make(
    name: &str,
    directories: &[PathBuf],
    layout: Layout,
    spares: &[PathBuf],
    others: Others,
) -> Result<Known, String> {
    registry::check_name(name)?;
    if registry::all()?.iter().any(|there| there == name) {
        return Err(format!(
            "there is a parallel file system '{name}' already; choose another name"
        ));
    }
    let mut paths: Vec<String> = Vec::new();
    for directory in directories {
        let path = registry::directory(directory)?;
        if paths.contains(&path) {
            return Err(format!("the directory {path} is named twice"));
        }
        paths.push(path);
    }
    let mut known = Known {
        name: name.to_owned(),
        id: registry::lot()?,
        directories: paths.clone(),
        spares: Vec::new(),
    };
    for spare in spares {
        let path = registry::directory(spare)?;
        if paths.contains(&path) || known.spares.contains(&path) {
            return Err(format!("the directory {path} is named twice"));
        }
        spares::check(&path)?;
        known.spares.push(path);
    }
    let mut members = Vec::new();
    for path in &paths {
        members.push((path.clone(), registry::lot()?));
    }
    let opener = Disks::new(name, OPENED_WITHIN, others);
    let mut disks: Vec<Arc<dyn Disk>> = Vec::new();
    let mut made = Ok(());
    for path in &paths {
        match opener.create(path) {
            Ok(disk) => disks.push(disk),
            Err(text) => {
                made = Err(text);
                break;
            }
        }
    }
    let begun = disks.len();
    let made = made.and_then(|()| {
        let making = StoreMaking {
            name: name.to_owned(),
            layout,
            members,
            id: known.id,
            uid: margay_sys_os::port::user(),
            gid: group(&paths),
        };
        Store::create(&making, disks, Arc::new(fuse::now)).map(drop)
    });
    if let Err(text) = made.and_then(|()| registry::write(&known)) {
        for path in &paths[..begun] {
            opener.remove(path);
        }
        return Err(text);
    }
    Ok(known)
}

/// The group of the files that this user makes in the first directory of this host.
fn group(paths: &[String]) -> u32 {
    let mut own = paths
        .iter()
        .filter(|path| registry::elsewhere(path).is_none());
    let file = own
        .next()
        .map(|path| Path::new(path).join(margay_fs_stripes::Part::Data.name()));
    let facts = file.and_then(|file| fs::metadata(file).ok());
    facts.map_or_else(margay_sys_os::port::group, |facts| facts.gid())
}

/// Removes a file system with all that it stores, when the user `is_sure`. What is at the place of
/// a stripe directory now and belongs to something else stays.
///
/// # Errors
/// In words. It is known as before then, and may be removed again.
pub fn remove(known: &Known, is_sure: bool, reaching: &Reaching) -> Result<(), String> {
    let name = &known.name;
    if connect(known)?.is_some() {
        return Err(format!(
            "the service of '{name}' runs; end it first: margay pfs stop {name}"
        ));
    }
    if !is_sure {
        return Err(format!(
            "all files of '{name}' would be lost, in {}; if that is wanted, say: margay pfs remove {name} --yes",
            known.directories.join(", ")
        ));
    }
    let opener = Disks::new(name, OPENED_WITHIN, Others::new(None, reaching));
    let mut own = Vec::new();
    for path in &known.directories {
        match opener.open(path) {
            Ok(disk) => match read_state(&*disk) {
                Ok(Read::State(found)) if found.state.id != known.id => println!(
                    "{path} is a stripe directory of another file system: it stays as it is"
                ),
                Ok(_) => own.push((path, disk)),
                Err(error) => return Err(format!("cannot read {path}: {error}")),
            },
            Err(Refusal::InUse(text)) => return Err(text),
            Err(Refusal::Unusable(text)) => println!("{text}: nothing is removed there"),
        }
    }
    for (path, disk) in own {
        drop(disk);
        opener.remove(path);
    }
    for kind in ["sock", "log", "new", "pfs"] {
        let path = registry::beside(name, kind)?;
        match fs::remove_file(&path) {
            Err(error) if path.exists() => {
                return Err(format!("cannot remove {}: {error}", path.display()));
            }
            _ => {}
        }
    }
    println!("'{name}' is removed");
    Ok(())
}
