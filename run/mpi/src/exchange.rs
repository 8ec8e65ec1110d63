//! Words that the processes of a communicator send each other: what making and freeing objects
//! takes.

use std::sync::Arc;

use margay_run_engine::{Data, Envelope, Mode, Pattern};
use margay_sys_os::user::Mem;

use crate::comm::Comm;
use crate::error::*;
use crate::foreign::Address;
use crate::operation::{Operation, Root};
use crate::outcome::failure;
use crate::{Mpi, fail};

/// What every process sends the others.
pub(crate) type Words = Vec<i32>;

impl Mpi {
    /// Every process's `words` (equally many), in the order of ranks: those of the local and of the
    /// remote group.
    pub(crate) fn exchange(
        &self,
        comm: &Arc<Comm>,
        words: &[i32],
    ) -> Result<(Vec<Words>, Vec<Words>)> {
        let local = self.gather_words(comm.inner.as_ref().unwrap_or(comm), words, comm.size())?;
        let remote = match &comm.remote {
            None => Vec::new(),
            Some(remote) => self.gather_words(comm, words, remote.size())?,
        };
        Ok((local, remote))
    }

    pub(crate) fn gather_words(
        &self,
        comm: &Arc<Comm>,
        words: &[i32],
        peers: u32,
    ) -> Result<Vec<Words>> {
        let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_ne_bytes()).collect();
        let length = bytes.len();
        let recv = Mem::owned(length * peers as usize);
        self.collective(
            comm,
            Operation::Allgather {
                send: Some(self.bytes_operand(Mem::from_vec(bytes), length)),
                recv: self.bytes_operand(recv.clone(), length),
            },
        )?;
        Ok(recv.with_bytes(0, length * peers as usize, |all| {
            all.chunks(length.max(1))
                .map(|one| {
                    one.chunks(4)
                        .map(|w| i32::from_ne_bytes(w.try_into().expect("four bytes")))
                        .collect()
                })
                .collect()
        }))
    }

    /// Every process's count.
    pub(crate) fn gather_counts(&self, comm: &Arc<Comm>, count: usize) -> Result<Vec<usize>> {
        let all = self.gather_words(comm, &[count as i32], comm.size())?;
        Ok(all.into_iter().map(|words| words[0] as usize).collect())
    }

    /// Every process's words, equally many.
    pub fn gather_all(&self, comm: &Arc<Comm>, words: &[i32]) -> Result<Vec<Vec<i32>>> {
        if words.is_empty() {
            return Ok(vec![Vec::new(); comm.size() as usize]);
        }
        self.gather_words(comm, words, comm.size())
    }

    /// `words` of rank `root` to all.
    pub fn broadcast_words(&self, comm: &Arc<Comm>, root: u32, words: &mut [i32]) -> Result<()> {
        let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_ne_bytes()).collect();
        let length = bytes.len();
        let mem = Mem::from_vec(bytes);
        let data = self.bytes_operand(mem.clone(), length);
        self.collective(
            comm,
            Operation::Bcast {
                data,
                root: Root::Rank(root),
            },
        )?;
        for (i, word) in words.iter_mut().enumerate() {
            let mut four = [0; 4];
            mem.read(4 * i as i64, &mut four);
            *word = i32::from_ne_bytes(four);
        }
        Ok(())
    }

    /// Sends words to a process in the collective context of `comm`.
    pub(crate) fn send_words(&self, comm: &Comm, process: u32, tag: u32, words: &[i32]) {
        let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_ne_bytes()).collect();
        let length = bytes.len() as u64;
        let envelope = Envelope {
            context: comm.collective(),
            source: comm.rank,
            tag,
        };
        let data = Data::bytes(Mem::from_vec(bytes), length);
        // A process that waits for it finds out by itself that it does not come.
        let _ = self.rank.send(Mode::Standard, &data, process, envelope);
    }

    pub(crate) fn receive_words(
        &self,
        comm: &Comm,
        process: u32,
        tag: u32,
        words: usize,
    ) -> Result<Words> {
        let Some(source) = comm.peers().rank(process) else {
            fail!(
                MPI_ERR_INTERN,
                "process {process} is not in {}",
                comm.describe()
            );
        };
        let pattern = Pattern::new(comm.collective(), Some(source), Some(tag));
        let mem = Mem::owned(4 * words);
        let data = Data::bytes(mem.clone(), 4 * words as u64);
        if let Some(failed) = self.rank.recv(data, pattern, Some(process)).failed {
            return Err(failure(failed, &comm.describe()));
        }
        Ok(mem.with_bytes(0, 4 * words, |bytes| {
            bytes
                .chunks(4)
                .map(|w| i32::from_ne_bytes(w.try_into().expect("four bytes")))
                .collect()
        }))
    }

    /// Returns the addresses of a communicator's processes.
    pub fn addresses(&self, comm: &Arc<Comm>) -> Result<Vec<Address>> {
        let all = self.gather_all(comm, &self.own_address().words())?;
        Ok(all.iter().map(|words| Address::from_words(words)).collect())
    }

    /// The root's words for all, or its problem: then all have an error.
    pub fn tell_group(
        &self,
        comm: &Arc<Comm>,
        root: u32,
        words: Vec<i32>,
        problem: Option<Error>,
    ) -> Result<Vec<i32>> {
        let mut head = match &problem {
            Some(error) => [-1, error.code()],
            None => [words.len() as i32, 0],
        };
        self.broadcast_words(comm, root, &mut head)?;
        if let Some(error) = problem {
            return Err(error);
        }
        if head[0] < 0 {
            fail!(
                head[1],
                "it failed at the root, rank {root} of {}",
                comm.describe()
            );
        }
        let mut words = words;
        words.resize(head[0] as usize, 0);
        self.broadcast_words(comm, root, &mut words)?;
        Ok(words)
    }
}
