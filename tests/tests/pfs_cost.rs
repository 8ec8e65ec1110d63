//! What the service of a parallel file system takes for its clients: bytes of its directories, and
//! memory.
#![forbid(unsafe_code)]

use std::fs;
use std::path::Path;
use std::process::Stdio;

use margay_tests::jobs::Built;
use margay_tests::pfs::{mounted, said};
use margay_tests::voices::Voice;
use margay_tests::{command, stage, succeed};

/// The number behind a name in a file of `/proc`.
fn number(process: &Path, file: &str, name: &str) -> u64 {
    let text = fs::read_to_string(process.join(file)).unwrap();
    let line = text.lines().find(|line| line.starts_with(name)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[test]
fn a_file_that_all_nodes_read_is_read_once() {
    const BYTES: usize = 20_000_000;
    let Some(place) = mounted("1") else { return };
    let nx = Voice {
        name: "nx",
        libraries: &["-lnx"],
        environment: &[],
    };
    let program = nx.compile(place.folder.path(), "once");
    let file = place.mount().join("file");
    let bytes: Vec<u8> = (0..BYTES).map(|i| (i % 251) as u8).collect();
    fs::write(&file, bytes).unwrap();
    let service = place.service().unwrap();
    for (record, direct) in [("47008", "1"), ("1000000", "1"), ("47008", "0")] {
        let before = number(&service, "io", "rchar:");
        let output = succeed(
            command(stage().join("bin/mpiexec"), 60)
                .args(["-n", "4"])
                .env("MARGAY_PFS_DIRECT", direct)
                .arg(&program)
                .arg(&file)
                .arg(record),
        );
        assert_eq!(output, format!("{BYTES} bytes, 0 wrong\n"));
        // Blocks of 4 KiB that two records share are read for both, and checksums beside them.
        let read = number(&service, "io", "rchar:") - before;
        let bytes = BYTES as u64;
        assert!(
            (bytes..bytes + bytes / 4).contains(&read),
            "{record} {direct}: {read}"
        );
    }
    place.pfs(&["stop", "scratch"]);
}

#[test]
fn requests_that_wait_take_no_memory_of_the_service() {
    const CLIENTS: u32 = 4;
    const THREADS: u32 = 64;
    let Some(place) = mounted("0") else { return };
    let built = Built::plain("pfs/many.c", &["-D_GNU_SOURCE", "-pthread"]);
    let library = stage().join("lib/pfs/libmargay_pfs.so.1");
    let clients = (0..CLIENTS).map(|n| {
        let mut client = command("env", 300);
        if n % 2 == 1 {
            client.arg(format!("LD_PRELOAD={}", library.display()));
            client.arg("MARGAY_PFS_DIRECT=1");
        }
        let numbers = [n * THREADS / 8, THREADS, 4 << 20].map(|number| number.to_string());
        client
            .arg(built.path())
            .arg(place.mount().join("file"))
            .args(numbers)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        client.spawn().unwrap()
    });
    for client in clients.collect::<Vec<_>>() {
        let output = client.wait_with_output().unwrap();
        assert!(
            output.stdout == b"ok\n",
            "{}{}",
            String::from_utf8_lossy(&output.stdout),
            said(&output)
        );
    }
    let most = number(&place.service().unwrap(), "status", "VmHWM:");
    assert!(most < 256 << 10, "{most} KiB");
    eprintln!("{most} KiB at most");
    fs::remove_file(place.mount().join("file")).unwrap();
    place.pfs(&["stop", "scratch"]);
}
