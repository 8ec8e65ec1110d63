//! The page of a compiler wrapper from its own help, which has the only list of its options.

use std::path::Path;
use std::process::Command;

use crate::page::{Item, Page};

/// Variables that change what the help says.
const VARIABLES: [&str; 4] = ["MPICC_CC", "MPICXX_CXX", "MPIFORT_FC", "MPIFORT_PREFIX"];

/// Returns what a wrapper of the tree prints as its help.
///
/// # Errors
/// When it cannot be started or fails.
pub fn help(stage: &Path, name: &str) -> Result<String, String> {
    let wrapper = stage.join("bin").join(name);
    let mut command = Command::new(&wrapper);
    for variable in VARIABLES {
        command.env_remove(variable);
    }
    let output = command
        .arg("-help")
        .output()
        .map_err(|e| format!("{} cannot be started: {e}", wrapper.display()))?;
    if !output.status.success() {
        return Err(format!("{} -help failed", wrapper.display()));
    }
    String::from_utf8(output.stdout).map_err(|e| format!("{} -help: {e}", wrapper.display()))
}

/// Returns the page. Lines that begin with blanks and a dash are options, the first line says what
/// the wrapper does, others that begin with blanks are commands, and the rest is text.
pub fn page(name: &str, help: &str) -> Page {
    let mut lines = help.lines();
    let first = lines.next().unwrap_or_default();
    let about = first.split_once(": ").map_or(first, |(_, about)| about);
    let short = about.split(',').next().unwrap_or(about);
    let mut page = Page::new(name, &capitalized(short));
    page.synopsis = vec![format!(
        "{name} [OPTIONS] [OPTIONS OF THE COMPILER] FILE..."
    )];
    page.description = vec![
        format!("{}.", capitalized(about.trim_end_matches('.'))),
        "Arguments go to the compiler as they are, beside the options below. The installation is found from the \
         wrapper's own path, so it may be moved. The names mpcc, mpCC and mpxlf are those of IBM's SP2: mpicc, mpicxx and \
         mpifort that link libmpl as well."
            .to_owned(),
    ];
    for line in lines {
        match line.trim_start() {
            option if line.starts_with("  -") => {
                let (head, body) = option.split_once("  ").unwrap_or((option, ""));
                page.options.push(Item {
                    head: head.to_owned(),
                    body: vec![capitalized(body.trim()) + "."],
                });
            }
            _ if line.starts_with(' ') => match page.notes.last_mut() {
                Some(last) if last.starts_with(' ') => *last += &format!("\n{line}"),
                _ => page.notes.push(line.to_owned()),
            },
            "Arguments go to the compiler as they are, beside these:" => {}
            text => page.notes.push(text.to_owned()),
        }
    }
    page
}

fn capitalized(text: &str) -> String {
    let mut characters = text.chars();
    match characters.next() {
        Some(first) => first.to_uppercase().chain(characters).collect(),
        None => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_commands_and_text_are_distinguished() {
        let help = "mpicc: compiles C, with cc.\nArguments go to the compiler as they are, beside these:\n  -cc=COMPILER   use this \
                    compiler\n  -show, -showme  print it\n(More.)\nDo:\n  one\n  two\n";
        let page = page("mpicc", help);
        assert_eq!(page.about, "Compiles C");
        let heads: Vec<&str> = page.options.iter().map(|o| o.head.as_str()).collect();
        assert_eq!(heads, ["-cc=COMPILER", "-show, -showme"]);
        assert_eq!(page.options[0].body, ["Use this compiler."]);
        assert_eq!(page.notes, ["(More.)", "Do:", "  one\n  two"]);
    }
}
