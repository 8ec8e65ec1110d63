//! Where the output of ranks comes from and goes: their pipes, as streams, and the launcher's own
//! output and files, as sinks.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime};

use margay_sys_os::descriptor::{Outlet, set_nonblocking, set_pipe_bytes};

use crate::output::{Labels, Merger, StreamId};
use crate::plan::{Job, Output, StdinTo};

/// A part of a line is shown after this silence, on a terminal and elsewhere.
const PROMPT_TERMINAL: Duration = Duration::from_millis(50);
const PROMPT_PIPE: Duration = Duration::from_millis(500);
/// Pipe buffers: large for few ranks, the kernel's own size for many.
const PIPE_BYTES: usize = 256 << 10;
const MANY_RANKS: u32 = 32;

/// Where output of ranks goes.
pub(crate) struct Sink {
    pub(crate) merger: Merger,
    pub(crate) outlet: Outlet,
    pub(crate) closed: bool,
    /// This is (also) standard output.
    pub(crate) is_output: bool,
    /// The file of ranks that this is; none for the launcher's own output.
    pub(crate) file: Option<PathBuf>,
}

impl Sink {
    /// Takes what a stream delivered, unless nobody takes the sink's bytes any more.
    pub(crate) fn push(&mut self, stream: StreamId, bytes: &[u8]) {
        if !self.closed {
            self.merger.push(stream, bytes, Instant::now());
        }
    }
}

/// The launcher's end of a pipe with output of a rank.
pub(crate) struct Stream {
    /// None after its end.
    pub(crate) pipe: Option<File>,
    pub(crate) rank: u32,
    pub(crate) sink: usize,
    pub(crate) id: StreamId,
    /// Another sink that gets the same.
    pub(crate) copy: Option<(usize, StreamId)>,
    /// Standard output, where it is distinguished from standard error.
    pub(crate) is_output: bool,
    /// The rank has ended: read what is there without waiting, then flush its last line.
    pub(crate) flush: bool,
}

/// Returns what stands before each line of the ranks.
pub(crate) fn labels(job: &Job) -> Labels {
    let now = || (Instant::now(), SystemTime::now());
    Labels {
        rank: job.label,
        time: job.capture.timestamps.then(now),
    }
}

/// Returns the launcher's standard output and error: one sink when they are the same file, so that
/// their lines are not mixed, else two.
pub(crate) fn sinks(job: &Job) -> io::Result<Vec<Sink>> {
    let (out, err) = (io::stdout(), io::stderr());
    let same = are_same(out.as_fd(), err.as_fd())?;
    let sink = |outlet: Outlet, is_output: bool| Sink {
        merger: Merger::new(labels(job)),
        outlet,
        closed: false,
        is_output,
        file: None,
    };
    let mut sinks = vec![sink(Outlet::new(out.as_fd())?, true)];
    if !same {
        sinks.push(sink(Outlet::new(err.as_fd())?, false));
    }
    Ok(sinks)
}

/// Whether two descriptors are of the same file.
fn are_same(a: BorrowedFd<'_>, b: BorrowedFd<'_>) -> io::Result<bool> {
    let identity = |fd: BorrowedFd<'_>| -> io::Result<(u64, u64)> {
        let m = File::from(fd.try_clone_to_owned()?).metadata()?;
        Ok((m.dev(), m.ino()))
    };
    Ok(identity(a)? == identity(b)?)
}

/// A rank's ends of its standard output and error.
pub(crate) type RankOutput = [OwnedFd; 2];

/// Whether both go through one pipe.
pub(crate) fn is_one_pipe([output, error]: &RankOutput) -> io::Result<bool> {
    are_same(output.as_fd(), error.as_fd())
}

/// Returns the pipes of all ranks: our ends as streams of the sinks, and the ranks' ends.
pub(crate) fn streams(
    job: &Job,
    ranks: u32,
    sinks: &mut [Sink],
    captured: &[[Option<usize>; 2]],
) -> io::Result<(Vec<Stream>, Vec<RankOutput>)> {
    let mut streams = Vec::new();
    let mut outputs = Vec::new();
    let error_sink = sinks.iter().rposition(|sink| sink.file.is_none());
    let error_sink = error_sink.unwrap_or_default();
    let terminals: Vec<bool> = sinks
        .iter()
        .map(|s| std::io::IsTerminal::is_terminal(&s.outlet.as_fd()))
        .collect();
    let files: Vec<bool> = sinks
        .iter()
        .map(|s| {
            let own = s.outlet.as_fd().try_clone_to_owned();
            own.and_then(|fd| File::from(fd).metadata())
                .is_ok_and(|m| m.is_file())
        })
        .collect();
    let prompts = |rank: u32, sink: usize| {
        let answered = match job.stdin {
            StdinTo::Rank(r) => r == rank,
            StdinTo::All => true,
            StdinTo::Nobody => false,
        };
        match (terminals[sink], files[sink]) {
            (true, _) => Some(PROMPT_TERMINAL),
            (_, false) if answered => Some(PROMPT_PIPE),
            _ => None,
        }
    };
    // A rank's output goes to its file, and to `sink` when there is no file or a copy is wanted.
    let copies = job.capture.copies;
    let mut stream = |rank: u32,
                      sink: Option<usize>,
                      file: Option<usize>,
                      is_output: bool|
     -> io::Result<OwnedFd> {
        let (sink, copy) = match (sink, file) {
            (Some(sink), Some(file)) if copies => (sink, Some(file)),
            (Some(sink), None) => (sink, None),
            (_, Some(file)) => (file, None),
            (None, None) => return Ok(File::options().write(true).open("/dev/null")?.into()),
        };
        let (reader, writer) = io::pipe()?;
        if ranks <= MANY_RANKS {
            set_pipe_bytes(writer.as_fd(), PIPE_BYTES);
        }
        set_nonblocking(reader.as_fd())?;
        streams.push(Stream {
            pipe: Some(File::from(OwnedFd::from(reader))),
            rank,
            sink,
            id: sinks[sink].merger.add(rank, prompts(rank, sink)),
            copy: copy.map(|file| (file, sinks[file].merger.add(rank, None))),
            is_output: is_output && sinks[sink].is_output,
            flush: false,
        });
        Ok(writer.into())
    };
    for rank in 0..ranks {
        let shown = match job.output {
            Output::Rank(r) => r == rank,
            _ => true,
        };
        let [output_file, error_file] = captured[rank as usize];
        let output = stream(rank, shown.then_some(0), output_file, true)?;
        let alone = ranks == 1 && error_sink == 0 && output_file == error_file;
        let error = if alone || job.capture.merges {
            // Both go to the same place: one pipe keeps the order of its writes.
            output.try_clone()?
        } else {
            stream(rank, Some(error_sink), error_file, false)?
        };
        outputs.push([output, error]);
    }
    Ok((streams, outputs))
}
