//! A head that stands by: it looks whether the one that leads is still there, and takes its place
//! when it is not. Commands of its host get their answers from the one that leads, over the remote
//! shell. The lock of the database's server says who leads (`pg_advisory_lock`): its session ends
//! with the head or its host, 8 s later at most.

use std::io::{self, ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::{Child, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use margay_svc_queue_wire::{Answer, MachineSpec, PROGRAM, Request, read_within, write};
use margay_sys_os::descriptor::PollSet;
use margay_sys_os::port::is_trusted;
use margay_sys_os::process::{PidFd, beside};
use margay_sys_os::signal::{SIGCHLD, SignalFd, take_defaults_in};

use crate::callers::{Loads, owner_of, unheard};
use crate::files;
use crate::head::refuses_interactive;
use crate::shell::{command, quoted};
use crate::start::shell;
use crate::store::{Candidate, Leader, Place, Standby, Store};

/// How often it is seen whether the lock is free.
const LOOK: Duration = Duration::from_millis(250);

/// How long the database may take to hear that it stands by no more.
const ENDED_WITHIN: Duration = Duration::from_secs(2);

/// How often it says that it is there.
const SAY: Duration = Duration::from_secs(1);

/// How often what runs here is compared with what the queue knows.
const COMPARE: Duration = Duration::from_secs(5);

/// How long a command may take to send its request.
const HEARD_WITHIN: Duration = Duration::from_secs(10);

/// How long one that has just begun may take to find the head.
const KNOWN_WITHIN: Duration = Duration::from_secs(3);

/// Most bytes that are kept of what the remote shell prints on its standard error.
const MOST_SAID: u64 = 2048;

/// What the threads share.
struct Shared {
    /// Where the head is, as far as it is known.
    leader: Mutex<Option<Leader>>,
    /// Why there is none, if that is known.
    problem: Mutex<String>,
    /// The words of the remote shell, where they are not those of the head's machine.
    shell: Option<Vec<String>>,
    is_over: AtomicBool,
    /// This head leads now.
    is_found: AtomicBool,
    /// The remote shells of commands that wait for their answers.
    ways: Mutex<Vec<PidFd>>,
    /// Who asks how much.
    loads: Arc<Loads>,
}

impl Shared {
    fn ways(&self) -> MutexGuard<'_, Vec<PidFd>> {
        self.ways.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn leader(&self) -> Option<Leader> {
        let leader = self.leader.lock();
        leader.unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn problem(&self) -> MutexGuard<'_, String> {
        self.problem.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is said where no head can be asked.
    fn without_leader(&self) -> String {
        if self.is_found.load(Ordering::SeqCst) {
            return "this host has the head of the queue now: ask again".into();
        }
        match &**self.problem() {
            "" => "no head of the queue leads; this host takes over within 10 s: ask again then"
                .into(),
            problem => format!("no head of the queue can be asked: {problem}"),
        }
    }
}

/// What a head that stands by works with.
pub struct Watch<'a> {
    pub listener: &'a UnixListener,
    pub signals: &'a mut SignalFd,
    /// Readable when a thread has something.
    pub woken: &'a UnixStream,
    pub wake: &'a UnixStream,
    pub own: Candidate,
    /// The words of the remote shell, where they are not those of the head's machine.
    pub shell: Option<Vec<String>>,
    /// Why this head could not lead before, if it could not.
    pub problem: String,
    pub is_system: bool,
}

/// Stands by until no other head leads; returns the store, or nothing when it is to end.
pub fn stand_by(mut watch: Watch<'_>, standby: Standby) -> Option<Store> {
    let shared = Arc::new(Shared {
        leader: Mutex::new(None),
        problem: Mutex::new(watch.problem.clone()),
        shell: watch.shell.clone(),
        is_over: AtomicBool::new(false),
        is_found: AtomicBool::new(false),
        ways: Mutex::default(),
        loads: Loads::new(watch.is_system),
    });
    let (sender, found) = mpsc::channel();
    let wake = watch.wake.try_clone().ok()?;
    let (own, looking) = (watch.own.clone(), Arc::clone(&shared));
    let looker =
        std::thread::Builder::new().spawn(move || look(standby, &own, &looking, &sender, &wake));
    let looker = looker.map_err(|error| crate::log(&format!("cannot look for the head: {error}")));
    let found = attend(&mut watch, &shared, &found);
    shared.is_found.store(found.is_some(), Ordering::SeqCst);
    shared.is_over.store(true, Ordering::SeqCst);
    // A head that is stopped answers nothing.
    for way in &*shared.ways() {
        way.kill();
    }
    if let Ok(looker) = looker {
        // A server that is away may keep it for long, at the end.
        let end = Instant::now() + ENDED_WITHIN;
        while found.is_none() && !looker.is_finished() && Instant::now() < end {
            std::thread::sleep(LOOK / 10);
        }
        if found.is_some() || looker.is_finished() {
            let _ = looker.join();
        }
    }
    found
}

fn attend(watch: &mut Watch<'_>, shared: &Arc<Shared>, found: &Receiver<Store>) -> Option<Store> {
    let mut poll = PollSet::default();
    let mut bytes = [0; 64];
    loop {
        poll.clear();
        let asked = poll.add_readable(watch.listener.as_fd());
        let signalled = poll.add_readable(watch.signals.as_fd());
        poll.add_readable(watch.woken.as_fd());
        if poll.wait(None).is_err() {
            std::thread::sleep(LOOK);
        }
        while let (true, Some(received)) = (poll.ready(signalled).readable, watch.signals.take()) {
            if received.signal != SIGCHLD {
                return None;
            }
        }
        let mut woken = watch.woken;
        while matches!(woken.read(&mut bytes), Ok(count) if count > 0) {}
        if let Ok(store) = found.try_recv() {
            return Some(store);
        }
        if shared.is_over.load(Ordering::SeqCst) {
            return None;
        }
        if poll.ready(asked).readable
            && let Ok((stream, _)) = watch.listener.accept()
        {
            admit(watch, shared, stream);
        }
    }
}

/// Looks for the lock again and again.
fn look(
    mut standby: Standby,
    own: &Candidate,
    shared: &Shared,
    found: &Sender<Store>,
    wake: &UnixStream,
) {
    let mut last = String::new();
    let (mut said, mut compared) = (None::<Instant>, None::<Instant>);
    let is_due = |at: &mut Option<Instant>, every: Duration| {
        let is_due = at.is_none_or(|at| at.elapsed() >= every);
        if is_due {
            *at = Some(Instant::now());
        }
        is_due
    };
    while !shared.is_over.load(Ordering::SeqCst) {
        let mut step = || -> Result<Option<Store>, String> {
            if let Some(store) = standby.take()? {
                return Ok(Some(store));
            }
            if is_due(&mut said, SAY) {
                let leader = standby.say()?;
                *(shared.leader.lock()).unwrap_or_else(PoisonError::into_inner) = leader;
            }
            if is_due(&mut compared, COMPARE) {
                let jobs = Path::new(&own.place.folder).join("jobs");
                let running = standby.running()?;
                let queue = standby.queue()?;
                files::clear(&jobs, &queue, &files::names_of(&running));
            }
            Ok(None)
        };
        let text = match step() {
            Ok(Some(store)) => {
                let _ = found.send(store);
                let _ = (&mut &*wake).write(&[1]);
                return;
            }
            Ok(None) => String::new(),
            Err(text) => text,
        };
        if text != last {
            if !text.is_empty() {
                crate::log(&text);
            }
            shared.problem().clone_from(&text);
        }
        last = text;
        std::thread::sleep(LOOK);
    }
    standby.end();
}

/// Serves a command in a thread of its own.
fn admit(watch: &Watch<'_>, shared: &Arc<Shared>, mut stream: UnixStream) {
    let _ = stream.set_nonblocking(false);
    let _ = stream.set_read_timeout(Some(HEARD_WITHIN));
    let _ = stream.set_write_timeout(Some(HEARD_WITHIN));
    let refuse = |mut stream: UnixStream, why: &str| {
        let _ = write(&mut stream, &Answer::Failed(why.into()));
    };
    // The remote shell is root's: for others it says for whom.
    let owner = match watch.is_system {
        true => match owner_of(&stream) {
            Ok(owner) => Some(owner).filter(|owner| owner.uid != 0),
            Err(error) => {
                return refuse(
                    stream,
                    &format!("the system does not say who asks: {error}"),
                );
            }
        },
        false if is_trusted(stream.as_fd()) => None,
        false => return refuse(stream, "the queue belongs to another user"),
    };
    let uid = owner.as_ref().map_or(0, |owner| owner.uid);
    let Some(mut admitted) = shared.loads.admit(uid) else {
        return refuse(
            stream,
            "too many commands at once; try again when some have ended",
        );
    };
    let (shared, wake) = (Arc::clone(shared), watch.wake.try_clone());
    let serve = move || {
        let heard = read_within(&mut stream, &mut |bytes| admitted.has_room(bytes));
        let passed = match (heard, owner) {
            (Ok(Request::Stop { .. }), Some(_)) => {
                let text = "the right to end the system's queue is root's";
                Err(Unpassed::Failed(text.into()))
            }
            (Ok(Request::Stop { .. }), None) => {
                let _ = write(&mut stream, &Answer::Done(String::new()));
                shared.is_over.store(true, Ordering::SeqCst);
                if let Ok(wake) = wake {
                    let _ = (&wake).write(&[1]);
                }
                // Who asked sees the end of the connection when the process is gone.
                std::mem::forget(stream);
                return;
            }
            (Ok(request), None) => pass_on(&shared, &stream, &request),
            (Ok(request), Some(owner)) => {
                let request = Box::new(request);
                pass_on(&shared, &stream, &Request::As { owner, request })
            }
            (Err(error), _) => Err(Unpassed::Failed(unheard(&error, admitted.most_bytes))),
        };
        if let Err(why) = passed {
            let _ = write(&mut stream, &why.answer());
        }
    };
    let _ = std::thread::Builder::new().spawn(serve);
}

/// Why a request was not passed on, or not answered.
enum Unpassed {
    /// The next head may answer.
    Gone(String),
    Failed(String),
}

impl Unpassed {
    fn answer(self) -> Answer {
        match self {
            Unpassed::Gone(text) => Answer::Gone(text),
            Unpassed::Failed(text) => Answer::Failed(text),
        }
    }
}

/// Passes a request on to the head, and its answer back.
fn pass_on(shared: &Shared, stream: &UnixStream, request: &Request) -> Result<(), Unpassed> {
    let end = Instant::now() + KNOWN_WITHIN;
    let mut leader = shared.leader();
    while leader.is_none() && Instant::now() < end && !shared.is_over.load(Ordering::SeqCst) {
        std::thread::sleep(LOOK / 10);
        leader = shared.leader();
    }
    let Some(Leader { place, machine }) = leader else {
        return Err(Unpassed::Gone(shared.without_leader()));
    };
    let host = &place.host;
    let words: Vec<&str> = machine.lines().collect();
    let spec = MachineSpec::of(&words);
    let shell = shared.shell.clone().unwrap_or_else(|| shell(spec.as_ref()));
    let failed = |error: io::Error| {
        Unpassed::Failed(format!("the head on host {host} cannot be asked: {error}"))
    };
    let program = beside(PROGRAM).map_err(failed)?;
    let asked = match request {
        Request::As { request, .. } => request,
        request => request,
    };
    if let Request::Submit { orders, .. } = asked
        && let Some(text) = refuses_interactive(orders, &program, host)
    {
        return Err(Unpassed::Failed(text));
    }
    let mut first = Vec::new();
    write(&mut first, request).map_err(failed)?;
    let mut child = start(&place, &shell).map_err(|error| {
        let shell = shell.join(" ");
        Unpassed::Failed(format!("cannot run '{shell}' to ask the head on host {host}: {error}; name another remote shell by MARGAY_RSH"))
    })?;
    {
        let mut ways = shared.ways();
        ways.retain(|way| !way.has_ended());
        ways.push(PidFd::open(child.id()).map_err(failed)?);
    }
    if shared.is_over.load(Ordering::SeqCst) {
        let _ = child.kill();
    }
    let (Some(mut input), Some(mut output)) = (child.stdin.take(), child.stdout.take()) else {
        return Err(Unpassed::Failed("the remote shell has no pipes".into()));
    };
    let mut asks = stream.try_clone().map_err(failed)?;
    // One that waits for jobs says nothing more until they have ended.
    let _ = asks.set_read_timeout(None);
    let asking = std::thread::Builder::new().spawn(move || {
        // The other side closes its input when nobody asks any more.
        let _ = input.write_all(&first);
        let _ = pump(&mut asks, &mut input);
    });
    asking.map_err(failed)?;
    let errors = child.stderr.take();
    let saying = std::thread::Builder::new().spawn(move || {
        let mut said = Vec::new();
        if let Some(errors) = errors {
            let mut first = errors.take(MOST_SAID);
            let _ = first.read_to_end(&mut said);
            // It must not wait for room in the pipe.
            let _ = io::copy(&mut first.into_inner(), &mut io::sink());
        }
        said
    });
    let saying = saying.map_err(failed)?;
    let mut answers = stream;
    let greeted = behind_greeting(&mut output);
    let has_reached = greeted.is_ok();
    let answered = greeted.and_then(|()| pump(&mut output, &mut answers));
    drop(output);
    let _ = child.kill();
    let status = child.wait();
    let is_unanswered = match answered {
        Ok(count) => count == 0,
        Err(error) => error.kind() == ErrorKind::UnexpectedEof,
    };
    if !is_unanswered {
        return Ok(());
    }
    let said = saying.join().unwrap_or_default();
    let said = String::from_utf8_lossy(&said)
        .trim_end()
        .replace('\n', "; ");
    let text = unanswered(shared, host, has_reached, status, &said);
    Err(Unpassed::Gone(text))
}

/// Why a request that was passed on has no answer, and what the command is to do.
fn unanswered(
    shared: &Shared,
    host: &str,
    has_reached: bool,
    status: io::Result<ExitStatus>,
    said: &str,
) -> String {
    const LOOK_FIRST: &str =
        "see with margay queue what it has accepted before you ask again; jobs go on";
    let is_found = shared.is_found.load(Ordering::SeqCst);
    if !is_found && shared.is_over.load(Ordering::SeqCst) {
        return format!(
            "this host stands by no more, and the head on host {host} has not answered: {LOOK_FIRST}"
        );
    }
    match (has_reached, is_found) {
        (true, true) => format!(
            "the head on host {host} did not answer, and this host has the head now: {LOOK_FIRST}"
        ),
        (true, false) => format!(
            "the head on host {host} has ended before it answered; this host takes over within 10 s: {LOOK_FIRST}"
        ),
        (false, true) => shared.without_leader(),
        (false, false) => {
            let status = status.map_or_else(|error| error.to_string(), |status| status.to_string());
            let why = if said.is_empty() { &status } else { said };
            format!(
                "the head on host {host} cannot be reached: {why}; when it is gone, this host takes over within 10 s: ask \
                 again then"
            )
        }
    }
}

/// Copies to the end what comes, as it comes. (With `io::copy` the kernel waits for more from a
/// socket while it keeps who reads the pipe from what lies there.)
fn pump(from: &mut impl Read, to: &mut impl Write) -> io::Result<usize> {
    let mut part = vec![0; 64 << 10];
    let mut all = 0;
    loop {
        match from.read(&mut part) {
            Ok(0) => return Ok(all),
            Ok(count) => {
                all += count;
                to.write_all(&part[..count])?;
                to.flush()?;
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// The first line that the host's side says: start-up files may print something before.
const GREETING: &[u8] = b"\nmargay-queue relay\n";

fn behind_greeting(from: &mut impl Read) -> io::Result<()> {
    let mut last = std::collections::VecDeque::new();
    let mut byte = [0];
    while !last.iter().eq(GREETING) {
        from.read_exact(&mut byte)?;
        last.push_back(byte[0]);
        if last.len() > GREETING.len() {
            last.pop_front();
        }
    }
    Ok(())
}

/// Starts the program on the head's host that reaches the head there.
fn start(leader: &Place, shell: &[String]) -> io::Result<Child> {
    let words = format!("relay {}", quoted(&leader.folder));
    let mut command = command(&leader.host, shell, &words)?;
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    take_defaults_in(&mut command).spawn()
}

/// The host's side: passes on what comes over the standard input to the head of a folder, and its
/// answer.
///
/// # Errors
/// In words: there is no head.
pub fn relay(folder: &Path) -> Result<(), String> {
    let failed = |error: io::Error| format!("the head of the queue cannot be reached: {error}");
    let address = std::fs::read_to_string(folder.join("address")).map_err(failed)?;
    let mut stream = UnixStream::connect(address.trim_end()).map_err(failed)?;
    let mut output = io::stdout();
    output.write_all(GREETING).map_err(failed)?;
    output.flush().map_err(failed)?;
    let mut asks = stream.try_clone().map_err(failed)?;
    std::thread::Builder::new()
        .spawn(move || {
            let _ = pump(&mut io::stdin(), &mut asks);
            // Nobody listens any more.
            let _ = asks.shutdown(Shutdown::Both);
        })
        .map_err(failed)?;
    pump(&mut stream, &mut output).map_err(failed)?;
    Ok(())
}
