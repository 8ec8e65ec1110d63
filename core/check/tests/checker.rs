//! Records of small programs, and what is found in them.

use margay_core_check::{Checker, End, Ended, Finding, Item, Kind, Phase, Record};

const WORLD: i64 = 0x101;
const INT: i64 = 0x209;
const FLOAT: i64 = 0x210;
const SUM: i64 = 0x21;
const MAX: i64 = 0x23;
const ANY_SOURCE: i64 = -1;
const ANY_TAG: i64 = -2;

/// A world of ranks whose calls the test makes.
struct World {
    checker: Checker,
    site: u64,
}

impl World {
    fn new(ranks: i64) -> World {
        let mut checker = Checker::new();
        for rank in 0..ranks {
            let process = checker.connected();
            let who = [rank, ranks, 100 + rank, 32767].map(Item::Number).to_vec();
            checker.take(process, [record(Phase::Hello, "", 0, who)]);
        }
        World { checker, site: 0 }
    }

    fn before(&mut self, rank: usize, name: &str, items: Vec<Item>) {
        self.site += 1;
        let record = record(Phase::Before, name, self.site, items);
        self.checker.take(rank, [record]);
    }

    fn after(&mut self, rank: usize, name: &str, items: Vec<Item>) {
        let record = record(Phase::After, name, self.site, items);
        self.checker.take(rank, [record]);
    }

    fn call(&mut self, rank: usize, name: &str, items: Vec<Item>) {
        self.before(rank, name, items);
        self.after(rank, name, vec![]);
    }

    fn send(&mut self, rank: usize, of: i64, count: i64, to: i64, tag: i64) {
        self.call(
            rank,
            "MPI_Send",
            numbers(&[4096, count, of, to, tag, WORLD]),
        );
    }

    fn receive(&mut self, rank: usize, of: i64, (source, tag): (i64, i64), got: [i64; 2]) {
        let items = numbers(&[8192, 1, of, source, tag, WORLD]);
        self.before(rank, "MPI_Recv", items);
        let status = vec![got[0], got[1], 4, 0];
        self.after(rank, "MPI_Recv", vec![Item::List(status)]);
    }

    fn reduce(&mut self, rank: usize, name: &str, op: i64) {
        let side = |at: i64| [Item::Number(at), Item::List(vec![1]), Item::List(vec![INT])];
        let end = numbers(&[-32768, op, WORLD]);
        let items = [side(4096), side(8192)].concat().into_iter().chain(end);
        self.before(rank, name, items.collect());
    }

    fn barrier(&mut self, rank: usize) {
        let side = || [Item::Number(0), Item::List(vec![]), Item::List(vec![])];
        let end = numbers(&[-32768, 0, WORLD]);
        let items = [side(), side()].concat().into_iter().chain(end);
        self.before(rank, "MPI_Barrier", items.collect());
    }

    fn finalize(&mut self, rank: usize) {
        self.call(rank, "MPI_Finalize", vec![]);
    }

    fn found(&mut self) -> Vec<Kind> {
        let found: Vec<Finding> = self.checker.found();
        found.into_iter().map(|f| f.kind).collect()
    }
}

fn record(phase: Phase, name: &str, site: u64, items: Vec<Item>) -> Record {
    Record {
        phase,
        name: name.into(),
        site,
        thread: 1,
        code: 0,
        items,
    }
}

fn numbers(all: &[i64]) -> Vec<Item> {
    all.iter().copied().map(Item::Number).collect()
}

#[test]
fn types_of_a_message_must_match_and_it_may_be_shorter() {
    let mut world = World::new(2);
    world.send(0, INT, 1, 1, 5);
    world.receive(1, FLOAT, (0, 5), [0, 5]);
    assert_eq!(world.found(), [Kind::Type]);
    world.send(0, INT, 0, 1, 5);
    world.receive(1, INT, (0, 5), [0, 5]);
    assert_eq!(world.found(), []);
    world.send(0, INT, 2, 1, 5);
    world.receive(1, INT, (0, 5), [0, 5]);
    assert_eq!(world.found(), [Kind::Count]);
}

#[test]
fn messages_are_paired_in_the_order_in_which_they_were_sent() {
    let mut world = World::new(2);
    world.send(0, INT, 1, 1, 1);
    world.send(0, FLOAT, 1, 1, 2);
    world.receive(1, FLOAT, (0, 2), [0, 2]);
    world.receive(1, INT, (ANY_SOURCE, ANY_TAG), [0, 1]);
    world.finalize(0);
    world.finalize(1);
    world.checker.finish(End::Well);
    assert_eq!(world.found(), []);
}

#[test]
fn a_receive_waits_for_the_record_of_its_message() {
    let mut world = World::new(2);
    world.receive(1, FLOAT, (0, 5), [0, 5]);
    assert_eq!(world.found(), []);
    world.send(0, INT, 1, 1, 5);
    assert_eq!(world.found(), [Kind::Type]);
}

#[test]
fn collective_calls_must_agree() {
    let mut world = World::new(2);
    world.reduce(0, "MPI_Allreduce", SUM);
    world.reduce(1, "MPI_Allreduce", MAX);
    assert_eq!(world.found(), [Kind::Operation]);
    let mut world = World::new(2);
    world.reduce(0, "MPI_Allreduce", SUM);
    world.barrier(1);
    assert_eq!(world.found(), [Kind::Collective]);
    let mut world = World::new(2);
    world.reduce(0, "MPI_Iallreduce", SUM);
    world.reduce(1, "MPI_Allreduce", SUM);
    assert_eq!(world.found(), [Kind::Collective]);
}

/// Ranks 0 and 2 send to rank 1, which takes one message from anybody and one from rank 0.
fn race(with_barrier: bool) -> Vec<Kind> {
    let mut world = World::new(3);
    world.send(2, INT, 1, 1, 0);
    world.receive(1, INT, (ANY_SOURCE, 0), [2, 0]);
    if with_barrier {
        for rank in 0..3 {
            world.barrier(rank);
        }
        for rank in 0..3 {
            world.after(rank, "MPI_Barrier", vec![]);
        }
    }
    world.send(0, INT, 1, 1, 0);
    world.receive(1, INT, (0, 0), [0, 0]);
    world.found()
}

#[test]
fn a_receive_of_any_source_races_unless_something_orders_the_messages() {
    assert_eq!(race(false), [Kind::Race]);
    assert_eq!(race(true), []);
}

#[test]
fn receives_of_any_source_that_are_alike_do_not_race() {
    let mut world = World::new(3);
    world.send(0, INT, 1, 1, 0);
    world.send(2, INT, 1, 1, 0);
    world.receive(1, INT, (ANY_SOURCE, 0), [2, 0]);
    world.receive(1, INT, (ANY_SOURCE, 0), [0, 0]);
    assert_eq!(world.found(), []);
}

#[test]
fn what_is_left_at_the_end_is_reported() {
    let mut world = World::new(2);
    world.before(0, "MPI_Irecv", numbers(&[4096, 1, INT, 1, 0, WORLD]));
    world.after(0, "MPI_Irecv", numbers(&[0x500]));
    world.send(1, INT, 1, 0, 7);
    world.before(1, "MPI_Comm_dup", numbers(&[WORLD]));
    world.before(0, "MPI_Comm_dup", numbers(&[WORLD]));
    let made = |handle: i64| {
        let mut items = numbers(&[handle, WORLD]);
        items.extend([Item::List(vec![0, 1]), Item::List(vec![]), Item::Number(0)]);
        items
    };
    world.after(0, "MPI_Comm_dup", made(0x501));
    world.after(1, "MPI_Comm_dup", made(0x502));
    world.before(1, "MPI_Comm_free", numbers(&[0x502]));
    world.after(1, "MPI_Comm_free", numbers(&[0x502]));
    world.finalize(0);
    world.finalize(1);
    world.checker.finish(End::Well);
    let mut found = world.found();
    found.sort();
    assert_eq!(found, [Kind::Unmatched, Kind::Request, Kind::Leak]);
}

#[test]
fn wrong_arguments_are_reported_when_the_rank_dies_of_them_or_the_library_takes_them() {
    let mut world = World::new(2);
    world.before(0, "MPI_Send", numbers(&[4096, -1, INT, 1, 0, WORLD]));
    assert_eq!(world.found(), []);
    world.checker.finish(End::Failed);
    assert_eq!(world.found(), [Kind::Argument]);
    // A program that has the error returned to it knows of it.
    let mut world = World::new(2);
    world.before(0, "MPI_Send", numbers(&[4096, 1, INT, 9, 0, WORLD]));
    let mut refused = record(Phase::After, "MPI_Send", 1, vec![]);
    refused.code = 6;
    world.checker.take(0, [refused]);
    world.checker.finish(End::Failed);
    assert_eq!(world.found(), []);
}

#[test]
fn bytes_that_are_no_record_are_refused() {
    assert_eq!(Record::read(b""), None);
    let mut bytes = vec![b'b', 3];
    bytes.extend_from_slice(b"abc");
    bytes.extend_from_slice(&[0; 24]);
    let read = Record::read(&bytes).unwrap();
    assert_eq!(
        (read.phase, read.name.as_str(), read.items.len()),
        (Phase::Before, "abc", 0)
    );
    bytes.extend_from_slice(b"l\xff\xff\xff\xff");
    assert_eq!(Record::read(&bytes), None);
    for end in 0..bytes.len() {
        let _ = Record::read(&bytes[..end]);
    }
}

#[test]
fn a_send_that_failed_is_no_message() {
    let mut world = World::new(2);
    world.before(0, "MPI_Bsend", numbers(&[4096, 1, FLOAT, 1, 5, WORLD]));
    let mut refused = record(Phase::After, "MPI_Bsend", 1, vec![]);
    refused.code = 2;
    world.checker.take(0, [refused]);
    world.send(0, INT, 1, 1, 5);
    world.receive(1, INT, (0, 5), [0, 5]);
    world.finalize(0);
    world.finalize(1);
    world.checker.finish(End::Well);
    assert_eq!(world.found(), []);
}

#[test]
fn what_is_under_way_in_a_job_that_was_cut_is_no_error() {
    let found = |end, rank_computes: bool| {
        let mut world = World::new(2);
        world.send(0, INT, 1, 1, 1);
        world.before(1, "MPI_Recv", numbers(&[8192, 1, INT, 0, 2, WORLD]));
        if !rank_computes {
            world.before(0, "MPI_Recv", numbers(&[8192, 1, INT, 1, 2, WORLD]));
        }
        world.checker.finish(end);
        world.found()
    };
    assert_eq!(found(End::Failed, false), [Kind::Unmatched]);
    assert_eq!(found(End::Failed, true), []);
    assert_eq!(found(End::Cut, false), []);
}

#[test]
fn messages_of_merged_groups_are_not_paired() {
    let mut world = World::new(2);
    let inter = |handle: i64, own: i64| {
        let mut items = numbers(&[handle, WORLD]);
        items.extend([own, 1 - own].map(|rank| Item::List(vec![rank])));
        items.push(Item::Number(1));
        items
    };
    let merged = |handle: i64| {
        let mut items = numbers(&[handle, 0]);
        items.extend([Item::List(vec![0, 1]), Item::List(vec![]), Item::Number(0)]);
        items
    };
    for rank in 0..2 {
        let own = i64::try_from(rank).unwrap();
        world.before(rank, "MPI_Intercomm_create", numbers(&[0x102]));
        world.after(rank, "MPI_Intercomm_create", inter(0x500 + own, own));
        world.before(rank, "MPI_Intercomm_merge", numbers(&[0x500 + own]));
        world.after(rank, "MPI_Intercomm_merge", merged(0x510 + own));
    }
    world.call(0, "MPI_Send", numbers(&[4096, 1, INT, 1, 5, 0x510]));
    world.before(1, "MPI_Recv", numbers(&[8192, 1, INT, 0, 5, 0x511]));
    world.after(1, "MPI_Recv", vec![Item::List(vec![0, 5, 4, 0])]);
    for rank in 0..2 {
        let own = i64::try_from(rank).unwrap();
        for handle in [0x500 + own, 0x510 + own] {
            world.call(rank, "MPI_Comm_disconnect", numbers(&[handle]));
        }
        world.finalize(rank);
    }
    world.checker.finish(End::Well);
    let kinds = world.found();
    assert!(!kinds.contains(&Kind::Unmatched), "{kinds:?}");
}

#[test]
fn of_a_deadlock_the_operation_of_a_request_is_named() {
    let mut world = World::new(2);
    let items = numbers(&[8192, 1, INT, 1, 5, WORLD]);
    world.before(0, "MPI_Irecv", items);
    world.after(0, "MPI_Irecv", numbers(&[0x500]));
    world.before(0, "MPI_Wait", vec![Item::List(vec![0x500])]);
    world.barrier(1);
    world.checker.finish(End::Failed);
    let found = world.checker.found();
    let calls = |finding: &Finding| format!("{finding:?}").contains("MPI_Irecv");
    assert!(found.iter().any(|f| f.kind == Kind::Unmatched && calls(f)));
}

#[test]
fn a_collective_call_that_a_rank_in_finalize_has_not_made_is_named() {
    let mut world = World::new(2);
    world.barrier(0);
    world.before(1, "MPI_Finalize", vec![]);
    world.checker.finish(End::Cut);
    assert_eq!(world.found(), [Kind::Collective]);
}

#[test]
fn after_a_collective_call_that_failed_none_are_compared() {
    let mut world = World::new(2);
    world.barrier(0);
    let mut refused = record(Phase::After, "MPI_Barrier", 1, vec![]);
    refused.code = 2;
    world.checker.take(0, [refused]);
    world.reduce(0, "MPI_Allreduce", SUM);
    world.barrier(1);
    assert_eq!(world.found(), []);
}

#[test]
fn a_target_that_has_ended_before_its_records_are_handled_is_known() {
    const WINDOW: i64 = 0x500;
    let fence = |world: &mut World, rank: usize| {
        world.before(rank, "MPI_Win_fence", numbers(&[WINDOW, 0]));
        world.after(rank, "MPI_Win_fence", numbers(&[WINDOW, 0]));
    };
    let mut world = World::new(3);
    let make = |world: &mut World, rank: usize| {
        let items = numbers(&[4096, 4, 4, WORLD]);
        world.before(rank, "MPI_Win_create", items);
        world.after(rank, "MPI_Win_create", numbers(&[WINDOW, 4096, 4, 4]));
        fence(world, rank);
    };
    // All records of the target come before those of the others, and its connection is closed.
    make(&mut world, 1);
    fence(&mut world, 1);
    world.checker.ended(1, Ended::Closed);
    for rank in [0, 2] {
        make(&mut world, rank);
        let put = numbers(&[8192, 1, INT, 0, 0, 0x200, 1, 0, 1, 4, INT, 0, WINDOW]);
        world.call(rank, "MPI_Put", put);
    }
    assert_eq!(world.found(), [Kind::Conflict]);
}

/// A world whose ranks have initialized MPI with a level of threads, in thread 1.
fn with_level(level: i64) -> World {
    let mut world = World::new(2);
    for rank in 0..2 {
        world.after(rank, "MPI_Init", numbers(&[level]));
    }
    world
}

/// A call of a thread begins or, with `Phase::After`, ends.
fn by_thread(world: &mut World, thread: u64, phase: Phase, name: &str, items: Vec<Item>) {
    world.site += 1;
    let mut record = record(phase, name, world.site, items);
    record.thread = thread;
    world.checker.take(0, [record]);
}

#[test]
fn threads_call_as_their_level_allows() {
    const SERIALIZED: i64 = 2048;
    let send = || numbers(&[4096, 1, INT, 1, 3, WORLD]);
    for (level, found) in [(0, 1), (1024, 1), (SERIALIZED, 0), (4096, 0)] {
        let mut world = with_level(level);
        by_thread(&mut world, 2, Phase::Before, "MPI_Send", send());
        by_thread(&mut world, 2, Phase::After, "MPI_Send", vec![]);
        assert_eq!(world.found(), vec![Kind::Threads; found], "{level}");
    }
    for (level, found) in [(SERIALIZED, 1), (4096, 0)] {
        let mut world = with_level(level);
        by_thread(&mut world, 1, Phase::Before, "MPI_Send", send());
        by_thread(&mut world, 2, Phase::Before, "MPI_Send", send());
        assert_eq!(world.found(), vec![Kind::Threads; found], "{level}");
    }
}

#[test]
fn two_threads_must_not_complete_one_request_but_a_handle_may_be_used_again() {
    let receive = |buffer| numbers(&[buffer, 1, INT, 1, 3, WORLD]);
    let wait = || vec![Item::List(vec![0x5000])];
    for is_new in [false, true] {
        let mut world = with_level(4096);
        by_thread(&mut world, 1, Phase::Before, "MPI_Irecv", receive(8192));
        by_thread(&mut world, 1, Phase::After, "MPI_Irecv", numbers(&[0x5000]));
        by_thread(&mut world, 1, Phase::Before, "MPI_Wait", wait());
        if is_new {
            by_thread(&mut world, 2, Phase::Before, "MPI_Irecv", receive(16384));
            by_thread(&mut world, 2, Phase::After, "MPI_Irecv", numbers(&[0x5000]));
        }
        by_thread(&mut world, 2, Phase::Before, "MPI_Wait", wait());
        let expected: &[Kind] = if is_new { &[] } else { &[Kind::Request] };
        assert_eq!(world.found(), expected);
    }
}

#[test]
fn a_request_that_is_started_later_was_not_waited_for_in_vain() {
    for is_started in [false, true] {
        let mut world = World::new(2);
        let request = || vec![Item::List(vec![0x5000])];
        world.before(0, "MPI_Send_init", numbers(&[4096, 1, INT, 1, 3, WORLD]));
        world.after(0, "MPI_Send_init", numbers(&[0x5000]));
        world.before(0, "MPI_Wait", request());
        world.after(0, "MPI_Wait", request());
        if is_started {
            world.call(0, "MPI_Start", request());
        }
        world.checker.finish(End::Cut);
        let expected: &[Kind] = if is_started { &[] } else { &[Kind::Request] };
        assert_eq!(world.found(), expected);
    }
}

#[test]
fn a_handle_of_a_communicator_may_be_used_again_while_a_thread_still_frees_it() {
    let mut world = with_level(4096);
    let dup = |world: &mut World, thread| {
        by_thread(
            world,
            thread,
            Phase::Before,
            "MPI_Comm_dup",
            numbers(&[0x102]),
        );
        let mut items = numbers(&[0x500, 0x102]);
        items.extend([Item::List(vec![0]), Item::List(vec![]), Item::Number(0)]);
        by_thread(world, thread, Phase::After, "MPI_Comm_dup", items);
    };
    let free = |world: &mut World, thread, phase| {
        by_thread(world, thread, phase, "MPI_Comm_free", numbers(&[0x500]));
    };
    dup(&mut world, 1);
    free(&mut world, 1, Phase::Before);
    dup(&mut world, 2);
    free(&mut world, 2, Phase::Before);
    free(&mut world, 1, Phase::After);
    free(&mut world, 2, Phase::After);
    assert_eq!(world.found(), []);
}
