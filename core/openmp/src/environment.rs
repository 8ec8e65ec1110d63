//! Values of OpenMP's environment variables. An error is the end of a sentence that says what is
//! needed.

use crate::schedule::{Kind, Schedule};

/// The variable by which `margay omp` asks the library for lines about the copies of OpenMP's
/// libraries whose place it takes.
pub const ENV_COPIES: &str = "MARGAY_OMP_COPIES";

/// Largest number of threads, teams and levels that anybody can mean.
const LARGEST: u64 = i32::MAX as u64;

/// A whole number of at least `least`.
///
/// # Errors
/// When it is none.
pub fn number(text: &str, least: u64) -> Result<u64, String> {
    text.trim()
        .parse::<u64>()
        .ok()
        .filter(|&n| n >= least && n <= LARGEST)
        .ok_or_else(|| format!("a whole number of at least {least} is needed"))
}

/// Numbers of at least 1 with commas between.
///
/// # Errors
/// When one is none.
pub fn numbers(text: &str) -> Result<Vec<u64>, String> {
    text.split(',')
        .map(|part| number(part, 1))
        .collect::<Result<_, _>>()
        .map_err(|_| "whole numbers of at least 1 with commas between are needed".into())
}

/// True or false.
///
/// # Errors
/// When it is neither.
pub fn boolean(text: &str) -> Result<bool, String> {
    match text.trim().to_ascii_lowercase().as_str() {
        "true" => Ok(true),
        "false" => Ok(false),
        _ => Err("'true' or 'false' is needed".into()),
    }
}

/// The same for variables of Intel's library, which has more words for them.
///
/// # Errors
/// When it is neither.
pub fn kmp_boolean(text: &str) -> Result<bool, String> {
    match text.trim().to_ascii_lowercase().as_str() {
        "1" | "on" | "yes" | "enabled" | ".true." => Ok(true),
        "0" | "off" | "no" | "disabled" | ".false." => Ok(false),
        other => boolean(other),
    }
}

/// Intel's variable for binding, `KMP_AFFINITY`: words separated by commas, of which one is the
/// kind and another one the size of places. Returns the policy, and the name of the places; none
/// where it asks for no binding, or for a list of its own.
#[must_use]
pub fn kmp_affinity(text: &str) -> Option<(Bind, &'static str)> {
    let (mut bind, mut places) = (None, "cores");
    for word in text.split(',') {
        match word.trim().to_ascii_lowercase().as_str() {
            "compact" => bind = Some(Bind::Close),
            "scatter" | "balanced" => bind = Some(Bind::Spread),
            "none" | "disabled" | "explicit" | "logical" | "physical" => bind = None,
            "granularity=fine" | "granularity=thread" | "fine" | "thread" => places = "threads",
            "granularity=package" | "granularity=socket" => places = "sockets",
            "granularity=numa" | "granularity=node" => places = "numa_domains",
            _ => {}
        }
    }
    bind.map(|bind| (bind, places))
}

/// Intel's variable for waiting, `KMP_BLOCKTIME`, as a wait policy: whether threads without work
/// spin, if it says so at all.
#[must_use]
pub fn kmp_blocktime(text: &str) -> Option<bool> {
    match text.trim().to_ascii_lowercase().as_str() {
        "infinite" | "infinity" => Some(true),
        "0" | "0ms" | "0us" => Some(false),
        _ => None,
    }
}

/// A schedule with an optional modifier and chunk: `nonmonotonic:dynamic,4`.
///
/// # Errors
/// When it is none.
pub fn schedule(text: &str) -> Result<Schedule, String> {
    let text = text.to_ascii_lowercase();
    let (modifier, rest) = match text.split_once(':') {
        Some((modifier, rest)) => (Some(modifier.trim()), rest),
        None => (None, text.as_str()),
    };
    let (name, chunk) = match rest.split_once(',') {
        Some((name, chunk)) => (name.trim(), Some(number(chunk, 1)?)),
        None => (rest.trim(), None),
    };
    let kind = match name {
        "static" => Kind::Static,
        "dynamic" => Kind::Dynamic,
        "guided" => Kind::Guided,
        "auto" => Kind::Auto,
        // Names of LLVM's library.
        "trapezoidal" => Kind::Trapezoidal,
        "static_steal" => Kind::Dynamic,
        _ => return Err("'static', 'dynamic', 'guided' or 'auto' is needed".into()),
    };
    let monotonic = match modifier {
        Some("monotonic") => true,
        Some("nonmonotonic") => false,
        // Without a modifier a static schedule is monotonic, and the others need not be (OpenMP
        // 5.0).
        None => kind == Kind::Static,
        Some(_) => return Err("the modifier is 'monotonic' or 'nonmonotonic'".into()),
    };
    let chunk = match kind {
        Kind::Static => chunk.unwrap_or(0),
        Kind::Dynamic | Kind::Guided | Kind::Auto | Kind::Trapezoidal => chunk.unwrap_or(1),
    };
    Ok(Schedule {
        monotonic,
        ..Schedule::new(kind, chunk)
    })
}

/// How threads are bound, with the numbers of `omp_proc_bind_t`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum Bind {
    False = 0,
    True = 1,
    Primary = 2,
    Close = 3,
    Spread = 4,
}

/// The value of `OMP_PROC_BIND`: one for all levels, or one for each.
///
/// # Errors
/// When it is none.
pub fn bind(text: &str) -> Result<Vec<Bind>, String> {
    if let Ok(on) = boolean(text) {
        return Ok(vec![if on { Bind::True } else { Bind::False }]);
    }
    text.split(',')
        .map(|word| match word.trim().to_ascii_lowercase().as_str() {
            "master" | "primary" => Ok(Bind::Primary),
            "close" => Ok(Bind::Close),
            "spread" => Ok(Bind::Spread),
            _ => {
                Err("'true', 'false' or a list of 'primary', 'close' and 'spread' is needed".into())
            }
        })
        .collect()
}

/// A size in bytes: a number with an optional unit B, K, M or G (K without one).
///
/// # Errors
/// When it is none.
pub fn size(text: &str) -> Result<u64, String> {
    let wrong = || "a size like '512k' or '4M' is needed".to_owned();
    let text = text.trim().to_ascii_lowercase();
    let digits = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let shift = match unit.trim() {
        "b" => 0,
        "" | "k" => 10,
        "m" => 20,
        "g" => 30,
        _ => return Err(wrong()),
    };
    let number: u64 = number.parse().map_err(|_| wrong())?;
    number.checked_mul(1 << shift).ok_or_else(wrong)
}

/// The same where a number without a unit means bytes (`KMP_STACKSIZE`).
///
/// # Errors
/// What is wrong.
pub fn size_in_bytes(text: &str) -> Result<u64, String> {
    if text
        .trim_end()
        .ends_with(|last: char| last.is_ascii_digit())
    {
        return number(text, 1);
    }
    size(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values() {
        assert_eq!(numbers(" 4, 3,2"), Ok(vec![4, 3, 2]));
        assert!(numbers("4,").is_err() && numbers("0").is_err() && numbers("-1").is_err());
        assert_eq!(boolean(" TRUE "), Ok(true));
        assert_eq!(schedule("guided, 3"), Ok(Schedule::new(Kind::Guided, 3)));
        assert!(schedule("monotonic:dynamic").unwrap().monotonic);
        assert!(schedule("static").unwrap().monotonic);
        assert_eq!(schedule("auto"), Ok(Schedule::new(Kind::Auto, 1)));
        assert_eq!(
            schedule("trapezoidal,13"),
            Ok(Schedule::new(Kind::Trapezoidal, 13))
        );
        assert!(schedule("dynamic,0").is_err() && schedule("foo").is_err());
        assert_eq!(bind("spread,close"), Ok(vec![Bind::Spread, Bind::Close]));
        assert_eq!(bind("false"), Ok(vec![Bind::False]));
        assert!(bind("close,true").is_err());
        assert_eq!(size("4m"), Ok(4 << 20));
        assert_eq!(size("16"), Ok(16 << 10));
        assert_eq!(size(" 20 b"), Ok(20));
        assert!(size("k").is_err() && size("4x").is_err());
    }

    #[test]
    fn variables_of_intels_library_are_understood() {
        assert_eq!(kmp_boolean(" Off"), Ok(false));
        assert_eq!(kmp_boolean("1"), Ok(true));
        assert!(kmp_boolean("2").is_err());
        assert_eq!(
            kmp_affinity("granularity=fine,compact,1,0"),
            Some((Bind::Close, "threads"))
        );
        assert_eq!(
            kmp_affinity("verbose,Scatter"),
            Some((Bind::Spread, "cores"))
        );
        assert_eq!(kmp_affinity("none"), None);
        assert_eq!(kmp_affinity("explicit,proclist=[0,1]"), None);
        assert_eq!(
            ["infinite", "0", "200"].map(kmp_blocktime),
            [Some(true), Some(false), None]
        );
    }
}
