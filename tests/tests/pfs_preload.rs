//! The library that takes programs' reads and writes of a parallel file system past the kernel: the
//! programs notice nothing.
#![forbid(unsafe_code)]

use std::fs;
use std::path::Path;

use margay_tests::jobs::Built;
use margay_tests::pfs::{mounted, noise, said};
use margay_tests::{command, run, stage};

#[test]
fn the_library_for_all_programs_leaves_files_as_the_kernel_does() {
    let Some(place) = mounted("1") else { return };
    let built = Built::plain("pfs/preload.c", &["-D_GNU_SOURCE"]);
    let library = stage().join("lib/pfs/libmargay_pfs.so.1");
    for (seed, direct, preloaded) in [
        ("1", "1", library.as_path()),
        ("2", "1", &library),
        ("3", "0", Path::new("")),
    ] {
        let path = place.mount().join(format!("file{seed}"));
        let mut program = command("env", 120);
        program.arg(format!("LD_PRELOAD={}", preloaded.display()));
        program.arg("MARGAY_PFS_DIRECT=1");
        program.arg(built.path()).arg(path);
        let output = run(program.args([seed, "3000", direct]));
        assert!(output.status.success(), "{}", said(&output));
        assert_eq!(String::from_utf8_lossy(&output.stdout), "ok\n");
    }
    // Programs of the system.
    let bytes = noise(1, 5 << 20);
    fs::write(place.path("source"), &bytes).unwrap();
    for script in [
        "cp source mnt/a && cp mnt/a b && cmp source b",
        "cat source source > mnt/c && head -c 5242880 mnt/c | cmp - source && test $(stat -c %s mnt/c) = 10485760",
        "dd if=source of=mnt/d bs=47008 && dd if=mnt/d bs=1M iflag=fullblock | cmp - source",
        "mkdir t && cp source t/e && tar cf mnt/t.tar t && tar xf mnt/t.tar -C mnt && cmp mnt/t/e source",
        "(echo one; echo two) > mnt/f && cat source >> mnt/f && tail -c 5242880 mnt/f | cmp - source",
    ] {
        let mut shell = command("env", 60);
        shell.arg(format!("LD_PRELOAD={}", library.display()));
        shell.arg("MARGAY_PFS_DIRECT=1");
        shell
            .args(["sh", "-c", script])
            .current_dir(place.folder.path());
        let output = run(&mut shell);
        assert!(output.status.success(), "{script}: {}", said(&output));
    }
    place.pfs(&["stop", "scratch"]);
}

/// Handlers of signals, memory that the program may not use, low descriptors, a limit of sizes.
#[test]
fn the_library_for_all_programs_bears_what_programs_do() {
    let Some(place) = mounted("1") else { return };
    let built = Built::plain("pfs/hostile.c", &["-D_GNU_SOURCE"]);
    for (asked, preloaded) in [("1", "lib/pfs/libmargay_pfs.so.1"), ("0", "")] {
        let library = match preloaded {
            "" => String::new(),
            name => stage().join(name).display().to_string(),
        };
        let mut program = command("env", 60);
        program.arg(format!("LD_PRELOAD={library}"));
        program.arg(format!("MARGAY_PFS_DIRECT={asked}"));
        program.arg(built.path());
        program.args(["own", "other"].map(|name| place.mount().join(name)));
        let output = run(&mut program);
        let ended = output.status;
        assert!(ended.success(), "{ended}: {}", said(&output));
        assert_eq!(String::from_utf8_lossy(&output.stdout), "ok\n");
    }
    place.pfs(&["stop", "scratch"]);
}
