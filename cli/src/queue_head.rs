//! Starting the head of a queue, showing its machine, and ending it: of a user's own queue and of
//! the one that all users share.

use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};

use margay_svc_queue_wire::{Answer, PROGRAM, Place, READY, Request, StoreUrl, connect, converse};
use margay_sys_os::descriptor::keep_others_from;
use margay_sys_os::process::{beside, host_name, open_log};
use margay_sys_os::signal::take_defaults_in;

use crate::queue_answer::{print, show};
use crate::queue_options::UpOptions;

/// Shows the machine of a head that has just been started.
pub(crate) fn show_new(place: &Place) -> Result<(), String> {
    let mut stream = connect(place)?.ok_or("the head of the queue has ended at once")?;
    show_machine(&mut stream, "the queue is up")
}

/// The words for the head that say where its state is kept. They are seen by others: a password is
/// refused.
pub(crate) fn store_words(
    options: &UpOptions,
    place: &Place,
    is_up: bool,
) -> Result<Vec<String>, String> {
    let mut words = Vec::new();
    if options.standby {
        words.push("--standby".to_owned());
    }
    let Some(store) = &options.store else {
        return Ok(words);
    };
    StoreUrl::of(store)?;
    let known = place.known_store()?;
    if is_up && *store != known {
        return Err(format!(
            "the queue is up, and its state is kept in another place ({known}); end it first: margay down"
        ));
    }
    words.extend(["--store".to_owned(), store.clone()]);
    Ok(words)
}

/// Says that a head stands by, and for which.
pub(crate) fn show_standby(place: &Place) -> Result<(), String> {
    let mut stream = connect(place)?.ok_or("the head of the queue has ended at once")?;
    let of = match converse(&mut stream, &Request::Machine) {
        Ok(Answer::Machine(machine)) if machine.host == host_name() => {
            return show_new(place);
        }
        Ok(Answer::Machine(machine)) => format!("the head on host {}", machine.host),
        Ok(Answer::Failed(text)) | Err(text) => {
            let text = format!("margay: commands of this host do not reach the head: {text}\n");
            let _ = io::stderr().write_all(text.as_bytes());
            "the head of the queue".into()
        }
        _ => "the head of the queue".into(),
    };
    print(&format!(
        "this host stands by for {of}, and takes over within 10 s when that is gone\n"
    ))
}

/// Starts the head with these words behind `serve`, and waits until it says that it can be asked.
pub(crate) fn start_head(
    options: &UpOptions,
    place: &Place,
    words: Vec<String>,
) -> Result<(), String> {
    let log = place.log();
    let failed = |error: io::Error| format!("cannot start the queue: {error}");
    let file = open_log(&log).map_err(failed)?;
    let program = beside(PROGRAM).map_err(failed)?;
    let mut command = Command::new(&program);
    command
        .arg("serve")
        .args(words)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(file);
    if let Some(shell) = &options.launcher_exec {
        command.env("MARGAY_RSH", shell);
    }
    let mut child = keep_others_from(take_defaults_in(&mut command))
        .spawn()
        .map_err(|error| match error.kind() {
            ErrorKind::NotFound => format!(
                "the queue is not installed: there is no {}; use the margay of a whole installation, such as \
                 `make install` makes",
                program.display()
            ),
            _ => failed(error),
        })?;
    let mut said = String::new();
    let mut stdout = child.stdout.take();
    let mut byte = [0];
    while let Some(Ok(1)) = stdout.as_mut().map(|stdout| stdout.read(&mut byte)) {
        if byte == *b"\n" {
            break;
        }
        said.push(char::from(byte[0]));
    }
    match said.as_str() {
        READY => Ok(()),
        "" => Err(format!(
            "the head of the queue ended at once; {} has its messages",
            log.display()
        )),
        text => Err(text.to_owned()),
    }
}

/// Shows the machine of a head, behind what is said of it.
pub(crate) fn show_machine(stream: &mut UnixStream, what: &str) -> Result<(), String> {
    match converse(stream, &Request::Machine)? {
        Answer::Machine(machine) => {
            for host in machine.hosts.iter().filter(|host| !host.is_up) {
                let text = format!("margay: host {} is down: {}\n", host.name, host.note);
                let _ = io::stderr().write_all(text.as_bytes());
            }
            let there = machine.hosts.iter().filter(|host| host.is_up);
            let place = match machine.hosts.len() {
                0 => machine.host.clone(),
                all => format!("{} of {all} hosts", there.clone().count()),
            };
            let slots = match machine.hosts.len() {
                0 => machine.slots,
                _ => there.map(|host| host.slots).sum(),
            };
            let mut whose = String::new();
            if machine.host != host_name() {
                whose = format!(" on host {}", machine.host);
            }
            if !machine.standbys.is_empty() {
                whose += &format!("; {} stands by", machine.standbys.join(", "));
            }
            print(&format!(
                "{what}: {slots} slots on {place}, {} running, {} waiting (process {}{whose})\n",
                machine.running, machine.waiting, machine.head
            ))
        }
        other => show(other),
    }
}

/// Ends a head, and waits until it has ended.
pub(crate) fn stop(mut stream: UnixStream, leave: bool) -> Result<(), String> {
    let answer = converse(&mut stream, &Request::Stop { leave })?;
    if let Answer::Done(_) = &answer {
        // The connection ends when the process has.
        let _ = stream.read(&mut [0]);
    }
    show(answer)
}
