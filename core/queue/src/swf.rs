//! The Standard Workload Format: logs of batch systems, a line for each job (S. Chapin and others,
//! "Benchmarks and Standards for the Evaluation of Parallel Job Schedulers", 1999).

use std::fmt::Write;

/// A job of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recorded {
    pub number: u64,
    /// Seconds since the log began.
    pub submitted: u64,
    /// How long it ran, in seconds.
    pub ran_s: u64,
    pub processors: u32,
    /// The time limit that its user named; how long it ran where none is recorded.
    pub limit_s: u64,
    pub user: u32,
    pub group: u32,
}

/// A log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Log {
    /// In the order of submission.
    pub jobs: Vec<Recorded>,
    /// What its head says: `MaxProcs`, or `MaxNodes` where that is missing.
    pub processors: Option<u32>,
    /// Jobs that are left out: they never ran, or have no size.
    pub skipped: usize,
}

/// Reads a log.
///
/// # Errors
/// In words, with the number of the line.
pub fn read(text: &str) -> Result<Log, String> {
    let mut log = Log::default();
    let mut nodes = None;
    for (at, line) in text.lines().enumerate() {
        let line = line.trim();
        if let Some(head) = line.strip_prefix(';') {
            if let Some((key, value)) = head.split_once(':') {
                let value = value.split_whitespace().next().and_then(|v| v.parse().ok());
                match key.trim() {
                    "MaxProcs" => log.processors = value,
                    "MaxNodes" => nodes = value,
                    _ => {}
                }
            }
            continue;
        }
        if line.is_empty() {
            continue;
        }
        let wrong = |what: &str| format!("line {} {what}", at + 1);
        let fields: Result<Vec<f64>, _> = line.split_whitespace().map(str::parse).collect();
        let fields = fields.map_err(|_| wrong("has a field that is no number"))?;
        if fields.len() < 11 {
            return Err(wrong("has too few fields; a job has 18"));
        }
        // -1 is what is not known.
        let field = |n: usize| {
            fields
                .get(n - 1)
                .copied()
                .filter(|f| f.is_finite() && *f >= 0.0)
                .map(|f| f as u64)
        };
        let processors = field(5).filter(|&p| p > 0).or(field(8)).filter(|&p| p > 0);
        let processors = processors.and_then(|p| u32::try_from(p).ok());
        let (Some(submitted), Some(ran_s), Some(processors)) = (field(2), field(4), processors)
        else {
            log.skipped += 1;
            continue;
        };
        log.jobs.push(Recorded {
            number: field(1).unwrap_or(0),
            submitted,
            ran_s,
            processors,
            limit_s: field(9).filter(|&limit| limit > 0).unwrap_or(ran_s).max(1),
            user: field(12).unwrap_or(0) as u32,
            group: field(13).unwrap_or(0) as u32,
        });
    }
    log.processors = log.processors.or(nodes);
    log.jobs.sort_by_key(|job| job.submitted);
    Ok(log)
}

/// A generator of numbers from a seed (SplitMix64).
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Between 0 and 1.
    fn part(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    fn exponential(&mut self, mean: f64) -> f64 {
        -mean * (1.0 - self.part()).ln()
    }
}

/// Makes the log of a machine that is busy to about nine tenths: sizes are often powers of two,
/// times are spread over several orders of magnitude, limits are round and too long.
#[must_use]
pub fn make(jobs: usize, processors: u32, seed: u64) -> Log {
    let mut numbers = Numbers(seed);
    let most = f64::from(processors.max(1)).log2();
    let mut log = Log {
        processors: Some(processors),
        ..Log::default()
    };
    let mut work = 0.0;
    for number in 1..=jobs as u64 {
        let size = (numbers.part().powi(2) * (most - 1.0).max(0.0)).exp2();
        let size = match numbers.next() % 4 {
            0 => size,
            _ => size.log2().round().exp2(),
        };
        let ran = (numbers.part() * 13.0 + 2.0).exp2();
        let factor = 1.0 + numbers.exponential(2.0);
        let limit = ((ran * factor / 300.0).ceil() * 300.0).max(300.0);
        let size = (size as u32).clamp(1, processors.max(1));
        work += ran * f64::from(size);
        log.jobs.push(Recorded {
            number,
            submitted: 0,
            ran_s: ran as u64,
            processors: size,
            limit_s: limit as u64,
            user: (numbers.part().powi(3) * 60.0) as u32 + 1,
            group: (numbers.next() % 8) as u32 + 1,
        });
    }
    let gap = work / f64::from(processors.max(1)) / 0.9 / jobs.max(1) as f64;
    let mut now = 0.0;
    for job in &mut log.jobs {
        now += numbers.exponential(gap);
        job.submitted = now as u64;
    }
    log
}

/// Writes a log.
#[must_use]
pub fn write(log: &Log) -> String {
    let mut text = String::from("; Version: 2.2\n");
    if let Some(processors) = log.processors {
        let _ = writeln!(text, "; MaxProcs: {processors}");
    }
    for job in &log.jobs {
        let _ = writeln!(
            text,
            "{} {} -1 {} {} -1 -1 {} {} -1 1 {} {} -1 -1 -1 -1 -1",
            job.number,
            job.submitted,
            job.ran_s,
            job.processors,
            job.processors,
            job.limit_s,
            job.user,
            job.group
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logs_come_back_as_they_were_and_odd_lines_are_named() {
        let log = make(if cfg!(miri) { 5 } else { 50 }, 64, 7);
        assert_eq!(read(&write(&log)).unwrap(), log);
        let log = read(
            "; MaxNodes: 12\n\n1 5 0 -1 4 -1 -1 4 60 -1 0 1 1 1 1 1 -1 -1\n2 3 0 10 -1 -1 -1 2 -1 -1 1\n",
        );
        let log = log.unwrap();
        assert_eq!(
            (log.processors, log.skipped, log.jobs.len()),
            (Some(12), 1, 1)
        );
        assert_eq!((log.jobs[0].processors, log.jobs[0].limit_s), (2, 10));
        assert!(read("1 2 3\n").unwrap_err().contains("line 1"));
        assert!(read("a b\n").is_err());
    }
}
