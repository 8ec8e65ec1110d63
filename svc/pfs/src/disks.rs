//! Opening stripe directories: what is done with them has a deadline, and is counted.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use margay_fs_stripes::{Counted, Disk, Folder, Health, Traffic, Watched, in_time};

use crate::lock::lock;
use crate::show;

/// How long letting a stripe directory go may take.
const RELEASED_WITHIN: Duration = Duration::from_secs(1);

/// Why a stripe directory cannot be used.
pub enum Refusal {
    /// Another process uses it.
    InUse(String),
    Unusable(String),
}

impl Refusal {
    /// In words.
    pub fn text(self) -> String {
        match self {
            Refusal::InUse(text) | Refusal::Unusable(text) => text,
        }
    }
}

/// The stripe directories that were opened.
pub struct Disks {
    deadline: Duration,
    traffic: Mutex<BTreeMap<String, Arc<Traffic>>>,
    opened: Mutex<Vec<Weak<Folder>>>,
}

impl Disks {
    /// Operations that take longer than `deadline` fail.
    pub fn new(deadline: Duration) -> Disks {
        Disks {
            deadline,
            traffic: Mutex::default(),
            opened: Mutex::default(),
        }
    }

    /// Opens a stripe directory.
    pub fn open(&self, path: &str) -> Result<Arc<dyn Disk>, Refusal> {
        let owned = path.to_owned();
        let opened = in_time(self.deadline, move || {
            let path = Path::new(&owned);
            Folder::open(path).map_err(|text| match Folder::is_in_use(path) {
                true => Refusal::InUse(text),
                false => Refusal::Unusable(text),
            })
        });
        let silent = |error| Refusal::Unusable(format!("{path}: {error}"));
        Ok(self.take(path, opened.map_err(silent)??))
    }

    /// Makes a stripe directory.
    pub fn create(&self, path: &str) -> Result<Arc<dyn Disk>, String> {
        let owned = path.to_owned();
        let made = in_time(self.deadline, move || Folder::create(Path::new(&owned)));
        let made = made.map_err(|error| format!("{path}: {error}"))?;
        Ok(self.take(path, made?))
    }

    fn take(&self, path: &str, folder: Folder) -> Arc<dyn Disk> {
        let folder = Arc::new(folder);
        let mut opened = lock(&self.opened);
        opened.retain(|folder| folder.strong_count() > 0);
        opened.push(Arc::downgrade(&folder));
        drop(opened);
        let mut disk: Arc<dyn Disk> = folder;
        if !disk.is_memory() {
            disk = Arc::new(Watched::new(disk, self.deadline));
        }
        let mut all = lock(&self.traffic);
        let traffic = all.entry(path.to_owned()).or_default();
        Arc::new(Counted::new(disk, Arc::clone(traffic)))
    }

    /// Lets others use the stripe directories. A process does not end while one of its threads
    /// waits for a disk that hangs, so its end does not do that.
    pub fn release(&self) {
        let folders = lock(&self.opened)
            .iter()
            .filter_map(Weak::upgrade)
            .collect::<Vec<_>>();
        for folder in folders {
            // One that hangs is in nobody's way.
            let _ = in_time(RELEASED_WITHIN, move || folder.release());
        }
    }

    /// The counters of a stripe directory, as a line.
    pub fn line(&self, path: &str, health: Health) -> String {
        let traffic = lock(&self.traffic).get(path).cloned().unwrap_or_default();
        let of = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
        let (place, how) = (path.replace(' ', "_"), show::health(health));
        format!(
            "disk {place} {} {} {} {} {} {path} ({how})\n",
            of(&traffic.reads),
            of(&traffic.read_bytes),
            of(&traffic.writes),
            of(&traffic.write_bytes),
            of(&traffic.busy_us)
        )
    }
}
