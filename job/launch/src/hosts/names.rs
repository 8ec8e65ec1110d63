//! Names of hosts in lists, of which one may stand for several: `node[01-04,7]`.

use std::net::IpAddr;

use crate::plan::Job;

/// All names of a list with commas.
///
/// # Errors
/// When one is no name, or stands for too many.
pub fn all(text: &str) -> Result<Vec<String>, String> {
    let names = parts(text).into_iter().map(expanded);
    Ok(names.collect::<Result<Vec<_>, _>>()?.concat())
}

/// The parts between commas, but for those inside of brackets.
#[must_use]
pub fn parts(text: &str) -> Vec<&str> {
    let mut depth = 0;
    let parts = text.split(|c| {
        match c {
            '[' => depth += 1,
            ']' => depth -= 1,
            _ => {}
        }
        c == ',' && depth <= 0
    });
    parts.map(str::trim).filter(|p| !p.is_empty()).collect()
}

/// The names for which one with lists in brackets stands, as SLURM writes them. Two lists in one
/// name multiply, so that their number is checked before they are made.
///
/// # Errors
/// When it is no name, or stands for too many.
pub fn expanded(name: &str) -> Result<Vec<String>, String> {
    if is_address(name) {
        return Ok(vec![name.to_owned()]);
    }
    let mut names = vec![String::new()];
    let mut rest = name;
    while let Some((before, lists)) = rest.split_once('[') {
        let numbers = lists.split_once(']').and_then(|(list, after)| {
            rest = after;
            numbers(list)
        });
        let numbers = numbers
            .ok_or_else(|| format!("'{name}' is not a list of hosts; write: node[01-04,7]"))?;
        if names.len() * numbers.len() > Job::MOST_RANKS as usize {
            let most = Job::MOST_RANKS;
            return Err(format!("'{name}' stands for more than {most} hosts"));
        }
        let starts = std::mem::take(&mut names);
        for start in starts {
            names.extend(numbers.iter().map(|n| format!("{start}{before}{n}")));
        }
        // All are equally long, or nearly.
        checked(&names[0])?;
    }
    for whole in &mut names {
        whole.push_str(rest);
        checked(whole)?;
    }
    Ok(names)
}

/// The numbers of a list `01-04,7`, each as wide as the first of its range; nothing where the text
/// is no such list, or one of too many.
fn numbers(list: &str) -> Option<Vec<String>> {
    let number = |text: &str| {
        let is_digits = text.bytes().all(|digit| digit.is_ascii_digit());
        text.parse::<u32>().ok().filter(|_| is_digits)
    };
    let mut numbers = Vec::new();
    for range in list.split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (from, to) = (number(first)?, number(last)?);
        let count = u64::from(to.checked_sub(from)?) + 1 + numbers.len() as u64;
        if count > u64::from(Job::MOST_RANKS) || first.len() > LONGEST_NAME {
            return None;
        }
        numbers.extend((from..=to).map(|number| format!("{number:0width$}", width = first.len())));
    }
    Some(numbers)
}

/// The longest name of a host, in bytes: the domain name system has 253.
const LONGEST_NAME: usize = 255;

/// A name goes to the remote shell as a word of its own, and must not be one of its options.
///
/// # Errors
/// When it is none.
pub fn checked(name: &str) -> Result<&str, String> {
    let is_good = |c: char| !c.is_control() && !c.is_whitespace() && !"'\"\\$`;&|<>()".contains(c);
    if name.is_empty() || name.starts_with('-') || !name.chars().all(is_good) {
        return Err(format!("'{name}' is not the name of a host"));
    }
    if name.len() > LONGEST_NAME {
        let start: String = name.chars().take(40).collect();
        return Err(format!(
            "'{start}…' is not the name of a host: it has more than {LONGEST_NAME} bytes"
        ));
    }
    Ok(name)
}

fn is_address(name: &str) -> bool {
    let inner = name.trim_start_matches('[').trim_end_matches(']');
    inner.parse::<IpAddr>().is_ok()
}
