//! Standard input: to rank 0, to one rank, to all, to nobody.

mod common;

use std::fs::File;
use std::io::Write;
use std::process::Stdio;

use common::*;

const COUNT: &str = "n=$(wc -c); echo $MARGAY_RANK $((n))";

#[test]
fn rank_0_gets_it_unless_an_option_says_otherwise() {
    let input = vec![b'x'; 3_000_000];
    let done = run_with_input(&mut shell("-n 3", COUNT), &input);
    assert_eq!(done.sorted(), ["0 3000000", "1 0", "2 0"]);
    let done = run_with_input(&mut shell("-n 3 -stdin 2", COUNT), &input);
    assert_eq!(done.sorted(), ["0 0", "1 0", "2 3000000"]);
    let done = run_with_input(&mut shell("-n 3 -stdin all", COUNT), &input);
    assert_eq!(done.sorted(), ["0 3000000", "1 3000000", "2 3000000"]);
    let done = run_with_input(&mut shell("-n 2 -stdin none", COUNT), &input);
    assert_eq!(done.sorted(), ["0 0", "1 0"]);
}

#[test]
fn a_file_goes_to_all_from_its_place() {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(b"0123456789").unwrap();
    for (options, expected) in [
        ("-n 2 -stdin all", ["0 7", "1 7"]),
        ("-n 2", ["0 7", "1 0"]),
    ] {
        use std::io::{Seek, SeekFrom};
        file.seek(SeekFrom::Start(3)).unwrap();
        let mut child = shell(options, COUNT)
            .stdin(file.try_clone().unwrap())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let done = finish(&mut child, std::time::Instant::now());
        assert_eq!(done.sorted(), expected, "{}", done.err);
    }
}

#[test]
fn what_the_job_does_not_read_stays_there() {
    let script = format!(
        "while read line; do {} run -n 2 sh -c 'echo $0 $MARGAY_RANK' $line; done",
        margay()
    );
    let mut shell = fresh("sh");
    shell.args(["-c", &script]).env(MARK, "none");
    let done = run_with_input(&mut shell, b"a\nb\nc\n");
    assert_eq!(done.sorted(), ["a 0", "a 1", "b 0", "b 1", "c 0", "c 1"]);
}

#[test]
fn a_rank_that_closes_its_input_does_not_hold_up_the_others() {
    let input = vec![b'x'; 1_000_000];
    let script =
        "[ $MARGAY_RANK = 0 ] && { exec <&-; sleep 0.2; exit 0; }; n=$(wc -c); echo $((n))";
    let done = run_with_input(&mut shell("-n 2 -stdin all", script), &input);
    assert_eq!(done.out, "1000000\n");
}

#[test]
fn a_job_that_reads_nothing_ends() {
    let input = vec![b'x'; 1_000_000];
    let done = run_with_input(&mut command("-n 2 -stdin all true"), &input);
    assert_eq!(done.code(), 0);
}

#[test]
fn closed_standard_descriptors_do_no_harm() {
    let script = format!(
        "exec {} run -n 2 sh -c 'cat; echo $MARGAY_RANK' <&-",
        margay()
    );
    let done = run(fresh("sh").args(["-c", &script]));
    assert_eq!(
        (done.code(), done.sorted()),
        (0, vec!["0", "1"]),
        "{}",
        done.err
    );
    let script = format!("exec {} run -n 2 echo x >&- 2>&-", margay());
    let done = run(fresh("sh").args(["-c", &script]));
    assert_eq!(done.code(), 0);
}

#[test]
fn a_device_is_shared_by_all() {
    let zero = File::open("/dev/zero").unwrap();
    let mut child = shell("-n 2 -stdin all", "head -c 5000 | wc -c")
        .stdin(zero)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let done = finish(&mut child, std::time::Instant::now());
    assert_eq!(done.sorted(), ["5000", "5000"]);
}
