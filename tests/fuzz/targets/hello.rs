//! What the process at the other end of a socket says while two jobs connect (`MPI_Comm_join`):
//! HELLO, WELCOME, DONE. Whatever it is, the call ends, with a communicator or with an error.
#![no_main]

use std::cell::OnceCell;
use std::io::Write;
use std::net::Shutdown;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;
use margay_core_registry::Facts;
use margay_net_shm::platform;
use margay_net_transport::Thresholds;
use margay_run_dynamic::{Dynamic, DynamicState};
use margay_run_engine::{Limits, Policy, Rank};
use margay_run_mpi::Mpi;
use margay_sys_shm::layout::Sizes;
use margay_sys_shm::segment::Segment;

/// A word of a message: any, or one that only the machine knows, so that the fuzzer gets beyond the
/// first check.
#[derive(Arbitrary, Clone, Copy, Debug)]
enum Word {
    Small(i8),
    Any(i32),
    Hello,
    Welcome,
    Done,
    Refused,
    OwnSegmentLow,
    OwnSegmentHigh,
    OtherSegmentLow,
    OtherSegmentHigh,
    Process,
    OwnDescriptor,
    OtherDescriptor,
}

/// Messages, and bytes behind the last one.
#[derive(Arbitrary, Debug)]
struct Speech {
    messages: Vec<Vec<Word>>,
    rest: Vec<u8>,
    /// A length that is not that of the rest.
    length: Option<u32>,
}

struct Scene {
    own: Arc<Segment>,
    other: Arc<Segment>,
}

impl Scene {
    fn word(&self, word: Word) -> i32 {
        match word {
            Word::Small(n) => n.into(),
            Word::Any(n) => n,
            Word::Hello => 0x4d47_0001,
            Word::Welcome => 0x4d47_0002,
            Word::Done => 0x4d47_0003,
            Word::Refused => 0x4d47_0004,
            Word::OwnSegmentLow => self.own.id() as i32,
            Word::OwnSegmentHigh => (self.own.id() >> 32) as i32,
            Word::OtherSegmentLow => self.other.id() as i32,
            Word::OtherSegmentHigh => (self.other.id() >> 32) as i32,
            Word::Process => std::process::id() as i32,
            Word::OwnDescriptor => self.own.fd().as_raw_fd(),
            Word::OtherDescriptor => self.other.fd().as_raw_fd(),
        }
    }
}

fn segment() -> Arc<Segment> {
    let sizes = Sizes {
        ranks: 2,
        heap_bytes: 16 << 20,
        arena_bytes: 0,
    };
    let segment = Segment::create(sizes).expect("a segment");
    segment.registry().describe(&Facts {
        job: 1,
        cores: 1,
        command: "fuzz".into(),
        ..Facts::default()
    });
    Arc::new(segment)
}

thread_local! {
    static SCENE: OnceCell<Scene> = const { OnceCell::new() };
}

fuzz_target!(|speech: Speech| {
    SCENE.with(|scene| {
        let scene = scene.get_or_init(|| Scene {
            own: segment(),
            other: segment(),
        });
        let (ours, mut theirs) = UnixStream::pair().expect("a pair of sockets");
        let mut bytes = Vec::new();
        for message in &speech.messages {
            bytes.extend((4 * message.len() as u32).to_ne_bytes());
            bytes.extend(
                message
                    .iter()
                    .flat_map(|&word| scene.word(word).to_ne_bytes()),
            );
        }
        if let Some(length) = speech.length {
            bytes.extend(length.to_ne_bytes());
        }
        bytes.extend(&speech.rest);
        // What does not fit into the socket is not said.
        theirs.set_nonblocking(true).expect("a socket");
        let _ = theirs.write(&bytes);
        theirs
            .shutdown(Shutdown::Write)
            .expect("the end of the speech");
        let thresholds = Arc::new(Thresholds::measured());
        // A rank has one sending side over a segment, so each takes part over one of its own.
        let fd = scene.own.fd().try_clone_to_owned().expect("a descriptor");
        let segment = Arc::new(Segment::join(fd).expect("the same memory"));
        let platform = platform(&segment, 0, thresholds, true);
        let rank = Rank::over(platform, Limits::default(), Policy::new(2, 1));
        let mpi = Mpi::new(rank, &[]);
        let state = DynamicState::default();
        if let Err(error) = Dynamic::new(&mpi, &state).comm_join(ours.as_raw_fd()) {
            assert!(!error.to_string().is_empty());
        }
    });
});
