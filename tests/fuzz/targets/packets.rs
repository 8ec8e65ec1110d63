//! Packets that a peer sends, in any order and of any content, between calls of the program.
//! Whatever arrives, the engine stays in order: it neither panics nor asks for memory that nobody
//! has sent.
#![no_main]

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;
use margay_net_platform::Platform;
use margay_net_seeded::Conditions;
use margay_net_transport::{Advance, Head, Packet, Sink, Ticket, Transport, WakeUp};
use margay_run_engine::{Data, Envelope, Limits, Mode, MsgId, Pattern, Policy, Rank, ReqId};
use margay_sys_os::user::Mem;

const RANKS: u32 = 3;

#[derive(Arbitrary, Clone, Debug)]
struct Parcel {
    from: u8,
    kind: u8,
    context: u8,
    source: u8,
    tag: u8,
    word: u32,
    args: [u64; 2],
    /// Numbers, as control packets have them, and then bytes.
    numbers: Vec<u64>,
    bytes: Vec<u8>,
}

#[derive(Arbitrary, Debug)]
enum Step {
    Packet(Parcel),
    Small {
        from: u8,
        kind: u8,
        word: u8,
        args: [u8; 2],
        numbers: [u8; 5],
    },
    Send {
        bytes: u16,
        to: u8,
        tag: u8,
        is_synchronous: bool,
    },
    Receive {
        bytes: u16,
        from: Option<u8>,
        tag: Option<u8>,
    },
    Probe,
    Take {
        bytes: u16,
    },
    Cancel(u8),
    Test(u8),
    Revoke(u8),
    Full(bool),
    Direct(u8),
    Progress,
}

/// What the transport will say, and what it has to deliver.
#[derive(Default)]
struct Wire {
    parcels: VecDeque<Parcel>,
    is_full: bool,
    direct: u8,
    tickets: u32,
}

struct Fake(Arc<Mutex<Wire>>);

impl Fake {
    fn wire(&self) -> std::sync::MutexGuard<'_, Wire> {
        self.0.lock().expect("no panic under this lock")
    }

    fn ticket(&self, when: u8) -> Option<Ticket> {
        let mut wire = self.wire();
        (wire.direct & when != 0).then(|| {
            wire.tickets += 1;
            Ticket(wire.tickets)
        })
    }
}

struct Silent;

impl WakeUp for Silent {
    fn pause(&self) {}
    fn yield_core(&self) {}
    fn sleep(&self, _: u64, _: &mut dyn FnMut() -> bool) {}
    fn wake_own(&self) {}
}

impl Transport for Fake {
    fn me(&self) -> u32 {
        0
    }

    fn size(&self) -> u32 {
        RANKS
    }

    fn send(&mut self, _: u32, _: Head, _: &[u8]) -> bool {
        !self.wire().is_full
    }

    fn send_fragment(
        &mut self,
        _: u32,
        _: Head,
        _: [u64; 2],
        len: usize,
        fill: &mut dyn FnMut(&mut [u8]),
    ) -> bool {
        let room = !self.wire().is_full;
        if room {
            fill(&mut vec![0; len]);
        }
        room
    }

    fn fragment(&self, _to: u32, remaining: u64) -> usize {
        remaining.min(1000) as usize
    }

    fn poll(&mut self, sink: &mut dyn Sink, _: u32) -> bool {
        let parcels = std::mem::take(&mut self.wire().parcels);
        let any = !parcels.is_empty();
        for parcel in parcels {
            let head = Head {
                kind: parcel.kind % 14,
                context: (parcel.context % 4).into(),
                source: (parcel.source % 4).into(),
                tag: (parcel.tag % 4).into(),
                word: parcel.word,
            };
            let mut payload: Vec<u8> = parcel
                .numbers
                .iter()
                .flat_map(|n| n.to_ne_bytes())
                .collect();
            payload.extend(&parcel.bytes);
            let from = u32::from(parcel.from) % RANKS;
            // A transport that can writes to where the bytes shall go.
            if parcel.args[1] & 1 == 1
                && let Some(place) = sink.destination(from, &head, payload.len())
            {
                place.mem.write(place.offset, &payload);
                sink.landed(from, &head, payload.len());
                continue;
            }
            sink.packet(
                from,
                Packet {
                    head,
                    args: parcel.args,
                    payload: &payload,
                },
            );
        }
        any
    }

    fn offer(&mut self, _: u32, _: &Mem, _: i64, _: u64) -> Option<(Ticket, [u64; 3])> {
        self.ticket(1).map(|ticket| (ticket, [0; 3]))
    }

    fn accept(&mut self, _: u32, _: [u64; 3], _: &Mem, _: i64, _: u64) -> Option<Ticket> {
        self.ticket(2)
    }

    fn advance(&mut self, _: Ticket) -> Advance {
        match self.wire().direct >> 2 & 3 {
            0 => Advance::Pending(false),
            1 => Advance::Done,
            2 => Advance::Refused,
            _ => Advance::Pending(true),
        }
    }

    fn withdraw(&mut self, _: Ticket) {}

    fn alloc_shared(&mut self, _: u64) -> Option<usize> {
        None
    }

    fn free_shared(&mut self, _: usize) -> bool {
        false
    }
}

/// What the rank stands on: the registry and the clock of a model of three ranks, this transport,
/// and nobody to wake.
fn platform(wire: &Arc<Mutex<Wire>>) -> Platform {
    let model = margay_net_seeded::world(RANKS, 0, Conditions::of(0));
    let mut platform = model.into_iter().next().expect("rank 0");
    platform.transport = Box::new(Fake(wire.clone()));
    platform.wake_up = Arc::new(Silent);
    platform
}

fn data(bytes: u16) -> Data {
    let bytes = usize::from(bytes % 5000);
    Data::bytes(Mem::owned(bytes), bytes as u64)
}

fn pick<T: Copy>(all: &[T], which: u8) -> Option<T> {
    (!all.is_empty()).then(|| all[usize::from(which) % all.len()])
}

fuzz_target!(|steps: Vec<Step>| {
    let wire = Arc::new(Mutex::new(Wire::default()));
    let limits = Limits {
        eager: 3000,
        credits: 8,
        credit_bytes: 8000,
        send_buffer: 4000,
    };
    let rank = Rank::over(platform(&wire), limits, Policy::new(2, 1));
    let mut requests: Vec<ReqId> = Vec::new();
    let mut taken: Vec<MsgId> = Vec::new();
    let any = Pattern::new(0, None, None);
    let change = |f: &dyn Fn(&mut Wire)| f(&mut wire.lock().expect("no panic under this lock"));
    for step in steps.iter().take(64) {
        match step {
            Step::Packet(parcel) => change(&|wire| wire.parcels.push_back(parcel.clone())),
            Step::Small {
                from,
                kind,
                word,
                args,
                numbers,
            } => {
                let parcel = Parcel {
                    from: *from,
                    kind: *kind,
                    context: 0,
                    source: *from,
                    tag: 0,
                    word: (*word).into(),
                    args: args.map(u64::from),
                    numbers: numbers.map(u64::from).to_vec(),
                    bytes: Vec::new(),
                };
                change(&|wire| wire.parcels.push_back(parcel.clone()));
            }
            Step::Send {
                bytes,
                to,
                tag,
                is_synchronous,
            } => {
                let mode = if *is_synchronous {
                    Mode::Synchronous
                } else {
                    Mode::Standard
                };
                let envelope = Envelope {
                    context: 0,
                    source: 0,
                    tag: (tag % 4).into(),
                };
                requests.push(rank.isend(mode, data(*bytes), u32::from(*to) % RANKS, envelope));
            }
            Step::Receive { bytes, from, tag } => {
                let from = from.map(|from| u32::from(from) % RANKS);
                let pattern = Pattern::new(0, from, tag.map(|tag| (tag % 4).into()));
                requests.push(rank.irecv(data(*bytes), pattern, from));
            }
            Step::Probe => drop(rank.iprobe(any)),
            Step::Take { bytes } => match taken.pop() {
                Some(message) => requests.push(rank.imrecv(message, data(*bytes))),
                None => taken.extend(rank.improbe(any).map(|(message, _)| message)),
            },
            Step::Cancel(which) => {
                if let Some(id) = pick(&requests, *which) {
                    rank.cancel(id);
                }
            }
            Step::Test(which) => {
                if let Some(id) = pick(&requests, *which)
                    && rank.test(id).is_some()
                {
                    requests.retain(|other| *other != id);
                }
            }
            Step::Revoke(number) => rank.revoke((number % 2).into()),
            Step::Full(is_full) => change(&|wire| wire.is_full = *is_full),
            Step::Direct(how) => change(&|wire| wire.direct = *how),
            Step::Progress => drop(rank.progress()),
        }
    }
    rank.progress();
});
