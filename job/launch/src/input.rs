//! Passing the launcher's standard input on.
//!
//! One rank gets a file, a device or a pipe directly: nothing is read ahead, so a loop in a shell
//! keeps what the job did not read. A terminal is read here, since only the launcher's process
//! group may read it; and what every rank shall get is read here and written to each.

use std::fs::File;
use std::io::{self, IsTerminal, Read, Seek, SeekFrom, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileTypeExt;
use std::sync::Arc;

use margay_sys_os::descriptor::{PollSet, reopen_for_reading, set_nonblocking};
use margay_sys_os::terminal::is_foreground;

use crate::plan::StdinTo;

/// The most that is read ahead for the slowest rank, besides the pipes' own buffers.
const CHUNK: usize = 64 << 10;

/// Standard input of the ranks, as they inherit it.
#[derive(Debug)]
pub struct Inputs {
    /// One for each rank; none is the launcher's own descriptor 0. Those that get nothing have one
    /// descriptor together, or they would be a fifth of all that a large job needs.
    pub ranks: Vec<Option<Arc<OwnedFd>>>,
    /// What has to be read and written here.
    pub pump: Option<Pump>,
}

/// Reads the launcher's standard input and writes it to some ranks.
#[derive(Debug)]
pub struct Pump {
    input: File,
    terminal: bool,
    targets: Vec<Target>,
    chunk: Vec<u8>,
    ended: bool,
}

#[derive(Debug)]
struct Target {
    rank: u32,
    pipe: File,
    /// Bytes of `chunk` that it has got.
    got: usize,
}

/// The places in a poll set, to be handed back to [`Pump::turn`].
#[derive(Debug, Default)]
pub struct Places {
    input: Option<usize>,
    targets: Vec<Option<usize>>,
}

/// Decides how each rank gets its standard input.
///
/// # Errors
/// When there are no descriptors left.
pub fn inputs(to: StdinTo, ranks: u32) -> io::Result<Inputs> {
    let stdin = io::stdin();
    let null = Arc::new(OwnedFd::from(File::open("/dev/null")?));
    let wants = |rank: u32| match to {
        StdinTo::Rank(r) => r == rank,
        StdinTo::All => true,
        StdinTo::Nobody => false,
    };
    let terminal = stdin.is_terminal();
    let kind = File::from(stdin.as_fd().try_clone_to_owned()?)
        .metadata()?
        .file_type();
    let device = kind.is_char_device() && !terminal;
    let direct = device || (!terminal && (ranks == 1 || matches!(to, StdinTo::Rank(_))));
    let mut list = Vec::new();
    let mut targets = Vec::new();
    for rank in 0..ranks {
        list.push(if !wants(rank) {
            Some(null.clone())
        } else if direct {
            None
        } else if kind.is_file()
            && let Ok(own) = own_opening(&stdin)
        {
            Some(Arc::new(own.into()))
        } else {
            let (reader, writer) = io::pipe()?;
            set_nonblocking(writer.as_fd())?;
            targets.push(Target {
                rank,
                pipe: File::from(OwnedFd::from(writer)),
                got: 0,
            });
            Some(Arc::new(reader.into()))
        });
    }
    let pump = if targets.is_empty() {
        None
    } else {
        Some(Pump {
            input: reopen_for_reading(stdin.as_fd())?,
            terminal,
            targets,
            chunk: Vec::new(),
            ended: false,
        })
    };
    Ok(Inputs { ranks: list, pump })
}

/// Returns a second opening of the regular file that is our standard input, at the same place.
fn own_opening(stdin: &io::Stdin) -> io::Result<File> {
    let place = File::from(stdin.as_fd().try_clone_to_owned()?).stream_position()?;
    let mut file = File::open("/proc/self/fd/0")?;
    file.seek(SeekFrom::Start(place))?;
    Ok(file)
}

impl Pump {
    /// Adds what the pump waits for. Returns the places, and whether it cannot read only because
    /// the terminal belongs to somebody else now, which nothing reports.
    pub fn register(&self, poll: &mut PollSet) -> (Places, bool) {
        let drained = self.targets.iter().all(|t| t.got == self.chunk.len());
        let wants = drained && !self.ended && !self.targets.is_empty();
        let background = wants && self.terminal && !is_foreground(self.input.as_fd());
        let places = Places {
            input: (wants && !background).then(|| poll.add_readable(self.input.as_fd())),
            targets: self
                .targets
                .iter()
                .map(|t| (t.got < self.chunk.len()).then(|| poll.add_writable(t.pipe.as_fd())))
                .collect(),
        };
        (places, background)
    }

    /// Reads and writes what is possible.
    pub fn turn(&mut self, poll: &PollSet, places: &Places) {
        if places.input.is_some_and(|at| poll.ready(at).readable) {
            self.chunk.resize(CHUNK, 0);
            let read = self.input.read(&mut self.chunk);
            self.chunk.truncate(*read.as_ref().unwrap_or(&0));
            for target in &mut self.targets {
                target.got = 0;
            }
            match read {
                Ok(0) => self.ended = true,
                Ok(_) => {}
                Err(error)
                    if matches!(
                        error.kind(),
                        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
                    ) => {}
                Err(_) => self.ended = true,
            }
            self.write(|_| true);
        } else {
            self.write(|i| {
                let place = places.targets.get(i).copied().flatten();
                place.is_some_and(|at| poll.ready(at).writable)
            });
        }
        if self.ended && self.targets.iter().all(|t| t.got == self.chunk.len()) {
            self.targets.clear();
        }
    }

    /// The rank has gone: its input goes nowhere.
    pub fn rank_ended(&mut self, rank: u32) {
        self.targets.retain(|t| t.rank != rank);
    }

    fn write(&mut self, ready: impl Fn(usize) -> bool) {
        let mut index = 0;
        let chunk = &self.chunk;
        self.targets.retain_mut(|target| {
            index += 1;
            if target.got == chunk.len() || !ready(index - 1) {
                return true;
            }
            match target.pipe.write(&chunk[target.got..]) {
                Ok(n) => {
                    target.got += n;
                    true
                }
                // Broken pipe: this rank closed its standard input.
                Err(error) => matches!(
                    error.kind(),
                    io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
                ),
            }
        });
    }
}
