//! `squeue --json` and `sacct --json`: jobs in the shape of Slurm's data parser 0.0.40, with the
//! names that scripts look for.

use margay_core_queue::{End, Phase};
use margay_svc_queue_wire::StepRow;
use serde_json::{Value, json};

use super::VERSION;
use super::fields::{View, reason, state, step_end, step_nodes, step_phase};
use crate::common::now_s;
use crate::machine::node_count;

/// A number as Slurm has those that may be missing; without a limit where there is none.
fn number(value: Option<u64>, is_infinite: bool) -> Value {
    json!({ "set": value.is_some(), "infinite": is_infinite, "number": value.unwrap_or(0) })
}

fn number_or_infinite(value: Option<u64>) -> Value {
    number(value, value.is_none())
}

/// How a job ended.
fn exit_code(phase: Phase) -> Value {
    let (status, code, signal) = match phase {
        Phase::Ended(End::Exit(0)) => ("SUCCESS", Some(0), None),
        Phase::Ended(End::Exit(code)) => ("ERROR", u64::try_from(code).ok(), None),
        Phase::Ended(End::Signal(signal)) => ("SIGNALED", None, u64::try_from(signal).ok()),
        Phase::Ended(_) => ("ERROR", Some(1), None),
        _ => ("PENDING", None, None),
    };
    json!({
        "status": [status],
        "return_code": number(code, false),
        "signal": { "id": number(signal, false), "name": "" },
    })
}

/// What all jobs have in both tables.
fn common(view: &View<'_>) -> Value {
    let row = &view.detail.row;
    json!({
        "job_id": row.id,
        "name": row.name,
        "account": row.account.as_deref().unwrap_or_default(),
        "partition": row.partition,
        "cluster": view.host,
        "nodes": view.nodes(),
        "exit_code": exit_code(row.phase),
        "priority": number(Some(view.detail.priority.max(0).unsigned_abs()), false),
        "restart_cnt": row.runs,
        "qos": "normal",
    })
}

/// `base` with the fields of `more`.
fn with(mut base: Value, more: Value) -> Value {
    if let (Value::Object(base), Value::Object(more)) = (&mut base, more) {
        base.extend(more);
    }
    base
}

/// A job of `squeue`.
#[must_use]
pub fn queued(view: &View<'_>) -> Value {
    let (detail, row) = (view.detail, &view.detail.row);
    let size = &detail.wishes.size;
    let text = |name: &str| view.value(name).unwrap_or_default();
    let (array, task) = detail.array.unzip();
    let memory = size.memory(row.slots);
    let minutes = row.limit_s.map(|seconds| seconds.div_ceil(60));
    with(
        common(view),
        json!({
            "array_job_id": number(Some(array.unwrap_or(0)), false),
            "array_task_id": number(task.map(u64::from), false),
            "array_task_string": view.tasks.unwrap_or_default(),
            "batch_flag": detail.is_script,
            "batch_host": view.batch_host(),
            "command": text("command"),
            "comment": text("comment"),
            "cpus": number(Some(row.slots.into()), false),
            "cpus_per_task": number(size.cpus_per_task.map(u64::from), false),
            "current_working_directory": text("workdir"),
            "dependency": view.dependency().unwrap_or_default(),
            "eligible_time": number(Some(row.submitted), false),
            "end_time": number(view.end(), false),
            "hold": detail.is_held,
            "job_state": [state(row.phase).0],
            "memory_per_node": number(memory, false),
            "node_count": number(Some(node_count(detail).into()), false),
            "requeue": detail.wishes.is_requeued.unwrap_or(false),
            "standard_error": text("stderr"),
            "standard_input": text("stdin"),
            "standard_output": text("stdout"),
            "start_time": number(view.start(), false),
            "state_reason": reason(detail),
            "submit_time": number(Some(row.submitted), false),
            "tasks": number(Some(size.tasks().into()), false),
            "time_limit": number_or_infinite(minutes),
            "user_id": row.uid,
            "user_name": detail.user,
        }),
    )
}

fn used(cpu_s: f64) -> Value {
    let cpu_us = (cpu_s * 1e6) as u64;
    json!({ "seconds": cpu_us / 1_000_000, "microseconds": cpu_us % 1_000_000 })
}

/// A step of a job of `sacct`.
fn ran(view: &View<'_>, step: &StepRow) -> Value {
    let row = &view.detail.row;
    let phase = step_phase(row, step);
    let end = step_end(row, step);
    json!({
        "step": { "id": format!("{}.{}", row.id, step.step), "name": step.name },
        "state": [state(phase).0],
        "exit_code": exit_code(phase),
        "nodes": { "count": step_nodes(view.detail, step) },
        "tasks": { "count": step.tasks },
        "time": {
            "start": step.started,
            "end": end.unwrap_or(0),
            "elapsed": end.unwrap_or_else(now_s).saturating_sub(step.started),
            "total": used(step.cpu_s),
        },
        "max_rss_kib": step.max_rss_kib,
    })
}

/// A job of `sacct`; times that are not known are 0, as there.
#[must_use]
pub fn accounted(view: &View<'_>) -> Value {
    let (detail, row) = (view.detail, &view.detail.row);
    let text = |name: &str| view.value(name).unwrap_or_default();
    let (array, task) = detail.array.unzip();
    let minutes = row.limit_s.map(|seconds| seconds.div_ceil(60));
    let resource =
        |kind: &str, name: &str, count: u64| json!({ "type": kind, "name": name, "count": count });
    let allocated: Vec<Value> = match row.started {
        None => Vec::new(),
        Some(_) => vec![
            resource("cpu", "", row.slots.into()),
            resource("node", "", node_count(detail).into()),
        ],
    };
    with(
        common(view),
        json!({
            "allocation_nodes": row.started.map_or(0, |_| node_count(detail)),
            "array": { "job_id": array.unwrap_or(0), "task_id": number(task.map(u64::from), false) },
            "comment": { "job": text("comment"), "administrator": "", "system": "" },
            "required": {
                "CPUs": row.slots,
                "memory_per_node": number(detail.wishes.size.memory(row.slots), false),
            },
            "state": { "current": [state(row.phase).0], "reason": reason(detail) },
            "stderr": text("stderr"),
            "stdout": text("stdout"),
            "steps": row.steps.iter().map(|step| ran(view, step)).collect::<Vec<_>>(),
            "submit_line": text("submitline"),
            "time": {
                "elapsed": view.run_s(),
                "eligible": row.submitted,
                "end": row.ended.unwrap_or(0),
                "limit": number_or_infinite(minutes),
                "start": row.started.unwrap_or(0),
                "submission": row.submitted,
                "total": used(row.usage.cpu_s),
            },
            "tres": { "allocated": allocated },
            "max_rss_kib": row.usage.max_rss_kib,
            "user": detail.user,
            "working_directory": text("workdir"),
        }),
    )
}

/// The whole answer.
#[must_use]
pub fn answer(jobs: Vec<Value>) -> String {
    let parser = json!({ "type": "openapi", "data_parser": "data_parser/v0.0.40" });
    let meta = json!({ "plugin": parser, "slurm": { "release": VERSION } });
    let all = json!({ "jobs": jobs, "meta": meta, "errors": [], "warnings": [] });
    format!("{all}\n")
}
