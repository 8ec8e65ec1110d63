//! The page of `margay view` in a real browser: keyboard and mouse, what is drawn, and what the
//! displays say.

use std::path::Path;

use margay_tests::browser::{Browser, View};
use margay_tests::{command, program, scratch, stage, succeed};

/// Compiles a program of `programs/trace`, and traces a run of it.
fn trace(folder: &Path, name: &str, ranks: &str, argument: &str) -> std::path::PathBuf {
    let source = program("trace").join(name).with_extension("c");
    let mpicc = stage().join("bin/mpicc");
    succeed(
        command(mpicc, 300)
            .args(["-g", "-O1", "-o"])
            .arg(folder.join(name))
            .arg(source),
    );
    let file = folder.join("run.mtrace");
    succeed(
        command(stage().join("bin/mpiexec"), 300)
            .args(["-n", ranks, "-trace"])
            .arg(&file)
            .arg(folder.join(name))
            .arg(argument)
            // The recorder may not run for a while.
            .env("MARGAY_RECORD", "1048576"),
    );
    file
}

/// The colour of a point of the space-time display, and that which a class has.
const COLOR: &str = "(px, py) => { const d = $('space').getContext('2d').getImageData(px, py, 1, 1).data; return '#' + [d[0], d[1], d[2]].map(v => v.toString(16).padStart(2, '0')).join(''); }";

#[test]
fn a_browser_shows_who_waits_for_whom() {
    let Some(mut browser) = Browser::start() else {
        return;
    };
    let folder = scratch();
    let view = View::of(&trace(folder.path(), "late", "3", ""));
    browser.go(view.address());
    browser.key("w");
    let detail = browser.text("detail");
    assert!(
        detail.contains("\nwaits ") && detail.contains("rank "),
        "{detail}"
    );
    // No line of a message is over it.
    browser.key("m");
    let color = "(() => { const w = waits.reduce((a, b) => b.ns > a.ns ? b : a), l = layout($('space').clientHeight); \
                 return (COLOR)(x(w.start + w.ns / 2, $('space').clientWidth), y(selected.t.rank, l) + l.each - 8); })()"
        .replace("COLOR", COLOR);
    assert_eq!(browser.value(&color), browser.value("colors.wait"));
    for (key, word) in [("3", "MPI_"), ("2", "messages"), ("1", "computes")] {
        browser.key(key);
        let shown = browser.value("document.querySelector('.tab:not([hidden])').innerText");
        assert!(shown.as_str().unwrap().contains(word), "{key}: {shown}");
    }
    // Where the longest wait begins its rank waits.
    browser.key("6");
    let rank = detail.split([' ', ':']).nth(1).unwrap();
    let row = format!(
        "[...$('ranks').rows].find(r => r.cells[0].textContent === '{rank}').cells[1].textContent"
    );
    let does = browser.value(&row);
    assert!(
        does.as_str().unwrap().starts_with("waits in MPI_"),
        "{does}"
    );
    browser.key("5");
    let load = browser.text("concurrency-text");
    assert!(load.contains(" of 3 on average"), "{load}");
    let inked = "(id => { const c = $(id), d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data; \
                 return d.some(v => v); })";
    for id in ["concurrency", "phase"] {
        assert_eq!(browser.value(&format!("{inked}('{id}')")), true, "{id}");
    }
    browser.key("0");
    let length = "to - from";
    let whole = browser.value(length).as_f64().unwrap();
    browser.key("+");
    assert!(browser.value(length).as_f64().unwrap() < 0.8 * whole);
    for scheme in ["dark", "light"] {
        let feature = serde_json::json!([{ "name": "prefers-color-scheme", "value": scheme }]);
        browser.ask(
            "Emulation.setEmulatedMedia",
            serde_json::json!({ "features": feature }),
        );
        let back = if scheme == "dark" { "#14171c" } else { "#fff" };
        browser.until(&format!("colors.back === '{back}'"));
    }
    assert_eq!(browser.thrown, Vec::<String>::new());
}

#[test]
fn a_browser_shows_a_large_trace_by_sums_and_closer_by_its_calls() {
    let Some(mut browser) = Browser::start() else {
        return;
    };
    const MESSAGES: u64 = 270_000;
    let folder = scratch();
    let view = View::of(&trace(folder.path(), "many", "2", &MESSAGES.to_string()));
    // It is too large for all its calls.
    let length = std::fs::metadata(folder.path().join("run.mtrace"))
        .unwrap()
        .len();
    assert!(length > 32_000_000, "{length}");
    browser.go(view.address());
    browser.until("/calls in view: a summary/.test($('summary').textContent)");
    // No call is left out of the sums.
    browser.key("3");
    let table = browser.text("table");
    let sent = table.lines().filter(|line| line.starts_with("MPI_Send"));
    let counts = sent.filter_map(|line| line.split_whitespace().nth(2)?.parse::<u64>().ok());
    assert_eq!(counts.sum::<u64>(), 2 * MESSAGES, "{table}");
    let mut shown = String::new();
    for _ in 0..18 {
        browser.key("+");
        browser.until("/calls in view/.test($('summary').textContent)");
        shown = browser.text("summary");
        if shown.ends_with("each of them shown") {
            break;
        }
    }
    assert!(shown.ends_with("each of them shown"), "{shown}");
    let said: u64 = shown.split_whitespace().next().unwrap().parse().unwrap();
    let drawn = "threads.reduce((n, t) => { for (let i = 0; i < t.n; i++) \
                 if (t.start[i] < Math.ceil(to) && t.start[i] + t.ns[i] >= Math.floor(from)) n++; return n; }, 0)";
    assert_eq!(browser.value(drawn), said);
    assert_eq!(
        browser.value("messages.length > 0 && waits.length > 0"),
        true
    );
    // A click on a call.
    let place = "(() => { const t = ofRank.get(1)[0], i = t.at((from + to) / 2), l = layout($('space').clientHeight); \
                 return [x(t.start[i] + t.ns[i] / 2, $('space').clientWidth), y(1, l) + l.each / 2]; })()";
    let place = browser.value(place);
    browser.click(
        "space",
        place[0].as_f64().unwrap(),
        place[1].as_f64().unwrap(),
    );
    let detail = browser.text("detail");
    assert!(detail.starts_with("rank 1: MPI_"), "{detail}");
    assert!(browser.text("file").contains("many.c:"));
    // Fewer ranks, and all of them again.
    browser.key("[");
    assert_eq!(browser.value("r1 - r0"), 1);
    browser.key("0");
    assert_eq!(browser.value("r1 - r0"), 2);
    // A search finds all, also those that are not visible, and goes to one.
    browser.value("$('search').focus()");
    browser.ask(
        "Input.insertText",
        serde_json::json!({ "text": "mpi_barrier" }),
    );
    browser.until("/ found/.test($('hits').textContent)");
    let hits = browser.text("hits");
    assert!(
        hits.starts_with(&format!("{} found", 2 * (MESSAGES / 100))),
        "{hits}"
    );
    browser.key("Enter");
    browser.until("/MPI_Barrier/.test($('detail').textContent)");
    assert_eq!(browser.thrown, Vec::<String>::new());
    // The page without its program has the sums.
    let html = folder.path().join("page.html");
    succeed(
        command(stage().join("bin/margay"), 60)
            .arg("view")
            .arg(folder.path().join("run.mtrace"))
            .arg("--html")
            .arg(&html),
    );
    browser.go(&format!("file://{}", html.display()));
    browser.key("+");
    let shown = browser.text("summary");
    assert!(shown.contains("This page has no single calls"), "{shown}");
    assert_eq!(browser.thrown, Vec::<String>::new());
}
