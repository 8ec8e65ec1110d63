//! The store: a file of the queue's folder, or a database of a server. A change by users is on the
//! disk when its function returns. What jobs do ([`Store::step`]) is there as well in a database; a
//! file has it on the disk a moment later ([`file`]).
//!
//! | table | what a row is |
//! | --- | --- |
//! | `shared` | the environment and directory of one request, as JSON |
//! | `orders` | what was asked for, as JSON: a job or an array |
//! | `jobs` | a job, or a task of an array: what the scheduler asks, and how it went |
//! | `settings` | one row: the rules that were set, as JSON |
//! | `queue` | in a file, one row: the name of the queue, which no other one has, and its kind |
//!
//! In a database there are more:
//!
//! | table | what a row is |
//! | --- | --- |
//! | `head` | one row: who is the head, its machine, and the name and the kind of the queue |
//! | `terms` | a head of which jobs may run: where its folder is |
//! | `standbys` | who stands by for the head, and when it was last there |

mod entry;
mod file;
mod server;
mod session;

use std::path::Path;

use margay_core_queue::{JobId, Settings};
use margay_svc_queue_wire::{JobRow, Order, Shared, StoreUrl};

pub use entry::{Entry, Finish, Ordered, Which};
use entry::{LAST_SQL, live_sql};
use file::FileStore;
pub use file::{FILE, log_of};
use server::ServerStore;
pub use server::Standby;
pub use session::{Candidate, Kind, Leader, Left, Missing, Place, Regained, Sought};

/// The open store.
#[derive(Debug)]
pub enum Store {
    File(Box<FileStore>),
    Server(Box<ServerStore>),
}

impl Store {
    /// Opens the store of a database, or of the queue's folder, or makes it.
    ///
    /// # Errors
    /// In words: it cannot be used, another head has it, or a newer version has written it.
    pub fn open(url: Option<&StoreUrl>, own: &Candidate) -> Result<Store, String> {
        match url {
            None => {
                let file = Path::new(&own.place.folder).join(FILE);
                FileStore::open(&file, own.kind)
                    .map(Box::new)
                    .map(Store::File)
            }
            Some(url) => {
                let store = ServerStore::open(url, own)?;
                Ok(Store::Server(Box::new(store)))
            }
        }
    }

    /// The name of the queue, and the number of this head among those that it has had; nothing and
    /// 0 where there is one place alone that can be the head.
    #[must_use]
    pub fn term(&self) -> (&str, i64) {
        match self {
            Store::File(_) => ("", 0),
            Store::Server(store) => store.term(),
        }
    }

    /// The name of the queue, which no other one has.
    #[must_use]
    pub fn queue(&self) -> &str {
        match self {
            Store::File(store) => store.queue(),
            Store::Server(store) => store.term().0,
        }
    }

    /// The machine of the head before, as words in lines.
    ///
    /// # Errors
    /// In words.
    pub fn machine(&self) -> Result<String, String> {
        match self {
            Store::File(_) => Ok(String::new()),
            Store::Server(store) => store.machine(),
        }
    }

    /// Stores the machine of this one, for heads of other places.
    ///
    /// # Errors
    /// In words.
    pub fn set_machine(&self, words: &str) -> Result<(), String> {
        match self {
            Store::File(_) => Ok(()),
            Store::Server(store) => store.set_machine(words),
        }
    }

    /// The hosts on which heads stand by.
    ///
    /// # Errors
    /// In words.
    pub fn standbys(&self) -> Result<Vec<String>, String> {
        match self {
            Store::File(_) => Ok(Vec::new()),
            Store::Server(store) => store.standbys(),
        }
    }

    /// Running jobs that heads of other places have begun.
    ///
    /// # Errors
    /// In words.
    pub fn left(&self) -> Result<Vec<(JobId, Left)>, String> {
        match self {
            Store::File(_) => Ok(Vec::new()),
            Store::Server(store) => store.left(),
        }
    }

    /// Where running jobs have their slots, as JSON; of a file, their folders have it.
    ///
    /// # Errors
    /// In words.
    pub fn parts(&self) -> Result<Vec<(JobId, String)>, String> {
        match self {
            Store::File(_) => Ok(Vec::new()),
            Store::Server(store) => store.parts(),
        }
    }

    /// Whether it wants to know where jobs have their slots.
    #[must_use]
    pub fn has_parts(&self) -> bool {
        matches!(self, Store::Server(_))
    }

    /// Stores where jobs that have begun have their slots, as JSON.
    ///
    /// # Errors
    /// In words.
    pub fn place(&self, jobs: Vec<(JobId, String)>) -> Result<(), String> {
        match self {
            Store::File(_) => Ok(()),
            Store::Server(store) => store.place(jobs),
        }
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
        match self {
            Store::File(store) => store.add(shared, orders, entries),
            Store::Server(store) => store.add(shared, orders, entries),
        }
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
        match self {
            Store::File(store) => store.step(finishes, requeues, begins, now_s),
            Store::Server(store) => store.step(finishes, requeues, begins, now_s),
        }
    }

    /// The rules that were set, or those of a new queue.
    ///
    /// # Errors
    /// In words.
    pub fn settings(&self) -> Result<Settings, String> {
        match self {
            Store::File(store) => store.settings(),
            Store::Server(store) => store.settings(),
        }
    }

    /// Stores the rules.
    ///
    /// # Errors
    /// In words; nothing is stored then.
    pub fn set(&mut self, settings: &Settings) -> Result<(), String> {
        match self {
            Store::File(store) => store.set(settings),
            Store::Server(store) => store.set(settings),
        }
    }

    /// Stores what may change of jobs that wait or run: whether they are held or are to end, and
    /// what the user may change.
    ///
    /// # Errors
    /// In words; nothing is stored then.
    pub fn change(&mut self, entries: &[Entry]) -> Result<(), String> {
        match self {
            Store::File(store) => store.change(entries),
            Store::Server(store) => store.change(entries),
        }
    }

    fn rows<T>(
        &self,
        sql: &str,
        read: fn(&dyn entry::Columns) -> Result<T, String>,
    ) -> Result<Vec<T>, String> {
        match self {
            Store::File(store) => store.rows(sql, read),
            Store::Server(store) => store.rows(sql, read),
        }
    }

    /// The jobs that wait or run.
    ///
    /// # Errors
    /// In words.
    pub fn live(&self) -> Result<Vec<Entry>, String> {
        self.rows(&live_sql(), entry::entry)
    }

    /// Jobs that have ended.
    ///
    /// # Errors
    /// In words.
    pub fn ended(&self, which: Which) -> Result<Vec<JobRow>, String> {
        self.rows(&which.sql(), entry::row)
    }

    /// Hands over all jobs that have ended, page by page.
    ///
    /// # Errors
    /// In words.
    pub fn each_ended(&self, mut take: impl FnMut(JobRow)) -> Result<(), String> {
        let mut next = Some((0, 0));
        while let Some((second, id)) = next {
            let rows = self.ended(Which::After(second, id))?;
            next = rows.last().and_then(JobRow::end);
            rows.into_iter().for_each(&mut take);
        }
        Ok(())
    }

    /// The same jobs, with what they asked for.
    ///
    /// # Errors
    /// In words.
    pub fn ended_entries(&self, which: Which) -> Result<Vec<(Entry, JobRow)>, String> {
        self.rows(&which.sql(), |row| {
            Ok((entry::entry(row)?, entry::row(row)?))
        })
    }

    /// The order of a job, and what it shares with others.
    ///
    /// # Errors
    /// In words.
    pub fn order(&self, order: i64) -> Result<Ordered, String> {
        match self {
            Store::File(store) => store.order(order),
            Store::Server(store) => store.order(order),
        }
    }

    /// The largest number of any job.
    ///
    /// # Errors
    /// In words.
    pub fn last(&self) -> Result<JobId, String> {
        let last = self.rows(LAST_SQL, |row| row.number(0))?;
        Ok(last.first().map_or(0, |id| *id as JobId))
    }

    /// Looks whether the store is still this head's.
    ///
    /// # Errors
    /// In words: it is not, or cannot be reached.
    pub fn hear(&self) -> Result<(), String> {
        match self {
            Store::File(_) => Ok(()),
            Store::Server(store) => store.hear(),
        }
    }

    /// What is to be looked for, when the connection to the database is broken.
    #[must_use]
    pub fn missing(&self) -> Option<Missing> {
        match self {
            Store::File(_) => None,
            Store::Server(store) => store.missing(),
        }
    }

    /// Goes on with a new connection. Returns the jobs of which a change may have been stored or
    /// not.
    ///
    /// # Errors
    /// In words: it is broken as well.
    pub fn put_back(&mut self, regained: Regained) -> Result<Vec<JobId>, String> {
        match self {
            Store::File(_) => Ok(Vec::new()),
            Store::Server(store) => store.put_back(regained),
        }
    }

    /// Closes the store: the log of a file is part of it then. Nothing can be stored or found any
    /// more.
    ///
    /// # Errors
    /// In words.
    pub fn close(&mut self) -> Result<(), String> {
        match self {
            Store::File(store) => store.close(),
            Store::Server(store) => {
                store.close();
                Ok(())
            }
        }
    }
}
