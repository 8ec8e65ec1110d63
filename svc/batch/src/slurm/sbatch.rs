//! `sbatch`: submits a script.

use margay_core_queue::script::slurm::{self, Known, Takes};
use margay_core_queue::{Dialect, Wishes, script};
use margay_svc_queue_wire::{Answer, Bytes, Order, Request, Shared, Target, ask};

use super::print_help;
use crate::common::{self, Done, base_name, complain, exit_code, print};

/// What `sbatch` has beside what a job asks for.
const OWN: &[Known] = &[
    ('W', "wait", Takes::Nothing),
    ('h', "help", Takes::Nothing),
    (' ', "ignore-pbs", Takes::Nothing),
    (' ', "parsable", Takes::Nothing),
    (' ', "test-only", Takes::Nothing),
    (' ', "wrap", Takes::Value),
];

/// Variables that stand for options.
const VARIABLES: [(&str, &str); 14] = [
    ("SBATCH_ACCOUNT", "account"),
    ("SBATCH_ARRAY_INX", "array"),
    ("SBATCH_EXPORT", "export"),
    ("SBATCH_JOB_NAME", "job-name"),
    ("SBATCH_MEM_PER_CPU", "mem-per-cpu"),
    ("SBATCH_MEM_PER_NODE", "mem"),
    ("SBATCH_OPEN_MODE", "open-mode"),
    ("SBATCH_OUTPUT", "output"),
    ("SBATCH_ERROR", "error"),
    ("SBATCH_PARTITION", "partition"),
    ("SBATCH_QOS", "qos"),
    ("SBATCH_SIGNAL", "signal"),
    ("SBATCH_TIMELIMIT", "time"),
    ("SBATCH_CONSTRAINT", "constraint"),
];

/// What variables of a prefix ask for.
pub(super) fn of_variables(prefix: &str) -> Result<Wishes, String> {
    let mut wishes = Wishes::default();
    let words: Vec<String> = VARIABLES
        .iter()
        .filter_map(|(name, option)| {
            let name = name.replace("SBATCH_", prefix);
            let value = std::env::var(name).ok()?;
            Some(format!("--{option}={value}"))
        })
        .collect();
    script::slurm_options(&words, &mut wishes)?;
    Ok(wishes)
}

/// Runs the command.
///
/// # Errors
/// In words.
pub fn run(words: &[String]) -> Done {
    let mut asked = Wishes::default();
    let line = slurm::command(words, OWN, &mut asked)?;
    if line.has("help") {
        return print_help("sbatch");
    }
    let rest = words.get(line.end..).unwrap_or_default();
    let asked = asked.or(of_variables("SBATCH_")?);
    let order = match (line.value("wrap"), rest.split_first()) {
        (Some(_), Some(_)) => {
            return Err("Script arguments not permitted with --wrap option".into());
        }
        (Some(command), None) => Order {
            wishes: asked.or(named("wrap")),
            script: Some(
                format!("#!/bin/sh\n# This script was created by sbatch --wrap.\n\n{command}\n")
                    .into_bytes()
                    .into(),
            ),
            arguments: vec![],
        },
        (None, first) => {
            let file = first.map(|(file, _)| file.as_str());
            let text = common::script(file)?;
            if !text.starts_with(b"#!") {
                return Err(
                    "This does not look like a batch script.  The first line must start with #! followed by the path to \
                     an interpreter, for instance: #!/bin/sh"
                        .into(),
                );
            }
            let said = script::wishes_for(&String::from_utf8_lossy(&text), Dialect::Slurm, "#PBS")
                .map_err(|error| format!("{}, {error}", file.unwrap_or("-")))?;
            let name = file.and_then(base_name).unwrap_or_else(|| "sbatch".into());
            let arguments = first.map_or(&[][..], |(_, arguments)| arguments);
            Order {
                wishes: asked.or(said).or(named(&name)),
                script: Some(text.into()),
                arguments: arguments.iter().map(|word| Bytes(word.into())).collect(),
            }
        }
    };
    if line.has("test-only") {
        return test(&order);
    }
    let job = common::submit(Shared::here()?, order)?;
    let text = match line.has("parsable") {
        true => format!("{job}\n"),
        false => format!("Submitted batch job {job}\n"),
    };
    print(&text)?;
    if !line.has("wait") {
        return Ok(0);
    }
    let rows = common::wait(vec![Target { job, task: None }])?;
    Ok(rows.iter().map(exit_code).max().unwrap_or(0))
}

fn named(name: &str) -> Wishes {
    Wishes {
        name: Some(name.to_owned()),
        ..Wishes::default()
    }
}

/// Says when such a job would start.
fn test(order: &Order) -> Done {
    let size = &order.wishes.size;
    let slots = size.slots(common::machine()?.slots);
    let limit_s = order.wishes.limit_s.flatten();
    match ask(&Request::When {
        slots,
        nodes: None,
        limit_s,
    })? {
        Answer::Done(text) => {
            complain(&format!("sbatch: {}", text.trim_end()));
            Ok(0)
        }
        Answer::Failed(text) => Err(text),
        _ => Err("the head of the queue answers something else; is it of another version?".into()),
    }
}
