//! Reports as text: tables, numbers, the files in which a report is kept, and progress meanwhile.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use comfy_table::{CellAlignment, ContentArrangement, Table, presets};
use indicatif::{ProgressBar, ProgressStyle};

/// Returns a table in the style of a terminal or of Markdown.
#[must_use]
pub fn empty_table(markdown: bool) -> Table {
    let mut table = Table::new();
    table.load_preset(if markdown {
        presets::ASCII_MARKDOWN
    } else {
        presets::UTF8_FULL_CONDENSED
    });
    table.set_content_arrangement(ContentArrangement::Disabled);
    table
}

/// Aligns columns of numbers.
///
/// # Panics
/// When a column is not in the table's head.
pub fn to_the_right(table: &mut Table, columns: impl IntoIterator<Item = usize>) {
    for column in columns {
        table
            .column_mut(column)
            .expect("the column is in the head")
            .set_cell_alignment(CellAlignment::Right);
    }
}

/// Returns a number with `digits` significant digits, at most three of them after the point,
/// without an exponent.
#[must_use]
pub fn significant(value: f64, digits: usize) -> String {
    let before_the_point = match value.abs() {
        v if v >= 1000.0 => 4,
        v if v >= 100.0 => 3,
        v if v >= 10.0 => 2,
        v if v >= 1.0 => 1,
        _ => 0,
    };
    let places = digits.saturating_sub(before_the_point).min(3);
    format!("{value:.places$}")
}

/// Today, as year-month-day.
#[must_use]
pub fn today() -> String {
    time::OffsetDateTime::now_utc().date().to_string()
}

/// Writes the files of one report, `name` with each ending, into `folder`, and gives their paths.
///
/// # Errors
/// When the folder or a file cannot be written.
pub fn save<const N: usize>(
    folder: &Path,
    name: &str,
    files: [(&str, String); N],
) -> Result<[PathBuf; N]> {
    std::fs::create_dir_all(folder)
        .with_context(|| format!("{}: cannot be made", folder.display()))?;
    let paths = files
        .each_ref()
        .map(|(ending, _)| folder.join(format!("{name}.{ending}")));
    for (path, (_, text)) in paths.iter().zip(files) {
        std::fs::write(path, text)
            .with_context(|| format!("{}: cannot be written", path.display()))?;
    }
    Ok(paths)
}

/// Shows how many of `steps` are done, and which one runs.
///
/// # Panics
/// Never: the template of the bar is a constant.
#[must_use]
pub fn progress_bar(steps: usize) -> ProgressBar {
    let style = ProgressStyle::with_template("{elapsed_precise} [{bar:30}] {pos}/{len} {msg}")
        .expect("the template is a constant");
    let bar = ProgressBar::new(steps as u64).with_style(style);
    bar.enable_steady_tick(Duration::from_millis(250));
    bar
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_keep_their_significant_digits() {
        for (value, digits, text) in [
            (12345.6, 4, "12346"),
            (123.456, 4, "123.5"),
            (1.23456, 4, "1.235"),
            (0.12345, 4, "0.123"),
            (1234.5, 3, "1234"),
            (12.345, 3, "12.3"),
            (-0.1, 3, "-0.100"),
            (1.2345, 3, "1.23"),
        ] {
            assert_eq!(significant(value, digits), text);
        }
    }

    #[test]
    fn a_report_is_saved_under_its_name() {
        let folder = tempfile::tempdir().unwrap();
        let inside = folder.path().join("new");
        let [page, data] = save(
            &inside,
            "a.b",
            [("md", "page".into()), ("json", "1".into())],
        )
        .unwrap();
        assert_eq!(page, inside.join("a.b.md"));
        assert_eq!(std::fs::read_to_string(data).unwrap(), "1");
    }
}
