//! The picture of a temperature field: a vertical and a horizontal section of the crucible with a
//! colour bar.

use std::io::{BufRead, BufReader, Read};
use std::ops::Range;
use std::path::Path;

use anyhow::{Context, Result, bail};
use margay_bench_common::font::{self, FONT};
use plotters::prelude::*;
use serde::Deserialize;

/// What the first line of a field file says, see `write_field` in `examples/crucible.c`.
#[derive(Debug, Deserialize)]
struct Head {
    nr: usize,
    nphi: usize,
    nz: usize,
    radius_cm: f64,
    height_cm: f64,
    time_s: f64,
}

/// A temperature field in kelvin, on the cells of the unfolded crucible.
#[derive(Debug)]
pub struct Field {
    head: Head,
    /// `nr` fastest, then `nphi`, then `nz`.
    kelvin: Vec<f64>,
}

impl Field {
    /// Reads the file that crucible wrote as `field_out`.
    ///
    /// # Errors
    /// When the file cannot be read, is damaged, or does not have the size that its first line
    /// says.
    pub fn read(path: &Path) -> Result<Self> {
        let file = std::fs::File::open(path)
            .with_context(|| format!("{}: cannot be opened", path.display()))?;
        Self::parse(BufReader::new(file))
            .with_context(|| format!("{}: not a temperature field", path.display()))
    }

    fn parse(mut source: impl BufRead) -> Result<Self> {
        let mut line = String::new();
        source.by_ref().take(4096).read_line(&mut line)?;
        let head: Head = serde_json::from_str(&line).context("its first line is damaged")?;
        let mut bytes = Vec::new();
        source.read_to_end(&mut bytes)?;
        let cells = head
            .nr
            .checked_mul(head.nphi)
            .and_then(|n| n.checked_mul(head.nz))
            .unwrap_or(0);
        if cells == 0 || bytes.len() != cells * 8 {
            bail!(
                "it holds {} bytes, its first line says {cells} cells of 8 bytes",
                bytes.len()
            );
        }
        let kelvin: Vec<f64> = bytes
            .as_chunks()
            .0
            .iter()
            .map(|cell| f64::from_ne_bytes(*cell))
            .collect();
        if kelvin.iter().any(|value| !value.is_finite()) {
            bail!("a value is not finite");
        }
        Ok(Self { head, kelvin })
    }

    fn cell(&self, r: usize, phi: usize, z: usize) -> f64 {
        self.kelvin[r + self.head.nr * (phi + self.head.nphi * z)]
    }

    /// Returns the temperature at a place in centimetres and radians, linear between the middles of
    /// the cells.
    fn at(&self, r_cm: f64, phi: f64, z_cm: f64) -> f64 {
        let head = &self.head;
        let (r, fr) = between(r_cm / head.radius_cm * head.nr as f64 - 0.5, head.nr);
        let (z, fz) = between(z_cm / head.height_cm * head.nz as f64 - 0.5, head.nz);
        let turn = (phi / std::f64::consts::TAU).rem_euclid(1.0) * head.nphi as f64 - 0.5
            + head.nphi as f64;
        let (p, fp) = (turn as usize, turn.fract());
        let mut sum = 0.0;
        for (corner, weight) in [(0, 1.0 - fp), (1, fp)] {
            let p = (p + corner) % head.nphi;
            let low = (1.0 - fr) * self.cell(r[0], p, z[0]) + fr * self.cell(r[1], p, z[0]);
            let high = (1.0 - fr) * self.cell(r[0], p, z[1]) + fr * self.cell(r[1], p, z[1]);
            sum += weight * ((1.0 - fz) * low + fz * high);
        }
        sum
    }

    fn range(&self) -> Range<f64> {
        let low = self.kelvin.iter().copied().fold(f64::INFINITY, f64::min);
        let high = self
            .kelvin
            .iter()
            .copied()
            .fold(f64::NEG_INFINITY, f64::max);
        low..high.max(low + 1e-9)
    }
}

/// Returns the two cells round a position in units of cells, and the share of the second.
fn between(position: f64, cells: usize) -> ([usize; 2], f64) {
    let position = position.clamp(0.0, (cells - 1) as f64);
    let first = position as usize;
    ([first, (first + 1).min(cells - 1)], position.fract())
}

const SIZE: (u32, u32) = (1360, 640);
const BAR_WIDTH: u32 = 150;

/// Kelvin between two isotherms.
const ISOTHERM_K: f64 = 5.0;

/// Writes the picture as PNG: the section through the axis, the section across it, the colour bar.
///
/// # Errors
/// When the file cannot be written.
pub fn write(field: &Field, path: &Path) -> Result<()> {
    font::register();
    draw(field, path)
        .map_err(|error| anyhow::anyhow!("{}: cannot be written: {error}", path.display()))
}

fn draw(field: &Field, path: &Path) -> Result<(), Box<dyn std::error::Error>> {
    let head = &field.head;
    let (radius, height) = (head.radius_cm, head.height_cm);
    let root = BitMapBackend::new(path, SIZE).into_drawing_area();
    root.fill(&WHITE)?;
    let title = format!("Melt in a crucible after {:.1} s: temperature", head.time_s);
    let root = root.titled(&title, (FONT, 26))?;
    let (panels, bar) = root.split_horizontally(SIZE.0 - BAR_WIDTH);
    let (vertical, horizontal) = panels.split_horizontally((SIZE.0 - BAR_WIDTH) * 53 / 100);
    let range = field.range();
    let level_cm = height * 0.75;
    section(
        &vertical,
        "section through the axis",
        ("r [cm], left: phi = 180 degrees, right: 0", "z [cm]"),
        (-radius..radius, 0.0..height),
        &range,
        |x, z| Some(field.at(x.abs(), if x < 0.0 { std::f64::consts::PI } else { 0.0 }, z)),
    )?;
    section(
        &horizontal,
        &format!("section across it at z = {level_cm:.1} cm"),
        ("x [cm]", "y [cm]"),
        (-radius..radius, -radius..radius),
        &range,
        |x, y| (x.hypot(y) <= radius).then(|| field.at(x.hypot(y), y.atan2(x), level_cm)),
    )?;
    colour_bar(&bar, &range)?;
    root.present()?;
    Ok(())
}

type Area<'a> = DrawingArea<BitMapBackend<'a>, plotters::coord::Shift>;

/// One panel: axes in centimetres at equal scale, colours from `value`, isotherms.
fn section(
    area: &Area,
    caption: &str,
    labels: (&str, &str),
    (x, y): (Range<f64>, Range<f64>),
    range: &Range<f64>,
    value: impl Fn(f64, f64) -> Option<f64>,
) -> Result<(), Box<dyn std::error::Error>> {
    const MARGIN: f64 = 12.0;
    const LABELS: f64 = 52.0;
    const CAPTION: f64 = 30.0;
    let (width, height) = area.dim_in_pixel();
    let free = (
        f64::from(width) - 2.0 * MARGIN - LABELS,
        f64::from(height) - 2.0 * MARGIN - LABELS - CAPTION,
    );
    let scale = (free.0 / (x.end - x.start)).min(free.1 / (y.end - y.start));
    let (side, above) = (
        free.0 - scale * (x.end - x.start),
        free.1 - scale * (y.end - y.start),
    );
    let mut chart = ChartBuilder::on(area)
        .caption(caption, (FONT, 20))
        .margin(MARGIN as i32)
        .margin_right((MARGIN + side) as i32)
        .margin_bottom((MARGIN + above) as i32)
        .x_label_area_size(LABELS as u32)
        .y_label_area_size(LABELS as u32)
        .build_cartesian_2d(x.clone(), y.clone())?;
    chart
        .configure_mesh()
        .disable_mesh()
        .x_desc(labels.0)
        .y_desc(labels.1)
        .label_style((FONT, 16))
        .axis_desc_style((FONT, 17))
        .x_label_formatter(&|v| format!("{v:.0}"))
        .y_label_formatter(&|v| format!("{v:.0}"))
        .x_labels(7)
        .y_labels(7)
        .draw()?;
    let plot = chart.plotting_area();
    let (columns, rows) = plot.get_pixel_range();
    let (wide, high) = (
        f64::from(columns.end - columns.start),
        f64::from(rows.end - rows.start),
    );
    let kelvin = |column: i32, row: i32| {
        value(
            x.start + (f64::from(column) + 0.5) / wide * (x.end - x.start),
            y.end - (f64::from(row) + 0.5) / high * (y.end - y.start),
        )
    };
    let plain = plot.strip_coord_spec();
    for row in 0..rows.end - rows.start {
        for column in 0..columns.end - columns.start {
            let Some(here) = kelvin(column, row) else {
                continue;
            };
            let band = |value: f64| (value / ISOTHERM_K).floor();
            let edge = [kelvin(column + 1, row), kelvin(column, row + 1)];
            let line = edge
                .into_iter()
                .flatten()
                .any(|other| band(other) != band(here));
            plain.draw_pixel((column, row), &colour(here, range, line))?;
        }
    }
    Ok(())
}

fn colour(kelvin: f64, range: &Range<f64>, isotherm: bool) -> RGBColor {
    let RGBColor(r, g, b) = ViridisRGB.get_color_normalized(kelvin, range.start, range.end);
    if isotherm {
        RGBColor(r / 2, g / 2, b / 2)
    } else {
        RGBColor(r, g, b)
    }
}

fn colour_bar(area: &Area, range: &Range<f64>) -> Result<(), Box<dyn std::error::Error>> {
    let mut chart = ChartBuilder::on(area)
        .caption("T [K]", (FONT, 20))
        .margin(12)
        .margin_bottom(64)
        .right_y_label_area_size(60)
        .build_cartesian_2d(0.0..1.0, range.clone())?
        .set_secondary_coord(0.0..1.0, range.clone());
    chart
        .configure_secondary_axes()
        .label_style((FONT, 16))
        .y_label_formatter(&|v| format!("{v:.0}"))
        .draw()?;
    let plot = chart.plotting_area();
    let (columns, rows) = plot.get_pixel_range();
    let (wide, high) = (columns.end - columns.start, rows.end - rows.start);
    let plain = plot.strip_coord_spec();
    for row in 0..high {
        let kelvin =
            range.end - (f64::from(row) + 0.5) / f64::from(high) * (range.end - range.start);
        for column in 0..wide {
            plain.draw_pixel((column, row), &colour(kelvin, range, false))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(
        nr: usize,
        nphi: usize,
        nz: usize,
        value: impl Fn(usize, usize, usize) -> f64,
    ) -> Vec<u8> {
        let mut bytes = format!(
            "{{\"nr\":{nr},\"nphi\":{nphi},\"nz\":{nz},\"radius_cm\":3,\"height_cm\":4,\"time_s\":1.5}}\n"
        )
        .into_bytes();
        for z in 0..nz {
            for phi in 0..nphi {
                for r in 0..nr {
                    bytes.extend(value(r, phi, z).to_ne_bytes());
                }
            }
        }
        bytes
    }

    #[test]
    fn a_field_is_sampled_in_its_cells_and_between_them() {
        let field =
            Field::parse(&file(3, 4, 4, |r, phi, z| (r + 10 * phi + 100 * z) as f64)[..]).unwrap();
        let quarter = std::f64::consts::TAU / 4.0;
        assert_eq!(field.at(1.5, 0.5 * quarter, 0.5), 1.0);
        assert_eq!(field.at(2.0, 0.5 * quarter, 0.5), 1.5);
        assert_eq!(field.at(0.5, quarter, 1.5), 105.0);
        assert!(
            (field.at(0.5, 0.0, 0.5) - 15.0).abs() < 1e-9,
            "phi closes the circle"
        );
        assert_eq!(
            field.at(9.0, 0.5 * quarter, 9.0),
            302.0,
            "outside: the nearest cell"
        );
    }

    #[test]
    fn damaged_fields_are_refused_with_a_reason() {
        let good = file(2, 2, 2, |_, _, _| 1.0);
        let reason = |bytes: &[u8]| format!("{:#}", Field::parse(bytes).unwrap_err());
        assert!(reason(&good[..good.len() - 1]).contains("8 cells of 8 bytes"));
        assert!(reason(b"nothing").contains("first line"));
        assert!(reason(&file(2, 2, 2, |_, _, _| f64::NAN)).contains("not finite"));
        assert!(reason(&file(0, 2, 2, |_, _, _| 1.0)).contains("0 cells"));
    }

    #[test]
    fn a_picture_is_written() {
        let field =
            Field::parse(&file(3, 8, 4, |r, phi, z| 1700.0 + (r * phi + z) as f64)[..]).unwrap();
        let path = std::env::temp_dir().join(format!("margay-picture-{}.png", std::process::id()));
        write(&field, &path).unwrap();
        let bytes = std::fs::read(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert_eq!(&bytes[..8], b"\x89PNG\r\n\x1a\n");
        assert!(bytes.len() > 10_000, "{} bytes", bytes.len());
    }
}
