//! The optional progress thread moves messages while the program computes.
#![forbid(unsafe_code)]

use margay_tests::{command, program, run, scratch, stage, succeed};

#[test]
fn messages_move_while_the_program_computes() {
    let place = scratch();
    let overlap = place.path().join("overlap");
    succeed(
        command(stage().join("bin/mpicc"), 60)
            .arg("-o")
            .arg(&overlap)
            .arg(program("overlap.c")),
    );
    for (thread, expected) in [
        ("0", "sent after rank 1 computed"),
        ("1", "sent while rank 1 computed"),
    ] {
        let output = run(command(stage().join("bin/mpiexec"), 60)
            .env("MARGAY_PROGRESS_THREAD", thread)
            .args(["-n", "2"])
            .arg(&overlap));
        let report = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{output:?}");
        assert_eq!(report.trim(), expected, "{output:?}");
    }
}
