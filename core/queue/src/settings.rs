//! The words with which an administrator changes the rules: `queue night limit=12h`.

use crate::rules::{AccountRules, Backfill, Gang, QUEUE, QueueRules, Reservation, Settings};
use crate::script::memory;
use crate::time::{duration, shown};

const KINDS: &str = "queue NAME, account NAME, user NAME, reservation NAME, policy";

fn list(value: &str) -> Vec<String> {
    let words = value.split(',').filter(|word| !word.is_empty());
    words.map(str::to_owned).collect()
}

/// A value, or none where it says `none`.
fn optional<T>(value: &str, read: impl Fn(&str) -> Result<T, String>) -> Result<Option<T>, String> {
    if value == "none" {
        Ok(None)
    } else {
        read(value).map(Some)
    }
}

fn number<T: std::str::FromStr>(value: &str) -> Result<T, String> {
    value
        .parse()
        .map_err(|_| format!("'{value}' is no number that fits"))
}

fn yes(value: &str) -> Result<bool, String> {
    match value {
        "yes" => Ok(true),
        "no" => Ok(false),
        _ => Err(format!("'{value}' is neither yes nor no")),
    }
}

fn mebibytes(value: &str) -> Result<u64, String> {
    memory(value, 1 << 20).ok_or_else(|| format!("'{value}' is no amount of memory, such as 4G"))
}

fn seconds(value: &str) -> Result<u64, String> {
    duration(value, false)?.ok_or_else(|| format!("'{value}' is no time"))
}

fn set_queue(rules: &mut QueueRules, key: &str, value: &str) -> Result<bool, String> {
    match key {
        "priority" => rules.priority = number(value)?,
        "default-time" => rules.default_limit_s = optional(value, seconds)?,
        "time" => rules.most_limit_s = optional(value, seconds)?,
        "slots" => rules.most_slots = optional(value, number)?,
        "memory" => rules.most_memory_mib = optional(value, mebibytes)?,
        "default-memory" => rules.default_memory_mib = optional(value, mebibytes)?,
        "running" => rules.running = optional(value, number)?,
        "used-slots" => rules.used_slots = optional(value, number)?,
        "user-running" => rules.running_of_user = optional(value, number)?,
        "user-slots" => rules.used_slots_of_user = optional(value, number)?,
        "jobs" => rules.jobs = optional(value, number)?,
        "user-jobs" => rules.jobs_of_user = optional(value, number)?,
        "users" => rules.users = list(value),
        "accounts" => rules.accounts = list(value),
        "partition" => {
            rules.gang = optional(value, |name| {
                Ok(Gang {
                    partition: name.to_owned(),
                    ..Gang::default()
                })
            })?;
            // Two take turns: more would only wait longer for theirs.
            rules.running = rules.running.or(rules.gang.as_ref().map(|_| 2));
        }
        "open" => rules.is_open = yes(value)?,
        "started" => rules.is_started = yes(value)?,
        _ => return Ok(false),
    }
    Ok(true)
}

const QUEUE_KEYS: &str = "priority default-time time slots memory default-memory running used-slots user-running \
                          user-slots jobs user-jobs users accounts partition open started";

/// Slot seconds: a time, with `h` behind it or as time limits are written.
fn set_account(
    rules: &mut AccountRules,
    key: &str,
    value: &str,
    now_s: u64,
) -> Result<bool, String> {
    match key {
        "shares" => rules.shares = number(value)?,
        "budget" => {
            rules.budget_s = optional(value, seconds)?;
            rules.since_s = now_s;
        }
        "hard" => rules.is_hard = yes(value)?,
        _ => return Ok(false),
    }
    Ok(true)
}

/// `now`, `+2h`, or seconds since 1970.
fn moment(value: &str, now_s: u64) -> Result<u64, String> {
    if value == "now" {
        return Ok(now_s);
    }
    if let Some(later) = value.strip_prefix('+') {
        return Ok(now_s.saturating_add(seconds(later)?));
    }
    let wrong = || {
        format!(
            "'{value}' is no moment; write now, +2h, 22:00, tomorrow, 2026-12-01T08:00, or the seconds since 1970"
        )
    };
    value.parse().map_err(|_| wrong())
}

fn reservation(words: &[(&str, &str)], now_s: u64) -> Result<Reservation, String> {
    let mut made = Reservation {
        slots: 0,
        memory_mib: 0,
        from_s: now_s,
        until_s: 0,
        users: Vec::new(),
        accounts: Vec::new(),
    };
    let mut time = None;
    for (key, value) in words {
        match *key {
            "slots" => made.slots = number(value)?,
            "memory" => made.memory_mib = mebibytes(value)?,
            "start" => made.from_s = moment(value, now_s)?,
            "time" => time = Some(seconds(value)?),
            "users" => made.users = list(value),
            "accounts" => made.accounts = list(value),
            _ => return Err(unknown(key, "slots memory start time users accounts")),
        }
    }
    let Some(time) = time.filter(|_| made.slots > 0) else {
        return Err("a reservation needs slots=NUMBER and time=TIME".into());
    };
    made.until_s = made.from_s.saturating_add(time);
    Ok(made)
}

fn unknown(key: &str, known: &str) -> String {
    format!("'{key}' cannot be set; there are: {known}")
}

fn pairs<'a>(words: &'a [&'a str]) -> Result<Vec<(&'a str, &'a str)>, String> {
    let pair = |word: &&'a str| {
        let wrong = || format!("'{word}' sets nothing; write it as NAME=VALUE");
        word.split_once('=').ok_or_else(wrong)
    };
    words.iter().map(pair).collect()
}

impl Settings {
    /// Changes the rules by words: a kind, its name, and what is set. `machine` is how many slots
    /// there are.
    ///
    /// # Errors
    /// In words; nothing has changed then.
    pub fn change(&mut self, words: &[&str], machine: u32, now_s: u64) -> Result<(), String> {
        let mut new = self.clone();
        match words {
            ["policy", rest @ ..] => new.set_policy(&pairs(rest)?)?,
            ["remove", kind, name] => new.remove(kind, name)?,
            [kind, name, rest @ ..] => {
                let is_plain = |c: char| c.is_alphanumeric() || "-_.@".contains(c);
                if name.is_empty() || name.len() > 64 || !name.chars().all(is_plain) {
                    return Err(format!(
                        "'{}' is no name; use up to 64 letters, digits, - _ . and @",
                        name.escape_debug()
                    ));
                }
                let set = pairs(rest)?;
                match *kind {
                    "queue" => {
                        let rules = new.queues.entry((*name).into()).or_default();
                        for (key, value) in set {
                            if !set_queue(rules, key, value)? {
                                return Err(unknown(key, QUEUE_KEYS));
                            }
                        }
                    }
                    "account" => {
                        let rules = new.accounts.entry((*name).into()).or_default();
                        for (key, value) in set {
                            if !set_account(rules, key, value, now_s)? {
                                return Err(unknown(key, "shares budget hard"));
                            }
                        }
                    }
                    "user" => {
                        for (key, value) in set {
                            if key != "shares" {
                                return Err(unknown(key, "shares"));
                            }
                            new.users.insert((*name).into(), number(value)?);
                        }
                    }
                    "reservation" => {
                        let made = reservation(&set, now_s)?;
                        new.room_for(name, &made, machine)?;
                        new.reservations.insert((*name).into(), made);
                    }
                    _ => return Err(format!("'{kind}' cannot be set; there are: {KINDS}")),
                }
            }
            _ => return Err(format!("name what to set: {KINDS}")),
        }
        *self = new;
        Ok(())
    }

    fn set_policy(&mut self, set: &[(&str, &str)]) -> Result<(), String> {
        for (key, value) in set {
            match *key {
                "backfill" => {
                    self.backfill = match *value {
                        "easy" => Backfill::Easy,
                        "conservative" => Backfill::Conservative,
                        "none" => Backfill::Off,
                        _ => {
                            return Err(format!(
                                "'{value}' is no backfill; there are: easy conservative none"
                            ));
                        }
                    }
                }
                "fair-share" => self.half_life_s = optional(value, seconds)?,
                "lost-after" => self.lost_after_s = seconds(value)?,
                "operators" => self.operators = list(value),
                "default-queue" if self.queues.contains_key(*value) => {
                    self.default_queue = (*value).into();
                }
                "default-queue" => return Err(format!("there is no queue '{value}'")),
                _ => {
                    return Err(unknown(
                        key,
                        "backfill fair-share lost-after operators default-queue",
                    ));
                }
            }
        }
        Ok(())
    }

    fn remove(&mut self, kind: &str, name: &str) -> Result<(), String> {
        let is_gone = match kind {
            "queue" if name == QUEUE || name == self.default_queue => {
                return Err(format!(
                    "the queue '{name}' has to be there; close it: open=no"
                ));
            }
            "queue" => self.queues.remove(name).is_some(),
            "account" => self.accounts.remove(name).is_some(),
            "user" => self.users.remove(name).is_some(),
            "reservation" => self.reservations.remove(name).is_some(),
            _ => false,
        };
        if is_gone {
            Ok(())
        } else {
            Err(format!("there is no {kind} '{name}'"))
        }
    }

    /// Whether a reservation fits beside those that overlap with it.
    fn room_for(&self, name: &str, made: &Reservation, machine: u32) -> Result<(), String> {
        let others = self.reservations.iter().filter(|(other, _)| *other != name);
        let beside: u32 = others
            .filter(|(_, r)| r.from_s < made.until_s && made.from_s < r.until_s)
            .map(|(_, r)| r.slots)
            .sum();
        if made.slots.saturating_add(beside) > machine {
            return Err(format!(
                "the reservation needs {} slots, others at that time have {beside}, and the machine has {machine}",
                made.slots
            ));
        }
        Ok(())
    }

    /// All rules as the words that set them, one line each; `date` shows a moment.
    #[must_use]
    pub fn words(&self, date: &dyn Fn(u64) -> String) -> String {
        let backfill = match self.backfill {
            Backfill::Off => "none",
            Backfill::Easy => "easy",
            Backfill::Conservative => "conservative",
        };
        let mut text = format!(
            "policy backfill={backfill} fair-share={} lost-after={} default-queue={} operators={}\n",
            time(self.half_life_s),
            shown(self.lost_after_s),
            self.default_queue,
            self.operators.join(",")
        );
        for (name, rules) in &self.queues {
            text += &format!("queue {name}{}\n", rules.words());
        }
        for (name, rules) in &self.accounts {
            text += &format!(
                "account {name} shares={} budget={} hard={}\n",
                rules.shares,
                time(rules.budget_s),
                word(rules.is_hard)
            );
        }
        for (name, shares) in &self.users {
            text += &format!("user {name} shares={shares}\n");
        }
        for (name, r) in &self.reservations {
            text += &format!(
                "reservation {name} slots={} memory={}M start={} time={} users={} accounts={}\n",
                r.slots,
                r.memory_mib,
                date(r.from_s),
                shown(r.until_s.saturating_sub(r.from_s)),
                r.users.join(","),
                r.accounts.join(",")
            );
        }
        text
    }
}

fn word(is: bool) -> &'static str {
    if is { "yes" } else { "no" }
}

fn time(seconds: Option<u64>) -> String {
    seconds.map_or_else(|| "none".into(), shown)
}

impl QueueRules {
    /// What differs from a new queue.
    fn words(&self) -> String {
        let usual = QueueRules::default();
        let mut text = String::new();
        let mut put = |key: &str, is_usual: bool, value: String| {
            if !is_usual {
                text += &format!(" {key}={value}");
            }
        };
        let plain = |value: Option<u32>| value.map_or_else(|| "none".into(), |v| v.to_string());
        let memory = |value: Option<u64>| value.map_or_else(|| "none".into(), |v| format!("{v}M"));
        put("priority", self.priority == 0, self.priority.to_string());
        put(
            "default-time",
            self.default_limit_s.is_none(),
            time(self.default_limit_s),
        );
        put("time", self.most_limit_s.is_none(), time(self.most_limit_s));
        put("slots", self.most_slots.is_none(), plain(self.most_slots));
        put(
            "memory",
            self.most_memory_mib.is_none(),
            memory(self.most_memory_mib),
        );
        put(
            "default-memory",
            self.default_memory_mib.is_none(),
            memory(self.default_memory_mib),
        );
        put("running", self.running.is_none(), plain(self.running));
        put(
            "used-slots",
            self.used_slots.is_none(),
            plain(self.used_slots),
        );
        put(
            "user-running",
            self.running_of_user.is_none(),
            plain(self.running_of_user),
        );
        put(
            "user-slots",
            self.used_slots_of_user.is_none(),
            plain(self.used_slots_of_user),
        );
        put("jobs", self.jobs.is_none(), plain(self.jobs));
        put(
            "user-jobs",
            self.jobs_of_user.is_none(),
            plain(self.jobs_of_user),
        );
        put("users", self.users.is_empty(), self.users.join(","));
        put(
            "accounts",
            self.accounts.is_empty(),
            self.accounts.join(","),
        );
        let partition = self.gang.as_ref().map(|gang| gang.partition.clone());
        put(
            "partition",
            partition.is_none(),
            partition.unwrap_or_default(),
        );
        put(
            "open",
            self.is_open == usual.is_open,
            word(self.is_open).into(),
        );
        put(
            "started",
            self.is_started == usual.is_started,
            word(self.is_started).into(),
        );
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(settings: &mut Settings, line: &str) -> Result<(), String> {
        let words: Vec<&str> = line.split(' ').collect();
        settings.change(&words, 8, 1000)
    }

    #[test]
    fn rules_are_set_by_words_and_shown_by_the_same() {
        let mut settings = Settings::default();
        for line in [
            "policy backfill=conservative fair-share=7d operators=ann,bob",
            "queue night priority=5 time=12h slots=4 user-running=2 users=ann",
            "queue night slots=none open=no default-memory=2G",
            "account physics shares=3 budget=1000h",
            "user ann shares=2",
            "reservation lecture slots=4 start=+1h time=2h users=ann",
            "policy default-queue=night",
        ] {
            set(&mut settings, line).unwrap_or_else(|error| panic!("{line}: {error}"));
        }
        let mut again = Settings::default();
        let text = settings.words(&|at| at.to_string());
        let (policy, rest) = text.split_once('\n').unwrap();
        for line in rest.lines().chain([policy]) {
            set(&mut again, line).unwrap_or_else(|error| panic!("{line}: {error}"));
        }
        assert_eq!(again, settings, "{text}");
        set(&mut settings, "remove reservation lecture").unwrap();
        assert!(settings.reservations.is_empty());
    }

    #[test]
    fn what_cannot_be_is_refused_and_changes_nothing() {
        let mut settings = Settings::default();
        set(&mut settings, "reservation a slots=5 start=now time=1h").unwrap();
        let before = settings.clone();
        for (line, why) in [
            ("queue", "name what to set"),
            ("queue a/b", "no name"),
            ("queue q slots", "NAME=VALUE"),
            ("queue q priority=1 colour=red", "'colour'"),
            ("queue q slots=-1", "'-1'"),
            ("remove queue compute", "has to be there"),
            ("remove queue none", "no queue 'none'"),
            ("policy backfill=hard", "'hard'"),
            ("policy default-queue=q", "no queue 'q'"),
            (
                "reservation b slots=4 start=+30 time=1h",
                "the machine has 8",
            ),
            ("reservation b slots=4", "time=TIME"),
            ("colour red", "'colour'"),
        ] {
            let error = set(&mut settings, line).unwrap_err();
            assert!(error.contains(why), "{line}: {error}");
            assert_eq!(settings, before, "{line}");
        }
        set(&mut settings, "reservation b slots=4 start=+1h time=1h").unwrap();
    }
}
