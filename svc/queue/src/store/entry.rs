//! What both stores have: jobs, how they ended, their rows, and the statements that both know.

use std::sync::Arc;

use margay_core_queue::{End, Job, JobId, Phase, Scheduler, Settings};
use margay_svc_queue_wire::{JobRow, OnHost, Order, Shared, StepRow, Usage};

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
            hosts: Vec::new(),
            steps: Vec::new(),
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
    /// Where it was; nothing on a machine of one host.
    pub hosts: Vec<OnHost>,
    /// What `srun` ran in it.
    pub steps: Vec<StepRow>,
}

impl Finish {
    /// The hosts as the store has them.
    pub(super) fn hosts_text(&self) -> Result<String, String> {
        list_text(&self.hosts)
    }

    /// The steps as the store has them.
    pub(super) fn steps_text(&self) -> Result<String, String> {
        list_text(&self.steps)
    }
}

/// A list as the store has it, which has none of most jobs.
fn list_text(list: &[impl serde::Serialize]) -> Result<String, String> {
    match list.is_empty() {
        true => Ok(String::new()),
        false => json(&list),
    }
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

/// Most jobs that are read at once where all that have ended are meant, of which there may be
/// hundreds of thousands: in a few ms.
const PAGE: usize = 1000;

/// Which jobs that have ended are meant.
#[derive(Clone, Copy, Debug)]
pub enum Which {
    /// The next ones in the order in which they ended: after this second since 1970 and, among
    /// those that ended in it, after this number. At most [`PAGE`].
    After(u64, JobId),
    /// A job, or all tasks of an array.
    Of(JobId),
    /// A task of an array.
    Task(JobId, u32),
    /// With these numbers and all between them.
    Between(JobId, JobId),
}

impl Which {
    /// The statement that finds them, in the order of their numbers but for `After`.
    pub(super) fn sql(self) -> String {
        let condition = match self {
            // Of a pair that is compared whole, an index serves the first part alone.
            Which::After(second, id) => {
                return format!(
                    "SELECT * FROM (\
                     SELECT * FROM (SELECT {COLUMNS} FROM jobs WHERE NOT is_live AND ended = {second} AND id > {id} \
                     ORDER BY id LIMIT {PAGE}) AS rest UNION ALL \
                     SELECT * FROM (SELECT {COLUMNS} FROM jobs WHERE NOT is_live AND ended > {second} \
                     ORDER BY ended, id LIMIT {PAGE}) AS later\
                     ) AS page ORDER BY ended, id LIMIT {PAGE}"
                );
            }
            Which::Of(id) => format!(
                "AND id IN (SELECT {id} UNION SELECT id FROM jobs WHERE \"array\" = {id} AND NOT is_live)"
            ),
            Which::Task(array, task) => format!("AND \"array\" = {array} AND task = {task}"),
            Which::Between(first, last) => format!("AND id BETWEEN {first} AND {last}"),
        };
        format!("SELECT {COLUMNS} FROM jobs WHERE NOT is_live {condition} ORDER BY id")
    }
}

/// The statement that finds jobs that wait or run.
pub(super) fn live_sql() -> String {
    format!("SELECT {COLUMNS} FROM jobs WHERE is_live ORDER BY id")
}

pub(super) const LAST_SQL: &str = "SELECT coalesce(max(id), 0) FROM jobs";
pub(super) const RULES_SQL: &str = "SELECT text FROM settings";
pub(super) const SET_RULES_SQL: &str = "INSERT INTO settings (id, text) VALUES (1, $1) \
     ON CONFLICT (id) DO UPDATE SET text = excluded.text";
pub(super) const ORDER_SQL: &str = "SELECT shared, text FROM orders WHERE id = $1";
pub(super) const SHARED_SQL: &str = "SELECT id, text FROM shared WHERE id = $1";

/// The order that was asked for last: the next job is often of the same, or shares with it.
#[derive(Debug)]
pub(super) struct KnownOrder {
    pub order: i64,
    pub text: Arc<Order>,
    /// With its number.
    pub shared: (i64, Arc<Shared>),
}

/// An order with what it shares with others.
pub type Ordered = (Arc<Shared>, Arc<Order>);

/// A row of a number and a text.
pub(super) type Numbered = (i64, String);

/// Finds an order: the one that is known, or by `one`, which gives a row of the statement for a
/// number.
pub(super) fn find_order(
    known: &mut Option<KnownOrder>,
    order: i64,
    one: &dyn Fn(&str, i64) -> Result<Numbered, String>,
) -> Result<Ordered, String> {
    if let Some(known) = known.as_ref().filter(|known| known.order == order) {
        return Ok((Arc::clone(&known.shared.1), Arc::clone(&known.text)));
    }
    let damaged =
        |error: serde_json::Error| format!("the queue's store: an order is damaged: {error}");
    let (id, text) = one(ORDER_SQL, order)?;
    let text: Arc<Order> = serde_json::from_slice(text.as_bytes())
        .map(Arc::new)
        .map_err(damaged)?;
    let shared = match known.take() {
        Some(known) if known.shared.0 == id => known.shared,
        _ => {
            let (_, text) = one(SHARED_SQL, id)?;
            let shared = serde_json::from_slice(text.as_bytes())
                .map(Arc::new)
                .map_err(damaged)?;
            (id, shared)
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

/// The rules that this text has, or those of a new queue.
pub(super) fn rules(text: Option<&str>) -> Result<Settings, String> {
    text.map_or_else(
        || Ok(Settings::default()),
        |text| {
            serde_json::from_slice(text.as_bytes())
                .map_err(|error| format!("the queue's store: its rules are damaged: {error}"))
        },
    )
}

pub(super) fn json(value: &impl serde::Serialize) -> Result<String, String> {
    serde_json::to_string(value).map_err(|error| format!("the queue's store: {error}"))
}

pub(super) const COLUMNS: &str = "id, order_id, \"array\", task, name, job, phase, is_cancelled, submitted, started, ended, cpu_s, max_rss_kib, note, \"user\", uid, runs, energy_mj, hosts, steps";

pub(super) fn fixed(entry: &Entry) -> Result<String, String> {
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

pub(super) fn phase_text(phase: Phase) -> String {
    json(&phase).unwrap_or_default()
}

/// A row of the columns above, by their places.
pub trait Columns {
    fn integer(&self, column: usize) -> Result<Option<i64>, String>;
    fn real(&self, column: usize) -> Result<f64, String>;
    fn flag(&self, column: usize) -> Result<bool, String>;
    fn text(&self, column: usize) -> Result<String, String>;

    /// An integer that cannot be missing.
    fn number(&self, column: usize) -> Result<i64, String> {
        self.integer(column).map(Option::unwrap_or_default)
    }
}

fn parsed<T: serde::de::DeserializeOwned>(row: &dyn Columns, column: usize) -> Result<T, String> {
    serde_json::from_slice(row.text(column)?.as_bytes())
        .map_err(|error| format!("the queue's store: a job is damaged: {error}"))
}

fn list<T: serde::de::DeserializeOwned>(
    row: &dyn Columns,
    column: usize,
) -> Result<Vec<T>, String> {
    match row.text(column)?.is_empty() {
        true => Ok(Vec::new()),
        false => parsed(row, column),
    }
}

pub(super) fn entry(row: &dyn Columns) -> Result<Entry, String> {
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
    let uid = row.integer(15)?.map(|uid| uid as u32);
    Ok(Entry {
        job: Job {
            id: row.number(0)? as JobId,
            array: row.integer(2)?.map(|id| id as JobId),
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
        task: row.integer(3)?.map(|task| task as u32),
        name: row.text(4)?,
        account: fixed.account,
        partition: fixed.partition,
        reservation: more.reservation,
        user: row.text(14)?,
        // Older stores are of one user.
        uid: uid.unwrap_or_else(margay_sys_os::port::user),
        order: row.number(1)?,
        submitted: row.number(8)? as u64,
        runs: row.number(16)? as u32,
        is_requeued: more.is_requeued,
        requeue_codes: more.requeue_codes,
        is_cancelled: row.flag(7)?,
        is_mailed: more.is_mailed,
        is_locked: more.is_locked,
    })
}

pub(super) fn row(row: &dyn Columns) -> Result<JobRow, String> {
    let number =
        |column| -> Result<Option<u64>, String> { Ok(row.integer(column)?.map(|n| n as u64)) };
    Ok(JobRow {
        started: number(9)?,
        ended: number(10)?,
        usage: Usage {
            cpu_s: row.real(11)?,
            max_rss_kib: row.number(12)? as u64,
            energy_mj: number(17)?,
        },
        hosts: list(row, 18)?,
        steps: list(row, 19)?,
        ..entry(row)?.row(row.text(13)?)
    })
}
