//! What a trace says of itself, and what has been read or recorded put in order.

use margay_core_record::{Kind, Record};

use super::{SiteInfo, ThreadRecords, Trace};

impl Trace {
    pub fn records(&self) -> usize {
        let all = self.threads.iter().chain(&self.openmp).chain(&self.spent);
        all.map(|t| t.records.len()).sum()
    }

    pub fn lost(&self) -> u64 {
        self.threads.iter().map(|t| t.lost).sum()
    }

    /// The host of a rank.
    pub fn host(&self, rank: u32) -> &str {
        self.hosts.get(&rank).unwrap_or(&self.head.host)
    }

    /// The call site of a record.
    pub fn site(&self, number: u16) -> SiteInfo {
        self.sites.get(&number).cloned().unwrap_or_default()
    }

    /// Puts records in order: by thread and time, and what are no calls apart.
    pub fn sort(&mut self) {
        for thread in &mut self.threads {
            thread.records.sort_by_key(|record| record.start);
            let is_call = |record: &Record| !matches!(record.kind, Kind::Threads | Kind::Spent);
            if thread.records.iter().all(is_call) {
                continue;
            }
            let records = std::mem::take(&mut thread.records);
            let (calls, others) = records.into_iter().partition(is_call);
            thread.records = calls;
            let is_openmp = |record: &Record| record.kind == Kind::Threads;
            let (openmp, spent): (Vec<Record>, Vec<Record>) =
                Vec::into_iter(others).partition(is_openmp);
            for (records, of) in [(openmp, &mut self.openmp), (spent, &mut self.spent)] {
                if !records.is_empty() {
                    of.push(ThreadRecords {
                        rank: thread.rank,
                        thread: thread.thread,
                        records,
                        lost: 0,
                    });
                }
            }
        }
        let is_empty = |of: &ThreadRecords| of.records.is_empty() && of.lost == 0;
        self.threads.retain(|of| !is_empty(of));
        self.threads.sort_by_key(|t| (t.rank, t.thread));
        self.openmp.sort_by_key(|t| (t.rank, t.thread));
    }
}
