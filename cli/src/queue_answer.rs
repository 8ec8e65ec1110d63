//! How the commands of the queue print what its head answers.

use std::io::{self, Write};

use margay_svc_queue_wire::{self as queue, Answer, JobRow};

pub(crate) fn print(text: &str) -> Result<(), String> {
    let mut stdout = io::stdout();
    stdout
        .write_all(text.as_bytes())
        .and_then(|()| stdout.flush())
        .map_err(|error| format!("cannot print: {error}; send the standard output elsewhere"))
}

/// Prints what the head has done, or says why it has not.
pub(crate) fn show(answer: Answer) -> Result<(), String> {
    match answer {
        Answer::Done(text) => print(&text),
        Answer::Failed(text) => Err(text),
        _ => Err("the head of the queue answers something else; is it of another version?".into()),
    }
}

/// Hands over the rows of all jobs that have ended, in the order in which they did.
pub(crate) fn each_ended(mut take: impl FnMut(JobRow)) -> Result<(), String> {
    queue::each_ended(0, false, |answer| match answer {
        Answer::Jobs(rows) => {
            let last = rows.last().and_then(JobRow::end);
            rows.into_iter().for_each(&mut take);
            Ok(last)
        }
        other => show(other).map(|()| None),
    })
}

/// Lines of equal numbers of words, as columns.
pub(crate) fn table(lines: &[Vec<String>]) -> String {
    let count = lines.first().map_or(0, Vec::len);
    let widths: Vec<usize> = (0..count)
        .map(|n| {
            lines
                .iter()
                .map(|l| l[n].chars().count())
                .max()
                .unwrap_or(0)
        })
        .collect();
    let mut text = String::new();
    for line in lines {
        let mut row = String::new();
        for (word, width) in line.iter().zip(&widths) {
            row += &format!("{word:width$}  ");
        }
        text += row.trim_end();
        text.push('\n');
    }
    text
}
