//! The store in a file: SQLite with a write-ahead log. A change by users is on the disk when its
//! function returns. What jobs do ([`FileStore::step`]) is with the system then, which is enough
//! when this process is killed, and on the disk a moment later: who calls writes the log out
//! ([`log_of`]).

use std::cell::RefCell;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use margay_core_queue::{JobId, Phase, Settings};
use margay_svc_queue_wire::{Order, Shared};
use rusqlite::{Connection, ErrorCode, Row, params};

use super::entry::{
    Columns, Entry, Finish, KnownOrder, Numbered, Ordered, RULES_SQL, SET_RULES_SQL, find_order,
    fixed, json, phase_text, rules,
};
use super::session::Kind;

/// The store's file in the queue's folder.
pub const FILE: &str = "queue.db";

/// The version of the tables.
const VERSION: i64 = ADDED.len() as i64 + 1;

/// After how many pages the log becomes part of the store, which waits for the disk twice: some
/// thousand jobs, and 16 MiB.
const LOG_PAGES: u32 = 4000;

const TABLES: &str = "
CREATE TABLE shared (id INTEGER PRIMARY KEY, text TEXT NOT NULL);
CREATE TABLE orders (id INTEGER PRIMARY KEY, shared INTEGER NOT NULL, text TEXT NOT NULL);
CREATE TABLE jobs (
    id INTEGER PRIMARY KEY, order_id INTEGER NOT NULL, array INTEGER, task INTEGER, name TEXT NOT NULL,
    job TEXT NOT NULL, phase TEXT NOT NULL, is_live INTEGER NOT NULL, is_cancelled INTEGER NOT NULL DEFAULT 0,
    submitted INTEGER NOT NULL, started INTEGER, ended INTEGER, cpu_s REAL NOT NULL DEFAULT 0,
    max_rss_kib INTEGER NOT NULL DEFAULT 0, note TEXT NOT NULL DEFAULT '');
CREATE INDEX live ON jobs (id) WHERE is_live;
CREATE INDEX arrays ON jobs (array) WHERE array IS NOT NULL;
";

/// What each version added to the one before it.
const ADDED: [&str; 6] = [
    "
CREATE TABLE settings (id INTEGER PRIMARY KEY, text TEXT NOT NULL);
ALTER TABLE jobs ADD COLUMN user TEXT NOT NULL DEFAULT '';
ALTER TABLE jobs ADD COLUMN uid INTEGER;
ALTER TABLE jobs ADD COLUMN runs INTEGER NOT NULL DEFAULT 0;
",
    // Tasks that have ended are found among many that wait.
    "
DROP INDEX arrays;
CREATE INDEX ended_tasks ON jobs (array, task) WHERE array IS NOT NULL AND NOT is_live;
",
    "
CREATE TABLE queue (name TEXT NOT NULL, kind TEXT NOT NULL);
INSERT INTO queue VALUES (lower(hex(randomblob(16))), '');
",
    "
ALTER TABLE jobs ADD COLUMN energy_mj INTEGER;
",
    "
ALTER TABLE jobs ADD COLUMN hosts TEXT NOT NULL DEFAULT '';
",
    "
ALTER TABLE jobs ADD COLUMN steps TEXT NOT NULL DEFAULT '';
CREATE INDEX ended_at ON jobs (ended) WHERE NOT is_live;
",
];

/// The write-ahead log of a store.
#[must_use]
pub fn log_of(store: &Path) -> PathBuf {
    let mut name = store.as_os_str().to_owned();
    name.push("-wal");
    PathBuf::from(name)
}

/// The open store.
#[derive(Debug)]
pub struct FileStore {
    connection: Connection,
    known: RefCell<Option<KnownOrder>>,
    /// The name of the queue, which no other one has.
    queue: String,
    /// Where it is, and which file that was when it was opened.
    path: PathBuf,
    file: Option<(u64, u64)>,
}

/// Which file a path names.
fn file_at(path: &Path) -> Option<(u64, u64)> {
    let file = fs::metadata(path).ok()?;
    Some((file.dev(), file.ino()))
}

/// Why the store failed, in words.
fn failed(error: rusqlite::Error) -> String {
    let remedy = match error.sqlite_error_code() {
        Some(ErrorCode::DiskFull) => "; make room on the disk of the queue's folder",
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => {
            "; move the file away to begin with an empty queue"
        }
        _ => "",
    };
    format!("the queue's store: {error}{remedy}")
}

impl Columns for Row<'_> {
    fn integer(&self, column: usize) -> Result<Option<i64>, String> {
        self.get(column).map_err(failed)
    }

    fn real(&self, column: usize) -> Result<f64, String> {
        self.get(column).map_err(failed)
    }

    fn flag(&self, column: usize) -> Result<bool, String> {
        self.get(column).map_err(failed)
    }

    fn text(&self, column: usize) -> Result<String, String> {
        self.get(column).map_err(failed)
    }
}

impl FileStore {
    /// Opens the store of a file, or makes it.
    ///
    /// # Errors
    /// In words: the file cannot be used, a newer version has written it, or it has a queue of
    /// another kind.
    pub fn open(path: &Path, kind: Kind) -> Result<FileStore, String> {
        let begun = || -> rusqlite::Result<(Connection, i64)> {
            let connection = Connection::open(path)?;
            // Nobody else may write, so nothing is waited for.
            connection
                .execute_batch("PRAGMA locking_mode = EXCLUSIVE; PRAGMA synchronous = NORMAL;")?;
            connection.pragma_update(None, "wal_autocheckpoint", LOG_PAGES)?;
            let version = connection.query_row("PRAGMA user_version", [], |row| row.get(0))?;
            Ok((connection, version))
        };
        let cannot = |error| format!("{}: {}", path.display(), failed(error));
        let (mut connection, version) = begun().map_err(cannot)?;
        match version {
            VERSION => {}
            0..VERSION => {
                let mut make = || -> rusqlite::Result<()> {
                    let change = connection.transaction()?;
                    if version == 0 {
                        change.execute_batch(TABLES)?;
                    }
                    for added in &ADDED[version.max(1) as usize - 1..] {
                        change.execute_batch(added)?;
                    }
                    change.pragma_update(None, "user_version", VERSION)?;
                    change.commit()
                };
                make().map_err(failed)?;
            }
            other => {
                return Err(format!(
                    "the queue's store {} has version {other}, and this Margay knows {VERSION}; use the newer Margay that \
                     wrote it, or move the file away to begin with an empty queue",
                    path.display()
                ));
            }
        }
        connection
            .pragma_update(None, "journal_mode", "WAL")
            .map_err(failed)?;
        let (queue, found): (String, String) = connection
            .query_row("SELECT name, kind FROM queue", [], |row| {
                Ok((row.get(0)?, row.get(1)?))
            })
            .map_err(failed)?;
        let what = format!("the queue's store {}", path.display());
        kind.check(
            &found,
            &what,
            "move the file away to begin with an empty queue",
        )?;
        if found.is_empty() {
            let set = "UPDATE queue SET kind = ?1";
            connection.execute(set, [kind.text()]).map_err(failed)?;
        }
        Ok(FileStore {
            connection,
            known: RefCell::new(None),
            queue,
            path: path.to_owned(),
            file: file_at(path),
        })
    }

    /// Whether its file is still where it was: what is written to one that has been removed is
    /// lost.
    fn is_there(&self) -> Result<(), String> {
        match file_at(&self.path) == self.file {
            true => Ok(()),
            false => Err(format!(
                "the queue's store {} has been removed or replaced since the queue was started; end the queue (margay down) \
                 and start it anew",
                self.path.display()
            )),
        }
    }

    /// The name of the queue.
    #[must_use]
    pub fn queue(&self) -> &str {
        &self.queue
    }

    /// Stores jobs that are accepted: for each order its entries, whose `order` is set.
    ///
    /// # Errors
    /// In words; nothing is stored then.
    pub fn add(
        &mut self,
        shared: &Shared,
        orders: &[Order],
        entries: &mut [Vec<Entry>],
    ) -> Result<(), String> {
        self.is_there()?;
        let shared = json(shared)?;
        self.wait_for_disk(true)?;
        let mut store = || -> Result<(), String> {
            let change = self.connection.transaction().map_err(failed)?;
            change
                .execute("INSERT INTO shared (text) VALUES (?1)", [shared.as_str()])
                .map_err(failed)?;
            let shared = change.last_insert_rowid();
            for (order, entries) in orders.iter().zip(entries.iter_mut()) {
                change
                    .prepare_cached("INSERT INTO orders (shared, text) VALUES (?1, ?2)")
                    .and_then(|mut insert| {
                        insert.execute(params![shared, json(order).unwrap_or_default()])
                    })
                    .map_err(failed)?;
                let order = change.last_insert_rowid();
                for entry in entries {
                    entry.order = order;
                    let fixed = fixed(entry)?;
                    change
                        .prepare_cached(
                            "INSERT INTO jobs (id, order_id, array, task, name, job, phase, is_live, submitted, user, uid) \
                             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, 1, ?8, ?9, ?10)",
                        )
                        .and_then(|mut insert| {
                            insert.execute(params![
                                entry.job.id as i64,
                                order,
                                entry.job.array.map(|id| id as i64),
                                entry.task,
                                entry.name,
                                fixed,
                                phase_text(entry.job.phase),
                                entry.submitted as i64,
                                entry.user,
                                entry.uid,
                            ])
                        })
                        .map_err(failed)?;
                }
            }
            change.commit().map_err(failed)
        };
        let stored = store();
        self.wait_for_disk(false)?;
        stored
    }

    /// Whether changes from now on are on the disk when they are made.
    fn wait_for_disk(&self, is: bool) -> Result<(), String> {
        let level = if is { "FULL" } else { "NORMAL" };
        let set = self.connection.pragma_update(None, "synchronous", level);
        set.map_err(failed)
    }

    /// Stores in one change that jobs have ended, that others wait again for their next run, and
    /// that others run, before they are started.
    ///
    /// # Errors
    /// In words; nothing is stored then.
    pub fn step(
        &mut self,
        finishes: &[(JobId, Finish)],
        requeues: &[(JobId, u32)],
        begins: &[JobId],
        now_s: u64,
    ) -> Result<(), String> {
        let lists: Vec<(String, String)> = (finishes.iter())
            .map(|(_, finish)| Ok((finish.hosts_text()?, finish.steps_text()?)))
            .collect::<Result<_, String>>()?;
        let mut store = || -> rusqlite::Result<()> {
            let change = self.connection.transaction()?;
            for ((id, finish), (hosts, steps)) in finishes.iter().zip(&lists) {
                change
                    .prepare_cached(
                        "UPDATE jobs SET phase = ?2, is_live = 0, ended = ?3, cpu_s = ?4, max_rss_kib = ?5, note = ?6, energy_mj = ?7, hosts = ?8, steps = ?9 \
                         WHERE id = ?1",
                    )?
                    .execute(params![
                        *id as i64,
                        phase_text(Phase::Ended(finish.end)),
                        finish.ended as i64,
                        finish.usage.cpu_s,
                        finish.usage.max_rss_kib as i64,
                        finish.note,
                        finish.usage.energy_mj.map(|energy| energy as i64),
                        hosts,
                        steps,
                    ])?;
            }
            for (id, runs) in requeues {
                change
                    .prepare_cached(
                        "UPDATE jobs SET phase = ?2, runs = ?3, started = NULL WHERE id = ?1",
                    )?
                    .execute(params![*id as i64, phase_text(Phase::Waiting), runs])?;
            }
            for id in begins {
                change
                    .prepare_cached("UPDATE jobs SET phase = ?2, started = ?3 WHERE id = ?1")?
                    .execute(params![
                        *id as i64,
                        phase_text(Phase::Running(now_s)),
                        now_s as i64
                    ])?;
            }
            change.commit()
        };
        store().map_err(failed)
    }

    /// The rules that were set, or those of a new queue.
    ///
    /// # Errors
    /// In words.
    pub fn settings(&self) -> Result<Settings, String> {
        let read = self
            .connection
            .query_row(RULES_SQL, [], |row| row.get::<_, String>(0));
        match read {
            Ok(text) => rules(Some(&text)),
            Err(rusqlite::Error::QueryReturnedNoRows) => rules(None),
            Err(error) => Err(failed(error)),
        }
    }

    /// Stores the rules.
    ///
    /// # Errors
    /// In words; nothing is stored then.
    pub fn set(&mut self, settings: &Settings) -> Result<(), String> {
        let text = json(settings)?;
        self.wait_for_disk(true)?;
        let stored = self.connection.execute(SET_RULES_SQL, [text]);
        self.wait_for_disk(false)?;
        stored.map(|_| ()).map_err(failed)
    }

    /// Stores what may change of jobs that wait or run: whether they are held or are to end, and
    /// what the user may change.
    ///
    /// # Errors
    /// In words; nothing is stored then.
    pub fn change(&mut self, entries: &[Entry]) -> Result<(), String> {
        self.wait_for_disk(true)?;
        let stored = self.change_now(entries);
        self.wait_for_disk(false)?;
        stored
    }

    fn change_now(&mut self, entries: &[Entry]) -> Result<(), String> {
        let change = self.connection.transaction().map_err(failed)?;
        for entry in entries {
            let fixed = fixed(entry)?;
            change
                .prepare_cached(
                    "UPDATE jobs SET job = ?2, is_cancelled = ?3, name = ?4 WHERE id = ?1",
                )
                .and_then(|mut update| {
                    update.execute(params![
                        entry.job.id as i64,
                        fixed,
                        entry.is_cancelled,
                        entry.name
                    ])
                })
                .map_err(failed)?;
        }
        change.commit().map_err(failed)
    }

    /// The rows of a statement.
    ///
    /// # Errors
    /// In words.
    pub fn rows<T>(
        &self,
        sql: &str,
        read: fn(&dyn Columns) -> Result<T, String>,
    ) -> Result<Vec<T>, String> {
        let mut query = self.connection.prepare(sql).map_err(failed)?;
        let mut rows = query.query([]).map_err(failed)?;
        let mut found = Vec::new();
        while let Some(row) = rows.next().map_err(failed)? {
            found.push(read(row)?);
        }
        Ok(found)
    }

    /// The order of a job, and what it shares with others.
    ///
    /// # Errors
    /// In words.
    pub fn order(&self, order: i64) -> Result<Ordered, String> {
        let one = |sql: &str, id: i64| -> Result<Numbered, String> {
            let mut query = self.connection.prepare_cached(sql).map_err(failed)?;
            query
                .query_row([id], |row| Ok((row.get(0)?, row.get(1)?)))
                .map_err(failed)
        };
        find_order(&mut self.known.borrow_mut(), order, &one)
    }

    /// Closes the store: its log is part of it then. Nothing can be stored or found any more.
    ///
    /// # Errors
    /// In words.
    pub fn close(&mut self) -> Result<(), String> {
        let nothing = Connection::open_in_memory().map_err(failed)?;
        let connection = std::mem::replace(&mut self.connection, nothing);
        connection.close().map_err(|(_, error)| failed(error))
    }
}
