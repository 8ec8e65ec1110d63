//! Lists of hosts: jobs run on this machine alone, so a list may name no other.

use std::path::Path;

use margay_job_launch::report::host_name;

/// Checks that all hosts of a list `name[:slots],...` are this machine, without asking anybody.
///
/// # Errors
/// When one is not.
pub fn hosts(text: &str) -> Result<(), String> {
    text.split(',')
        .map(str::trim)
        .filter(|h| !h.is_empty())
        .try_for_each(is_here)
}

/// Checks a file of hosts: a line each, `name[:slots] [word=value]...`, `#` begins a comment.
///
/// # Errors
/// When it cannot be read, names no host or another one, or says something wrong of a host.
pub fn host_file(path: &str) -> Result<(), String> {
    let text =
        std::fs::read_to_string(Path::new(path)).map_err(|e| format!("cannot read it: {e}"))?;
    check_lines(&text)
}

fn check_lines(text: &str) -> Result<(), String> {
    let mut is_empty = true;
    for (number, line) in (1..).zip(text.lines()) {
        let mut words = line
            .split('#')
            .next()
            .unwrap_or_default()
            .split_whitespace();
        let Some(host) = words.next() else { continue };
        is_empty = false;
        let checked = is_here(host).and_then(|()| words.try_for_each(check_word));
        checked.map_err(|why| format!("line {number}: {why}"))?;
    }
    if is_empty {
        return Err("it names no host; write: localhost slots=4".into());
    }
    Ok(())
}

/// Checks what stands after a host: the words of other launchers, of which none changes where ranks run.
fn check_word(word: &str) -> Result<(), String> {
    match word.split_once('=') {
        Some(("slots" | "max_slots" | "max-slots", count)) if count.parse::<u32>().is_err() => {
            Err(format!("'{word}' has no number; write: slots=4"))
        }
        Some(("slots" | "max_slots" | "max-slots" | "user" | "binding", _)) => Ok(()),
        _ => Err(format!(
            "'{word}' is not known after a host; slots=N and max_slots=N are"
        )),
    }
}

/// Whether a host, perhaps with slots, is this machine.
///
/// # Errors
/// When it is not.
pub fn is_here(host: &str) -> Result<(), String> {
    let name = match host.rsplit_once(':') {
        Some((name, slots)) if !name.contains(':') && slots.parse::<u32>().is_ok() => name,
        _ => host,
    };
    let own = host_name();
    let short = |n: &str| n.split('.').next().unwrap_or_default().to_lowercase();
    let local = ["localhost", "127.0.0.1", "::1", "[::1]"].contains(&name);
    if local || name.eq_ignore_ascii_case(&own) || short(name) == short(&own) {
        return Ok(());
    }
    Err(format!(
        "jobs on several hosts are not supported yet, and '{name}' is not this machine ({own}); \
         use localhost"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_this_machine() {
        for host in ["localhost", "localhost:4,127.0.0.1", "::1", &host_name()] {
            assert!(hosts(host).is_ok(), "{host}");
        }
        assert!(hosts("localhost,far").is_err());
    }

    #[test]
    fn lines_of_a_file_are_checked() {
        for text in [
            "localhost",
            "# all\n\nlocalhost slots=4 max_slots=8 # here\nlocalhost:2\n",
        ] {
            assert_eq!(check_lines(text), Ok(()), "{text}");
        }
        for (text, told) in [
            ("", "it names no host"),
            ("# nothing\n", "it names no host"),
            (
                "localhost\nlocalhost slots=zz",
                "line 2: 'slots=zz' has no number",
            ),
            ("localhost slots=", "line 1: 'slots=' has no number"),
            ("localhost fast", "line 1: 'fast' is not known"),
            ("\nfar slots=2", "line 2: jobs on several hosts"),
        ] {
            let error = check_lines(text).unwrap_err();
            assert!(error.starts_with(told), "{text}: {error}");
        }
    }
}
