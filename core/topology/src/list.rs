//! Lists of numbers as the kernel writes them: `0-3,8`.

/// The numbers of a list, in its order; none when it is no list. An empty text is an empty list.
#[must_use]
pub fn parse_list(text: &str) -> Option<Vec<u32>> {
    /// More numbers than any machine has CPUs: a text of that length is damaged.
    const MOST: u32 = 1 << 16;
    let mut all = Vec::new();
    for part in text.trim().split(',').filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u32, u32) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
        if last < first || last >= MOST {
            return None;
        }
        all.extend(first..=last);
    }
    Some(all)
}

/// Ascending numbers as a list: runs of at least two as `first-last`.
#[must_use]
pub fn list_text(numbers: &[u32]) -> String {
    let mut parts = Vec::new();
    for run in numbers.chunk_by(|a, b| a + 1 == *b) {
        match run {
            [one] => parts.push(one.to_string()),
            [first, .., last] => parts.push(format!("{first}-{last}")),
            [] => {}
        }
    }
    parts.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read_and_written() {
        for (text, numbers) in [
            ("0-3,8", &[0, 1, 2, 3, 8][..]),
            ("5", &[5]),
            ("", &[]),
            ("0,2-3,7-9", &[0, 2, 3, 7, 8, 9]),
        ] {
            assert_eq!(parse_list(&format!("{text}\n")).unwrap(), numbers);
            assert_eq!(list_text(numbers), text);
        }
    }

    #[test]
    fn what_is_no_list_is_refused() {
        for text in ["x", "3-1", "1-", "0-4294967295", "-1"] {
            assert_eq!(parse_list(text), None, "{text}");
        }
    }
}
