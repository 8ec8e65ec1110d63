//! `margay markers`: the Program Marker Array, a row a task with lights and text.

use margay_job_observe::markers::{Markers, MarkersView, TaskView};

use crate::live::{Line, Piece, View, job_title, of_each, plain, printable};

impl View for Markers {
    type Job = MarkersView;

    fn look(&mut self) -> Vec<MarkersView> {
        Markers::look(self)
    }

    fn id(job: &MarkersView) -> u64 {
        job.job
    }

    fn lines(jobs: &[MarkersView], is_live: bool) -> Vec<Line> {
        of_each(jobs, |job| table(job, is_live))
    }
}

/// Returns the tasks of a job that have set markers, a row each.
fn table(job: &MarkersView, is_live: bool) -> Vec<Line> {
    let title = plain(job_title(job.job, &job.command));
    if job.task.is_empty() {
        return vec![title, plain("no task has set a marker")];
    }
    let lights = job.task.iter().map(|task| task.lights.len()).max();
    let width = lights.unwrap_or(0) * if is_live { 2 } else { 3 };
    let heading = format!("{:>5}  {:<width$} {}", "TASK", "LIGHTS", "TEXT");
    let rows = (job.task.iter()).map(|task| row(task, width.max(6), is_live));
    [title, plain(heading)].into_iter().chain(rows).collect()
}

/// Returns a task's lights and text. On a terminal lights have their colours, elsewhere a colour is
/// its number, and a light that is off a dot.
fn row(task: &TaskView, width: usize, is_live: bool) -> Line {
    let mut line = plain(format!("{:>5}  ", task.task));
    let each = if is_live { 2 } else { 3 };
    line.extend(task.lights.iter().map(|&color| match (color, is_live) {
        (0, true) => piece("· ", None),
        (color, true) => piece("● ", Some(color)),
        (0, false) => piece(" . ", None),
        (color, false) => piece(&format!("{color:>2} "), None),
    }));
    let gap = width.saturating_sub(task.lights.len() * each) + 1;
    let text = format!("{:gap$}{}", "", printable(&task.text));
    line.push(piece(&text, None));
    line
}

fn piece(text: &str, color: Option<u8>) -> Piece {
    Piece {
        text: text.to_owned(),
        color,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_show_lights_and_text() {
        let job = MarkersView {
            job: 7,
            command: "a.out".into(),
            task: vec![
                TaskView {
                    task: 0,
                    lights: vec![0, 2, 31],
                    text: "step\t3".into(),
                },
                TaskView {
                    task: 1,
                    lights: vec![0, 0, 0],
                    text: String::new(),
                },
            ],
        };
        let text = |is_live| -> Vec<String> {
            let lines = Markers::lines(std::slice::from_ref(&job), is_live);
            let joined = lines
                .into_iter()
                .map(|line| line.into_iter().map(|p| p.text).collect());
            joined.collect()
        };
        assert_eq!(
            text(false),
            [
                "job 7: a.out",
                " TASK  LIGHTS    TEXT",
                "    0   .  2 31  step 3",
                "    1   .  .  .  "
            ]
        );
        assert_eq!(text(true)[2], "    0  · ● ●  step 3");
        assert_eq!(Markers::lines(&[job], true)[2][2].color, Some(2));
    }
}
