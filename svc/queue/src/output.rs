//! The files into which a job writes.

use std::fs::File;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use margay_svc_queue_wire::Bytes;

use crate::files::JobOrder;

/// `O_NONBLOCK`: to open a pipe that nobody reads is an error then, and not a wait.
pub const NONBLOCK: i32 = 0o4000;

/// Opens the files of output and of standard error.
///
/// # Errors
/// In words.
pub fn files(order: &JobOrder) -> Result<[File; 2], String> {
    let path = file_of(order, &order.stdout, 0);
    let stdout = open(order, &path)?;
    let other = order.stderr.as_ref();
    let other = other.map(|other| file_of(order, other, 1));
    let stderr = match other.filter(|other| *other != path) {
        Some(path) => open(order, &path)?,
        None => stdout
            .try_clone()
            .map_err(|error| format!("cannot duplicate its output: {error}"))?,
    };
    Ok([stdout, stderr])
}

/// The first or second file of output: where its path is a folder, one of the usual name in it.
fn file_of(order: &JobOrder, path: &Bytes, which: usize) -> PathBuf {
    let mut path = Path::new(&order.directory.0).join(&path.0);
    if path.is_dir() {
        path.push(&order.names[which]);
    } else if !path.exists() || path.is_file() {
        // Not behind the name of a device.
        path.as_mut_os_string().push(&order.endings[which]);
    }
    path
}

fn open(order: &JobOrder, path: &Path) -> Result<File, String> {
    File::options()
        .append(order.is_append)
        .write(true)
        .truncate(!order.is_append)
        .create(true)
        .custom_flags(NONBLOCK)
        .open(path)
        .map_err(|error| {
            let folder = path.parent().filter(|folder| !folder.exists());
            let remedy = folder.map(|folder| {
                format!(
                    "; make the folder before the job begins: mkdir -p {}",
                    folder.display()
                )
            });
            let remedy = remedy.unwrap_or_default();
            format!(
                "cannot open the output file {}: {error}{remedy}",
                path.display()
            )
        })
}
