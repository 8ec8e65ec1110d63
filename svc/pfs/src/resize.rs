//! Directories that are added and removed, by a service.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use margay_fs_stripes::{Health, State};

use crate::registry;
use crate::service::Service;

impl Service {
    /// The number of a stripe directory.
    pub(crate) fn number(&self, state: &State, path: &str) -> Result<usize, String> {
        let members = || {
            let all = state.members.iter().enumerate();
            all.filter(|(_, member)| member.health != Health::Removed)
        };
        let found = members().find(|(_, member)| member.path == path);
        found.map(|(n, _)| n).ok_or_else(|| {
            let all: Vec<&str> = members().map(|(_, m)| m.path.as_str()).collect();
            format!(
                "{path} is no stripe directory of '{}'; they are {}",
                self.name,
                all.join(", ")
            )
        })
    }

    /// Adds and removes directories, as words say, and begins to move files, or goes on with that.
    pub(crate) fn resize(
        self: &Arc<Service>,
        is_waiting: bool,
        changes: &[&str],
        out: &mut dyn FnMut(String),
    ) -> Result<(), String> {
        let paths = |what: &str| -> Vec<&str> {
            let changes = changes.chunks_exact(2).filter(|change| change[0] == what);
            changes.map(|change| change[1]).collect()
        };
        let (new, old) = (paths("add"), paths("remove"));
        // All of it is possible, or nothing is changed.
        let mut left = self.store.current().over;
        for path in &old {
            left = left.without(self.number(&self.store.state(), path)?);
        }
        let parity = self.store.current().parity;
        if left.count() + new.len() <= parity {
            return Err(format!(
                "{} directories would be left, and parity {parity} needs at least {}",
                left.count() + new.len(),
                parity + 1
            ));
        }
        for path in &new {
            self.add(path)?;
            out(format!("{path} is added\n"));
        }
        let state = self.store.state();
        let leaving: Result<Vec<usize>, String> =
            old.iter().map(|path| self.number(&state, path)).collect();
        if !old.is_empty() {
            self.store.retire(&leaving?)?;
            out(format!(
                "{} is being emptied, and goes then\n",
                old.join(", ")
            ));
        }
        let has_to = self.store.has_to_spread();
        self.is_to_spread.store(has_to, Ordering::SeqCst);
        self.start_rebuild();
        if is_waiting {
            self.wait_for_work(out)?;
            out(format!(
                "all files of '{}' are where they belong\n",
                self.name
            ));
        }
        Ok(())
    }

    fn add(&self, path: &str) -> Result<(), String> {
        let is_there =
            |m: &margay_fs_stripes::Member| m.path == path && m.health != Health::Removed;
        if self.store.state().members.iter().any(is_there) {
            return Err(format!(
                "{path} is a stripe directory of '{}' already",
                self.name
            ));
        }
        let disk = self.disks.create(path)?;
        let mut known = registry::find(&self.name)?;
        known.directories.push(path.to_owned());
        known.spares.retain(|spare| spare != path);
        let added =
            registry::write(&known).and_then(|()| self.store.add(path, registry::lot()?, disk));
        added.map_err(|text| {
            self.disks.remove(path);
            known.directories.retain(|directory| directory != path);
            match registry::write(&known) {
                Ok(()) => text,
                Err(other) => format!("{text}; {other}"),
            }
        })
    }

    /// Moves files to where they belong, and lets directories go that are empty then.
    pub(crate) fn spread(&self) -> margay_fs_stripes::Result<()> {
        self.store.spread(&|| self.is_over())?;
        if self.store.has_to_spread() {
            return Ok(());
        }
        self.is_to_spread.store(false, Ordering::SeqCst);
        if let Err(text) = self.let_go() {
            self.event(text);
        }
        Ok(())
    }

    /// Removes what is stored in directories that do not belong to the file system any more.
    fn let_go(&self) -> Result<(), String> {
        let state = self.store.state();
        let mut known = registry::find(&self.name)?;
        // Only what is known to be removed: a directory may have been moved to another path.
        let is_gone = |path: &mut String| {
            let members = state.members.iter().filter(|member| member.path == *path);
            let health: Vec<Health> = members.map(|member| member.health).collect();
            !health.is_empty() && health.iter().all(|health| *health == Health::Removed)
        };
        let gone: Vec<String> = known.directories.extract_if(.., is_gone).collect();
        if !gone.is_empty() {
            registry::write(&known)?;
        }
        for path in &gone {
            self.disks.remove(path);
        }
        Ok(())
    }
}
