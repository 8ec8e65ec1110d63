//! The store: SQLite with a write-ahead log. A change by users is on the disk when its function
//! returns. What jobs do ([`Store::step`]) is with the system then, which is enough when this
//! process is killed, and on the disk a moment later: who calls writes the log out ([`log_of`]).
//!
//! | table | what a row is |
//! | --- | --- |
//! | `shared` | the environment and directory of one request, as JSON |
//! | `orders` | what was asked for, as JSON: a job or an array |
//! | `jobs` | a job, or a task of an array: what the scheduler asks, and how it went |
//! | `settings` | one row: the rules that were set, as JSON |

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use margay_core_queue::{End, Job, JobId, Phase, Scheduler, Settings};
use margay_svc_queue_wire::{JobRow, Order, Shared, Usage};
use rusqlite::{Connection, ErrorCode, Row, params};

/// The store's file in the queue's folder.
pub const FILE: &str = "queue.db";

/// The version of the tables.
const VERSION: i64 = 3;

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
const ADDED: [&str; 2] = [
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
];

/// A job of the queue, with what is shown of it.
// Fields: what a row of `jobs` has, without how the job went.
#[derive(Clone, Debug)]
pub struct Entry {
    pub job: Job,
    /// Its index in its array.
    pub task: Option<u32>,
    pub name: String,
    pub account: Option<String>,
    pub partition: String,
    pub reservation: Option<String>,
    pub user: String,
    pub uid: u32,
    /// Number of its order in the store.
    pub order: i64,
    pub submitted: u64,
    /// How often it was put back into the queue after it had started.
    pub runs: u32,
    /// It may be put back when what watches over it fails, and when it ends with these codes.
    pub is_requeued: bool,
    pub requeue_codes: Vec<i32>,
    /// The user wishes its end.
    pub is_cancelled: bool,
    /// Somebody is to be informed of it.
    pub is_mailed: bool,
    /// It is held by root, and its user cannot let it go.
    pub is_locked: bool,
}

impl Entry {
    /// How people name it.
    #[must_use]
    pub fn shown(&self) -> String {
        match (self.job.array, self.task) {
            (Some(array), Some(task)) => format!("{array}_{task}"),
            _ => self.job.id.to_string(),
        }
    }

    /// Gives the scheduler's part of it the numbers of its texts.
    pub fn number(&mut self, scheduler: &mut Scheduler) {
        self.job.user = scheduler.tag(&self.user);
        self.job.account = scheduler.tag(self.account.as_deref().unwrap_or_default());
        self.job.queue = scheduler.tag(&self.partition);
        self.job.reservation = self.reservation.as_deref().map(|text| scheduler.tag(text));
    }

    /// Its row without how it went.
    #[must_use]
    pub fn row(&self, note: String) -> JobRow {
        let started = match self.job.phase {
            Phase::Running(since) => Some(since),
            _ => None,
        };
        JobRow {
            id: self.job.id,
            shown: self.shown(),
            name: self.name.clone(),
            account: self.account.clone(),
            partition: self.partition.clone(),
            user: self.user.clone(),
            uid: self.uid,
            priority: self.job.priority,
            runs: self.runs,
            memory_mib: self.job.memory_mib,
            slots: self.job.slots,
            limit_s: self.job.limit_s,
            phase: self.job.phase,
            submitted: self.submitted,
            started,
            ended: None,
            note,
            usage: Usage::default(),
        }
    }
}

/// How a job went.
#[derive(Clone, Debug)]
pub struct Finish {
    pub end: End,
    pub ended: u64,
    pub usage: Usage,
    pub note: String,
}

/// What of a job stays as it was accepted, as the store has it.
#[derive(serde::Serialize, serde::Deserialize)]
struct Fixed {
    array_limit: Option<u32>,
    slots: u32,
    limit_s: Option<u64>,
    priority: i64,
    is_held: bool,
    after: Vec<margay_core_queue::Dependency>,
    account: Option<String>,
    partition: String,
    #[serde(flatten)]
    more: Option<More>,
}

/// The same, of stores of version 2 and later.
#[derive(serde::Serialize, serde::Deserialize)]
struct More {
    memory_mib: u64,
    begin_s: Option<u64>,
    reservation: Option<String>,
    is_requeued: bool,
    requeue_codes: Vec<i32>,
    #[serde(default)]
    is_mailed: bool,
    #[serde(default)]
    is_locked: bool,
    #[serde(default)]
    slots_together: u32,
    #[serde(default)]
    nodes: Option<u32>,
}

/// The write-ahead log of a store.
#[must_use]
pub fn log_of(store: &Path) -> PathBuf {
    let mut name = store.as_os_str().to_owned();
    name.push("-wal");
    PathBuf::from(name)
}

/// Which jobs that have ended are meant.
#[derive(Clone, Copy, Debug)]
pub enum Which {
    All,
    /// A job, or all tasks of an array.
    Of(JobId),
    /// A task of an array.
    Task(JobId, u32),
    /// With these numbers and all between them.
    Between(JobId, JobId),
}

/// The order that was asked for last: the next job is often of the same, or shares with it.
#[derive(Debug)]
struct KnownOrder {
    order: i64,
    text: Arc<Order>,
    /// With its number.
    shared: (i64, Arc<Shared>),
}

/// The open store.
#[derive(Debug)]
pub struct Store {
    connection: Connection,
    known: RefCell<Option<KnownOrder>>,
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

fn json(value: &impl serde::Serialize) -> Result<String, String> {
    serde_json::to_string(value).map_err(|error| format!("the queue's store: {error}"))
}

impl Store {
    /// Opens the store of a file, or makes it.
    ///
    /// # Errors
    /// In words: the file cannot be used, or a newer version has written it.
    pub fn open(path: &Path) -> Result<Store, String> {
        let begun = || -> rusqlite::Result<(Connection, i64)> {
            let connection = Connection::open(path)?;
            // Nobody else may write, so nothing is waited for.
            connection
                .execute_batch("PRAGMA locking_mode = EXCLUSIVE; PRAGMA synchronous = NORMAL;")?;
            connection.pragma_update(None, "wal_autocheckpoint", LOG_PAGES)?;
            let version = connection.query_row("PRAGMA user_version", [], |row| row.get(0))?;
            Ok((connection, version))
        };
        let (mut connection, version) = begun().map_err(failed)?;
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
        Ok(Store {
            connection,
            known: RefCell::new(None),
        })
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
        let mut store = || -> rusqlite::Result<()> {
            let change = self.connection.transaction()?;
            for (id, finish) in finishes {
                change
                    .prepare_cached(
                        "UPDATE jobs SET phase = ?2, is_live = 0, ended = ?3, cpu_s = ?4, max_rss_kib = ?5, note = ?6 \
                         WHERE id = ?1",
                    )?
                    .execute(params![
                        *id as i64,
                        phase_text(Phase::Ended(finish.end)),
                        finish.ended as i64,
                        finish.usage.cpu_s,
                        finish.usage.max_rss_kib as i64,
                        finish.note,
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
            .query_row("SELECT text FROM settings", [], |row| {
                row.get::<_, String>(0)
            });
        match read {
            Ok(text) => serde_json::from_str(&text)
                .map_err(|error| format!("the queue's store: its rules are damaged: {error}")),
            Err(rusqlite::Error::QueryReturnedNoRows) => Ok(Settings::default()),
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
        let stored = self.connection.execute(
            "INSERT OR REPLACE INTO settings (id, text) VALUES (1, ?1)",
            [text],
        );
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

    /// The jobs that wait or run.
    ///
    /// # Errors
    /// In words.
    pub fn live(&self) -> Result<Vec<Entry>, String> {
        let read = || -> rusqlite::Result<Vec<Entry>> {
            let sql = format!("SELECT {COLUMNS} FROM jobs WHERE is_live ORDER BY id");
            let mut query = self.connection.prepare(&sql)?;
            query.query_map([], entry)?.collect()
        };
        read().map_err(failed)
    }

    /// Jobs that have ended, oldest first.
    ///
    /// # Errors
    /// In words.
    pub fn ended(&self, which: Which) -> Result<Vec<JobRow>, String> {
        self.find_ended(which, row)
    }

    /// The same jobs, with what they asked for.
    ///
    /// # Errors
    /// In words.
    pub fn ended_entries(&self, which: Which) -> Result<Vec<(Entry, JobRow)>, String> {
        self.find_ended(which, |found| Ok((entry(found)?, row(found)?)))
    }

    fn find_ended<T>(
        &self,
        which: Which,
        read: fn(&Row<'_>) -> rusqlite::Result<T>,
    ) -> Result<Vec<T>, String> {
        let condition = match which {
            Which::All => String::new(),
            Which::Of(id) => format!(
                "AND id IN (SELECT {id} UNION SELECT id FROM jobs WHERE array = {id} AND NOT is_live)"
            ),
            Which::Task(array, task) => format!("AND array = {array} AND task = {task}"),
            Which::Between(first, last) => format!("AND id BETWEEN {first} AND {last}"),
        };
        let sql = format!("SELECT {COLUMNS} FROM jobs WHERE NOT is_live {condition} ORDER BY id");
        let find = || -> rusqlite::Result<Vec<T>> {
            let mut query = self.connection.prepare(&sql)?;
            query.query_map([], read)?.collect()
        };
        find().map_err(failed)
    }

    /// The order of a job, and what it shares with others.
    ///
    /// # Errors
    /// In words.
    pub fn order(&self, order: i64) -> Result<(Arc<Shared>, Arc<Order>), String> {
        let mut known = self.known.borrow_mut();
        if let Some(orders) = known.as_ref().filter(|known| known.order == order) {
            return Ok((Arc::clone(&orders.shared.1), Arc::clone(&orders.text)));
        }
        let parsed =
            |error: serde_json::Error| format!("the queue's store: an order is damaged: {error}");
        let one = |sql: &str, id: i64| -> rusqlite::Result<(i64, String)> {
            let mut query = self.connection.prepare_cached(sql)?;
            query.query_row([id], |row| Ok((row.get(0)?, row.get(1)?)))
        };
        let of_order = "SELECT shared, text FROM orders WHERE id = ?1";
        let (id, text) = one(of_order, order).map_err(failed)?;
        let text: Arc<Order> = serde_json::from_str(&text).map(Arc::new).map_err(parsed)?;
        let shared = match known.take() {
            Some(known) if known.shared.0 == id => known.shared,
            _ => {
                let of_shared = "SELECT id, text FROM shared WHERE id = ?1";
                let (_, text) = one(of_shared, id).map_err(failed)?;
                (
                    id,
                    serde_json::from_str(&text).map(Arc::new).map_err(parsed)?,
                )
            }
        };
        let found = (Arc::clone(&shared.1), Arc::clone(&text));
        *known = Some(KnownOrder {
            order,
            text,
            shared,
        });
        Ok(found)
    }

    /// The largest number of any job.
    ///
    /// # Errors
    /// In words.
    pub fn last(&self) -> Result<JobId, String> {
        self.connection
            .query_row("SELECT coalesce(max(id), 0) FROM jobs", [], |row| {
                row.get::<_, i64>(0)
            })
            .map(|id| id as JobId)
            .map_err(failed)
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

const COLUMNS: &str = "id, order_id, array, task, name, job, phase, is_cancelled, submitted, started, ended, cpu_s, max_rss_kib, note, user, uid, runs";

fn fixed(entry: &Entry) -> Result<String, String> {
    let job = &entry.job;
    json(&Fixed {
        array_limit: job.array_limit,
        slots: job.slots,
        limit_s: job.limit_s,
        priority: job.priority,
        is_held: job.is_held,
        after: job.after.clone(),
        account: entry.account.clone(),
        partition: entry.partition.clone(),
        more: Some(More {
            memory_mib: job.memory_mib,
            begin_s: job.begin_s,
            reservation: entry.reservation.clone(),
            is_requeued: entry.is_requeued,
            requeue_codes: entry.requeue_codes.clone(),
            is_mailed: entry.is_mailed,
            is_locked: entry.is_locked,
            slots_together: job.slots_together,
            nodes: job.nodes,
        }),
    })
}

fn phase_text(phase: Phase) -> String {
    json(&phase).unwrap_or_default()
}

fn parsed<T: serde::de::DeserializeOwned>(row: &Row<'_>, column: usize) -> rusqlite::Result<T> {
    let text: String = row.get(column)?;
    serde_json::from_str(&text).map_err(|error| {
        rusqlite::Error::FromSqlConversionFailure(
            column,
            rusqlite::types::Type::Text,
            Box::new(error),
        )
    })
}

fn entry(row: &Row<'_>) -> rusqlite::Result<Entry> {
    let fixed: Fixed = parsed(row, 5)?;
    let more = fixed.more.unwrap_or(More {
        memory_mib: 0,
        begin_s: None,
        reservation: None,
        is_requeued: false,
        requeue_codes: Vec::new(),
        is_mailed: false,
        is_locked: false,
        slots_together: 0,
        nodes: None,
    });
    let uid: Option<u32> = row.get(15)?;
    Ok(Entry {
        job: Job {
            id: row.get::<_, i64>(0)? as JobId,
            array: row.get::<_, Option<i64>>(2)?.map(|id| id as JobId),
            array_limit: fixed.array_limit,
            slots: fixed.slots,
            limit_s: fixed.limit_s,
            priority: fixed.priority,
            is_held: fixed.is_held,
            after: fixed.after,
            phase: parsed(row, 6)?,
            memory_mib: more.memory_mib,
            begin_s: more.begin_s,
            slots_together: more.slots_together,
            nodes: more.nodes,
            ..Job::default()
        },
        task: row.get(3)?,
        name: row.get(4)?,
        account: fixed.account,
        partition: fixed.partition,
        reservation: more.reservation,
        user: row.get(14)?,
        // Older stores are of one user.
        uid: uid.unwrap_or_else(margay_sys_os::port::user),
        order: row.get(1)?,
        submitted: row.get::<_, i64>(8)? as u64,
        runs: row.get(16)?,
        is_requeued: more.is_requeued,
        requeue_codes: more.requeue_codes,
        is_cancelled: row.get(7)?,
        is_mailed: more.is_mailed,
        is_locked: more.is_locked,
    })
}

fn row(row: &Row<'_>) -> rusqlite::Result<JobRow> {
    let number = |column| -> rusqlite::Result<Option<u64>> {
        Ok(row.get::<_, Option<i64>>(column)?.map(|n| n as u64))
    };
    Ok(JobRow {
        started: number(9)?,
        ended: number(10)?,
        usage: Usage {
            cpu_s: row.get(11)?,
            max_rss_kib: row.get::<_, i64>(12)? as u64,
        },
        ..entry(row)?.row(row.get(13)?)
    })
}
