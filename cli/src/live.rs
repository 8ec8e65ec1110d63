//! Displays of jobs: as JSON, as lines of text, or live in the terminal.

use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use crossterm::event::{Event, KeyCode, KeyModifiers, poll, read};
use crossterm::style::{Color, Stylize};
use crossterm::{cursor, execute, queue, style, terminal};
use serde::Serialize;

use margay_sys_os::process::{can_see_processes, others_of_this_program};

use crate::options::ViewOptions;

/// Between the two samples of a single display, so that the CPU use is the current one.
const SAMPLE: Duration = Duration::from_millis(100);

/// A single display waits this long for jobs that are being started, and for waits to last long
/// enough to be judged.
const SETTLES: Duration = Duration::from_millis(1500);
/// The same when no job is there: a launcher may have been started at the same moment.
const APPEARS: Duration = Duration::from_millis(300);

/// A piece of a line, with one of a terminal's 256 colours or as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// What stands there.
    pub text: String,
    /// Its colour.
    pub color: Option<u8>,
}

/// One line of a display.
pub type Line = Vec<Piece>;

/// Returns a line without colours.
pub fn plain(text: impl Into<String>) -> Line {
    vec![Piece {
        text: text.into(),
        color: None,
    }]
}

/// What a display shows of the jobs of this machine.
pub trait View {
    /// A job, as it is printed in JSON.
    type Job: Serialize;

    /// Samples the jobs.
    fn look(&mut self) -> Vec<Self::Job>;

    /// Returns the number of a job.
    fn id(job: &Self::Job) -> u64;

    /// Whether a look at the job a little later may show what cannot be known yet.
    fn is_unsettled(_job: &Self::Job) -> bool {
        false
    }

    /// Returns the jobs as lines. `is_live`: for a terminal, with colours.
    fn lines(jobs: &[Self::Job], is_live: bool) -> Vec<Line>;
}

/// Checks that jobs can be found.
///
/// # Errors
/// When the system does not show processes: a text with the remedy.
pub fn can_see_jobs() -> Result<(), String> {
    can_see_processes().map_err(|error| {
        format!(
            "cannot know which jobs run, since /proc does not show processes: {error}; mount it (mount -t proc proc /proc)"
        )
    })
}

/// Returns what a display says of each job, with an empty line between jobs; or that there is none.
pub fn of_each<J>(jobs: &[J], job_lines: impl Fn(&J) -> Vec<Line>) -> Vec<Line> {
    if jobs.is_empty() {
        return vec![plain("no jobs are running")];
    }
    let mut lines = Vec::new();
    for job in jobs {
        if !lines.is_empty() {
            lines.push(plain(""));
        }
        lines.extend(job_lines(job));
    }
    lines
}

/// Returns lines without their colours, each with its end.
pub fn text(lines: Vec<Line>) -> String {
    let text = |line: Line| String::from_iter(line.into_iter().map(|piece| piece.text));
    let lines = lines.into_iter().map(text);
    lines.map(|line| format!("{}\n", line.trim_end())).collect()
}

/// Prints what a command shows once.
///
/// # Errors
/// When standard output cannot be written, and not because nobody reads on, as with
/// `margay why | head`: a text.
pub fn print(text: &str) -> Result<(), String> {
    match io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => other.map_err(|error| format!("cannot write to standard output: {error}")),
    }
}

/// The line that names a job, before all that a display says of it.
pub fn job_title(job: u64, command: &str) -> String {
    format!("job {job}: {}", printable(command))
}

/// The line that says how large a job is and since when it runs.
pub fn job_size(ranks: u32, cores: u32, running_s: f64) -> String {
    let running = duration(running_s);
    format!("{ranks} ranks on {cores} cores, running for {running}")
}

/// Returns a time that people read: `0.3 s`, `1:15 min`, `1:01:40 h`.
pub fn duration(seconds: f64) -> String {
    let whole = seconds as u64;
    match whole {
        0..60 => format!("{seconds:.1} s"),
        60..3600 => format!("{}:{:02} min", whole / 60, whole % 60),
        _ => format!(
            "{}:{:02}:{:02} h",
            whole / 3600,
            whole / 60 % 60,
            whole % 60
        ),
    }
}

/// Lets waits last long enough to be judged.
pub fn settle() {
    std::thread::sleep(SETTLES / 2);
}

/// Shows the jobs as the options say; `name` is that of the command.
pub fn show<V: View>(name: &str, mut view: V, options: &ViewOptions) -> ExitCode {
    if let Err(error) = can_see_jobs() {
        eprintln!("{name}: {error}");
        return ExitCode::from(1);
    }
    let live = !options.json && !options.once && io::stdout().is_terminal();
    let shown = if live {
        watch(&mut view, options)
    } else {
        once(&mut view, options)
    };
    match shown {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => {
            let job = options.job.unwrap_or_default();
            eprintln!("{name}: there is no job {job}; {name} without --job shows all jobs");
            ExitCode::from(1)
        }
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::from(141),
        Err(error) => {
            eprintln!("{name}: cannot show the jobs: {error}");
            ExitCode::from(1)
        }
    }
}

/// Prints the jobs once. False when the job that the user named is not there.
fn once<V: View>(view: &mut V, options: &ViewOptions) -> io::Result<bool> {
    let began = Instant::now();
    view.look();
    let jobs = loop {
        std::thread::sleep(SAMPLE);
        let jobs = chosen(view, options);
        let longest_wait = match &jobs[..] {
            [] if others_of_this_program() => SETTLES,
            [] => APPEARS,
            jobs if jobs.iter().any(V::is_unsettled) => SETTLES,
            _ => Duration::ZERO,
        };
        if began.elapsed() >= longest_wait {
            break jobs;
        }
    };
    if options.job.is_some() && jobs.is_empty() {
        return Ok(false);
    }
    let mut out = io::stdout().lock();
    if options.json {
        serde_json::to_writer_pretty(&mut out, &serde_json::json!({ "version": 1, "jobs": jobs }))?;
        writeln!(out)?;
    } else {
        out.write_all(text(V::lines(&jobs, false)).as_bytes())?;
    }
    out.flush()?;
    Ok(true)
}

/// Shows the jobs until the user quits.
fn watch<V: View>(view: &mut V, options: &ViewOptions) -> io::Result<bool> {
    let mut out = io::stdout();
    terminal::enable_raw_mode()?;
    execute!(out, terminal::EnterAlternateScreen, cursor::Hide)?;
    let result = refresh(view, options, &mut out);
    execute!(out, cursor::Show, terminal::LeaveAlternateScreen)?;
    terminal::disable_raw_mode()?;
    result.map(|()| true)
}

fn refresh<V: View>(view: &mut V, options: &ViewOptions, out: &mut io::Stdout) -> io::Result<()> {
    let mut top = 0usize;
    view.look();
    std::thread::sleep(SAMPLE);
    loop {
        let lines = V::lines(&chosen(view, options), true);
        let next = Instant::now() + options.interval;
        loop {
            top = top.min(lines.len().saturating_sub(1));
            draw(out, &lines, top)?;
            let left = next.saturating_duration_since(Instant::now());
            if left.is_zero() || !poll(left)? {
                break;
            }
            if let Event::Key(key) = read()? {
                let interrupt =
                    key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL);
                match key.code {
                    _ if interrupt => return Ok(()),
                    KeyCode::Char('q') | KeyCode::Esc => return Ok(()),
                    KeyCode::Down | KeyCode::Char('j') => top += 1,
                    KeyCode::Up | KeyCode::Char('k') => top = top.saturating_sub(1),
                    KeyCode::PageDown => top += 20,
                    KeyCode::PageUp => top = top.saturating_sub(20),
                    _ => {}
                }
            }
        }
    }
}

fn draw(out: &mut io::Stdout, lines: &[Line], top: usize) -> io::Result<()> {
    // Terminals that do not know their size say 0.
    let (columns, rows) = match terminal::size() {
        Ok((columns, rows)) if columns > 0 && rows > 0 => (columns, rows),
        _ => (80, 24),
    };
    let (columns, rows) = (usize::from(columns), usize::from(rows));
    queue!(out, cursor::MoveTo(0, 0))?;
    let body = rows.saturating_sub(1);
    for row in 0..body {
        let mut left = columns;
        for piece in lines.get(top + row).into_iter().flatten() {
            let cut: String = piece.text.chars().take(left).collect();
            left -= cut.chars().count();
            match piece.color {
                Some(color) => queue!(
                    out,
                    style::PrintStyledContent(cut.with(Color::AnsiValue(color)))
                )?,
                None => queue!(out, style::Print(cut))?,
            }
        }
        queue!(
            out,
            terminal::Clear(terminal::ClearType::UntilNewLine),
            cursor::MoveToNextLine(1)
        )?;
    }
    let help: String = "q quits, arrows scroll".chars().take(columns).collect();
    queue!(
        out,
        style::SetAttribute(style::Attribute::Reverse),
        style::Print(help),
        style::SetAttribute(style::Attribute::Reset),
        terminal::Clear(terminal::ClearType::UntilNewLine)
    )?;
    out.flush()
}

fn chosen<V: View>(view: &mut V, options: &ViewOptions) -> Vec<V::Job> {
    let jobs = view.look().into_iter();
    jobs.filter(|job| options.job.is_none_or(|id| V::id(job) == id))
        .collect()
}

/// Returns a text of a program without what could disturb the terminal.
pub fn printable(text: &str) -> String {
    text.chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect()
}
