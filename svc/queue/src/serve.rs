//! The head as a process: its socket, its signals, its supervisors, and its end.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::{Duration, Instant};

use margay_core_queue::JobId;
use margay_svc_queue_wire::{
    Answer, JobRow, MachineSpec, PROGRAM, Place, READY, Request, StoreUrl, Target, read_within,
    write,
};
use margay_sys_os::credentials::set_file_mask;
use margay_sys_os::descriptor::{PollSet, set_nonblocking};
use margay_sys_os::port::peer;
use margay_sys_os::process::{Reaped, beside, host_name, lead_session, reap};
use margay_sys_os::signal::{SIGCHLD, SIGHUP, SIGINT, SIGTERM, SignalFd, SignalSet};

use crate::agent::HostFacts;
use crate::agents::Agents;
use crate::callers::{Admitted, Caller, Loads};
use crate::claim::{self, Claimant};
use crate::groups::Groups;
use crate::head::{Head, Hosts};
use crate::resources::Resources;
use crate::store::{self, Sought};

/// How long the other side may take to send a part of a request, or to take a part of an answer.
const HEARD_WITHIN: Duration = Duration::from_secs(10);

/// After how long what failed is tried again.
const RETRY: Duration = Duration::from_secs(1);

/// How often the clock is looked at while something waits for a time.
const CLOCK: Duration = Duration::from_secs(60);

/// How long what jobs do is gathered before the log is written to the disk.
const GATHERED: Duration = Duration::from_millis(20);

/// How long supervisors without a job may take to go at the end.
const GONE_WITHIN: Duration = Duration::from_secs(10);

/// How often a command that waits for jobs looks whether somebody still listens.
const LISTENS: Duration = Duration::from_millis(500);

/// What the threads share.
struct Service {
    head: Mutex<Head>,
    /// Jobs have ended.
    ended: Condvar,
    /// A byte wakes the main thread.
    wake: UnixStream,
    is_over: AtomicBool,
    /// The machine of the next head is that of this one, which has left jobs.
    is_left: AtomicBool,
    /// Who asks how much. In the queue of all users, each counts for itself.
    loads: Arc<Loads>,
    is_system: bool,
}

impl Service {
    /// What a thread that panicked had is as good as its last change: each is made whole.
    fn head(&self) -> MutexGuard<'_, Head> {
        self.head.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wake(&self) {
        // A full pipe wakes as well.
        let _ = (&self.wake).write(&[1]);
    }
}

/// What the main thread waits for, and what goes with the process.
struct Waits {
    listener: UnixListener,
    signals: SignalFd,
    woken: UnixStream,
    socket: PathBuf,
    place: Place,
    /// Locked as long as this head lives.
    _lock: File,
}

/// Runs the head until it is asked to end.
///
/// # Errors
/// In words; the first line of the standard output has them as well.
pub fn serve(
    spec: Option<MachineSpec>,
    is_system: bool,
    store: Option<&str>,
) -> Result<(), String> {
    lead_session();
    // Before there are other threads, so that all of them have the signals blocked.
    let set = SignalSet::of(&[SIGHUP, SIGINT, SIGTERM, SIGCHLD]);
    set.block();
    let begun = begin(spec, &set, is_system, store);
    let said = match &begun {
        Ok(_) => READY.to_owned(),
        Err(text) => text.replace('\n', " "),
    };
    let mut stdout = io::stdout();
    let _ = writeln!(stdout, "{said}").and_then(|()| stdout.flush());
    let (service, mut waits) = begun?;
    attend(&service, &mut waits);
    see_off(&service);
    service.head().end_hosts();
    if !service.is_left.load(Ordering::SeqCst) {
        let _ = fs::remove_file(machine_file(&waits.place));
    }
    let _ = fs::remove_file(waits.place.address());
    let _ = fs::remove_file(&waits.socket);
    service.head().close()
}

fn begin(
    spec: Option<MachineSpec>,
    set: &SignalSet,
    is_system: bool,
    store: Option<&str>,
) -> Result<(Arc<Service>, Waits), String> {
    let place = match is_system {
        true => Place::system(),
        false => Place::find()?,
    };
    place.make()?;
    let lock = lock(&place.folder)?;
    let readable = for_all(&place)?;
    let system = |error: io::Error| format!("the head of the queue cannot start: {error}");
    let program = beside(PROGRAM).map_err(system)?;
    // The directory in which it was started may be unmounted.
    let _ = std::env::set_current_dir("/");
    let signals = SignalFd::new(set).map_err(system)?;
    let (wake, woken) = UnixStream::pair().map_err(system)?;
    set_nonblocking(wake.as_fd()).map_err(system)?;
    set_nonblocking(woken.as_fd()).map_err(system)?;
    let (url, is_asked) = (store_url(store, &place)?, store.is_some());
    let spec = machine(spec, &place)?;
    let hosts = hosts(&spec, &place, &wake)?;
    let facts = HostFacts::here();
    let resources = Resources {
        host: host_name(),
        slots: spec.slots.unwrap_or(facts.cores).max(1),
        memory_mib: facts.memory_mib,
        folder: place.folder.clone(),
        readable,
        program,
        groups: match is_system {
            true => Groups::open(Path::new("/run/systemd/system").is_dir(), &place.folder),
            false => Err("jobs run as the head does".into()),
        },
    };
    if let (true, Err(why)) = (is_system, &resources.groups) {
        crate::log(&format!("no control groups: {why}"));
    }
    let head = Head::open(resources, hosts, url.as_ref())?;
    if is_asked {
        remember_store(url.as_ref(), &place)?;
    }
    // The name that a head had that was killed.
    if let Ok(old) = fs::read_to_string(place.address()) {
        let _ = fs::remove_file(old.trim_end());
    }
    let socket = place.new_socket()?;
    let _ = fs::remove_file(&socket);
    // The kernel says who connects, and each request is judged by that.
    let mode = if is_system { 0o666 } else { 0o600 };
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
    let service = Arc::new(Service {
        head: Mutex::new(head),
        ended: Condvar::new(),
        wake,
        is_over: AtomicBool::new(false),
        is_left: AtomicBool::new(true),
        loads: Loads::new(is_system),
        is_system,
    });
    if url.is_some() {
        let held = Arc::clone(&service);
        std::thread::Builder::new()
            .spawn(move || hold_store(&held))
            .map_err(system)?;
    }
    let waits = Waits {
        listener,
        signals,
        woken,
        socket,
        place,
        _lock: lock,
    };
    Ok((service, waits))
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

fn machine_file(place: &Place) -> PathBuf {
    place.folder.join("machine")
}

/// The machine that is asked for, or that of the head before, which was killed or has left jobs.
fn machine(spec: Option<MachineSpec>, place: &Place) -> Result<MachineSpec, String> {
    let path = machine_file(place);
    let failed = |error: io::Error| format!("cannot write {}: {error}", path.display());
    match spec {
        Some(spec) if spec.hosts.is_empty() => {
            let _ = fs::remove_file(&path);
            Ok(spec)
        }
        Some(spec) => {
            let new = place.folder.join("machine.new");
            fs::write(&new, spec.words().join("\n")).map_err(failed)?;
            fs::rename(&new, &path).map_err(failed)?;
            Ok(spec)
        }
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

/// The hosts of the machine, when each of them has answered; none where it is this host alone.
fn hosts(spec: &MachineSpec, place: &Place, wake: &UnixStream) -> Result<Option<Hosts>, String> {
    let own = Claimant {
        head: host_name(),
        folder: place.folder.display().to_string(),
        name: String::new(),
    };
    if spec.hosts.is_empty() {
        return match claim::owner() {
            Some(other) if (&other.head, &other.folder) != (&own.head, &own.folder) => {
                Err(format!(
                    "this host belongs to the queue of host {}; use that one, or end it there first: margay down",
                    other.head
                ))
            }
            _ => Ok(None),
        };
    }
    let mut hosts = Hosts::new(spec, Agents::start(spec, &own, wake)?);
    match hosts.wait() {
        Ok(()) => Ok(Some(hosts)),
        Err(text) => {
            hosts.end();
            Err(text)
        }
    }
}

/// One head at a time has the folder.
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
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(fs::TryLockError::WouldBlock) => Err(format!(
            "another head has the queue in {}; it is starting or ending: try again in a moment",
            folder.display()
        )),
        Err(fs::TryLockError::Error(error)) => Err(failed(error)),
    }
}

/// Serves commands and looks after jobs until it is the end.
fn attend(service: &Arc<Service>, waits: &mut Waits) {
    let (unwritten, gathered) = mpsc::sync_channel(1);
    let log = store::log_of(&waits.place.folder.join(store::FILE));
    let write_out = move || write_out(&gathered, &log);
    if let Err(error) = std::thread::Builder::new().spawn(write_out) {
        crate::log(&format!("the store is not written out at once: {error}"));
    }
    let mut poll = PollSet::default();
    let mut bytes = [0; 256];
    // The places of jobs in the set, and those that were ready.
    let mut watched: Vec<(JobId, usize)> = Vec::new();
    let mut readable: Vec<JobId> = Vec::new();
    loop {
        poll.clear();
        let asked = poll.add_readable(waits.listener.as_fd());
        let signalled = poll.add_readable(waits.signals.as_fd());
        poll.add_readable(waits.woken.as_fd());
        let (pause, have_ended) = {
            let mut head = service.head();
            head.hear_hosts();
            let is_unfinished = head.collect(&readable);
            let is_unstarted = head.schedule();
            // A supervisor that is watched may be reaped: its handle still says that it has ended.
            while let Reaped::Child(..) = reap() {}
            if head.take_unwritten() {
                // When it is full the thread has not begun to write yet.
                let _ = unwritten.try_send(());
            }
            watched.clear();
            for (id, descriptor) in head.descriptors() {
                watched.push((id, poll.add_readable(descriptor)));
            }
            let idle = head.dismiss();
            let next = match is_unfinished || is_unstarted {
                true => Some(RETRY),
                // The clock may be set: so it is looked at from time to time.
                false => head.pause_s().map(|s| Duration::from_secs(s).min(CLOCK)),
            };
            (idle.into_iter().chain(next).min(), head.take_ended())
        };
        let is_over = service.is_over.load(Ordering::SeqCst);
        if have_ended || is_over {
            service.ended.notify_all();
        }
        if is_over {
            return;
        }
        let begun = Instant::now();
        readable.clear();
        if poll.wait(pause).is_err() {
            std::thread::sleep(RETRY);
            continue;
        }
        let ready = watched
            .iter()
            .filter(|(_, place)| poll.ready(*place).readable);
        readable.extend(ready.map(|(id, _)| *id));
        if pause.is_some_and(|pause| begun.elapsed() >= pause) {
            service.head().look_again();
        }
        if poll.ready(signalled).readable {
            while let Some(received) = waits.signals.take() {
                if received.signal != SIGCHLD {
                    return;
                }
            }
        }
        while matches!(waits.woken.read(&mut bytes), Ok(count) if count > 0) {}
        if poll.ready(asked).readable {
            match waits.listener.accept() {
                Ok((stream, _)) => admit(service, stream),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                // Without a free descriptor: some are free when a command has ended.
                Err(_) => std::thread::sleep(RETRY / 10),
            }
        }
    }
}

/// Looks after the connection to a database, beside everything else, and looks for it while it is
/// away: that may take long.
fn hold_store(service: &Service) {
    let mut last = String::new();
    while !service.is_over.load(Ordering::SeqCst) {
        std::thread::sleep(RETRY);
        let missing = {
            let head = service.head();
            // What is wrong is logged there.
            let _ = head.hear_store();
            head.missing_store()
        };
        let Some(missing) = missing else { continue };
        let text = match missing.find() {
            Ok(regained) => match service.head().put_store_back(regained) {
                Ok(()) => "the queue's database is back".into(),
                Err(text) => text,
            },
            Err(Sought::Away(text)) => text,
            Err(Sought::Lost(text)) => {
                crate::log(&format!("{text}; this one ends"));
                service.is_over.store(true, Ordering::SeqCst);
                service.wake();
                return;
            }
        };
        if text != last {
            crate::log(&text);
            last = text;
        }
        service.wake();
    }
}

/// Waits until supervisors without a job have gone, which they do when their lines end.
fn see_off(service: &Service) {
    let end = Instant::now() + GONE_WITHIN;
    let processes = service.head().dismiss_all();
    let mut poll = PollSet::default();
    for process in processes {
        poll.clear();
        poll.add_readable(process.as_fd());
        let _ = poll.wait(Some(end.saturating_duration_since(Instant::now())));
    }
}

/// Writes the store's log to the disk after changes that did not wait for it.
fn write_out(gathered: &mpsc::Receiver<()>, log: &Path) {
    while gathered.recv().is_ok() {
        std::thread::sleep(GATHERED);
        let _ = gathered.try_recv();
        // A log that is not there has become part of the store.
        let written = File::open(log).and_then(|log| log.sync_data());
        if let Err(error) = written.as_ref()
            && error.kind() != ErrorKind::NotFound
        {
            crate::log(&format!("the store cannot be written out: {error}"));
        }
    }
}

/// Serves a command in a thread of its own.
fn admit(service: &Arc<Service>, mut stream: UnixStream) {
    // Who says nothing, or does not hear, is not waited for.
    let _ = stream.set_nonblocking(false);
    let _ = stream.set_read_timeout(Some(HEARD_WITHIN));
    let _ = stream.set_write_timeout(Some(HEARD_WITHIN));
    let uid = peer(stream.as_fd()).unwrap_or(u32::MAX);
    let Some(admitted) = service.loads.admit(uid) else {
        let busy = "the head of the queue has too many commands; try again when some have ended";
        let _ = write(&mut stream, &Answer::Failed(busy.into()));
        return;
    };
    let service = Arc::clone(service);
    let serve = move || converse(&service, stream, admitted);
    // Where there is no room for a thread the connection ends, and the command says so.
    let _ = std::thread::Builder::new().spawn(serve);
}

fn converse(service: &Service, mut stream: UnixStream, mut admitted: Admitted) {
    let caller = match Caller::of(&stream, service.is_system) {
        Ok(caller) => caller,
        Err(text) => {
            let _ = write(&mut stream, &Answer::Failed(text));
            return;
        }
    };
    let request = match read_within(&mut stream, &mut |bytes| admitted.has_room(bytes)) {
        Ok(request) => request,
        Err(error) => {
            let text = match error.kind() {
                ErrorKind::FileTooLarge => {
                    let most = admitted.most_bytes >> 20;
                    format!(
                        "the request, with others of yours at the same time, is larger than {most} MiB; send it in several parts"
                    )
                }
                ErrorKind::WouldBlock => "the request did not come in time".into(),
                _ => format!(
                    "the request is not understood: {error}; is this command of the same version as the head?"
                ),
            };
            let _ = write(&mut stream, &Answer::Failed(text));
            return;
        }
    };
    let is_stop = matches!(request, Request::Stop { .. });
    let answer = answer(service, request, &caller, &stream);
    let is_done = !matches!(answer, Answer::Failed(_));
    // Who asked may have gone; what was asked is done all the same.
    let _ = write(&mut stream, &answer);
    service.wake();
    if is_stop && is_done {
        // Who asked sees the end of the connection when the process is gone.
        std::mem::forget(stream);
    }
}

fn said(done: Result<String, String>) -> Answer {
    match done {
        Ok(text) => Answer::Done(text),
        Err(text) => Answer::Failed(text),
    }
}

fn listed(done: Result<Vec<JobRow>, String>) -> Answer {
    match done {
        Ok(rows) => Answer::Jobs(rows),
        Err(text) => Answer::Failed(text),
    }
}

fn answer(service: &Service, request: Request, caller: &Caller, stream: &UnixStream) -> Answer {
    if !matches!(request, Request::Stop { .. })
        && let Err(text) = service.head().hear_store()
    {
        return Answer::Failed(text);
    }
    match request {
        Request::Submit { shared, orders } => service.head().submit(shared, &orders, caller),
        Request::List { all, jobs } => listed(service.head().rows(all, &jobs, caller)),
        Request::Wait { jobs } => wait(service, &jobs, caller, stream),
        Request::Cancel { jobs } => said(service.head().cancel(&jobs, caller)),
        Request::Hold { jobs, is_held } => said(service.head().hold(&jobs, is_held, caller)),
        Request::Show { all, jobs } => match service.head().all_of(all, &jobs, caller) {
            Ok(details) => {
                let values = details.iter().map(serde_json::to_value);
                match values.collect() {
                    Ok(values) => Answer::Details(values),
                    Err(error) => Answer::Failed(error.to_string()),
                }
            }
            Err(text) => Answer::Failed(text),
        },
        Request::Change { jobs, change } => said(service.head().change(&jobs, &change, caller)),
        Request::Signal {
            jobs,
            signal,
            to_script,
        } => said(service.head().signal(&jobs, signal, to_script, caller)),
        Request::Requeue { jobs } => said(service.head().run_again(&jobs, caller)),
        Request::Explain { job } => said(service.head().explain(job, caller)),
        Request::When { slots, limit_s } => service.head().when(slots, limit_s),
        Request::Set { words } if !words.is_empty() && !caller.is_master => Answer::Failed(
            "the right to change the rules of the system's queue is root's; margay set without more shows them"
                .into(),
        ),
        Request::Set { words } => said(service.head().set(&words)),
        Request::Machine => Answer::Machine(service.head().machine()),
        Request::Stop { .. } if !caller.is_master => Answer::Failed(
            "the right to end the system's queue is root's; margay cancel --all ends your jobs".into(),
        ),
        Request::Stop { leave } => {
            let machine = service.head().machine();
            if machine.running > 0 && !leave {
                return Answer::Failed(format!(
                    "{} jobs run; wait for them: margay wait --all, or end them: margay cancel --all, or leave them \
                     running until the next margay up: margay down --leave",
                    machine.running
                ));
            }
            service.is_left.store(machine.running > 0, Ordering::SeqCst);
            service.is_over.store(true, Ordering::SeqCst);
            Answer::Done(String::new())
        }
    }
}

/// Waits until jobs have ended, or nobody listens any more.
fn wait(service: &Service, targets: &[Target], caller: &Caller, stream: &UnixStream) -> Answer {
    let mut head = service.head();
    // Of all jobs, a user means their own.
    let jobs = match targets {
        [] => head.changeable(targets, caller),
        _ => head.live(targets),
    };
    let jobs = match jobs {
        Ok(jobs) => jobs,
        Err(text) => return Answer::Failed(text),
    };
    let mut left = jobs.clone();
    let mut poll = PollSet::default();
    loop {
        // One that has not ended is enough to go on, so each is looked at about once.
        while left.last().is_some_and(|id| !head.is_live(*id)) {
            left.pop();
        }
        if left.is_empty() {
            break;
        }
        if service.is_over.load(Ordering::SeqCst) {
            let text = "the head of the queue ends; the jobs go on with the next margay up";
            return Answer::Failed(text.into());
        }
        let (locked, timeout) = service
            .ended
            .wait_timeout(head, LISTENS)
            .unwrap_or_else(PoisonError::into_inner);
        head = locked;
        if timeout.timed_out() {
            poll.clear();
            let place = poll.add_readable(stream.as_fd());
            if poll.wait(Some(Duration::ZERO)).is_ok() && poll.ready(place).hung_up {
                return Answer::Failed("nobody listens".into());
            }
        }
    }
    listed(match targets {
        // Those that were there when it began.
        [] => head.rows_of(&jobs),
        _ => head.rows(false, targets, caller),
    })
}
