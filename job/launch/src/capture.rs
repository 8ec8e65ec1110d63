//! Files that get the output of ranks.

use std::collections::HashMap;
use std::fs::{self, File};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use margay_sys_os::descriptor::Outlet;

use crate::output::Merger;
use crate::plan::{Job, LaunchError};
use crate::sinks::{Sink, labels};

/// Opens the files of all ranks as sinks behind those that are there; returns for each rank which
/// sinks its output and its error go to. Ranks whose files have the same name share one, in which
/// lines stay whole. `host_of` is the number and the name of a rank's host.
///
/// # Errors
/// When a file cannot be made, or its name has a letter after `%` that means nothing.
pub(crate) fn open(
    job: &Job,
    ranks: u32,
    host_of: &dyn Fn(u32) -> (u32, String),
    sinks: &mut Vec<Sink>,
) -> Result<Vec<[Option<usize>; 2]>, LaunchError> {
    let capture = &job.capture;
    let patterns = [
        ("-output-files", &capture.output),
        ("-error-files", &capture.error),
    ];
    let mut known: HashMap<PathBuf, usize> = HashMap::new();
    let mut all = Vec::new();
    if job.capture.output.is_none() && job.capture.error.is_none() {
        return Ok(vec![[None; 2]; ranks as usize]);
    }
    for rank in 0..ranks {
        let host = host_of(rank);
        let mut own = [None; 2];
        for ((option, pattern), place) in patterns.iter().zip(&mut own) {
            let Some(pattern) = pattern else { continue };
            let wrong = |why: String| LaunchError::usage(format!("{option}: {why}"));
            let path = PathBuf::from(file_name(pattern, rank, ranks, &host).map_err(wrong)?);
            if let Some(&sink) = known.get(&path) {
                *place = Some(sink);
                continue;
            }
            let outlet = create(&path).map_err(|e| {
                wrong(format!(
                    "cannot make the file '{}': {e}; name one that you may write, and raise the limit of open files (ulimit -n) if that is the reason",
                    path.display()
                ))
            })?;
            *place = Some(sinks.len());
            known.insert(path.clone(), sinks.len());
            sinks.push(Sink {
                merger: Merger::new(labels(job)),
                outlet,
                closed: false,
                is_output: false,
                file: Some(path),
            });
        }
        all.push(own);
    }
    Ok(all)
}

fn create(path: &Path) -> std::io::Result<Outlet> {
    if let Some(folder) = path.parent().filter(|f| !f.as_os_str().is_empty()) {
        fs::create_dir_all(folder)?;
    }
    // What the outlet holds is open for this file alone: the ranks get pipes.
    let file = File::create(path)?;
    Outlet::new(file.as_fd())
}

/// Returns the name of the file of a rank, on the host with this number and name.
fn file_name(
    pattern: &str,
    rank: u32,
    ranks: u32,
    (number, host): &(u32, String),
) -> Result<String, String> {
    let mut name = String::new();
    let mut letters = pattern.chars();
    while let Some(letter) = letters.next() {
        if letter != '%' {
            name.push(letter);
            continue;
        }
        let digits = ranks.saturating_sub(1).to_string().len();
        match letters.next() {
            Some('r') => name.push_str(&rank.to_string()),
            Some('R') => name.push_str(&format!("{rank:0digits$}")),
            Some('h') => name.push_str(host),
            Some('p') => name.push_str(&number.to_string()),
            Some('g') => name.push('0'),
            Some('%') => name.push('%'),
            other => {
                let what = other.map(String::from).unwrap_or_default();
                return Err(format!(
                    "'%{what}' in '{pattern}' means nothing; %r is the rank, %R the rank with leading zeros, %h the host, %g the job, \
                     %p the host's number, %% a percent sign"
                ));
            }
        }
    }
    Ok(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_files() {
        let host = (3, "far".to_owned());
        for (pattern, name) in [
            ("out", "out".to_owned()),
            ("out.%r", "out.7".to_owned()),
            ("d/%R/x", "d/07/x".to_owned()),
            ("%h-%g-%p-%%", "far-0-3-%".to_owned()),
        ] {
            assert_eq!(file_name(pattern, 7, 12, &host).unwrap(), name);
        }
        for pattern in ["x%", "x%q"] {
            assert!(
                file_name(pattern, 0, 1, &host)
                    .unwrap_err()
                    .contains("%r is the rank")
            );
        }
    }
}
