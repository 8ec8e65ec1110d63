//! Letters and webhooks of jobs and arrays.
#![forbid(unsafe_code)]

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;

use margay_tests::batch::Queue;
use margay_tests::{run, stage};
use serde_json::Value;

#[test]
fn mail_goes_out_when_a_job_begins_and_ends() {
    let queue = Queue::up(2);
    // A head that finds this sendmail.
    queue.margay(&["down"]);
    fs::create_dir(queue.path("bin")).unwrap();
    queue.script(
        "bin/sendmail",
        "#!/bin/sh\ncd $TMPDIR; f=$(mktemp letter.XXXXXX)\ncat > $f\nmv $f $f.done\n",
    );
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    fs::set_permissions(queue.path("bin/sendmail"), mode).unwrap();
    let path = format!(
        "{}:{}",
        queue.path("bin").display(),
        std::env::var("PATH").unwrap()
    );
    let mut up = queue.prepared(stage().join("bin/margay"));
    assert!(
        run(up
            .arg("up")
            .args(&queue.place)
            .env("PATH", path)
            .env("TMPDIR", queue.folder.path()))
        .status
        .success()
    );
    queue.refused(
        &[
            "sbatch",
            "-W",
            "-J",
            "a b",
            "--mail-type=BEGIN,FAIL",
            "--mail-user=x@y",
            "--wrap",
            "exit 3",
        ],
        3,
        "Submitted",
    );
    let letters = || {
        // Of the head, whose directory is the root.
        let found = fs::read_dir(queue.folder.path()).unwrap().flatten();
        let found = found.filter(|file| file.file_name().to_string_lossy().ends_with(".done"));
        let mut texts: Vec<String> = found
            .map(|file| fs::read_to_string(file.path()).unwrap())
            .collect();
        texts.sort();
        texts
    };
    while letters().len() < 2 {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    let first = letters();
    assert!(
        first[0].starts_with("To: x@y\nSubject: Job_id=1 Name=a b Began\n"),
        "{first:?}"
    );
    assert!(
        first[1].contains("Job_id=1 Name=a b Failed, ExitCode 3"),
        "{first:?}"
    );
    // Of an array there is one letter, unless one of each task is asked for.
    queue.script("task.sh", "#!/bin/sh\nexit $(($SLURM_ARRAY_TASK_ID - 1))\n");
    for (types, expected) in [("ALL", 2), ("FAIL", 1), ("END,ARRAY_TASKS", 3)] {
        for file in fs::read_dir(queue.folder.path()).unwrap().flatten() {
            if file.file_name().to_string_lossy().ends_with(".done") {
                fs::remove_file(file.path()).unwrap();
            }
        }
        let types = format!("--mail-type={types}");
        queue.margay(&["slurm", "sbatch", "-W", "-a1-3", "-Jarr", &types, "task.sh"]);
        while letters().len() < expected {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        let (gone, of_array) = (letters(), |text: &&String| text.contains("Array Summary"));
        assert_eq!(gone.len(), expected, "{gone:?}");
        let whole: Vec<&String> = gone.iter().filter(of_array).collect();
        match expected {
            3 => assert!(whole.is_empty(), "{whole:?}"),
            _ => {
                let last = whole.last().unwrap();
                let end = "Name=arr Ended, Mixed, ExitCode [0-2]\n";
                assert!(last.contains(end), "{last}");
                assert!(last.contains("2 of 3 tasks did not succeed: "), "{last}");
            }
        }
    }

    // An address of the web gets a POST with JSON.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let hook = format!("--mail-user=http://{}/hook", listener.local_addr().unwrap());
    let words = ["sbatch", "-W", "--mail-type=END", &hook, "--wrap", "true"];
    assert!(
        queue
            .margay(&[&["slurm"][..], &words].concat())
            .status
            .success()
    );
    let (stream, _) = listener.accept().unwrap();
    let mut stream = BufReader::new(stream);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        assert!(stream.read_line(&mut head).unwrap() > 0, "{head}");
    }
    assert!(head.starts_with("POST /hook HTTP/1.1\r\n"), "{head}");
    let length = head.split("Content-Length: ").nth(1).unwrap();
    let length: usize = length.split("\r\n").next().unwrap().parse().unwrap();
    let mut body = vec![0; length];
    stream.read_exact(&mut body).unwrap();
    let answered = stream.get_mut().write_all(b"HTTP/1.1 200 OK\r\n\r\n");
    answered.unwrap();
    let event: Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(event["name"], "wrap", "{event}");
}
