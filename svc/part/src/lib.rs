//! `margay-part`: the program that `margay part` runs. It takes the same options. As `attend` it
//! is the keeper of one application, as `init` the service of partitions that all users have in
//! common.
#![forbid(unsafe_code)]

mod act;
mod attend;
mod leader;
mod machine;
mod names;
mod query;
mod show;
mod size;
mod wire;

use std::env;
use std::ffi::OsString;
use std::io::{self, BufRead, BufReader, ErrorKind, Write};
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use margay_core_partitions::{Right, Scheduling, Table};
use margay_job_partitions::Store;
use margay_sys_os::descriptor::keep_others_from;
use margay_sys_os::port::Channel;
use margay_sys_os::{cpu, process};

use act::Change;
use leader::Leader;
use show::Application;
use wire::{receive, send};

/// How long the service has for an answer.
const ANSWER_LIMIT: Duration = Duration::from_secs(10);

/// By then another one has taken the place of who looked after turns.
const TAKES_OVER: Duration = Duration::from_secs(1);

/// Why something is not done, and the exit status.
struct Failed {
    text: String,
    status: u8,
}

impl From<String> for Failed {
    fn from(text: String) -> Failed {
        Failed { text, status: 1 }
    }
}

/// The name of the program.
pub const PROGRAM: &str = "margay-part";

/// Runs as the process's program: reads its words and returns its exit status.
pub fn main() -> ExitCode {
    let words: Vec<OsString> = env::args_os().skip(1).collect();
    match run(&words) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failed) => {
            let _ = writeln!(io::stderr(), "margay part: {}", failed.text);
            ExitCode::from(failed.status)
        }
    }
}

fn run(words: &[OsString]) -> Result<(), Failed> {
    let texts: Vec<String> = (words.iter())
        .map(|word| word.to_string_lossy().into_owned())
        .collect();
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    if let ["exec", name, _, ..] = texts[..] {
        return exec(name, &words[2..]);
    }
    // Which hosts there are the command finds out; the service takes its word.
    let resolved;
    let texts = match texts.iter().position(|word| *word == "hosts") {
        Some(at) if texts[0] == "make" && at + 1 < texts.len() => {
            resolved = machine::resolve(texts[at + 1])?;
            let mut texts = texts;
            texts[at + 1] = &resolved;
            texts
        }
        _ => texts,
    };
    if let Some(change) = Change::parse(&texts)? {
        return Ok(make(&change, &texts)?);
    }
    match texts[..] {
        ["attend"] => Ok(attend::attend()?),
        ["init", ..] => Ok(init()?),
        ["serve", ..] => Ok(serve()?),
        ["priority", _, pid, number] => Ok(prioritize(pid, number)?),
        [what, name, ref flags @ ..] => Ok(look(what, name, flags)?),
        _ => Err(Failed {
            text: "this program is run by margay part; see margay part --help".into(),
            status: 2,
        }),
    }
}

/// The partitions that people have made and the applications in partitions, as tables for a view
/// of the whole machine; nothing where there are none.
///
/// # Errors
/// In words: they cannot be read.
pub fn overview() -> Result<String, String> {
    let store = Store::find()?;
    let table = store.read()?;
    let listed = table.list(store.caller(), ".", true);
    let mut made = listed.map_err(|refused| refused.to_string())?;
    made.retain(|(path, _)| !Table::is_permanent(path));
    let running = applications(&store, ".")?;
    let mut text = String::new();
    if !made.is_empty() {
        text += &show::partitions(&table, &made);
    }
    if !running.is_empty() {
        text += &show::applications(&running);
    }
    Ok(text)
}

/// Does what only reads.
fn look(what: &str, name: &str, flags: &[&str]) -> Result<(), String> {
    let store = Store::find()?;
    let who = store.caller();
    let table = store.read()?;
    let found = || {
        let found = table.find(who, name, Right::Read);
        found.map_err(|refused| refused.to_string())
    };
    let is_json = flags.contains(&"json");
    let text = match what {
        "list" => {
            let listed = table.list(who, name, flags.contains(&"recursive"));
            let listed = listed.map_err(|refused| refused.to_string())?;
            if is_json {
                show::partitions_json(&table, &listed)
            } else {
                show::partitions(&table, &listed)
            }
        }
        "show" => {
            let (path, partition) = found()?;
            show::picture(&table, &path, partition)
        }
        "ps" => {
            let all = applications(&store, &found()?.0)?;
            if is_json {
                show::applications_json(&all)
            } else {
                show::applications(&all)
            }
        }
        _ => query::answer(&store, &table, what, name)?,
    };
    io::stdout()
        .write_all(text.as_bytes())
        .map_err(|error| format!("cannot print: {error}; send the standard output elsewhere"))
}

/// The applications in a partition; none where nobody looks after turns, which is so where none
/// runs.
fn applications(store: &Store, path: &str) -> Result<Vec<Application>, String> {
    let end = Instant::now() + ANSWER_LIMIT;
    loop {
        let why = match ask_for_applications(store, path, end) {
            Ok(found) => return found,
            Err(why) => why,
        };
        // Where nobody has to be asked none runs. Where the mark is, another one takes over soon,
        // if somebody is left to do so.
        if !store.mark().exists() || Instant::now() + (ANSWER_LIMIT - TAKES_OVER) >= end {
            return match why.kind() {
                ErrorKind::TimedOut => Err(format!("cannot learn which applications run: {why}")),
                _ => Ok(Vec::new()),
            };
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Asks once; the outer error is that of a connection.
fn ask_for_applications(
    store: &Store,
    path: &str,
    end: Instant,
) -> io::Result<Result<Vec<Application>, String>> {
    let mut channel = store.connect()?;
    send(&channel, &["list", path])?;
    let mut all = Vec::new();
    loop {
        let said = receive(&mut channel, Some(end))?;
        match said.first().map(String::as_str) {
            Some("done") => return Ok(Ok(all)),
            Some("refused") => return Ok(Err(said.get(1).cloned().unwrap_or_default())),
            _ => all.extend(Application::parse(&said)),
        }
    }
}

/// Changes partitions: here, or by the service where they are root's.
fn make(change: &Change, words: &[&str]) -> Result<(), String> {
    let store = Store::find()?;
    if !store.is_own() {
        return ask(&store, words);
    }
    let running: Vec<String> = match change {
        Change::Remove { force: false, .. } => applications(&store, ".")?
            .into_iter()
            .map(|own| own.partition)
            .collect(),
        _ => Vec::new(),
    };
    store.update(|table| change.apply(table, store.caller(), &running))?;
    if let Ok(channel) = store.connect() {
        // Who is just ending need not know.
        let _ = send(&channel, &["changed"]);
    }
    Ok(())
}

/// Changes the priority of an application, by its launcher's process; where it takes no turns that
/// has no effect.
fn prioritize(pid: &str, number: &str) -> Result<(), String> {
    if let Ok(channel) = Store::find()?.connect() {
        // Who is just ending need not know.
        let _ = send(&channel, &["prioritize", pid, number]);
    }
    Ok(())
}

fn ask(store: &Store, words: &[&str]) -> Result<(), String> {
    let failed = |error: io::Error| {
        format!(
            "the service that changes this machine's partitions does not answer: {error}; root starts it with \
             margay part init"
        )
    };
    let mut channel: Channel = store.connect().map_err(failed)?;
    if let Some(bad) = words.iter().find(|word| word.contains(char::is_control)) {
        let bad = bad.escape_debug();
        return Err(format!(
            "'{bad}' cannot be the name of a partition: it has other characters than letters, digits, '-' and '_'"
        ));
    }
    send(&channel, &[&["change"], words].concat()).map_err(failed)?;
    let end = Instant::now() + ANSWER_LIMIT;
    let said = receive(&mut channel, Some(end)).map_err(failed)?;
    match said.first().map(String::as_str) {
        Some("done") => Ok(()),
        _ => Err(said.get(1).cloned().unwrap_or_default()),
    }
}

/// Runs a command in a partition; it takes this process's place. Where applications take turns it
/// is one, of the launcher.
fn exec(name: &str, words: &[OsString]) -> Result<(), Failed> {
    let store = Store::find()?;
    let table = store.read()?;
    let found = table.find(store.caller(), name, Right::Run);
    let (path, partition) = found.map_err(|refused| refused.to_string())?;
    let cores = store.cores(partition);
    if !partition.slots.is_empty() {
        let text = format!(
            "the partition '{path}' has nodes of several hosts, and a command runs on one; use mpiexec -pn"
        );
        return Err(text.into());
    }
    attend::usable(&path, &cores)?;
    let mut command = match words.split_first() {
        Some((program, arguments)) if partition.scheduling == Scheduling::Standard => {
            if let Err(error) = cpu::bind_thread(0, &cores) {
                let text = format!("cannot use the cores {cores:?} of the partition: {error}");
                return Err(text.into());
            }
            let mut command = Command::new(program);
            command.args(arguments);
            command
        }
        _ => {
            let launcher = process::beside("mpiexec").map_err(|error| error.to_string())?;
            let mut command = Command::new(launcher);
            let options = ["-q", "-pn", &path, "-n", "1", "-bind-to", "none"];
            command.args(options).args(words);
            command
        }
    };
    let error = command.exec();
    let status = match error.kind() {
        ErrorKind::NotFound => 127,
        _ => 126,
    };
    let program = command.get_program().to_string_lossy().into_owned();
    let text = format!("{program} cannot be run: {error}");
    Err(Failed { text, status })
}

/// Serves the changes and turns of the partitions that all users have in common.
fn serve() -> Result<(), String> {
    let store = Store::common();
    store.make_common()?;
    process::lead_session();
    let listener = store.listen().map_err(|error| match error.kind() {
        ErrorKind::AddrInUse => "the service runs already".to_owned(),
        _ => format!("the service cannot listen: {error}"),
    })?;
    let leader = Leader::new(store, listener);
    // Who started it waits for this line.
    let mut output = io::stdout();
    let _ = writeln!(output, "ready").and_then(|()| output.flush());
    leader.serve()
}

/// Makes the partitions that all users have in common, and starts their service.
fn init() -> Result<(), String> {
    let store = Store::common();
    store.make_common()?;
    let mut output = io::stdout();
    if store.connect().is_ok() {
        let _ = writeln!(output, "the service runs already");
        return Ok(());
    }
    let own = process::beside(PROGRAM).map_err(|error| error.to_string())?;
    let mut service = Command::new(own);
    service
        .arg("serve")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .current_dir("/");
    let mut service = keep_others_from(&mut service)
        .spawn()
        .map_err(|error| format!("the service cannot be started: {error}"))?;
    let mut line = String::new();
    if let Some(said) = service.stdout.take() {
        let _ = BufReader::new(said).read_line(&mut line);
    }
    if line != "ready\n" {
        let mut why = String::new();
        if let Some(said) = service.stderr.take() {
            let _ = BufReader::new(said).read_line(&mut why);
        }
        return Err(format!("the service has not started: {}", why.trim_end()));
    }
    let text = format!(
        "the service runs as process {}; for others to make partitions: margay part chpart -mod 777 .compute",
        service.id()
    );
    let _ = writeln!(output, "{text}");
    Ok(())
}
