//! What becomes of options whose values decide.

use std::ffi::OsString;

use margay_job_launch::machine::parse_list;

use crate::hosts::is_here;

type Words = Result<Vec<OsString>, String>;

fn text(values: &[OsString]) -> String {
    let first = values.first().cloned().unwrap_or_default();
    first.to_string_lossy().into_owned()
}

fn words<T: Into<OsString>>(words: impl IntoIterator<Item = T>) -> Words {
    Ok(words.into_iter().map(Into::into).collect())
}

pub fn per_node(values: &[OsString]) -> Words {
    words([format!("--map-by=ppr:{}:node", number(values)?)])
}

pub fn per_socket(values: &[OsString]) -> Words {
    words([format!("--map-by=ppr:{}:socket", number(values)?)])
}

fn number(values: &[OsString]) -> Result<u32, String> {
    let number = text(values).parse().ok().filter(|&n: &u32| n > 0);
    number.ok_or_else(|| "this is not a number of ranks".into())
}

/// PALS'. `depth` is what `-cores-per-rank` does by itself.
pub fn cpu_bind(values: &[OsString]) -> Words {
    let how = text(values);
    let how = how.strip_prefix("verbose,").unwrap_or(&how);
    match how.split_once(':') {
        Some(("list", list)) => words([format!("--bind=cores:{list}")]),
        _ => match how {
            "none" | "no" => words(["--bind=none"]),
            "depth" => Ok(Vec::new()),
            "core" | "cores" | "thread" | "threads" | "rank" => words(["--bind=core"]),
            "numa" | "socket" => words([format!("--bind={how}")]),
            _ => Err(
                "choose none, core, numa, socket or a list of cores for each rank: list:0-3:4-7"
                    .into(),
            ),
        },
    }
}

/// A file of lines `rank N=HOST slot=CORES`, one for each rank.
pub fn rank_file(values: &[OsString]) -> Words {
    let path = values.first().cloned().unwrap_or_default();
    let read = std::fs::read_to_string(&path).map_err(|e| format!("cannot read it: {e}"))?;
    words([format!("--bind=cores:{}", ranks_of_file(&read)?)])
}

fn ranks_of_file(file: &str) -> Result<String, String> {
    let mut ranks: Vec<(usize, String)> = Vec::new();
    for (number, line) in (1..).zip(file.lines()) {
        let line = line.split('#').next().unwrap_or_default().trim();
        if line.is_empty() {
            continue;
        }
        let wrong = |why: &str| format!("line {number}: {why}");
        let form = || wrong("write: rank 0=localhost slot=0-3");
        let (rank, place) = line
            .strip_prefix("rank")
            .and_then(|rest| rest.split_once('='))
            .ok_or_else(form)?;
        let rank: usize = rank.trim().parse().map_err(|_| form())?;
        let (host, slots) = place.split_once("slot=").ok_or_else(form)?;
        is_here(host.trim()).map_err(|why| wrong(&why))?;
        let slots = slots.trim();
        if slots.contains(':') {
            return Err(wrong(
                "SOCKET:CORE is not possible; write the numbers of cores that lscpu -e shows",
            ));
        }
        parse_list(slots).map_err(|why| wrong(&why))?;
        ranks.push((rank, slots.to_owned()));
    }
    ranks.sort();
    let is_whole = ranks.iter().enumerate().all(|(at, (rank, _))| at == *rank);
    if ranks.is_empty() || !is_whole {
        return Err("it must have one line for each rank, from 0".into());
    }
    let lists: Vec<String> = ranks.into_iter().map(|(_, list)| list).collect();
    Ok(lists.join(":"))
}

/// Parameters of Open MPI's components: a few of them are options under another name, and the
/// others concern parts that Margay does not have.
pub fn mca(values: &[OsString]) -> Words {
    let value = values.get(1).cloned().unwrap_or_default();
    let value = value.to_string_lossy();
    let is_on = !["0", "false", "no", "off", ""].contains(&&*value);
    let flag = |own: &str| match is_on {
        true => words([own]),
        false => Ok(Vec::new()),
    };
    match text(values).as_str() {
        "hwloc_base_binding_policy" | "hwloc_default_binding_policy" => {
            words([format!("--bind={value}")])
        }
        "rmaps_base_mapping_policy" | "rmaps_default_mapping_policy" => {
            words([format!("--map-by={value}")])
        }
        // Open MPI 1 binds each rank to a core where there are enough.
        "mpi_paffinity_alone" => flag("--bind=core:overload-allowed"),
        "rmaps_base_no_oversubscribe" => flag("--nooversubscribe"),
        "orte_tag_output" => flag("--label"),
        "orte_timestamp_output" => flag("--timestamp"),
        "orte_report_bindings" | "hwloc_base_report_bindings" => flag("--report-bindings"),
        "rmaps_base_display_map" => flag("--display-map"),
        _ => Ok(Vec::new()),
    }
}

/// `FOLDER[:nojobid,nocopy]`, a folder of files for each rank, as Open MPI 4 names them.
pub fn output_filename(values: &[OsString]) -> Words {
    let text = text(values);
    let (folder, modifiers) = modified(&text);
    files(&folder_files(folder, modifiers), modifiers)
}

/// Splits `NAME:MODIFIER,...`.
fn modified(text: &str) -> (&str, &str) {
    let is_known = |m: &str| {
        let known = ["nojobid", "nocopy", "jobid", "copy"];
        m.split(',')
            .all(|m| known.contains(&m.to_lowercase().as_str()))
    };
    match text.rsplit_once(':') {
        Some((name, modifiers)) if is_known(modifiers) => (name, modifiers),
        _ => (text, ""),
    }
}

fn has(modifiers: &str, name: &str) -> bool {
    modifiers.split(',').any(|m| m.eq_ignore_ascii_case(name))
}

fn folder_files(folder: &str, modifiers: &str) -> [String; 2] {
    let folder = folder.replace('%', "%%");
    let job = if has(modifiers, "nojobid") { "" } else { "/1" };
    ["stdout", "stderr"].map(|name| format!("{folder}{job}/rank.%R/{name}"))
}

fn files([output, error]: &[String; 2], modifiers: &str) -> Words {
    let mut all = vec![
        format!("--output-files={output}"),
        format!("--error-files={error}"),
    ];
    if !has(modifiers, "nocopy") {
        all.push("--tee".into());
    }
    words(all)
}

/// Margay's own values, or the list of Open MPI 5: `tag,timestamp,merge,dir=FOLDER,file=NAME`.
pub fn output(values: &[OsString]) -> Words {
    let text = text(values);
    let first = text.split([',', ':', '=']).next().unwrap_or_default();
    let theirs = [
        "tag",
        "tag-detailed",
        "tag-fullname",
        "rank",
        "timestamp",
        "merge",
        "merge-stderr-to-stdout",
        "dir",
        "file",
        "xml",
        "raw",
    ];
    // -output rank:3 is Margay's.
    if !theirs.contains(&first) || text.starts_with("rank:") {
        return words([format!("--output={text}")]);
    }
    let (list, modifiers) = modified(&text);
    let mut all = Vec::new();
    for word in list.split(',') {
        let more = match word.split_once('=') {
            Some(("dir", folder)) => files(&folder_files(folder, modifiers), modifiers),
            Some(("file", name)) => {
                let name = format!("{}.%R", name.replace('%', "%%"));
                files(&[name.clone(), name], modifiers)
            }
            _ => match word {
                "tag" | "tag-detailed" | "tag-fullname" | "rank" => words(["--label"]),
                "timestamp" => words(["--timestamp"]),
                "merge" | "merge-stderr-to-stdout" => words(["--merge-stderr-to-stdout"]),
                "raw" => Ok(Vec::new()),
                _ => Err(format!(
                    "'{word}' is not possible; choose tag, timestamp, merge, dir=FOLDER or file=NAME"
                )),
            },
        };
        all.extend(more?);
    }
    Ok(all)
}

/// The list of Open MPI 5.
pub fn display(values: &[OsString]) -> Words {
    let mut all = Vec::new();
    for word in text(values).to_lowercase().split(',') {
        all.push(match word {
            "map" | "map-devel" | "map-diffable" => "--display-map",
            "allocation" | "alloc" => "--display-allocation",
            "bind" | "bindings" => "--report-bindings",
            _ => {
                return Err(format!(
                    "'{word}' is not possible; choose map, allocation or bind (lscpu -e shows the machine's cores)"
                ));
            }
        });
    }
    words(all)
}

pub fn with_ft(values: &[OsString]) -> Words {
    match text(values).as_str() {
        "ulfm" | "mpi" | "yes" | "true" | "1" => words(["--continue-on-failure"]),
        _ => Ok(Vec::new()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_ranks_is_a_list_of_cores_for_each() {
        let text = "# two\nrank 1=localhost slot=2,3\nrank 0 = localhost slot=0-1 # first\n";
        assert_eq!(ranks_of_file(text).unwrap(), "0-1:2,3");
        for (text, message) in [
            ("", "one line for each rank"),
            ("rank 1=localhost slot=0", "one line for each rank"),
            ("rank 0=far slot=0", "line 1: 'far' is not this machine"),
            ("\nrank 0=localhost slot=0:1", "line 2: SOCKET:CORE"),
            ("rank 0=localhost slots=0", "line 1: write: rank 0="),
            ("rank x=localhost slot=0", "line 1: write: rank 0="),
        ] {
            let error = ranks_of_file(text).unwrap_err();
            assert!(error.contains(message), "{text}: {error}");
        }
    }
}
