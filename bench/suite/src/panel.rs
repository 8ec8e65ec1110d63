//! A panel of the picture: what it shows, and how that is drawn.

use std::ops::Range;

use anyhow::{Result, anyhow};
use margay_bench_common::font::FONT;
use plotters::coord::Shift;
use plotters::prelude::*;

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

    /// Draws the panel, or says that it was not measured.
    pub(crate) fn draw(&self, area: &Area) -> Result<()> {
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
}
