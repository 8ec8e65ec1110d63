//! The rules of the house hold, and the generated files are what the generator prints.
#![forbid(unsafe_code)]

use xtask::{header, tidy, workspace};

#[test]
fn the_house_is_in_order() {
    let findings = tidy::check(workspace()).unwrap();
    let list: Vec<String> = findings.iter().map(ToString::to_string).collect();
    assert!(list.is_empty(), "{} findings:\n{}", list.len(), list.join("\n"));
}

#[test]
fn the_header_is_up_to_date() {
    header::run(workspace(), true).unwrap();
}
