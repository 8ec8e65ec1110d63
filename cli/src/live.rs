//! Displays of jobs: as JSON, as lines of text, or live in the terminal.

use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use crossterm::event::{Event, KeyCode, KeyModifiers, poll, read};
use crossterm::style::{Color, Stylize};
use crossterm::{cursor, execute, queue, style, terminal};
use margay_job_observe::mesh::State;
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

/// The colour of a state, among a terminal's 256.
#[must_use]
pub fn of_state(state: State) -> u8 {
    match state {
        State::Computing => 2,
        State::Waiting => 3,
        State::Outside => 6,
        State::Stopped => 5,
        State::Starting => 12,
        State::Finished => 8,
        State::Failed => 9,
    }
}

/// What a key has done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key {
    Quit,
    Done,
    /// Nothing: it may scroll.
    Unknown,
}

/// A live display.
pub trait Screen {
    /// Samples what it shows.
    fn look(&mut self);

    /// What stands on a screen of that width, and which line is the chosen one.
    fn lines(&self, width: usize) -> (Vec<Line>, Option<usize>);

    /// What keys do, in a line.
    fn help(&self) -> String;

    /// A key was pressed.
    fn key(&mut self, code: KeyCode, modifiers: KeyModifiers) -> Key;
}

/// A display without keys of its own.
struct Plain<'a, V: View> {
    view: &'a mut V,
    options: &'a ViewOptions,
    lines: Vec<Line>,
}

impl<V: View> Screen for Plain<'_, V> {
    fn look(&mut self) {
        self.lines = V::lines(&chosen(self.view, self.options), true);
    }

    fn lines(&self, _width: usize) -> (Vec<Line>, Option<usize>) {
        (self.lines.clone(), None)
    }

    fn help(&self) -> String {
        "q quits, arrows scroll".into()
    }

    fn key(&mut self, code: KeyCode, modifiers: KeyModifiers) -> Key {
        let interrupt = code == KeyCode::Char('c') && modifiers.contains(KeyModifiers::CONTROL);
        match code {
            _ if interrupt => Key::Quit,
            KeyCode::Char('q') | KeyCode::Esc => Key::Quit,
            _ => Key::Unknown,
        }
    }
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
    let shown = if is_live(options) {
        let lines = Vec::new();
        let view = &mut view;
        let mut screen = Plain {
            view,
            options,
            lines,
        };
        watch(&mut screen, options.interval).map(|()| true)
    } else {
        once(&mut view, options, V::lines)
    };
    ended(name, options, shown)
}

/// Whether a display goes on in the terminal until the user quits.
#[must_use]
pub fn is_live(options: &ViewOptions) -> bool {
    !options.json && !options.once && io::stdout().is_terminal()
}

/// The exit status of a display, after a report of what went wrong. False for a job that is not
/// there.
pub fn ended(name: &str, options: &ViewOptions, shown: io::Result<bool>) -> ExitCode {
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

/// Prints the jobs once, as `lines` has them. False when the job that the user named is not there.
///
/// # Errors
/// When standard output cannot be written.
pub fn once<V: View>(
    view: &mut V,
    options: &ViewOptions,
    lines: impl Fn(&[V::Job], bool) -> Vec<Line>,
) -> io::Result<bool> {
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
        out.write_all(text(lines(&jobs, false)).as_bytes())?;
    }
    out.flush()?;
    Ok(true)
}

/// Shows a display until the user quits, and samples it anew after each interval.
///
/// # Errors
/// When the terminal fails.
pub fn watch(screen: &mut impl Screen, interval: Duration) -> io::Result<()> {
    let mut out = io::stdout();
    terminal::enable_raw_mode()?;
    execute!(out, terminal::EnterAlternateScreen, cursor::Hide)?;
    let result = refresh(screen, interval, &mut out);
    execute!(out, cursor::Show, terminal::LeaveAlternateScreen)?;
    terminal::disable_raw_mode()?;
    result
}

fn refresh(screen: &mut impl Screen, interval: Duration, out: &mut io::Stdout) -> io::Result<()> {
    let mut top = 0usize;
    screen.look();
    std::thread::sleep(SAMPLE);
    loop {
        screen.look();
        let next = Instant::now() + interval;
        loop {
            let (columns, rows) = size();
            let (lines, chosen) = screen.lines(columns);
            top = top.min(lines.len().saturating_sub(1));
            // The chosen line is to be seen; above the first one is the head of its job.
            if let Some(chosen) = chosen {
                let body = rows.saturating_sub(1).max(1);
                top = top.clamp((chosen + 1).saturating_sub(body), chosen);
                if chosen < body {
                    top = 0;
                }
            }
            draw(out, &lines, (top, chosen), &screen.help())?;
            let left = next.saturating_duration_since(Instant::now());
            if left.is_zero() || !poll(left)? {
                break;
            }
            if let Event::Key(key) = read()? {
                match (screen.key(key.code, key.modifiers), key.code) {
                    (Key::Quit, _) => return Ok(()),
                    (Key::Done, _) => {}
                    (Key::Unknown, KeyCode::Down | KeyCode::Char('j')) => top += 1,
                    (Key::Unknown, KeyCode::Up | KeyCode::Char('k')) => top = top.saturating_sub(1),
                    (Key::Unknown, KeyCode::PageDown) => top += 20,
                    (Key::Unknown, KeyCode::PageUp) => top = top.saturating_sub(20),
                    (Key::Unknown, _) => {}
                }
            }
        }
    }
}

/// Columns and rows of the terminal. Those that do not know their size say 0.
fn size() -> (usize, usize) {
    match terminal::size() {
        Ok((columns, rows)) if columns > 0 && rows > 0 => (columns.into(), rows.into()),
        _ => (80, 24),
    }
}

/// The columns of the terminal, if standard output is one.
#[must_use]
pub fn columns() -> Option<usize> {
    io::stdout().is_terminal().then(|| size().0)
}

fn draw(
    out: &mut io::Stdout,
    lines: &[Line],
    (top, chosen): (usize, Option<usize>),
    help: &str,
) -> io::Result<()> {
    let (columns, rows) = size();
    queue!(out, cursor::MoveTo(0, 0))?;
    let body = rows.saturating_sub(1);
    for row in 0..body {
        let mut left = columns;
        for piece in lines.get(top + row).into_iter().flatten() {
            let cut: String = piece.text.chars().take(left).collect();
            left -= cut.chars().count();
            // A piece with a colour ends with neither.
            if chosen == Some(top + row) {
                queue!(out, style::SetAttribute(style::Attribute::Reverse))?;
            }
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
            style::SetAttribute(style::Attribute::Reset),
            terminal::Clear(terminal::ClearType::UntilNewLine),
            cursor::MoveToNextLine(1)
        )?;
    }
    let help: String = help.chars().take(columns).collect();
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
