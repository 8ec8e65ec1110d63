//! Where the records of a job go: into a file, to the host of the launcher, into memory for the
//! profile.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use crate::format::{Head, Place, SiteInfo, ThreadRecords, Trace, Writer};

/// What is made of a job.
pub struct Wanted {
    pub output: Output,
    /// The trace stays in memory, for the profile.
    pub keeps: bool,
}

/// What is written.
pub enum Output {
    /// Only the profile is wanted.
    Nothing,
    /// A trace.
    File(PathBuf),
    /// To standard output, what this host adds to a trace of several.
    Part,
}

/// The trace of a job while it comes.
pub struct Sink {
    output: Output,
    writer: Option<Writer<BufWriter<Box<dyn Write>>>>,
    failed: Option<String>,
    kept: Option<Trace>,
    records: u64,
    lost: u64,
}

/// What is known of a trace at its end. Call sites are in the order of their numbers, from 1 on.
pub struct End {
    pub sites: Vec<SiteInfo>,
    pub sources: Vec<(String, String)>,
    pub end_ns: u64,
}

impl Sink {
    /// Begins a trace.
    ///
    /// # Errors
    /// In words, when it cannot be written.
    pub fn new(wanted: Wanted, head: Head) -> Result<Sink, String> {
        let to: Option<Box<dyn Write>> = match &wanted.output {
            Output::Nothing => None,
            Output::File(path) => Some(Box::new(create(path).map_err(|e| failed(path, &e))?)),
            Output::Part => Some(Box::new(io::stdout())),
        };
        let writer = to.map(|to| Writer::new(BufWriter::with_capacity(1 << 20, to), &head));
        let writer = writer.transpose().map_err(|error| match &wanted.output {
            Output::File(path) => failed(path, &error),
            _ => error.to_string(),
        })?;
        Ok(Sink {
            writer,
            output: wanted.output,
            failed: None,
            kept: wanted.keeps.then(|| Trace {
                head,
                ..Trace::default()
            }),
            records: 0,
            lost: 0,
        })
    }

    /// Writes a call site, of which the line is not known yet.
    pub fn place(&mut self, number: u16, place: &Place) {
        let is_part = matches!(self.output, Output::Part);
        self.write(|writer| match is_part {
            true => writer.place(number, place),
            false => {
                let info = SiteInfo {
                    call: place.call.clone(),
                    module: place.module.clone(),
                    ..SiteInfo::default()
                };
                writer.site(number, &info)
            }
        });
    }

    /// Says where a rank runs, of a job on several hosts.
    pub fn rank(&mut self, rank: u32, host: &str) {
        self.write(|writer| writer.rank(rank, host));
        if let Some(kept) = &mut self.kept {
            kept.hosts.insert(rank, host.to_owned());
        }
    }

    /// Writes records, and keeps them for the profile.
    pub fn records(&mut self, of: ThreadRecords) {
        self.lost += of.lost;
        self.records += of.records.len() as u64;
        self.write(|writer| writer.records(&of));
        if let Some(kept) = &mut self.kept {
            let known =
                (kept.threads.iter_mut()).find(|t| (t.rank, t.thread) == (of.rank, of.thread));
            match known {
                Some(known) => {
                    known.records.extend(of.records);
                    known.lost += of.lost;
                }
                None => kept.threads.push(of),
            }
        }
    }

    /// What has been written can be read.
    pub fn flush(&mut self) {
        self.write(Writer::flush);
    }

    fn write(
        &mut self,
        write: impl FnOnce(&mut Writer<BufWriter<Box<dyn Write>>>) -> io::Result<()>,
    ) {
        if let Some(writer) = &mut self.writer
            && let Err(error) = write(writer)
        {
            self.fail(&error);
        }
    }

    fn fail(&mut self, error: &io::Error) {
        self.failed = Some(error.to_string());
        self.writer = None;
    }

    /// Ends the trace. `notes` are for the user. Returns it, if it is kept.
    pub fn finish(
        mut self,
        end: End,
        notes: &[String],
        say: &mut dyn FnMut(&str),
    ) -> Option<Trace> {
        let is_part = matches!(self.output, Output::Part);
        for (site, number) in end.sites.iter().zip(1..) {
            self.write(|writer| writer.site(number, site));
        }
        for (file, text) in &end.sources {
            self.write(|writer| writer.source(file, text));
        }
        if is_part {
            for note in notes {
                self.write(|writer| writer.note(note));
            }
        }
        if let Some(writer) = self.writer.take()
            && let Err(error) = writer.end(end.end_ns)
        {
            self.fail(&error);
        }
        if is_part {
            // All of this is for the user of the launcher.
            return None;
        }
        if let Output::File(path) = &self.output {
            let path = path.display();
            match &self.failed {
                Some(why) => say(&format!(
                    "the trace {path} is incomplete: {why}; the program was not held up"
                )),
                None => say(&format!("trace: {} records in {path}", self.records)),
            }
        }
        if self.lost != 0 {
            say(&format!(
                "{} records were overwritten before they could be written to the trace; MARGAY_RECORD=65536 makes longer rings",
                self.lost
            ));
        }
        for note in notes {
            say(note);
        }
        let mut trace = self.kept?;
        trace.sites = (1..).zip(end.sites).collect();
        trace.sources = end.sources.into_iter().collect();
        trace.end_ns = end.end_ns;
        trace.sort();
        Some(trace)
    }
}

fn failed(path: &Path, error: &io::Error) -> String {
    format!("cannot write the trace {}: {error}", path.display())
}

/// Creates a file that is written while the launcher waits. A pipe is refused: the job would end
/// only when somebody reads it.
///
/// # Errors
/// When it cannot be created.
pub fn create(path: &Path) -> io::Result<File> {
    match fs::metadata(path) {
        Ok(facts) if facts.file_type().is_fifo() => {
            let why = "it is a pipe, whose reader could hold the job up; name a file";
            Err(io::Error::new(io::ErrorKind::InvalidInput, why))
        }
        _ => File::create(path),
    }
}

/// Writes text to a stream that may be gone.
pub fn print(mut to: impl Write, text: &str) {
    let _ = to.write_all(text.as_bytes());
    let _ = to.flush();
}
