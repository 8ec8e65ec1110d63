//! The energy that the processors of this host use, where the system says it: the counters of RAPL
//! (`/sys/class/powercap`). They are of whole packages and of their memory, and newer kernels show
//! them to root alone.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Where the counters are, unless this variable says otherwise.
pub const ENV_FOLDER: &str = "MARGAY_POWERCAP";
const FOLDER: &str = "/sys/class/powercap";

/// A counter begins anew after some minutes under full load; it is read this often.
pub const READ_EVERY: Duration = Duration::from_secs(60);

/// A counter.
#[derive(Debug)]
struct Zone {
    file: PathBuf,
    /// After this value comes 0.
    most_uj: u64,
    last_uj: u64,
}

/// What has been used since this was made.
#[derive(Debug)]
pub struct EnergyMeter {
    zones: Vec<Zone>,
    used_uj: u64,
}

fn number(file: &Path) -> Option<u64> {
    fs::read_to_string(file).ok()?.trim().parse().ok()
}

impl EnergyMeter {
    /// Begins; none where the system does not say it.
    #[must_use]
    pub fn begin() -> Option<EnergyMeter> {
        let folder = std::env::var_os(ENV_FOLDER).map_or_else(|| FOLDER.into(), PathBuf::from);
        Self::at(&folder)
    }

    fn at(folder: &Path) -> Option<EnergyMeter> {
        let zones = fs::read_dir(folder).ok()?.flatten().filter_map(|zone| {
            // The same package may be shown by its memory-mapped registers as well.
            zone.file_name().to_str()?.strip_prefix("intel-rapl:")?;
            let name = fs::read_to_string(zone.path().join("name")).ok()?;
            // Cores are a part of their package, and not all systems have the whole (psys).
            (name.starts_with("package") || name.trim() == "dram").then_some(())?;
            let file = zone.path().join("energy_uj");
            Some(Zone {
                last_uj: number(&file)?,
                most_uj: number(&zone.path().join("max_energy_range_uj"))?,
                file,
            })
        });
        let zones: Vec<Zone> = zones.collect();
        (!zones.is_empty()).then_some(EnergyMeter { zones, used_uj: 0 })
    }

    /// Reads the counters; returns what has been used, in microjoules.
    pub fn read(&mut self) -> u64 {
        for zone in &mut self.zones {
            let Some(now) = number(&zone.file) else {
                continue;
            };
            let used = match now.checked_sub(zone.last_uj) {
                Some(used) => used,
                None => (now + zone.most_uj).saturating_sub(zone.last_uj),
            };
            zone.last_uj = now;
            self.used_uj += used;
        }
        self.used_uj
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_and_memory_count_once_and_counters_begin_anew() {
        let folder = std::env::temp_dir().join(format!("margay-energy-{}", std::process::id()));
        let set = |zone: &str, file: &str, text: &str| {
            fs::create_dir_all(folder.join(zone)).unwrap();
            fs::write(folder.join(zone).join(file), text).unwrap();
        };
        for (zone, name) in [
            ("intel-rapl:0", "package-0\n"),
            ("intel-rapl:0:0", "core\n"),
            ("intel-rapl:0:1", "dram\n"),
            ("intel-rapl:1", "psys\n"),
            ("intel-rapl-mmio:0", "package-0\n"),
        ] {
            set(zone, "name", name);
            set(zone, "max_energy_range_uj", "1000\n");
            set(zone, "energy_uj", "900\n");
        }
        let mut meter = EnergyMeter::at(&folder).unwrap();
        assert_eq!(meter.zones.len(), 2);
        assert_eq!(meter.read(), 0);
        set("intel-rapl:0", "energy_uj", "50\n");
        set("intel-rapl:0:1", "energy_uj", "910\n");
        set("intel-rapl:0:0", "energy_uj", "999\n");
        assert_eq!(meter.read(), 150 + 10);
        fs::remove_file(folder.join("intel-rapl:0/energy_uj")).unwrap();
        assert_eq!(meter.read(), 160, "what cannot be read says nothing");
        fs::remove_dir_all(&folder).unwrap();
        assert!(EnergyMeter::at(&folder).is_none());
    }
}
