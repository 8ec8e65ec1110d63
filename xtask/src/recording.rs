//! `docs/deadlock.svg`: a terminal session in which a program hangs and the launcher's commands
//! report why. It is a real run from the stage tree; only the commands are written by hand.

use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anstyle_svg::Term;
use anyhow::{Context, Result, bail};

use crate::workspace;

/// The picture, from the root of the workspace.
pub const PICTURE: &str = "docs/deadlock.svg";

const BUILD: &str = "mpicc examples/deadlock.c -o deadlock";
const START: &str = "mpiexec -n 3 ./deadlock";
const SHOW: &str = "showmesh --once";
const LIMITED: &str = "mpiexec -n 3 -timeout 2 ./deadlock";

/// Time within which the display must show one job alone, with its deadlock.
const TIME_LIMIT: Duration = Duration::from_secs(60);

/// Runs the session with the commands of the stage tree and writes the picture.
///
/// # Errors
/// When there is no stage tree, a command cannot be started, or the display does not show the
/// deadlock of one job alone within a minute, as on a machine where other jobs run.
pub fn write(stage: &Path) -> Result<()> {
    if !stage.join("bin/margay").exists() {
        bail!(
            "{} holds no stage tree; run `make stage` first",
            stage.display()
        );
    }
    let session = run(stage)?;
    let file = workspace().join(PICTURE);
    std::fs::write(&file, Term::new().render_svg(&session))
        .with_context(|| format!("{}: cannot be written", file.display()))
}

/// Returns the text of the session: commands after a prompt, and their output.
fn run(stage: &Path) -> Result<String> {
    let folder = stage.join(format!(".recording{}", std::process::id()));
    std::fs::create_dir(&folder).with_context(|| folder.display().to_string())?;
    let session = symlink(workspace().join("examples"), folder.join("examples"))
        .map_err(anyhow::Error::from)
        .and_then(|()| run_in(&folder, stage));
    std::fs::remove_dir_all(&folder)?;
    session
}

fn run_in(folder: &Path, stage: &Path) -> Result<String> {
    let command = |line: &str| -> Result<Command> {
        let mut words = line.split_whitespace();
        let name = words.next().context("an empty command")?;
        let mut command = Command::new(stage.join("bin").join(name));
        command.args(words).current_dir(folder);
        Ok(command)
    };
    let built = command(BUILD)?.output()?;
    if !built.status.success() {
        bail!("{BUILD}: {}", text(&built));
    }
    let mut job = command(START)?.stdout(Stdio::null()).spawn()?;
    let shown = display(|| Ok(text(&command(SHOW)?.output()?)));
    let ended = Command::new("kill").arg(job.id().to_string()).status();
    job.wait()?;
    ended?;
    let limited = command(LIMITED)?.output()?;
    let status = limited.status.code().context("the launcher was killed")?;
    Ok(session(&[
        (BUILD, String::new()),
        (&format!("{START} &"), String::new()),
        (SHOW, shown?),
        ("kill %1", String::new()),
        (LIMITED, text(&limited)),
        ("echo $?", format!("{status}\n")),
    ]))
}

/// Calls `show` until it returns one job alone, with its deadlock.
fn display(mut show: impl FnMut() -> Result<String>) -> Result<String> {
    let start = Instant::now();
    loop {
        let shown = show()?;
        if shown.matches("job ").count() == 1 && shown.contains("deadlock: ") {
            return Ok(shown);
        }
        if start.elapsed() > TIME_LIMIT {
            bail!("`{SHOW}` does not show one deadlocked job alone; end other jobs first: {shown}");
        }
        sleep(Duration::from_millis(200));
    }
}

fn text(output: &Output) -> String {
    let error = String::from_utf8_lossy(&output.stderr);
    format!("{}{error}", String::from_utf8_lossy(&output.stdout))
}

/// Commands and their output as a terminal shows them: prompts in green, deadlocks in red.
fn session(steps: &[(&str, String)]) -> String {
    let mut session = String::new();
    for (command, output) in steps {
        session += &format!("\x1b[92m$\x1b[0m \x1b[1m{command}\x1b[0m\n");
        for line in output.lines() {
            session += &match line.contains("deadlock: ") {
                true => format!("\x1b[91m{line}\x1b[0m\n"),
                false => format!("{line}\n"),
            };
        }
    }
    session
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_keeps_every_line() {
        let steps = [
            ("a &", String::new()),
            ("b", "x <y>\ndeadlock: 0 → 1 → 0\n".to_owned()),
        ];
        let picture = Term::new().render_svg(&session(&steps));
        for part in ["a &amp;", "x &lt;y&gt;", "deadlock: 0 → 1 → 0"] {
            assert!(picture.contains(part), "{part}: {picture}");
        }
    }

    #[test]
    fn the_display_waits_for_one_job_that_hangs() {
        let mut shown = [
            "no jobs are running",
            "job 1: a\njob 2: b\ndeadlock: 0 → 0",
            "job 1: a\ndeadlock: 0 → 0",
        ]
        .into_iter();
        let found = display(|| Ok(shown.next().unwrap().to_owned())).unwrap();
        assert_eq!(found, "job 1: a\ndeadlock: 0 → 0");
    }

    /// The picture in the tree shows the deadlock and no path of the machine on which it was made.
    #[test]
    fn the_picture_shows_the_deadlock() {
        let picture = std::fs::read_to_string(workspace().join(PICTURE)).unwrap();
        for part in [SHOW, LIMITED, "deadlock: 0 → 2 → 1 → 0", "MPI_Recv", "124"] {
            assert!(picture.contains(part), "{part}");
        }
        assert!(!picture.contains("/bin/") && picture.len() < 20_000);
    }
}
