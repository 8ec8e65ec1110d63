//! NQS's options, as `#QSUB` and `#@$` lines have them: on the Paragon, on Crays, and beside MACS.

use crate::script::{Found, memory};
use crate::time::duration;
use crate::wishes::{Joined, MailEvent, Wishes};

/// Options and whether they have a value. Longer names come before their beginnings.
const OPTIONS: &[(&str, bool)] = &[
    ("eo", false),
    ("ke", false),
    ("ko", false),
    ("mb", false),
    ("me", false),
    ("mu", true),
    ("nr", false),
    ("ro", false),
    ("lT", true),
    ("lt", true),
    ("lM", true),
    ("lm", true),
    ("lP", true),
    ("lf", true),
    ("lF", true),
    ("lc", true),
    ("ld", true),
    ("ls", true),
    ("l", true),
    ("A", true),
    ("e", true),
    ("o", true),
    ("p", true),
    ("q", true),
    ("r", true),
    ("s", true),
    ("x", false),
    ("z", false),
];

/// Applies the options of a line to `wishes`.
pub(super) fn options(words: &[String], wishes: &mut Wishes) -> Result<(), String> {
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let known = word
            .strip_prefix('-')
            .and_then(|rest| OPTIONS.iter().find(|(name, _)| rest.starts_with(name)));
        let mut found = Found {
            shown: word.clone(),
            value: None,
        };
        let Some(&(name, has_value)) = known else {
            return Err(found.unknown());
        };
        let rest = word.strip_prefix('-').and_then(|w| w.strip_prefix(name));
        let rest = rest.unwrap_or_default();
        if has_value {
            found.shown = format!("-{name}");
            found.value = match rest {
                "" => words.next().cloned(),
                _ => Some(rest.to_owned()),
            };
        } else if !rest.is_empty() {
            return Err(found.unknown());
        }
        apply(name, &found, wishes)?;
    }
    Ok(())
}

/// A list with commas whose first item is the limit and the second that of a warning.
fn first(found: &Found) -> Result<String, String> {
    let value = found.value()?;
    Ok(value.split(',').next().unwrap_or(value).trim().to_owned())
}

fn apply(name: &str, found: &Found, wishes: &mut Wishes) -> Result<(), String> {
    match name {
        "A" => wishes.account = Some(found.text()?),
        "e" => wishes.output.stderr = Some(found.text()?),
        "o" => wishes.output.stdout = Some(found.text()?),
        "eo" => wishes.output.joined = Some(Joined::Stdout),
        "q" => wishes.partition = Some(found.text()?),
        "r" => wishes.name = Some(found.text()?),
        "s" => wishes.shell = Some(found.text()?),
        "p" => {
            let value = found.value()?.parse();
            wishes.priority = Some(value.map_err(|_| found.wrong("a whole number"))?);
        }
        "lP" => {
            let count = first(found)?.parse().ok().filter(|&n| n > 0);
            wishes.size.tasks = Some(count.ok_or_else(|| found.wrong("a number of nodes"))?);
        }
        // Time of the whole request; what counts here is that of the clock.
        "lT" => wishes.limit_s = Some(duration(&first(found)?, true)?),
        "lM" => {
            let mib = memory(&first(found)?, 1);
            wishes.size.memory_mib = Some(mib.ok_or_else(|| found.wrong("memory such as 64mb"))?);
        }
        "l" => {
            for part in found.value()?.split(',') {
                match part.split_once('=') {
                    Some(("mpp_p" | "P", count)) => {
                        let count = count.parse().ok().filter(|&n| n > 0);
                        let wrong = || found.wrong("a number of processors");
                        wishes.size.tasks = Some(count.ok_or_else(wrong)?);
                    }
                    Some(("mpp_t", time)) => wishes.limit_s = Some(duration(time, true)?),
                    _ => super::pbs::resource(part, wishes)?,
                }
            }
        }
        "mb" => wishes.mail.push(MailEvent::Begin),
        "me" => wishes.mail.push(MailEvent::End),
        "mu" => wishes.mail_to = Some(found.text()?),
        "nr" => wishes.is_requeued = Some(false),
        // Limits of each process, where files are kept, the whole environment.
        _ => {}
    }
    Ok(())
}
