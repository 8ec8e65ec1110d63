//! The sums of a large trace, and parts of it.

mod base64;
mod large;

use margay_core_sums::{CLASSES, Grid, Window};

pub use large::{Large, MOST_WHOLE, Wanted};

use base64::base64;

use crate::json::Json;

/// For the page.
pub fn write(json: &mut Json, grid: &Grid) {
    let Window {
        from,
        to,
        first,
        last,
    } = grid.window;
    for (name, value) in [
        ("from", from),
        ("to", to),
        ("first", u64::from(first)),
        ("last", u64::from(last)),
        ("width", grid.width),
        ("columns", grid.columns as u64),
        ("each", u64::from(grid.each)),
        ("calls", grid.calls),
        ("side", grid.side() as u64),
    ] {
        json.number(name, value as f64);
    }
    let (ns, rank, start) = grid.longest;
    json.array(
        "longest",
        &[(ns, rank, start)],
        |json, (ns, rank, start)| {
            json.number("ns", *ns as f64);
            json.number("rank", f64::from(*rank));
            json.number("start", *start as f64);
        },
    );
    json.text("cells", &base64(&grid.shares()));
    let mut of_column = vec![[0_u64; CLASSES]; grid.columns];
    for (index, cell) in grid.cells.iter().enumerate() {
        let sums = &mut of_column[index % grid.columns];
        (0..CLASSES).for_each(|class| sums[class] += cell[class]);
    }
    let ranks = grid.busy.len() as f64;
    let share = |ns: u64| (ns as f64 / grid.width as f64 / ranks) as f32;
    let totals = of_column.iter().flatten().copied().map(share);
    json.text("totals", &floats(totals));
    let length = (to - from).max(1) as f64;
    let busy = grid.busy.iter().map(|&ns| (ns as f64 / length) as f32);
    json.text("busy", &floats(busy));
    let mut under = 0_i64;
    let under_way = grid.messages.iter().map(|&[sent, received]| {
        under += sent as i64 - received as i64;
        under as f32
    });
    json.text("queue", &floats(under_way));
    let mut rows = String::new();
    for (number, sums) in grid.sites.iter().enumerate() {
        if sums.calls + sums.ns > 0 {
            rows += &format!("{number} {} {},", sums.calls, sums.ns);
        }
    }
    json.text("sums", &rows);
    let mut rows = String::new();
    for (place, [messages, bytes]) in grid.matrix.iter().enumerate() {
        if *messages > 0 {
            rows += &format!("{place} {messages} {bytes},");
        }
    }
    json.text("matrix", &rows);
}

fn floats(values: impl Iterator<Item = f32>) -> String {
    let bytes: Vec<u8> = values.flat_map(f32::to_le_bytes).collect();
    base64(&bytes)
}

#[cfg(test)]
mod tests;
