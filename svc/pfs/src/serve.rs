//! The service as a process: its socket, its timer, and its end.

use std::fs;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use margay_job_partitions::Store;
use margay_sys_os::cpu;
use margay_sys_os::descriptor::PollSet;
use margay_sys_os::port::is_trusted;
use margay_sys_os::process::lead_session;
use margay_sys_os::signal::{SignalFd, SignalSet};

use crate::disks::Others;
use crate::registry::{self, Known};
use crate::service::Service;
use crate::wire::{self, Answer};

/// What the service says on its standard output when it can be used.
pub const READY: &str = "ready";

/// What was written is synced at least this often.
const SYNC_EVERY: Duration = Duration::from_secs(1);

/// Commands that are served at the same time.
const MOST_COMMANDS: usize = 16;

/// How long the other side may take to send a request, or to take a part of an answer.
const HEARD_WITHIN: Duration = Duration::from_secs(10);

/// Numbers of SIGHUP, SIGINT and SIGTERM of Linux.
const ENDING: [i32; 3] = [1, 2, 15];

/// Runs the service until it is asked to stop; that of a job until its standard input ends.
///
/// # Errors
/// In words; the first line of the standard output has them as well.
pub fn serve(known: &Known, deadline: Duration, others: Others) -> Result<(), String> {
    lead_session();
    let is_owned = others.owner.is_some();
    // Before there are other threads, so that all of them have the signals blocked.
    let set = SignalSet::of(&ENDING);
    set.block();
    use_io_cores();
    let begun = begin(known, deadline, others, &set);
    let said = match &begun {
        Ok(_) => READY.to_owned(),
        Err(text) => text.replace('\n', " "),
    };
    let mut stdout = io::stdout();
    let _ = writeln!(stdout, "{said}").and_then(|()| stdout.flush());
    let (service, listener, signals) = begun?;
    let timer = Arc::clone(&service);
    // It ends with the process: a directory that does not answer holds it up, and nothing else.
    std::thread::spawn(move || keep_synced(&timer));
    attend(&service, &listener, signals, is_owned);
    service.end();
    service.release();
    let _ = fs::remove_file(registry::beside(&known.name, "sock")?);
    Ok(())
}

/// Leaves the cores of other partitions to programs, where `.io` has some of its own.
pub fn use_io_cores() {
    if let Some(cores) = Store::io_cores()
        && let Err(error) = cpu::bind_thread(0, &cores)
    {
        eprintln!("cannot use the cores {cores:?} of the partition .io: {error}; others serve");
    }
}

fn begin(
    known: &Known,
    deadline: Duration,
    others: Others,
    set: &SignalSet,
) -> Result<(Arc<Service>, UnixListener, SignalFd), String> {
    // The directory in which it was started may be unmounted.
    let _ = std::env::set_current_dir("/");
    let signals =
        SignalFd::new(set).map_err(|error| format!("cannot wait for signals: {error}"))?;
    let service = Service::open(known, deadline, others)?;
    // Nobody else has the stripe directories, so a socket that is there is a dead one's.
    let path = registry::beside(&known.name, "sock")?;
    let _ = fs::remove_file(&path);
    let listener = UnixListener::bind(&path)
        .and_then(|listener| {
            fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).map(|()| listener)
        })
        .map_err(|error| format!("cannot listen at {}: {error}", path.display()))?;
    service.go_on();
    Ok((service, listener, signals))
}

/// Syncs what was written, goes on with rebuilds, and tells what happened, in time.
fn keep_synced(service: &Arc<Service>) {
    let mut was_failing = false;
    loop {
        std::thread::sleep(SYNC_EVERY);
        let synced = service.store.sync();
        if let (Err(fault), false) = (&synced, was_failing) {
            eprintln!("what was written cannot be synced: {fault}");
        }
        was_failing = synced.is_err();
        service.use_spares();
        service.go_on();
        for event in service.collect_events() {
            eprintln!("{event}");
        }
    }
}

/// Serves commands until a signal says that it is the end, or the owner is gone.
fn attend(service: &Arc<Service>, listener: &UnixListener, mut signals: SignalFd, is_owned: bool) {
    let stdin = io::stdin();
    let commands = Arc::new(AtomicUsize::new(0));
    let mut poll = PollSet::default();
    loop {
        poll.clear();
        let asked = poll.add_readable(listener.as_fd());
        let signalled = poll.add_readable(signals.as_fd());
        let owner = is_owned.then(|| poll.add_readable(stdin.as_fd()));
        if poll.wait(None).is_err() {
            return;
        }
        if poll.ready(signalled).readable && signals.take().is_some() {
            return;
        }
        if owner.is_some_and(|owner| poll.ready(owner).readable) {
            return;
        }
        if poll.ready(asked).readable {
            match listener.accept() {
                Ok((stream, _)) => admit(service, stream, &commands),
                // Without a free descriptor: some are free when a command has ended.
                Err(_) => std::thread::sleep(SYNC_EVERY / 10),
            }
        }
    }
}

/// Serves a command in a thread of its own.
fn admit(service: &Arc<Service>, mut stream: UnixStream, commands: &Arc<AtomicUsize>) {
    if commands.fetch_add(1, Ordering::SeqCst) >= MOST_COMMANDS {
        commands.fetch_sub(1, Ordering::SeqCst);
        let busy = "the service has too many commands; try again when some have ended";
        let _ = wire::answer(&mut stream, &Answer::End(Err(busy.into())));
        return;
    }
    let (service, commands) = (Arc::clone(service), Arc::clone(commands));
    std::thread::spawn(move || {
        converse(&service, &mut stream);
        commands.fetch_sub(1, Ordering::SeqCst);
    });
}

fn converse(service: &Arc<Service>, stream: &mut UnixStream) {
    // The folder of the socket keeps others out already.
    if !is_trusted(stream.as_fd()) {
        let _ = wire::answer(
            stream,
            &Answer::End(Err("the service belongs to another user".into())),
        );
        return;
    }
    // Who says nothing, or does not hear, is not waited for.
    let _ = stream.set_read_timeout(Some(HEARD_WITHIN));
    let _ = stream.set_write_timeout(Some(HEARD_WITHIN));
    let Ok(words) = wire::asked(stream) else {
        return;
    };
    let done = service.run(&words, &mut |text| {
        // Who asked may have gone; what was asked is done all the same.
        let _ = wire::answer(stream, &Answer::Text(text));
    });
    let is_over = words == ["stop"] && service.is_over();
    let _ = wire::answer(stream, &Answer::End(done));
    if is_over {
        if let Ok(path) = registry::beside(&service.name, "sock") {
            let _ = fs::remove_file(path);
        }
        // Who asked sees the end of the connection when the process is gone, and the stripe
        // directories with it.
        service.release();
        std::process::exit(0);
    }
}
