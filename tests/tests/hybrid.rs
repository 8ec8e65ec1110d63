//! Ranks with teams of OpenMP: what `margay why` and profiles show of their members.

use std::path::{Path, PathBuf};
use std::process::Command;

use margay_tests::hangs::Built;
use margay_tests::jobs::{Ended, Job, Words, send};
use margay_tests::{command, run, stage};
use serde_json::Value;

fn margay() -> PathBuf {
    stage().join("bin/margay")
}

fn build() -> Built {
    Built::by("mpicc", "hybrid.c", "-O1 -g -fopenmp")
}

#[test]
fn members_of_openmp_are_shown_with_their_waits_and_lines() {
    let built = build();
    let words = Words::mpiexec(100, 2, &margay(), "omp").and(built.path());
    let mut job = Job::start(&words.and_all("hangs"), 90);
    job.until("ready", 1);
    let pid = job.pid().to_string();
    let why = |options: &[&str]| {
        let output = run(command(margay(), 30).arg("why").args(options).arg(&pid));
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let is_at = |job: &Value, mark: &str, waits_for: &str| {
        let members = job["teams"][0]["teams"][0]["members"].as_array();
        let place = format!("at {} in ", built.line(mark));
        members.into_iter().flatten().any(|of| {
            let text = of["text"].as_str().unwrap_or_default();
            text.starts_with(&place) && of["waits_for"] == waits_for
        })
    };
    // A member takes a while to get where it stays.
    let found = (0..200).find_map(|_| {
        let all: Value = serde_json::from_str(&why(&["--json"])).ok()?;
        let job = all["jobs"][0].clone();
        (is_at(&job, "barrier", "barrier") && is_at(&job, "receive", "")).then_some(job)
    });
    let text = why(&[]);
    if text.contains("no stack of rank 0: the system forbids") {
        println!("note: no process may be traced here; nothing is tested");
        return;
    }
    let found = found.unwrap_or_else(|| panic!("never as wanted: {text}"));
    let teams = found["teams"].as_array().unwrap();
    assert_eq!(teams.len(), 1, "{text}");
    assert_eq!(teams[0]["ranks"], serde_json::json!([0]));
    for line in [
        "OpenMP in rank 0: team 1, 4 members of hangs._omp_fn.0\n".to_owned(),
        format!(": waits: barrier at {} in meet()\n", built.line("barrier")),
        format!(
            " at {} in hangs (parallel region)()\n",
            built.line("receive")
        ),
    ] {
        assert!(text.contains(&line), "{line}: {text}");
    }
}

/// A job of one rank whose members are where they stay, with the process of the rank.
fn stays(built: &Built, limit_s: u32) -> (Job, u32) {
    let words = Words::mpiexec(limit_s, 1, &margay(), "omp").and(built.path());
    let mut job = Job::start(&words.and_all("stays"), 90);
    let pid = job.ranks_when_ready(1)[0];
    let waits = || {
        let mut threads = command(margay(), 30);
        let output = run(threads.args(["threads", "--json"]).arg(pid.to_string()));
        let view: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        [0, 1, 2, 3].map(|id| {
            let member = &view["teams"][0]["member"][id];
            member["waits_for"].as_str().unwrap_or_default().to_owned()
        })
    };
    let wanted = ["barrier", "", "lock or critical", "barrier"];
    // A member takes a while to get where it stays.
    let found = (0..600).any(|_| waits() == wanted);
    assert!(found, "{:?}", waits());
    (job, pid)
}

#[test]
fn the_report_of_a_time_limit_says_what_members_of_openmp_do() {
    let built = build();
    let (job, _) = stays(&built, 10);
    let Ended { status, err, .. } = job.ended();
    assert_eq!(status.code(), Some(124), "{err}");
    if err.contains("no stack") {
        println!("note: no process may be traced here; nothing is tested");
        return;
    }
    for line in [
        "mpiexec: OpenMP in rank 0: team 1, 4 members of stays._omp_fn.0\n".to_owned(),
        format!(": waits: barrier at {} in meet()\n", built.line("barrier")),
        format!(
            "mpiexec:     member 2: waits: lock or critical at {} in stays (parallel region)()\n",
            built.line("enters")
        ),
    ] {
        assert!(err.contains(&line), "{line}: {err}");
    }
}

#[test]
fn the_report_of_a_crash_says_what_members_of_openmp_did() {
    let built = build();
    let (job, pid) = stays(&built, 100);
    send("SEGV", pid);
    let Ended { status, err, .. } = job.ended();
    assert_eq!(status.code(), Some(128 + 11), "{err}");
    for line in [
        format!(
            "mpiexec: OpenMP in rank 0: 4 members of stays (parallel region)() {}\n",
            built.line("stays")
        ),
        "mpiexec:     member 1: runs\n".to_owned(),
        format!(
            "mpiexec:     members 0, 3: waits: barrier at {} in meet()\n",
            built.line("barrier")
        ),
        format!(
            "mpiexec:     member 2: waits: lock or critical at {} in stays (parallel region)()\n",
            built.line("enters")
        ),
    ] {
        assert!(err.contains(&line), "{line}: {err}");
    }
}

/// A machine that is busy gives the members one core, so that one waits before the other has begun.
#[test]
fn a_member_that_waits_for_a_message_lets_others_of_its_thread_begin() {
    let built = build();
    let busy = || {
        Command::new("sh")
            .args(["-c", "while :; do :; done"])
            .spawn()
    };
    let mut beside = [busy().unwrap(), busy().unwrap()];
    let ended: Vec<Ended> = (0..3)
        .map(|_| {
            let words = Words::default().and(stage().join("bin/mpiexec"));
            let words = words.and_all("-timeout 60 -n 2").and(margay()).and("omp");
            Job::start(&words.and(built.path()).and("passes"), 90).ended()
        })
        .collect();
    for process in &mut beside {
        process.kill().unwrap();
        process.wait().unwrap();
    }
    for Ended { status, err, .. } in ended {
        assert!(status.success(), "{err}");
    }
}

#[test]
fn a_profile_and_a_trace_have_regions_and_waits_of_openmp_by_line() {
    let built = build();
    let json = built.folder.path().join("profile.json");
    let trace = built.folder.path().join("run.mtrace");
    let both = format!("-profile={} -trace", json.display());
    let words = Words::default().and(stage().join("bin/mpiexec"));
    let words = words.and_all("-n 2").and_all(&both).and(&trace);
    let words = words.and(margay()).and_all("omp").and(built.path());
    let Ended { status, err, .. } = Job::start(&words, 90).ended();
    assert!(status.success(), "{err}");
    let profile: Value = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
    let found = profile["openmp"].as_array().unwrap();
    let of = |name: &str, mark: &str| {
        let place = built.line(mark);
        let is_it = |of: &&Value| of["name"] == name && of["place"] == place;
        let found = found.iter().find(is_it);
        let of = found.unwrap_or_else(|| panic!("{name} at {place}: {profile}"));
        (
            of["count"].as_f64().unwrap(),
            of["seconds"].as_f64().unwrap(),
        )
    };
    // Each rank has a region, whose second member works for 0.15 s before it comes to the barrier,
    // and the first one for 0.01 s.
    let (regions, seconds) = of("omp parallel", "region");
    assert!(regions == 2.0 && seconds >= 0.3, "{profile}");
    let (members, seconds) = of("omp barrier", "barrier");
    assert!(members == 4.0 && seconds >= 0.2, "{profile}");
    assert_eq!(of("omp end of parallel", "region").0, 4.0);
    // One member of each rank works in the critical construct while the other waits for it, unless
    // it comes when that is over.
    let waits = found
        .iter()
        .filter(|of| of["name"] == "omp wait for critical");
    assert!(waits.map(|of| of["count"].as_f64().unwrap()).sum::<f64>() <= 2.0);
    let text = run(command(margay(), 30).args(["trace", "profile"]).arg(&trace));
    let text = String::from_utf8_lossy(&text.stdout).into_owned();
    let row = format!("omp barrier            {}", built.line("barrier"));
    assert!(text.contains(&row), "{text}");
    let convert = |to: &str| {
        let mut convert = command(margay(), 30);
        convert.args(["trace", "convert"]).arg(&trace);
        let output = run(convert.args(["--to", to]));
        assert!(output.status.success(), "{output:?}");
    };
    convert("chrome");
    let events = std::fs::read_to_string(trace.with_extension("json")).unwrap();
    assert_eq!(events.matches("\"name\":\"omp parallel\"").count(), 2);

    // The page has a row for each thread.
    let html = trace.with_extension("html");
    let mut view = command(margay(), 30);
    let output = run(view.arg("view").arg(&trace).arg("--html").arg(&html));
    assert!(output.status.success(), "{output:?}");
    let page = std::fs::read_to_string(html).unwrap();
    let (_, openmp) = page.split_once("\"openmp\":[").unwrap();
    let (openmp, _) = openmp.split_once("],\"left_out\"").unwrap();
    let rows = |rank: u32| openmp.matches(&format!("{{\"rank\":{rank},")).count();
    // Both members may have run on one thread.
    assert!(
        [0, 1].iter().all(|&rank| (1..=2).contains(&rows(rank))),
        "{openmp}"
    );

    convert("otf2");
    if !Path::new("/usr/bin/otf2-print").exists() {
        println!("note: there is no otf2-print here: what is in archives is not tested");
        return;
    }
    let mut print = command("otf2-print", 60);
    print.args(["-Werror", "-A"]);
    let printed = run(print.arg(trace.with_extension("otf2").join("traces.otf2")));
    let printed = String::from_utf8_lossy(&printed.stdout).into_owned();
    let events = |kind: &str, region: &str| {
        let region = format!("Region: \"{region}\" ");
        let is_it = |line: &&str| line.starts_with(kind) && line.contains(&region);
        printed.lines().filter(is_it).count()
    };
    for kind in ["ENTER", "LEAVE"] {
        assert_eq!(events(kind, "omp parallel"), 2, "{printed}");
        assert_eq!(events(kind, "omp barrier"), 4, "{printed}");
    }
    let definitions = |kind: &str, what: &str| {
        let is_it = |line: &&str| line.starts_with(kind) && line.contains(what);
        printed.lines().filter(is_it).count()
    };
    let threads = definitions("LOCATION ", " OpenMP, thread ");
    assert_eq!(threads, rows(0) + rows(1), "{printed}");
    let region = definitions("REGION ", "Role: PARALLEL, Paradigm: \"OpenMP\"");
    assert_eq!(region, 1, "{printed}");
}

fn build_iml() -> Built {
    let [include, lib] = ["include", "lib"].map(|folder| stage().join(folder));
    let [include, lib] = [include.display(), lib.display()];
    let options = format!("-O1 -g -I{include} -L{lib} -Wl,--no-as-needed,-rpath,{lib} -liml");
    Built::by("mpicc", "iml.c", &options)
}

/// The line of those tasks of IML that do this here; they have any numbers.
fn has_task(text: &str, does: &str) -> bool {
    let tasks = text.lines().filter(|line| line.contains("    task"));
    tasks.filter(|line| line.ends_with(does)).count() == 1
}

#[test]
fn tasks_and_loops_of_iml_are_shown_with_their_lines() {
    let built = build_iml();
    let at = |what: &str, mark: &str, function: &str| {
        format!(": {what} at {} in {function}()", built.line(mark))
    };
    // It looks for its message now and then.
    let receives = at("", "receives", "receives").replace(":  at", " at");
    let computes = at("runs", "computes", "computes");
    for (word, call) in [
        ("", at("in iml_Wait", "forks", "forks")),
        ("loop", at("in iml_For", "loop", "main")),
    ] {
        let words = Words::mpiexec(8, 1, &built.path(), word);
        let mut job = Job::start(&words, 90);
        job.until("ready", 1);
        let pid = job.pid().to_string();
        let why = || {
            let output = run(command(margay(), 30).arg("why").arg(&pid));
            String::from_utf8_lossy(&output.stdout).into_owned()
        };
        let is_shown = |text: &str| {
            let all = [&receives, &computes, &call];
            text.contains("IML in rank 0:\n") && all.iter().all(|line| has_task(text, line))
        };
        // On one core a task begins only when the other one waits in the kernel for a while.
        let found = (0..100).map(|_| why()).find(|text| is_shown(text));
        let Ended { status, err, .. } = job.ended();
        assert_eq!(status.code(), Some(124), "{err}");
        if err.contains("no stack") {
            println!("note: no process may be traced here; nothing is tested");
            return;
        }
        assert!(found.is_some() && is_shown(&err), "{found:?} {err}");
    }
}

#[test]
fn a_rank_whose_tasks_are_over_has_none() {
    let built = build_iml();
    let words = Words::mpiexec(5, 1, &built.path(), "none");
    let mut job = Job::start(&words, 90);
    job.until("ready", 1);
    let output = run(command(margay(), 30).arg("why").arg(job.pid().to_string()));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let Ended { status, err, .. } = job.ended();
    assert_eq!(status.code(), Some(124), "{err}");
    for text in [text, err] {
        assert!(
            text.contains("rank 0") && !text.contains("IML in rank"),
            "{text}"
        );
    }
}
