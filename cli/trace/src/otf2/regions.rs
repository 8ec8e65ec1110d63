//! What the program and its calls are as regions of OTF2: one for each line from which the program
//! calls.

use std::collections::HashMap;
use std::path::Path;

use margay_core_record::Record;

use super::operation::{
    Operation, paradigm, plain, receives_itself, role, role_of, role_of_openmp,
};
use crate::format::{SiteInfo, Trace, name_of};

pub struct Region {
    pub name: String,
    pub description: String,
    /// Empty for unknown, with line 0.
    pub file: String,
    pub line: u32,
    pub role: u8,
    pub paradigm: u8,
    operation: Option<Operation>,
    receives_itself: bool,
}

/// All regions, and those of them whose calls were counted.
#[derive(Default)]
pub struct Regions {
    pub all: Vec<Region>,
    /// In the order of their metrics.
    pub with_metric: Vec<u32>,
    /// By the number of a call site.
    of_site: HashMap<u16, u32>,
    /// Of calls whose site is not known, and of what is no call.
    of_name: HashMap<(String, u8), u32>,
    metrics: HashMap<u32, u32>,
    program: String,
}

impl Regions {
    pub fn of_trace(trace: &Trace) -> Regions {
        let command = trace.head.command.split_whitespace().next();
        let program = command.and_then(|command| Path::new(command).file_name());
        let program = program.map_or("program".into(), |name| name.to_string_lossy().into_owned());
        let mut regions = Regions {
            program,
            ..Regions::default()
        };
        let mut known: HashMap<&SiteInfo, u32> = HashMap::new();
        for (&number, site) in trace.sites.iter().filter(|(_, site)| !site.call.is_empty()) {
            let region = *known
                .entry(site)
                .or_insert_with(|| regions.add(Region::of(site)));
            regions.of_site.insert(number, region);
        }
        regions
    }

    fn add(&mut self, region: Region) -> u32 {
        self.all.push(region);
        self.all.len() as u32 - 1
    }

    /// The region of a record that is a call.
    pub fn of(&mut self, record: &Record) -> u32 {
        match self.of_site.get(&record.site) {
            Some(&region) => region,
            None => self.named(name_of(record.kind), role::FUNCTION, paradigm::MPI),
        }
    }

    fn named(&mut self, name: &str, role: u8, paradigm: u8) -> u32 {
        let key = (name.to_owned(), paradigm);
        if let Some(&known) = self.of_name.get(&key) {
            return known;
        }
        let region = self.add(Region {
            name: name.to_owned(),
            description: String::new(),
            file: String::new(),
            line: 0,
            role,
            paradigm,
            operation: None,
            receives_itself: false,
        });
        self.of_name.insert(key, region);
        region
    }

    /// The program between its calls.
    pub fn program(&mut self) -> u32 {
        let program = self.program.clone();
        self.named(&program, role::FUNCTION, paradigm::USER)
    }

    /// Time in which calls were only counted.
    pub fn counted(&mut self) -> u32 {
        const NAME: &str = "calls that were only counted";
        self.named(NAME, role::ARTIFICIAL, paradigm::MEASUREMENT)
    }

    /// The metric of calls of a region that were only counted.
    pub fn metric(&mut self, region: u32) -> u32 {
        let next = self.with_metric.len() as u32;
        *self.metrics.entry(region).or_insert_with(|| {
            self.with_metric.push(region);
            next
        })
    }

    pub fn operation(&self, region: u32) -> Option<Operation> {
        self.all[region as usize].operation
    }

    /// Whether calls from a site complete no receive but their own.
    pub fn receives_itself(&self, site: u16) -> bool {
        let region = self.of_site.get(&site);
        region.is_some_and(|&region| self.all[region as usize].receives_itself)
    }

    /// A call of this region sends, receives or posts a message.
    pub fn moves_messages(&mut self, region: u32) {
        let region = &mut self.all[region as usize];
        if region.role == role::FUNCTION && region.paradigm == paradigm::MPI {
            region.role = role::POINT_TO_POINT;
        }
    }
}

impl Region {
    fn of(site: &SiteInfo) -> Region {
        let call = plain(&site.call);
        let description = match site.function.is_empty() {
            true => String::new(),
            false => format!("called from {} at {}", site.function, site.place()),
        };
        let openmp = role_of_openmp(&site.call);
        Region {
            name: site.call.clone(),
            description,
            file: site.file.clone(),
            line: site.line,
            role: openmp.unwrap_or_else(|| role_of(&call)),
            paradigm: openmp.map_or(paradigm::MPI, |_| paradigm::OPENMP),
            operation: Operation::of(&call),
            receives_itself: receives_itself(&call),
        }
    }

    /// The type that regions had before OTF2 1.1.
    pub fn old_type(&self) -> u8 {
        match (self.paradigm, self.role) {
            (paradigm::USER, role::FUNCTION) => 3,
            (paradigm::MPI, role::BARRIER) => 22,
            (paradigm::MPI, role @ role::ONE_TO_ALL..=role::COLLECTIVE) => role,
            _ => 0,
        }
    }
}
