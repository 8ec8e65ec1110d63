//! The Program Marker Array: the lights and texts that tasks of MPL show, as `margay markers` shows
//! them.

use margay_core_registry::markers::{KEY, Row};
use margay_job_registry::Jobs;
use margay_net_platform::Peers;
use serde::Serialize;

/// The rows of a job. The field names are those of `margay markers --json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MarkersView {
    /// The job's number: the process id of its launcher.
    pub job: u64,
    /// Its command line.
    pub command: String,
    /// The tasks that have set a marker, in order.
    pub task: Vec<TaskView>,
}

/// The row of a task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TaskView {
    /// Its number.
    pub task: u32,
    /// The colour of each light, 0 to 99.
    pub lights: Vec<u8>,
    /// Its text.
    pub text: String,
}

/// Reads the markers of this machine's jobs again and again.
#[derive(Default)]
pub struct Markers {
    jobs: Jobs,
}

impl Markers {
    /// Returns the markers of the jobs that run now, the oldest job first.
    pub fn look(&mut self) -> Vec<MarkersView> {
        self.jobs.look().into_iter().map(view).collect()
    }
}

fn view(peers: &dyn Peers) -> MarkersView {
    let facts = peers.facts();
    let task = |task| {
        let note = peers.note(task, KEY)?;
        let shown = Row::of(&note)?.read();
        Some(TaskView {
            task,
            lights: shown.lights,
            text: shown.text,
        })
    };
    MarkersView {
        job: facts.job,
        command: facts.command,
        task: (0..peers.size()).filter_map(task).collect(),
    }
}
