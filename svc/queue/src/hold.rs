//! The other hosts of a job that takes turns on several: what the job starts there by its remote
//! shell becomes a child of this program, which stops and continues all of it with the job, and
//! ends it with the job.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use margay_svc_queue_wire::{Owner, PROGRAM};
use margay_sys_os::credentials::become_user;
use margay_sys_os::descriptor::PollSet;
use margay_sys_os::packets::{Hall, Packets};
use margay_sys_os::port::user;
use margay_sys_os::process::{Halt, Reaped, ReapedUsage, become_subreaper, beside};
use margay_sys_os::signal::{SignalFd, SignalSet, take_defaults_in};

use crate::hearing::HEARD;
use crate::shell::quoted;
use crate::wire::{BEAT, Wire};

/// How long each side of a command's way may take.
const WITHIN: Duration = Duration::from_secs(10);

/// Longest command.
const MOST_BYTES: usize = 32 << 10;

/// The name at which the commands of a job are taken on a host; a socket's is no longer than 107
/// bytes.
fn hall(job: &str, host: &str) -> Vec<u8> {
    format!("margay-hold-{}-{job}-{host:.50}", user()).into_bytes()
}

/// The words of the remote shell of a job: what it starts is held there.
///
/// # Errors
/// When this program is not found.
pub fn shell(job: &str, shell: &[String]) -> io::Result<String> {
    let own = beside(PROGRAM)?;
    let host = |word: &String| word == "%h";
    let behind = if shell.iter().any(host) { "" } else { " %h" };
    Ok(format!(
        "{} into {job} %h {}{behind}",
        own.display(),
        shell.join(" ")
    ))
}

/// Runs the remote shell in the place of this process:
/// `margay-queue into JOB HOST SHELL... COMMAND`.
///
/// # Errors
/// In words; it returns only then.
pub fn into(job: &str, host: &str, words: &[&str]) -> Result<(), String> {
    let [first, between @ .., command] = words else {
        return Err("into is for jobs that take turns".into());
    };
    let failed = |error: io::Error| format!("cannot run '{first}': {error}");
    let own = beside(PROGRAM).map_err(failed)?;
    let line = format!(
        "exec {} within {job} {} {}",
        quoted(&own.display().to_string()),
        quoted(host),
        quoted(command)
    );
    Err(failed(Command::new(first).args(between).arg(line).exec()))
}

/// Has a command run below what holds the job's processes here, on the standard streams of this
/// process; returns its exit code.
///
/// # Errors
/// In words.
pub fn within(job: &str, host: &str, command: &str) -> Result<u8, String> {
    let failed = |error: io::Error| {
        format!("host {host} is none of the job's, or the job has ended there: {error}")
    };
    // As who calls has it, whatever the job's remote shell had.
    let variables = ["HOME", "LOGNAME", "PATH", "SHELL", "USER"].into_iter();
    let variables = variables.filter_map(|name| {
        let value = quoted(&std::env::var(name).ok()?);
        Some(format!("export {name}={value}; "))
    });
    let command = variables.chain([command.to_owned()]).collect::<String>();
    let there = Packets::connect(&hall(job, host), WITHIN).map_err(failed)?;
    if there.peer().map_err(failed)?.0 != user() {
        return Err(format!("host {host}: another user has the job's name"));
    }
    there.send(command.as_bytes()).map_err(failed)?;
    for stream in [
        io::stdin().as_fd(),
        io::stdout().as_fd(),
        io::stderr().as_fd(),
    ] {
        there.send_descriptor(stream).map_err(failed)?;
    }
    there.wait_for(None, None).map_err(failed)?;
    let mut code = [1];
    match there.receive(&mut code).map_err(failed)? {
        0 => Err(format!("host {host}: the job has ended")),
        _ => Ok(code[0]),
    }
}

/// Commands that run, and who waits for each.
type Commands = Arc<Mutex<HashMap<u32, Packets>>>;

/// Starts the command that comes over a connection.
fn take(connection: Packets, commands: &Commands) -> io::Result<()> {
    connection.wait_for(Some(WITHIN), Some(WITHIN))?;
    if connection.peer()?.0 != user() {
        return Ok(());
    }
    let mut line = vec![0; MOST_BYTES];
    let count = connection.receive(&mut line)?;
    let line = String::from_utf8_lossy(&line[..count]).into_owned();
    let mut streams = Vec::new();
    for _ in 0..3 {
        streams.push(Stdio::from(connection.receive_descriptor()?));
    }
    let mut command = Command::new("/bin/sh");
    command.args(["-c", &line]);
    let mut streams = streams.into_iter();
    if let (Some(input), Some(output), Some(errors)) =
        (streams.next(), streams.next(), streams.next())
    {
        command.stdin(input).stdout(output).stderr(errors);
    }
    // Who reaps it finds it in the list.
    let mut commands = commands.lock().unwrap_or_else(PoisonError::into_inner);
    let child = take_defaults_in(&mut command).process_group(0).spawn()?;
    commands.insert(child.id(), connection);
    Ok(())
}

/// The words that name the user of a job in the queue of all users.
pub fn words_of(owner: &Owner) -> String {
    let groups = owner.groups.iter().map(|group| format!(" {group}"));
    format!(" {} {}{}", owner.uid, owner.gid, groups.collect::<String>())
}

/// Holds what a job starts here: `margay-queue held JOB HOST [USER GROUP GROUPS...]`, until the
/// other side goes. Where a user is named it becomes that one.
///
/// # Errors
/// In words.
pub fn hold(job: &str, host: &str, owner: &[&str]) -> Result<(), String> {
    let failed = |error: io::Error| format!("the job's processes cannot be held: {error}");
    let owner: Result<Vec<u32>, _> = owner.iter().map(|number| number.parse()).collect();
    if let [uid, gid, groups @ ..] = &owner.map_err(|_| "a user is a number")?[..] {
        become_user(*uid, *gid, groups).map_err(failed)?;
    }
    let heard = SignalSet::of(&HEARD);
    heard.block();
    let mut signals = SignalFd::new(&heard).map_err(failed)?;
    become_subreaper().map_err(failed)?;
    let hall = Hall::open(&hall(job, host)).map_err(failed)?;
    let commands = Commands::default();
    let taken = Arc::clone(&commands);
    std::thread::spawn(move || {
        while let Ok(connection) = hall.accept() {
            // Who asks sees the connection end.
            let _ = take(connection, &taken);
        }
    });
    let [input, output] = [io::stdin().as_fd(), io::stdout().as_fd()]
        .map(|fd| fd.try_clone_to_owned().map(File::from));
    let (input, output) = (input.map_err(failed)?, output.map_err(failed)?);
    let mut wire = Wire::new(input.into(), output.into(), false).map_err(failed)?;
    // It listens.
    wire.say(b'b', &[]);
    let (mut halt, mut poll) = (Halt::default(), PollSet::default());
    let own = std::process::id();
    while !wire.is_cut() {
        poll.clear();
        poll.add_readable(signals.as_fd());
        wire.add_to(&mut poll);
        let pause = halt.pause().unwrap_or(BEAT).min(BEAT / 2);
        poll.wait(Some(pause)).map_err(failed)?;
        while signals.take().is_some() {}
        wire.go_on();
        while let Some((letter, _)) = wire.take() {
            if let b'p' | b'g' = letter {
                match letter {
                    b'p' => {
                        halt.stop(own);
                        wire.say(b'p', &[]);
                    }
                    _ => halt.go_on(own),
                }
            }
        }
        halt.sweep(own);
        let mut commands = commands.lock().unwrap_or_else(PoisonError::into_inner);
        while let Reaped::Child(pid, status) = ReapedUsage::default().reap() {
            if let Some(waiting) = commands.remove(&pid) {
                let code = status.code().or(status.signal().map(|number| 128 + number));
                let code = code.and_then(|code| u8::try_from(code).ok());
                let _ = waiting.send(&[code.unwrap_or(1)]);
            }
        }
        drop(commands);
        wire.beat();
    }
    Ok(())
}
