//! The figures of a report as a picture: panels in one SVG file.

use anyhow::{Context, Result, anyhow};
use margay_bench_common::font::{self, FONT};
use plotters::prelude::*;

use crate::files;
use crate::panel::{Level, Panel, Series};
use crate::report::{Report, Run, Suite, message_bytes};
use crate::threads::runtime::NAMES;
use crate::threads::table::{self, Row};

/// Width of the picture and height of a row of two panels.
const WIDTH: u32 = 1400;
const ROW: u32 = 480;
/// Draws a report as SVG.
///
/// # Errors
/// When the picture cannot be drawn.
pub fn draw(report: &Report) -> Result<String> {
    font::register();
    let panels = match report.suite {
        Suite::Machine => machine_panels(report),
        Suite::Threads | Suite::Kernels => thread_panels(report),
        Suite::Files => files::panels::panels(report),
    };
    let rows = panels.len().div_ceil(2);
    let mut svg = String::new();
    {
        let size = (WIDTH, ROW * rows as u32 + 60);
        let root = SVGBackend::with_string(&mut svg, size).into_drawing_area();
        root.fill(&WHITE).map_err(|e| anyhow!("{e}"))?;
        let title = format!(
            "{}, {}, {} cores, {}",
            report.title(),
            report.date,
            report.host.cores,
            report.host.processor
        );
        let root = root
            .titled(&title, (FONT, 24))
            .map_err(|e| anyhow!("{e}"))?;
        for (area, panel) in root.split_evenly((rows, 2)).iter().zip(&panels) {
            panel
                .draw(area)
                .with_context(|| format!("the panel {}", panel.title))?;
        }
        root.present().map_err(|e| anyhow!("{e}"))?;
    }
    Ok(svg)
}

fn machine_panels(report: &Report) -> Vec<Panel> {
    vec![
        livermore(report),
        comtest(report),
        by_ranks(
            report,
            "ladder",
            "Memory ladder",
            &["level-1", "level-2", "level-3", "memory"],
            true,
        ),
        by_ranks(
            report,
            "stream",
            "STREAM",
            &["copy", "scale", "add", "triad"],
            false,
        ),
        evm(report),
        linpack(report),
    ]
}

/// Returns a panel for each figure: the sizes of teams beside each other, a colour for each
/// runtime. Where others contended, the longest rounds stand beside the medians.
fn thread_panels(report: &Report) -> Vec<Panel> {
    let rows = table::rows(report);
    let measured = |name: &&&str| report.runs.iter().any(|run| run.implementation == **name);
    let names: Vec<&str> = NAMES.iter().filter(measured).copied().collect();
    let mut panels: Vec<Panel> = Vec::new();
    for row in &rows {
        let title = format!("{} {}", row.program, row.figure);
        if panels.iter().any(|panel| panel.title == title) {
            continue;
        }
        let mut bars: Vec<(String, &Row, &str)> = Vec::new();
        for same in rows
            .iter()
            .filter(|other| (&other.program, &other.figure) == (&row.program, &row.figure))
        {
            if same.contended {
                bars.push((same.size(), same, ""));
                bars.push((format!("{} longest", same.threads), same, table::MAXIMUM));
            } else {
                bars.push((same.threads.to_string(), same, ""));
            }
        }
        let series = names.iter().map(|name| Series {
            name: (*name).to_owned(),
            points: (0_u32..)
                .zip(&bars)
                .filter_map(|(n, (_, row, ending))| {
                    Some((f64::from(n), row.value(report, name, ending)?))
                })
                .collect(),
        });
        panels.push(Panel {
            title,
            unit: row.unit.clone(),
            series: series.collect(),
            levels: Vec::new(),
            groups: bars.iter().map(|bar| bar.0.clone()).collect(),
            logarithmic: true,
            position: "threads",
            doubling: false,
        });
    }
    panels
}

/// Several runs beside each other are distinguished by their ranks.
fn ranks(run: &Run) -> String {
    match run.ranks {
        1 => "1 rank".into(),
        n => format!("{n} ranks"),
    }
}

/// Bars of the named figures, a colour for each number of ranks.
fn by_ranks(
    report: &Report,
    program: &str,
    title: &str,
    names: &[&str],
    logarithmic: bool,
) -> Panel {
    let runs = report.runs.iter().filter(|run| run.program == program);
    let series = runs.map(|run| Series {
        name: ranks(run),
        points: (0_u32..)
            .zip(names)
            .filter_map(|(n, name)| Some((f64::from(n), run.figure(name)?)))
            .collect(),
    });
    Panel {
        title: title.into(),
        unit: "MB/s".into(),
        series: series.collect(),
        levels: Vec::new(),
        groups: names.iter().map(|name| (*name).to_owned()).collect(),
        logarithmic,
        position: "",
        doubling: false,
    }
}

fn livermore(report: &Report) -> Panel {
    let run = report.ours("livermore", None);
    let points = (1_u32..=24)
        .filter_map(|n| Some((f64::from(n - 1), run?.figure(&format!("kernel-{n:02}"))?)))
        .collect();
    let levels = ["arithmetic-mean", "geometric-mean", "harmonic-mean"];
    Panel {
        title: "Livermore loops".into(),
        unit: "MFLOPS".into(),
        series: vec![Series {
            name: "kernels".into(),
            points,
        }],
        levels: levels
            .iter()
            .filter_map(|name| {
                Some(Level {
                    name: name.replace('-', " "),
                    value: run?.figure(name)?,
                })
            })
            .collect(),
        groups: (1..=24).map(|n| n.to_string()).collect(),
        logarithmic: true,
        position: "",
        doubling: false,
    }
}

fn comtest(report: &Report) -> Panel {
    let runs = report
        .runs
        .iter()
        .filter(|run| run.program.starts_with("comtest"));
    let series = runs.map(|run| {
        let interface = run.program.strip_prefix("comtest-").unwrap_or("mpi");
        Series {
            name: format!("{} {interface}", run.implementation),
            points: run
                .reported
                .figures
                .iter()
                .filter_map(|figure| Some((message_bytes(&figure.name)?.log2(), figure.value)))
                .collect(),
        }
    });
    Panel {
        title: "Comtest: ping-pong bandwidth".into(),
        unit: "MB/s".into(),
        series: series.collect(),
        levels: Vec::new(),
        groups: Vec::new(),
        logarithmic: true,
        position: "message length, bytes",
        doubling: true,
    }
}

fn evm(report: &Report) -> Panel {
    let mut panel = by_ranks(
        report,
        "evm",
        "EVM: element vector multiply",
        &["plain", "blocked", "streaming"],
        false,
    );
    panel.unit = "MFLOPS".into();
    let streams = report.runs.iter().filter(|run| run.program == "stream");
    panel.levels = streams
        .filter_map(|run| {
            Some(Level {
                name: format!("by STREAM's triad, {}", ranks(run)),
                value: run.figure("triad")? / 24.0,
            })
        })
        .collect();
    panel
}

fn linpack(report: &Report) -> Panel {
    let order =
        |name: &str| -> Option<f64> { name.strip_prefix('N')?.split('.').next()?.parse().ok() };
    let runs = report
        .runs
        .iter()
        .filter(|run| ["linpack", "getrf"].contains(&run.program.as_str()));
    let series = runs.map(|run| Series {
        name: if run.program == "getrf" {
            "library's dgetrf, one process".into()
        } else {
            format!("MP LINPACK, {}, {}", run.implementation, ranks(run))
        },
        points: run
            .reported
            .figures
            .iter()
            .filter_map(|figure| Some((order(&figure.name)?, figure.value)))
            .collect(),
    });
    let series = series.collect();
    let peak = report
        .ours("linpack", None)
        .and_then(|run| run.figure("dgemm"));
    Panel {
        title: "MP LINPACK".into(),
        unit: "GFLOPS".into(),
        series,
        levels: peak
            .map(|value| Level {
                name: "DGEMM on all ranks".into(),
                value,
            })
            .into_iter()
            .collect(),
        groups: Vec::new(),
        logarithmic: false,
        position: "order N",
        doubling: false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests::canned;

    #[test]
    fn every_panel_is_drawn_with_its_series() {
        let svg = draw(&canned(1.0)).unwrap();
        for text in [
            "Livermore loops, MFLOPS",
            "harmonic mean",
            "margay mpi",
            "Memory ladder, MB/s",
            "streaming",
            "DGEMM on all ranks",
            "library&apos;s dgetrf",
        ] {
            assert!(svg.contains(text), "{text}");
        }
        assert!(svg.trim_end().ends_with("</svg>"));
    }

    #[test]
    fn what_was_not_measured_is_said_in_its_panel() {
        let mut report = canned(1.0);
        report.runs.retain(|run| run.program == "stream");
        let svg = draw(&report).unwrap();
        assert!(svg.contains("MP LINPACK: not measured"), "{svg}");
    }

    #[test]
    fn runtimes_stand_beside_each_other() {
        let svg = draw(&crate::threads::table::tests::canned()).unwrap();
        for text in [
            "Threading runtimes",
            "fork flat, us",
            "libgomp",
            "2 contended",
            "2 longest",
        ] {
            assert!(svg.contains(text), "{text}");
        }
    }

    #[test]
    fn each_parameter_of_files_has_a_panel() {
        let svg = draw(&crate::files::evaluation::tests::canned()).unwrap();
        for text in [
            "NX: mode in the buckets, combinations",
            "NX: direction in the buckets, combinations",
            "1: 80.0 to 240 MB/s",
            "highest rate by length of records, MB/s",
            "M_GLOBAL",
        ] {
            assert!(svg.contains(text), "{text}");
        }
    }
}
