//! Hints: what the program says about its accesses, and what is made of it.

use margay_fs_storage::Layout;
use margay_run_mpi::info::Info;

/// Three answers to whether something shall be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Switch {
    Enable,
    Disable,
    Automatic,
}

/// The hints in force.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Hints {
    /// Whether collective reads go through aggregators.
    pub cb_read: Switch,
    /// Whether collective writes go through aggregators.
    pub cb_write: Switch,
    /// Aggregators.
    pub cb_nodes: u32,
    /// Bytes that an aggregator has in memory.
    pub cb_buffer_size: u64,
    /// Whether scattered independent reads also read what is between.
    pub ds_read: Switch,
    /// Bytes that such a read has in memory.
    pub ind_rd_buffer_size: u64,
    /// Targets that the file is spread over.
    pub striping_factor: u32,
    /// What the program asked for of both; 0 where it did not.
    pub wished: Layout,
    /// Bytes on one target before the next one's; the domains of aggregators begin at multiples.
    pub striping_unit: u64,
    /// The file system has said how the file is spread, which nothing changes any more.
    is_laid_out: bool,
    /// Permissions of a new file.
    pub file_perm: u32,
    /// What is kept for the program and not used.
    kept: Info,
}

/// Hints that are known and returned as they were given, but change nothing.
const KEPT: [&str; 14] = [
    "access_style",
    "cb_block_size",
    "cb_config_list",
    "chunked",
    "chunked_item",
    "chunked_size",
    "filename",
    "io_node_list",
    "nb_proc",
    "num_io_nodes",
    "ind_wr_buffer_size",
    "romio_no_indep_rw",
    "mpi_assert_no_delete",
    "host",
];

impl Hints {
    /// Returns the defaults for this many ranks on this many cores.
    ///
    /// Four mebibytes fit into a core's share of the last cache together with what is copied from;
    /// a core more than there are copies nothing faster.
    pub fn new(ranks: u32, cores: u32) -> Hints {
        Hints {
            cb_read: Switch::Automatic,
            cb_write: Switch::Automatic,
            cb_nodes: ranks.min(cores).max(1),
            cb_buffer_size: 4 << 20,
            ds_read: Switch::Automatic,
            ind_rd_buffer_size: 4 << 20,
            striping_factor: 1,
            wished: Layout { unit: 0, factor: 0 },
            striping_unit: 64 << 10,
            is_laid_out: false,
            file_perm: 0o666,
            kept: Info::new(),
        }
    }

    /// Takes over what an info object says. Unknown keys and values without a meaning are ignored,
    /// as the standard asks.
    pub fn apply(&mut self, info: &Info, ranks: u32) {
        for (key, value) in info {
            let value = value.trim();
            match key.as_str() {
                "romio_cb_read" => set(&mut self.cb_read, switch(value)),
                "romio_cb_write" => set(&mut self.cb_write, switch(value)),
                "collective_buffering" => {
                    let both = match value {
                        "true" => Some(Switch::Enable),
                        "false" => Some(Switch::Disable),
                        _ => None,
                    };
                    set(&mut self.cb_read, both);
                    set(&mut self.cb_write, both);
                }
                "cb_nodes" => set(
                    &mut self.cb_nodes,
                    number(value, 1 << 31).map(|n| (n as u32).min(ranks)),
                ),
                "cb_buffer_size" => set(&mut self.cb_buffer_size, number(value, 1 << 40)),
                "romio_ds_read" => set(&mut self.ds_read, switch(value)),
                "ind_rd_buffer_size" => set(&mut self.ind_rd_buffer_size, number(value, 1 << 40)),
                "striping_factor" | "striping_unit" if self.is_laid_out => {}
                "striping_factor" => {
                    let factor = number(value, 1 << 31).map(|n| n as u32);
                    set(&mut self.striping_factor, factor);
                    set(&mut self.wished.factor, factor);
                }
                "striping_unit" => {
                    let unit = number(value, 1 << 40);
                    set(&mut self.striping_unit, unit);
                    let unit = unit.and_then(|unit| u32::try_from(unit).ok());
                    set(&mut self.wished.unit, unit);
                }
                "file_perm" => set(
                    &mut self.file_perm,
                    u32::from_str_radix(value, 8).ok().filter(|&p| p <= 0o777),
                ),
                key if KEPT.contains(&key) => {
                    self.kept.retain(|(k, _)| k != key);
                    self.kept.push((key.into(), value.into()));
                }
                _ => {}
            }
        }
    }

    /// Takes over how the file is spread.
    pub fn lay_out(&mut self, layout: Layout) {
        self.striping_factor = layout.factor;
        self.striping_unit = u64::from(layout.unit);
        self.is_laid_out = true;
    }

    /// Bytes at whose multiples domains and windows of aggregators begin: whole rows, where it is
    /// known how the file is spread.
    pub fn alignment(&self) -> u64 {
        match self.is_laid_out {
            true => self.striping_unit * u64::from(self.striping_factor),
            false => self.striping_unit,
        }
    }

    /// Returns the hints in force, for the program.
    pub fn info(&self) -> Info {
        let mut info = Info::new();
        let mut add = |key: &str, value: String| info.push((key.into(), value));
        add("cb_buffer_size", self.cb_buffer_size.to_string());
        add("cb_nodes", self.cb_nodes.to_string());
        add("romio_cb_read", self.cb_read.name().into());
        add("romio_cb_write", self.cb_write.name().into());
        let buffering = self.cb_read != Switch::Disable || self.cb_write != Switch::Disable;
        add("collective_buffering", buffering.to_string());
        add("romio_ds_read", self.ds_read.name().into());
        // Writes never touch what they do not own.
        add("romio_ds_write", Switch::Disable.name().into());
        add("ind_rd_buffer_size", self.ind_rd_buffer_size.to_string());
        add("striping_factor", self.striping_factor.to_string());
        add("striping_unit", self.striping_unit.to_string());
        add("file_perm", format!("{:o}", self.file_perm));
        info.extend(self.kept.iter().cloned());
        info
    }

    /// Returns what has to be the same on all ranks, as words.
    pub fn common(&self) -> [i32; 5] {
        [
            self.cb_read.word(),
            self.cb_write.word(),
            self.cb_nodes as i32,
            self.cb_buffer_size.min(i32::MAX as u64) as i32,
            self.striping_unit.min(i32::MAX as u64) as i32,
        ]
    }

    /// Takes over what rank 0 has.
    pub fn agree(&mut self, common: &[i32]) {
        self.cb_read = Switch::of(common[0]);
        self.cb_write = Switch::of(common[1]);
        self.cb_nodes = common[2] as u32;
        self.cb_buffer_size = common[3] as u64;
        self.striping_unit = common[4] as u64;
    }
}

impl Switch {
    fn name(self) -> &'static str {
        match self {
            Switch::Enable => "enable",
            Switch::Disable => "disable",
            Switch::Automatic => "automatic",
        }
    }

    fn word(self) -> i32 {
        match self {
            Switch::Enable => 0,
            Switch::Disable => 1,
            Switch::Automatic => 2,
        }
    }

    fn of(word: i32) -> Switch {
        match word {
            0 => Switch::Enable,
            1 => Switch::Disable,
            _ => Switch::Automatic,
        }
    }
}

fn set<T>(place: &mut T, value: Option<T>) {
    if let Some(value) = value {
        *place = value;
    }
}

fn switch(value: &str) -> Option<Switch> {
    match value {
        "enable" => Some(Switch::Enable),
        "disable" => Some(Switch::Disable),
        "automatic" => Some(Switch::Automatic),
        _ => None,
    }
}

fn number(value: &str, most: u64) -> Option<u64> {
    value.parse::<u64>().ok().filter(|&n| n >= 1 && n <= most)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hints_are_taken_over_and_shown() {
        let mut hints = Hints::new(8, 2);
        assert_eq!(hints.cb_nodes, 2);
        let given = [
            ("cb_nodes", "5"),
            ("cb_buffer_size", "1048576"),
            ("collective_buffering", "false"),
            ("romio_cb_write", "enable"),
            ("access_style", "write_once,random"),
            ("file_perm", "640"),
            ("striping_unit", "nonsense"),
            ("unknown", "x"),
        ];
        let given: Info = given.map(|(k, v)| (k.into(), v.into())).into();
        hints.apply(&given, 4);
        let report = hints.info();
        let value = |key: &str| {
            report
                .iter()
                .find(|(k, _)| k == key)
                .map(|(_, v)| v.as_str())
        };
        assert_eq!(value("cb_nodes"), Some("4"), "no more than ranks");
        assert_eq!(value("cb_buffer_size"), Some("1048576"));
        assert_eq!(value("romio_cb_read"), Some("disable"));
        assert_eq!(value("romio_cb_write"), Some("enable"));
        assert_eq!(value("access_style"), Some("write_once,random"));
        assert_eq!(value("file_perm"), Some("640"));
        assert_eq!(value("striping_unit"), Some("65536"));
        assert_eq!(value("unknown"), None);
        assert_eq!(hints.alignment(), 65536);
        let (unit, factor) = (131_072, 3);
        hints.lay_out(Layout { unit, factor });
        hints.apply(&[("striping_unit".into(), "4096".into())].into(), 4);
        assert_eq!((hints.striping_unit, hints.alignment()), (131_072, 393_216));
    }
}
