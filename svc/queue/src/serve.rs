//! The head as a process: its socket, its signals, its supervisors, and its end.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::{Duration, Instant};

use margay_core_queue::JobId;
use margay_svc_queue_wire::{
    Answer, Detail, JobRow, MachineSpec, PROGRAM, READY, Request, Target, hosts_of, read_within,
    write,
};
use margay_sys_os::descriptor::PollSet;
use margay_sys_os::port::peer;
use margay_sys_os::process::{Reaped, beside, lead_session, reap};
use margay_sys_os::signal::{SIGCHLD, SIGHUP, SIGINT, SIGTERM, SignalSet};

use crate::callers::{Admitted, Caller, Loads, unheard};
use crate::head::{ANSWERED_WITHIN, Head};
use crate::standby::{self, Watch};
use crate::start::{NO_DATABASE, Waits, Wanted, await_end, lead, machine_file, own_shell, prepare};
use crate::store::{self, Sought, Standby, Store, Which};

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
    /// Another head leads.
    is_lost: AtomicBool,
    /// The machine of the next head is that of this one, which has left jobs.
    is_left: AtomicBool,
    /// Who asks how much. In the queue of all users, each counts for itself.
    loads: Arc<Loads>,
    is_system: bool,
}

impl Service {
    fn of(head: Head, wanted: &Wanted, waits: &Waits) -> Result<Arc<Service>, String> {
        let system = |error: io::Error| format!("the head of the queue cannot start: {error}");
        let service = Arc::new(Service {
            head: Mutex::new(head),
            ended: Condvar::new(),
            wake: waits.wake.try_clone().map_err(system)?,
            is_over: AtomicBool::new(false),
            is_lost: AtomicBool::new(false),
            is_left: AtomicBool::new(true),
            loads: Loads::new(wanted.is_system),
            is_system: wanted.is_system,
        });
        if waits.url.is_some() {
            let held = Arc::clone(&service);
            std::thread::Builder::new()
                .spawn(move || hold_store(&held))
                .map_err(system)?;
        }
        Ok(service)
    }

    /// What a thread that panicked had is as good as its last change: each is made whole.
    fn head(&self) -> MutexGuard<'_, Head> {
        self.head.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wake(&self) {
        // A full pipe wakes as well.
        let _ = (&self.wake).write(&[1]);
    }
}

/// Why the head ends.
enum Over {
    Asked,
    /// Another one leads.
    Lost,
}

/// Runs the head until it is asked to end. One that finds that another one leads now stands by for
/// it from then on.
///
/// # Errors
/// In words; the first line of the standard output has them as well.
pub fn serve(wanted: &Wanted) -> Result<(), String> {
    lead_session();
    // Before there are other threads, so that all of them have the signals blocked.
    let set = SignalSet::of(&[SIGHUP, SIGINT, SIGTERM, SIGCHLD]);
    set.block();
    let say = |text: &str| {
        let mut stdout = io::stdout();
        let _ = writeln!(stdout, "{}", text.replace('\n', " ")).and_then(|()| stdout.flush());
    };
    let begun = prepare(wanted, &set).and_then(|mut waits| {
        let head = match wanted.is_standby {
            false => Some(lead(wanted, &mut waits, None)?),
            true => first_look(wanted, &mut waits)?,
        };
        Ok((head, waits))
    });
    let (mut head, mut waits) = begun.inspect_err(|text| say(text))?;
    say(READY);
    let mut problem = String::new();
    let head = loop {
        if let Some(head) = head.take() {
            break head;
        }
        let Some(store) = stand_by(wanted, &mut waits, &problem)? else {
            waits.remove();
            return Ok(());
        };
        match lead(wanted, &mut waits, Some(store)) {
            Ok(led) => {
                crate::log("this head leads now");
                head = Some(led);
            }
            // Its lock is free for others, and it is tried again.
            Err(text) => {
                if text != problem {
                    crate::log(&text);
                }
                problem = text;
                std::thread::sleep(RETRY);
            }
        }
    };
    let service = Service::of(head, wanted, &waits)?;
    let over = attend(&service, &mut waits);
    see_off(&service);
    service.head().end_hosts();
    if !service.is_left.load(Ordering::SeqCst) {
        let _ = fs::remove_file(machine_file(&waits.place));
    }
    let closed = service.head().close();
    match over {
        Over::Asked => {
            waits.remove();
            closed
        }
        Over::Lost => Err(stand_by_anew(wanted, &waits)),
    }
}

/// Begins as a head that stands by; as the one that leads, where no other one does.
fn first_look(wanted: &Wanted, waits: &mut Waits) -> Result<Option<Head>, String> {
    let Some(url) = &waits.url else {
        return Err(NO_DATABASE.into());
    };
    let mut standby = Standby::new(url, waits.candidate()?);
    let found = standby.take().and_then(|found| match found {
        Some(store) => Ok(Some(store)),
        None => standby.say().map(|_| None),
    });
    match found {
        // One that led before waits for a database that is away.
        Err(text) if !wanted.is_back => return Err(text),
        Ok(Some(store)) => return lead(wanted, waits, Some(store)).map(Some),
        _ => {}
    }
    waits.remember_store()?;
    waits.listen()?;
    Ok(None)
}

/// Waits until no other head leads; nothing when it is to end before.
fn stand_by(wanted: &Wanted, waits: &mut Waits, problem: &str) -> Result<Option<Store>, String> {
    let own = waits.candidate()?;
    let (Some(url), Some(listener)) = (&waits.url, &waits.listener) else {
        return Err(NO_DATABASE.into());
    };
    let watch = Watch {
        listener,
        signals: &mut waits.signals,
        woken: &waits.woken,
        wake: &waits.wake,
        own: own.clone(),
        shell: own_shell(wanted.spec.as_ref()),
        problem: problem.to_owned(),
        is_system: wanted.is_system,
    };
    Ok(standby::stand_by(watch, Standby::new(url, own)))
}

/// Becomes a process that stands by; returns only with the reason why that failed.
fn stand_by_anew(wanted: &Wanted, waits: &Waits) -> String {
    waits.remove();
    let mut words = vec!["serve".to_owned()];
    if wanted.is_system {
        words.push("--system".into());
    }
    words.extend(["--standby", "--back"].map(str::to_owned));
    words.extend(wanted.spec.iter().flat_map(MachineSpec::words));
    match beside(PROGRAM) {
        // Its log is this one's.
        Ok(program) => {
            let error = Command::new(program).args(words).exec();
            format!("cannot stand by: {error}")
        }
        Err(error) => format!("cannot stand by: {error}"),
    }
}

/// Serves commands and looks after jobs until it is the end.
fn attend(service: &Arc<Service>, waits: &mut Waits) -> Over {
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
        let asked = waits
            .listener
            .as_ref()
            .map(|l| poll.add_readable(l.as_fd()));
        let signalled = poll.add_readable(waits.signals.as_fd());
        poll.add_readable(waits.woken.as_fd());
        let (pause, have_ended, released) = {
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
            let released = head.is_released();
            let next = match is_unfinished || is_unstarted || released.is_some() {
                true => Some(RETRY),
                // The clock may be set: so it is looked at from time to time.
                false => head.pause_s().map(|s| Duration::from_secs(s).min(CLOCK)),
            };
            let pause = idle.into_iter().chain(next).min();
            (pause, head.take_ended(), released)
        };
        if released == Some(true) {
            let has_jobs = service.head().machine().running > 0;
            service.is_left.store(has_jobs, Ordering::SeqCst);
            service.is_over.store(true, Ordering::SeqCst);
        }
        let is_over = service.is_over.load(Ordering::SeqCst);
        if have_ended || is_over {
            service.ended.notify_all();
        }
        if is_over {
            return match service.is_lost.load(Ordering::SeqCst) {
                true => Over::Lost,
                false => Over::Asked,
            };
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
                    return Over::Asked;
                }
            }
        }
        while matches!(waits.woken.read(&mut bytes), Ok(count) if count > 0) {}
        let asked = asked.filter(|asked| poll.ready(*asked).readable);
        if let Some(listener) = waits.listener.as_ref().filter(|_| asked.is_some()) {
            match listener.accept() {
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
                crate::log(&format!("{text}; this one stands by"));
                service.is_lost.store(true, Ordering::SeqCst);
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
    let processes = service.head().dismiss_all();
    await_end(processes, GONE_WITHIN);
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

const BUSY: &str = "the head of the queue has too many commands; try again when some have ended";

/// Serves a command in a thread of its own.
fn admit(service: &Arc<Service>, mut stream: UnixStream) {
    // Who says nothing, or does not hear, is not waited for.
    let _ = stream.set_nonblocking(false);
    let _ = stream.set_read_timeout(Some(HEARD_WITHIN));
    let _ = stream.set_write_timeout(Some(HEARD_WITHIN));
    let uid = peer(stream.as_fd()).unwrap_or(u32::MAX);
    let Some(admitted) = service.loads.admit(uid) else {
        let _ = write(&mut stream, &Answer::Failed(BUSY.into()));
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
    if service.is_system && caller.is_elsewhere {
        // It counts as that of its user, and not of root's agent.
        match service.loads.admit(caller.uid) {
            Some(own) => admitted = own,
            None => {
                let _ = write(&mut stream, &Answer::Failed(BUSY.into()));
                return;
            }
        }
    }
    let request = match read_within(&mut stream, &mut |bytes| admitted.has_room(bytes)) {
        Ok(request) => request,
        Err(error) => {
            let text = unheard(&error, admitted.most_bytes);
            let _ = write(&mut stream, &Answer::Failed(text));
            return;
        }
    };
    let (request, caller, _own) = match request {
        Request::As { owner, request } if service.is_system && caller.uid == 0 => {
            let Some(own) = service.loads.admit(owner.uid) else {
                let _ = write(&mut stream, &Answer::Failed(BUSY.into()));
                return;
            };
            (*request, Caller::as_owner(owner, true), Some(own))
        }
        request => (request, caller, None),
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

fn detailed(done: Result<Vec<Detail>, String>) -> Answer {
    let values = done.map(|details| {
        let values = details.iter().map(serde_json::value::to_raw_value);
        values.collect::<Result<_, _>>()
    });
    match values {
        Ok(Ok(values)) => Answer::Details(values),
        Ok(Err(error)) => Answer::Failed(error.to_string()),
        Err(text) => Answer::Failed(text),
    }
}

fn answer(service: &Service, request: Request, caller: &Caller, stream: &UnixStream) -> Answer {
    if !matches!(request, Request::Stop { .. })
        && let Err(text) = service.head().hear_store()
    {
        return Answer::Gone(text);
    }
    match request {
        Request::Submit { shared, orders } => service.head().submit(shared, &orders, caller),
        Request::List { has_steps, jobs } => listed(service.head().rows(&jobs, has_steps, caller)),
        Request::Show { has_steps, jobs } => {
            detailed(service.head().all_of(&jobs, has_steps, caller))
        }
        Request::Ended {
            second,
            job,
            is_whole,
        } => {
            let after = Which::After(second, job);
            match is_whole {
                true => detailed(service.head().all_of_ended(after, caller)),
                false => listed(service.head().rows_of_ended(after, caller)),
            }
        }
        Request::Numbers => match service.head().numbers(caller) {
            Ok(jobs) => Answer::Accepted(jobs),
            Err(text) => Answer::Failed(text),
        },
        Request::Wait { jobs } => wait(service, &jobs, caller, stream),
        Request::Cancel { jobs } => said(service.head().cancel(&jobs, caller)),
        Request::Hold { jobs, is_held } => said(service.head().hold(&jobs, is_held, caller)),
        Request::Change { jobs, change } => said(service.head().change(&jobs, &change, caller)),
        Request::Signal {
            jobs,
            signal,
            to_script,
        } => said(service.head().signal(&jobs, signal, to_script, caller)),
        Request::Requeue { jobs } => said(service.head().run_again(&jobs, caller)),
        Request::Explain { job } => said(service.head().explain(job, caller)),
        Request::When {
            slots,
            nodes,
            limit_s,
        } => service.head().when(slots, nodes, limit_s),
        Request::Set { words } if !words.is_empty() && !caller.is_master => Answer::Failed(
            "the right to change the rules of the system's queue is root's; margay set without more shows them"
                .into(),
        ),
        Request::Set { words } if words[..].first().is_some_and(|word| word == "hosts") => {
            said(change_hosts(service, &words[1..]))
        }
        Request::Set { words } => said(service.head().set(&words)),
        Request::Machine => Answer::Machine(service.head().machine()),
        Request::As { .. } => Answer::Failed(
            "the right to ask for others is root's, in the queue of all users".into(),
        ),
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

/// Changes the hosts of the machine, and waits until new ones have answered, for a while.
fn change_hosts(service: &Service, words: &[String]) -> Result<String, String> {
    let mut head = service.head();
    match words {
        [add, list] if add == "add" => {
            let hosts = hosts_of(list).ok_or("these are no hosts")?;
            head.add_hosts(&hosts)?;
            service.wake();
            let end = Instant::now() + ANSWERED_WITHIN;
            while !head.have_answered(&hosts) && Instant::now() < end {
                (head, _) = (service.ended.wait_timeout(head, LISTENS))
                    .unwrap_or_else(PoisonError::into_inner);
            }
            Ok(String::new())
        }
        [how, names @ ..] => head
            .remove_hosts(names, how == "remove-now")
            .map(|()| String::new()),
        [] => Err("say which hosts: margay node add HOST".into()),
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
            let is_followed =
                service.is_lost.load(Ordering::SeqCst) || !head.machine().standbys.is_empty();
            return match is_followed {
                true => Answer::Gone(text.into()),
                false => Answer::Failed(text.into()),
            };
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
        _ => head.rows(targets, true, caller),
    })
}
