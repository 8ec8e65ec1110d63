//! A mount on this host of a file system whose service is on another one: the kernel's requests go
//! there, and its answers come back.

use std::fs::{self, DirBuilder, File};
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use margay_sys_os::descriptor::PollSet;
use margay_sys_os::fuse_device;

use super::door::Bell;
use super::reach::Reach;
use super::session::BEFORE;
use super::share::{ASKS_TO_UNMOUNT, IS_IN_USE, IS_OVER, MOST_MESSAGE, sort};
use super::wire::message;
use crate::lock::lock;
use crate::mounts;

/// What a read of the device gives when nothing is mounted any more.
const ENODEV: i32 = 19;

/// How much the kernel may ask at once.
const DEVICE_BUFFER: usize = 1 << 20;

/// A mount on this host.
pub struct Attached {
    reach: Reach,
    path: PathBuf,
    /// None when it is unmounted.
    device: Option<File>,
    /// As lists of mounts name it.
    number: Option<Vec<u8>>,
    /// Directories that were made, the outermost first.
    made: Vec<PathBuf>,
    bell: Arc<Bell>,
    /// Why it could not be unmounted.
    kept: Arc<Mutex<Option<String>>>,
}

impl Attached {
    /// Mounts at `path`, which is made if `is_made`.
    ///
    /// # Errors
    /// In words.
    pub fn begin(mut reach: Reach, path: PathBuf, is_made: bool) -> Result<Attached, String> {
        let shown = path.display().to_string();
        let failed = |error: io::Error| format!("cannot mount at {shown}: {error}");
        let is_root = margay_sys_os::port::user() == 0;
        mounts::is_possible(is_root).map_err(|why| format!("cannot mount at {shown}: {why}"))?;
        // What an earlier program on this host has left.
        mounts::clear_dead_at(&reach.invitation.name, &path)?;
        reach.begin()?;
        let mut attached = Attached {
            bell: Arc::new(Bell::new().map_err(failed)?),
            reach,
            path,
            device: None,
            number: None,
            made: Vec::new(),
            kept: Arc::default(),
        };
        if is_made {
            attached.make().map_err(failed)?;
        }
        let path = &attached.path;
        if !fs::metadata(path).map_err(failed)?.is_dir() {
            return Err(format!("cannot mount at {shown}: it is not a directory"));
        }
        let source = mounts::source(&attached.reach.invitation.name);
        match fuse_device::mount(&source, mounts::SUBTYPE, path) {
            Ok(device) => {
                attached.number = mounts::device_at(path);
                attached.device = Some(device.into());
                Ok(attached)
            }
            Err(error) => {
                attached.remove();
                Err(mounts::refused(&shown, &error, is_root))
            }
        }
    }

    /// Makes the directory, and those above it.
    fn make(&mut self) -> io::Result<()> {
        let missing: Vec<PathBuf> = (self.path.ancestors())
            .take_while(|path| !path.exists())
            .map(Path::to_path_buf)
            .collect();
        for path in missing.into_iter().rev() {
            DirBuilder::new().mode(0o700).create(&path)?;
            self.made.push(path);
        }
        Ok(())
    }

    fn remove(&mut self) {
        for path in self.made.drain(..).rev() {
            // One that is used for something else stays.
            let _ = fs::remove_dir(path);
        }
    }

    /// Serves it until it is unmounted, or the service is gone.
    pub fn run(mut self) {
        let mut poll = PollSet::default();
        let mut buffer = vec![0; DEVICE_BUFFER];
        while let Some(device) = &self.device
            && !self.reach.is_over
        {
            poll.clear();
            poll.add_readable(self.bell.descriptor());
            self.reach.wire.add_to(&mut poll);
            if self.reach.wire.has_room() {
                poll.add_readable(device.as_fd());
            }
            if poll.wait(Some(self.reach.most_wait())).is_err() {
                break;
            }
            self.bell.silence();
            self.reach.go_on();
            self.hear();
            self.ask(&mut buffer);
            self.reach.wire.keep_up();
            if let Some(text) = lock(&self.kept).take() {
                let kind = IS_IN_USE.to_le_bytes();
                self.reach.wire.send(message(&[&kind, text.as_bytes()]));
            }
        }
        self.end();
    }

    /// Says that it is over, and takes the mount away from who uses it still.
    fn end(mut self) {
        if self.device.is_none() {
            self.reach.wire.send(message(&[&IS_OVER.to_le_bytes()]));
            self.reach.wire.finish();
        }
        // Requests that nobody answers any more end with an error when the device is closed.
        self.device = None;
        // Another one may have been mounted there meanwhile.
        if self.number.is_some() && mounts::device_at(&self.path) == self.number {
            let _ = mounts::unmount(&self.path, true);
        }
        self.remove();
    }

    /// Takes what has come from the service.
    fn hear(&mut self) {
        while let Some(message) = self.reach.wire.receive() {
            match sort(&message) {
                ASKS_TO_UNMOUNT => {
                    self.unmount();
                    continue;
                }
                IS_OVER => {
                    self.reach.is_over = true;
                    return;
                }
                _ => {}
            }
            let Some(device) = &mut self.device else {
                return;
            };
            // The kernel refuses the answer of a request that it does not wait for any more.
            let _ = device.write(&message[BEFORE..]);
        }
    }

    /// Sends what the kernel asks.
    fn ask(&mut self, buffer: &mut [u8]) {
        while self.reach.wire.has_room()
            && let Some(device) = &mut self.device
        {
            match device.read(buffer) {
                Ok(len) if len <= MOST_MESSAGE => self.reach.wire.send(message(&[&buffer[..len]])),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                // A request was taken back while it was read.
                Err(error)
                    if matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::NotFound) => {}
                // It is unmounted, and the next mount may get its number.
                Err(error) if error.raw_os_error() == Some(ENODEV) => {
                    self.device = None;
                    self.number = None;
                }
                Ok(_) | Err(_) => self.device = None,
            }
        }
    }

    /// Unmounts in a thread of its own, because the kernel may ask something of the file system for
    /// it.
    fn unmount(&self) {
        let path = self.path.clone();
        let (kept, bell) = (Arc::clone(&self.kept), Arc::clone(&self.bell));
        std::thread::spawn(move || {
            if let Err(text) = mounts::unmount(&path, false) {
                *lock(&kept) = Some(text);
                bell.ring();
            }
        });
    }
}
