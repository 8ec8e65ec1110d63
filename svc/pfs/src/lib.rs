//! `margay-pfs`: the program that `margay pfs` runs. It takes the same options. As `serve` it is
//! the service of one file system; every other command asks that service, or, where none runs and
//! none is needed, opens the file system itself.
#![forbid(unsafe_code)]

mod clients;
mod direct;
mod disks;
mod drain;
mod fuse;
pub mod heard;
mod hosts;
mod job;
mod leftovers;
mod lock;
mod making;
mod mounting;
mod mounts;
mod near;
mod quotas;
mod registry;
mod resize;
mod serve;
mod service;
mod show;
mod spares;
mod stripes;
mod top;
mod wire;

use std::fs;
use std::io::{self, BufRead, BufReader, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::Duration;

use clap::FromArgMatches;
use disks::Others;
use hosts::reach::Wish;
use margay_core_stripes::Layout;
use margay_fs_stripes::Owner;
use margay_job_launch::hosts::{named_shell, names};
pub use margay_svc_pfs_options::PROGRAM;
use margay_svc_pfs_options::{Action, Owned, PfsOptions, Reaching, Sharing, command};
use margay_sys_os::descriptor::{PollSet, keep_others_from};
use margay_sys_os::port::peer_process;
use margay_sys_os::process::{ProcessFacts, beside, open_log};
use registry::Known;
use wire::Answer;

/// How long a stripe directory may take to answer a command that opens it itself.
const OPENED_WITHIN: Duration = Duration::from_secs(30);

/// How often a service that says nothing is looked at.
const LOOK: Duration = Duration::from_secs(2);

/// How long the end of the service is waited for.
const ENDED_WITHIN: Duration = Duration::from_secs(5);

/// Runs as the process's program: reads its words and returns its exit status.
pub fn main() -> ExitCode {
    let matches = command().get_matches();
    let options = PfsOptions::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    let name = match &options.action {
        Action::Job(job) => job.launcher.clone(),
        _ => "margay pfs".into(),
    };
    match run(options.action) {
        Ok(()) => ExitCode::SUCCESS,
        Err(text) => {
            let _ = writeln!(io::stderr(), "{name}: {text}");
            ExitCode::FAILURE
        }
    }
}

fn run(action: Action) -> Result<(), String> {
    match action {
        Action::Create {
            name,
            directories,
            parity,
            copies,
            factor,
            unit,
            spare,
            reaching,
        } => {
            let (parity, factor) = match copies {
                Some(copies) => (usize::from(copies) - 1, Some(1)),
                None => (parity, factor),
            };
            let layout = Layout::new(directories.len(), parity, unit)?.striped(None, factor)?;
            making::create(&name, &directories, layout, &spare, &reaching)
        }
        Action::List => list(),
        Action::Serve {
            name,
            serving,
            owner,
            reaching,
        } => serve::serve(
            &registry::find(&name)?,
            Duration::from_secs(serving.deadline),
            Others::new(owner, &reaching),
        ),
        Action::Job(options) => job::run(&options),
        Action::Start {
            name,
            serving,
            reaching,
        } => start(&registry::find(&name)?, serving.deadline, &reaching),
        Action::Mount {
            name,
            directory,
            atime,
            sharing,
            serving,
        } => {
            let known = registry::find(&name)?;
            mount(&known, &directory, &atime, &sharing, serving.deadline)
        }
        Action::Attach { keep: true } => hosts::program::keep(),
        Action::Attach { keep: false } => hosts::program::start(),
        Action::Stop { name } => {
            show_kept(io::stderr());
            ask_or_clear(&registry::find(&name)?, "stop")
        }
        Action::Remove {
            name,
            yes,
            reaching,
        } => making::remove(&registry::find(&name)?, yes, &reaching),
        Action::Umount { name } => ask_or_clear(&registry::find(&name)?, "umount"),
        Action::Status { name } => status(&registry::find(&name)?),
        Action::Check { name } => ask_or_open(&registry::find(&name)?, &["check"]),
        Action::Scrub { name } => ask_or_open(&registry::find(&name)?, &["scrub"]),
        Action::Quota {
            name,
            user,
            group,
            space,
            files,
        } => {
            let owner = match (user, group) {
                (Some(user), _) => Some(Owner::User(quotas::user(&user)?)),
                (None, Some(group)) => Some(Owner::Group(quotas::group(&group)?)),
                (None, None) => None,
            };
            quota(&registry::find(&name)?, owner, space, files)
        }
        Action::Replace { name, old, new } => {
            let known = registry::find(&name)?;
            let old = named(&known, &old)?;
            let new = registry::directory(&new)?;
            ask_or_open(&known, &["replace", &old, &new])
        }
        Action::Resize {
            name,
            add,
            remove,
            wait,
        } => resize(&registry::find(&name)?, &add, &remove, wait),
        Action::Stripe {
            paths,
            unit,
            factor,
            default,
        } => {
            let to = (default || unit.is_some() || factor.is_some()).then_some((unit, factor));
            paths.iter().try_for_each(|path| stripes::run(path, to))
        }
        Action::Spare {
            name,
            directory,
            remove,
        } => spare(&registry::find(&name)?, &directory, remove),
        Action::Top { name, once } => {
            let known = registry::find(&name)?;
            top::run(once, &|| {
                let mut text = String::new();
                converse(reached(&known)?, &["top"], &mut |part| text += part)?;
                Ok(text)
            })
        }
        Action::Rebuild { name, wait, share } => {
            let known = registry::find(&name)?;
            if let (Some(percent), Some(stream)) = (share, connect(&known)?) {
                talk(stream, &["share", &percent.to_string()])?;
            }
            let wait = if wait { "wait" } else { "" };
            ask_or_open(&known, &["rebuild", wait])
        }
    }
}

/// Mounts a file system at a directory; its service is started where it does not run.
fn mount(
    known: &Known,
    directory: &Path,
    atime: &str,
    sharing: &Sharing,
    deadline: u64,
) -> Result<(), String> {
    let shown = directory.display();
    clear_dead(known)?;
    if !sharing.hosts.is_empty() {
        let path = std::path::absolute(directory).ok();
        let path = path.and_then(|path| path.into_os_string().into_string().ok());
        let path = path.ok_or_else(|| format!("cannot mount at {shown}: its path is not UTF-8"))?;
        return with_service(known, deadline, &sharing.reaching, || {
            share(known, &path, atime, sharing, false)
        });
    }
    if mounts::is_dead(directory) {
        return Err(format!(
            "cannot mount at {shown}: the service of what is mounted there has died; unmount that: \
             fusermount3 -u {shown}, or umount {shown}"
        ));
    }
    let path =
        fs::canonicalize(directory).map_err(|error| format!("cannot mount at {shown}: {error}"))?;
    let path = path
        .into_os_string()
        .into_string()
        .map_err(|_| format!("cannot mount at {shown}: its path is not UTF-8"))?;
    with_service(known, deadline, &sharing.reaching, || {
        ask(known, &["mount", &path, atime])
    })
}

/// Does something that takes the service, which is started for it, and ended where it fails.
fn with_service(
    known: &Known,
    deadline: u64,
    reaching: &Reaching,
    job: impl FnOnce() -> Result<(), String>,
) -> Result<(), String> {
    let is_new = connect(known)?.is_none();
    if is_new {
        start(known, deadline, reaching)?;
    }
    let done = job();
    if is_new && done.is_err() {
        // Nobody has asked for the service alone. Why it cannot end is another matter.
        let _ = ask(known, &["stop"]);
    }
    done
}

/// Mounts a file system on several hosts. `is_made`: at a directory that is made and goes with it.
fn share(
    known: &Known,
    path: &str,
    atime: &str,
    sharing: &Sharing,
    is_made: bool,
) -> Result<(), String> {
    // The commas within brackets have parted one name, too.
    let all = names::all(&sharing.hosts.join(","))?;
    let mut hosts: Vec<&str> = Vec::new();
    for host in all.iter().map(String::as_str) {
        if !registry::is_host(host) {
            return Err(format!("'{host}' is no name of a host"));
        }
        if !hosts.contains(&host) {
            hosts.push(host);
        }
    }
    let ports = (sharing.reaching.port_range).map_or("any".into(), |(a, b)| format!("{a}:{b}"));
    let names = hosts.join(",");
    let words = ["share", path, atime, &ports, &names];
    let mut lines = String::new();
    converse(reached(known)?, &words, &mut |text| lines += text)?;
    let shell = named_shell(
        sharing
            .reaching
            .launcher_exec
            .as_deref()
            .unwrap_or_default(),
    );
    let way = hosts::invite::Way {
        hosts,
        shell,
        // That of a job stays with it.
        stays: is_made,
    };
    let wish = Wish::Mount {
        path: path.into(),
        is_made,
    };
    let mounted = hosts::invite::all(&way, &known.name, &wish, &lines);
    mounted.inspect_err(|_| {
        // All of these hosts or none, and the others keep it.
        let _ = ask(known, &["unshare", &names]);
    })
}

fn quota(
    known: &Known,
    owner: Option<Owner>,
    space: Option<u64>,
    files: Option<u64>,
) -> Result<(), String> {
    let Some(owner) = owner else {
        return match (space, files) {
            (None, None) => ask_or_open(known, &["quota"]),
            _ => Err("say whose limits these are: --user or --group".into()),
        };
    };
    let word = |limit: Option<u64>| limit.map_or("-".into(), |limit| limit.to_string());
    if space.is_none() && files.is_none() {
        return Err("name a limit to be set: --space, --files or both".into());
    }
    let words = ["quota", &owner.to_string(), &word(space), &word(files)];
    ask_or_open(known, &words)
}

fn resize(known: &Known, add: &[PathBuf], remove: &[PathBuf], wait: bool) -> Result<(), String> {
    let wait = if wait { "wait" } else { "" };
    let mut words: Vec<String> = vec!["resize".into(), wait.into()];
    for path in add {
        words.extend(["add".into(), registry::directory(path)?]);
    }
    for path in remove {
        words.extend(["remove".into(), named(known, path)?]);
    }
    if words.len() > wire::MOST_WORDS as usize {
        return Err("name at most seven directories at a time".into());
    }
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    ask_or_open(known, &words)
}

fn spare(known: &Known, directory: &Path, is_removed: bool) -> Result<(), String> {
    let path = registry::directory(directory)?;
    match (connect(known)?, is_removed) {
        (Some(stream), true) => talk(stream, &["no-spare", &path]),
        (Some(stream), false) => talk(stream, &["spare", &path]),
        (None, true) => spares::remove(&known.name, &path),
        (None, false) => spares::add(&known.name, &path),
    }
}

/// Returns a stripe directory as it is kept, by any path of it; it need not be there.
fn named(known: &Known, path: &Path) -> Result<String, String> {
    let plain = path.to_string_lossy().trim_end_matches('/').to_owned();
    if known.directories.contains(&plain) {
        return Ok(plain);
    }
    registry::directory(path)
}

fn list() -> Result<(), String> {
    for name in registry::all()? {
        let known = match registry::find(&name) {
            Ok(known) => known,
            Err(text) => {
                // The others are there all the same.
                println!("{name}  {text}");
                continue;
            }
        };
        let is_running = connect(&known)?.is_some();
        let how = if is_running { "running" } else { "stopped" };
        println!("{name}  {how}  {}", known.directories.join(" "));
    }
    show_kept(io::stdout());
    Ok(())
}

/// Removes what jobs with a file system have left, and names what is kept of them.
fn show_kept(mut out: impl Write) {
    for kept in leftovers::sweep(&[std::env::temp_dir()]) {
        let _ = writeln!(out, "{kept}");
    }
}

/// Connects to the service, if it runs.
fn connect(known: &Known) -> Result<Option<UnixStream>, String> {
    let path = registry::beside(&known.name, "sock")?;
    match UnixStream::connect(&path) {
        Ok(stream) => Ok(Some(stream)),
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused
            ) =>
        {
            Ok(None)
        }
        Err(error) => Err(format!(
            "cannot reach the service at {}: {error}",
            path.display()
        )),
    }
}

/// Starts the service in the background.
fn start(known: &Known, deadline: u64, reaching: &Reaching) -> Result<(), String> {
    let name = &known.name;
    if connect(known)?.is_some() {
        println!("the service of '{name}' runs already");
        return Ok(());
    }
    serve_for(known, deadline, None, reaching).map(drop)
}

/// Starts the service in the background, and returns when it can be used. `owner`: it ends when
/// this process does.
fn serve_for(
    known: &Known,
    deadline: u64,
    owner: Option<Owned>,
    reaching: &Reaching,
) -> Result<Child, String> {
    let name = &known.name;
    let log = registry::beside(name, "log")?;
    let failed = |error: io::Error| format!("cannot start the service of '{name}': {error}");
    let file = open_log(&log).map_err(failed)?;
    let mut command = Command::new(beside(PROGRAM).map_err(failed)?);
    command
        .args(["serve", &format!("--deadline={deadline}"), name])
        .args(owner.map(|owner| match owner {
            Owned::Kept => "--owned=kept",
            Owned::Temporary => "--owned=temporary",
        }))
        .args((reaching.launcher_exec.iter()).map(|shell| format!("--launcher-exec={shell}")))
        .args((reaching.port_range).map(|(first, last)| format!("--port-range={first}:{last}")))
        .stdin(if owner.is_some() {
            Stdio::piped()
        } else {
            Stdio::null()
        })
        .stdout(Stdio::piped())
        .stderr(file);
    let mut child = keep_others_from(&mut command).spawn().map_err(failed)?;
    let mut line = String::new();
    if let Some(stdout) = child.stdout.take() {
        BufReader::new(stdout)
            .read_line(&mut line)
            .map_err(failed)?;
    }
    match line.trim_end() {
        serve::READY => Ok(child),
        "" => Err(format!(
            "the service of '{name}' ended at once; {} has its messages",
            log.display()
        )),
        text => Err(text.to_owned()),
    }
}

/// Asks the service, and shows what it answers.
fn ask(known: &Known, words: &[&str]) -> Result<(), String> {
    talk(reached(known)?, words)
}

/// Connects to the service, which must run.
fn reached(known: &Known) -> Result<UnixStream, String> {
    connect(known)?.ok_or_else(|| {
        format!(
            "the service of '{}' does not run; start it: margay pfs start {}",
            known.name, known.name
        )
    })
}

/// Unmounts what the service had mounted when it died. Returns whether there was anything.
fn clear_dead(known: &Known) -> Result<bool, String> {
    if connect(known)?.is_some() {
        return Ok(false);
    }
    let note = registry::beside(&known.name, mounts::NOTE)?;
    let cleared = mounts::clear_dead(&known.name, &note)?;
    if let Some(path) = &cleared {
        println!(
            "the service of '{}' had died; {} is unmounted",
            known.name,
            path.display()
        );
    }
    Ok(cleared.is_some())
}

/// Asks the service; where it has died, unmounts what is left of it.
fn ask_or_clear(known: &Known, word: &str) -> Result<(), String> {
    if clear_dead(known)? {
        return Ok(());
    }
    ask(known, &[word])
}

fn talk(stream: UnixStream, words: &[&str]) -> Result<(), String> {
    converse(stream, words, &mut |text| {
        // Who reads it may have seen enough, as `head`.
        let _ = io::stdout().write_all(text.as_bytes());
        let _ = io::stdout().flush();
    })
}

/// Asks the service; what it says goes to `out`.
fn converse(
    mut stream: UnixStream,
    words: &[&str],
    out: &mut dyn FnMut(&str),
) -> Result<(), String> {
    let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
    let broken = |error: io::Error| format!("the service does not answer: {error}");
    wire::ask(&mut stream, &words).map_err(broken)?;
    let mut end = None;
    wait_unless_stopped(&stream);
    loop {
        match wire::answered(&mut stream) {
            Ok(Answer::Text(text)) => out(&text),
            Ok(Answer::End(done)) => {
                end = Some(done);
                // It does not end as long as a disk hangs that it has asked.
                let _ = stream.set_read_timeout(Some(ENDED_WITHIN));
            }
            // The service closes behind the end, and ends itself then when it was to stop.
            Err(_) if end.is_some() => return end.unwrap_or(Ok(())),
            Err(error) => return Err(broken(error)),
        }
    }
}

/// Waits for the first words of the service. Says it once when that is stopped, because its
/// connections are taken by the kernel all the same.
fn wait_unless_stopped(stream: &UnixStream) {
    let mut poll = PollSet::default();
    let mut comes_within = |time| {
        poll.clear();
        let place = poll.add_readable(stream.as_fd());
        let waited = poll.wait(time);
        waited.is_err() || time.is_none() || poll.ready(place).readable
    };
    while !comes_within(Some(LOOK)) {
        let service = peer_process(stream.as_fd()).map_or(0, |peer| peer.pid);
        if ProcessFacts::of(service).is_some_and(|facts| facts.state == 'T') {
            let _ = writeln!(
                io::stderr(),
                "margay pfs: the service (process {service}) is stopped by a signal; it goes on \
                 with: kill -CONT {service}"
            );
            comes_within(None);
            return;
        }
    }
}

/// Asks the service, or does it here when none runs.
fn ask_or_open(known: &Known, words: &[&str]) -> Result<(), String> {
    if let Some(stream) = connect(known)? {
        return talk(stream, words);
    }
    let service = service::Service::open(known, OPENED_WITHIN, Others::usual())?;
    let words: Vec<String> = words
        .iter()
        .map(|word| if word.is_empty() { "wait" } else { word })
        .map(str::to_owned)
        .collect();
    let done = service.run(&words, &mut |text| print!("{text}"));
    // Nobody goes on with a rebuild when this process ends.
    let rebuilt = match words[0].as_str() {
        "replace" => service.run(&["rebuild".into(), "wait".into()], &mut |text| {
            print!("{text}")
        }),
        _ => Ok(()),
    };
    for event in service.collect_events() {
        let _ = writeln!(io::stderr(), "margay pfs: {event}");
    }
    done.and(rebuilt).and(service.finish())
}

fn status(known: &Known) -> Result<(), String> {
    if let Some(stream) = connect(known)? {
        return talk(stream, &["status"]);
    }
    println!("{}: the service does not run", known.name);
    for directory in &known.directories {
        let how = match registry::elsewhere(directory) {
            Some(_) => "elsewhere",
            None if Path::new(directory).join("data").exists() => "there",
            None => "missing",
        };
        println!("  {how:13} {directory}");
    }
    Ok(())
}
