//! The environment of the ranks.

use std::ffi::{CString, OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use margay_net_platform::asks;
use margay_sys_shm::environment::{ENV_LAUNCHER, ENV_LISTENER, ENV_PARENT, ENV_RANK, ENV_SEGMENT};
pub use margay_sys_shm::environment::{ENV_SIZE, ENV_SPAWN};

use crate::frameworks::{self, Devices};
use crate::other_abi::Libraries;
use crate::plan::Inherit;

/// glibc's tunables; its malloc can ask for huge pages, which messages of a megabyte and more gain
/// a factor of three from.
const ENV_TUNABLES: &str = "GLIBC_TUNABLES";
const TUNABLE: &str = "glibc.malloc.hugetlb";

/// The segment's descriptor in the ranks: above those that shell scripts use.
pub(crate) const SEGMENT_FD: i32 = 100;

/// What the environment of a program's ranks is made of.
#[derive(Clone, Copy, Debug)]
pub struct Common<'a> {
    /// What of the launcher's own the ranks get.
    pub inherit: &'a Inherit,
    /// What the user set in addition.
    pub set: &'a [(OsString, OsString)],
    /// What leads the program to our libraries under other implementations' names.
    pub libraries: &'a Libraries,
    /// The descriptor of the segment.
    pub segment_fd: i32,
    /// The ranks of the job.
    pub ranks: u32,
    /// Those of this host.
    pub local_ranks: u32,
    /// Asks for huge pages in malloc: a rank then begins with 2 MiB of memory, which is little for
    /// one that has a core and much for one among many on it.
    pub huge_pages: bool,
    /// Where the ranks find others.
    pub ties: Ties<'a>,
    /// The devices, whose variables differ from rank to rank.
    pub devices: &'a Devices,
}

/// Where ranks find those who are not of their job.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ties<'a> {
    /// The port of the processes that spawn the job.
    pub parent: Option<&'a str>,
    /// The socket of their host's agent.
    pub agent: Option<&'a str>,
}

/// Returns the environment of a rank without its number: `base` (the launcher's own) with what the
/// user set in addition and with the job's variables. A surrounding job's variables, Margay's or
/// those of another launcher, are replaced, so a launcher may run inside a rank.
pub fn common(base: impl Iterator<Item = (OsString, OsString)>, job: &Common<'_>) -> Vec<CString> {
    let mut variables: Vec<(OsString, OsString)> = base
        .filter(|(name, _)| job.inherit.passes(name) && !frameworks::is_foreign(name))
        .collect();
    for (name, value) in job.set {
        put(&mut variables, name, value.clone());
    }
    for (name, value) in job.libraries.variables(&variables) {
        put(&mut variables, &name, value);
    }
    variables.retain(|(name, _)| {
        name != ENV_RANK
            && name != ENV_LISTENER
            && name != ENV_SPAWN
            && name != ENV_PARENT
            && name != asks::VARIABLE
            && !job.devices.sets(name)
    });
    let ties = [
        (ENV_PARENT, job.ties.parent),
        (asks::VARIABLE, job.ties.agent),
    ];
    for (name, value) in ties {
        if let Some(value) = value {
            put(&mut variables, name.as_ref(), value.into());
        }
    }
    if let Ok(launcher) = std::env::current_exe() {
        put(&mut variables, ENV_LAUNCHER.as_ref(), launcher.into());
    }
    let number = |number: u32| OsString::from(number.to_string());
    let segment = job.segment_fd.to_string().into();
    put(&mut variables, ENV_SEGMENT.as_ref(), segment);
    put(&mut variables, ENV_SIZE.as_ref(), number(job.ranks));
    for (name, value) in frameworks::sizes(job.ranks, job.local_ranks) {
        put(&mut variables, &name, value);
    }
    if job.huge_pages {
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

/// Returns the variables that tell a rank its number in the job and on its host, where it listens,
/// and its devices.
#[must_use]
pub fn of_rank(
    (rank, local): (u32, u32),
    listener: Option<i32>,
    devices: &Devices,
) -> Vec<CString> {
    let mut all = vec![rank_variable(rank)];
    let listener = listener.map(|fd| CString::new(format!("{ENV_LISTENER}={fd}")));
    all.extend(listener.and_then(Result::ok));
    all.extend(frameworks::of_rank((rank, local), devices));
    all
}

fn rank_variable(rank: u32) -> CString {
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
        let set = own(set);
        let (devices, libraries) = (Devices::default(), Libraries::default());
        let job = job(&Inherit::All, &set, true, (&devices, &libraries));
        let all = common(own(base).into_iter(), &job).into_iter();
        let sizes = frameworks::sizes(4, 4);
        all.map(|c| c.into_string().unwrap())
            // The path of this very test, and what the module `frameworks` tests.
            .filter(|variable| {
                let name = variable.split('=').next().unwrap();
                name != ENV_LAUNCHER && !sizes.iter().any(|(size, _)| size == name)
            })
            .collect()
    }

    fn job<'a>(
        inherit: &'a Inherit,
        set: &'a [(OsString, OsString)],
        huge_pages: bool,
        (devices, libraries): (&'a Devices, &'a Libraries),
    ) -> Common<'a> {
        Common {
            inherit,
            set,
            libraries,
            segment_fd: 100,
            ranks: 4,
            local_ranks: 4,
            huge_pages,
            ties: Ties {
                parent: None,
                agent: None,
            },
            devices,
        }
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
        let got = common(
            none,
            &job(
                &Inherit::All,
                &[],
                false,
                (&Devices::default(), &Libraries::default()),
            ),
        );
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
        let got = made(
            &[
                ("PMI_FD", "7"),
                ("PMIX_RANK", "1"),
                ("OMPI_MCA_btl", "self"),
            ],
            &[],
        );
        assert_eq!(got[0], "OMPI_MCA_btl=self");
        assert!(
            !got.iter()
                .any(|v| v.starts_with("PMI_FD") || v.starts_with("PMIX"))
        );
        assert_eq!(rank_variable(3).to_str().unwrap(), "MARGAY_RANK=3");
    }

    #[test]
    fn only_what_is_asked_for_is_passed_on() {
        let base = || {
            [("A", "1"), ("B", "2")]
                .map(|(n, v)| (n.into(), v.into()))
                .into_iter()
        };
        let passed = |inherit: Inherit| {
            let all = common(
                base(),
                &job(
                    &inherit,
                    &[],
                    false,
                    (&Devices::default(), &Libraries::default()),
                ),
            )
            .into_iter();
            let all = all.map(|v| v.into_string().unwrap());
            all.take_while(|v| !v.starts_with("MARGAY"))
                .collect::<Vec<_>>()
        };
        assert_eq!(passed(Inherit::Only(vec!["B".into()])), ["B=2"]);
        assert_eq!(passed(Inherit::Except(vec!["B".into()])), ["A=1"]);
        assert!(passed(Inherit::Only(Vec::new())).is_empty());
    }
}
