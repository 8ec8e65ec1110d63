//! Showing the jobs: as JSON, as a table, or live in the terminal.

use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use crossterm::event::{Event, KeyCode, KeyModifiers, poll, read};
use crossterm::{cursor, execute, queue, style, terminal};
use margay_job_launch::mesh::{JobView, Mesh, RankView, State};

use crate::options::MeshOptions;

/// Between the two looks of a single display, so that the CPU use is that of now.
const SAMPLE: Duration = Duration::from_millis(100);

/// Shows the jobs as the options say.
pub fn show(name: &str, options: &MeshOptions) -> ExitCode {
    let live = !options.json && !options.once && io::stdout().is_terminal();
    let shown = if live { watch(options) } else { once(options) };
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
fn once(options: &MeshOptions) -> io::Result<bool> {
    let mut mesh = Mesh::default();
    mesh.look();
    std::thread::sleep(SAMPLE);
    let jobs = chosen(mesh.look(), options);
    if options.job.is_some() && jobs.is_empty() {
        return Ok(false);
    }
    let mut out = io::stdout().lock();
    if options.json {
        serde_json::to_writer_pretty(&mut out, &serde_json::json!({ "version": 1, "jobs": jobs }))?;
        writeln!(out)?;
    } else {
        for line in table(&jobs) {
            writeln!(out, "{line}")?;
        }
    }
    out.flush()?;
    Ok(true)
}

/// Shows the jobs until the user quits.
fn watch(options: &MeshOptions) -> io::Result<bool> {
    let mut out = io::stdout();
    terminal::enable_raw_mode()?;
    execute!(out, terminal::EnterAlternateScreen, cursor::Hide)?;
    let result = refresh(options, &mut out);
    execute!(out, cursor::Show, terminal::LeaveAlternateScreen)?;
    terminal::disable_raw_mode()?;
    result.map(|()| true)
}

fn refresh(options: &MeshOptions, out: &mut io::Stdout) -> io::Result<()> {
    let mut mesh = Mesh::default();
    let mut top = 0usize;
    mesh.look();
    std::thread::sleep(SAMPLE);
    loop {
        let lines = table(&chosen(mesh.look(), options));
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

fn draw(out: &mut io::Stdout, lines: &[String], top: usize) -> io::Result<()> {
    // Terminals that do not know their size say 0.
    let (columns, rows) = match terminal::size() {
        Ok((columns, rows)) if columns > 0 && rows > 0 => (columns, rows),
        _ => (80, 24),
    };
    let (columns, rows) = (usize::from(columns), usize::from(rows));
    queue!(out, cursor::MoveTo(0, 0))?;
    let body = rows.saturating_sub(1);
    for row in 0..body {
        let line = lines.get(top + row).map_or("", String::as_str);
        let cut: String = line.chars().take(columns).collect();
        queue!(
            out,
            style::Print(cut),
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

fn chosen(jobs: Vec<JobView>, options: &MeshOptions) -> Vec<JobView> {
    jobs.into_iter()
        .filter(|j| options.job.is_none_or(|id| j.job == id))
        .collect()
}

/// The jobs as lines of text.
fn table(jobs: &[JobView]) -> Vec<String> {
    if jobs.is_empty() {
        return vec!["no jobs are running".into()];
    }
    let mut lines = Vec::new();
    for job in jobs {
        if !lines.is_empty() {
            lines.push(String::new());
        }
        lines.push(format!("job {}: {}", job.job, printable(&job.command)));
        lines.push(format!(
            "{} ranks on {} cores, running for {}",
            job.ranks,
            job.cores,
            duration(job.running_s)
        ));
        lines.extend(job.findings.iter().cloned());
        lines.push(format!(
            "{:>5} {:>8} {:>5} {:>6}  {}",
            "RANK", "PID", "CORE", "CPU%", "STATE"
        ));
        lines.extend(job.rank.iter().map(rank_line));
    }
    lines
}

fn rank_line(rank: &RankView) -> String {
    let core = match (rank.bound_core, rank.last_core) {
        (Some(core), _) => core.to_string(),
        (None, Some(core)) => format!("({core})"),
        (None, None) => "-".into(),
    };
    let state = match (rank.state, &rank.waiting) {
        (State::Waiting, Some(w)) => format!("waiting in {} since {}", w.text, duration(w.since_s)),
        (State::Waiting, None) => "waiting".into(),
        (State::Starting, _) => "starting".into(),
        (State::Computing, _) if rank.call.is_empty() => "computing".into(),
        (State::Computing, _) => format!("computing, last call {}", rank.call),
        (State::Finished, _) => "finished".into(),
    };
    format!(
        "{:>5} {:>8} {:>5} {:>6.1}  {state}",
        rank.rank, rank.pid, core, rank.cpu_percent
    )
}

/// A command line without what could disturb the terminal.
fn printable(text: &str) -> String {
    text.chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect()
}

fn duration(seconds: f64) -> String {
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

#[cfg(test)]
mod tests {
    use super::*;
    use margay_job_launch::mesh::WaitView;

    #[test]
    fn the_table_names_job_ranks_and_findings() {
        let rank = |rank, state, waiting| RankView {
            rank,
            pid: 100 + rank,
            bound_core: (rank == 0).then_some(3),
            last_core: Some(1),
            state,
            call: "MPI_Recv".into(),
            waiting,
            cpu_s: 1.0,
            cpu_percent: 99.5,
        };
        let waiting = WaitView {
            kind: "receive",
            rank: Some(1),
            tag: None,
            context: 0,
            since_s: 75.0,
            text: "MPI_Recv for rank 1".into(),
        };
        let job = JobView {
            job: 77,
            command: "a.out\x1b[2J".into(),
            ranks: 2,
            cores: 4,
            running_s: 3700.0,
            findings: vec!["deadlock: 0 → 0".into()],
            deadlocks: vec![vec![0]],
            rank: vec![
                rank(0, State::Waiting, Some(waiting)),
                rank(1, State::Computing, None),
            ],
        };
        let lines = table(&[job]);
        assert_eq!(lines[0], "job 77: a.out [2J");
        assert_eq!(lines[1], "2 ranks on 4 cores, running for 1:01:40 h");
        assert_eq!(lines[2], "deadlock: 0 → 0");
        assert_eq!(
            lines[4],
            "    0      100     3   99.5  waiting in MPI_Recv for rank 1 since 1:15 min"
        );
        assert_eq!(
            lines[5],
            "    1      101   (1)   99.5  computing, last call MPI_Recv"
        );
        assert_eq!(table(&[]), ["no jobs are running"]);
    }
}
