//! The figures of a report as a picture: panels in one SVG file.

use std::ops::Range;

use anyhow::{Context, Result, anyhow};
use margay_bench_common::font::{self, FONT};
use plotters::coord::Shift;
use plotters::prelude::*;

use crate::files;
use crate::report::{Report, Run, Suite, message_bytes};
use crate::threads::runtime::NAMES;
use crate::threads::table::{self, Row};

/// Width of the picture and height of a row of two panels.
const WIDTH: u32 = 1400;
const ROW: u32 = 480;
const COLOURS: [RGBColor; 9] = [
    RGBColor(31, 90, 150),
    RGBColor(226, 125, 45),
    RGBColor(70, 140, 80),
    RGBColor(150, 60, 120),
    RGBColor(190, 160, 40),
    RGBColor(90, 160, 190),
    RGBColor(200, 70, 70),
    RGBColor(110, 85, 60),
    RGBColor(120, 120, 120),
];

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// One line or one colour of bars.
pub(crate) struct Series {
    pub(crate) name: String,
    /// Positions and values; of bars the positions are 0, 1, 2.
    pub(crate) points: Vec<(f64, f64)>,
}

/// A value that stands for the whole panel, drawn across it.
pub(crate) struct Level {
    pub(crate) name: String,
    pub(crate) value: f64,
}

/// What a panel shows.
pub(crate) struct Panel {
    pub(crate) title: String,
    pub(crate) unit: String,
    pub(crate) series: Vec<Series>,
    pub(crate) levels: Vec<Level>,
    /// Names of the bars' groups; none: lines over the positions.
    pub(crate) groups: Vec<String>,
    /// Whether values go by powers of ten.
    pub(crate) logarithmic: bool,
    /// What positions are, for lines.
    pub(crate) position: &'static str,
    /// Whether positions are powers of two.
    pub(crate) doubling: bool,
}

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

impl Panel {
    /// Returns a value's height on the axis.
    fn height(&self, value: f64) -> f64 {
        if self.logarithmic {
            value.max(1e-9).log10()
        } else {
            value
        }
    }

    fn values(&self) -> impl Iterator<Item = f64> {
        let points = self.series.iter().flat_map(|series| &series.points);
        points
            .map(|point| point.1)
            .chain(self.levels.iter().map(|level| level.value))
    }

    fn heights(&self) -> Range<f64> {
        let most = self.values().fold(f64::MIN, f64::max);
        let least = self.values().fold(f64::MAX, f64::min);
        if self.logarithmic {
            // Room for the legend above the highest value.
            let (low, high) = (self.height(least).floor(), self.height(most));
            low..high + 0.3 * (high - low).max(1.0)
        } else {
            0.0..most * 1.35
        }
    }

    fn positions(&self) -> Range<f64> {
        if !self.groups.is_empty() {
            return -0.5..self.groups.len() as f64 - 0.5;
        }
        let all = || self.series.iter().flat_map(|series| &series.points);
        let least = all().map(|point| point.0).fold(f64::MAX, f64::min);
        let most = all().map(|point| point.0).fold(f64::MIN, f64::max);
        let room = 0.04 * (most - least).max(1.0);
        least - room..most + room
    }

    fn draw(&self, area: &Area) -> Result<()> {
        let printed = |e: &dyn std::fmt::Display| anyhow!("{e}");
        if self.values().next().is_none() {
            let text = format!("{}: not measured", self.title);
            let style = (FONT, 18).into_text_style(area);
            return area
                .draw_text(&text, &style, (40, 40))
                .map_err(|e| printed(&e));
        }
        let mut chart = ChartBuilder::on(area)
            .caption(format!("{}, {}", self.title, self.unit), (FONT, 19))
            .margin(14)
            .x_label_area_size(44)
            .y_label_area_size(78)
            .build_cartesian_2d(self.positions(), self.heights())
            .map_err(|e| printed(&e))?;
        let position = |at: &f64| self.position_label(*at);
        let height = |value: &f64| self.height_label(*value);
        chart
            .configure_mesh()
            .disable_x_mesh()
            .light_line_style(TRANSPARENT)
            .x_labels(if self.groups.is_empty() {
                8
            } else {
                2 * self.groups.len()
            })
            .y_labels(8)
            .x_desc(self.position)
            .label_style((FONT, 14))
            .axis_desc_style((FONT, 14))
            .x_label_formatter(&position)
            .y_label_formatter(&height)
            .draw()
            .map_err(|e| printed(&e))?;
        let bottom = self.heights().start;
        let wide = 0.8 / self.series.len().max(1) as f64;
        for (n, series) in self.series.iter().enumerate() {
            let colour = COLOURS[n % COLOURS.len()];
            let points = || series.points.iter().map(|&(x, y)| (x, self.height(y)));
            let drawn = if self.groups.is_empty() {
                chart
                    .draw_series(points().map(|point| Circle::new(point, 4, colour.filled())))
                    .map_err(|e| printed(&e))?;
                chart
                    .draw_series(LineSeries::new(points(), colour.stroke_width(2)))
                    .map_err(|e| printed(&e))?
            } else {
                let left = -0.4 + wide * n as f64;
                chart
                    .draw_series(points().map(|(x, y)| {
                        let corners = [(x + left, bottom), (x + left + 0.95 * wide, y)];
                        Rectangle::new(corners, colour.filled())
                    }))
                    .map_err(|e| printed(&e))?
            };
            drawn.label(&series.name).legend(move |(x, y)| {
                Rectangle::new([(x, y - 5), (x + 14, y + 5)], colour.filled())
            });
        }
        let across = self.positions();
        for (n, level) in self.levels.iter().enumerate() {
            let colour = COLOURS[(n + self.series.len()) % COLOURS.len()];
            let at = self.height(level.value);
            chart
                .draw_series(LineSeries::new(
                    [(across.start, at), (across.end, at)],
                    colour.stroke_width(2),
                ))
                .map_err(|e| printed(&e))?
                .label(&level.name)
                .legend(move |(x, y)| {
                    PathElement::new([(x, y), (x + 14, y)], colour.stroke_width(2))
                });
        }
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::UpperLeft)
            .background_style(WHITE.mix(0.85))
            .label_font((FONT, 14))
            .draw()
            .map_err(|e| printed(&e))
    }

    fn position_label(&self, at: f64) -> String {
        let near = at.round();
        let whole = (at - near).abs() < 0.01;
        if self.doubling {
            return if whole { binary(near) } else { String::new() };
        }
        if self.groups.is_empty() {
            return short(at);
        }
        // Only the middle of a group bears its name.
        if !whole || near < 0.0 {
            return String::new();
        }
        self.groups.get(near as usize).cloned().unwrap_or_default()
    }

    fn height_label(&self, value: f64) -> String {
        if !self.logarithmic {
            return short(value);
        }
        // Between the powers of ten there are lines only.
        if (value - value.round()).abs() < 0.01 {
            short(10_f64.powf(value))
        } else {
            String::new()
        }
    }
}

/// Two to the power of `exponent`, with the unit's prefix.
fn binary(exponent: f64) -> String {
    let unit = ["", " Ki", " Mi", " Gi"][(exponent as usize / 10).min(3)];
    format!("{:.0}{unit}", (exponent % 10.0).exp2())
}

/// Returns a number with a letter for thousands and millions.
fn short(value: f64) -> String {
    match value.abs() {
        v if v >= 999_500.0 => format!("{:.1}M", value / 1e6),
        v if v >= 10_000.0 => format!("{:.0}k", value / 1e3),
        v if v >= 1000.0 => format!("{:.1}k", value / 1e3),
        v if v >= 10.0 || v == 0.0 => format!("{value:.0}"),
        _ => format!("{value:.1}"),
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
    fn lengths_have_binary_prefixes() {
        assert_eq!(
            [5.0, 10.0, 15.0, 22.0].map(binary),
            ["32", "1 Ki", "32 Ki", "4 Mi"]
        );
    }

    #[test]
    fn labels_are_short() {
        for (value, label) in [
            (0.0, "0"),
            (0.25, "0.2"),
            (64.0, "64"),
            (1024.0, "1.0k"),
            (65_536.0, "66k"),
            (4_194_304.0, "4.2M"),
        ] {
            assert_eq!(short(value), label);
        }
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
}
