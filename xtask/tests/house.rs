//! The rules of the house hold in this workspace.
#![forbid(unsafe_code)]

use xtask::{tidy, workspace};

#[test]
fn the_house_is_in_order() {
    let findings = tidy::check(workspace()).unwrap();
    let list: Vec<String> = findings.iter().map(ToString::to_string).collect();
    assert!(
        list.is_empty(),
        "{} findings:\n{}",
        list.len(),
        list.join("\n")
    );
}
