//! Where ranks run: the values of `-map-by` and `-bind`, which are those of Open MPI and Hydra.

use margay_job_launch::machine::parse_list;
use margay_job_launch::plan::{Binding, Unit};

/// What `-map-by` says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MapBy {
    /// As the user wrote it.
    text: String,
    /// The number of ranks for each such part of the host.
    pub per: Option<(u32, Unit)>,
    /// Consecutive ranks take turns among these parts.
    pub round: Option<Unit>,
    /// They take turns among the hosts.
    pub is_by_host: bool,
    /// Cores for each rank.
    pub cores: Option<u32>,
    /// Only these cores.
    pub list: Option<Vec<usize>>,
    /// Rank 0 gets the first of these cores alone, rank 1 the second.
    pub is_ordered: bool,
    /// More ranks than cores are an error.
    pub no_oversubscription: bool,
}

/// What `-bind` says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bind {
    /// How ranks are bound.
    pub binding: Binding,
    /// Where there are not cores enough, no rank is bound.
    pub may_overload: bool,
}

/// Reads `PLACE[:MODIFIER...]` or `ppr:N:PLACE[:MODIFIER...]`; modifiers are parted by colons or
/// commas.
///
/// # Errors
/// When it is neither.
pub fn map_by(text: &str) -> Result<MapBy, String> {
    let lower = text.to_lowercase();
    let mut words = lower.split(':');
    let first = words.next().unwrap_or_default();
    let mut map = MapBy {
        text: text.to_owned(),
        ..MapBy::default()
    };
    let (first, modifiers) = match first.split_once(',') {
        Some((first, modifiers)) => (first, Some(modifiers)),
        None => (first, None),
    };
    match first {
        "ppr" => {
            let number = words.next().and_then(|n| n.parse().ok()).filter(|&n| n > 0);
            let unit = words.next().and_then(unit);
            let per = number.zip(unit);
            map.per = Some(per.ok_or("write ppr:N:PLACE, such as ppr:2:node or ppr:1:socket")?);
        }
        "" | "slot" | "core" | "hwthread" | "fill" | "span" | "object" => {}
        _ if first.starts_with("pe-list=") => modifier(&mut map, &lower_list(&lower))?,
        place => match unit(place) {
            Some(Unit::Host) => map.is_by_host = true,
            Some(unit) => map.round = Some(unit),
            None => {
                return Err(
                    "choose slot, core, socket, numa, l3cache, l2cache or node, or ranks for each: ppr:2:node; \
                     with :PE=N, N cores for each rank"
                        .into(),
                );
            }
        },
    }
    if first.starts_with("pe-list=") {
        map.is_ordered = lower.contains(":ordered");
        return Ok(map);
    }
    for word in modifiers.into_iter().chain(words) {
        match word.strip_prefix("pe-list=") {
            Some(_) => modifier(&mut map, word)?,
            None => word
                .split(',')
                .try_for_each(|word| modifier(&mut map, word))?,
        }
    }
    Ok(map)
}

/// A list has commas, so it goes to the next colon.
fn lower_list(text: &str) -> String {
    text.split(':').next().unwrap_or_default().to_owned()
}

fn modifier(map: &mut MapBy, word: &str) -> Result<(), String> {
    match word.split_once('=') {
        Some(("pe", number)) => {
            let number = number.parse().ok().filter(|&n| n > 0);
            map.cores = Some(number.ok_or("PE= needs a number of cores, such as PE=2")?);
        }
        Some(("pe-list", list)) => map.list = Some(parse_list(list)?),
        _ => match word {
            "" | "span" | "oversubscribe" | "hwtcpus" | "corecpus" | "inherit" | "noinherit" => {}
            "nooversubscribe" => map.no_oversubscription = true,
            "ordered" => map.is_ordered = true,
            _ => {
                return Err(format!(
                    "'{word}' is not known behind a place; PE=N, OVERSUBSCRIBE, NOOVERSUBSCRIBE and SPAN are"
                ));
            }
        },
    }
    Ok(())
}

/// Reads what `-bind` says.
///
/// # Errors
/// When it is nothing of that.
pub fn bind(text: &str) -> Result<Bind, String> {
    let lower = text.to_lowercase();
    let mut may_overload = false;
    let mut how = lower.as_str();
    if let Some(lists) = how.strip_prefix("cores:") {
        let lists = lists.split(':').map(parse_list).collect::<Result<_, _>>()?;
        return Ok(Bind {
            binding: Binding::Lists(lists),
            may_overload,
        });
    }
    while let Some((rest, modifier)) = how.rsplit_once(':') {
        match modifier {
            "overload-allowed" => may_overload = true,
            // Ranks that cannot be bound on this machine are reported, not silently left alone.
            "if-supported" | "no-overload" => {}
            _ => break,
        }
        how = rest;
    }
    let wrong = || {
        "choose auto, none, core, core:N (N cores for each rank), socket, numa, l3cache, l2cache, a list of cores such as 0,2,4-7, or cores:LIST:LIST for several cores for each rank"
            .to_owned()
    };
    let binding = match how {
        "auto" => Binding::Auto,
        "none" | "board" | "machine" | "node" | "package:all" => Binding::None,
        "core" | "hwthread" | "rr" | "slot" => Binding::Core,
        list if list.starts_with(|c: char| c.is_ascii_digit()) => Binding::List(parse_list(list)?),
        _ => match (how.split_once(':'), unit(how)) {
            (Some(("user" | "map", list)), _) => Binding::List(parse_list(list)?),
            (Some(("core" | "hwthread", number)), _) => {
                let number = number.parse().ok().filter(|&n| n > 0);
                match number.ok_or_else(wrong)? {
                    1 => Binding::Core,
                    number => Binding::Cores(number),
                }
            }
            (None, Some(unit)) => Binding::Unit(unit),
            _ => return Err(wrong()),
        },
    };
    Ok(Bind {
        binding,
        may_overload,
    })
}

fn unit(name: &str) -> Option<Unit> {
    Some(match name {
        "node" | "host" | "board" | "machine" | "nodes" => Unit::Host,
        "socket" | "package" | "sockets" => Unit::Socket,
        "numa" => Unit::Numa,
        "l3" | "l3cache" => Unit::L3,
        "l2" | "l2cache" => Unit::L2,
        // A first-level cache belongs to a core.
        "core" | "cores" | "l1" | "l1cache" => Unit::Core,
        "hwthread" | "slot" => Unit::Thread,
        _ => return None,
    })
}

impl MapBy {
    /// Returns how many ranks there are at most; `parts` is how many parts of a kind the host has.
    pub fn most_ranks(&self, parts: impl Fn(Unit) -> usize) -> Option<u32> {
        let (number, unit) = self.per?;
        Some(number.saturating_mul(parts(unit) as u32))
    }

    /// Returns how the user wrote it.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_and_modifiers() {
        let read = |text: &str| map_by(text).unwrap();
        assert_eq!(read("ppr:2:node").per, Some((2, Unit::Host)));
        let map = read("ppr:1:socket:PE=5");
        assert_eq!((map.per, map.cores), (Some((1, Unit::Socket)), Some(5)));
        assert_eq!(map.most_ranks(|_| 3), Some(3));
        assert_eq!(read("socket:PE=2").round, Some(Unit::Socket));
        assert_eq!(read("slot:pe=2,oversubscribe").cores, Some(2));
        assert_eq!(read("slot,pe=2").cores, Some(2));
        assert_eq!(read(":OVERSUBSCRIBE").round, None);
        assert_eq!(read(":PE=3").cores, Some(3));
        assert!(read("node:SPAN:NOOVERSUBSCRIBE").no_oversubscription);
        for text in ["core", "slot", "node", "hwthread", "numa:SPAN"] {
            read(text);
        }
        let map = read("pe-list=0,2-3:ordered");
        assert_eq!((map.list, map.is_ordered), (Some(vec![0, 2, 3]), true));
        for text in [
            "ppr:2",
            "ppr:x:node",
            "ppr:0:node",
            "ppr:1:moon",
            "moon",
            "core:2",
            "slot:pe=0",
            "16:node:PE=1",
        ] {
            assert!(map_by(text).is_err(), "{text}");
        }
    }

    #[test]
    fn bindings() {
        let read = |text: &str| bind(text).map(|b| b.binding);
        assert_eq!(read("core"), Ok(Binding::Core));
        assert_eq!(read("hwthread"), Ok(Binding::Core));
        assert_eq!(read("core:2"), Ok(Binding::Cores(2)));
        assert_eq!(read("socket"), Ok(Binding::Unit(Unit::Socket)));
        assert_eq!(read("package"), Ok(Binding::Unit(Unit::Socket)));
        assert_eq!(read("numa:if-supported"), Ok(Binding::Unit(Unit::Numa)));
        assert_eq!(read("user:0,2"), Ok(Binding::List(vec![0, 2])));
        assert_eq!(read("1,0"), Ok(Binding::List(vec![1, 0])));
        assert!(bind("core:overload-allowed").unwrap().may_overload);
        assert_eq!(
            read("cores:0-1:3"),
            Ok(Binding::Lists(vec![vec![0, 1], vec![3]]))
        );
        for text in [
            "",
            "moon",
            "core:x",
            "socket:2",
            "0-",
            "cores:",
            "cores:0:x",
        ] {
            assert!(bind(text).is_err(), "{text}");
        }
    }
}
