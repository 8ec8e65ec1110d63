//! Places: sets of processors to which threads are bound (OpenMP 5.1, 6.5).

/// The machine's topology, for abstract names of places.
pub trait Topology {
    /// The processors that may be used, in ascending order.
    fn usable(&self) -> Vec<usize>;

    /// Groups of usable processors that share what `unit` names: a core, a socket, a last-level
    /// cache or a NUMA node.
    fn groups(&self, unit: Unit) -> Vec<Vec<usize>>;
}

/// The abstract names of places.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    Threads,
    Cores,
    Sockets,
    Caches,
    Nodes,
}

/// Places from the value of `OMP_PLACES`. Processors that may not be used are left out, and so are
/// places without any.
///
/// # Errors
/// What is wrong with the value.
pub fn places(text: &str, topology: &dyn Topology) -> Result<Vec<Vec<usize>>, String> {
    let text = text.trim();
    for (name, unit) in [
        ("threads", Unit::Threads),
        ("cores", Unit::Cores),
        ("sockets", Unit::Sockets),
        ("ll_caches", Unit::Caches),
        ("numa_domains", Unit::Nodes),
    ] {
        let Some(rest) = strip_word(text, name) else {
            continue;
        };
        let mut groups = match unit {
            Unit::Threads => topology.usable().into_iter().map(|cpu| vec![cpu]).collect(),
            _ => topology.groups(unit),
        };
        let rest = rest.trim();
        if !rest.is_empty() {
            let count = rest
                .strip_prefix('(')
                .and_then(|rest| rest.strip_suffix(')'))
                .and_then(|count| count.trim().parse::<usize>().ok())
                .filter(|&count| count > 0)
                .ok_or_else(|| format!("after '{name}' a count in parentheses may follow"))?;
            groups.truncate(count);
        }
        return Ok(groups);
    }
    let mut parser = Parser::new(text);
    let places = parser.places()?;
    parser.end()?;
    keep_usable(places, &topology.usable())
}

/// Places of one processor each from the value of `GOMP_CPU_AFFINITY`: numbers and ranges
/// `first-last:stride`.
///
/// # Errors
/// What is wrong with the value.
pub fn cpu_affinity(text: &str, topology: &dyn Topology) -> Result<Vec<Vec<usize>>, String> {
    let mut places = Vec::new();
    for word in text.split([' ', ',', '\t']).filter(|word| !word.is_empty()) {
        let (range, stride) = word.split_once(':').unwrap_or((word, "1"));
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let number = |text: &str| {
            text.parse::<usize>()
                .map_err(|_| format!("'{word}' is no processor number or range"))
        };
        let (first, last, stride) = (number(first)?, number(last)?, number(stride)?.max(1));
        if last < first || last > LARGEST {
            return Err(format!("the range '{word}' is empty or too large"));
        }
        places.extend((first..=last).step_by(stride).map(|cpu| vec![cpu as i64]));
    }
    if places.is_empty() {
        return Err("it names no processor".into());
    }
    keep_usable(places, &topology.usable())
}

/// Larger processor numbers and counts are mistakes.
const LARGEST: usize = 1 << 16;

fn keep_usable(places: Vec<Vec<i64>>, usable: &[usize]) -> Result<Vec<Vec<usize>>, String> {
    let kept: Vec<Vec<usize>> = places
        .into_iter()
        .map(|place| {
            let mut place: Vec<usize> = place
                .into_iter()
                .filter_map(|cpu| usize::try_from(cpu).ok())
                .filter(|cpu| usable.contains(cpu))
                .collect();
            place.sort_unstable();
            place.dedup();
            place
        })
        .filter(|place| !place.is_empty())
        .collect();
    if kept.is_empty() {
        return Err("none of its processors may be used by this process".into());
    }
    Ok(kept)
}

fn strip_word<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let head = text.get(..name.len())?;
    let rest = &text[name.len()..];
    let ends = rest
        .chars()
        .next()
        .is_none_or(|c| !c.is_alphanumeric() && c != '_');
    (head.eq_ignore_ascii_case(name) && ends).then_some(rest)
}

/// `{0,1}:4:2,!{3}` and the like.
struct Parser<'a> {
    rest: &'a str,
}

impl<'a> Parser<'a> {
    fn new(text: &'a str) -> Self {
        Parser { rest: text }
    }

    fn take(&mut self, letter: char) -> bool {
        self.rest = self.rest.trim_start();
        match self.rest.strip_prefix(letter) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn end(&mut self) -> Result<(), String> {
        self.rest = self.rest.trim_start();
        if self.rest.is_empty() {
            Ok(())
        } else {
            Err(format!("it cannot be understood from '{}' on", self.rest))
        }
    }

    fn number(&mut self) -> Result<i64, String> {
        self.rest = self.rest.trim_start();
        let end = self
            .rest
            .char_indices()
            .find(|&(at, c)| !(c.is_ascii_digit() || at == 0 && c == '-'))
            .map_or(self.rest.len(), |(at, _)| at);
        let (digits, rest) = self.rest.split_at(end);
        let number = digits
            .parse::<i64>()
            .ok()
            .filter(|n| n.unsigned_abs() as usize <= LARGEST)
            .ok_or_else(|| format!("a number is missing before '{}'", self.rest))?;
        self.rest = rest;
        Ok(number)
    }

    /// `:count:stride`, if there; else one.
    fn interval(&mut self) -> Result<(i64, i64), String> {
        if !self.take(':') {
            return Ok((1, 1));
        }
        let count = self.number()?;
        if count <= 0 {
            return Err(format!("a count of {count} is not possible"));
        }
        let stride = if self.take(':') { self.number()? } else { 1 };
        Ok((count, stride))
    }

    fn places(&mut self) -> Result<Vec<Vec<i64>>, String> {
        let mut places: Vec<Vec<i64>> = Vec::new();
        loop {
            let excluded = self.take('!');
            let place = self.place()?;
            if excluded {
                places.retain(|other| *other != place);
            } else {
                let (count, stride) = self.interval()?;
                for at in 0..count {
                    places.push(place.iter().map(|cpu| cpu + at * stride).collect());
                }
            }
            if places.len() > LARGEST {
                return Err("it has too many places".into());
            }
            if !self.take(',') {
                return Ok(places);
            }
        }
    }

    /// Resources in braces, or one number as a place of its own.
    fn place(&mut self) -> Result<Vec<i64>, String> {
        if !self.take('{') {
            return Ok(vec![self.number()?]);
        }
        let mut place: Vec<i64> = Vec::new();
        loop {
            if self.take('!') {
                let cpu = self.number()?;
                place.retain(|&other| other != cpu);
            } else {
                let first = self.number()?;
                let (count, stride) = self.interval()?;
                place.extend((0..count).map(|at| first + at * stride));
            }
            if !self.take(',') {
                break;
            }
        }
        if !self.take('}') {
            return Err("a '}' is missing".into());
        }
        place.sort_unstable();
        place.dedup();
        Ok(place)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Eight;

    impl Topology for Eight {
        fn usable(&self) -> Vec<usize> {
            (0..8).collect()
        }

        fn groups(&self, unit: Unit) -> Vec<Vec<usize>> {
            let width = if unit == Unit::Cores { 2 } else { 8 };
            (0..8 / width)
                .map(|g| (g * width..(g + 1) * width).collect())
                .collect()
        }
    }

    #[test]
    fn lists_intervals_exclusions_and_names() {
        let of = |text| places(text, &Eight).unwrap();
        assert_eq!(of("{0,1},{2:2}"), [[0, 1], [2, 3]]);
        assert_eq!(of("{6,7}:4:-2,!{2,3}"), [[6, 7], [4, 5], [0, 1]]);
        assert_eq!(of("{0:4:2}"), [[0, 2, 4, 6]]);
        assert_eq!(of("{0:4,!2}"), [[0, 1, 3]]);
        assert_eq!(
            of("{7}:3").len(),
            1,
            "processors that are not there are left out"
        );
        assert_eq!(of(" Cores(2)"), [[0, 1], [2, 3]]);
        assert_eq!(of("threads").len(), 8);
        assert_eq!(of("sockets").len(), 1);
        assert_eq!(of("1,3"), [[1], [3]]);
    }

    #[test]
    fn mistakes_are_reported() {
        for text in [
            "", "{", "{0", "{0}:0", "corez", "{0}x", "cores(0)", "{99}", "{0:-1}",
        ] {
            assert!(places(text, &Eight).is_err(), "{text}");
        }
    }

    #[test]
    fn the_older_variable() {
        let of = |text| cpu_affinity(text, &Eight).unwrap();
        assert_eq!(of("0 3 1-2 4-7:2"), [[0], [3], [1], [2], [4], [6]]);
        assert!(cpu_affinity("a", &Eight).is_err());
    }
}
