//! Control groups of jobs (cgroup v2), where the system lets root's head make some: one for each
//! job, with limits on its CPU time, memory and processes, by which it is also ended as a whole.
//! Without them jobs are watched and ended as in a user's own queue.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The name of the head's unit, and the beginning of its group's where no systemd gives it one.
const UNIT: &str = "margay-queue.service";
const OWN: &str = "margay-queue";

/// The group of the head itself: one that has groups below it may hold no process.
const HEAD: &str = "head";

/// What groups of jobs are called, before the name of the job's folder.
const JOB: &str = "job-";

/// Limits that groups can have.
const CONTROLLERS: [&str; 3] = ["cpu", "memory", "pids"];

/// The most processes and threads of a job, for each of its slots.
const PIDS: u64 = 4096;

/// How long the kernel may take to end what was killed.
const GONE_WITHIN: Duration = Duration::from_secs(2);

/// Where groups of jobs are made.
#[derive(Clone, Debug)]
pub struct Groups {
    base: PathBuf,
    /// What can be limited.
    controllers: Vec<&'static str>,
}

impl Groups {
    /// Finds or makes the place, and moves this process where it does not stand in the way. Without
    /// systemd its name is made of the queue's folder: systems in containers may see each other's.
    ///
    /// # Errors
    /// In words: why there is none.
    pub fn open(has_systemd: bool, folder: &Path) -> Result<Groups, String> {
        let read = |path: &str| {
            fs::read_to_string(path).map_err(|error| format!("cannot read {path}: {error}"))
        };
        let mounts = read("/proc/self/mountinfo")?;
        let own = own_folder(&mounts, &read("/proc/self/cgroup")?)?;
        match (has_systemd, unit_of(&own)) {
            (true, Some(unit)) => Self::at(unit, Some(std::process::id())),
            // systemd gives others' groups to nobody.
            (true, None) => Err(format!("the head is not in the unit {UNIT}")),
            (false, _) => {
                let failed = |error: io::Error| format!("{}: {error}", folder.display());
                let found = fs::metadata(folder).map_err(failed)?;
                let name = format!("{OWN}-{:x}-{:x}", found.dev(), found.ino());
                Self::at(own.join(name), None)
            }
        }
    }

    /// Below this group, out of which this head is to go.
    fn at(base: PathBuf, head: Option<u32>) -> Result<Groups, String> {
        let failed = |error: io::Error| format!("cannot use {}: {error}", base.display());
        make(&base).map_err(failed)?;
        if let Some(head) = head {
            let own = base.join(HEAD);
            make(&own).map_err(failed)?;
            set(&own, "cgroup.procs", &head.to_string()).map_err(failed)?;
        }
        let text = fs::read_to_string(base.join("cgroup.controllers")).map_err(failed)?;
        let mut controllers: Vec<&'static str> = CONTROLLERS.to_vec();
        controllers.retain(|name| {
            let is_there = text.split_whitespace().any(|other| other == *name);
            is_there && set(&base, "cgroup.subtree_control", &format!("+{name}")).is_ok()
        });
        Ok(Groups { base, controllers })
    }

    /// Removes the place, unless jobs are left in it, or systemd does so.
    pub fn close(&self) {
        let _ = fs::remove_dir(&self.base);
    }

    /// What jobs have, in words.
    #[must_use]
    pub fn shown(&self) -> String {
        match &self.controllers[..] {
            [] => "a control group for each job, which the system lets limit nothing".into(),
            some => format!(
                "a control group for each job, with limits of {}",
                some.join(", ")
            ),
        }
    }

    /// The group of a job, which need not be there.
    #[must_use]
    pub fn of(&self, name: &str) -> JobGroup {
        JobGroup(self.base.join(format!("{JOB}{name}")))
    }

    /// All groups of jobs that are there, with the jobs' names.
    #[must_use]
    pub fn all(&self) -> Vec<(String, JobGroup)> {
        let all = fs::read_dir(&self.base).into_iter().flatten().flatten();
        let named = all.filter_map(|entry| {
            let name = entry.file_name().to_str()?.strip_prefix(JOB)?.to_owned();
            Some((name, JobGroup(entry.path())))
        });
        named.collect()
    }
}

/// The folder of this process's group: what is mounted where, and which group it is.
fn own_folder(mounts: &str, groups: &str) -> Result<PathBuf, String> {
    let own = groups.lines().find_map(|line| line.strip_prefix("0::"));
    let own = own.ok_or("the kernel has no control groups of version 2")?;
    for line in mounts.lines() {
        let Some((before, after)) = line.split_once(" - ") else {
            continue;
        };
        let mut fields = before.split(' ').skip(3);
        let (Some(root), Some(at)) = (fields.next(), fields.next()) else {
            continue;
        };
        if after.split(' ').next() != Some("cgroup2") {
            continue;
        }
        let below = Path::new(own).strip_prefix(root);
        let below = below.map_err(|_| "the control groups of this process are not mounted")?;
        return Ok(Path::new(at).join(below));
    }
    Err("no control groups of version 2 are mounted".into())
}

/// The unit's own group, if the head is in it or below it.
fn unit_of(own: &Path) -> Option<PathBuf> {
    let is_unit = |path: &&Path| path.file_name().is_some_and(|name| name == UNIT);
    own.ancestors().find(is_unit).map(Path::to_owned)
}

fn make(folder: &Path) -> io::Result<()> {
    match fs::create_dir(folder) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
        done => done,
    }
}

fn set(folder: &Path, file: &str, text: &str) -> io::Result<()> {
    let mut file = File::options().write(true).open(folder.join(file))?;
    file.write_all(text.as_bytes())
}

/// The group of a job.
#[derive(Clone, Debug)]
pub struct JobGroup(pub PathBuf);

impl JobGroup {
    /// Makes it with its limits: CPU time of its slots, memory where the job asks for some, and
    /// processes.
    ///
    /// # Errors
    /// What the system says.
    pub fn make(&self, slots: u32, memory_mib: Option<u64>) -> io::Result<()> {
        // What a head left that was killed.
        let _ = self.remove();
        make(&self.0)?;
        let slots = u64::from(slots.max(1));
        let memory = memory_mib.map(|mib| (mib << 20).to_string());
        for (file, text) in [
            ("cpu.max", Some(format!("{} 100000", slots * 100_000))),
            ("memory.max", memory.clone()),
            ("memory.swap.max", memory.as_ref().map(|_| "0".to_owned())),
            ("memory.oom.group", memory.map(|_| "1".to_owned())),
            ("pids.max", Some((slots * PIDS).to_string())),
        ] {
            // A file that is not there is a limit that the system does not give.
            if let Some(text) = text
                && self.0.join(file).exists()
            {
                set(&self.0, file, &text)?;
            }
        }
        Ok(())
    }

    /// Moves this process into it.
    ///
    /// # Errors
    /// What the system says.
    pub fn enter(&self) -> io::Result<()> {
        set(&self.0, "cgroup.procs", "0")
    }

    /// Whether the kernel has killed something in it that needed more memory than there is.
    #[must_use]
    pub fn lacked_memory(&self) -> bool {
        let text = fs::read_to_string(self.0.join("memory.events")).unwrap_or_default();
        let mut lines = text.lines();
        lines.any(|line| {
            line.strip_prefix("oom_kill ")
                .is_some_and(|count| count != "0")
        })
    }

    /// Kills all that is in it, and removes it.
    ///
    /// # Errors
    /// What the system says, when something in it does not end.
    pub fn remove(&self) -> io::Result<()> {
        let begun = Instant::now();
        loop {
            match fs::remove_dir(&self.0) {
                Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
                Err(error) if begun.elapsed() > GONE_WITHIN => return Err(error),
                Err(_) => {
                    let _ = set(&self.0, "cgroup.kill", "1");
                    std::thread::sleep(Duration::from_millis(1));
                }
                Ok(()) => return Ok(()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_own_group_is_found_where_it_is_mounted() {
        let line = |root: &str, at: &str, kind: &str| {
            format!("30 24 0:26 {root} {at} rw,nosuid shared:9 - {kind} cgroup rw\n")
        };
        let hybrid = line("/", "/sys/fs/cgroup/cpu", "cgroup")
            + &line("/", "/sys/fs/cgroup/unified", "cgroup2");
        let unit = "1:cpu:/x\n0::/system.slice/margay-queue.service/head\n";
        let own = own_folder(&hybrid, unit).unwrap();
        let service = "/sys/fs/cgroup/unified/system.slice/margay-queue.service";
        assert_eq!(own, Path::new(service).join("head"));
        assert_eq!(unit_of(&own).unwrap(), Path::new(service));
        assert_eq!(unit_of(Path::new("/sys/fs/cgroup/user.slice")), None);
        // A part of the tree, as containers have it.
        let part = line("/box", "/sys/fs/cgroup", "cgroup2");
        let own = own_folder(&part, "0::/box/a\n").unwrap();
        assert_eq!(own, Path::new("/sys/fs/cgroup/a"));
        assert!(own_folder(&part, "0::/other\n").is_err());
        assert!(own_folder("", "0::/\n").is_err() && own_folder(&part, "1:cpu:/\n").is_err());
    }

    #[test]
    fn a_job_has_the_limits_that_the_system_gives() {
        let folder = std::env::temp_dir().join(format!("margay-groups-{}", std::process::id()));
        fs::create_dir_all(folder.join("job-7.1")).unwrap();
        fs::create_dir_all(folder.join(HEAD)).unwrap();
        for (file, text) in [
            ("cgroup.controllers", "cpuset cpu io memory\n"),
            ("cgroup.subtree_control", ""),
            ("head/cgroup.procs", ""),
            ("job-7.1/cgroup.procs", ""),
            ("job-7.1/cpu.max", ""),
            ("job-7.1/memory.max", ""),
            ("job-7.1/memory.events", "low 0\noom 1\noom_kill 2\n"),
        ] {
            fs::write(folder.join(file), text).unwrap();
        }
        let groups = Groups::at(folder.clone(), Some(12)).unwrap();
        assert_eq!(
            groups.shown(),
            "a control group for each job, with limits of cpu, memory"
        );
        let job = groups.of("7.1");
        assert_eq!(groups.all().len(), 1);
        let read = |file: &str| fs::read_to_string(folder.join(file)).unwrap();
        for (file, text) in [("cpu.max", "200000 100000"), ("memory.max", "3145728")] {
            set(&job.0, file, text).unwrap();
            assert_eq!(read(&format!("job-7.1/{file}")), text);
        }
        assert!(job.lacked_memory() && !groups.of("8").lacked_memory());
        assert_eq!(read("head/cgroup.procs"), "12");
        fs::remove_dir_all(folder).unwrap();
    }
}
