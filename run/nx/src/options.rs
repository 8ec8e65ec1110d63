//! The options of NX on a program's command line: `-sz 4`, `-sz 2x3`, `-on 0..3`, `-pt 1`,
//! `-pn partition` and others.
//!
//! A program that is started alone with such options starts itself through the launcher, which has
//! the same options.

use std::ffi::OsString;

use margay_core_partitions::{MOST_PRIORITY, Shape};
use margay_run_mpi::launcher::{become_launcher, is_in_job};

use margay_sys_os::cpu;

use crate::error::*;
use crate::{partitions, refuse};

/// Rows and columns that were asked for, for `mypart`.
pub const ENV_RECTANGLE: &str = "MARGAY_NX_RECTANGLE";

/// A number of nodes, and the rows and columns that they were asked for as.
pub type Size = (u32, Option<(u32, u32)>);

/// Number of nodes, or rows and columns, where the command line has no `-sz`.
pub const ENV_SIZE: &str = "NX_DFLT_SIZE";
/// The partition where the command line and the program name none.
pub const ENV_PARTITION: &str = "NX_DFLT_PART";

/// The partition that is all of the machine.
const PARTITION: &str = ".compute";

/// Options with a value that are known and change nothing here: they tune what the Paragon had and
/// this machine has not.
const WITHOUT_EFFECT: [&str; 8] = [
    "-pkt", "-mbf", "-mex", "-mea", "-noc", "-sth", "-sct", "-gth",
];

/// What the options say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// `-sz`: number of nodes.
    pub size: Option<u32>,
    /// `-sz 2x3`: rows and columns.
    pub rectangle: Option<(u32, u32)>,
    /// `-pt`
    pub ptype: Option<u32>,
    /// `-on`, as it was written.
    pub nodes: Option<String>,
    /// `-pn`, or what the environment says where that is empty; none for all of the machine.
    pub partition: Option<String>,
    /// `-pri`: the priority in a partition.
    pub priority: Option<u32>,
    /// Which words of the command line are not NX's, by their places.
    pub rest: Vec<usize>,
    /// There was at least one option.
    pub any: bool,
}

impl Options {
    /// Reads a command line; its first word is the program's name.
    ///
    /// # Errors
    /// When an option has no value, or one that it cannot have.
    pub fn read(words: &[String]) -> Result<Options> {
        let mut options = Options::default();
        let mut at = 0;
        while at < words.len() {
            let word = words[at].as_str();
            let known = at > 0
                && (matches!(word, "-sz" | "-pt" | "-on" | "-pn" | "-pri")
                    || WITHOUT_EFFECT.contains(&word));
            if at > 0 && matches!(word, "-plk" | "-rlx") {
                options.any = true;
            } else if known {
                at += 1;
                let Some(value) = words.get(at) else {
                    refuse!(EQPARAM, "the option {word} has no value");
                };
                options.set(word, value)?;
                options.any = true;
            } else {
                options.rest.push(at);
            }
            at += 1;
        }
        options.has_nodes()?;
        Ok(options)
    }

    /// Looks whether the application has the nodes that `-on` names, where its size is said.
    fn has_nodes(&self) -> Result<()> {
        let (Some(size), Some(nodes)) = (self.size, &self.nodes) else {
            return Ok(());
        };
        let numbers = nodes.split(|c: char| !c.is_ascii_digit());
        match numbers.filter_map(|n| n.parse().ok()).max() {
            Some(last @ 0u32..) if last >= size => {
                refuse!(
                    EQPARAM,
                    "-on {nodes}: the application has no node {last}, as -sz says {size}"
                )
            }
            _ => Ok(()),
        }
    }

    fn set(&mut self, option: &str, value: &str) -> Result<()> {
        match option {
            "-sz" => {
                let (size, rectangle) = size(value)?;
                self.size = Some(size);
                self.rectangle = rectangle;
            }
            "-pt" => {
                let ptype = value.parse().unwrap_or(-1);
                self.ptype = Some(crate::ptype_of(ptype)?);
            }
            "-on" => self.nodes = Some(value.into()),
            "-pn" => self.partition = named(value),
            "-pri" => match value.parse() {
                Ok(priority @ 0..=MOST_PRIORITY) => self.priority = Some(priority),
                _ => refuse!(
                    EQPARAM,
                    "-pri {value}: it is a priority from 0 to {MOST_PRIORITY}"
                ),
            },
            _ => {}
        }
        Ok(())
    }

    /// Returns the words for the launcher that start `program` with these options.
    fn words(&self, program: OsString, arguments: &[String]) -> Vec<OsString> {
        let mut words: Vec<OsString> = Vec::new();
        if let Some(size) = self.size {
            words.extend(["-n".into(), size.to_string().into()]);
        }
        if let Some(partition) = &self.partition {
            words.extend(["-pn".into(), partition.into()]);
        }
        if let Some(nodes) = &self.nodes {
            words.extend(["-on".into(), nodes.into()]);
        }
        if let Some(priority) = self.priority {
            words.extend(["-pri".into(), priority.to_string().into()]);
        }
        if let Some(ptype) = self.ptype {
            words.extend(["-pt".into(), ptype.to_string().into()]);
        }
        if let Some((rows, columns)) = self.rectangle {
            words.extend(["-env".into(), ENV_RECTANGLE.into()]);
            words.push(format!("{rows}x{columns}").into());
        }
        words.push(program);
        let rest = self.rest.iter().skip(1).map(|&at| &arguments[at]);
        words.extend(rest.map(OsString::from));
        words
    }
}

/// The partition that a name stands for: an empty one for that of the environment, none for all of
/// the machine.
fn named(name: &str) -> Option<String> {
    let asked = std::env::var(ENV_PARTITION).unwrap_or_default();
    let name = if name.is_empty() { &asked } else { name };
    (!name.is_empty() && name != PARTITION).then(|| name.to_owned())
}

/// Has a program that controls its application run in a partition, and so its processes: they use
/// the cores of that one. What the launcher has started has its partition.
///
/// # Errors
/// When the partition cannot be had so.
pub fn enter(name: &str) -> Result<()> {
    let Some(name) = named(name) else {
        return Ok(());
    };
    if is_in_job() {
        refuse!(
            EQPARTITION,
            "a running program cannot choose the partition '{name}'; start it in that one: mpiexec -pn {name} PROGRAM"
        );
    }
    let cores = partitions::cores_of(&name)?;
    match cpu::bind_thread(0, &cores) {
        Ok(()) => Ok(()),
        Err(error) => refuse!(
            EQPARTITION,
            "cannot use the cores {cores:?} of the partition '{name}': {error}"
        ),
    }
}

/// The size that the environment asks for, if it does.
///
/// # Errors
/// When it is none.
pub fn default_size() -> Result<Option<Size>> {
    let Ok(text) = std::env::var(ENV_SIZE) else {
        return Ok(None);
    };
    match size(&text) {
        Ok(asked) => Ok(Some(asked)),
        Err(_) => refuse!(
            EQPARAM,
            "{ENV_SIZE}={text}: it is a number of nodes up to 65536, or rows and columns such as 2x3"
        ),
    }
}

/// `-sz`: a number, or rows and columns.
fn size(text: &str) -> Result<Size> {
    let number = |text: &str| text.parse::<u32>().ok().filter(|&n| n > 0 && n <= 1 << 16);
    let rectangle = text
        .split_once(['x', 'X'])
        .and_then(|(rows, columns)| Some((number(rows)?, number(columns)?)));
    match (number(text), rectangle) {
        (Some(size), _) => Ok((size, None)),
        (None, Some((rows, columns))) if rows * columns <= 1 << 16 => {
            Ok((rows * columns, Some((rows, columns))))
        }
        _ => refuse!(
            EQPARAM,
            "-sz {text}: it is a number of nodes up to 65536, or rows and columns such as 2x3"
        ),
    }
}

/// Starts this program anew through the launcher if it was started alone with options of NX, and
/// returns if it was not.
///
/// # Errors
/// When the options are wrong or the launcher cannot be started.
pub fn start_anew() -> Result<()> {
    if is_in_job() {
        return Ok(());
    }
    let words: Vec<String> = std::env::args_os()
        .map(|word| word.to_string_lossy().into_owned())
        .collect();
    // Other options are taken only beside one of these, so that a program without them keeps its
    // own.
    let starts = |word: &String| matches!(word.as_str(), "-sz" | "-on" | "-pt" | "-pn");
    if !words.iter().skip(1).any(starts) {
        return Ok(());
    }
    let mut options = Options::read(&words)?;
    if options.size.is_none() && options.nodes.is_none() {
        let cores = || (cpu::usable_cores() as u32, None);
        // The launcher knows how many nodes a partition has.
        let size = default_size()?.or_else(|| options.partition.is_none().then(cores));
        if let Some((size, rectangle)) = size {
            options.size = Some(size);
            options.rectangle = rectangle;
        }
    }
    let program = match std::env::current_exe() {
        Ok(program) => program.into_os_string(),
        Err(error) => refuse!(EQPATH, "the program does not know its own file: {error}"),
    };
    let words = options.words(program, &words);
    refuse!(EQPATH, "{}", become_launcher("mpiexec", words))
}

/// Keeps the rows and columns that the processes of this one's application shall know.
pub fn keep_rectangle(rows: i64, columns: i64) {
    margay_sys_os::process::set_variable(ENV_RECTANGLE, format!("{rows}x{columns}"));
}

/// Returns the rows and columns of this many nodes: as asked for when the job was started, else as
/// square as possible.
#[must_use]
pub fn rectangle(count: u32) -> (i64, i64) {
    let asked = std::env::var(ENV_RECTANGLE).ok();
    let asked = asked.and_then(|text| size(&text).ok()?.1);
    if let Some((rows, columns)) = asked
        && rows * columns == count
    {
        return (i64::from(rows), i64::from(columns));
    }
    let Shape { rows, columns } = Shape::square(count);
    (i64::from(rows), i64::from(columns))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Result<Options> {
        let words: Vec<String> = line.split_whitespace().map(String::from).collect();
        Options::read(&words)
    }

    #[test]
    fn options_are_distinguished_from_the_programs() {
        let options =
            read("a.out -sz 2x3 input -pt 4 -mbf 1000 -plk -x 3 -on 0..2 -pri 7").unwrap();
        assert_eq!(options.priority, Some(7));
        assert_eq!(options.size, Some(6));
        assert_eq!(options.rectangle, Some((2, 3)));
        assert_eq!(options.ptype, Some(4));
        assert_eq!(options.nodes.as_deref(), Some("0..2"));
        assert_eq!(options.rest, [0, 3, 9, 10]);
        assert!(options.any);
        assert!(!read("a.out input").unwrap().any);
    }

    #[test]
    fn wrong_options_are_reported() {
        for (line, said) in [
            ("a -sz", "-sz has no value"),
            ("a -sz 0", "-sz 0:"),
            ("a -sz 3x", "-sz 3x:"),
            ("a -pt -2", "-1 is not a process type"),
            ("a -pri 11", "-pri 11: it is a priority from 0 to 10"),
            (
                "a -sz 2 -on 0..2",
                "-on 0..2: the application has no node 2",
            ),
        ] {
            let error = read(line).unwrap_err();
            let said = said.replace("-1 is", if line.contains("-pt") { "-2 is" } else { "" });
            assert!(error.text().contains(&said), "{line}: {error}");
        }
    }

    #[test]
    fn a_partition_is_the_launchers() {
        assert_eq!(read("a -pn .compute").unwrap().partition, None);
        let options = read("a -pn mine -sz 2 b").unwrap();
        assert_eq!(options.partition.as_deref(), Some("mine"));
        let words = options.words(
            "a".into(),
            &["a", "-pn", "mine", "-sz", "2", "b"].map(String::from),
        );
        assert_eq!(words, ["-n", "2", "-pn", "mine", "a", "b"]);
    }

    #[test]
    fn rectangles_are_as_square_as_possible() {
        for (count, expected) in [(1, (1, 1)), (6, (2, 3)), (7, (1, 7)), (16, (4, 4))] {
            assert_eq!(rectangle(count), expected);
        }
    }
}
