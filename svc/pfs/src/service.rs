//! The service: a store with its mount, and what commands ask of it. The same object serves a
//! command when no service runs.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use margay_fs_stripes::{Disk, Fault, Health, Read, State, Store, read_state};

use crate::clients::Clients;
use crate::direct::Direct;
use crate::disks::{Disks, Others, Refusal};
use crate::fuse::now;
use crate::lock::lock;
use crate::mounting::Mounts;
use crate::near::Near;
use crate::quotas;
use crate::registry::{self, Known};
use crate::show;
use crate::spares;

/// How often a command that waits looks how far it is.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// How often a walk over all rows shows how far it is.
const SHOW_EVERY: Duration = Duration::from_secs(1);

/// Events that `status` shows.
const MOST_EVENTS: usize = 8;

/// Threads that help with a long read or write: more wait for memory.
const MOST_HELPERS: usize = 3;

/// Cores that this process may use.
pub(crate) fn cores() -> usize {
    std::thread::available_parallelism().map_or(2, usize::from)
}

/// A store in use.
pub struct Service {
    pub name: String,
    pub store: Arc<Store>,
    pub(crate) clients: Arc<Clients>,
    pub(crate) near: Arc<Near>,
    /// Since the first mount on this host; none where the system refuses.
    pub(crate) direct: OnceLock<Option<Arc<Direct>>>,
    pub(crate) disks: Disks,
    pub(crate) mounts: Mutex<Mounts>,
    /// Rebuilds directories, and moves files after a resize.
    rebuild: Mutex<Option<JoinHandle<()>>>,
    /// Files, or directories that are to go, wait for such a move.
    pub(crate) is_to_spread: AtomicBool,
    rebuild_failed: Mutex<Option<String>>,
    events: Mutex<VecDeque<String>>,
    is_over: AtomicBool,
}

/// The id of a stripe directory by its own state, if it belongs to the file system.
fn own_id(disk: &dyn Disk, id: u64, n: usize) -> Option<u64> {
    match read_state(disk) {
        Ok(Read::State(found)) if found.state.id == id && found.own == n => {
            Some(found.state.members[n].id)
        }
        _ => None,
    }
}

/// The entry of the registry with the directories of the state in force. They differ after an end
/// in the middle of `replace` or `resize`, and where somebody has moved a directory and said so in
/// the entry.
fn renewed(
    known: &Known,
    disks: &mut Vec<Option<Arc<dyn Disk>>>,
    opener: &Disks,
) -> Result<Known, String> {
    let found = |disk: &Arc<dyn Disk>| match read_state(&**disk) {
        Ok(Read::State(found)) if found.state.id == known.id => Some(found),
        _ => None,
    };
    let states = disks.iter().flatten().filter_map(found);
    let mut renewed = known.clone();
    let Some(state) = states.map(|found| found.state).max_by_key(|s| s.epoch) else {
        return Ok(renewed);
    };
    let mut directories = Vec::new();
    for (n, member) in state.members.iter().enumerate() {
        if member.health == Health::Removed {
            continue;
        }
        let is_it = |disk: &Arc<dyn Disk>| own_id(&**disk, known.id, n) == Some(member.id);
        let there = disks
            .iter()
            .position(|disk| disk.as_ref().is_some_and(is_it));
        let path = match there {
            Some(at) => known.directories.get(at).unwrap_or(&member.path),
            None if known.directories.contains(&member.path) => &member.path,
            None => {
                let disk = opener.open(&member.path).ok().filter(is_it);
                disks.push(disk);
                &member.path
            }
        };
        directories.push(path.clone());
    }
    renewed.directories = directories;
    if renewed != *known {
        registry::write(&renewed)?;
    }
    Ok(renewed)
}

/// The directories that do not have all that they should have.
fn lacking(state: &State) -> Vec<&str> {
    let members = state.members.iter();
    let lacking = members.filter(|m| !matches!(m.health, Health::Good | Health::Removed));
    lacking.map(|member| member.path.as_str()).collect()
}

impl Service {
    /// Opens the file system. A directory that does not answer within `deadline` fails.
    ///
    /// # Errors
    /// In words.
    pub fn open(known: &Known, deadline: Duration, others: Others) -> Result<Arc<Service>, String> {
        let opener = Disks::new(&known.name, deadline, others);
        let mut disks: Vec<Option<Arc<dyn Disk>>> = Vec::new();
        let mut reasons = Vec::new();
        for path in &known.directories {
            match opener.open(path) {
                Ok(disk) => disks.push(Some(disk)),
                Err(Refusal::InUse(text)) => return Err(text),
                Err(Refusal::Unusable(text)) => {
                    reasons.push(text);
                    disks.push(None);
                }
            }
        }
        let known = &renewed(known, &mut disks, &opener)?;
        let store = Store::open(known.id, disks, Arc::new(now)).map_err(|text| {
            let all = [&[text], reasons.as_slice()].concat();
            format!("cannot use '{}': {}", known.name, all.join("; "))
        })?;
        store.set_helpers((cores() - 1).min(MOST_HELPERS));
        let is_to_spread = store.has_to_spread();
        Ok(Arc::new(Service {
            name: known.name.clone(),
            store: Arc::new(store),
            clients: Arc::default(),
            near: Arc::default(),
            direct: OnceLock::new(),
            disks: opener,
            mounts: Mutex::default(),
            rebuild: Mutex::default(),
            is_to_spread: AtomicBool::new(is_to_spread),
            rebuild_failed: Mutex::default(),
            // What is wrong with directories that are not used.
            events: Mutex::new(reasons.into()),
            is_over: AtomicBool::new(false),
        }))
    }

    /// Does what a command asks; texts go to `out`.
    ///
    /// # Errors
    /// In words.
    pub fn run(
        self: &Arc<Service>,
        words: &[String],
        out: &mut dyn FnMut(String),
    ) -> Result<(), String> {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        match words.as_slice() {
            ["status"] => {
                out(self.status());
                Ok(())
            }
            ["mount", path] => self.mount(path, "relative"),
            ["mount", path, times] => self.mount(path, times),
            ["share", path, times, ports, hosts] => {
                out(self.share(path, times, ports, hosts)?);
                Ok(())
            }
            ["umount"] => self.unmount(false),
            ["umount", "lazy"] => self.unmount(true),
            ["unshare", hosts] => {
                self.unshare(hosts);
                Ok(())
            }
            ["check"] => self.check(out),
            ["scrub"] => self.scrub(out),
            ["replace", old, new] => self.replace(old, new, out),
            ["spare", path] => spares::add(&self.name, path),
            ["no-spare", path] => spares::remove(&self.name, path),
            ["share", percent] => {
                self.store.set_share(percent.parse().unwrap_or(100));
                Ok(())
            }
            ["quota"] => {
                out(quotas::lines(&self.store, true));
                Ok(())
            }
            ["quota", user, space, files] => quotas::set(&self.store, user, space, files),
            ["top"] => {
                out(self.counters());
                Ok(())
            }
            ["resize", wait, changes @ ..] => self.resize(*wait == "wait", changes, out),
            ["rebuild", wait] => self.rebuild(*wait == "wait", out),
            ["stop"] => self.stop(),
            _ => Err(
                "the service does not know this request; stop and start it with this version"
                    .into(),
            ),
        }
    }

    /// Tells what happened since the last call, and keeps it for `status`.
    pub fn collect_events(&self) -> Vec<String> {
        let new = self.store.events();
        let mut events = lock(&self.events);
        for event in &new {
            events.push_back(event.clone());
            if events.len() > MOST_EVENTS {
                events.pop_front();
            }
        }
        new
    }

    fn status(&self) -> String {
        self.collect_events();
        let mounted = self.mounted_at();
        let failed = lock(&self.rebuild_failed).clone();
        let events: Vec<String> = lock(&self.events).iter().cloned().collect();
        let spares = registry::find(&self.name).map_or(vec![], |known| known.spares);
        show::status(&self.store, &mounted, failed.as_deref(), &events, &spares)
            + &quotas::lines(&self.store, false)
    }

    /// What `top` compares.
    fn counters(&self) -> String {
        let state = self.store.state();
        let mut text = show::service_line(&self.store);
        let there = state.members.iter();
        for member in there.filter(|member| member.health != Health::Removed) {
            text += &self.disks.line(&member.path, member.health);
        }
        text + &self.clients.lines()
    }

    /// Puts spares in the places of directories that failed.
    pub fn use_spares(self: &Arc<Service>) {
        let state = self.store.state();
        let failed = state.members.iter().filter(|m| m.health == Health::Failed);
        for member in failed {
            let spares = registry::find(&self.name).map_or(vec![], |known| known.spares);
            let Some(spare) = spares.first() else {
                return;
            };
            match self.replace(&member.path, spare, &mut |text| eprint!("{text}")) {
                Ok(()) => self.event(format!(
                    "the spare {spare} took the place of {}",
                    member.path
                )),
                Err(text) => {
                    self.event(format!("the spare {spare} cannot be used: {text}"));
                    // It is not tried again and again.
                    let removed = spares::remove(&self.name, spare);
                    if removed.is_err() {
                        return;
                    }
                }
            }
        }
    }

    pub(crate) fn event(&self, text: String) {
        eprintln!("{text}");
        lock(&self.events).push_back(text);
    }

    /// Unmounts and writes everything, and ends; where something uses the mount, or there is no
    /// space for what was written, it goes on.
    fn stop(&self) -> Result<(), String> {
        // Before it is unmounted: to make room, somebody needs the mount.
        if self.store.sync() == Err(Fault::NoSpace) {
            return Err(format!(
                "cannot stop '{}': what was written cannot be stored, {}; delete files, or make space there",
                self.name,
                Fault::NoSpace
            ));
        }
        if self.is_mounted() {
            self.unmount(false)?;
        }
        self.finish()
    }

    /// Ends whatever happens, as far as possible in order: who uses the mount loses it.
    pub fn end(&self) {
        if let Err(text) = self.finish() {
            eprintln!("{text}");
        }
        if self.is_mounted()
            && let Err(text) = self.unmount(false).or_else(|_| self.unmount(true))
        {
            eprintln!("{text}");
        }
        // What came until it was unmounted.
        if let Err(text) = self.finish() {
            eprintln!("{text}");
        }
    }

    /// Ends what goes on and writes everything.
    ///
    /// # Errors
    /// In words.
    pub fn finish(&self) -> Result<(), String> {
        self.is_over.store(true, Ordering::SeqCst);
        if let Some(rebuild) = lock(&self.rebuild).take() {
            // What it could not do is reported by the next one.
            let _ = rebuild.join();
        }
        let written = self.store.sync();
        if written == Err(Fault::NoSpace) {
            self.is_over.store(false, Ordering::SeqCst);
        }
        written.map_err(|fault| format!("what was written last is not stored: {fault}"))
    }

    /// Lets others use the stripe directories: nothing is written any more.
    pub fn release(&self) {
        self.disks.release(&self.store);
    }

    /// Whether it ends.
    pub fn is_over(&self) -> bool {
        self.is_over.load(Ordering::SeqCst)
    }

    fn check(&self, out: &mut dyn FnMut(String)) -> Result<(), String> {
        let lines = self
            .walk(out, || self.store.check(&|| self.is_over()))
            .map_err(|fault| show::walk_failed("check", fault))?;
        for line in &lines {
            out(format!("{line}\n"));
        }
        let progress = self.store.progress();
        let state = self.store.state();
        let lacking = lacking(&state);
        out(format!("{} rows looked at\n", progress.rows));
        if !lacking.is_empty() {
            out(format!("not complete: {}\n", lacking.join(", ")));
        }
        match (lines.len(), lacking.len()) {
            (0, 0) => {
                out("everything is right\n".into());
                Ok(())
            }
            (0, _) => Err(format!(
                "'{}' is degraded: its data is right, and {} of its directories cannot replace others; \
                 use `margay pfs replace` or `margay pfs rebuild`",
                self.name,
                lacking.len()
            )),
            _ => Err(format!(
                "'{}' has damage; `margay pfs scrub {}` mends what can be computed",
                self.name, self.name
            )),
        }
    }

    /// Does something with all rows, and shows how far it is.
    fn walk<T: Send>(&self, out: &mut dyn FnMut(String), job: impl FnOnce() -> T + Send) -> T {
        std::thread::scope(|scope| {
            let walk = scope.spawn(job);
            let mut shown = Instant::now();
            while !walk.is_finished() {
                std::thread::sleep(LOOK_EVERY / 20);
                if shown.elapsed() > SHOW_EVERY {
                    shown = Instant::now();
                    out(format!("{}\n", show::progress(&self.store.progress())));
                }
            }
            match walk.join() {
                Ok(done) => done,
                Err(panic) => std::panic::resume_unwind(panic),
            }
        })
    }

    fn scrub(&self, out: &mut dyn FnMut(String)) -> Result<(), String> {
        let done = self
            .walk(out, || self.store.scrub(&|| self.is_over()))
            .map_err(|fault| show::walk_failed("scrub", fault))?;
        out(format!(
            "{} rows looked at, {} units were wrong, {} were written anew\n",
            done.rows, done.wrong, done.mended
        ));
        if done.lost > 0 {
            return Err(format!(
                "{} units cannot be computed: more is lost than the parity replaces; `margay pfs check {}` names the files",
                done.lost, self.name
            ));
        }
        Ok(())
    }

    fn replace(
        self: &Arc<Service>,
        old: &str,
        new: &str,
        out: &mut dyn FnMut(String),
    ) -> Result<(), String> {
        let state = self.store.state();
        let n = self.number(&state, old)?;
        let is_other =
            state.members.iter().enumerate().any(|(m, member)| {
                m != n && member.path == new && member.health != Health::Removed
            });
        if is_other {
            return Err(format!(
                "{new} is another stripe directory of '{}'",
                self.name
            ));
        }
        let disk = self.disks.create(new)?;
        let id = registry::lot()?;
        if let Err(text) = self.store.replace(n, new, id, disk) {
            self.disks.remove(new);
            return Err(text);
        }
        let mut known = registry::find(&self.name)?;
        for directory in known.directories.iter_mut().filter(|path| *path == old) {
            new.clone_into(directory);
        }
        known.spares.retain(|spare| spare != new);
        registry::write(&known)?;
        out(format!(
            "{new} takes the place of {old} and is being rebuilt\n"
        ));
        self.start_rebuild();
        Ok(())
    }

    /// Takes failed directories into use that are there again.
    fn take_in_failed(&self) -> Vec<String> {
        let state = self.store.state();
        let mut reasons = Vec::new();
        for (n, member) in state.members.iter().enumerate() {
            if member.health != Health::Failed {
                continue;
            }
            let opened = self.disks.open(&member.path).map_err(Refusal::text);
            let taken = opened.and_then(|disk| {
                if own_id(&*disk, state.id, n) != Some(member.id) {
                    return Err(format!("{} is not the directory that it was", member.path));
                }
                self.store.take_in(n, &member.path, member.id, disk)
            });
            if let Err(text) = taken {
                reasons.push(format!(
                    "{text}; put an empty directory in its place: margay pfs replace {} {} NEW",
                    self.name, member.path
                ));
            }
        }
        reasons
    }

    /// Whether a directory is to be rebuilt.
    fn is_lacking(&self) -> bool {
        let members = self.store.state().members;
        let is_so = |health: &Health| matches!(health, Health::Rebuilding(..));
        members.iter().any(|member| is_so(&member.health))
    }

    /// Whether that is so, or files are to be moved.
    fn has_work(&self) -> bool {
        self.is_lacking() || self.is_to_spread.load(Ordering::SeqCst)
    }

    /// Rebuilds what is to be rebuilt, and moves what is to be moved, unless that failed.
    pub fn go_on(self: &Arc<Service>) {
        if self.has_work() && lock(&self.rebuild_failed).is_none() && !self.is_over() {
            self.start_rebuild();
        }
    }

    /// Rebuilds in the background what is to be rebuilt; then moves what is to be moved.
    pub fn start_rebuild(self: &Arc<Service>) {
        let mut rebuild = lock(&self.rebuild);
        if rebuild.as_ref().is_some_and(|thread| !thread.is_finished()) {
            return;
        }
        let service = Arc::clone(self);
        *lock(&self.rebuild_failed) = None;
        *rebuild = Some(std::thread::spawn(move || {
            // Others may be replaced meanwhile.
            while service.has_work() && !service.is_over() {
                let (what, done) = if service.is_lacking() {
                    ("rebuild", service.store.rebuild(&|| service.is_over()))
                } else {
                    ("resize", service.spread())
                };
                match done {
                    Ok(()) => {}
                    // Another walk goes on; the service's timer begins again.
                    Err(Fault::Refused) => return,
                    Err(fault) => {
                        *lock(&service.rebuild_failed) = Some(show::walk_failed(what, fault));
                        return;
                    }
                }
            }
        }));
    }

    /// Waits until everything is rebuilt and moved, and shows how far it is.
    pub(crate) fn wait_for_work(
        self: &Arc<Service>,
        out: &mut dyn FnMut(String),
    ) -> Result<(), String> {
        let mut last = String::new();
        // One that came while another was ending is not forgotten, and its end is stored.
        let is_running = || {
            let rebuild = lock(&self.rebuild);
            rebuild.as_ref().is_some_and(|thread| !thread.is_finished())
        };
        while is_running() || (self.has_work() && lock(&self.rebuild_failed).is_none()) {
            self.go_on();
            let progress = self.store.progress();
            let now = show::progress(&progress);
            if now != last && !progress.what.is_empty() {
                out(format!("{now}\n"));
                last = now;
            }
            std::thread::sleep(LOOK_EVERY);
        }
        lock(&self.rebuild_failed).clone().map_or(Ok(()), Err)
    }

    fn rebuild(
        self: &Arc<Service>,
        is_waiting: bool,
        out: &mut dyn FnMut(String),
    ) -> Result<(), String> {
        let reasons = self.take_in_failed();
        self.start_rebuild();
        if is_waiting {
            self.wait_for_work(out)?;
            let state = self.store.state();
            let lacking = lacking(&state);
            if lacking.is_empty() {
                out(format!("all directories of '{}' are complete\n", self.name));
            } else if reasons.is_empty() {
                return Err(format!(
                    "not complete: {}; `margay pfs status {}` says why",
                    lacking.join(", "),
                    self.name
                ));
            }
        }
        if reasons.is_empty() {
            Ok(())
        } else {
            Err(reasons.join("; "))
        }
    }
}
