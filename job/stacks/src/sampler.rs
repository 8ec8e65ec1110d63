//! Stacks over time: how often threads are in which functions.

use std::collections::HashMap;

use margay_sys_os::trace::{Refused, Thread, images};

use crate::maps::{Maps, Modules};
use crate::unwind::{self, Spot};
use crate::{Frame, STACK_BYTES, STOP_LIMIT, Stack, merged_with_python, named, python};

/// What a thread was seen in: its process, the addresses, and the functions of Python with the
/// module of its interpreter.
type Seen = (u32, Vec<Spot>, Option<(Vec<Frame>, usize)>);

/// Counts the stacks of threads. Files are read once, and names are looked up at the end, so that a
/// sample costs little.
#[derive(Default)]
pub struct Sampler {
    modules: Modules,
    maps: HashMap<u32, Maps>,
    seen: HashMap<Seen, u64>,
}

impl Sampler {
    /// Different stacks that are kept; samples of others are left out.
    const MOST: usize = 200_000;

    /// Takes a sample of each thread, which stands still while its registers and the top of its
    /// stack are copied. The answers are in the order of the questions.
    pub fn sample(&mut self, threads: &[Thread]) -> Vec<Result<(), Refused>> {
        let images = images(threads, STACK_BYTES, STOP_LIMIT);
        let taken = threads.iter().zip(images).map(|(thread, image)| {
            let image = image?;
            // A process may have loaded libraries since the last sample.
            let known = self.maps.get(&thread.pid);
            let is_known = known.is_some_and(|maps| maps.find(&self.modules, image.pc).is_some());
            if !is_known {
                let maps = self.modules.of(thread.pid).ok_or(Refused::Gone)?;
                self.maps.insert(thread.pid, maps);
            }
            let maps = &self.maps[&thread.pid];
            let python = python::frames(*thread, image.stack_base, maps, &self.modules);
            let spots = unwind::walk(&image, maps, &self.modules);
            let seen = (thread.pid, spots, python);
            if self.seen.len() < Self::MOST || self.seen.contains_key(&seen) {
                *self.seen.entry(seen).or_default() += 1;
            }
            Ok(())
        });
        taken.collect()
    }

    /// The stacks, each with its process and the number of samples that were taken in it.
    #[must_use]
    pub fn stacks(self) -> Vec<(u32, Stack, u64)> {
        let mut walked = Vec::new();
        let mut counts = Vec::new();
        for ((pid, spots, python), count) in self.seen {
            walked.push(Ok(spots));
            counts.push((pid, python, count));
        }
        let stacks = named(&self.modules, walked).into_iter().zip(counts);
        let stacks = stacks.filter_map(|(stack, (pid, python, count))| {
            let stack = merged_with_python(&self.modules, stack, python).ok()?;
            Some((pid, stack, count))
        });
        stacks.collect()
    }
}
