//! Lists of hosts as Slurm writes them: `n[01-03,07],m`.

/// Most hosts of one range.
const MOST: u64 = 100_000;

/// A name without the number at its end, and that number, as text.
fn divided(name: &str) -> (&str, &str) {
    let digits = name.bytes().rev().take_while(u8::is_ascii_digit).count();
    // More digits are no number of 64 bits.
    name.split_at(name.len() - digits.min(18))
}

/// The hosts of a list.
///
/// # Errors
/// In words: it is no list.
pub fn expanded(list: &str) -> Result<Vec<String>, String> {
    let wrong = || format!("Invalid hostlist: {list}");
    let mut hosts = Vec::new();
    let mut rest = list;
    while !rest.is_empty() {
        let open = rest.find('[');
        let comma = rest.find(',').unwrap_or(rest.len());
        match open.filter(|&open| open < comma) {
            None => {
                hosts.push(rest[..comma].to_owned());
                rest = rest.get(comma + 1..).unwrap_or("");
            }
            Some(open) => {
                let close = rest
                    .find(']')
                    .filter(|&close| close > open)
                    .ok_or_else(wrong)?;
                let end = rest[close..].find(',').map_or(rest.len(), |at| close + at);
                let (before, behind) = (&rest[..open], &rest[close + 1..end]);
                for range in rest[open + 1..close].split(',') {
                    let (from, to) = range.split_once('-').unwrap_or((range, range));
                    let width = from.len();
                    let number = |text: &str| text.parse::<u64>().map_err(|_| wrong());
                    let (from, to) = (number(from)?, number(to)?);
                    if to.saturating_sub(from) > MOST {
                        return Err(wrong());
                    }
                    let name = |number| format!("{before}{number:0width$}{behind}");
                    hosts.extend((from..=to).map(name));
                }
                rest = rest.get(end + 1..).unwrap_or("");
            }
        }
    }
    Ok(hosts)
}

/// Puts hosts into Slurm's order: `n2` is before `n10`.
pub fn sort(hosts: &mut [String]) {
    hosts.sort_unstable_by(|a, b| {
        let key = |name: &'_ str| {
            let (before, digits) = divided(name);
            (before.to_owned(), digits.parse::<u64>().ok(), digits.len())
        };
        key(a).cmp(&key(b))
    });
}

/// A list of these hosts in their order: neighbours that differ in the number at their end share a
/// bracket.
#[must_use]
pub fn compressed(hosts: &[String]) -> String {
    let mut items: Vec<String> = Vec::new();
    let mut rest = hosts;
    while let Some(first) = rest.first() {
        let (before, digits) = divided(first);
        let is_alike = |host: &&String| {
            let (own, digits) = divided(host);
            own == before && !digits.is_empty()
        };
        let count = match digits {
            "" => 1,
            _ => rest.iter().take_while(is_alike).count(),
        };
        let (group, others) = rest.split_at(count);
        rest = others;
        if count == 1 {
            items.push(first.clone());
            continue;
        }
        let digits: Vec<&str> = group.iter().map(|host| divided(host).1).collect();
        items.push(format!("{before}[{}]", ranges(&digits).join(",")));
    }
    items.join(",")
}

/// Numbers of which each follows the one before it, with as many zeros before it, as one range.
fn ranges(digits: &[&str]) -> Vec<String> {
    let mut ranges: Vec<(&str, &str)> = Vec::new();
    for &digits in digits {
        let follows = |range: &&mut (&str, &str)| {
            let (width, last) = (range.0.len(), range.1.parse::<u64>().unwrap_or(0));
            digits == format!("{:0width$}", last + 1)
        };
        match ranges.last_mut().filter(follows) {
            Some(range) => range.1 = digits,
            None => ranges.push((digits, digits)),
        }
    }
    let shown = |(from, to): (&str, &str)| match from == to {
        true => from.to_owned(),
        false => format!("{from}-{to}"),
    };
    ranges.into_iter().map(shown).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(list: &str) -> Vec<String> {
        list.split(',').map(str::to_owned).collect()
    }

    #[test]
    fn lists_are_compressed_as_slurm_does_it_and_expanded_again() {
        for (hosts, list) in [
            ("a", "a"),
            ("a,b", "a,b"),
            ("n1", "n1"),
            ("n01,n02,n03,n07", "n[01-03,07]"),
            ("n8,n9,n10", "n[8-10]"),
            ("n08,n9", "n[08,9]"),
            ("n099,n100", "n[099-100]"),
            ("n1,m,n2", "n1,m,n2"),
            ("n1.x,n2.x", "n1.x,n2.x"),
            ("10.0.0.1,10.0.0.2", "10.0.0.[1-2]"),
            ("n1,n1", "n[1,1]"),
        ] {
            let compressed = compressed(&names(hosts));
            assert_eq!(compressed, list);
            assert_eq!(expanded(&compressed).unwrap(), names(hosts), "{list}");
        }
        assert_eq!(compressed(&[]), "");
        for wrong in ["n[1", "n[x]", "n[1-999999]"] {
            assert!(expanded(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn hosts_are_sorted_by_their_numbers() {
        let mut hosts = names("n10,m,n2,n1,l7");
        sort(&mut hosts);
        assert_eq!(hosts, names("l7,m,n1,n2,n10"));
    }
}
