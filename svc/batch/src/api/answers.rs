//! What the API answers.

use margay_core_queue::{Wishes, script};
use margay_svc_queue_wire::{
    Answer, Bytes, Change, Detail, JobRow, Order, Request as Ask, Shared, Target, ask, state,
};
use serde_json::{Value, json};

use super::http::{Request, Response, error, json};
use crate::common;

/// What describes the API.
const OPENAPI: &str = include_str!("openapi.json");

fn whole(detail: &Detail) -> Value {
    let mut value = detail.row.json();
    let text = |bytes: &Bytes| bytes.0.to_string_lossy().into_owned();
    if let Some(object) = value.as_object_mut() {
        for (name, value) in [
            // Rows of the oldest stores have none.
            ("user", json!(detail.user)),
            ("tasks", json!(detail.wishes.size.tasks())),
            ("is_held", json!(detail.is_held)),
            ("directory", json!(text(&detail.directory))),
            ("stdout", json!(text(&detail.stdout))),
            ("stderr", json!(text(&detail.stderr))),
            ("comment", json!(detail.wishes.comment)),
        ] {
            object.insert(name.into(), value);
        }
    }
    value
}

/// Answers a request.
#[must_use]
pub fn answer(request: &Request) -> Response {
    let parts: Vec<&str> = request.path.trim_matches('/').split('/').collect();
    let done = match (request.method.as_str(), &parts[..]) {
        ("GET", ["openapi.json"]) => {
            return Response {
                status: 200,
                kind: "application/json",
                body: OPENAPI.into(),
            };
        }
        ("GET", ["metrics"]) => metrics().map(|body| Response {
            status: 200,
            kind: "text/plain; version=0.0.4",
            body,
        }),
        ("GET", ["v1", "machine"]) => common::machine().map(|machine| json(200, &json!(machine))),
        ("GET", ["v1", "jobs"]) => jobs(request),
        ("POST", ["v1", "jobs"]) => submit(&request.body),
        ("GET", ["v1", "when"]) => when(request),
        (method, ["v1", "jobs", job, rest @ ..]) => match job.parse::<Target>() {
            Ok(target) => of_job(method, target, rest, &request.body),
            Err(text) => Err(text),
        },
        _ => Err("there is no such thing; see /openapi.json".into()),
    };
    done.unwrap_or_else(|text| {
        let is_missing = ["there is no job", "there is no such"]
            .iter()
            .any(|begin| text.starts_with(begin));
        let is_down = text.starts_with("the queue does not run");
        let status = if is_missing {
            404
        } else if is_down {
            503
        } else if text.contains("has the right to change it") {
            403
        } else {
            400
        };
        error(status, &text)
    })
}

fn jobs(request: &Request) -> Result<Response, String> {
    let is_all = request
        .parameter("all")
        .is_some_and(|all| all != "0" && all != "false");
    let details = common::details_of_all(is_all)?;
    let is_asked = |detail: &&Detail| {
        let is =
            |name: &str, value: &str| request.parameter(name).is_none_or(|asked| asked == value);
        is("state", state(detail.row.phase))
            && is("user", &detail.user)
            && is("name", &detail.row.name)
    };
    let values: Vec<Value> = details.iter().filter(is_asked).map(whole).collect();
    Ok(json(200, &Value::from(values)))
}

fn of_job(method: &str, target: Target, rest: &[&str], body: &[u8]) -> Result<Response, String> {
    let jobs = vec![target];
    let fields = || -> Result<Value, String> {
        if body.is_empty() {
            return Ok(json!({}));
        }
        serde_json::from_slice(body).map_err(|error| format!("the body is no JSON: {error}"))
    };
    let request = match (method, rest) {
        ("GET", []) => {
            let details = common::details(true, jobs)?;
            let value = match (&details[..], target.task) {
                ([only], _) => whole(only),
                (all, _) => Value::from(all.iter().map(whole).collect::<Vec<_>>()),
            };
            return Ok(json(200, &value));
        }
        ("GET", ["explain"]) => Ask::Explain { job: target },
        ("GET", ["wait"]) => {
            let rows = common::wait(jobs)?;
            let values: Vec<Value> = rows.iter().map(JobRow::json).collect();
            return Ok(json(200, &Value::from(values)));
        }
        ("DELETE", []) => Ask::Cancel { jobs },
        ("POST", ["hold"]) => Ask::Hold {
            jobs,
            is_held: true,
        },
        ("POST", ["release"]) => Ask::Hold {
            jobs,
            is_held: false,
        },
        ("POST", ["requeue"]) => Ask::Requeue { jobs },
        ("POST", ["signal"]) => {
            let fields = fields()?;
            let signal = match &fields["signal"] {
                Value::String(name) => crate::slurm::signal_number(name)?,
                value => value
                    .as_i64()
                    .and_then(|n| i32::try_from(n).ok())
                    .unwrap_or(0),
            };
            let to_script = fields["to_script"].as_bool().unwrap_or(false);
            Ask::Signal {
                jobs,
                signal,
                to_script,
            }
        }
        ("PATCH", []) => {
            let fields = fields()?;
            let text = |name: &str| fields[name].as_str().map(str::to_owned);
            let change = Change {
                name: text("name"),
                limit_s: fields.get("limit_s").map(Value::as_u64),
                priority: fields["priority"].as_i64(),
                account: text("account"),
            };
            Ask::Change { jobs, change }
        }
        _ => return Err("there is no such thing; see /openapi.json".into()),
    };
    match ask(&request)? {
        Answer::Done(text) => Ok(json(200, &json!({ "text": text }))),
        Answer::Failed(text) => Err(text),
        _ => Err("the head of the queue answers something else; is it of another version?".into()),
    }
}

/// Submits a job: `script` with `arguments`, or `command`; `options` are those of `margay submit`.
fn submit(body: &[u8]) -> Result<Response, String> {
    let fields: Value =
        serde_json::from_slice(body).map_err(|error| format!("the body is no JSON: {error}"))?;
    let list = |name: &str| -> Result<Vec<String>, String> {
        match &fields[name] {
            Value::Null => Ok(vec![]),
            Value::Array(items) => items
                .iter()
                .map(|item| item.as_str().map(str::to_owned))
                .collect::<Option<_>>()
                .ok_or_else(|| format!("{name} is no list of strings")),
            _ => Err(format!("{name} is no list of strings")),
        }
    };
    let mut asked = Wishes::default();
    script::slurm_options(&list("options")?, &mut asked)?;
    let bytes = |words: Vec<String>| words.into_iter().map(|word| Bytes(word.into())).collect();
    let order = match (fields["script"].as_str(), list("command")?) {
        (Some(text), command) if command.is_empty() => Order {
            wishes: asked.or(script::wishes(text)?),
            script: Some(text.to_owned().into_bytes().into()),
            arguments: bytes(list("arguments")?),
        },
        (None, command) if !command.is_empty() => Order {
            wishes: asked,
            script: None,
            arguments: bytes(command),
        },
        _ => return Err("say a script or a command, and not both".into()),
    };
    let mut shared: Shared = Shared::here()?;
    if let Some(directory) = fields["directory"].as_str() {
        shared.directory = Bytes(directory.into());
    }
    if let Some(variables) = fields["environment"].as_object() {
        for (name, value) in variables {
            let value = value
                .as_str()
                .ok_or("environment has values that are no strings")?;
            shared
                .environment
                .push(Bytes(format!("{name}={value}").into()));
        }
    }
    let job = common::submit(shared, order)?;
    Ok(json(201, &json!({ "id": job })))
}

fn when(request: &Request) -> Result<Response, String> {
    let number = |name: &str| -> Result<Option<u64>, String> {
        let value = request.parameter(name).map(str::parse);
        value
            .transpose()
            .map_err(|_| format!("{name} is no number"))
    };
    let slots = number("slots")?
        .and_then(|n| u32::try_from(n).ok())
        .unwrap_or(1);
    let limit_s = number("limit_s")?;
    match ask(&Ask::When {
        slots,
        nodes: None,
        limit_s,
    })? {
        Answer::Done(text) => Ok(json(200, &json!({ "text": text }))),
        Answer::Failed(text) => Err(text),
        _ => Err("the head of the queue answers something else; is it of another version?".into()),
    }
}

/// Metrics in the shape of Slurm's exporter for Prometheus.
fn metrics() -> Result<String, String> {
    let machine = common::machine()?;
    let details = common::details(false, vec![])?;
    Ok(super::metrics::text(&machine, &details))
}
