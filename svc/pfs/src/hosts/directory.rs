//! A stripe directory on this host of a file system whose service is on another one: it is read and
//! written as that service asks.

use std::collections::VecDeque;
use std::fs;
use std::io::{self, IoSlice};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use margay_fs_stripes::{Disk, Folder, PARTS};
use margay_sys_os::descriptor::PollSet;

use super::disk::{ANSWER, Operation, REQUEST, Request};
use super::door::Bell;
use super::program::Why;
use super::reach::{Opening, Reach};
use super::session::BEFORE;
use super::share::is_over;
use super::wire::message;
use crate::leftovers::PREFIX;
use crate::lock::lock;

/// How long one that is in use is waited for: what had it may just be ending.
const FREE_WITHIN: Duration = Duration::from_secs(6);

/// Between two looks at that.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Threads that read and write.
const THREADS: usize = 6;

/// Requests that may wait for them.
const MOST_REQUESTS: usize = 256;

const EIO: i32 = 5;

/// What threads and the connection have in common.
#[derive(Default)]
struct Work {
    requests: VecDeque<Vec<u8>>,
    answers: Vec<Vec<u8>>,
    is_over: bool,
}

struct Shared {
    folder: Folder,
    work: Mutex<Work>,
    came: Condvar,
    bell: Bell,
}

/// A stripe directory of another host's service.
pub struct Directory {
    reach: Reach,
    shared: Arc<Shared>,
    /// Where it is, if it goes with the service.
    temporary: Option<PathBuf>,
}

impl Directory {
    /// Opens it, or makes it.
    ///
    /// # Errors
    /// In words.
    pub fn begin(mut reach: Reach, path: &Path, how: Opening) -> Result<Directory, Why> {
        let is_new = how == Opening::New;
        let end = Instant::now() + FREE_WITHIN;
        let folder = loop {
            let opened = match is_new {
                true => Folder::create(path),
                false => Folder::open(path),
            };
            let is_in_use = opened.is_err() && Folder::is_in_use(path);
            match opened {
                Ok(folder) => break folder,
                Err(_) if is_in_use && Instant::now() < end => std::thread::sleep(LOOK_EVERY),
                Err(text) => return Err(Why { text, is_in_use }),
            }
        };
        let bell = Bell::new().map_err(|error| format!("{}: {error}", path.display()))?;
        if let Err(text) = reach.begin() {
            if is_new {
                Folder::remove(path);
            }
            return Err(text.into());
        }
        let shared = Arc::new(Shared {
            folder,
            work: Mutex::default(),
            came: Condvar::new(),
            bell,
        });
        Ok(Directory {
            reach,
            shared,
            temporary: (how == Opening::Temporary).then(|| path.to_owned()),
        })
    }

    /// Serves it until the service is gone.
    pub fn run(mut self) {
        // They end with the process: one that a disk holds up is not waited for.
        for _ in 0..THREADS {
            let shared = Arc::clone(&self.shared);
            std::thread::spawn(move || shared.serve());
        }
        let mut poll = PollSet::default();
        while !self.reach.is_over {
            poll.clear();
            poll.add_readable(self.shared.bell.descriptor());
            if lock(&self.shared.work).requests.len() < MOST_REQUESTS {
                self.reach.wire.add_to(&mut poll);
            }
            if poll.wait(Some(self.reach.most_wait())).is_err() {
                break;
            }
            self.shared.bell.silence();
            self.reach.go_on();
            self.hear();
            let answers = std::mem::take(&mut lock(&self.shared.work).answers);
            for answer in answers {
                self.reach.wire.send(answer);
            }
            self.reach.wire.keep_up();
        }
        lock(&self.shared.work).is_over = true;
        self.shared.came.notify_all();
        if let Some(path) = &self.temporary {
            remove(path);
        }
        self.shared.folder.release();
    }

    fn hear(&mut self) {
        while lock(&self.shared.work).requests.len() < MOST_REQUESTS
            && let Some(message) = self.reach.wire.receive()
        {
            if is_over(&message) {
                self.reach.is_over = true;
                return;
            }
            lock(&self.shared.work).requests.push_back(message);
            self.shared.came.notify_one();
        }
    }
}

/// Removes a stripe directory's files, and the directory itself where it was made for a job.
pub fn remove(path: &Path) {
    Folder::remove(path);
    let name = path.file_name().unwrap_or_default();
    if name.as_bytes().starts_with(PREFIX.as_bytes()) {
        // What somebody has put there stays, and the directory with it.
        let _ = fs::remove_dir(path);
    }
}

impl Shared {
    fn serve(&self) {
        let mut work = lock(&self.work);
        while !work.is_over {
            let Some(request) = work.requests.pop_front() else {
                work = (self.came.wait(work)).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            drop(work);
            let answer = self.answer(&request);
            work = lock(&self.work);
            if let Some(answer) = answer {
                work.answers.push(answer);
            }
            self.bell.ring();
        }
    }

    /// Does what is asked; none where no answer is waited for.
    fn answer(&self, request: &[u8]) -> Option<Vec<u8>> {
        let (head, data) = request.get(BEFORE..)?.split_at_checked(REQUEST)?;
        let request = Request::read(head)?;
        let mut bytes = Vec::new();
        let done = self.done(&request, data, &mut bytes);
        if request.operation == Operation::WillNeed {
            return None;
        }
        let (errno, values) = match done {
            Ok(values) => (0, values),
            Err(error) => (error.raw_os_error().unwrap_or(EIO), [0; 2]),
        };
        let mut head = [0; ANSWER];
        head[..8].copy_from_slice(&request.number.to_le_bytes());
        head[8..12].copy_from_slice(&errno.to_le_bytes());
        head[16..24].copy_from_slice(&values[0].to_le_bytes());
        head[24..].copy_from_slice(&values[1].to_le_bytes());
        Some(message(&[&head, &bytes]))
    }

    fn done(&self, request: &Request, data: &[u8], bytes: &mut Vec<u8>) -> io::Result<[u64; 2]> {
        let Request { at, len, .. } = *request;
        let part = *PARTS
            .get(usize::from(request.part))
            .ok_or(io::ErrorKind::InvalidData)?;
        let folder = &self.folder;
        match request.operation {
            Operation::Read => {
                bytes.resize(
                    usize::try_from(len)
                        .unwrap_or(0)
                        .min(super::disk::MOST_BYTES),
                    0,
                );
                let read = folder.read(part, at, bytes)?;
                bytes.truncate(read);
                Ok([read as u64, 0])
            }
            Operation::Write => {
                folder.write(part, at, &[IoSlice::new(data)])?;
                Ok([0; 2])
            }
            Operation::Sync => folder.sync(part).map(|()| [0; 2]),
            Operation::Cut => folder.cut(part, len).map(|()| [0; 2]),
            Operation::Len => Ok([folder.len(part)?, 0]),
            Operation::Punch => folder.punch(part, at, len).map(|()| [0; 2]),
            Operation::Reserve => folder.reserve(part, at, len).map(|()| [0; 2]),
            Operation::Space => {
                let space = folder.space()?;
                Ok([space.total, space.free])
            }
            Operation::IsPresent => Ok([u64::from(folder.is_present()), 0]),
            Operation::WillNeed => {
                folder.will_need(part, at, usize::try_from(len).unwrap_or(0));
                Ok([0; 2])
            }
        }
    }
}
