//! Intel's variable for a part of the machine, `KMP_HW_SUBSET`: a number of sockets, of cores in
//! each, and of threads in each of those.

use crate::places::{Topology, Unit};

/// The part of a machine to which a program is restricted.
pub struct Subset<'t> {
    machine: &'t dyn Topology,
    /// The processors of the part, in ascending order.
    processors: Vec<usize>,
}

impl Topology for Subset<'_> {
    fn usable(&self) -> Vec<usize> {
        self.processors.clone()
    }

    fn groups(&self, unit: Unit) -> Vec<Vec<usize>> {
        parts(self.machine, unit, &self.processors)
    }
}

/// One part of the value: `2cores@1` means two cores from the second one on.
#[derive(Clone, Debug)]
struct Layer {
    unit: Unit,
    /// None for all.
    count: Option<usize>,
    offset: usize,
}

/// Units from the largest to the smallest, with their names; a name may end with an 's'.
const UNITS: [(Unit, &[&str]); 5] = [
    (Unit::Sockets, &["s", "socket"]),
    (Unit::Nodes, &["n", "numa", "numa_domain"]),
    (Unit::Caches, &["ll_cache"]),
    (Unit::Cores, &["c", "core"]),
    (Unit::Threads, &["t", "thread"]),
];

/// The part of `machine` that a value of `KMP_HW_SUBSET` names: parts like `1socket`, `4c` or
/// `*threads@1` in any order, with commas between. A socket, core or thread that is not named
/// means all of them, unless the value begins with a colon.
///
/// # Errors
/// What is wrong with the value.
pub fn subset<'t>(text: &str, machine: &'t dyn Topology) -> Result<Subset<'t>, String> {
    let text = text.trim();
    let (text, is_absolute) = match text.strip_prefix(':') {
        Some(rest) => (rest, true),
        None => (text, false),
    };
    let named: Vec<Layer> = text.split(',').map(layer).collect::<Result<_, _>>()?;
    let mut layers = Vec::new();
    for (unit, names) in UNITS {
        let mut of_unit = named.iter().filter(|layer| layer.unit == unit);
        let first = of_unit.next();
        if of_unit.next().is_some() {
            return Err(format!("it names '{}' twice", names[names.len() - 1]));
        }
        let is_implied = !is_absolute && matches!(unit, Unit::Sockets | Unit::Cores);
        layers.extend(first.cloned().or(is_implied.then_some(Layer {
            unit,
            count: None,
            offset: 0,
        })));
    }
    let mut processors = chosen(&layers, machine.usable(), machine)?;
    processors.sort_unstable();
    Ok(Subset {
        machine,
        processors,
    })
}

fn layer(text: &str) -> Result<Layer, String> {
    let wrong = || format!("'{text}' is no number of sockets, cores or threads like '4cores@0'");
    let (what, offset) = text.split_once('@').unwrap_or((text, "0"));
    let what = what.trim().to_ascii_lowercase();
    let digits = what
        .find(|c: char| !c.is_ascii_digit() && c != '*')
        .ok_or_else(wrong)?;
    let (count, name) = what.split_at(digits);
    let name = name.trim();
    let known =
        |known: &&str| name == *known || known.len() > 1 && name.strip_suffix('s') == Some(known);
    let unit = UNITS
        .iter()
        .find(|(_, names)| names.iter().any(known))
        .map(|(unit, _)| *unit)
        .ok_or_else(wrong)?;
    let count = match count {
        "" | "*" => None,
        number => Some(number.parse().ok().filter(|&n| n > 0).ok_or_else(wrong)?),
    };
    let offset = offset.trim().parse().map_err(|_| wrong())?;
    Ok(Layer {
        unit,
        count,
        offset,
    })
}

/// The units with processors in `within`, each with those alone.
fn parts(machine: &dyn Topology, unit: Unit, within: &[usize]) -> Vec<Vec<usize>> {
    let mut groups = match unit {
        Unit::Threads => within.iter().map(|&cpu| vec![cpu]).collect(),
        _ => machine.groups(unit),
    };
    for group in &mut groups {
        group.retain(|cpu| within.contains(cpu));
    }
    groups.retain(|group| !group.is_empty());
    groups
}

fn chosen(
    layers: &[Layer],
    within: Vec<usize>,
    machine: &dyn Topology,
) -> Result<Vec<usize>, String> {
    let Some((layer, inner)) = layers.split_first() else {
        return Ok(within);
    };
    let parts = parts(machine, layer.unit, &within);
    let end = match layer.count {
        Some(count) => layer.offset.saturating_add(count),
        None => parts.len(),
    };
    let Some(some) = parts.get(layer.offset..end).filter(|some| !some.is_empty()) else {
        return Err(format!(
            "it asks for {end} {} where there are {}",
            match layer.unit {
                Unit::Sockets => "sockets",
                Unit::Nodes => "NUMA domains",
                Unit::Caches => "caches",
                Unit::Cores => "cores",
                Unit::Threads => "threads",
            },
            parts.len()
        ));
    };
    let mut processors = Vec::new();
    for part in some {
        processors.extend(chosen(inner, part.clone(), machine)?);
    }
    Ok(processors)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::places::places;

    /// Two sockets of four cores with two threads each; the second threads are 8 and more.
    struct Sixteen;

    impl Topology for Sixteen {
        fn usable(&self) -> Vec<usize> {
            (0..16).collect()
        }

        fn groups(&self, unit: Unit) -> Vec<Vec<usize>> {
            match unit {
                Unit::Cores => (0..8).map(|core| vec![core, core + 8]).collect(),
                Unit::Threads => (0..16).map(|cpu| vec![cpu]).collect(),
                _ => (0..2)
                    .map(|socket| {
                        (0..16)
                            .filter(|cpu| cpu % 8 / 4 == socket)
                            .collect::<Vec<usize>>()
                    })
                    .collect(),
            }
        }
    }

    #[test]
    fn parts_of_each_unit_are_taken() {
        let of = |text| subset(text, &Sixteen).map(|subset| subset.processors);
        assert_eq!(of("1s,2c,1t"), Ok(vec![0, 1]));
        assert_eq!(of("1T, 1sockets@1 ,2core@1"), Ok(vec![5, 6]));
        assert_eq!(of("1t"), Ok((0..8).collect()));
        assert_eq!(of("1c@3,*t"), Ok(vec![3, 7, 11, 15]));
        assert_eq!(of(":1s,3t@1"), Ok(vec![1, 2, 3]));
        assert_eq!(of(":2c"), Ok(vec![0, 1, 8, 9]));
        assert_eq!(of(":1numa_domain,2threads"), Ok(vec![0, 1]));
    }

    #[test]
    fn places_are_those_of_the_part() {
        let part = subset("1s@1,2c", &Sixteen).unwrap();
        assert_eq!(places("cores", &part).unwrap(), [[4, 12], [5, 13]]);
        assert_eq!(places("sockets", &part).unwrap(), [[4, 5, 12, 13]]);
        assert_eq!(places("threads", &part).unwrap().len(), 4);
        assert!(places("{0}", &part).is_err());
    }

    #[test]
    fn mistakes_are_named() {
        let of = |text| subset(text, &Sixteen).err().unwrap_or_default();
        assert!(of("5c").contains("asks for 5 cores where there are 4"));
        assert!(of("1s@2").contains("3 sockets"));
        assert!(of("1s,1s").contains("twice"));
        for text in ["", "4", "2x", "c@x", "0c", "1c:intel_core"] {
            assert!(of(text).contains("like '4cores@0'"), "{text}");
        }
    }
}
