//! The lines that the programs print; `programs/report.h` says what they hold.

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

/// One measured number.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Figure {
    /// What was measured, unique within its run.
    pub name: String,
    /// Unit of the value.
    pub unit: String,
    /// The value.
    pub value: f64,
    /// Noise of the repetitions in percent of the value; `None` when it was measured once.
    pub noise: Option<f64>,
}

/// One numerical verification.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Check {
    /// What was verified.
    pub name: String,
    /// Whether the value is within the limit.
    pub passed: bool,
    /// An error, a scaled residual or a number of wrong elements; as the program printed it,
    /// because it may be no number.
    pub value: String,
    /// The largest value that passes.
    pub limit: String,
}

/// What one run of a program printed.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct Reported {
    /// First line of the library's version string.
    pub library: String,
    /// In the order of the output.
    pub figures: Vec<Figure>,
    /// In the order of the output.
    pub checks: Vec<Check>,
    /// What to know beside the figures.
    pub notes: Vec<String>,
}

/// Reads a program's standard output; lines of another form belong to the MPI implementation and
/// are passed over.
///
/// # Errors
/// When a line is damaged, or neither a figure nor a check nor a note is there.
pub fn parse(output: &str) -> Result<Reported> {
    let mut reported = Reported::default();
    for line in output.lines() {
        let Some((kind, rest)) = line.split_once(' ') else {
            continue;
        };
        let words: Vec<&str> = rest.split_whitespace().collect();
        let damaged = || format!("damaged line: {line}");
        match kind {
            "library" => reported.library = rest.trim().to_owned(),
            "note" => reported.notes.push(rest.to_owned()),
            "figure" => reported.figures.push(figure(&words).with_context(damaged)?),
            "check" => reported.checks.push(check(&words).with_context(damaged)?),
            _ => {}
        }
    }
    if reported.figures.is_empty() && reported.checks.is_empty() && reported.notes.is_empty() {
        bail!("the program reported no figures");
    }
    Ok(reported)
}

fn figure(words: &[&str]) -> Option<Figure> {
    let [name, unit, value, noise] = words else {
        return None;
    };
    let value: f64 = value.parse().ok()?;
    Some(Figure {
        name: (*name).to_owned(),
        unit: (*unit).to_owned(),
        value: value.is_finite().then_some(value)?,
        noise: match *noise {
            "-" => None,
            number => Some(number.parse().ok().filter(|n: &f64| n.is_finite())?),
        },
    })
}

fn check(words: &[&str]) -> Option<Check> {
    let [name, verdict, value, limit] = words else {
        return None;
    };
    Some(Check {
        name: (*name).to_owned(),
        passed: match *verdict {
            "passed" => true,
            "failed" => false,
            _ => return None,
        },
        value: (*value).to_owned(),
        limit: (*limit).to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_among_others() {
        let text = "warning of the launcher\nlibrary Margay 0.1\nfigure copy MB/s 12000.5 1.5\nfigure rmax GFLOPS 3 -\n\
                    check array failed nan 1e-13\nnote BLAS: none";
        let reported = parse(text).unwrap();
        assert_eq!(reported.library, "Margay 0.1");
        assert_eq!(reported.figures[0].noise, Some(1.5));
        assert_eq!(reported.figures[1].noise, None);
        assert!(!reported.checks[0].passed);
        assert_eq!(reported.checks[0].value, "nan");
        assert_eq!(reported.notes, ["BLAS: none"]);
    }

    #[test]
    fn damaged_and_missing_lines_are_errors() {
        assert!(parse("nothing here").is_err());
        for line in [
            "figure copy MB/s nan -",
            "figure copy MB/s 3",
            "check x maybe 1 2",
            "figure copy MB/s 3 inf",
        ] {
            let error = parse(line).unwrap_err();
            assert!(error.to_string().contains(line), "{error}");
        }
    }
}
