//! The heat map of the grid: a panel for each number of ranks and kind of buffers, a row for each
//! operation, a column for each size. Green is faster than the best peer, red slower.

use anyhow::{Result, anyhow};
use margay_bench_common::font::{self, FONT};
use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::cells::{Ratio, axes};
use crate::report::bytes;

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// Width and height of a cell in points.
const CELL: (i32, i32) = (44, 16);
/// Room for the names of operations, and above and below the cells of a panel.
const NAMES: i32 = 170;
const HEAD: i32 = 34;
const FOOT: i32 = 56;
/// Room for the picture's title and the scale.
const TITLE: i32 = 90;
/// Ratios whose colours are full: this much faster or slower.
const FULL: f64 = 2.0;

/// Draws the heat map as SVG.
///
/// # Errors
/// When there are no ratios, or the picture cannot be drawn.
pub fn draw(ratios: &[Ratio<'_>], title: &str) -> Result<String> {
    font::register();
    let mut svg = String::new();
    picture(ratios, title, &mut svg).map_err(|error| anyhow!("the heat map: {error}"))?;
    Ok(svg)
}

fn picture(
    ratios: &[Ratio<'_>],
    title: &str,
    svg: &mut String,
) -> Result<(), Box<dyn std::error::Error>> {
    let (operations, ranks) = axes(ratios);
    let distinct = |mut all: Vec<u64>| {
        all.sort_unstable();
        all.dedup();
        all
    };
    let sizes = distinct(ratios.iter().map(|r| r.cell.bytes).collect());
    let mut data: Vec<&str> = ratios.iter().map(|r| r.cell.data).collect();
    data.sort_unstable();
    data.dedup();
    if ratios.is_empty() {
        return Err("there are no figures to compare".into());
    }
    let width = NAMES + CELL.0 * sizes.len() as i32 + 20;
    let height = HEAD + CELL.1 * operations.len() as i32 + FOOT;
    let whole = (
        (width * data.len() as i32).max(2 * NAMES + CELL.0 * 12) as u32,
        (TITLE + height * ranks.len() as i32) as u32,
    );
    let root = SVGBackend::with_string(svg, whole).into_drawing_area();
    root.fill(&WHITE)?;
    let name = format!("Time to the best peer's, {title}");
    root.draw(&Text::new(name, (20, 14), (FONT, 24)))?;
    scale(&root)?;
    for (row, &ranks) in (0..).zip(&ranks) {
        for (column, &data) in (0..).zip(&data) {
            let (left, top) = (width * column, TITLE + height * row);
            let caption = format!("{ranks} ranks, buffers {data}");
            root.draw(&Text::new(caption, (left + NAMES, top + 8), (FONT, 18)))?;
            let right = Pos::new(HPos::Right, VPos::Center);
            for (line, name) in (0..).zip(&operations) {
                let at = (left + NAMES - 6, top + HEAD + CELL.1 * line + CELL.1 / 2);
                let style = (FONT, 13).into_font().color(&BLACK).pos(right);
                root.draw(&Text::new((*name).to_owned(), at, style))?;
            }
            let below = top + HEAD + CELL.1 * operations.len() as i32;
            let centred = Pos::new(HPos::Center, VPos::Top);
            for (n, &size) in (0..).zip(&sizes) {
                let at = (left + NAMES + CELL.0 * n + CELL.0 / 2, below + 5);
                let style = (FONT, 11).into_font().color(&BLACK).pos(centred);
                root.draw(&Text::new(bytes(size), at, style))?;
            }
            let here = |r: &&Ratio<'_>| r.cell.ranks == ranks && r.cell.data == data;
            for r in ratios.iter().filter(here) {
                let line = operations.iter().position(|o| *o == r.cell.operation);
                let place = sizes.binary_search(&r.cell.bytes);
                let (Some(line), Ok(place)) = (line, place) else {
                    continue;
                };
                let x = left + NAMES + CELL.0 * place as i32;
                let y = top + HEAD + CELL.1 * line as i32;
                fill(&root, (x, y), colour(r.ratio))?;
            }
        }
    }
    root.present()?;
    Ok(())
}

/// Fills one cell, with a line of background between it and the next.
fn fill(
    root: &Area,
    (x, y): (i32, i32),
    colour: RGBColor,
) -> Result<(), Box<dyn std::error::Error>> {
    let corners = [(x, y), (x + CELL.0 - 1, y + CELL.1 - 1)];
    root.draw(&Rectangle::new(corners, colour.filled()))?;
    Ok(())
}

/// Draws which colour stands for which ratio.
fn scale(root: &Area) -> Result<(), Box<dyn std::error::Error>> {
    for (n, ratio) in (0..).zip([0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.1, 1.25, 1.4, 1.7, 2.0]) {
        let (x, y) = (20 + CELL.0 * n, 46);
        fill(root, (x, y), colour(ratio))?;
        let style = (FONT, 12).into_font().color(&BLACK);
        let style = style.pos(Pos::new(HPos::Center, VPos::Top));
        let at = (x + CELL.0 / 2, y + CELL.1 + 3);
        root.draw(&Text::new(format!("{ratio}"), at, style))?;
    }
    Ok(())
}

/// Returns the colour of a ratio: white at 1, green below, red above, by its logarithm.
fn colour(ratio: f64) -> RGBColor {
    const FASTER: RGBColor = RGBColor(20, 120, 70);
    const SLOWER: RGBColor = RGBColor(190, 40, 40);
    let away = (ratio.ln() / FULL.ln()).clamp(-1.0, 1.0);
    let full = if away < 0.0 { FASTER } else { SLOWER };
    let mixed = |part: u8| (255.0 + (f64::from(part) - 255.0) * away.abs()).round() as u8;
    RGBColor(mixed(full.0), mixed(full.1), mixed(full.2))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grid::cells::tests::small;

    #[test]
    fn equal_times_are_white_and_far_ones_full() {
        assert_eq!(colour(1.0), RGBColor(255, 255, 255));
        assert_eq!(colour(0.1), colour(0.5));
        assert_eq!(colour(2.0), RGBColor(190, 40, 40));
    }

    #[test]
    fn each_cell_is_a_rectangle_and_named() {
        let grid = small();
        let svg = draw(&grid.ratios(), "a machine").unwrap();
        // The background, the scale, and the cells.
        assert_eq!(svg.matches("<rect").count(), 1 + 11 + 4);
        for word in ["latency", "oneway", "64 B", "2 ranks, buffers written"] {
            assert!(svg.contains(word), "{word}");
        }
        assert!(draw(&[], "nothing").is_err());
    }
}
