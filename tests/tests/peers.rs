//! Ranks that know each other through a registry which is not the segment's: simulated hosts,
//! deaths and clocks over the seeded transport, no memory of theirs shared by processes. What works
//! here, in engine, MPI, NX and the launcher's reports, does not reach round the registry.

use std::sync::Arc;

use margay_core_registry::markers::{self, Row};
use margay_core_registry::{Locality, Phase, WaitKind};
use margay_job_observe::posted::Posted;
use margay_job_observe::state::analysis;
use margay_job_observe::words::state_in_words;
use margay_net_platform::{Peers, Platform};
use margay_net_seeded::{Conditions, Model, world_on};
use margay_run_engine::{Data, Envelope, Failed, Limits, Mode, Pattern, Policy, Rank};
use margay_run_mpi::Mpi;
use margay_run_nx::Nx;
use margay_sys_os::user::Mem;

/// Four ranks on two hosts.
const HOSTS: [u32; 4] = [0, 0, 1, 1];

fn ranks(seed: u64) -> (Arc<Model>, Vec<Rank>) {
    let (model, platforms) = world_on(&HOSTS, seed, Conditions::of(seed));
    let rank = |platform: Platform| Rank::over(platform, Limits::default(), Policy::new(4, 1));
    (model, platforms.into_iter().map(rank).collect())
}

fn receive(rank: &Rank, from: u32, tag: u32) -> Option<Failed> {
    let data = Data::bytes(Mem::owned(8), 8);
    let pattern = Pattern::new(0, Some(from), Some(tag));
    rank.recv(data, pattern, Some(from)).failed
}

fn send(rank: &Rank, to: u32, tag: u32) {
    let envelope = Envelope {
        context: 0,
        source: rank.world_rank(),
        tag,
    };
    let data = Data::bytes(Mem::from_vec(vec![1; 8]), 8);
    assert_eq!(rank.send(Mode::Standard, &data, to, envelope), None);
}

/// Lets other ranks run until `is_true`; the clock of a seeded world goes on meanwhile.
fn until(rank: &Rank, is_true: impl Fn() -> bool) {
    while !is_true() {
        rank.progress();
        rank.yield_core();
    }
}

#[test]
fn identities_hosts_and_clocks_are_the_registrys() {
    let (model, ranks) = ranks(1);
    for (rank, host) in ranks.iter().zip(HOSTS) {
        let me = rank.world_rank();
        assert_eq!(rank.peers().host(me), host);
        assert_eq!(rank.peers().cores(), 1);
        assert!(rank.common_memory().is_none() && rank.outside().is_none());
        // A host's clock is a second ahead of that of the host before.
        assert_eq!(rank.clock().now_ns() / 1_000_000_000, u64::from(host));
        rank.set_phase(Phase::Running);
        assert_eq!(model.phase(me), Phase::Running);
    }
    assert_eq!(model.locality(0, 1), Locality::Host);
    assert_eq!(model.locality(1, 2), Locality::Remote);
    ranks[2].wake_peer(0);
    assert_eq!(model.wakes(), 1);
}

#[test]
fn a_dead_rank_fails_what_waits_for_it_and_nothing_else() {
    for seed in 0..50 {
        let (model, ranks) = ranks(seed);
        std::thread::scope(|scope| {
            let model = &model;
            for rank in ranks {
                scope.spawn(move || match rank.world_rank() {
                    0 => {
                        send(&rank, 2, 5);
                        // It is dead by then, without having sent.
                        assert_eq!(receive(&rank, 1, 5), Some(Failed::Process), "seed {seed}");
                        assert_eq!(receive(&rank, 2, 5), None, "seed {seed}");
                    }
                    1 => {
                        let before = rank.clock().now_ns();
                        until(&rank, || rank.clock().now_ns() > before + 50_000);
                        model.kill(1);
                    }
                    2 => {
                        assert_eq!(receive(&rank, 0, 5), None);
                        send(&rank, 0, 5);
                        rank.drain();
                    }
                    _ => {}
                });
            }
        });
        assert_eq!(model.failures(), 1);
        assert!(model.has_failed(1) && !model.has_failed(0));
    }
}

#[test]
fn waits_are_seen_by_the_search_for_deadlocks() {
    let (model, ranks) = ranks(7);
    std::thread::scope(|scope| {
        let model = &model;
        for rank in ranks {
            scope.spawn(move || {
                let me = rank.world_rank();
                rank.set_phase(Phase::Running);
                let call = margay_core_registry::call_name("MPI_Recv");
                rank.note_call(&call);
                match me {
                    // 0 and 1 wait for each other, until 3 has seen it and dies for them.
                    0 | 1 => {
                        let failed = receive(&rank, 1 - me, 9);
                        assert_eq!(failed, Some(Failed::Process));
                    }
                    3 => {
                        let waits = |r: u32| model.waits(r).first();
                        until(&rank, || waits(0).is_some() && waits(1).is_some());
                        let wait = waits(0).expect("it waits");
                        assert_eq!((wait.kind, wait.peer), (WaitKind::Receive, Some(1)));
                        assert_eq!(wait.tag, Some(9));
                        assert_ne!(wait.thread, waits(1).expect("it waits").thread);
                        let now_ns = wait.since_ns + 2_000_000_000;
                        // Another thread of rank 1 may send what 0 waits for.
                        model.set_computes(1, true);
                        assert_eq!(analysis(&**model, now_ns).lines(), [""; 0]);
                        model.set_computes(1, false);
                        let found = analysis(&**model, now_ns);
                        assert_eq!(found.cycles, [[0, 1]]);
                        assert_eq!(
                            state_in_words(&**model, &Posted::default(), 0, now_ns),
                            "waiting in MPI_Recv for rank 1, tag 9"
                        );
                        model.kill(0);
                        model.kill(1);
                    }
                    _ => {}
                }
            });
        }
    });
    assert_eq!(model.waits(0).listed, [], "a wait that is over is gone");
}

#[test]
fn mpi_and_nx_ask_the_registry() {
    let (model, ranks) = ranks(3);
    for rank in ranks {
        let me = rank.world_rank();
        // NX keeps its rank for good.
        let mpi: &'static Mpi = Box::leak(Box::new(Mpi::new(rank, &[])));
        let psets = mpi.psets();
        let members = |name: &str| {
            let found = psets.iter().find(|(known, _)| known == name);
            let (_, group) = found.unwrap_or_else(|| panic!("no {name}"));
            group.processes().collect::<Vec<u32>>()
        };
        assert_eq!(members("margay://host/host-0"), [0, 1]);
        assert_eq!(members("margay://host/host-1"), [2, 3]);
        assert_eq!(members("margay://app/1"), [2, 3]);
        assert_eq!(mpi.identity(me), (model.id(), me));
        let nx = Nx::new(mpi, |call, error| panic!("{call}: {error}")).expect("NX on the rank");
        assert_eq!((nx.node(), nx.nodes()), (i64::from(me), 4));
        if me == 2 {
            nx.set_ptype(7).expect("nobody else has it");
            let note = model.note(2, margay_core_registry::place::KEY);
            assert_eq!(
                margay_core_registry::place::process_type(note.as_deref()),
                7
            );
        }
    }
    let note = model
        .make_note(1, markers::KEY, markers::WORDS)
        .expect("room");
    Row::of(&note).expect("a row").set_text("here");
    let read = model.note(1, markers::KEY).expect("it was made");
    assert_eq!(Row::of(&read).expect("a row").read().text, "here");
}
