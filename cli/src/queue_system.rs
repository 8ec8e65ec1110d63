//! Starting and ending the queue that all users of a machine share: as a unit of systemd, or in the
//! background where that does not run.

use std::fs;
use std::io::{self, ErrorKind, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use margay_svc_queue_wire::{
    Answer, MachineSpec, PROGRAM, Place, Request, check_program, connect_system, converse,
};
use margay_sys_os::port::user;
use margay_sys_os::process::{beside, host_name, open_log};

use crate::queue_answer::print;
use crate::queue_head::{show_machine, show_new, show_standby, start_head, stop, store_words};
use crate::queue_machine::machine;
use crate::queue_options::{DownOptions, UpOptions};

const UNIT: &str = "margay-queue.service";
const UNIT_FILE: &str = "/etc/systemd/system/margay-queue.service";

/// The first line of a unit that these commands may replace and remove.
const MARK: &str = "# Written by margay up --system; margay down --system removes it.\n";

/// How long a unit may take until its head can be asked.
const UP_WITHIN: Duration = Duration::from_secs(30);

/// Starts the queue.
///
/// # Errors
/// In words.
pub fn up(options: &UpOptions) -> Result<(), String> {
    need_root("margay up --system", "margay up starts a queue of your own")?;
    let mut found = connect_system()?;
    // An agent of the head that leads passes on what is asked here, and does not take over.
    if options.standby && found.as_mut().is_some_and(is_agent) {
        found = None;
    }
    let store = store_words(options, &Place::system(), found.is_some())?;
    match found {
        Some(_) if options.standby => return show_standby(&Place::system()),
        Some(mut stream) => {
            return show_machine(&mut stream, "the queue of all users is up already");
        }
        None => {}
    }
    let place = Place::system();
    place.make()?;
    let program = beside(PROGRAM).map_err(|error| error.to_string())?;
    check_program(&program)?;
    let mut words = vec!["--system".to_owned()];
    words.extend(store);
    let names_hosts =
        options.hosts.is_some() || options.hostfile.is_some() || options.hosts_from.is_some();
    let spec = match names_hosts {
        true => machine(options)?,
        // What allocation root's shell is in says nothing.
        false => options.slots.map(|slots| MachineSpec {
            slots: Some(slots),
            ..MachineSpec::default()
        }),
    };
    words.extend(spec.iter().flat_map(MachineSpec::words));
    if !has_systemd() {
        start_head(options, &place, words)?;
        let note = "margay: systemd does not run here: the queue has been started without it, and does not start again \
                    with the machine\n";
        let _ = io::stderr().write_all(note.as_bytes());
    } else {
        install(&place, &program, &words)?;
    }
    match options.standby {
        true => show_standby(&place),
        false => show_new(&place),
    }
}

/// Whether the head that answers is on another host, and none of this one stands by for it.
fn is_agent(stream: &mut UnixStream) -> bool {
    match converse(stream, &Request::Machine) {
        Ok(Answer::Machine(machine)) => {
            let own = host_name();
            machine.host != own && !machine.standbys.contains(&own)
        }
        _ => false,
    }
}

/// Ends it.
///
/// # Errors
/// In words.
pub fn down(options: &DownOptions) -> Result<(), String> {
    need_root(
        "margay down --system",
        "margay down ends a queue of your own",
    )?;
    match connect_system()? {
        Some(stream) => stop(stream, options.leave)?,
        None => print("the queue of all users does not run\n")?,
    }
    if is_ours()? == Some(true) {
        systemctl(&["disable", UNIT])?;
        let failed = |error: io::Error| format!("cannot remove {UNIT_FILE}: {error}");
        fs::remove_file(UNIT_FILE).map_err(failed)?;
        systemctl(&["daemon-reload"])?;
    }
    Ok(())
}

fn need_root(command: &str, other: &str) -> Result<(), String> {
    match user() {
        0 => Ok(()),
        _ => Err(format!(
            "{command} needs the right of root to run programs as other users (CAP_SETUID, CAP_SETGID); {other}"
        )),
    }
}

/// Whether systemd looks after this system.
fn has_systemd() -> bool {
    Path::new("/run/systemd/system").is_dir()
}

/// Whether the unit was written by these commands; none where there is no unit.
fn is_ours() -> Result<Option<bool>, String> {
    match fs::read_to_string(UNIT_FILE) {
        Ok(text) => Ok(Some(text.starts_with(MARK))),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(format!("cannot read {UNIT_FILE}: {error}")),
    }
}

/// A word of a unit's command.
fn quoted(word: &str) -> String {
    let word = word.replace('\\', "\\\\").replace('"', "\\\"");
    format!("\"{}\"", word.replace('%', "%%").replace('$', "$$"))
}

/// The text of the unit. When the head ends, jobs go on: their supervisors are left, and the next
/// head finds them.
fn unit(place: &Place, program: &Path, words: &[String]) -> String {
    let program = quoted(&program.display().to_string());
    // URLs have what means something to systemd.
    let words: Vec<String> = words.iter().map(|word| quoted(word)).collect();
    let words = words.join(" ");
    let log = place.log();
    let log = log.display();
    format!(
        "{MARK}[Unit]
Description=Margay's queue, for all users of this machine
After=network.target remote-fs.target nss-user-lookup.target

[Service]
Type=exec
ExecStart={program} serve {words}
Restart=on-failure
RestartSec=1
KillMode=process
Delegate=yes
UMask=0077
TasksMax=infinity
StandardOutput=null
StandardError=append:{log}

[Install]
WantedBy=multi-user.target
"
    )
}

/// Writes the unit, starts it, and waits until its head can be asked.
fn install(place: &Place, program: &Path, words: &[String]) -> Result<(), String> {
    if is_ours()? == Some(false) {
        let note =
            format!("margay: {UNIT_FILE} is not from margay up --system; it is used as it is\n");
        let _ = io::stderr().write_all(note.as_bytes());
    } else {
        let failed = |error: io::Error| format!("cannot write {UNIT_FILE}: {error}");
        let new = format!("{UNIT_FILE}.new");
        fs::write(&new, unit(place, program, words))
            .and_then(|()| fs::rename(&new, UNIT_FILE))
            .map_err(failed)?;
    }
    // So that root alone reads it, whatever systemd gives a new file.
    open_log(&place.log()).map_err(|error| format!("cannot open the log: {error}"))?;
    systemctl(&["daemon-reload"])?;
    systemctl(&["enable", "--now", UNIT])?;
    let begun = Instant::now();
    while connect_system()?.is_none() {
        if begun.elapsed() > UP_WITHIN {
            return Err(format!(
                "the unit {UNIT} runs, and no head answers; {} and systemctl status {UNIT} say more",
                place.log().display()
            ));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

fn systemctl(words: &[&str]) -> Result<(), String> {
    let shown = words.join(" ");
    let output = Command::new("systemctl")
        .args(words)
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("cannot execute systemctl {shown}: {error}"))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(format!(
            "systemctl {shown} failed: {}",
            String::from_utf8_lossy(&output.stderr).trim_end()
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_unit_names_the_program_whatever_its_path_holds() {
        let path = Path::new("/opt/a b/100%/$x\"y/bin/margay-queue");
        let text = unit(&Place::system(), path, &["--system".into(), "4".into()]);
        let start =
            "ExecStart=\"/opt/a b/100%%/$$x\\\"y/bin/margay-queue\" serve \"--system\" \"4\"\n";
        assert!(text.starts_with(MARK) && text.contains(start), "{text}");
    }
}
