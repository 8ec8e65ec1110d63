//! The kind of machine that figures come from.

use serde::{Deserialize, Serialize};

/// Cores and processor.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub struct Host {
    /// Usable cores.
    pub cores: usize,
    /// Model name of the processor.
    pub processor: String,
}

impl Host {
    /// This machine.
    pub fn detect() -> Self {
        let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let model = info.lines().find_map(|line| {
            line.strip_prefix("model name")?
                .split_once(':')
                .map(|(_, name)| name.trim())
        });
        Self {
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            processor: model.unwrap_or(std::env::consts::ARCH).to_owned(),
        }
    }

    /// Returns a name for files: cores and processor in small letters, without marks.
    pub fn class(&self) -> String {
        let processor = self
            .processor
            .replace("(R)", "")
            .replace("(TM)", "")
            .to_lowercase();
        let words = processor
            .split(|c: char| !c.is_ascii_alphanumeric())
            .filter(|word| !word.is_empty());
        format!("{}core-{}", self.cores, words.collect::<Vec<_>>().join("-"))
    }
}

/// Free memory of this machine in bytes, as the kernel estimates it; `None` where it does not say.
pub fn free_bytes() -> Option<u64> {
    let info = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = info
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.split_whitespace().next()?.parse().ok()?;
    Some(kib * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_class_is_a_file_name() {
        let host = Host {
            cores: 8,
            processor: "Intel(R) Xeon(R) @ 2.0GHz".into(),
        };
        assert_eq!(host.class(), "8core-intel-xeon-2-0ghz");
    }
}
