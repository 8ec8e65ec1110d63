//! What the kernel leaves to a file system, on a mounted parallel one. Each of it failed in
//! xfstests once.
#![forbid(unsafe_code)]

use margay_sys_os::port::user;
use margay_tests::jobs::Built;
use margay_tests::pfs::{mounted, said};
use margay_tests::{command, run};

#[test]
fn rights_go_as_they_should_and_handles_outlive_the_mount() {
    if user() != 0 {
        eprintln!("not run: only root can be somebody else and open files by handles");
        return;
    }
    let Some(place) = mounted("1") else { return };
    let built = Built::plain("pfs/rights.c", &["-D_GNU_SOURCE"]);
    for what in ["make", "open"] {
        let mut program = command(built.path(), 60);
        program.arg(what).arg(place.mount());
        let output = run(program.arg(place.path("handles")));
        assert!(output.status.success(), "{what}: {}", said(&output));
        place.pfs(&["umount", "scratch"]);
        place.pfs(&["mount", "scratch", "mnt"]);
    }
    place.pfs(&["stop", "scratch"]);
}
