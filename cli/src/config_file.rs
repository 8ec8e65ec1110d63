//! Files with a program a line, as `-configfile` of MPICH and Intel and `--app` of Open MPI read
//! them.

use std::ffi::{OsStr, OsString};
use std::path::Path;

/// Returns the words of each line that has some. `#` begins a comment line, a backslash at its end
/// continues a line, quotes and backslashes work as in a shell; a colon between programs parts them
/// as an end of line does.
///
/// # Errors
/// When the file cannot be read, names nothing, or a quotation does not end.
pub fn lines(path: &OsStr) -> Result<Vec<Vec<OsString>>, String> {
    let shown = Path::new(path).display();
    let text = std::fs::read_to_string(path)
        .map_err(|e| format!("cannot read the file of programs '{shown}': {e}"))?;
    let lines = parsed(&text).map_err(|why| format!("'{shown}', {why}"))?;
    if lines.is_empty() {
        return Err(format!(
            "the file '{shown}' names no program; write lines such as: -n 2 ./a.out"
        ));
    }
    Ok(lines)
}

fn parsed(text: &str) -> Result<Vec<Vec<OsString>>, String> {
    let mut all = Vec::new();
    let mut lines = (1..).zip(text.lines());
    while let Some((number, line)) = lines.next() {
        let mut line = line.trim().to_owned();
        if line.starts_with('#') {
            continue;
        }
        while line.ends_with('\\') {
            line.pop();
            let Some((_, next)) = lines.next() else { break };
            line.push(' ');
            line.push_str(next.trim());
        }
        let words = split(&line).map_err(|why| format!("line {number}: {why}"))?;
        let programs = words.split(|word| word == ":");
        all.extend(programs.filter(|p| !p.is_empty()).map(<[_]>::to_vec));
    }
    Ok(all)
}

fn split(line: &str) -> Result<Vec<OsString>, String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    let mut letters = line.chars();
    while let Some(letter) = letters.next() {
        match (quote, letter) {
            (Some(open), letter) if letter == open => quote = None,
            (Some('\''), letter) => word.get_or_insert_default().push(letter),
            (_, '\\') => word.get_or_insert_default().extend(letters.next()),
            (Some(_), letter) => word.get_or_insert_default().push(letter),
            (None, '\'' | '"') => {
                quote = Some(letter);
                word.get_or_insert_default();
            }
            (None, letter) if letter.is_whitespace() => {
                words.extend(word.take().map(OsString::from));
            }
            (None, letter) => word.get_or_insert_default().push(letter),
        }
    }
    if let Some(quote) = quote {
        return Err(format!("the quotation that {quote} begins does not end"));
    }
    words.extend(word.map(OsString::from));
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_a_program() {
        let text = "# two programs\n-n 1 a 'x y' \"\" z\\ w\n\n  -n 2 \\\n b : c \"it's\"\n";
        let expected: [&[&str]; 3] = [
            &["-n", "1", "a", "x y", "", "z w"],
            &["-n", "2", "b"],
            &["c", "it's"],
        ];
        assert_eq!(parsed(text).unwrap(), expected);
        assert!(parsed("# nothing\n").unwrap().is_empty());
        assert_eq!(
            parsed("a\nb 'c").unwrap_err(),
            "line 2: the quotation that ' begins does not end"
        );
        let error = lines("/no/such".as_ref()).unwrap_err();
        assert!(
            error.contains("cannot read the file of programs '/no/such'"),
            "{error}"
        );
    }
}
