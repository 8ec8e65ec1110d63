//! The head as a process: its socket, its signals, its supervisors, and its end.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::{Duration, Instant};

use margay_core_queue::JobId;
use margay_svc_queue_wire::{
    Answer, MOST_BYTES, MachineSpec, PROGRAM, Place, READY, Request, read, write,
};
use margay_sys_os::descriptor::{PollSet, set_nonblocking};
use margay_sys_os::port::{is_trusted, peer};
use margay_sys_os::process::{Reaped, beside, host_name, lead_session, reap};
use margay_sys_os::signal::{SIGCHLD, SIGHUP, SIGINT, SIGTERM, SignalFd, SignalSet};

use crate::agent::HostFacts;
use crate::agents::Agents;
use crate::claim::{self, Claimant};
use crate::head::{Head, Hosts, Resources};
use crate::store;

/// Commands that are served at the same time; those that wait for jobs are among them.
const MOST_COMMANDS: usize = 512;

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
    commands: AtomicUsize,
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
pub fn serve(spec: Option<MachineSpec>) -> Result<(), String> {
    lead_session();
    // Before there are other threads, so that all of them have the signals blocked.
    let set = SignalSet::of(&[SIGHUP, SIGINT, SIGTERM, SIGCHLD]);
    set.block();
    let begun = begin(spec, &set);
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

fn begin(spec: Option<MachineSpec>, set: &SignalSet) -> Result<(Arc<Service>, Waits), String> {
    let place = Place::find()?;
    place.make()?;
    let lock = lock(&place.folder)?;
    let system = |error: io::Error| format!("the head of the queue cannot start: {error}");
    let program = beside(PROGRAM).map_err(system)?;
    // The directory in which it was started may be unmounted.
    let _ = std::env::set_current_dir("/");
    let signals = SignalFd::new(set).map_err(system)?;
    let (wake, woken) = UnixStream::pair().map_err(system)?;
    set_nonblocking(wake.as_fd()).map_err(system)?;
    set_nonblocking(woken.as_fd()).map_err(system)?;
    let spec = machine(spec, &place)?;
    let hosts = hosts(&spec, &place, &wake)?;
    let facts = HostFacts::here();
    let resources = Resources {
        host: host_name(),
        slots: spec.slots.unwrap_or(facts.cores).max(1),
        memory_mib: facts.memory_mib,
        folder: place.folder.clone(),
        program,
    };
    let head = Head::open(resources, hosts)?;
    // The name that a head had that was killed.
    if let Ok(old) = fs::read_to_string(place.address()) {
        let _ = fs::remove_file(old.trim_end());
    }
    let socket = place.new_socket()?;
    let _ = fs::remove_file(&socket);
    let listener = UnixListener::bind(&socket)
        .and_then(|listener| {
            fs::set_permissions(&socket, fs::Permissions::from_mode(0o600))?;
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
        commands: AtomicUsize::new(0),
    });
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
    if service.commands.fetch_add(1, Ordering::SeqCst) >= MOST_COMMANDS {
        service.commands.fetch_sub(1, Ordering::SeqCst);
        let busy = "the head of the queue has too many commands; try again when some have ended";
        let _ = write(&mut stream, &Answer::Failed(busy.into()));
        return;
    }
    let service = Arc::clone(service);
    let serve = move || {
        converse(&service, stream);
        service.commands.fetch_sub(1, Ordering::SeqCst);
    };
    // Where there is no room for a thread the connection ends, and the command says so.
    let _ = std::thread::Builder::new().spawn(serve);
}

fn converse(service: &Service, mut stream: UnixStream) {
    // The folder of the socket keeps others out already.
    if !is_trusted(stream.as_fd()) {
        let text = "the queue belongs to another user";
        let _ = write(&mut stream, &Answer::Failed(text.into()));
        return;
    }
    let request = match read(&mut stream) {
        Ok(request) => request,
        Err(error) => {
            let text = match error.kind() {
                ErrorKind::FileTooLarge => {
                    let most = MOST_BYTES >> 20;
                    format!("the request is larger than {most} MiB; send it in several parts")
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
    let answer = answer(service, request, &stream);
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

fn answer(service: &Service, request: Request, stream: &UnixStream) -> Answer {
    match request {
        Request::Submit { shared, orders } => {
            let uid = peer(stream.as_fd()).unwrap_or(u32::MAX);
            service.head().submit(&shared, &orders, uid)
        }
        Request::List { all, jobs } => match service.head().rows(all, &jobs) {
            Ok(rows) => Answer::Jobs(rows),
            Err(text) => Answer::Failed(text),
        },
        Request::Wait { jobs } => wait(service, &jobs, stream),
        Request::Cancel { jobs } => said(service.head().cancel(&jobs)),
        Request::Hold { jobs, is_held } => said(service.head().hold(&jobs, is_held)),
        Request::Show { all, jobs } => match service.head().all_of(all, &jobs) {
            Ok(details) => {
                let values = details.iter().map(serde_json::to_value);
                match values.collect() {
                    Ok(values) => Answer::Details(values),
                    Err(error) => Answer::Failed(error.to_string()),
                }
            }
            Err(text) => Answer::Failed(text),
        },
        Request::Change { jobs, change } => said(service.head().change(&jobs, &change)),
        Request::Signal {
            jobs,
            signal,
            to_script,
        } => said(service.head().signal(&jobs, signal, to_script)),
        Request::Requeue { jobs } => said(service.head().run_again(&jobs)),
        Request::Explain { job } => said(service.head().explain(job)),
        Request::When { slots, limit_s } => service.head().when(slots, limit_s),
        Request::Set { words } => said(service.head().set(&words)),
        Request::Machine => Answer::Machine(service.head().machine()),
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
fn wait(
    service: &Service,
    targets: &[margay_svc_queue_wire::Target],
    stream: &UnixStream,
) -> Answer {
    let mut head = service.head();
    let jobs = match head.live(targets) {
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
    let rows = match targets {
        // Those that were there when it began.
        [] => head.rows_of(&jobs),
        _ => head.rows(false, targets),
    };
    match rows {
        Ok(rows) => Answer::Jobs(rows),
        Err(text) => Answer::Failed(text),
    }
}
