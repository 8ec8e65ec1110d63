//! How a head begins: its folder, its socket, its store, its machine.

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::os::fd::AsFd;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use margay_job_launch::plan;
use margay_svc_queue_wire::{IN_FILE, MachineSpec, PROGRAM, Place, StoreUrl};
use margay_sys_os::credentials::set_file_mask;
use margay_sys_os::descriptor::{PollSet, set_nonblocking};
use margay_sys_os::process::{PidFd, beside, host_name};
use margay_sys_os::signal::{SignalFd, SignalSet};

use crate::agent::HostFacts;
use crate::agents::Agents;
use crate::claim::{self, Claimant};
use crate::files;
use crate::groups::Groups;
use crate::head::{ANSWERED_WITHIN, Head, Hosts};
use crate::machine_start;
use crate::resources::Resources;
use crate::store::{self, Candidate, Kind, Store};

/// How long hosts may take to answer a head that takes over, before it answers commands itself.
const TAKEN_WITHIN: Duration = Duration::from_secs(1);

/// How long jobs of a queue that was here before may take to end: they get SIGTERM, and SIGKILL
/// five seconds later.
const OTHERS_END_WITHIN: Duration = Duration::from_secs(15);

/// How long the folder of a head that was killed may still be locked.
const FREED_WITHIN: Duration = Duration::from_secs(2);

/// What a head is asked to be.
#[derive(Clone, Debug)]
pub struct Wanted {
    pub spec: Option<MachineSpec>,
    pub is_system: bool,
    /// It waits until no other head leads.
    pub is_standby: bool,
    /// It has led before.
    pub is_back: bool,
    pub store: Option<String>,
}

/// What the main thread waits for, and what goes with the process.
pub struct Waits {
    pub listener: Option<UnixListener>,
    pub signals: SignalFd,
    pub woken: UnixStream,
    pub wake: UnixStream,
    socket: PathBuf,
    pub place: Place,
    pub url: Option<StoreUrl>,
    /// Locked as long as this head lives.
    _lock: File,
}

/// Why a head cannot stand by.
pub const NO_DATABASE: &str = "a head stands by where the queue's state is kept in a database: margay up --standby --store \
                           postgresql://user@host/database";

/// The words of the remote shell that somebody has named for this head.
#[must_use]
pub fn own_shell(spec: Option<&MachineSpec>) -> Option<Vec<String>> {
    if let Some(spec) = spec.filter(|spec| !spec.hosts.is_empty()) {
        return Some(spec.shell.clone());
    }
    let named = std::env::var("MARGAY_RSH").unwrap_or_default();
    let words: Vec<String> = named.split_whitespace().map(str::to_owned).collect();
    (!words.is_empty()).then_some(words)
}

/// The words of the remote shell: those of the machine, or as for one host.
#[must_use]
pub fn shell(spec: Option<&MachineSpec>) -> Vec<String> {
    own_shell(spec).unwrap_or_else(|| plan::Hosts::SHELL.map(str::to_owned).to_vec())
}

/// Notes that this host has the folder: the processes that folders of jobs name are those of one.
fn own_folder(place: &Place) -> Result<(), String> {
    let path = place.host_file();
    let processes = fs::read_link("/proc/self/ns/pid").unwrap_or_default();
    let own = format!(
        "{}\n{} {}",
        host_name(),
        machine_start()?,
        processes.display()
    );
    let before = fs::read_to_string(&path).unwrap_or_default();
    let mut jobs = fs::read_dir(place.folder.join("jobs"))
        .into_iter()
        .flatten();
    // One that has another name since then is the same, and one that was started anew as well.
    let is_other = own
        .lines()
        .zip(before.lines())
        .all(|(own, before)| own != before);
    if let (Some(host), true, Some(_)) = (before.lines().next(), is_other, jobs.next()) {
        return Err(format!(
            "jobs of the queue in {} run on host {host}; start it there, and let them end first: margay wait --all",
            place.folder.display()
        ));
    }
    fs::write(&path, own).map_err(|error| format!("cannot write {}: {error}", path.display()))
}

/// All that comes before the store.
///
/// # Errors
/// In words.
pub fn prepare(wanted: &Wanted, set: &SignalSet) -> Result<Waits, String> {
    let place = match wanted.is_system {
        true => Place::system(),
        false => Place::find()?,
    };
    place.make()?;
    let lock = lock(&place.folder)?;
    let system = |error: io::Error| format!("the head of the queue cannot start: {error}");
    // The directory in which it was started may be unmounted.
    let _ = std::env::set_current_dir("/");
    let signals = SignalFd::new(set).map_err(system)?;
    let (wake, woken) = UnixStream::pair().map_err(system)?;
    set_nonblocking(wake.as_fd()).map_err(system)?;
    set_nonblocking(woken.as_fd()).map_err(system)?;
    let url = store_url(wanted.store.as_deref(), &place)?;
    if wanted.is_standby && url.is_none() {
        return Err(NO_DATABASE.into());
    }
    own_folder(&place)?;
    Ok(Waits {
        listener: None,
        signals,
        woken,
        wake,
        socket: PathBuf::new(),
        place,
        url,
        _lock: lock,
    })
}

impl Waits {
    /// Who this head is, for the store.
    ///
    /// # Errors
    /// In words.
    pub fn candidate(&self) -> Result<Candidate, String> {
        Ok(Candidate {
            place: store::Place {
                host: host_name(),
                folder: self.place.folder.display().to_string(),
            },
            kind: match self.place.is_system {
                true => Kind::System,
                false => Kind::User,
            },
            start: machine_start()?,
        })
    }

    /// Makes the socket that commands find, unless it is there.
    ///
    /// # Errors
    /// In words.
    pub fn listen(&mut self) -> Result<(), String> {
        if self.listener.is_some() {
            return Ok(());
        }
        let place = &self.place;
        // The name that a head had that was killed.
        if let Ok(old) = fs::read_to_string(place.address()) {
            let _ = fs::remove_file(old.trim_end());
        }
        let socket = place.new_socket()?;
        let _ = fs::remove_file(&socket);
        // The kernel says who connects, and each request is judged by that.
        let mode = if place.is_system { 0o666 } else { 0o600 };
        let listener = UnixListener::bind(&socket)
            .and_then(|listener| {
                fs::set_permissions(&socket, fs::Permissions::from_mode(mode))?;
                listener.set_nonblocking(true)?;
                Ok(listener)
            })
            .map_err(|error| format!("cannot listen at {}: {error}", socket.display()))?;
        let address = place.address();
        let new = place.folder.join("address.new");
        fs::write(&new, format!("{}\n", socket.display()))
            .and_then(|()| fs::rename(&new, &address))
            .map_err(|error| format!("cannot write {}: {error}", address.display()))?;
        self.socket = socket;
        self.listener = Some(listener);
        Ok(())
    }

    /// Remembers the store for the next head of the folder.
    ///
    /// # Errors
    /// In words.
    pub fn remember_store(&self) -> Result<(), String> {
        remember_store(self.url.as_ref(), &self.place)
    }

    /// Removes what commands find.
    pub fn remove(&self) {
        let _ = fs::remove_file(self.place.address());
        let _ = fs::remove_file(&self.socket);
    }
}

/// Begins as the head: with a store that it has as one that stood by, or with its own.
///
/// # Errors
/// In words.
pub fn lead(wanted: &Wanted, waits: &mut Waits, taken: Option<Store>) -> Result<Head, String> {
    let place = waits.place.clone();
    let readable = for_all(&place)?;
    let system = |error: io::Error| format!("the head of the queue cannot start: {error}");
    let program = beside(PROGRAM).map_err(system)?;
    let is_taken = taken.is_some();
    let candidate = waits.candidate()?;
    // A database says which head comes after which, before hosts are claimed.
    let opened = match (taken, &waits.url) {
        (Some(store), _) => Some(store),
        (None, Some(url)) => Some(Store::open(Some(url), &candidate)?),
        (None, None) => None,
    };
    let spec = match (&wanted.spec, &opened) {
        (None, Some(store)) if is_taken => {
            let text = store.machine()?;
            let words: Vec<&str> = text.lines().collect();
            MachineSpec::of(&words).unwrap_or_default()
        }
        (asked, _) => machine(asked.clone(), &place)?,
    };
    let (queue, term) = opened.as_ref().map_or(("", 0), Store::term);
    let own = Claimant {
        head: candidate.place.host.clone(),
        folder: candidate.place.folder.clone(),
        name: String::new(),
        queue: queue.to_owned(),
        term,
    };
    // One that takes over answers at once, and uses hosts as they come.
    let limit = if is_taken {
        TAKEN_WITHIN
    } else {
        ANSWERED_WITHIN
    };
    let is_system = wanted.is_system;
    let hosts = hosts(&spec, &own, is_system, &waits.wake, limit, is_taken)?;
    let facts = HostFacts::here();
    let store = match opened {
        Some(store) => store,
        None => Store::open(None, &candidate)?,
    };
    let resources = Resources {
        host: host_name(),
        slots: spec.slots.unwrap_or(facts.cores).max(1),
        memory_mib: facts.memory_mib,
        folder: place.folder.clone(),
        queue: store.queue().to_owned(),
        readable,
        program,
        shell: shell(Some(&spec)),
        groups: match wanted.is_system {
            true => Groups::open(Path::new("/run/systemd/system").is_dir(), &place.folder),
            false => Err("jobs run as the head does".into()),
        },
    };
    if let (true, Err(why)) = (wanted.is_system, &resources.groups) {
        crate::log(&format!("no control groups: {why}"));
    }
    let others = files::end_others(&place.folder.join("jobs"), store.queue());
    if !others.is_empty() {
        let count = others.len();
        crate::log(&format!(
            "{count} jobs of a queue that was here before are ended"
        ));
        await_end(others, OTHERS_END_WITHIN);
    }
    store.set_machine(&spec.words().join("\n"))?;
    let head = Head::open(resources, hosts, store)?;
    if wanted.store.is_some() {
        waits.remember_store()?;
    }
    waits.listen()?;
    Ok(head)
}

/// What a queue that all users share has beside the others: a mark in its folder, as its jobs are
/// not root's alone, and a folder for what jobs read, which is returned.
fn for_all(place: &Place) -> Result<Option<PathBuf>, String> {
    let mark = place.folder.join("of-all-users");
    if !place.is_system {
        return match mark.exists() {
            true => Err(format!(
                "the queue in {} is that of all users; start it with: margay up --system",
                place.folder.display()
            )),
            false => Ok(None),
        };
    }
    // What the head writes is for root alone, also where another user has started it.
    set_file_mask(0o077);
    File::create(&mark).map_err(|error| format!("cannot write {}: {error}", mark.display()))?;
    place.make_for_jobs()
}

pub fn machine_file(place: &Place) -> PathBuf {
    place.folder.join("machine")
}

/// Keeps a machine of several hosts for the next head.
///
/// # Errors
/// In words.
pub fn remember_machine(folder: &Path, spec: &MachineSpec) -> Result<(), String> {
    let (new, path) = (folder.join("machine.new"), folder.join("machine"));
    fs::write(&new, spec.words().join("\n"))
        .and_then(|()| fs::rename(&new, &path))
        .map_err(|error| format!("cannot write {}: {error}", path.display()))
}

/// The machine that is asked for, or that of the head before, which was killed or has left jobs.
fn machine(spec: Option<MachineSpec>, place: &Place) -> Result<MachineSpec, String> {
    let path = machine_file(place);
    match spec {
        Some(spec) if spec.hosts.is_empty() => {
            let _ = fs::remove_file(&path);
            Ok(spec)
        }
        Some(spec) => remember_machine(&place.folder, &spec).map(|()| spec),
        None => {
            let text = fs::read_to_string(&path).unwrap_or_default();
            let words: Vec<&str> = text.lines().collect();
            Ok(MachineSpec::of(&words).unwrap_or_default())
        }
    }
}

/// The database that is asked for, or that of the head before; none: the store is a file.
fn store_url(asked: Option<&str>, place: &Place) -> Result<Option<StoreUrl>, String> {
    let known = place.known_store()?;
    let asked = asked.unwrap_or(&known);
    // Folders of jobs are those of the numbers of one store.
    let mut jobs = fs::read_dir(place.folder.join("jobs"))
        .into_iter()
        .flatten();
    if asked != known && jobs.next().is_some() {
        return Err(format!(
            "jobs run whose state is kept elsewhere ({known}); let them end first: margay up --store {known}, \
             margay wait --all, margay down"
        ));
    }
    StoreUrl::of(asked)
}

fn remember_store(url: Option<&StoreUrl>, place: &Place) -> Result<(), String> {
    let path = place.store();
    let new = place.folder.join("store.new");
    let written = match url {
        // Beside the folder of another host, whose store would be taken without a word.
        None if place.is_beside() => fs::write(&path, format!("{IN_FILE}\n")),
        None => match fs::remove_file(&path) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        },
        Some(url) => {
            fs::write(&new, format!("{}\n", url.shown())).and_then(|()| fs::rename(&new, &path))
        }
    };
    written.map_err(|error| format!("cannot write {}: {error}", path.display()))
}

/// The hosts of the machine, when each of them has answered or for so long; where it is this host
/// alone what would keep others.
fn hosts(
    spec: &MachineSpec,
    own: &Claimant,
    is_system: bool,
    wake: &UnixStream,
    limit: Duration,
    is_taken: bool,
) -> Result<Result<Hosts, Agents>, String> {
    let agents = Agents::new(own, is_system, wake)?;
    if spec.hosts.is_empty() {
        return match claim::owner(Some(own)) {
            Some(other)
                if (&other.head, &other.folder) != (&own.head, &own.folder)
                    && !own.follows(&other) =>
            {
                Err(format!(
                    "this host belongs to the queue of host {}; use that one, or end it there first: margay down",
                    other.head
                ))
            }
            _ => Ok(Err(agents)),
        };
    }
    let mut hosts = Hosts::new(spec, agents)?;
    match hosts.wait(limit) {
        Err(text) if !is_taken => {
            hosts.end();
            Err(text)
        }
        _ => Ok(Ok(hosts)),
    }
}

/// One head at a time has the folder. A process that a killed head was just starting has its files
/// for a moment, and a head that ends has them to its end.
fn lock(folder: &Path) -> Result<File, String> {
    let path = folder.join("lock");
    let failed = |error: io::Error| format!("cannot lock {}: {error}", path.display());
    let file = File::options()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(&path)
        .map_err(failed)?;
    let end = Instant::now() + FREED_WITHIN;
    let mut locked = file.try_lock();
    while matches!(locked, Err(fs::TryLockError::WouldBlock)) && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(5));
        locked = file.try_lock();
    }
    match locked {
        Ok(()) => Ok(file),
        Err(fs::TryLockError::WouldBlock) => Err(format!(
            "another head has the queue in {}: one that is just starting or ending, or one of another host that has the \
             same folder; try again in a moment, or there",
            folder.display()
        )),
        Err(fs::TryLockError::Error(error)) => Err(failed(error)),
    }
}

/// Waits until processes have ended, for a while.
pub fn await_end(processes: Vec<PidFd>, within: Duration) {
    let end = Instant::now() + within;
    let mut poll = PollSet::default();
    for process in processes {
        poll.clear();
        poll.add_readable(process.as_fd());
        let _ = poll.wait(Some(end.saturating_duration_since(Instant::now())));
    }
}
