//! The Program Marker Array: the lights and texts that tasks of MPL show, as `margay markers` shows them.

use margay_job_registry::Jobs;
use margay_sys::markers::Row;
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

/// Looks at the markers of this machine's jobs again and again.
#[derive(Debug, Default)]
pub struct Markers {
    jobs: Jobs,
}

impl Markers {
    /// The markers of the jobs that run now, the oldest job first.
    pub fn look(&mut self) -> Vec<MarkersView> {
        let segments = self.jobs.look().into_iter();
        let view = |segment: &margay_sys::segment::Segment| MarkersView {
            job: segment.header().job_id(),
            command: segment.header().command(),
            task: (0..segment.ranks())
                .filter_map(|task| {
                    let shown = Row::of(segment, task)?.read();
                    Some(TaskView {
                        task,
                        lights: shown.lights,
                        text: shown.text,
                    })
                })
                .collect(),
        };
        segments.map(view).collect()
    }
}
