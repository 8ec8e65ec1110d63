//! The evaluation as panels of the picture: for each parameter how often its values are in the
//! buckets, as in the report, and the highest rates by length of records.

use super::evaluation::{BUCKETS, Evaluation, PARAMETERS, Parameter, evaluations};
use super::table::{bucket_title, highest_rate, modes, records};
use crate::panel::{Panel, Series};
use crate::report::Report;

/// Returns six panels for each interface.
pub(crate) fn panels(report: &Report) -> Vec<Panel> {
    let mut panels = Vec::new();
    for evaluation in evaluations(report) {
        let of = evaluation.interface();
        panels.extend(PARAMETERS.map(|parameter| frequencies(&evaluation, &of, parameter)));
        panels.push(rates(&evaluation, &of));
    }
    panels
}

/// Bars: the buckets beside each other, a colour for each value.
fn frequencies(evaluation: &Evaluation, of: &str, parameter: Parameter) -> Panel {
    let series = evaluation.frequencies(parameter);
    let series = series.into_iter().map(|frequency| Series {
        name: frequency.value,
        points: (0_u32..)
            .zip(frequency.counts)
            .map(|(bucket, count)| (f64::from(bucket), count as f64))
            .collect(),
    });
    Panel {
        title: format!("{of}: {} in the buckets", parameter.name()),
        unit: "combinations".into(),
        series: series.collect(),
        levels: Vec::new(),
        groups: (0..BUCKETS)
            .map(|bucket| format!("{} MB/s", bucket_title(evaluation, bucket)))
            .collect(),
        logarithmic: false,
        position: "",
        doubling: false,
    }
}

/// Bars: the lengths of records beside each other, a colour for each mode; the better direction.
fn rates(evaluation: &Evaluation, of: &str) -> Panel {
    let records = records(evaluation);
    let series = modes(evaluation).into_iter().map(|mode| Series {
        name: mode.to_owned(),
        points: (0_u32..)
            .zip(&records)
            .filter_map(|(n, record)| {
                let of_direction = |writes| highest_rate(evaluation, mode, writes, *record);
                let best = of_direction(true).into_iter().chain(of_direction(false));
                Some((f64::from(n), best.reduce(f64::max)?))
            })
            .collect(),
    });
    Panel {
        title: format!("{of}: highest rate by length of records"),
        unit: "MB/s".into(),
        series: series.collect(),
        levels: Vec::new(),
        groups: records.iter().map(u64::to_string).collect(),
        logarithmic: true,
        position: "",
        doubling: false,
    }
}
