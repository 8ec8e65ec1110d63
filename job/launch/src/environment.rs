//! The environment of the ranks.

use std::ffi::{CString, OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

pub use margay_sys_shm::segment::ENV_SIZE;
use margay_sys_shm::segment::{ENV_LAUNCHER, ENV_PARENT, ENV_RANK, ENV_SEGMENT, ENV_SPAWN};

/// glibc's tunables; its malloc can ask for huge pages, which messages of a megabyte and more gain
/// a factor of three from.
const ENV_TUNABLES: &str = "GLIBC_TUNABLES";
const TUNABLE: &str = "glibc.malloc.hugetlb";

/// Returns the environment of a rank without its number: `base` (the launcher's own) with what the
/// user set in addition and with the job's variables. A surrounding job's variables are replaced,
/// so a launcher may run inside a rank. `parent` is the port of the processes that spawn the job.
/// `huge_pages` asks for huge pages in malloc: a rank then begins with 2 MiB of memory, which is
/// little for one that has a core and much for one among many on it.
pub fn common(
    base: impl Iterator<Item = (OsString, OsString)>,
    set: &[(OsString, OsString)],
    segment_fd: i32,
    ranks: u32,
    huge_pages: bool,
    parent: Option<&str>,
) -> Vec<CString> {
    let mut variables: Vec<(OsString, OsString)> = base.collect();
    for (name, value) in set {
        put(&mut variables, name, value.clone());
    }
    variables.retain(|(name, _)| name != ENV_RANK && name != ENV_SPAWN && name != ENV_PARENT);
    if let Some(port) = parent {
        put(&mut variables, ENV_PARENT.as_ref(), port.into());
    }
    if let Ok(launcher) = std::env::current_exe() {
        put(&mut variables, ENV_LAUNCHER.as_ref(), launcher.into());
    }
    put(
        &mut variables,
        ENV_SEGMENT.as_ref(),
        segment_fd.to_string().into(),
    );
    put(&mut variables, ENV_SIZE.as_ref(), ranks.to_string().into());
    if huge_pages {
        let tunables = variables
            .iter()
            .find(|(name, _)| name == ENV_TUNABLES)
            .map(|(_, value)| value.clone())
            .unwrap_or_default();
        put(
            &mut variables,
            ENV_TUNABLES.as_ref(),
            with_huge_pages(tunables),
        );
    }
    variables
        .into_iter()
        .filter_map(|(name, value)| assignment(&name, &value))
        .collect()
}

/// Returns the variable that tells a rank its number.
#[must_use]
pub fn rank_variable(rank: u32) -> CString {
    CString::new(format!("{ENV_RANK}={rank}")).unwrap_or_default()
}

fn with_huge_pages(tunables: OsString) -> OsString {
    let users = tunables
        .as_bytes()
        .split(|&b| b == b':')
        .any(|t| t.split(|&b| b == b'=').next() == Some(TUNABLE.as_bytes()));
    if users {
        return tunables;
    }
    let mut all = tunables;
    if !all.is_empty() {
        all.push(":");
    }
    all.push(TUNABLE);
    all.push("=1");
    all
}

fn put(variables: &mut Vec<(OsString, OsString)>, name: &OsStr, value: OsString) {
    match variables.iter_mut().find(|(n, _)| n == name) {
        Some(place) => place.1 = value,
        None => variables.push((name.to_owned(), value)),
    }
}

fn assignment(name: &OsStr, value: &OsStr) -> Option<CString> {
    let mut text = name.to_owned();
    text.push("=");
    text.push(value);
    CString::new(text.into_vec()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(base: &[(&str, &str)], set: &[(&str, &str)]) -> Vec<String> {
        let own = |list: &[(&str, &str)]| -> Vec<(OsString, OsString)> {
            list.iter().map(|(n, v)| (n.into(), v.into())).collect()
        };
        common(own(base).into_iter(), &own(set), 100, 4, true, None)
            .into_iter()
            .map(|c| c.into_string().unwrap())
            // The path of this very test.
            .filter(|variable| !variable.starts_with(ENV_LAUNCHER))
            .collect()
    }

    #[test]
    fn nothing_else_changes() {
        assert_eq!(
            made(&[("A", "1"), ("B", "x=y")], &[("C", "")]),
            [
                "A=1",
                "B=x=y",
                "C=",
                "MARGAY_SEGMENT_FD=100",
                "MARGAY_SIZE=4",
                "GLIBC_TUNABLES=glibc.malloc.hugetlb=1"
            ]
        );
    }

    #[test]
    fn ranks_without_a_core_of_their_own_get_small_pages() {
        let none = std::iter::empty();
        let got = common(none, &[], 100, 64, false, None);
        assert!(got.iter().all(|v| !v.as_bytes().starts_with(b"GLIBC")));
    }

    #[test]
    fn the_users_tunables_stay() {
        let only = |value| {
            made(&[("GLIBC_TUNABLES", value)], &[])
                .into_iter()
                .find(|v| v.starts_with("GLIBC"))
                .unwrap()
        };
        assert_eq!(
            only("glibc.malloc.arena_max=1"),
            "GLIBC_TUNABLES=glibc.malloc.arena_max=1:glibc.malloc.hugetlb=1"
        );
        assert_eq!(
            only("a=b:glibc.malloc.hugetlb=0"),
            "GLIBC_TUNABLES=a=b:glibc.malloc.hugetlb=0"
        );
    }

    #[test]
    fn a_surrounding_jobs_variables_are_replaced() {
        let got = made(
            &[
                ("MARGAY_RANK", "7"),
                ("MARGAY_SEGMENT_FD", "55"),
                ("MARGAY_SIZE", "9"),
            ],
            &[],
        );
        assert_eq!(got[..2], ["MARGAY_SEGMENT_FD=100", "MARGAY_SIZE=4"]);
        assert!(!got.iter().any(|v| v.starts_with("MARGAY_RANK")));
        assert_eq!(rank_variable(3).to_str().unwrap(), "MARGAY_RANK=3");
    }
}
