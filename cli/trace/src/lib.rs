//! `margay-trace`: records jobs, converts and reads traces, shows profiles and views.
//!
//! `mpiexec -trace` and `mpiexec -profile` start it beside the ranks, with the job's memory as its
//! standard input; `margay trace` and `margay view` run it for the rest. It is a program of its own
//! so that neither `mpiexec` nor the wheel has to carry it.
//!
//! | module | subject |
//! | --- | --- |
//! | `format` | the stored trace |
//! | `record` | from the rings of a running job to a trace |
//! | `gather` | from the parts that the hosts of a job record to a trace |
//! | `sink` | where records go |
//! | `analyse` | which messages belong together, who waited for whom, the critical path |
//! | `calls` | the calls of each thread in the order of time |
//! | `blame` | whose fault waits are |
//! | `causes` | the causes of waits, and which patterns they are |
//! | `profile` | sums: who spent how much where |
//! | `chrome`, `perfetto`, `picl`, `otf2` | formats of other tools |
//! | `levels` | sums over time, and parts of a large trace |
//! | `view`, `serve` | the page in a browser |
//! | `json` | JSON as text |

#![forbid(unsafe_code)]

mod analyse;
mod blame;
mod calls;
mod causes;
mod chrome;
mod format;
mod gather;
mod json;
mod levels;
mod otf2;
mod perfetto;
mod picl;
mod profile;
mod record;
mod serve;
mod sink;
mod view;

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Arc, Mutex};

use margay_core_sums::Window;
use margay_sys_os::signal::{self, SignalFd, SignalSet};
use margay_sys_shm::segment::Segment;

use analyse::analyse;
use format::Trace;
use levels::{Large, MOST_WHOLE};
use profile::Profile;
use sink::{Output, Wanted, create, print};

/// The name of the program.
pub const PROGRAM: &str = "margay-trace";

/// Runs as the process's program: reads its words and returns its exit status.
pub fn main() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            print(io::stderr(), &format!("margay-trace: {why}\n"));
            ExitCode::FAILURE
        }
    }
}

const USAGE: &str = "use: margay trace convert FILE --to FORMAT, margay trace profile FILE, margay view FILE; \
                     mpiexec -trace FILE makes a trace";

/// Words of a command: options with a value, options without one, and the rest.
struct Words<'a> {
    words: &'a [OsString],
}

impl<'a> Words<'a> {
    fn value(&self, option: &str) -> Option<&'a OsStr> {
        let at = self.words.iter().position(|word| word == option)?;
        self.words.get(at + 1).map(OsString::as_os_str)
    }

    fn has(&self, option: &str) -> bool {
        self.words.iter().any(|word| word == option)
    }

    fn path(&self, option: &str) -> Option<PathBuf> {
        self.value(option).map(PathBuf::from)
    }

    fn first(&self) -> Result<&'a Path, String> {
        let first = self.words.first();
        first.map(Path::new).ok_or_else(|| USAGE.to_owned())
    }
}

fn run(arguments: &[OsString]) -> Result<(), String> {
    let (command, words) = arguments.split_first().ok_or(USAGE)?;
    let words = Words { words };
    match command.to_str() {
        Some("record") => record_job(&words),
        Some("gather") => gather_parts(&words),
        Some("convert") => convert(&words),
        Some("profile") => {
            let trace = read(words.first()?)?;
            let profile = Profile::of(&trace, &analyse(&trace));
            let text = match words.has("--json") {
                true => profile.json(),
                false => profile.text(),
            };
            print(io::stdout(), &text);
            Ok(())
        }
        Some("view") => view(&words),
        _ => Err(USAGE.to_owned()),
    }
}

/// What comes from the launcher and from the terminal.
fn watch_signals() -> Result<SignalFd, String> {
    let signals = SignalSet::that_end();
    signals.block();
    SignalFd::new(&signals).map_err(|error| format!("cannot watch for signals: {error}"))
}

/// What shall be made of the job, and what says something to its user.
fn wanted(words: &Words<'_>) -> (Wanted, impl FnMut(&str)) {
    let wanted = Wanted {
        output: match words.path("--trace") {
            _ if words.has("--part") => Output::Part,
            Some(path) => Output::File(path),
            None => Output::Nothing,
        },
        keeps: words.has("--profile") || words.has("--profile-json"),
    };
    let name = words.value("--name").unwrap_or(OsStr::new("mpiexec"));
    let name = name.to_string_lossy().into_owned();
    let say = move |text: &str| print(io::stderr(), &format!("{name}: {text}\n"));
    (wanted, say)
}

/// Records the job whose memory is the standard input.
fn record_job(words: &Words<'_>) -> Result<(), String> {
    let mut received = watch_signals()?;
    let mut ended = || {
        let mut taken = std::iter::from_fn(|| received.take());
        taken.any(|received| received.signal == signal::SIGTERM)
    };
    let memory = io::stdin().as_fd().try_clone_to_owned();
    let memory = memory.map_err(|error| format!("cannot take the job's memory: {error}"))?;
    let segment = Segment::join(memory).map_err(|error| {
        format!("the standard input is not the memory of a job ({error}); {USAGE}")
    })?;
    let (wanted, mut say) = wanted(words);
    let trace = record::run(segment, wanted, &mut ended, &mut say)?;
    show_profile(words, trace)
}

/// Makes one trace of what the hosts of a job record, which the standard input brings.
fn gather_parts(words: &Words<'_>) -> Result<(), String> {
    // It ends when nobody writes any more.
    let _received = watch_signals()?;
    let text = |option: &str| {
        let value = words.value(option).unwrap_or_default();
        value.to_string_lossy().into_owned()
    };
    let job = (
        text("--ranks").parse().map_err(|_| USAGE)?,
        text("--job").parse().map_err(|_| USAGE)?,
        text("--command"),
    );
    let hosts: Vec<String> = text("--hosts").split(',').map(str::to_owned).collect();
    let (wanted, mut say) = wanted(words);
    let trace = gather::run(io::stdin().lock(), job, &hosts, wanted, &mut say)?;
    show_profile(words, trace)
}

/// Shows and writes the profile of a trace that was kept for it.
fn show_profile(words: &Words<'_>, trace: Option<Trace>) -> Result<(), String> {
    let Some(trace) = trace else {
        return Ok(());
    };
    let profile = Profile::of(&trace, &analyse(&trace));
    if words.has("--profile") {
        print(io::stderr(), &profile.text());
    }
    if let Some(path) = words.path("--profile-json") {
        create(&path)
            .and_then(|mut file| file.write_all(profile.json().as_bytes()))
            .map_err(|error| format!("cannot write the profile {}: {error}", path.display()))?;
    }
    Ok(())
}

/// Reads a trace of ours or in PICL's format.
fn read(path: &Path) -> Result<Trace, String> {
    let failed = |error: &dyn std::fmt::Display| format!("cannot read {}: {error}", path.display());
    let mut begin = Vec::new();
    let file = File::open(path).map_err(|error| failed(&error))?;
    let head = file.take(7).read_to_end(&mut begin);
    head.map_err(|error| failed(&error))?;
    let trace = match begin.first() {
        Some(b'-' | b'0'..=b'9') => {
            let file = File::open(path).map_err(|error| failed(&error))?;
            picl::read(BufReader::new(file)).map_err(|error| failed(&error))?
        }
        _ => format::read_file(path).map_err(|error| failed(&error))?,
    };
    if trace.is_cut && begin.first() == Some(&b'M') {
        let text = format!(
            "margay-trace: {} has no end: it was cut, or is still written; {} records are read\n",
            path.display(),
            trace.records()
        );
        print(io::stderr(), &text);
    }
    Ok(trace)
}

fn convert(words: &Words<'_>) -> Result<(), String> {
    let from = words.first()?;
    let to = words.value("--to").and_then(OsStr::to_str).unwrap_or("");
    let ending = match to {
        "chrome" => "json",
        "perfetto" => "perfetto-trace",
        "picl" => "picl",
        "otf2" => "otf2",
        "mtrace" => "mtrace",
        other => {
            return Err(format!(
                "'{other}' is no format that is written; --to chrome, perfetto, picl, otf2 or mtrace"
            ));
        }
    };
    let path = words
        .path("--output")
        .unwrap_or_else(|| from.with_extension(ending));
    if path == from {
        return Err(format!(
            "{} would be overwritten; name another file with --output",
            path.display()
        ));
    }
    let trace = read(from)?;
    if to == "otf2" {
        let anchor = otf2::write(&path, &trace)?;
        print(io::stdout(), &format!("{}\n", anchor.display()));
        return Ok(());
    }
    let failed = |error: io::Error| format!("cannot write {}: {error}", path.display());
    let mut file = BufWriter::new(File::create(&path).map_err(failed)?);
    match to {
        "chrome" => chrome::write(&mut file, &trace, &analyse(&trace)),
        "perfetto" => perfetto::write(&mut file, &trace, &analyse(&trace)),
        "picl" => picl::write(&mut file, &trace),
        _ => format::write(&mut file, &trace),
    }
    .and_then(|()| file.flush())
    .map_err(failed)?;
    print(io::stdout(), &format!("{}\n", path.display()));
    Ok(())
}

fn view(words: &Words<'_>) -> Result<(), String> {
    let from = words.first()?;
    let viewed = Viewed {
        path: from.to_owned(),
        large: Mutex::default(),
    };
    let first = viewed.page()?;
    if let Some(path) = words.path("--html") {
        return std::fs::write(&path, first)
            .map_err(|error| format!("cannot write {}: {error}", path.display()));
    }
    drop(first);
    serve::serve(&viewed, |address| {
        print(io::stdout(), &format!("{address}\n"));
    })
}

/// A trace that a browser looks at.
struct Viewed {
    path: PathBuf,
    /// Its sums, if it is large, and the length of the file that they are of.
    large: Mutex<Option<(u64, Arc<Large>)>>,
}

impl Viewed {
    /// The page. A trace is read again when it has grown: the job may still run.
    fn page(&self) -> Result<String, String> {
        let path = &self.path;
        let failed =
            |error: &dyn std::fmt::Display| format!("cannot read {}: {error}", path.display());
        let mut begin = [0; 1];
        let mut file = File::open(path).map_err(|error| failed(&error))?;
        let length = file.metadata().map_err(|error| failed(&error))?.len();
        let is_ours = file.read(&mut begin).is_ok_and(|count| count == 1) && begin == *b"M";
        if !is_ours || length / 32 <= MOST_WHOLE {
            return read(path).map(|trace| view::page(&trace, &analyse(&trace)));
        }
        let known = self.large()?.filter(|(of, _)| *of == length);
        let large = match known {
            Some((_, large)) => large,
            None => Arc::new(Large::open(path).map_err(|error| failed(&error))?),
        };
        let page = view::page_of_sums(&large);
        *self.large.lock().map_err(|error| failed(&error))? = Some((length, large));
        Ok(page)
    }

    fn large(&self) -> Result<Option<(u64, Arc<Large>)>, String> {
        let large = self.large.lock().map_err(|error| error.to_string())?;
        Ok(large.clone())
    }

    /// What the page asks for: sums and calls of a window, or calls that fit.
    fn asked(&self, large: &Large, what: &str) -> Option<Result<String, String>> {
        let (what, words) = what.split_once('?')?;
        let number = |name: &str| {
            let mut pairs = words.split('&').filter_map(|pair| pair.split_once('='));
            let value = pairs.find(|(key, _)| *key == name)?.1;
            value.parse::<u64>().ok()
        };
        let from = number("from")?;
        let text = match what {
            "part" => {
                let ranks = large.trace.head.ranks;
                let rank = |name: &str| Some(number(name)?.min(u64::from(ranks)) as u32);
                let window = Window {
                    from,
                    to: number("to")?.min(large.trace.end_ns.max(1)),
                    first: rank("first")?,
                    last: rank("last")?,
                };
                if window.from >= window.to || window.first >= window.last {
                    return None;
                }
                view::part(large, window)
            }
            "find" => {
                let sites = words
                    .split('&')
                    .filter_map(|pair| pair.strip_prefix("site="));
                let wanted = levels::Wanted {
                    sites: sites.filter_map(|site| site.parse().ok()).collect(),
                    tag: number("tag").map(|tag| tag as u32),
                };
                view::found(large, &wanted, from)
            }
            _ => return None,
        };
        Some(text.map_err(|error| format!("cannot read {}: {error}", self.path.display())))
    }
}

impl serve::Answers for Viewed {
    fn answer(&self, what: &str) -> Option<Result<String, String>> {
        if what.is_empty() {
            return Some(self.page());
        }
        let (_, large) = self.large().ok()??;
        self.asked(&large, what)
    }
}
