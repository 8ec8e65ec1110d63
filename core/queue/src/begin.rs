//! When a job may begin, as batch scripts write it: a time of day, a date, or a time from now.
//!
//! Scripts mean the local time. What that is, the caller says: this crate asks no clock.

use serde::{Deserialize, Serialize};

/// Seconds of a day, and of what is counted in front of a moment.
const DAY_S: u64 = 86400;

/// When a job may begin at the earliest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum BeginTime {
    /// So many seconds after it has been submitted.
    In(u64),
    /// At this moment, in seconds since 1970.
    Moment(u64),
    /// At this second of a day of the local time.
    At { day: BeginDay, second: u32 },
}

/// The day of a [`BeginTime`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum BeginDay {
    /// Today, or tomorrow where that time of day has passed.
    Next,
    /// So many days after today.
    After(u32),
    /// The next day of a month with this number, today included while the time has not passed.
    OfMonth(u32),
    /// The next such day of a year: month and day.
    OfYear(u32, u32),
    /// Year, month and day.
    Date(i32, u32, u32),
}

/// A day and a second of it, in local time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LocalTime {
    pub year: i32,
    /// 1 to 12.
    pub month: u32,
    /// 1 to 31.
    pub day: u32,
    /// Of the day.
    pub second: u32,
}

impl BeginTime {
    /// Returns the moment, in seconds since 1970. `local` shows a moment in local time, `moment` is
    /// its inverse; it is none of a day that there is not.
    ///
    /// # Errors
    /// In words, when there is no such day.
    pub fn moment(
        self,
        now_s: u64,
        local: impl Fn(u64) -> LocalTime,
        moment: impl Fn(LocalTime) -> Option<u64>,
    ) -> Result<u64, String> {
        let (day, second) = match self {
            BeginTime::In(seconds) => return Ok(now_s.saturating_add(seconds)),
            BeginTime::Moment(at) => return Ok(at),
            BeginTime::At { day, second } => (day, second),
        };
        let now = local(now_s);
        let at = |year: i32, month: u32, day: u32| LocalTime {
            year,
            month,
            day,
            second,
        };
        // From the noon of today on, since days may have an hour more or less.
        let noon = LocalTime {
            second: DAY_S as u32 / 2,
            ..now
        };
        let later = |days: u64| {
            let on = local(moment(noon).unwrap_or(now_s) + days * DAY_S);
            at(on.year, on.month, on.day)
        };
        let wanted = match day {
            BeginDay::Next if second > now.second => at(now.year, now.month, now.day),
            BeginDay::Next => later(1),
            BeginDay::After(days) => later(days.into()),
            BeginDay::OfMonth(day) => {
                let this = at(now.year, now.month, day);
                match now.month {
                    _ if this > now => this,
                    12 => at(now.year + 1, 1, day),
                    month => at(now.year, month + 1, day),
                }
            }
            BeginDay::OfYear(month, day) => match at(now.year, month, day) {
                this if this > now => this,
                _ => at(now.year + 1, month, day),
            },
            BeginDay::Date(year, month, day) => at(year, month, day),
        };
        moment(wanted).ok_or_else(|| {
            format!(
                "a job cannot begin on {:04}-{:02}-{:02}: there is no such day",
                wanted.year, wanted.month, wanted.day
            )
        })
    }

    /// Reads what Slurm's `--begin` takes: `16:00[:00]`, `4:30PM`, `midnight`, `noon`, `teatime`,
    /// `today`, `tomorrow`, `now`, `now+2hours`, `2026-11-28[T16:00[:00]]`; `MMDDYY`, `MM/DD/YY`
    /// and `MM.DD.YY` with a time of day before or behind them.
    ///
    /// # Errors
    /// In words.
    pub fn of_slurm(text: &str) -> Result<BeginTime, String> {
        let wrong = || {
            format!(
                "'{text}' is no time; write for example 16:00, now+2hours, tomorrow or 2026-11-28T16:00:00"
            )
        };
        slurm(&text.trim().to_ascii_lowercase()).ok_or_else(wrong)
    }

    /// Reads what PBS's `-a` takes: `[[[[CC]YY]MM]DD]hhmm[.SS]`.
    ///
    /// # Errors
    /// In words.
    pub fn of_pbs(text: &str) -> Result<BeginTime, String> {
        pbs(text).ok_or_else(|| {
            format!("'{text}' is no time; write [[[[CC]YY]MM]DD]hhmm[.SS], for example 1600 or 202611281600")
        })
    }

    /// Reads LoadLeveler's `startdate`: `MM/DD/[YY]YY`, `HH:MM[:SS]`, or both.
    ///
    /// # Errors
    /// In words.
    pub fn of_loadleveler(text: &str) -> Result<BeginTime, String> {
        let wrong = || format!("'{text}' is no time; write MM/DD/YYYY, HH:MM[:SS], or both");
        let mut words = text.split_whitespace();
        let read = match (words.next(), words.next(), words.next()) {
            (Some(day), Some(clock), None) => dated(day).zip(clock_of(clock)),
            (Some(one), None, None) if one.contains('/') => dated(one).map(|day| (day, 0)),
            (Some(one), None, None) => clock_of(one).map(|second| (BeginDay::Next, second)),
            _ => None,
        };
        let (day, second) = read.ok_or_else(wrong)?;
        Ok(BeginTime::At { day, second })
    }
}

fn number<T: std::str::FromStr>(text: &str) -> Option<T> {
    let is_plain = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    is_plain.then(|| text.parse().ok()).flatten()
}

/// `HH:MM[:SS]`, and nothing else.
fn clock_of(text: &str) -> Option<u32> {
    let mut parts = text.split(':').map(number::<u32>);
    let (hours, minutes) = (parts.next()??, parts.next()??);
    let seconds = parts.next().unwrap_or(Some(0))?;
    let is_time = parts.next().is_none() && hours < 24 && minutes < 60 && seconds < 60;
    is_time.then_some(hours * 3600 + minutes * 60 + seconds)
}

/// A time of day, by its name or with AM or PM behind it.
fn time_of_day(text: &str) -> Option<u32> {
    match text {
        "midnight" => return Some(0),
        "noon" => return Some(12 * 3600),
        "elevenses" => return Some(11 * 3600),
        "fika" => return Some(15 * 3600),
        "teatime" => return Some(16 * 3600),
        _ => {}
    }
    let half = |clock: &str, later: u32| {
        let second = clock_of(clock.trim_end())?;
        let hour = second / 3600;
        (1..=12)
            .contains(&hour)
            .then(|| second % 3600 + (hour % 12 + later) * 3600)
    };
    match (text.strip_suffix("am"), text.strip_suffix("pm")) {
        (Some(clock), _) => half(clock, 0),
        (_, Some(clock)) => half(clock, 12),
        _ => clock_of(text),
    }
}

/// A year of two digits or four.
fn year(text: &str) -> Option<i32> {
    let year: i32 = number(text)?;
    match text.len() {
        2 => Some(2000 + year),
        4 => Some(year),
        _ => None,
    }
}

fn date(year: Option<i32>, month: &str, day: &str) -> Option<BeginDay> {
    let (month, day) = (number(month)?, number(day)?);
    let is_day = (1..=12).contains(&month) && (1..=31).contains(&day);
    is_day.then_some(match year {
        Some(year) => BeginDay::Date(year, month, day),
        None => BeginDay::OfYear(month, day),
    })
}

/// A date of one of the forms that Slurm and LoadLeveler know.
fn dated(text: &str) -> Option<BeginDay> {
    let parts = |by: char| text.split(by).collect::<Vec<_>>();
    if let [y, m, d] = parts('-')[..] {
        return date(Some(year(y)?), m, d);
    }
    for by in ['/', '.'] {
        match parts(by)[..] {
            [m, d, y] => return date(Some(year(y)?), m, d),
            [m, d] => return date(None, m, d),
            _ => {}
        }
    }
    let is_short = text.len() == 6 && text.bytes().all(|b| b.is_ascii_digit());
    is_short.then(|| date(Some(year(&text[4..])?), &text[..2], &text[2..4]))?
}

fn slurm(text: &str) -> Option<BeginTime> {
    let at = |day, second| Some(BeginTime::At { day, second });
    if let Some(rest) = text.strip_prefix("now") {
        let rest = rest.trim();
        if rest.is_empty() {
            return Some(BeginTime::In(0));
        }
        let count = rest.strip_prefix('+')?.trim();
        let digits = count.bytes().take_while(u8::is_ascii_digit).count();
        let unit = match count[digits..].trim().trim_end_matches('s') {
            "" | "second" | "sec" => 1,
            "minute" | "min" => 60,
            "hour" => 3600,
            "day" => DAY_S,
            "week" => 7 * DAY_S,
            _ => return None,
        };
        let seconds = number::<u64>(&count[..digits])?.checked_mul(unit)?;
        return Some(BeginTime::In(seconds));
    }
    match text {
        "today" => return at(BeginDay::After(0), 0),
        "tomorrow" => return at(BeginDay::After(1), 0),
        _ => {}
    }
    if text.len() > 8 && !text.contains(|c: char| !c.is_ascii_digit()) {
        return number(text).map(BeginTime::Moment);
    }
    if let Some(second) = time_of_day(text) {
        return at(BeginDay::Next, second);
    }
    if let Some(day) = dated(text) {
        return at(day, 0);
    }
    let day_of = |text: &str| match text {
        "today" => Some(BeginDay::After(0)),
        "tomorrow" => Some(BeginDay::After(1)),
        _ => dated(text),
    };
    // A name of a time of day has a 't' as well: that of a date stands behind a digit.
    if let Some((day, clock)) = text.split_once('t')
        && day.ends_with(|c: char| c.is_ascii_digit())
    {
        return at(day_of(day)?, time_of_day(clock)?);
    }
    let (first, second) = text.split_once(char::is_whitespace)?;
    let second = second.trim();
    match (day_of(first), day_of(second)) {
        (Some(day), _) => at(day, time_of_day(second)?),
        (_, Some(day)) => at(day, time_of_day(first)?),
        _ => None,
    }
}

fn pbs(text: &str) -> Option<BeginTime> {
    let (digits, seconds) = match text.split_once('.') {
        Some((digits, seconds)) if seconds.len() == 2 => (digits, number::<u32>(seconds)?),
        Some(_) => return None,
        None => (text, 0),
    };
    if !digits.bytes().all(|b| b.is_ascii_digit()) || digits.len() < 4 || digits.len() % 2 != 0 {
        return None;
    }
    let (before, clock) = digits.split_at(digits.len() - 4);
    let (hours, minutes) = (number::<u32>(&clock[..2])?, number::<u32>(&clock[2..])?);
    if hours > 23 || minutes > 59 || seconds > 59 {
        return None;
    }
    let day = match before.len() {
        0 => BeginDay::Next,
        2 => BeginDay::OfMonth(number(before).filter(|day| (1..=31).contains(day))?),
        4 => date(None, &before[..2], &before[2..])?,
        6 => date(Some(year(&before[..2])?), &before[2..4], &before[4..])?,
        8 => date(Some(year(&before[..4])?), &before[4..6], &before[6..])?,
        _ => return None,
    };
    Some(BeginTime::At {
        day,
        second: hours * 3600 + minutes * 60 + seconds,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: u32 = 3600;

    fn at(day: BeginDay, second: u32) -> BeginTime {
        BeginTime::At { day, second }
    }

    #[test]
    fn times_are_read_as_slurm_reads_them() {
        for (text, wanted) in [
            ("now", BeginTime::In(0)),
            ("now+60", BeginTime::In(60)),
            ("now+1hour", BeginTime::In(3600)),
            ("now + 2 weeks", BeginTime::In(1_209_600)),
            ("NOW+90minutes", BeginTime::In(5400)),
            ("1764345600", BeginTime::Moment(1_764_345_600)),
            ("16:00", at(BeginDay::Next, 16 * HOUR)),
            ("4:30PM", at(BeginDay::Next, 16 * HOUR + 1800)),
            ("12:00 am", at(BeginDay::Next, 0)),
            ("noon", at(BeginDay::Next, 12 * HOUR)),
            ("teatime", at(BeginDay::Next, 16 * HOUR)),
            ("today", at(BeginDay::After(0), 0)),
            ("tomorrow", at(BeginDay::After(1), 0)),
            ("midnight tomorrow", at(BeginDay::After(1), 0)),
            ("tomorrow 8:00", at(BeginDay::After(1), 8 * HOUR)),
            ("2026-11-28", at(BeginDay::Date(2026, 11, 28), 0)),
            (
                "2026-11-28T16:00:01",
                at(BeginDay::Date(2026, 11, 28), 16 * HOUR + 1),
            ),
            ("11/28/26", at(BeginDay::Date(2026, 11, 28), 0)),
            ("11/28 noon", at(BeginDay::OfYear(11, 28), 12 * HOUR)),
            ("112826", at(BeginDay::Date(2026, 11, 28), 0)),
        ] {
            assert_eq!(BeginTime::of_slurm(text), Ok(wanted), "{text}");
        }
        // The month comes first.
        for text in [
            "",
            "soon",
            "25:00",
            "now-1hour",
            "now+",
            "13:00PM",
            "2026-13-01",
            "8:15 28.11.26",
            "T",
            "now+1é",
        ] {
            let said = BeginTime::of_slurm(text).unwrap_err();
            assert!(said.contains("is no time; write for example"), "{said}");
        }
    }

    #[test]
    fn times_are_read_as_pbs_and_loadleveler_read_them() {
        for (text, wanted) in [
            ("1600", at(BeginDay::Next, 16 * HOUR)),
            ("281600.30", at(BeginDay::OfMonth(28), 16 * HOUR + 30)),
            ("11281600", at(BeginDay::OfYear(11, 28), 16 * HOUR)),
            ("2611281600", at(BeginDay::Date(2026, 11, 28), 16 * HOUR)),
            ("202611281600", at(BeginDay::Date(2026, 11, 28), 16 * HOUR)),
        ] {
            assert_eq!(BeginTime::of_pbs(text), Ok(wanted), "{text}");
        }
        for text in [
            "", "16", "2400", "1660", "321600", "1600.5", "16:00", "é600",
        ] {
            assert!(BeginTime::of_pbs(text).is_err(), "{text}");
        }
        for (text, wanted) in [
            (
                "11/28/2026 16:00",
                at(BeginDay::Date(2026, 11, 28), 16 * HOUR),
            ),
            ("11/28/26", at(BeginDay::Date(2026, 11, 28), 0)),
            ("04:30", at(BeginDay::Next, 4 * HOUR + 1800)),
        ] {
            assert_eq!(BeginTime::of_loadleveler(text), Ok(wanted), "{text}");
        }
        assert!(BeginTime::of_loadleveler("1").is_err());
    }

    /// A calendar whose months all have 30 days.
    fn moment(begin: BeginTime, now_s: u64) -> Result<u64, String> {
        let local = |at: u64| {
            let days = (at / DAY_S) as u32;
            LocalTime {
                year: 1970 + (days / 360) as i32,
                month: days / 30 % 12 + 1,
                day: days % 30 + 1,
                second: (at % DAY_S) as u32,
            }
        };
        let moment = |t: LocalTime| {
            let days =
                (t.year - 1970) as u64 * 360 + u64::from(t.month - 1) * 30 + u64::from(t.day - 1);
            (t.day <= 30).then_some(days * DAY_S + u64::from(t.second))
        };
        begin.moment(now_s, local, moment)
    }

    #[test]
    fn the_moment_is_the_next_one_that_is_meant() {
        // Noon of 1970-12-30, the last day of that year.
        let now = 359 * DAY_S + DAY_S / 2;
        let next_day = 360 * DAY_S;
        for (begin, wanted) in [
            (BeginTime::In(5), now + 5),
            (BeginTime::Moment(7), 7),
            (at(BeginDay::Next, 13 * HOUR), now + 3600),
            (at(BeginDay::Next, 12 * HOUR), next_day + DAY_S / 2),
            (at(BeginDay::After(0), 0), now - DAY_S / 2),
            (at(BeginDay::After(1), HOUR), next_day + 3600),
            (at(BeginDay::OfMonth(30), 13 * HOUR), now + 3600),
            (at(BeginDay::OfMonth(1), 0), next_day),
            (at(BeginDay::OfYear(12, 29), 0), next_day + 358 * DAY_S),
            (at(BeginDay::Date(1970, 1, 2), 1), DAY_S + 1),
        ] {
            assert_eq!(moment(begin, now), Ok(wanted), "{begin:?}");
        }
        let said = moment(at(BeginDay::OfYear(2, 31), 0), now).unwrap_err();
        assert!(said.contains("1971-02-31: there is no such day"), "{said}");
    }
}
