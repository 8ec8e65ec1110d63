//! Time limits as batch scripts write them.

/// Reads a time limit, in seconds: `MINUTES`, `MINUTES:SECONDS`, `HOURS:MINUTES:SECONDS`,
/// `DAYS-HOURS`, `DAYS-HOURS:MINUTES`, `DAYS-HOURS:MINUTES:SECONDS`, or a number with `s`, `m`, `h`
/// or `d` behind it. A number alone is minutes, or seconds where `in_seconds` says so, as with PBS.
/// No limit where the text says `UNLIMITED`, `INFINITE` or 0.
///
/// # Errors
/// In words.
pub fn duration(text: &str, in_seconds: bool) -> Result<Option<u64>, String> {
    let wrong = || {
        format!(
            "'{text}' is no time limit; write for example 30 (minutes), 90s, 2h, 1:30:00 or 2-12:00:00"
        )
    };
    let number = |text: &str| -> Result<u64, String> {
        let is_number = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        if !is_number {
            return Err(wrong());
        }
        text.parse().map_err(|_| wrong())
    };
    if ["UNLIMITED", "INFINITE"].contains(&text.to_ascii_uppercase().as_str()) {
        return Ok(None);
    }
    let scaled = |count: u64, scale: u64| count.checked_mul(scale).ok_or_else(wrong);
    let (days, clock) = match text.split_once('-') {
        Some((days, clock)) => (Some(number(days)?), clock),
        None => (None, text),
    };
    let parts: Vec<&str> = clock.split(':').collect();
    let unit = text.chars().last().and_then(|unit| match unit {
        's' => Some(1),
        'm' => Some(60),
        'h' => Some(3600),
        'd' => Some(86400),
        _ => None,
    });
    let units: &[u64] = match (days, parts.len()) {
        (None, 1) if unit.is_some() => {
            let count = number(&text[..text.len() - 1])?;
            return Ok(Some(scaled(count, unit.unwrap_or(1))?).filter(|&s| s > 0));
        }
        (None, 1) if in_seconds => &[1],
        (None, 1) => &[60],
        (None, 2) => &[60, 1],
        (None | Some(_), 3) => &[3600, 60, 1],
        (Some(_), 1) => &[3600],
        (Some(_), 2) => &[3600, 60],
        _ => return Err(wrong()),
    };
    let mut total = scaled(days.unwrap_or(0), 86400)?;
    for (part, unit) in parts.iter().zip(units) {
        let part = scaled(number(part)?, *unit)?;
        total = total.checked_add(part).ok_or_else(wrong)?;
    }
    Ok(Some(total).filter(|&s| s > 0))
}

/// Shows seconds as `[DAYS-]HOURS:MINUTES:SECONDS`.
#[must_use]
pub fn shown(seconds: u64) -> String {
    let (days, rest) = (seconds / 86400, seconds % 86400);
    let clock = format!("{}:{:02}:{:02}", rest / 3600, rest / 60 % 60, rest % 60);
    match days {
        0 => clock,
        _ => format!("{days}-{clock}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_limits_are_read_as_batch_systems_read_them() {
        for (text, seconds) in [
            ("30", 1800),
            ("1:30", 90),
            ("1:00:00", 3600),
            ("2-0", 172_800),
            ("1-2:30", 95_400),
            ("1-2:30:05", 95_405),
            ("90s", 90),
            ("5m", 300),
            ("2h", 7200),
            ("1d", 86400),
        ] {
            assert_eq!(duration(text, false), Ok(Some(seconds)), "{text}");
        }
        assert_eq!(duration("30", true), Ok(Some(30)));
        for text in ["0", "UNLIMITED", "infinite", "0:00"] {
            assert_eq!(duration(text, false), Ok(None), "{text}");
        }
        for text in [
            "",
            "x",
            "-1",
            "1:2:3:4",
            "1-",
            "99999999999999999999",
            "1.5h",
            "ä",
        ] {
            assert!(duration(text, false).is_err(), "{text}");
        }
        assert!(duration("999999999999999999-0", false).is_err());
    }

    #[test]
    fn seconds_are_shown_as_a_clock() {
        assert_eq!(shown(3723), "1:02:03");
        assert_eq!(shown(90_000), "1-1:00:00");
    }
}
