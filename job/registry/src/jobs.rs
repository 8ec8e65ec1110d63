//! The segments of the jobs that run on this machine, found through the descriptors that launchers
//! hold.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::Arc;

use margay_net_platform::Peers;
use margay_net_shm::SegmentPeers;
use margay_sys_os::process::{all_processes, descendants};
use margay_sys_shm::mapping::MEMFD_NAME;
use margay_sys_shm::segment::Segment;

/// The registries of all jobs that the user may see: a launcher of another user is passed over.
#[derive(Default)]
pub struct Jobs {
    /// By the number of the segment's file.
    known: HashMap<u64, Arc<dyn Peers>>,
}

impl Jobs {
    /// Returns the registries of the jobs that run now, the oldest first.
    pub fn look(&mut self) -> Vec<&dyn Peers> {
        self.find();
        let mut all: Vec<&dyn Peers> = self.known.values().map(|peers| &**peers).collect();
        // Where hosts are containers of this machine, a job is found in the launcher's segment,
        // which has all of its ranks, and in that of each agent.
        let is_whole = |peers: &dyn Peers| peers.facts().job == u64::from(peers.facts().launcher);
        let whole: HashSet<u64> = (all.iter())
            .filter(|peers| is_whole(**peers))
            .map(|peers| peers.facts().job)
            .collect();
        all.retain(|peers| is_whole(*peers) || !whole.contains(&peers.facts().job));
        all.sort_by_key(|peers| {
            let facts = peers.facts();
            (facts.started_ns, facts.job)
        });
        all
    }

    /// Joins the segments of new launchers and forgets those that have gone. Ranks hold the segment
    /// too; it counts when its launcher holds it.
    fn find(&mut self) {
        let mut known = std::mem::take(&mut self.known);
        let mut live = HashSet::new();
        for pid in all_processes() {
            let Some((path, file)) = held_segment(pid) else {
                continue;
            };
            let peers = match known.entry(file) {
                Entry::Occupied(entry) => entry.into_mut(),
                Entry::Vacant(entry) => {
                    // A mapping for writing is what `join` makes; nothing is ever written here.
                    let opened = File::options().read(true).write(true).open(path);
                    let joined = opened.ok().and_then(|f| Segment::join(f.into()).ok());
                    let Some(segment) = joined else {
                        continue;
                    };
                    entry.insert(SegmentPeers::of(&Arc::new(segment)))
                }
            };
            if peers.facts().launcher == pid {
                live.insert(file);
            }
        }
        known.retain(|file, _| live.contains(file));
        self.known = known;
    }
}

/// Whether launchers are among the descendants of this process, those below the children in
/// `except` left out.
#[must_use]
pub fn has_launchers(except: &[u32]) -> bool {
    descendants(except).iter().any(|facts| {
        let held = held_segment(facts.pid).and_then(|(path, _)| {
            let opened = File::options().read(true).write(true).open(path);
            Segment::join(opened.ok()?.into()).ok()
        });
        // The segment of an agent, where its host is a container of this machine, has the number
        // of the launcher's job.
        held.is_some_and(|segment| {
            let of = segment.registry().facts();
            of.launcher == facts.pid && of.job == u64::from(of.launcher)
        })
    })
}

/// Returns the first descriptor of `pid` that is a job's segment: its path and the file's number.
fn held_segment(pid: u32) -> Option<(PathBuf, u64)> {
    let wanted = format!("/memfd:{MEMFD_NAME}");
    let path = fs::read_dir(format!("/proc/{pid}/fd"))
        .ok()?
        .flatten()
        .map(|entry| entry.path())
        .find(|path| {
            fs::read_link(path).is_ok_and(|to| to.to_string_lossy().starts_with(&wanted))
        })?;
    let file = fs::metadata(&path).ok()?.ino();
    Some((path, file))
}
