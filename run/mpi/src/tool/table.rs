//! The one definition of every variable, event and category of the tools interface.
//! (`environment.rs` has the environment variables that are none of these.) `docs/mpi.md` is
//! printed from it (`cargo xtask docs`). Names are stable: what a name means does not change, and a
//! variable that goes is not replaced by another of its name.

use std::sync::atomic::{AtomicU64, Ordering};

use margay_run_engine::monitor::{EventKind, Level, Monitor, Protocol, Tunable};

use crate::comm::Traffic;
use crate::constants::tools::*;

/// A group of variables and events.
pub struct Category {
    /// Its name.
    pub name: &'static str,
    /// What it is about.
    pub about: &'static str,
    /// The category that it belongs to; none is the root.
    pub parent: Option<&'static str>,
}

/// The categories, each after its parent.
pub const CATEGORIES: &[Category] = &[
    Category {
        name: "margay",
        about: "All of this library.",
        parent: None,
    },
    Category {
        name: "margay_protocols",
        about: "Which protocol moves a message.",
        parent: Some("margay"),
    },
    Category {
        name: "margay_flow_control",
        about: "What a sender may have outstanding at a receiver.",
        parent: Some("margay"),
    },
    Category {
        name: "margay_waiting",
        about: "How a rank waits: spinning, yielding, sleeping.",
        parent: Some("margay"),
    },
    Category {
        name: "margay_messages",
        about: "Messages sent and received.",
        parent: Some("margay"),
    },
    Category {
        name: "margay_queues",
        about: "Posted receives and unexpected messages.",
        parent: Some("margay"),
    },
    Category {
        name: "margay_communicators",
        about: "Use of one communicator.",
        parent: Some("margay"),
    },
    Category {
        name: "margay_job",
        about: "Facts about the job.",
        parent: Some("margay"),
    },
    Category {
        name: "margay_tools",
        about: "The tools interface itself.",
        parent: Some("margay"),
    },
];

/// Named values of a variable.
pub struct Enumeration {
    /// Its name.
    pub name: &'static str,
    /// Values and their names.
    pub items: &'static [(i32, &'static str)],
}

/// The enumerations.
pub const ENUMERATIONS: &[Enumeration] = &[
    Enumeration {
        name: "margay_switch",
        items: &[(0, "off"), (1, "on")],
    },
    Enumeration {
        name: "margay_rank_state",
        items: &[(0, "outside"), (1, "running"), (2, "asleep")],
    },
];

/// Where a control variable's value lives.
#[derive(Clone, Copy)]
pub enum Setting {
    /// In the engine, a number between two bounds.
    Tunable(Tunable, u64, u64),
    /// The progress thread.
    ProgressThread,
    /// Room for events.
    EventRoom,
    /// A fact.
    Fact(fn(&Monitor) -> u64),
}

/// A control variable.
pub struct Control {
    /// Its name.
    pub name: &'static str,
    /// The environment variable that sets it before the start.
    pub environment: Option<&'static str>,
    /// What it is, with its unit.
    pub about: &'static str,
    /// Its category.
    pub category: &'static str,
    /// One of `MPI_T_VERBOSITY_*`.
    pub verbosity: i32,
    /// One of `MPI_T_SCOPE_*`.
    pub scope: i32,
    /// Index of the enumeration of its values; those without are `unsigned long long`, those with
    /// `int`.
    pub enumeration: Option<usize>,
    /// Where its value lives.
    pub setting: Setting,
}

/// Longest message for which a receiver's memory may be used without asking.
const MOST_EAGER: u64 = 1 << 30;
const MOST_BYTES: u64 = 1 << 60;
const PAGE: u64 = 4096;
/// The largest number whose nanoseconds fit 64 bits.
const MOST_SECONDS: u64 = 1 << 32;

/// The control variables.
pub const CONTROLS: &[Control] = &[
    Control {
        name: "margay_eager_limit",
        environment: Some("MARGAY_EAGER_LIMIT"),
        about: "Longest message in bytes that is sent eagerly.",
        category: "margay_protocols",
        verbosity: MPI_T_VERBOSITY_TUNER_BASIC,
        scope: MPI_T_SCOPE_LOCAL,
        enumeration: None,
        setting: Setting::Tunable(Tunable::Eager, 0, MOST_EAGER),
    },
    Control {
        name: "margay_attach_limit",
        environment: Some("MARGAY_ATTACH_LIMIT"),
        about: "Shortest message in bytes that is copied directly by cross-memory attach. The default depends on the processor.",
        category: "margay_protocols",
        verbosity: MPI_T_VERBOSITY_TUNER_BASIC,
        scope: MPI_T_SCOPE_LOCAL,
        enumeration: None,
        setting: Setting::Tunable(Tunable::Attach, 1, MOST_BYTES),
    },
    Control {
        name: "margay_arena_limit",
        environment: Some("MARGAY_ARENA_LIMIT"),
        about: "Shortest message in bytes that the receiver copies directly when the sender's buffer is memory of MPI_Alloc_mem.",
        category: "margay_protocols",
        verbosity: MPI_T_VERBOSITY_TUNER_DETAIL,
        scope: MPI_T_SCOPE_LOCAL,
        enumeration: None,
        setting: Setting::Tunable(Tunable::Arena, 1, MOST_BYTES),
    },
    Control {
        name: "margay_arena_end",
        environment: Some("MARGAY_ARENA_END"),
        about: "Shortest message in bytes that both sides copy when the sender's buffer is memory of MPI_Alloc_mem, if the system allows cross-memory attach.",
        category: "margay_protocols",
        verbosity: MPI_T_VERBOSITY_TUNER_DETAIL,
        scope: MPI_T_SCOPE_LOCAL,
        enumeration: None,
        setting: Setting::Tunable(Tunable::ArenaEnd, 1, MOST_BYTES),
    },
    Control {
        name: "margay_part_limit",
        environment: Some("MARGAY_PART_LIMIT"),
        about: "Longest part in bytes of a message that the sender or the receiver copies at a time.",
        category: "margay_protocols",
        verbosity: MPI_T_VERBOSITY_TUNER_DETAIL,
        scope: MPI_T_SCOPE_LOCAL,
        enumeration: None,
        setting: Setting::Tunable(Tunable::Part, PAGE, MOST_BYTES),
    },
    Control {
        name: "margay_fabric_limit",
        environment: Some("MARGAY_FABRIC_LIMIT"),
        about: "Shortest message in bytes that its receiver reads out of the sender's memory through libfabric, where the provider can.",
        category: "margay_protocols",
        verbosity: MPI_T_VERBOSITY_TUNER_DETAIL,
        scope: MPI_T_SCOPE_LOCAL,
        enumeration: None,
        setting: Setting::Tunable(Tunable::Fabric, 1, MOST_BYTES),
    },
    Control {
        name: "margay_credits",
        environment: Some("MARGAY_CREDITS"),
        about: "Credits in messages: eager messages that may be unmatched at one receiver. Later messages use the rendezvous protocol. The value should be the same on all ranks, because a receiver returns credits after each quarter of it.",
        category: "margay_flow_control",
        verbosity: MPI_T_VERBOSITY_TUNER_DETAIL,
        scope: MPI_T_SCOPE_ALL,
        enumeration: None,
        setting: Setting::Tunable(Tunable::Credits, 0, u32::MAX as u64),
    },
    Control {
        name: "margay_credit_bytes",
        environment: Some("MARGAY_CREDIT_BYTES"),
        about: "Credits in bytes: bytes of eager messages that may be unmatched at one receiver. The value should be the same on all ranks.",
        category: "margay_flow_control",
        verbosity: MPI_T_VERBOSITY_TUNER_DETAIL,
        scope: MPI_T_SCOPE_ALL,
        enumeration: None,
        setting: Setting::Tunable(Tunable::CreditBytes, 0, MOST_EAGER),
    },
    Control {
        name: "margay_send_buffer",
        environment: Some("MARGAY_SEND_BUFFER"),
        about: "Bytes of messages up to the eager limit that a rank keeps in its own memory for receivers without room, so that their sends complete. Each message counts 256 bytes besides its own. 0: such sends wait for the receiver.",
        category: "margay_flow_control",
        verbosity: MPI_T_VERBOSITY_TUNER_BASIC,
        scope: MPI_T_SCOPE_LOCAL,
        enumeration: None,
        setting: Setting::Tunable(Tunable::SendBuffer, 0, MOST_BYTES),
    },
    Control {
        name: "margay_wait_spins",
        environment: Some("MARGAY_WAIT_SPINS"),
        about: "Spins of a waiting rank before it pauses, yields or sleeps. The default is high where every rank has a core, else 1.",
        category: "margay_waiting",
        verbosity: MPI_T_VERBOSITY_TUNER_BASIC,
        scope: MPI_T_SCOPE_LOCAL,
        enumeration: None,
        setting: Setting::Tunable(Tunable::Spins, 1, 1 << 31),
    },
    Control {
        name: "margay_wait_yield_after",
        environment: Some("MARGAY_WAIT_YIELD_AFTER"),
        about: "Nanoseconds of waiting after which a rank yields its core between polls. 0: at once; then calls such as MPI_Test yield, too.",
        category: "margay_waiting",
        verbosity: MPI_T_VERBOSITY_TUNER_BASIC,
        scope: MPI_T_SCOPE_LOCAL,
        enumeration: None,
        setting: Setting::Tunable(Tunable::YieldAfter, 0, MOST_BYTES),
    },
    Control {
        name: "margay_wait_sleep_after",
        environment: Some("MARGAY_WAIT_SLEEP_AFTER"),
        about: "Nanoseconds of waiting after which a rank sleeps until something arrives.",
        category: "margay_waiting",
        verbosity: MPI_T_VERBOSITY_TUNER_BASIC,
        scope: MPI_T_SCOPE_LOCAL,
        enumeration: None,
        setting: Setting::Tunable(Tunable::SleepAfter, 0, MOST_BYTES),
    },
    Control {
        name: "margay_progress_thread",
        environment: Some("MARGAY_PROGRESS_THREAD"),
        about: "Whether a thread of the rank moves messages while the program computes. It pays for long nonblocking operations when cores are free. Can be set before MPI is initialized.",
        category: "margay_waiting",
        verbosity: MPI_T_VERBOSITY_USER_BASIC,
        scope: MPI_T_SCOPE_LOCAL,
        enumeration: Some(0),
        setting: Setting::ProgressThread,
    },
    Control {
        name: "margay_connect_timeout",
        environment: Some("MARGAY_CONNECT_TIMEOUT"),
        about: "Seconds after which MPI_Comm_connect and MPI_Comm_accept fail with MPI_ERR_PORT when the other side does not come; 0: never. The info key timeout takes precedence.",
        category: "margay_waiting",
        verbosity: MPI_T_VERBOSITY_USER_BASIC,
        scope: MPI_T_SCOPE_LOCAL,
        enumeration: None,
        setting: Setting::Tunable(Tunable::ConnectTimeout, 0, MOST_SECONDS),
    },
    Control {
        name: "margay_event_room",
        environment: Some("MARGAY_EVENT_ROOM"),
        about: "Number of events that are kept until the end of the call in which they happen. Further events are dropped.",
        category: "margay_tools",
        verbosity: MPI_T_VERBOSITY_TUNER_DETAIL,
        scope: MPI_T_SCOPE_LOCAL,
        enumeration: None,
        setting: Setting::EventRoom,
    },
    Control {
        name: "margay_short_bytes",
        environment: None,
        about: "Longest message in bytes that fits into one cache line.",
        category: "margay_protocols",
        verbosity: MPI_T_VERBOSITY_TUNER_ALL,
        scope: MPI_T_SCOPE_CONSTANT,
        enumeration: None,
        setting: Setting::Fact(|_| margay_run_engine::SHORT as u64),
    },
    Control {
        name: "margay_whole_bytes",
        environment: None,
        about: "Longest message in bytes that fits into one packet.",
        category: "margay_protocols",
        verbosity: MPI_T_VERBOSITY_TUNER_ALL,
        scope: MPI_T_SCOPE_CONSTANT,
        enumeration: None,
        setting: Setting::Fact(|_| margay_run_engine::WHOLE as u64),
    },
    Control {
        name: "margay_usable_cores",
        environment: None,
        about: "Number of cores that the process may use, by affinity mask and CPU quota.",
        category: "margay_job",
        verbosity: MPI_T_VERBOSITY_USER_DETAIL,
        scope: MPI_T_SCOPE_READONLY,
        enumeration: None,
        setting: Setting::Fact(|_| margay_sys_os::cpu::usable_cores() as u64),
    },
];

/// How a performance variable gets its value.
#[derive(Clone, Copy)]
pub enum Measure {
    /// Grows from the start of the process; a handle counts while it is started.
    Sum(fn(&Monitor) -> u64),
    /// As `Sum`, of a communicator.
    CommSum(fn(&Traffic) -> &AtomicU64),
    /// Is what it is at the time of reading.
    Now(fn(&Monitor) -> u64),
    /// A share from 0 to 1.
    Share(fn(&Monitor) -> f64),
    /// One of the values of an enumeration.
    State(fn(&Monitor) -> i32),
    /// The highest that a level was while the handle was started.
    Peak(Level),
}

/// A performance variable.
pub struct Performance {
    /// Its name.
    pub name: &'static str,
    /// What it is, with its unit.
    pub about: &'static str,
    /// Its category.
    pub category: &'static str,
    /// One of `MPI_T_VERBOSITY_*`.
    pub verbosity: i32,
    /// One of `MPI_T_PVAR_CLASS_*`.
    pub class: i32,
    /// Index of the enumeration of its values.
    pub enumeration: Option<usize>,
    /// How it gets its value.
    pub measure: Measure,
}

impl Performance {
    /// Whether it always runs, so that it can be neither started nor stopped, nor written.
    #[must_use]
    pub fn is_continuous(&self) -> bool {
        matches!(
            self.measure,
            Measure::Now(_) | Measure::Share(_) | Measure::State(_)
        )
    }

    /// Whether it is of a communicator.
    #[must_use]
    pub fn is_of_comm(&self) -> bool {
        matches!(self.measure, Measure::CommSum(_))
    }
}

fn get(value: &AtomicU64) -> u64 {
    value.load(Ordering::Relaxed)
}

const fn row(
    name: &'static str,
    about: &'static str,
    category: &'static str,
    class: i32,
    measure: Measure,
) -> Performance {
    Performance {
        name,
        about,
        category,
        verbosity: MPI_T_VERBOSITY_USER_DETAIL,
        class,
        enumeration: None,
        measure,
    }
}

const COUNTER: i32 = MPI_T_PVAR_CLASS_COUNTER;
const AGGREGATE: i32 = MPI_T_PVAR_CLASS_AGGREGATE;
const TIMER: i32 = MPI_T_PVAR_CLASS_TIMER;
const LEVEL: i32 = MPI_T_PVAR_CLASS_LEVEL;

/// The performance variables.
#[rustfmt::skip]
pub const PERFORMANCE: &[Performance] = &[
    row("margay_messages_sent", "Messages sent, including those of collective operations that use messages.", "margay_messages", COUNTER, Measure::Sum(|m| m.counters.sent_in_all().0)),
    row("margay_bytes_sent", "Their bytes.", "margay_messages", AGGREGATE, Measure::Sum(|m| m.counters.sent_in_all().1)),
    row("margay_messages_received", "Messages that were matched with a receive.", "margay_messages", COUNTER, Measure::Sum(|m| get(&m.counters.received.messages))),
    row("margay_bytes_received", "Their bytes, including truncated ones.", "margay_messages", AGGREGATE, Measure::Sum(|m| get(&m.counters.received.bytes))),
    row("margay_requests_ended", "Requests of the engine that were completed: nonblocking operations, and blocking ones that had to wait.", "margay_messages", COUNTER, Measure::Sum(|m| get(&m.counters.ended))),
    row("margay_whole_messages_sent", "Eager messages sent in one packet.", "margay_protocols", COUNTER, Measure::Sum(|m| get(&m.counters.sent(Protocol::Whole).messages))),
    row("margay_whole_bytes_sent", "Their bytes.", "margay_protocols", AGGREGATE, Measure::Sum(|m| get(&m.counters.sent(Protocol::Whole).bytes))),
    row("margay_fragmented_messages_sent", "Eager messages sent in several packets.", "margay_protocols", COUNTER, Measure::Sum(|m| get(&m.counters.sent(Protocol::Fragments).messages))),
    row("margay_fragmented_bytes_sent", "Their bytes.", "margay_protocols", AGGREGATE, Measure::Sum(|m| get(&m.counters.sent(Protocol::Fragments).bytes))),
    row("margay_direct_messages_sent", "Rendezvous messages that were copied directly.", "margay_protocols", COUNTER, Measure::Sum(|m| get(&m.counters.sent(Protocol::Direct).messages))),
    row("margay_direct_bytes_sent", "Their bytes.", "margay_protocols", AGGREGATE, Measure::Sum(|m| get(&m.counters.sent(Protocol::Direct).bytes))),
    row("margay_streamed_messages_sent", "Rendezvous messages that were sent in packets.", "margay_protocols", COUNTER, Measure::Sum(|m| get(&m.counters.sent(Protocol::Streamed).messages))),
    row("margay_streamed_bytes_sent", "Their bytes.", "margay_protocols", AGGREGATE, Measure::Sum(|m| get(&m.counters.sent(Protocol::Streamed).bytes))),
    row("margay_out_of_credits", "Short messages that used the rendezvous protocol because no credits were left.", "margay_flow_control", COUNTER, Measure::Sum(|m| get(&m.counters.out_of_credits))),
    row("margay_unexpected_messages", "Messages that arrived before their receive was posted.", "margay_queues", COUNTER, Measure::Sum(|m| get(&m.counters.unexpected.messages))),
    row("margay_unexpected_bytes", "Their bytes.", "margay_queues", AGGREGATE, Measure::Sum(|m| get(&m.counters.unexpected.bytes))),
    row("margay_unexpected_share", "Share of all messages since the start that arrived before their receive was posted.", "margay_queues", MPI_T_PVAR_CLASS_PERCENTAGE, Measure::Share(unexpected_share)),
    row("margay_match_attempts", "Searches of a queue for a message or a posted receive that matches.", "margay_queues", COUNTER, Measure::Sum(|m| get(&m.counters.match_attempts))),
    row("margay_unexpected_queue_length", "Current length of the queue of unexpected messages.", "margay_queues", LEVEL, Measure::Now(|m| m.counters.level(Level::Unexpected))),
    row("margay_posted_queue_length", "Current length of the queue of posted receives.", "margay_queues", LEVEL, Measure::Now(|m| m.counters.level(Level::Posted))),
    row("margay_unexpected_queue_peak", "Greatest length of the queue of unexpected messages.", "margay_queues", MPI_T_PVAR_CLASS_HIGHWATERMARK, Measure::Peak(Level::Unexpected)),
    row("margay_posted_queue_peak", "Greatest length of the queue of posted receives.", "margay_queues", MPI_T_PVAR_CLASS_HIGHWATERMARK, Measure::Peak(Level::Posted)),
    row("margay_waits", "Waits that lasted longer than the first spins.", "margay_waiting", COUNTER, Measure::Sum(|m| get(&m.waiting.waits))),
    row("margay_wait_time", "Nanoseconds in these waits, without the first eight yields of each where ranks outnumber cores.", "margay_waiting", TIMER, Measure::Sum(|m| get(&m.waiting.wait_ns))),
    row("margay_yields", "Number of yields while waiting.", "margay_waiting", COUNTER, Measure::Sum(|m| get(&m.waiting.yields))),
    row("margay_sleeps", "Number of times that a thread went to sleep while waiting.", "margay_waiting", COUNTER, Measure::Sum(|m| get(&m.waiting.sleeps))),
    row("margay_sleep_time", "Nanoseconds asleep.", "margay_waiting", TIMER, Measure::Sum(|m| get(&m.waiting.sleep_ns))),
    Performance { enumeration: Some(1), ..row("margay_rank_state", "Whether the rank is outside of MPI (not initialized or finalized), running, or has a thread asleep in a call.", "margay_waiting", MPI_T_PVAR_CLASS_STATE, Measure::State(|m| m.state())) },
    row("margay_event_room_size", "Number of events that are kept until the end of a call.", "margay_tools", MPI_T_PVAR_CLASS_SIZE, Measure::Now(|m| m.events.room())),
    row("margay_comm_messages_sent", "Point-to-point messages sent on the communicator.", "margay_communicators", COUNTER, Measure::CommSum(|t| &t.messages)),
    row("margay_comm_bytes_sent", "Their bytes.", "margay_communicators", AGGREGATE, Measure::CommSum(|t| &t.bytes)),
    row("margay_comm_collectives", "Collective operations started on the communicator, including those of the library itself.", "margay_communicators", COUNTER, Measure::CommSum(|t| &t.collectives)),
];

fn unexpected_share(monitor: &Monitor) -> f64 {
    let unexpected = get(&monitor.counters.unexpected.messages);
    let received = get(&monitor.counters.received.messages);
    let all = received + monitor.counters.level(Level::Unexpected);
    if all == 0 {
        0.0
    } else {
        (unexpected as f64 / all as f64).min(1.0)
    }
}

/// The type of an event's element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Element {
    /// `int`
    Int,
    /// `unsigned long long`
    Number,
}

impl Element {
    /// Bytes.
    #[must_use]
    pub fn size(self) -> usize {
        match self {
            Element::Int => 4,
            Element::Number => 8,
        }
    }
}

/// A type of event.
pub struct EventType {
    /// Its name.
    pub name: &'static str,
    /// What happened.
    pub about: &'static str,
    /// Its category.
    pub category: &'static str,
    /// What the engine calls it.
    pub kind: EventKind,
    /// Its elements.
    pub elements: &'static [(&'static str, Element)],
}

/// The types of events.
pub const EVENTS: &[EventType] = &[
    EventType {
        name: "margay_message_unexpected",
        about: "A message arrived before its receive was posted: source rank in its communicator, tag, context number, bytes.",
        category: "margay_queues",
        kind: EventKind::MessageUnexpected,
        elements: &[
            ("source", Element::Int),
            ("tag", Element::Int),
            ("context", Element::Int),
            ("bytes", Element::Number),
        ],
    },
    EventType {
        name: "margay_request_ended",
        about: "A request of the engine was completed: kind (0 send, 1 receive, 2 collective, 3 other), source, tag, bytes.",
        category: "margay_messages",
        kind: EventKind::RequestEnded,
        elements: &[
            ("kind", Element::Int),
            ("source", Element::Int),
            ("tag", Element::Int),
            ("bytes", Element::Number),
        ],
    },
    EventType {
        name: "margay_sleep",
        about: "A waiting thread went to sleep: nanoseconds that it had waited.",
        category: "margay_waiting",
        kind: EventKind::Sleep,
        elements: &[("waited", Element::Number)],
    },
    EventType {
        name: "margay_wake",
        about: "A thread woke up: nanoseconds that it slept.",
        category: "margay_waiting",
        kind: EventKind::Wake,
        elements: &[("slept", Element::Number)],
    },
    EventType {
        name: "margay_out_of_credits",
        about: "A short message uses the rendezvous protocol because no credits are left: rank of the receiver in MPI_COMM_WORLD, bytes of the message.",
        category: "margay_flow_control",
        kind: EventKind::OutOfCredits,
        elements: &[("receiver", Element::Int), ("bytes", Element::Number)],
    },
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn names_are_unique_and_categories_exist() {
        let mut names = BTreeSet::new();
        let all = CONTROLS.iter().map(|c| c.name);
        for name in all.chain(EVENTS.iter().map(|e| e.name)) {
            assert!(names.insert(name), "{name}");
        }
        let mut names = BTreeSet::new();
        for p in PERFORMANCE {
            assert!(names.insert(p.name), "{}", p.name);
        }
        let known: BTreeSet<_> = CATEGORIES.iter().map(|c| c.name).collect();
        let used = CONTROLS.iter().map(|c| c.category);
        let used = used.chain(PERFORMANCE.iter().map(|p| p.category));
        for name in used.chain(EVENTS.iter().map(|e| e.category)) {
            assert!(known.contains(name), "{name}");
        }
        for (i, category) in CATEGORIES.iter().enumerate() {
            let before = &CATEGORIES[..i];
            let parent = category.parent;
            assert!(parent.is_none_or(|p| before.iter().any(|c| c.name == p)));
        }
    }

    #[test]
    fn classes_fit_what_is_measured() {
        for p in PERFORMANCE {
            let fits = match p.measure {
                Measure::Sum(_) | Measure::CommSum(_) => {
                    [COUNTER, AGGREGATE, TIMER].contains(&p.class)
                }
                Measure::Now(_) => [LEVEL, MPI_T_PVAR_CLASS_SIZE].contains(&p.class),
                Measure::Share(_) => p.class == MPI_T_PVAR_CLASS_PERCENTAGE,
                Measure::State(_) => p.class == MPI_T_PVAR_CLASS_STATE && p.enumeration.is_some(),
                Measure::Peak(_) => p.class == MPI_T_PVAR_CLASS_HIGHWATERMARK,
            };
            assert!(fits, "{}", p.name);
        }
    }
}
