//! The store in a database of PostgreSQL. There is one connection, whose session holds a lock of
//! the server as long as it lives: who writes has the lock, as another connection cannot write for
//! it. Each change is one statement, and on the server's disk when its function returns.
//!
//! When the connection breaks, nothing is known of the change that was on its way. The numbers of
//! jobs that were accepted are known, so what is above them is removed when the connection is back;
//! other changes can be made again. The term in `head` says whether another head was there in the
//! meantime: then this one knows nothing any more, and ends.

use std::cell::RefCell;

use margay_core_queue::{JobId, Phase, Settings};
use margay_svc_queue_wire::{Order, Shared, StoreUrl};
use margay_sys_os::postgres::{Connection, Rows};
use serde::Serialize;

use super::Store;
use super::entry::{
    Columns, Entry, Finish, KnownOrder, Ordered, RULES_SQL, SET_RULES_SQL, find_order, fixed, json,
    phase_text, rules,
};
use super::session::{
    At, Candidate, Leader, Left, Missing, Place, Regained, Term, begin_term, check_kind, connect,
    failed, has_lock, is_current, lock, make_schema, migrate, running, stand_by,
};

/// The open store.
#[derive(Debug)]
pub struct ServerStore {
    url: StoreUrl,
    own: Place,
    term: Term,
    /// Or why there is none.
    line: RefCell<Result<Connection, String>>,
    known: RefCell<Option<KnownOrder>>,
    /// The largest numbers of what is known to be stored.
    last: Last,
    /// Jobs of which a change may have been stored or not.
    doubtful: Vec<JobId>,
}

#[derive(Clone, Copy, Debug)]
struct Last {
    shared: i64,
    order: i64,
    job: i64,
}

/// What is stored of a job that is accepted.
// Fields: a column each.
#[derive(Serialize)]
struct NewJob<'a> {
    id: JobId,
    order_id: i64,
    array: Option<JobId>,
    task: Option<u32>,
    name: &'a str,
    job: String,
    phase: String,
    submitted: u64,
    user: &'a str,
    uid: u32,
}

#[derive(Serialize)]
struct NewOrder {
    id: i64,
    text: String,
}

/// What changes of a job that has ended, waits again or runs: what is none stays.
#[derive(Serialize)]
struct Step<'a> {
    id: JobId,
    phase: String,
    is_live: bool,
    started: Option<u64>,
    ended: Option<u64>,
    cpu_s: Option<f64>,
    max_rss_kib: Option<u64>,
    energy_mj: Option<u64>,
    note: Option<&'a str>,
    hosts: Option<String>,
    steps: Option<String>,
    runs: Option<u32>,
    /// The term of the head that begins it.
    term: Option<i64>,
}

#[derive(Serialize)]
struct Placed {
    id: JobId,
    parts: String,
}

#[derive(Serialize)]
struct Changed<'a> {
    id: JobId,
    job: String,
    is_cancelled: bool,
    name: &'a str,
}

const ADD: &str = "
WITH new_shared AS (INSERT INTO shared (id, text) VALUES ($1::bigint, $2)),
new_orders AS (INSERT INTO orders (id, shared, text)
    SELECT id, $1::bigint, text FROM json_to_recordset($3::json) AS x(id bigint, text text))
INSERT INTO jobs (id, order_id, \"array\", task, name, job, phase, is_live, submitted, \"user\", uid)
    SELECT id, order_id, \"array\", task, name, job, phase, true, submitted, \"user\", uid
    FROM json_to_recordset($4::json) AS x(id bigint, order_id bigint, \"array\" bigint, task bigint, name text,
        job text, phase text, submitted bigint, \"user\" text, uid bigint)";

const STEP: &str = "
UPDATE jobs SET phase = x.phase, is_live = x.is_live,
    started = CASE WHEN x.is_live THEN x.started ELSE jobs.started END, ended = x.ended,
    cpu_s = coalesce(x.cpu_s, jobs.cpu_s), max_rss_kib = coalesce(x.max_rss_kib, jobs.max_rss_kib),
    energy_mj = coalesce(x.energy_mj, jobs.energy_mj),
    note = coalesce(x.note, jobs.note), hosts = coalesce(x.hosts, ''), steps = coalesce(x.steps, ''), runs = coalesce(x.runs, jobs.runs), term = coalesce(x.term, jobs.term),
    parts = CASE WHEN x.is_live THEN NULL ELSE jobs.parts END
FROM json_to_recordset($1::json) AS x(id bigint, phase text, is_live boolean, started bigint, ended bigint,
    cpu_s double precision, max_rss_kib bigint, energy_mj bigint, note text, hosts text, steps text, runs bigint, term bigint)
WHERE jobs.id = x.id";

const PLACE: &str = "
UPDATE jobs SET parts = x.parts FROM json_to_recordset($1::json) AS x(id bigint, parts text) WHERE jobs.id = x.id";

const CHANGE: &str = "
UPDATE jobs SET job = x.job, is_cancelled = x.is_cancelled, name = x.name
FROM json_to_recordset($1::json) AS x(id bigint, job text, is_cancelled boolean, name text)
WHERE jobs.id = x.id";

impl ServerStore {
    /// Opens the store, or makes it, and takes its lock.
    ///
    /// # Errors
    /// In words: it cannot be used, another head has it, or a newer version has written it.
    pub fn open(url: &StoreUrl, own: &Candidate) -> Result<ServerStore, String> {
        let connection = connect(url).map_err(|failure| failed(url, failure))?;
        make_schema(&connection, url)?;
        lock(&connection, url, &own.place)?;
        Self::lead(connection, url, own)
    }

    /// Begins as the head, with a connection that has the lock.
    fn lead(
        connection: Connection,
        url: &StoreUrl,
        own: &Candidate,
    ) -> Result<ServerStore, String> {
        migrate(&connection, url)?;
        let term = begin_term(&connection, url, own)?;
        let mut store = ServerStore {
            url: url.clone(),
            own: own.place.clone(),
            term,
            line: RefCell::new(Ok(connection)),
            known: RefCell::new(None),
            last: Last {
                shared: 0,
                order: 0,
                job: 0,
            },
            doubtful: Vec::new(),
        };
        let sql = "SELECT coalesce((SELECT max(id) FROM shared), 0), coalesce((SELECT max(id) FROM orders), 0), \
                   coalesce((SELECT max(id) FROM jobs), 0)";
        store.last = store.ask(sql, &[], |rows| {
            let row = At(rows, 0);
            Ok(Last {
                shared: row.number(0)?,
                order: row.number(1)?,
                job: row.number(2)?,
            })
        })?;
        Ok(store)
    }

    fn away(&self, why: &str) -> String {
        format!("{why}; jobs that run go on, and the head looks for the database again each second")
    }

    /// Executes a statement.
    fn ask<T>(
        &self,
        sql: &str,
        values: &[&str],
        read: impl FnOnce(&Rows<'_>) -> Result<T, String>,
    ) -> Result<T, String> {
        let mut line = self.line.borrow_mut();
        let (text, is_broken) = match &*line {
            Err(why) => return Err(self.away(why)),
            Ok(connection) => match connection.query(sql, values) {
                Ok(rows) => return read(&rows),
                Err(failure) => (failed(&self.url, failure), connection.is_broken()),
            },
        };
        if !is_broken {
            return Err(text);
        }
        crate::log(&text);
        let away = self.away(&text);
        *line = Err(text);
        Err(away)
    }

    fn done(&self, sql: &str, values: &[&str]) -> Result<(), String> {
        self.ask(sql, values, |_| Ok(()))
    }

    fn is_broken(&self) -> bool {
        self.line.borrow().is_err()
    }

    /// Looks whether the session lives.
    ///
    /// # Errors
    /// In words, when it does not.
    pub fn hear(&self) -> Result<(), String> {
        self.done("SELECT 1", &[])
    }

    /// What is to be looked for, when the connection is broken.
    #[must_use]
    pub fn missing(&self) -> Option<Missing> {
        self.is_broken().then(|| Missing {
            url: self.url.clone(),
            term: self.term.number,
        })
    }

    /// The name of the queue, and the number of this head among those that it has had.
    #[must_use]
    pub fn term(&self) -> (&str, i64) {
        (&self.term.queue, self.term.number)
    }

    /// The machine of the head before, as words in lines.
    ///
    /// # Errors
    /// In words.
    pub fn machine(&self) -> Result<String, String> {
        self.ask("SELECT machine FROM head", &[], |rows| At(rows, 0).text(0))
    }

    /// Stores the machine of this one.
    ///
    /// # Errors
    /// In words.
    pub fn set_machine(&self, words: &str) -> Result<(), String> {
        self.done("UPDATE head SET machine = $1", &[words])
    }

    /// The hosts on which heads stand by.
    ///
    /// # Errors
    /// In words.
    pub fn standbys(&self) -> Result<Vec<String>, String> {
        let sql = "SELECT host FROM standbys WHERE seen > now() - interval '5 s' ORDER BY host";
        self.rows(sql, |row| row.text(0))
    }

    /// Running jobs that heads of other places have begun.
    ///
    /// # Errors
    /// In words.
    pub fn left(&self) -> Result<Vec<(JobId, Left)>, String> {
        let sql = "SELECT jobs.id, terms.host, terms.folder, terms.start FROM jobs JOIN terms USING (term) \
                   WHERE is_live AND started IS NOT NULL AND (terms.host, terms.folder) <> ($1, $2)";
        self.ask(sql, &[&self.own.host, &self.own.folder], |rows| {
            let left = |at| {
                let row = At(rows, at);
                let place = Place {
                    host: row.text(1)?,
                    folder: row.text(2)?,
                };
                let start = row.text(3)?;
                Ok((row.number(0)? as JobId, Left { place, start }))
            };
            (0..rows.count()).map(left).collect()
        })
    }

    /// Where running jobs have their slots, as JSON.
    ///
    /// # Errors
    /// In words.
    pub fn parts(&self) -> Result<Vec<(JobId, String)>, String> {
        let sql = "SELECT id, parts FROM jobs WHERE is_live AND parts IS NOT NULL";
        self.rows(sql, |row| Ok((row.number(0)? as JobId, row.text(1)?)))
    }

    /// Stores where jobs that have begun have their slots, as JSON.
    ///
    /// # Errors
    /// In words.
    pub fn place(&self, jobs: Vec<(JobId, String)>) -> Result<(), String> {
        let placed = jobs.into_iter().map(|(id, parts)| Placed { id, parts });
        self.done(PLACE, &[&json(&placed.collect::<Vec<_>>())?])
    }

    /// Goes on with a new connection. Returns the jobs of which a change may have been stored or
    /// not.
    ///
    /// # Errors
    /// In words: it is broken as well.
    pub fn put_back(&mut self, regained: Regained) -> Result<Vec<JobId>, String> {
        *self.line.borrow_mut() = Ok(regained.0);
        // Jobs that may have been stored, and whose users know that they are not accepted.
        let last = self.last;
        for (table, last) in [
            ("jobs", last.job),
            ("orders", last.order),
            ("shared", last.shared),
        ] {
            let sql = format!("DELETE FROM {table} WHERE id > $1::bigint");
            self.done(&sql, &[&last.to_string()])?;
        }
        Ok(std::mem::take(&mut self.doubtful))
    }

    /// As [`super::Store::add`].
    ///
    /// # Errors
    /// In words; nothing is stored then.
    pub fn add(
        &mut self,
        shared: &Shared,
        orders: &[Order],
        entries: &mut [Vec<Entry>],
    ) -> Result<(), String> {
        let mut last = self.last;
        last.shared += 1;
        let mut new_orders = Vec::with_capacity(orders.len());
        for (order, entries) in orders.iter().zip(entries.iter_mut()) {
            last.order += 1;
            new_orders.push(NewOrder {
                id: last.order,
                text: json(order)?,
            });
            for entry in entries {
                entry.order = last.order;
            }
        }
        let mut new_jobs = Vec::new();
        for entry in entries.iter().flatten() {
            last.job = last.job.max(entry.job.id as i64);
            new_jobs.push(NewJob {
                id: entry.job.id,
                order_id: entry.order,
                array: entry.job.array,
                task: entry.task,
                name: &entry.name,
                job: fixed(entry)?,
                phase: phase_text(entry.job.phase),
                submitted: entry.submitted,
                user: &entry.user,
                uid: entry.uid,
            });
        }
        let number = last.shared.to_string();
        let values = [
            &*number,
            &json(shared)?,
            &json(&new_orders)?,
            &json(&new_jobs)?,
        ];
        self.done(ADD, &values)?;
        self.last = last;
        Ok(())
    }

    /// As [`super::Store::step`].
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
        let live = |id, phase, started| Step {
            id,
            phase: phase_text(phase),
            is_live: true,
            started,
            ended: None,
            cpu_s: None,
            max_rss_kib: None,
            energy_mj: None,
            note: None,
            hosts: None,
            steps: None,
            runs: None,
            term: None,
        };
        let mut steps = Vec::with_capacity(finishes.len() + requeues.len() + begins.len());
        for (id, finish) in finishes {
            steps.push(Step {
                is_live: false,
                ended: Some(finish.ended),
                cpu_s: Some(finish.usage.cpu_s),
                max_rss_kib: Some(finish.usage.max_rss_kib),
                energy_mj: finish.usage.energy_mj,
                note: Some(&finish.note),
                hosts: Some(finish.hosts_text()?),
                steps: Some(finish.steps_text()?),
                ..live(*id, Phase::Ended(finish.end), None)
            });
        }
        // One that waits again may begin again at once: a statement changes a row once.
        for (id, runs) in requeues.iter().filter(|(id, _)| !begins.contains(id)) {
            steps.push(Step {
                runs: Some(*runs),
                ..live(*id, Phase::Waiting, None)
            });
        }
        for id in begins {
            let again = requeues.iter().find(|(other, _)| other == id);
            steps.push(Step {
                runs: again.map(|(_, runs)| *runs),
                term: Some(self.term.number),
                ..live(*id, Phase::Running(now_s), Some(now_s))
            });
        }
        self.done(STEP, &[&json(&steps)?])
    }

    /// As [`super::Store::settings`].
    ///
    /// # Errors
    /// In words.
    pub fn settings(&self) -> Result<Settings, String> {
        self.ask(RULES_SQL, &[], |found| rules(found.get(0, 0)))
    }

    /// As [`super::Store::set`].
    ///
    /// # Errors
    /// In words; nothing is stored then.
    pub fn set(&mut self, settings: &Settings) -> Result<(), String> {
        self.done(SET_RULES_SQL, &[&json(settings)?])
    }

    /// As [`super::Store::change`].
    ///
    /// # Errors
    /// In words; nothing is stored then.
    pub fn change(&mut self, entries: &[Entry]) -> Result<(), String> {
        let change = |entry: &Entry| -> Result<String, String> {
            json(&Changed {
                id: entry.job.id,
                job: fixed(entry)?,
                is_cancelled: entry.is_cancelled,
                name: &entry.name,
            })
        };
        let all: Vec<String> = entries.iter().map(change).collect::<Result<_, _>>()?;
        let was_broken = self.is_broken();
        let done = self.done(CHANGE, &[&format!("[{}]", all.join(","))]);
        if self.is_broken() && !was_broken {
            self.doubtful
                .extend(entries.iter().map(|entry| entry.job.id));
        }
        done
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
        self.ask(sql, &[], |rows| {
            (0..rows.count()).map(|row| read(&At(rows, row))).collect()
        })
    }

    /// As [`super::Store::order`].
    ///
    /// # Errors
    /// In words.
    pub fn order(&self, order: i64) -> Result<Ordered, String> {
        let one = |sql: &str, id: i64| {
            self.ask(sql, &[&id.to_string()], |rows| {
                let row = At(rows, 0);
                Ok((row.number(0)?, row.text(1)?))
            })
        };
        find_order(&mut self.known.borrow_mut(), order, &one)
    }

    /// Ends the connection, and with it the lock.
    pub fn close(&mut self) {
        *self.line.borrow_mut() = Err("the queue's database is closed".into());
    }
}

/// A head that stands by: a session without the lock.
#[derive(Debug)]
pub struct Standby {
    url: StoreUrl,
    own: Candidate,
    connection: Option<Connection>,
}

impl Standby {
    /// For the database of this URL.
    #[must_use]
    pub fn new(url: &StoreUrl, own: Candidate) -> Standby {
        Standby {
            url: url.clone(),
            own,
            connection: None,
        }
    }

    /// Opens the session where it is not open. What fails here is tried again with another one.
    fn connection(&mut self) -> Result<&Connection, String> {
        if self.connection.as_ref().is_none_or(Connection::is_broken) {
            self.connection = None;
            let connection = connect(&self.url).map_err(|failure| failed(&self.url, failure))?;
            make_schema(&connection, &self.url)?;
            self.connection = Some(connection);
        }
        self.connection.as_ref().ok_or_else(String::new)
    }

    /// Takes the lock when no head has it.
    ///
    /// # Errors
    /// In words: the database is away, or a newer version has written it.
    pub fn take(&mut self) -> Result<Option<Store>, String> {
        let (url, own) = (self.url.clone(), self.own.clone());
        let connection = self.connection()?;
        if !has_lock(connection, &url).map_err(|failure| failed(&url, failure))? {
            return Ok(None);
        }
        let connection = self.connection.take();
        connection
            .map(|connection| ServerStore::lead(connection, &url, &own))
            .transpose()
            .map(|store| store.map(|store| Store::Server(Box::new(store))))
    }

    /// Says that this head stands by; returns the one that leads, when one of another place does.
    ///
    /// # Errors
    /// In words: the database is away, or a newer version has written it.
    pub fn say(&mut self) -> Result<Option<Leader>, String> {
        let (url, own) = (self.url.clone(), self.own.clone());
        let connection = self.connection()?;
        match is_current(connection, &url)? {
            true => {
                check_kind(connection, &url, &own)?;
                stand_by(connection, &url, &own.place)
            }
            // The head is just making the tables, or is one of an older version.
            false => Ok(None),
        }
    }

    /// The jobs that run, with how often each was put back.
    ///
    /// # Errors
    /// In words: the database is away.
    pub fn running(&mut self) -> Result<Vec<(JobId, u32)>, String> {
        let url = self.url.clone();
        let connection = self.connection()?;
        running(connection).map_err(|failure| failed(&url, failure))
    }

    /// The name of the queue.
    ///
    /// # Errors
    /// In words: the database is away.
    pub fn queue(&mut self) -> Result<String, String> {
        let url = self.url.clone();
        let rows = self.connection()?.query("SELECT queue FROM head", &[]);
        let rows = rows.map_err(|failure| failed(&url, failure))?;
        At(&rows, 0).text(0)
    }

    /// Says that it no longer stands by.
    pub fn end(&mut self) {
        let place = &self.own.place;
        if let Some(connection) = &self.connection {
            let sql = "DELETE FROM standbys WHERE host = $1 AND folder = $2";
            let _ = connection.query(sql, &[&place.host, &place.folder]);
        }
    }
}
