//! What commands print.

use std::fmt::Write;

use margay_core_stripes::Layout;
use margay_fs_stripes::{Fault, Health, Progress, Store};

/// Bytes with a unit.
#[must_use]
pub fn bytes(count: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut value = count as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 {
        format!("{count} B")
    } else {
        format!("{value:.1} {}", UNITS[unit])
    }
}

/// What a move of files is called.
const RESIZE: &str = "resize";

/// How many units of data a row of new files has, where that is not one for each directory.
fn factor(layout: &Layout) -> String {
    match (layout.is_wide(), layout.data) {
        (true, _) => String::new(),
        (false, 1) if layout.parity > 0 => format!(", {} copies", layout.width()),
        (false, data) => format!(", {data} in a row"),
    }
}

/// How far a walk over all rows is.
#[must_use]
pub fn progress(progress: &Progress) -> String {
    if progress.what == RESIZE {
        return format!(
            "{RESIZE}: {} rows copied, of about {}",
            progress.rows, progress.all_rows
        );
    }
    format!(
        "{}: {} of {} rows, {} written anew ({})",
        progress.what,
        progress.rows,
        progress.all_rows,
        progress.mended,
        bytes(progress.mended_bytes)
    )
}

/// How a stripe directory is.
#[must_use]
pub fn health(health: Health) -> &'static str {
    match health {
        Health::Good => "good",
        Health::Rebuilding(..) => "being rebuilt",
        Health::Failed => "failed",
        Health::Removed => "removed",
    }
}

/// The service itself, as a line for `top`.
#[must_use]
pub fn service_line(store: &Store) -> String {
    let walk = store.progress();
    let walk = if walk.is_running {
        format!("; {}", progress(&walk))
    } else {
        String::new()
    };
    format!(
        "service - 0 0 0 0 0 {} wait in memory{walk}\n",
        bytes(store.waiting())
    )
}

/// Why a walk over all rows failed.
#[must_use]
pub fn walk_failed(what: &str, fault: Fault) -> String {
    match fault {
        Fault::Refused => {
            format!(
                "cannot {what}: a rebuild, resize, scrub or check is going on; wait for its end"
            )
        }
        Fault::NoSpace => format!("cannot {what}: {fault}; free some, or use a larger directory"),
        _ => format!("cannot {what}: {fault}"),
    }
}

/// How a file system is.
#[must_use]
pub fn status(
    store: &Store,
    mounted: &str,
    rebuild_failed: Option<&str>,
    events: &[String],
    spares: &[String],
) -> String {
    let state = store.state();
    let usage = store.usage();
    let mut text = String::new();
    // A string takes everything.
    let _ = writeln!(
        text,
        "{}: {} directories, {} of them may be lost; stripe unit {}{}",
        state.name,
        state.belong().count(),
        state.base.parity,
        bytes(state.current.unit_bytes as u64),
        factor(&state.current)
    );
    let _ = writeln!(text, "{mounted}");
    let _ = writeln!(
        text,
        "{} of {} free, {} files",
        bytes(usage.free),
        bytes(usage.total),
        usage.files
    );
    for (n, member) in state.members.iter().enumerate() {
        let how = match member.health {
            Health::Removed => continue,
            Health::Good if !state.current.over.has(n) => "being emptied",
            other => health(other),
        };
        let _ = writeln!(text, "  {how:13} {}", member.path);
    }
    for spare in spares {
        let _ = writeln!(text, "  {:13} {spare}", "spare");
    }
    let lacking = state
        .members
        .iter()
        .filter(|m| !matches!(m.health, Health::Good | Health::Removed))
        .count();
    if lacking > 0 {
        let left = state.base.parity.saturating_sub(lacking);
        let _ = writeln!(
            text,
            "degraded: {left} more may be lost without a loss of data"
        );
    }
    let walk = store.progress();
    if walk.is_running {
        let _ = writeln!(
            text,
            "{}; a share of {}% while others use the file system",
            progress(&walk),
            store.share()
        );
    }
    if let Some(reason) = rebuild_failed {
        let _ = writeln!(text, "{reason}");
    }
    let damaged = store.damaged_reads();
    if damaged > 0 {
        let _ = writeln!(
            text,
            "{damaged} reads met damaged or old units and were served from the others; scrub mends them"
        );
    }
    for event in events {
        let _ = writeln!(text, "event: {event}");
    }
    text
}
