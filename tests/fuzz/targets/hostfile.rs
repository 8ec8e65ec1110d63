//! A file of hosts, as `--hostfile` reads it.
#![no_main]

use std::cell::RefCell;
use std::io::{Seek, Write};

use libfuzzer_sys::fuzz_target;
use margay_cli::options;
use tempfile::NamedTempFile;

thread_local! {
    static FILE: RefCell<NamedTempFile> = RefCell::new(NamedTempFile::new().expect("a file"));
}

fuzz_target!(|data: &[u8]| {
    FILE.with_borrow_mut(|file| {
        file.as_file().set_len(0).expect("an empty file");
        file.rewind().expect("its start");
        file.write_all(data).expect("room on the disk");
        let path = file.path().to_str().expect("a plain path");
        let command = options::run_command("mpiexec");
        let words = ["mpiexec", "--hostfile", path, "--", "./a.out"];
        if let Err(error) = command.try_get_matches_from(words) {
            let text = options::one_line(&error, "mpiexec");
            assert!(
                text.contains("hostfile"),
                "the error does not name the option: {text}"
            );
        }
    });
});
