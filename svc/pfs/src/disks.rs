//! Opening stripe directories: what is done with them has a deadline, and is counted.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt::Display;
use std::io;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use margay_fs_stripes::{Counted, Disk, Folder, Health, Store, Traffic, Watched, in_time};
use margay_job_launch::hosts::named_shell;
use margay_svc_pfs_options::{Owned, Reaching};

use crate::hosts::disk::Remote;
use crate::hosts::door::Entrance;
use crate::hosts::invite;
use crate::hosts::program::Why;
use crate::hosts::reach::{Opening, Wish};
use crate::lock::lock;
use crate::registry::elsewhere;
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

/// How those on other hosts are had.
#[derive(Clone, Debug)]
pub struct Others {
    /// Whether they are a job's, and what becomes of them then.
    pub owner: Option<Owned>,
    /// The words of the remote shell.
    pub shell: Vec<OsString>,
    /// The ports at which they reach this process.
    pub ports: Option<(u16, u16)>,
}

impl Others {
    /// As the environment says.
    pub fn usual() -> Others {
        let shell = std::env::var("MARGAY_RSH").unwrap_or_default();
        Others {
            owner: None,
            shell: named_shell(&shell),
            ports: None,
        }
    }

    /// As options say, which have what the environment says.
    pub fn new(owner: Option<Owned>, reaching: &Reaching) -> Others {
        Others {
            owner,
            shell: named_shell(reaching.launcher_exec.as_deref().unwrap_or_default()),
            ports: reaching.port_range,
        }
    }
}

/// The stripe directories that were opened.
pub struct Disks {
    /// The name of the file system.
    name: String,
    deadline: Duration,
    others: Others,
    traffic: Mutex<BTreeMap<String, Arc<Traffic>>>,
    opened: Mutex<Vec<Weak<Folder>>>,
    remotes: Mutex<Vec<Weak<Remote>>>,
    /// Where hosts reach this process, once one has to.
    entrance: Mutex<Option<Arc<Entrance>>>,
}

impl Disks {
    /// Operations that take longer than `deadline` fail.
    pub fn new(name: &str, deadline: Duration, others: Others) -> Disks {
        Disks {
            name: name.to_owned(),
            deadline,
            others,
            traffic: Mutex::default(),
            opened: Mutex::default(),
            remotes: Mutex::default(),
            entrance: Mutex::default(),
        }
    }

    /// Opens a stripe directory.
    pub fn open(&self, path: &str) -> Result<Arc<dyn Disk>, Refusal> {
        if let Some((host, there)) = elsewhere(path) {
            let how = match self.others.owner {
                Some(Owned::Temporary) => Opening::Temporary,
                Some(Owned::Kept) | None => Opening::Plain,
            };
            let opened = self.there(path, host, there, how);
            return opened.map_err(|why| match why.is_in_use {
                true => Refusal::InUse(why.text),
                false => Refusal::Unusable(why.text),
            });
        }
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
        if let Some((host, there)) = elsewhere(path) {
            return self
                .there(path, host, there, Opening::New)
                .map_err(|why| why.text);
        }
        let owned = path.to_owned();
        let made = in_time(self.deadline, move || Folder::create(Path::new(&owned)));
        let made = made.map_err(|error| format!("{path}: {error}"))?;
        Ok(self.take(path, made?))
    }

    /// Removes what `create` has made, or what is not wanted any more.
    pub fn remove(&self, path: &str) {
        match elsewhere(path) {
            None => Folder::remove(Path::new(path)),
            Some((host, there)) => {
                let wish = Wish::Removal { path: there.into() };
                // What is left there is found by who wants to use it.
                let _ = self.ask(host, &wish, 0);
            }
        }
    }

    /// Opens or makes a stripe directory on another host.
    fn there(
        &self,
        path: &str,
        host: &str,
        there: &str,
        how: Opening,
    ) -> Result<Arc<dyn Disk>, Why> {
        let failed = |text: &dyn Display| Why::from(format!("{path}: {text}"));
        let entrance = self.entrance(None).map_err(|error| failed(&error))?;
        let (session, remote) = Remote::begin(&entrance).map_err(|error| failed(&error))?;
        let wish = Wish::Directory {
            path: there.into(),
            how,
        };
        self.ask(host, &wish, session).map_err(|why| Why {
            text: format!("host {host}: {}", why.text),
            ..why
        })?;
        let remote = Arc::new(remote);
        let mut remotes = lock(&self.remotes);
        remotes.retain(|remote| remote.strong_count() > 0);
        remotes.push(Arc::downgrade(&remote));
        drop(remotes);
        Ok(self.counted(path, remote))
    }

    fn ask(&self, host: &str, wish: &Wish, session: u64) -> Result<(), Why> {
        let entrance = self
            .entrance(None)
            .map_err(|error| Why::from(error.to_string()))?;
        let text = format!(
            "{}name {}\n{}session {session:x}\n",
            entrance.lines(),
            self.name,
            wish.line()
        );
        invite::ask(host, &self.others.shell, &text, self.others.owner.is_some())
    }

    /// Where hosts reach this process, at one of these ports if some are named.
    ///
    /// # Errors
    /// What the system says.
    pub fn entrance(&self, ports: Option<(u16, u16)>) -> io::Result<Arc<Entrance>> {
        let mut entrance = lock(&self.entrance);
        let is_in = |port: u16| ports.is_none_or(|(first, last)| (first..=last).contains(&port));
        if let Some(entrance) = entrance.as_ref().filter(|there| is_in(there.port())) {
            return Ok(Arc::clone(entrance));
        }
        let new = Entrance::open(ports.or(self.others.ports))?;
        Ok(Arc::clone(entrance.insert(new)))
    }

    fn take(&self, path: &str, folder: Folder) -> Arc<dyn Disk> {
        let folder = Arc::new(folder);
        let mut opened = lock(&self.opened);
        opened.retain(|folder| folder.strong_count() > 0);
        opened.push(Arc::downgrade(&folder));
        drop(opened);
        self.counted(path, folder)
    }

    fn counted(&self, path: &str, mut disk: Arc<dyn Disk>) -> Arc<dyn Disk> {
        if !disk.is_memory() {
            disk = Arc::new(Watched::new(disk, self.deadline));
        }
        let mut all = lock(&self.traffic);
        let traffic = all.entry(path.to_owned()).or_default();
        Arc::new(Counted::new(disk, Arc::clone(traffic)))
    }

    /// Lets others use the stripe directories of a store, which loses them first: it would take
    /// those that are let go for dead, and note that. A process does not end while one of its
    /// threads waits for a disk that hangs, so its end does not do that.
    pub fn release(&self, store: &Store) {
        let folders = lock(&self.opened)
            .iter()
            .filter_map(Weak::upgrade)
            .collect::<Vec<_>>();
        let remotes: Vec<Arc<Remote>> = (lock(&self.remotes).iter())
            .filter_map(Weak::upgrade)
            .collect();
        store.close();
        for folder in folders {
            // One that hangs is in nobody's way.
            let _ = in_time(RELEASED_WITHIN, move || folder.release());
        }
        for remote in &remotes {
            remote.end();
        }
        for remote in &remotes {
            remote.wait_for_end(RELEASED_WITHIN);
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
