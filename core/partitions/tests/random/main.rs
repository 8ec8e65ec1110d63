//! 100,000 random operations by three users on a table and on a plain model.
#![forbid(unsafe_code)]

mod machine;
mod plain;

use margay_core_partitions::{Caller, Changes, Refused, Right, Table, Wanted};
use plain::{Model, Numbers, OWNER, SHAPE, operate};

#[test]
fn a_hundred_thousand_operations_agree_with_a_plain_model() {
    let steps = if cfg!(miri) { 200 } else { 100_000 };
    let mut numbers = Numbers(18);
    let mut table = Table::new(SHAPE, OWNER, OWNER);
    let mut model = Model::new();
    let mut counts = [[0usize; 2]; 5];
    for step in 0..steps {
        let (kind, is_done) = operate(&mut numbers, &mut table, &mut model, step);
        counts[kind][usize::from(is_done)] += 1;
        if step % 1_000 == 0 {
            assert_eq!(Table::parse(&table.text()).as_ref(), Ok(&table));
        }
    }
    let is_tried = |counts: &[usize; 2]| counts.iter().all(|&count| count > 100);
    assert!(cfg!(miri) || counts.iter().all(is_tried), "{counts:?}");
}

#[test]
fn refusals_name_what_is_missing() {
    let mut table = Table::new(SHAPE, OWNER, OWNER);
    let me = Caller {
        user: OWNER,
        groups: vec![OWNER],
    };
    let other = Caller {
        user: 12,
        groups: vec![12],
    };
    let plain = Changes::default();
    let mut make = |who: &Caller, name: &str| table.make(who, name, &Wanted::All, &plain);
    assert_eq!(make(&me, "mine").as_deref(), Ok(".compute.mine"));
    assert_eq!(
        make(&me, "mine"),
        Err(Refused::Exists(".compute.mine".into()))
    );
    assert_eq!(
        make(&other, "mine.sub"),
        Err(Refused::Denied(Right::Write, ".compute.mine".into()))
    );
    assert_eq!(
        make(&me, "no.sub"),
        Err(Refused::NoPartition(".compute.no".into()))
    );
    for name in [
        "",
        "a b",
        "a/b",
        "a..b",
        "a.",
        "-a",
        "ä",
        "a\nb",
        &"a".repeat(32),
        &"a.".repeat(16),
    ] {
        assert!(matches!(make(&me, name), Err(Refused::Name(..))), "{name}");
    }
    assert_eq!(
        table.remove(&me, ".io", true),
        Err(Refused::Permanent(".io".into()))
    );
}
