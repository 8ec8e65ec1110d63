//! `margay why`: why jobs hang or are slow.

use margay_job_observe::calls;
use margay_job_observe::why::{self, JobWhy};
use margay_job_registry::Jobs;

use crate::live::{Line, can_see_jobs, job_size, job_title, of_each, plain, print, settle, text};
use crate::options::WhyOptions;

/// Shows the jobs once.
///
/// # Errors
/// Why there is nothing to show, and the remedy.
pub fn show(options: &WhyOptions) -> Result<(), String> {
    can_see_jobs()?;
    if let Some(most) = options.calls {
        return show_calls(options, most);
    }
    let mut registry = Jobs::default();
    let mut jobs = why::look(&mut registry, options.job)?;
    if jobs.iter().any(|job| job.is_unsettled) {
        settle();
        jobs = why::look(&mut registry, options.job)?;
    }
    let shown = if options.json {
        let json = serde_json::json!({ "version": 1, "jobs": jobs });
        serde_json::to_string_pretty(&json).map_err(|error| error.to_string())? + "\n"
    } else {
        text(of_each(&jobs, lines))
    };
    print(&shown)
}

/// Shows the last calls of the ranks of the jobs.
fn show_calls(options: &WhyOptions, most: usize) -> Result<(), String> {
    let mut registry = Jobs::default();
    let jobs = calls::of_jobs(&mut registry, options.job, most)?;
    let shown = if options.json {
        let json = serde_json::json!({ "version": 1, "jobs": jobs });
        serde_json::to_string_pretty(&json).map_err(|error| error.to_string())? + "\n"
    } else {
        text(of_each(&jobs, |job| {
            let title = job_title(job.job, &job.command);
            [title].into_iter().chain(job.lines()).map(plain).collect()
        }))
    };
    print(&shown)
}

/// Returns a job as lines of text.
fn lines(job: &JobWhy) -> Vec<Line> {
    let title = job_title(job.job, &job.command);
    let size = job_size(job.ranks, job.cores, job.running_s);
    let lines = [title, size].into_iter().chain(job.lines());
    lines.map(plain).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use margay_job_observe::mesh::State;
    use margay_job_observe::why::{Class, FrameView, Late, Unread};

    #[test]
    fn ranks_that_do_the_same_share_a_line() {
        let frame = |function: &str, line: u32, text: &str| FrameView {
            function: function.into(),
            file: Some("/src/a.c".into()),
            line: Some(line),
            module: "/bin/a.out".into(),
            text: text.into(),
            place: format!("a.c:{line}"),
            caller: format!(" at a.c:{line}"),
        };
        let class = |ranks: &[u32], state, waiting: &str, stack: Vec<_>| Class {
            ranks: ranks.to_vec(),
            state,
            call: "MPI_Barrier".into(),
            waiting: waiting.into(),
            since_s: (!waiting.is_empty()).then_some(41.0),
            missing: if waiting.is_empty() { vec![] } else { vec![5] },
            at: stack.first().cloned(),
            stack,
            further: vec![],
        };
        let main = frame("main()", 20, "at a.c:20 in main()");
        let smooth = frame("smooth()", 88, "at a.c:88 in smooth()");
        let waiting = "MPI_Barrier for the other ranks";
        let job = JobWhy {
            job: 77,
            command: "a.out\x1b[2J".into(),
            ranks: 7,
            cores: 2,
            running_s: 75.0,
            findings: vec![],
            deadlocks: vec![],
            late: vec![Late {
                rank: 5,
                waiting_ranks: 5,
                since_s: 41.0,
            }],
            classes: vec![
                class(
                    &[0, 1, 2, 3, 4],
                    State::Waiting,
                    waiting,
                    vec![main.clone()],
                ),
                class(&[5], State::Computing, "", vec![smooth, main]),
                class(&[6], State::Finished, "", vec![]),
            ],
            teams: Vec::new(),
            operations: Vec::new(),
            unexpected: Vec::new(),
            unread: vec![Unread {
                ranks: vec![6],
                why: "it has ended".into(),
            }],
            is_unsettled: false,
        };
        assert_eq!(
            text(of_each(&[job], lines)).lines().collect::<Vec<_>>(),
            [
                "job 77: a.out [2J",
                "7 ranks on 2 cores, running for 1:15 min",
                "rank 5 is late: 5 ranks wait for it, for 41.0 s",
                "5 ranks (0-4) wait in MPI_Barrier for the other ranks (rank 5 is not in it) at a.c:20, for 41.0 s",
                "rank 5 is computing at a.c:88 in smooth(); its last call was MPI_Barrier",
                "    smooth() a.c:88",
                "    main() a.c:20",
                "rank 6 has finished",
                "no stack of rank 6: it has ended",
            ]
        );
        assert_eq!(text(of_each(&[], lines)), "no jobs are running\n");
    }
}
