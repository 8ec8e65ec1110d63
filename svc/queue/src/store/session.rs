//! A session of a database's server: set up, with the lock, and the tables in this version.

use std::time::{Duration, Instant};

use margay_core_queue::JobId;
use margay_svc_queue_wire::StoreUrl;
use margay_sys_os::postgres::{Connection, Failure, LIBRARY, Rows};

use super::entry::Columns;

/// What each version of the tables added to the one before it.
const VERSIONS: [&str; 6] = [
    "
CREATE TABLE version (number bigint NOT NULL);
INSERT INTO version VALUES (0);
CREATE TABLE head (term bigint NOT NULL, host text NOT NULL, folder text NOT NULL, process bigint NOT NULL,
    since timestamptz NOT NULL);
INSERT INTO head VALUES (0, '', '', 0, now());
CREATE TABLE settings (id bigint PRIMARY KEY, text text NOT NULL);
CREATE TABLE shared (id bigint PRIMARY KEY, text text NOT NULL);
CREATE TABLE orders (id bigint PRIMARY KEY, shared bigint NOT NULL, text text NOT NULL);
CREATE TABLE jobs (
    id bigint PRIMARY KEY, order_id bigint NOT NULL, \"array\" bigint, task bigint, name text NOT NULL,
    job text NOT NULL, phase text NOT NULL, is_live boolean NOT NULL, is_cancelled boolean NOT NULL DEFAULT false,
    submitted bigint NOT NULL, started bigint, ended bigint, cpu_s double precision NOT NULL DEFAULT 0,
    max_rss_kib bigint NOT NULL DEFAULT 0, note text NOT NULL DEFAULT '', \"user\" text NOT NULL,
    uid bigint, runs bigint NOT NULL DEFAULT 0);
CREATE INDEX live ON jobs (id) WHERE is_live;
CREATE INDEX ended_tasks ON jobs (\"array\", task) WHERE \"array\" IS NOT NULL AND NOT is_live;
",
    "
ALTER TABLE head ADD COLUMN queue text NOT NULL DEFAULT md5(random()::text || clock_timestamp()::text);
ALTER TABLE head ADD COLUMN machine text NOT NULL DEFAULT '';
CREATE TABLE terms (term bigint PRIMARY KEY, host text NOT NULL, folder text NOT NULL, start text NOT NULL);
INSERT INTO terms SELECT term, host, folder, '' FROM head;
ALTER TABLE jobs ADD COLUMN term bigint;
ALTER TABLE jobs ADD COLUMN parts text;
UPDATE jobs SET term = head.term FROM head WHERE is_live AND started IS NOT NULL;
CREATE TABLE standbys (host text NOT NULL, folder text NOT NULL, seen timestamptz NOT NULL,
    PRIMARY KEY (host, folder));
",
    "
ALTER TABLE head ADD COLUMN kind text NOT NULL DEFAULT '';
",
    "
ALTER TABLE jobs ADD COLUMN energy_mj bigint;
",
    "
ALTER TABLE jobs ADD COLUMN hosts text NOT NULL DEFAULT '';
",
    "
ALTER TABLE jobs ADD COLUMN steps text NOT NULL DEFAULT '';
CREATE INDEX ended_at ON jobs (ended) WHERE NOT is_live;
",
];

/// What the server is to do for a session: it ends one whose head is gone or stopped.
const SESSION: &str = "
SET client_min_messages = error;
SET tcp_keepalives_idle = 2; SET tcp_keepalives_interval = 1; SET tcp_keepalives_count = 4;
SELECT set_config(name, '8s', false) FROM pg_settings WHERE name IN ('idle_session_timeout', 'tcp_user_timeout');
SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off';
";

/// The first half of the lock's number; the second is that of the schema.
const LOCK: &str =
    "SELECT pg_try_advisory_lock(1296118361, oid::int) FROM pg_namespace WHERE nspname = $1";

/// How long the server may take to find that the head before has gone; of this folder no other
/// lives, so that of it only its session may be left.
const GONE_WITHIN: Duration = Duration::from_secs(2);
const OWN_GONE_WITHIN: Duration = Duration::from_secs(12);

/// Where a head is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    pub host: String,
    pub folder: String,
}

/// Whose queue it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A user's own.
    User,
    /// That of all users of a machine, with jobs that run as these.
    System,
}

impl Kind {
    /// As it is stored.
    #[must_use]
    pub fn text(self) -> &'static str {
        match self {
            Kind::User => "user",
            Kind::System => "system",
        }
    }

    /// Compares it with what is stored; nothing is where an older version began.
    ///
    /// # Errors
    /// In words: the queue is of the other kind.
    pub fn check(self, stored: &str, what: &str, otherwise: &str) -> Result<(), String> {
        if stored.is_empty() || stored == self.text() {
            return Ok(());
        }
        Err(match self {
            Kind::User => format!(
                "{what} has a queue of all users of a machine; root starts it with margay up --system; or {otherwise}"
            ),
            Kind::System => format!(
                "{what} has a user's own queue; that user starts it with margay up, without --system; or {otherwise}"
            ),
        })
    }
}

/// A head that begins, or that stands by.
#[derive(Clone, Debug)]
pub struct Candidate {
    pub place: Place,
    pub kind: Kind,
    /// What differs each time that its host starts.
    pub start: String,
}

/// A job that runs and that a head of another place has begun.
#[derive(Clone, Debug)]
pub struct Left {
    pub place: Place,
    /// What differs each time that its host starts; nothing where that is not known.
    pub start: String,
}

/// The head for which another one stands by.
#[derive(Clone, Debug)]
pub struct Leader {
    pub place: Place,
    /// Its machine, as words in lines.
    pub machine: String,
}

/// A head that leads.
#[derive(Debug)]
pub(super) struct Term {
    /// It rises with each head.
    pub number: i64,
    /// The name of the queue, which no other one has.
    pub queue: String,
}

/// A connection that is looked for.
#[derive(Debug)]
pub struct Missing {
    pub(super) url: StoreUrl,
    pub(super) term: i64,
}

/// A connection that has the lock again.
#[derive(Debug)]
pub struct Regained(pub(super) Connection);

/// Why there is none.
#[derive(Debug)]
pub enum Sought {
    /// It is to be tried again.
    Away(String),
    /// Another head has taken over.
    Lost(String),
}

/// A row of an answer.
pub(super) struct At<'a>(pub &'a Rows<'a>, pub usize);

impl At<'_> {
    fn parse<T: std::str::FromStr>(&self, column: usize) -> Result<Option<T>, String> {
        let parse = |text: &str| {
            let wrong = || format!("the queue's database: '{text}' is no number");
            text.parse().map_err(|_| wrong())
        };
        self.0.get(self.1, column).map(parse).transpose()
    }
}

impl Columns for At<'_> {
    fn integer(&self, column: usize) -> Result<Option<i64>, String> {
        self.parse(column)
    }

    fn real(&self, column: usize) -> Result<f64, String> {
        self.parse(column).map(Option::unwrap_or_default)
    }

    fn flag(&self, column: usize) -> Result<bool, String> {
        Ok(self.0.get(self.1, column) == Some("t"))
    }

    fn text(&self, column: usize) -> Result<String, String> {
        Ok(self.0.get(self.1, column).unwrap_or_default().to_owned())
    }
}

/// Why something failed, in words.
pub(super) fn failed(url: &StoreUrl, failure: Failure) -> String {
    let (text, remedy) = match failure {
        Failure::NoLibrary(text) => (
            text,
            format!(
                "; install PostgreSQL's client library {LIBRARY} (Debian, Ubuntu: apt-get install libpq5)"
            ),
        ),
        Failure::Password(text) => (
            text,
            "; put the right password into ~/.pgpass, in a line HOST:PORT:DATABASE:USER:PASSWORD"
                .into(),
        ),
        Failure::Connection(text) => {
            let missing = text
                .split_once("database \"")
                .and_then(|(_, rest)| rest.split_once("\" does not exist"));
            let remedy = match missing {
                Some((name, _)) => format!("; create it: createdb {name}"),
                None => String::new(),
            };
            (text, remedy)
        }
        Failure::Refused { state, text } => {
            let schema = url.schema();
            let remedy = match state.as_str() {
                "42501" if text.contains("for database") => {
                    let name = text.rsplit(' ').next().unwrap_or_default();
                    format!(
                        "; its owner gives it: GRANT CREATE ON DATABASE {name} TO {}",
                        url.user()
                    )
                }
                "42501" | "3F000" => format!(
                    "; its owner gives it: GRANT ALL ON SCHEMA {schema} TO {}",
                    url.user()
                ),
                "53100" => "; make room on the disk of the database's server".into(),
                "25006" => "; name the server that can be written to".into(),
                _ => String::new(),
            };
            (text, remedy)
        }
    };
    format!("the queue's database {}: {text}{remedy}", url.shown())
}

/// A connection that is set up, without the lock.
pub(super) fn connect(url: &StoreUrl) -> Result<Connection, Failure> {
    let connection = Connection::open(url.connection())?;
    connection.script(SESSION)?;
    connection.query(
        "SELECT set_config('search_path', quote_ident($1), false)",
        &[url.schema()],
    )?;
    Ok(connection)
}

pub(super) fn has_lock(connection: &Connection, url: &StoreUrl) -> Result<bool, Failure> {
    let rows = connection.query(LOCK, &[url.schema()])?;
    Ok(rows.get(0, 0) == Some("t"))
}

/// The schema, which is made where it is not there.
pub(super) fn make_schema(connection: &Connection, url: &StoreUrl) -> Result<(), String> {
    let failed = |failure| failed(url, failure);
    let rows = connection
        .query(
            "SELECT current_setting('server_encoding'), (SELECT count(*) FROM pg_namespace WHERE nspname = $1)",
            &[url.schema()],
        )
        .map_err(failed)?;
    if let Some(other) = rows.get(0, 0).filter(|encoding| *encoding != "UTF8") {
        return Err(format!(
            "the queue's database {} has the encoding {other}, and names are in UTF-8: make one that has it: \
             createdb -E UTF8 -T template0 NAME",
            url.shown()
        ));
    }
    if rows.get(0, 1) != Some("0") {
        return Ok(());
    }
    // Its name is one of letters, digits and lines (see `StoreUrl`).
    match connection.script(&format!("CREATE SCHEMA \"{}\"", url.schema())) {
        Ok(()) => Ok(()),
        // Another head has made it at the same time.
        Err(Failure::Refused { state, .. }) if matches!(&*state, "42P06" | "23505") => Ok(()),
        Err(failure) => Err(failed(failure)),
    }
}

/// The version of the tables; 0 where there are none.
fn version(connection: &Connection) -> Result<usize, Failure> {
    let there = connection.query("SELECT to_regclass('version')", &[])?;
    if there.get(0, 0).is_none() {
        return Ok(0);
    }
    let rows = connection.query("SELECT number FROM version", &[])?;
    Ok(rows.get(0, 0).and_then(|n| n.parse().ok()).unwrap_or(0))
}

/// Waits for the lock, for a moment.
pub(super) fn lock(connection: &Connection, url: &StoreUrl, own: &Place) -> Result<(), String> {
    let failed = |failure| failed(url, failure);
    let begun = Instant::now();
    loop {
        if has_lock(connection, url).map_err(failed)? {
            return Ok(());
        }
        let mut limit = GONE_WITHIN;
        let mut who = "it is just beginning".to_owned();
        if version(connection).map_err(failed)? > 0 {
            let rows = connection
                .query(
                    "SELECT host, folder, process, to_char(since, 'YYYY-MM-DD HH24:MI:SS TZ') FROM head",
                    &[],
                )
                .map_err(failed)?;
            let text = |column| rows.get(0, column).unwrap_or_default();
            if (text(0), text(1)) == (&*own.host, &*own.folder) {
                limit = OWN_GONE_WITHIN;
            }
            who = format!(
                "process {} on host {}, with the folder {}, since {}",
                text(2),
                text(0),
                text(1),
                text(3)
            );
        }
        if begun.elapsed() >= limit {
            return Err(format!(
                "the queue's database {} has a head: {who}; use that one, or stand by for it: margay up --standby; or end \
                 it there first: margay down; or name another database, or another schema of it: {}",
                url.shown(),
                url.with_schema("NAME")
            ));
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Brings the tables to this version.
pub(super) fn migrate(connection: &Connection, url: &StoreUrl) -> Result<(), String> {
    let failed = |failure| failed(url, failure);
    let (newest, found) = (VERSIONS.len(), version(connection).map_err(failed)?);
    if found > newest {
        return Err(newer(url, found));
    }
    if found == newest {
        return Ok(());
    }
    let changes = VERSIONS[found..].concat();
    connection
        .script(&format!("{changes}UPDATE version SET number = {newest};"))
        .map_err(failed)
}

/// Whether the tables are those of this version.
///
/// # Errors
/// In words: they are those of a newer one.
pub(super) fn is_current(connection: &Connection, url: &StoreUrl) -> Result<bool, String> {
    let (newest, found) = (
        VERSIONS.len(),
        version(connection).map_err(|f| failed(url, f))?,
    );
    match found > newest {
        true => Err(newer(url, found)),
        false => Ok(found == newest),
    }
}

fn newer(url: &StoreUrl, found: usize) -> String {
    format!(
        "the queue's database {} has version {found}, and this Margay knows {}; use the newer Margay that wrote it, or \
         name another schema to begin with an empty queue: {}",
        url.shown(),
        VERSIONS.len(),
        url.with_schema("NAME")
    )
}

/// Looks whether the database has a queue of this kind.
pub(super) fn check_kind(
    connection: &Connection,
    url: &StoreUrl,
    own: &Candidate,
) -> Result<(), String> {
    let found = connection.query("SELECT kind FROM head", &[]);
    let found = found.map_err(|failure| failed(url, failure))?;
    let what = format!("the queue's database {}", url.shown());
    let otherwise = format!("name another schema of it: {}", url.with_schema("NAME"));
    let stored = found.get(0, 0).unwrap_or_default();
    own.kind.check(stored, &what, &otherwise)
}

/// Makes this head the one of the database.
pub(super) fn begin_term(
    connection: &Connection,
    url: &StoreUrl,
    own: &Candidate,
) -> Result<Term, String> {
    let failed = |failure| failed(url, failure);
    let process = std::process::id().to_string();
    check_kind(connection, url, own)?;
    let kind = own.kind.text();
    let values = [
        &*own.place.host,
        &own.place.folder,
        &process,
        &own.start,
        kind,
    ];
    let rows = connection
        .query(
            "WITH new AS (UPDATE head SET term = term + 1, host = $1, folder = $2, process = $3::bigint, since = now(), kind = $5
                RETURNING term, queue),
            gone AS (DELETE FROM standbys WHERE host = $1 AND folder = $2),
            old AS (DELETE FROM terms WHERE term NOT IN
                (SELECT term FROM jobs WHERE is_live AND started IS NOT NULL AND term IS NOT NULL)),
            more AS (INSERT INTO terms SELECT term, $1, $2, $4 FROM new)
            SELECT term, queue FROM new",
            &values,
        )
        .map_err(failed)?;
    let row = At(&rows, 0);
    Ok(Term {
        number: row.number(0)?,
        queue: row.text(1)?,
    })
}

/// The jobs that run, with how often each was put back.
pub(super) fn running(connection: &Connection) -> Result<Vec<(JobId, u32)>, Failure> {
    let sql = "SELECT id, runs FROM jobs WHERE is_live AND started IS NOT NULL";
    let rows = connection.query(sql, &[])?;
    let number = |at, column| rows.get(at, column).and_then(|text| text.parse().ok());
    let job = |at| Some((number(at, 0)?, number(at, 1)? as u32));
    Ok((0..rows.count()).filter_map(job).collect())
}

/// Says that a head stands by; returns the one that leads, when one of another place does.
pub(super) fn stand_by(
    connection: &Connection,
    url: &StoreUrl,
    own: &Place,
) -> Result<Option<Leader>, String> {
    let rows = connection
        .query(
            "WITH own AS (INSERT INTO standbys VALUES ($1, $2, now())
                ON CONFLICT (host, folder) DO UPDATE SET seen = now())
            SELECT host, folder, machine FROM head",
            &[&own.host, &own.folder],
        )
        .map_err(|failure| failed(url, failure))?;
    let row = At(&rows, 0);
    let place = Place {
        host: row.text(0)?,
        folder: row.text(1)?,
    };
    // What is left of a head of this place answers nothing.
    if place.host.is_empty() || place == *own {
        return Ok(None);
    }
    let machine = row.text(2)?;
    Ok(Some(Leader { place, machine }))
}

impl Missing {
    /// Looks for it, and takes the lock again.
    ///
    /// # Errors
    /// It is not there, or another head has it.
    pub fn find(&self) -> Result<Regained, Sought> {
        let away = |failure| Sought::Away(failed(&self.url, failure));
        let connection = connect(&self.url).map_err(away)?;
        let is_locked = has_lock(&connection, &self.url).map_err(away)?;
        let (term, host) = {
            let rows = connection
                .query("SELECT term, host FROM head", &[])
                .map_err(away)?;
            let row = At(&rows, 0);
            let term = row.number(0).map_err(Sought::Away)?;
            (term, row.text(1).unwrap_or_default())
        };
        if term != self.term {
            let text = format!(
                "the head of the queue in {} is another one now, on host {host}",
                self.url.shown()
            );
            return Err(Sought::Lost(text));
        }
        match is_locked {
            true => Ok(Regained(connection)),
            // The old session, or a head that has not written its name yet.
            false => Err(Sought::Away(format!(
                "the queue's database {}: its lock is still held",
                self.url.shown()
            ))),
        }
    }
}
