//! `margay profile`: where the ranks of a running job spend their time.

use margay_job_observe::sample::{Wanted, look};
use margay_sys_os::signal::{SIGHUP, SIGINT, SIGTERM, SignalFd, SignalSet};

use crate::live::{can_see_jobs, job_title, plain, print, text};
use crate::options::ProfileOptions;

/// Looks at a job for a while, and shows what was seen.
///
/// # Errors
/// Why there is nothing to show, and the remedy.
pub fn show(options: &ProfileOptions) -> Result<(), String> {
    can_see_jobs()?;
    // Who ends it earlier wants to see what there is until then.
    let signals = SignalSet::of(&[SIGINT, SIGTERM, SIGHUP]);
    let _before = signals.block();
    let received = SignalFd::new(&signals);
    let mut received = received.map_err(|error| format!("cannot watch for signals: {error}"))?;
    let wanted = Wanted {
        job: options.job,
        within: options.seconds,
        rate: options.rate,
    };
    let sampled = look(&wanted, &mut || received.take().is_some())?;
    let shown = if options.json {
        let json = serde_json::json!({ "version": 1, "profile": sampled });
        serde_json::to_string_pretty(&json).map_err(|error| error.to_string())? + "\n"
    } else {
        let title = job_title(sampled.job, &sampled.command);
        let looked = format!(
            "{} stacks read in {:.1} s",
            sampled.samples, sampled.seconds
        );
        let lines = [title, looked].into_iter().chain(sampled.lines());
        text(lines.map(plain).collect())
    };
    print(&shown)
}
