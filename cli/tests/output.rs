//! Standard output and error of the ranks: lines stay whole, nothing is lost, orders and labels.

mod common;

use std::collections::HashMap;
use std::io::Read;
use std::process::Stdio;
use std::time::{Duration, Instant};

use common::*;

/// Writes lines in small, odd pieces, as fast as it can.
const CHATTER: &str = r#"
import os, sys
rank = os.environ["MARGAY_RANK"]
lines = int(sys.argv[1])
text = "".join("%s %d %s\n" % (rank, i, "x" * (i * 7 % 190)) for i in range(lines)).encode()
at, step = 0, 1
while at < len(text):
    os.write(1, text[at:at + step])
    at, step = at + step, step * 5 % 4093 + 1
"#;

fn chatter(rank: usize, lines: usize) -> Vec<String> {
    (0..lines)
        .map(|i| format!("{rank} {i} {}", "x".repeat(i * 7 % 190)))
        .collect()
}

#[test]
fn lines_of_many_ranks_are_not_torn() {
    const LINES: usize = 3000;
    let mut command = command("-n 8 python3 -c");
    command.arg(CHATTER).arg(LINES.to_string());
    let done = run(&mut command);
    assert_eq!(done.code(), 0, "{}", done.err);
    let mut of_rank: HashMap<&str, Vec<&str>> = HashMap::new();
    for line in done.out.lines() {
        of_rank
            .entry(line.split(' ').next().unwrap())
            .or_default()
            .push(line);
    }
    assert_eq!(of_rank.len(), 8);
    for rank in 0..8 {
        assert!(
            of_rank[rank.to_string().as_str()] == chatter(rank, LINES),
            "rank {rank}"
        );
    }
}

#[test]
fn labels_and_orders() {
    let script = "echo a $MARGAY_RANK; echo b $MARGAY_RANK; echo c $MARGAY_RANK >&2";
    let done = run(&mut shell("-n 3 -l", script));
    assert_eq!(
        done.sorted(),
        [
            "[0] a 0", "[0] b 0", "[1] a 1", "[1] b 1", "[2] a 2", "[2] b 2"
        ]
    );
    assert!(done.err.lines().any(|l| l == "[2] c 2"), "{}", done.err);

    let late = "sleep 0.$((3 - MARGAY_RANK)); echo a $MARGAY_RANK; echo b $MARGAY_RANK";
    let done = run(&mut shell("-n 3 -output ordered", late));
    assert_eq!(done.out, "a 0\nb 0\na 1\nb 1\na 2\nb 2\n");
    let done = run(&mut shell("-n 3 -output ordered -label", late));
    assert!(
        done.out.starts_with("[0] a 0\n[0] b 0\n[1] a 1\n"),
        "{}",
        done.out
    );

    let done = run(&mut shell("-n 3 -output rank:1", script));
    assert_eq!(done.out, "a 1\nb 1\n");
    assert_eq!(done.err.lines().count(), 3, "errors of all ranks are shown");
}

#[test]
fn ordered_output_may_be_large() {
    let script = "[ $MARGAY_RANK = 0 ] && sleep 0.5; yes $MARGAY_RANK | head -c 8000000; echo";
    let done = run(&mut shell("-n 3 -output ordered", script));
    assert_eq!(done.code(), 0, "{}", done.err);
    assert_eq!(done.out.len(), 3 * 8_000_001);
    let ranks: Vec<&str> = done
        .out
        .split_terminator('\n')
        .filter(|l| !l.is_empty())
        .collect();
    assert!(ranks.is_sorted());
}

#[test]
fn much_output_to_a_slow_reader_is_not_lost() {
    const BYTES: usize = 16 << 20;
    let mut command = shell("-n 4", &format!("yes $MARGAY_RANK | head -c {BYTES}"));
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut out = child.stdout.take().unwrap();
    let mut buffer = vec![0; 1 << 20];
    let mut counts = [0usize; 4];
    let mut total = 0;
    loop {
        let n = out.read(&mut buffer).unwrap();
        if n == 0 {
            break;
        }
        total += n;
        for &byte in buffer[..n].iter().filter(|b| b.is_ascii_digit()) {
            counts[usize::from(byte - b'0')] += 1;
        }
        if total < 4 << 20 {
            std::thread::sleep(Duration::from_millis(2));
        }
    }
    assert!(wait(&mut child).success());
    assert_eq!(total, 4 * BYTES);
    assert_eq!(counts, [BYTES / 2; 4]);
}

#[test]
fn a_full_disk_is_reported() {
    let full = std::fs::File::options()
        .write(true)
        .open("/dev/full")
        .unwrap();
    let start = Instant::now();
    let mut child = shell("-n 2", "echo x; sleep 100")
        .stdin(Stdio::null())
        .stdout(full)
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let done = finish(&mut child, start);
    assert_eq!(done.code(), 1);
    assert!(
        done.err
            .contains("cannot write the job's output: No space left"),
        "{}",
        done.err
    );
    assert_eq!(done.err.lines().count(), 1);
    assert!(done.took < PROMPT);
}

#[test]
fn a_reader_that_goes_away_ends_the_job_quietly() {
    let mut command = shell("-n 4", "yes");
    let mut running = Running::start(&mut command);
    running.until("y\n");
    let mark = running.mark();
    let done = running.end_without_reader();
    assert_eq!(done.code(), 141);
    assert_eq!(done.err, "");
    assert!(done.took < PROMPT);
    assert_nothing_left(&mark);
}

#[test]
fn a_last_line_without_newline_is_shown() {
    let done = run(&mut shell("-n 1", "printf abc"));
    assert_eq!(done.out, "abc");
    let done = run(&mut shell("-n 3", "printf $MARGAY_RANK"));
    assert_eq!(done.sorted(), ["0", "1", "2"]);
}

#[test]
fn a_prompt_is_shown_while_the_rank_waits_for_the_answer() {
    let script = "[ $MARGAY_RANK = 0 ] || exit 0; printf 'name? '; read name; echo hello $name";
    let mut running = Running::start(&mut shell("-n 2", script));
    running.until("name? ");
    use std::io::Write;
    running
        .stdin
        .as_mut()
        .unwrap()
        .write_all(b"margay\n")
        .unwrap();
    let done = running.end();
    assert_eq!(done.out, "name? hello margay\n");
}

#[test]
fn lines_longer_than_any_buffer_stay_whole() {
    let script = "head -c 3000000 /dev/zero | tr '\\0' $MARGAY_RANK; echo";
    let done = run(&mut shell("-n 3", script));
    let mut lines: Vec<&str> = done.out.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines.len(), 3);
    for (rank, line) in lines.iter().enumerate() {
        let digit = rank.to_string();
        assert!(
            line.len() == 3_000_000
                && line
                    .trim_matches(digit.as_str().chars().next().unwrap())
                    .is_empty()
        );
    }
}

#[test]
fn output_and_error_to_the_same_file_keep_their_lines() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("log");
    let file = std::fs::File::create(&path).unwrap();
    let script = "for i in 1 2 3 4 5 6 7 8 9; do echo out $i; echo err $i >&2; done";
    let mut child = shell("-n 4", script)
        .stdin(Stdio::null())
        .stdout(file.try_clone().unwrap())
        .stderr(file)
        .spawn()
        .unwrap();
    assert!(wait(&mut child).success());
    let text = std::fs::read_to_string(&path).unwrap();
    assert_eq!(text.lines().count(), 72);
    assert!(
        text.lines()
            .all(|l| l.len() == 5 && (l.starts_with("out ") || l.starts_with("err ")))
    );

    let alone = "for i in 1 2 3; do echo out; echo err >&2; done";
    let file = std::fs::File::create(&path).unwrap();
    let mut child = shell("-n 1", alone)
        .stdin(Stdio::null())
        .stdout(file.try_clone().unwrap())
        .stderr(file)
        .spawn()
        .unwrap();
    assert!(wait(&mut child).success());
    let text = std::fs::read_to_string(&path).unwrap();
    assert_eq!(
        text,
        "out\nerr\n".repeat(3),
        "one rank keeps the order of its writes"
    );
}
