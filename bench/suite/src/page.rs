//! A report for readers: the table, the notes, the Markdown page, the files.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::Result;
use margay_bench_common::mpi::OURS;
use margay_bench_common::page::{self, empty_table, significant, to_the_right};

use crate::files;
use crate::picture;
use crate::report::{DIGITS, Report, Suite, message_bytes};
use crate::threads;

/// Returns the table or tables; `whole` with every Livermore loop and every length of Comtest.
pub fn table(report: &Report, whole: bool, markdown: bool) -> String {
    match report.suite {
        Suite::Machine => machine_table(report, whole, markdown),
        Suite::Threads | Suite::Kernels => threads::table::tables(report, markdown),
        Suite::Files => files::table::tables(report, markdown),
    }
}

fn machine_table(report: &Report, whole: bool, markdown: bool) -> String {
    let mut table = empty_table(markdown);
    table.set_header([
        "program", "with", "ranks", "figure", "value", "unit", "noise %",
    ]);
    for run in &report.runs {
        for figure in &run.reported.figures {
            if !whole && is_detail(&run.program, &figure.name) {
                continue;
            }
            let ranks = if run.ranks == 0 {
                "-".to_owned()
            } else {
                run.ranks.to_string()
            };
            table.add_row([
                run.program.clone(),
                run.implementation.clone(),
                ranks,
                figure.name.clone(),
                significant(figure.value, DIGITS),
                figure.unit.clone(),
                figure
                    .noise
                    .map_or("-".into(), |noise| format!("{noise:.1}")),
            ]);
        }
    }
    for figure in &report.derived {
        table.add_row([
            "compared",
            OURS,
            "",
            &figure.name,
            &significant(figure.value, DIGITS),
            &figure.unit,
            "-",
        ]);
    }
    to_the_right(&mut table, [2, 4, 6]);
    table.to_string()
}

/// Returns what to know beside the table.
pub fn notes(report: &Report) -> String {
    let mut text = String::new();
    let (passed, all) = report.checks();
    let _ = writeln!(
        text,
        "{}, {} cores, {}; {} sizes; {:.0} s. {passed} of {all} verifications passed.",
        report.date,
        report.host.cores,
        report.host.processor,
        if report.quick { "quick" } else { "full" },
        report.seconds
    );
    let mut message: Vec<(&str, &str)> = Vec::new();
    for run in &report.runs {
        let library = (run.implementation.as_str(), run.reported.library.as_str());
        let notes = run
            .reported
            .notes
            .iter()
            .map(|note| (run.program.as_str(), note.as_str()));
        for line in std::iter::once(library).chain(notes) {
            if !message.contains(&line) {
                message.push(line);
                let _ = writeln!(text, "{}: {}", line.0, line.1);
            }
        }
    }
    for left_out in &report.left_out {
        let _ = writeln!(text, "left out: {left_out}");
    }
    for failure in &report.failures {
        let _ = writeln!(text, "failed: {failure}");
    }
    text
}

/// Returns the report as Markdown; `picture` is the name of the SVG file beside it.
pub fn markdown(report: &Report, picture: &str) -> String {
    format!(
        "# {}, {} on {}\n\n```\n{}```\n\n![figures]({picture})\n\n{}\n",
        report.title(),
        report.date,
        report.host.class(),
        notes(report),
        table(report, true, true)
    )
}

/// Writes JSON, Markdown and SVG into `folder` and gives their paths.
///
/// # Errors
/// When the folder or a file cannot be written.
pub fn save(report: &Report, folder: &Path) -> Result<[PathBuf; 3]> {
    let quick = if report.quick { "-quick" } else { "" };
    let suite = match report.suite {
        Suite::Machine => "suite",
        Suite::Threads => "threads",
        Suite::Kernels => "threads-kernels",
        Suite::Files => "files",
    };
    let of = report
        .directory
        .as_deref()
        .map_or_else(String::new, name_of);
    let name = format!("{}-{}-{suite}{of}{quick}", report.date, report.host.class());
    let files = [
        ("json", serde_json::to_string_pretty(report)? + "\n"),
        ("md", markdown(report, &format!("{name}.svg"))),
        ("svg", picture::draw(report)?),
    ];
    page::save(folder, &name, files)
}

/// Returns what a directory adds to the names of files: the last part of its path.
fn name_of(directory: &str) -> String {
    let last = Path::new(directory).file_name().unwrap_or_default();
    let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
    match last
        .to_string_lossy()
        .chars()
        .map(plain)
        .collect::<String>()
    {
        name if name.is_empty() => name,
        name => format!("-{name}"),
    }
}

/// Figures that the short table leaves out.
fn is_detail(program: &str, figure: &str) -> bool {
    match program {
        "livermore" => figure.starts_with("kernel-"),
        _ => program.starts_with("comtest") && message_bytes(figure).is_some(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests::canned;

    #[test]
    fn the_short_table_leaves_details_out_and_markdown_has_them() {
        let report = canned(1.0);
        let short = table(&report, false, false);
        assert!(
            short.contains("arithmetic-mean") && !short.contains("kernel-07"),
            "{short}"
        );
        assert!(
            short.contains("latency") && !short.contains("1024B"),
            "{short}"
        );
        let markdown = markdown(&report, "x.svg");
        assert!(markdown.contains("kernel-07") && markdown.contains("1024B"));
        assert!(markdown.contains("![figures](x.svg)"));
        assert!(markdown.contains("left out: comtest-nx: no libnx"));
        assert!(markdown.contains("1 of 1 verifications passed"));
    }

    #[test]
    fn a_saved_report_is_read_again() {
        let folder = tempfile::tempdir().unwrap();
        let report = canned(1.0);
        let [json, markdown, svg] = save(&report, folder.path()).unwrap();
        assert_eq!(Report::load(&json).unwrap(), report);
        assert!(
            json.to_string_lossy()
                .ends_with("2000-01-01-2core-canned-processor-suite-quick.json")
        );
        assert!(
            std::fs::read_to_string(markdown)
                .unwrap()
                .starts_with("# Performance suite")
        );
        assert!(std::fs::read_to_string(svg).unwrap().starts_with("<svg"));
    }
}
