//! The variables by which frameworks and scripts find their rank: those of Open MPI's, MPICH's,
//! Intel's and MVAPICH's launchers.
//!
//! What those libraries themselves need to talk to their launcher (`PMI_FD`, `PMIX_NAMESPACE`, ...)
//! is removed: it belongs to a launcher around this one, if there is any. Without it such a
//! library, used by a rank, starts alone, as it does without a launcher.

use std::ffi::{CString, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt;

use crate::plan::{Gpus, LaunchError};

/// Names of variables of other launchers, or how these begin: they say what a surrounding job's
/// process is.
const FOREIGN: [&str; 21] = [
    "PMI_",
    "PMIX_",
    "HYDI_",
    "HYDRA_",
    "PALS_",
    "MPI_LOCALRANKID",
    "MPI_LOCALNRANKS",
    "MV2_COMM_WORLD_",
    "OMPI_COMM_WORLD_",
    "OMPI_UNIVERSE_SIZE",
    "OMPI_FIRST_RANKS",
    "OMPI_APP_CTX_NUM_PROCS",
    "OMPI_NUM_APP_CTX",
    "OMPI_COMMAND",
    "OMPI_ARGV",
    "OMPI_FILE_LOCATION",
    // Open MPI 4 hands these to its processes; with them a library would insist on its launcher.
    "OMPI_MCA_ess",
    "OMPI_MCA_orte_",
    "OMPI_MCA_initial_wdir",
    "OMPI_MCA_pmix",
    "PRTE_",
];
/// Those of them that users set to choose how a launcher works.
const SETTINGS: [&str; 2] = ["HYDRA_HOST_FILE", "PRTE_MCA_"];

/// The names of the rank, the number of ranks, the rank among those of this host and their number.
const RANK: [&str; 3] = ["PMI_RANK", "OMPI_COMM_WORLD_RANK", "MV2_COMM_WORLD_RANK"];
const SIZE: [&str; 3] = ["PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "MV2_COMM_WORLD_SIZE"];
const LOCAL_RANK: [&str; 6] = [
    "MARGAY_LOCAL_RANK",
    "MPI_LOCALRANKID",
    "OMPI_COMM_WORLD_LOCAL_RANK",
    "OMPI_COMM_WORLD_NODE_RANK",
    "MV2_COMM_WORLD_LOCAL_RANK",
    "PMI_LOCAL_RANK",
];
const LOCAL_SIZE: [&str; 5] = [
    "MARGAY_LOCAL_SIZE",
    "MPI_LOCALNRANKS",
    "OMPI_COMM_WORLD_LOCAL_SIZE",
    "MV2_COMM_WORLD_LOCAL_SIZE",
    "PMI_LOCAL_SIZE",
];

/// The variables that select devices; each takes a list of numbers or names.
const DEVICES: [&str; 4] = [
    "CUDA_VISIBLE_DEVICES",
    "HIP_VISIBLE_DEVICES",
    "ROCR_VISIBLE_DEVICES",
    "ZE_AFFINITY_MASK",
];
/// Those that are set when the user says how many devices there are. HIP sees those devices only
/// that ROCr leaves, numbered anew, so one of the two may be set.
const GIVEN: [&str; 3] = [DEVICES[0], DEVICES[1], DEVICES[3]];

/// Which devices the ranks get.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Devices {
    /// Variables, each with all the devices that it may name.
    lists: Vec<(&'static str, Vec<String>)>,
    /// The ranks of this host.
    ranks: u32,
}

/// Whether a variable says what a process of another launcher is.
#[must_use]
pub fn is_foreign(name: &std::ffi::OsStr) -> bool {
    let begins = |with: &&str| name.as_bytes().starts_with(with.as_bytes());
    FOREIGN.iter().any(begins) && !SETTINGS.iter().any(begins)
}

/// Returns the variables that are the same for all ranks of a host.
#[must_use]
pub fn sizes(ranks: u32, local: u32) -> Vec<(OsString, OsString)> {
    let of_all = SIZE.iter().chain(&["OMPI_UNIVERSE_SIZE"]);
    let of_all = of_all.map(|name| (name, ranks));
    of_all
        .chain(LOCAL_SIZE.iter().map(|name| (name, local)))
        .map(|(name, size)| (OsString::from(name), size.to_string().into()))
        .collect()
}

/// Returns the variables that differ from rank to rank, but for Margay's own of the rank.
#[must_use]
pub fn of_rank((rank, local): (u32, u32), devices: &Devices) -> Vec<CString> {
    let ranks = RANK.iter().map(|name| format!("{name}={rank}"));
    let locals = LOCAL_RANK.iter().map(|name| format!("{name}={local}"));
    let ranks = ranks.chain(locals);
    let devices = (devices.lists.iter())
        .map(|(name, list)| format!("{name}={}", share(local, devices.ranks, list).join(",")));
    ranks
        .chain(devices)
        .filter_map(|text| CString::new(text).ok())
        .collect()
}

/// Returns the devices of a rank, by its number on its host: its share of them, or the one that it
/// shares with other ranks.
fn share(local: u32, ranks: u32, devices: &[String]) -> &[String] {
    let share = (devices.len() / ranks.max(1) as usize).max(1);
    let first = (local as usize * share) % devices.len();
    &devices[first..first + share]
}

impl Devices {
    /// Returns which devices `ranks` ranks get. `variable` is the environment, `list` gives the
    /// names in a folder of the system. Where a batch system or the user has selected devices, the
    /// ranks share those.
    ///
    /// # Errors
    /// When devices are to be found and there are none, or fewer are selected than the user says.
    pub fn find(
        wanted: Option<Gpus>,
        ranks: u32,
        variable: impl Fn(&str) -> Option<String>,
        list: impl Fn(&str) -> Vec<String>,
    ) -> Result<Devices, LaunchError> {
        let numbers = |count: u32| (0..count).map(|n| n.to_string()).collect::<Vec<_>>();
        let selected = |name: &'static str| {
            let text = variable(name)?;
            let list: Vec<String> = (text.split(',').map(str::trim))
                .filter(|device| !device.is_empty())
                .map(str::to_owned)
                .collect();
            (!list.is_empty()).then_some((name, list))
        };
        let selected: Vec<_> = DEVICES.into_iter().filter_map(selected).collect();
        let lists = match wanted {
            None => return Ok(Devices::default()),
            Some(Gpus::Number(count)) if selected.is_empty() => {
                (GIVEN.into_iter().map(|name| (name, numbers(count)))).collect()
            }
            Some(Gpus::Number(count)) => {
                let count = count as usize;
                if let Some((name, list)) = selected.iter().find(|(_, l)| l.len() < count) {
                    return Err(LaunchError::usage(format!(
                        "-gpus {count}: {name} is {}, which names {}; say -gpus {}, or unset {name}",
                        list.join(","),
                        list.len(),
                        list.len()
                    )));
                }
                let cut = |(name, list): (_, Vec<String>)| (name, list[..count].to_vec());
                selected.into_iter().map(cut).collect()
            }
            Some(Gpus::Found) if selected.is_empty() => {
                let found = found(list).into_iter();
                found.map(|(name, count)| (name, numbers(count))).collect()
            }
            Some(Gpus::Found) => selected,
        };
        if lists.is_empty() {
            return Err(LaunchError::usage(
                "-gpus: no device of NVIDIA, AMD or Intel was found; say how many there are: -gpus 4",
            ));
        }
        Ok(Devices { lists, ranks })
    }

    /// Whether a variable is set for each rank, so that the launcher's own value does not count.
    #[must_use]
    pub fn sets(&self, name: &std::ffi::OsStr) -> bool {
        self.lists.iter().any(|(own, _)| *own == name)
    }
}

/// Returns the names in a folder; none where it cannot be read.
#[must_use]
pub fn names_in(folder: &str) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect()
}

/// Counts the devices by what their drivers show; with the variable that selects them.
fn found(list: impl Fn(&str) -> Vec<String>) -> Vec<(&'static str, u32)> {
    let numbered = |folder: &str, before: &str| {
        let is_one = |name: &&String| {
            let rest = name.strip_prefix(before).unwrap_or_default();
            !rest.is_empty() && rest.bytes().all(|b| b.is_ascii_digit())
        };
        list(folder).iter().filter(is_one).count() as u32
    };
    let nvidia = numbered("/dev", "nvidia");
    // Each card that computes has a node for that, beside the one for displays. Intel's driver
    // names itself.
    let with_driver = |drivers: &[&str]| {
        let of_driver = |driver: &&str| {
            let folder = format!("/sys/bus/pci/drivers/{driver}");
            let devices = list(&folder);
            // A device has its place on the bus as its name: 0000:03:00.0.
            devices.iter().filter(|name| name.contains(':')).count()
        };
        drivers.iter().map(of_driver).sum::<usize>() as u32
    };
    let amd = match list("/dev").iter().any(|name| name == "kfd") {
        true => with_driver(&["amdgpu"]),
        false => 0,
    };
    let intel = match numbered("/dev/dri", "renderD") {
        0 => 0,
        _ => with_driver(&["i915", "xe"]),
    };
    [(DEVICES[0], nvidia), (DEVICES[2], amd), (DEVICES[3], intel)]
        .into_iter()
        .filter(|&(_, count)| count > 0)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn none(_: &str) -> Option<String> {
        None
    }

    fn nothing(_: &str) -> Vec<String> {
        Vec::new()
    }

    fn of(rank: u32, devices: &Devices) -> Vec<String> {
        let all = of_rank((rank, rank), devices).into_iter();
        all.map(|v| v.into_string().unwrap()).collect()
    }

    #[test]
    fn every_launchers_names_are_there() {
        let got = of(3, &Devices::default());
        for name in [
            "PMI_RANK",
            "OMPI_COMM_WORLD_RANK",
            "OMPI_COMM_WORLD_LOCAL_RANK",
            "OMPI_COMM_WORLD_NODE_RANK",
            "MPI_LOCALRANKID",
            "MARGAY_LOCAL_RANK",
        ] {
            assert!(got.contains(&format!("{name}=3")), "{name}");
        }
        let sizes = sizes(5, 5);
        for name in [
            "PMI_SIZE",
            "MPI_LOCALNRANKS",
            "MARGAY_LOCAL_SIZE",
            "OMPI_COMM_WORLD_SIZE",
        ] {
            assert!(sizes.contains(&(name.into(), "5".into())), "{name}");
        }
        // With these a library would talk to a launcher that is not there.
        assert!(
            !got.iter()
                .any(|v| v.starts_with("PMI_FD") || v.starts_with("PMIX"))
        );
    }

    #[test]
    fn a_surrounding_launchers_variables_go_and_settings_stay() {
        for name in [
            "PMI_FD",
            "PMI_PORT",
            "PMIX_NAMESPACE",
            "OMPI_COMM_WORLD_SIZE",
            "PALS_RANKID",
        ] {
            assert!(is_foreign(name.as_ref()), "{name}");
        }
        for name in [
            "OMPI_MCA_btl",
            "SLURM_JOB_ID",
            "I_MPI_FABRICS",
            "HYDRA_HOST_FILE",
            "PATH",
        ] {
            assert!(!is_foreign(name.as_ref()), "{name}");
        }
    }

    #[test]
    fn each_rank_gets_its_devices() {
        let given = |devices, ranks| {
            let devices = Devices::find(Some(Gpus::Number(devices)), ranks, none, nothing).unwrap();
            (0..ranks)
                .map(|rank| {
                    let all = of(rank, &devices);
                    let own = all
                        .iter()
                        .find_map(|v| v.strip_prefix("CUDA_VISIBLE_DEVICES="));
                    own.unwrap().to_owned()
                })
                .collect::<Vec<_>>()
        };
        assert_eq!(given(4, 4), ["0", "1", "2", "3"]);
        assert_eq!(given(2, 4), ["0", "1", "0", "1"]);
        assert_eq!(given(4, 2), ["0,1", "2,3"]);
        assert_eq!(given(3, 2), ["0", "1"]);
        assert_eq!(given(1, 3), ["0", "0", "0"]);
    }

    #[test]
    fn devices_are_found_by_their_drivers() {
        let machine = |folder: &str| -> Vec<String> {
            let names: &[&str] = match folder {
                "/dev" => &[
                    "null",
                    "nvidia0",
                    "nvidia1",
                    "nvidiactl",
                    "nvidia-uvm",
                    "kfd",
                ],
                "/sys/bus/pci/drivers/amdgpu" => &["0000:03:00.0", "bind", "module"],
                _ => &[],
            };
            names.iter().map(|&name| name.to_owned()).collect()
        };
        let devices = Devices::find(Some(Gpus::Found), 2, none, machine).unwrap();
        let counts = devices.lists.iter().map(|(name, list)| (*name, list.len()));
        assert_eq!(
            counts.collect::<Vec<_>>(),
            [("CUDA_VISIBLE_DEVICES", 2), ("ROCR_VISIBLE_DEVICES", 1)]
        );
        assert!(devices.sets("CUDA_VISIBLE_DEVICES".as_ref()));
        let error = Devices::find(Some(Gpus::Found), 2, none, nothing).unwrap_err();
        assert!(error.message.contains("-gpus 4"), "{error}");
        assert_eq!(
            Devices::find(None, 2, none, machine).unwrap(),
            Devices::default()
        );
    }

    #[test]
    fn ranks_share_what_is_selected() {
        let selected = |name: &str| (name == "CUDA_VISIBLE_DEVICES").then(|| "6, GPU-a".to_owned());
        let find = |wanted| Devices::find(Some(wanted), 2, selected, nothing);
        for wanted in [Gpus::Found, Gpus::Number(2)] {
            let devices = find(wanted).unwrap();
            assert!(of(0, &devices).contains(&"CUDA_VISIBLE_DEVICES=6".into()));
            assert!(of(1, &devices).contains(&"CUDA_VISIBLE_DEVICES=GPU-a".into()));
        }
        let error = find(Gpus::Number(4)).unwrap_err();
        assert!(error.message.contains("names 2; say -gpus 2"), "{error}");
    }
}
