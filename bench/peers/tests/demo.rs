//! The demonstration with few steps, on the stage tree.
#![forbid(unsafe_code)]

use std::process::Command;

#[test]
fn the_demonstration_shows_what_it_says() {
    if std::fs::File::open("/dev/fuse").is_err() {
        eprintln!("not run: /dev/fuse cannot be opened, which a mount takes");
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let mut demo = Command::new("timeout");
    demo.args(["-k", "5", "300", env!("CARGO_BIN_EXE_demo"), "--steps", "3"]);
    demo.env("CARGO_TARGET_DIR", folder.path());
    let output = demo.output().expect("it runs");
    let said = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    for part in [
        "all configurations agree bit by bit",
        "one was removed before it was read",
        "crucible.png",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    let mut left: Vec<_> = std::fs::read_dir(folder.path().join("demo"))
        .expect("it is there")
        .map(|entry| entry.expect("an entry").file_name())
        .collect();
    left.sort();
    assert_eq!(
        left,
        [
            "crucible",
            "crucible.png",
            "result.json",
            "temperature.field"
        ]
    );
}
