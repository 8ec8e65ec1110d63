//! The shared file pointer. It is a number in the memory of the file's rank 0, its home; the others
//! ask for it and move it by messages, which the home's engine answers whenever the home is inside
//! of the library. Nothing is written beside the file, and it works over every transport.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use margay_run_engine::{Data, Envelope, Mode, Pattern, Port, Rank, ReqId, Script};
use margay_sys_os::user::Mem;

use super::twophase::POINTER_TAGS;
use margay_run_mpi::comm::Comm;

/// The home's rank in the file's group.
const HOME: u32 = 0;

/// What is asked of the home.
const MOVE: i64 = 0;
const STOP: i64 = 1;

/// The tag of requests; answers have those above.
const ASK: u32 = POINTER_TAGS;

/// A request: what, how far, and the tag of the answer.
const WORDS: usize = 3;

/// This rank's end of the shared file pointer.
pub(super) struct Pointer {
    comm: Arc<Comm>,
    /// At home: the pointer, in etypes.
    place: Arc<Mutex<i64>>,
    answers: AtomicU32,
    /// At home: what answers.
    service: Mutex<Option<ReqId>>,
}

impl Pointer {
    /// At a position, in etypes.
    pub fn new(rank: &Rank, comm: Arc<Comm>, position: i64) -> Pointer {
        let pointer = Pointer {
            place: Arc::new(Mutex::new(position)),
            answers: AtomicU32::new(0),
            service: Mutex::new(None),
            comm,
        };
        if pointer.is_home() && pointer.comm.size() > 1 {
            let port = Port::default();
            let body = serve(port.clone(), pointer.comm.clone(), pointer.place.clone());
            let script = Script::new(port, pointer.comm.point_to_point(), body);
            *pointer.service() = Some(rank.call(|engine| engine.start_task(Box::new(script))));
        }
        pointer
    }

    /// Whether this rank is the home.
    pub fn is_home(&self) -> bool {
        self.comm.rank == HOME
    }

    /// Moves the pointer. Returns where it was.
    pub fn advance(&self, rank: &Rank, by: i64) -> i64 {
        if self.is_home() {
            return self.advance_home(by);
        }
        // Threads that ask at the same time wait for different answers.
        let tag = ASK + 1 + self.answers.fetch_add(1, Ordering::Relaxed) % (POINTER_TAGS - 1);
        let answer = Mem::owned(8);
        let pattern = Pattern::new(self.comm.point_to_point(), Some(HOME), Some(tag));
        let home = self.comm.group.process(HOME).expect("the file's rank 0");
        let receive = rank.irecv(Data::bytes(answer.clone(), 8), pattern, Some(home));
        rank.send(
            Mode::Standard,
            &words(&[MOVE, by, i64::from(tag)]),
            home,
            self.envelope(ASK),
        );
        rank.wait(receive);
        first(&answer)
    }

    /// As [`advance`](Self::advance) at home; elsewhere it does nothing.
    pub fn advance_home(&self, by: i64) -> i64 {
        advance(&self.place, by)
    }

    /// At home: puts the pointer somewhere. The others must not use it meanwhile.
    pub fn set(&self, to: i64) {
        *lock(&self.place) = to;
    }

    /// Ends what answers; nobody asks any more.
    pub fn close(&self, rank: &Rank) {
        let service = self.service().take();
        if let Some(service) = service {
            let own = rank.world_rank();
            let stop = words(&[STOP, 0, 0]);
            rank.send(Mode::Standard, &stop, own, self.envelope(ASK));
            rank.wait(service);
        }
    }

    fn envelope(&self, tag: u32) -> Envelope {
        Envelope {
            context: self.comm.point_to_point(),
            source: self.comm.rank,
            tag,
        }
    }

    fn service(&self) -> MutexGuard<'_, Option<ReqId>> {
        self.service.lock().expect("no panic under this lock")
    }
}

/// Answers requests until a request to stop comes.
async fn serve(port: Port, comm: Arc<Comm>, place: Arc<Mutex<i64>>) {
    let context = comm.point_to_point();
    loop {
        let request = Mem::owned(8 * WORDS);
        let data = Data::bytes(request.clone(), 8 * WORDS as u64);
        let pattern = Pattern::new(context, None, Some(ASK));
        let outcome = port.receive(data, pattern, None).await;
        let [what, by, tag] = [0, 8, 16].map(|at| first(&request.shifted(at)));
        if what == STOP {
            return;
        }
        let old = advance(&place, by);
        let envelope = Envelope {
            context,
            source: comm.rank,
            tag: tag as u32,
        };
        let asker = comm
            .group
            .process(outcome.source)
            .expect("a rank of the file");
        port.send(words(&[old]), asker, envelope).await;
    }
}

fn advance(place: &Mutex<i64>, by: i64) -> i64 {
    let mut place = lock(place);
    let old = *place;
    *place = old.saturating_add(by);
    old
}

fn words(words: &[i64]) -> Data {
    let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_ne_bytes()).collect();
    let length = bytes.len() as u64;
    Data::bytes(Mem::from_vec(bytes), length)
}

fn first(mem: &Mem) -> i64 {
    let mut word = [0; 8];
    mem.read(0, &mut word);
    i64::from_ne_bytes(word)
}

fn lock(place: &Mutex<i64>) -> MutexGuard<'_, i64> {
    place.lock().expect("no panic under this lock")
}
