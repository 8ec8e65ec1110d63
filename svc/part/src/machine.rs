//! The hosts of the queue's machine, of which partitions may be made.

use margay_svc_queue_wire::{Answer, HostRow, Request, ask};

/// Completes a list of hosts, `a:4,b`, by the slots that the queue's machine has: all that a host
/// has where the list says nothing.
///
/// # Errors
/// In words: a host is not in the machine, or has fewer slots.
pub fn resolve(list: &str) -> Result<String, String> {
    let hosts = match ask(&Request::Machine)? {
        Answer::Machine(machine) => machine.hosts,
        Answer::Failed(text) => return Err(text),
        _ => return Err("the head of the queue is of another version".into()),
    };
    if hosts.is_empty() {
        return Err(
            "the queue's machine is this host alone; start it with several: margay up --hosts a,b"
                .into(),
        );
    }
    let resolved = list.split(',').map(|host| one(host, &hosts));
    let resolved: Vec<String> = resolved.collect::<Result<_, _>>()?;
    Ok(resolved.join(","))
}

/// Which of these hosts are not there: down, or no longer in the queue's machine.
///
/// # Errors
/// In words, when there is no queue that would know.
pub fn down<'a>(names: impl Iterator<Item = &'a str>) -> Result<Vec<&'a str>, String> {
    let mut names = names.peekable();
    if names.peek().is_none() {
        return Ok(Vec::new());
    }
    match ask(&Request::Machine)? {
        Answer::Machine(machine) => {
            let is_up = |name: &str| {
                let mut hosts = machine.hosts.iter();
                hosts.any(|host| host.name == name && host.is_up)
            };
            Ok(names.filter(|name| !is_up(name)).collect())
        }
        _ => Err("the head of the queue does not say which hosts there are".into()),
    }
}

fn one(host: &str, hosts: &[HostRow]) -> Result<String, String> {
    let number = |text: &str| text.parse::<u32>().ok();
    let (name, asked) = match host.rsplit_once(':').map(|(name, n)| (name, number(n))) {
        Some((name, Some(slots))) => (name, Some(slots)),
        _ => (host, None),
    };
    let Some(known) = hosts.iter().find(|known| known.name == name) else {
        let names: Vec<&str> = hosts.iter().map(|host| host.name.as_str()).collect();
        return Err(format!(
            "the queue's machine has no host '{}'; it has {}",
            name.escape_debug(),
            names.join(", ")
        ));
    };
    let slots = asked.unwrap_or(known.slots);
    match known.slots {
        0 => Err(format!("host {name} has not answered yet: {}", known.note)),
        has if slots > has => Err(format!(
            "host {name} has {has} slots and not {slots}; ask for no more"
        )),
        _ => Ok(format!("{name}:{slots}")),
    }
}
