//! Completions of shells, made from the definition of the options; and what they complete of what
//! there is now: the numbers of jobs that wait or run, and the names of partitions.

use std::io::Write;

use clap_complete::Shell;

use crate::options::{margay_command, mesh_command, run_command};
use crate::poe;

/// How a shell finds the numbers of jobs, and the names of partitions: whole ones and short ones,
/// as fish shows what begins with a dot after a dot alone.
const JOBS: &str = "margay queue --json 2>/dev/null | \
                    awk -v RS=, -F: '$1 ~ /^.job.$/ { gsub(/[^0-9_]/, e, $2); print $2 }'";
const PARTITIONS: &str = "margay part lspart -r 2>/dev/null | \
                          awk 'NR > 1 { print $NF; if (sub(/^[.]compute[.]/, e, $NF)) print $NF }'";

/// Prints the completions of one command for a shell.
///
/// # Errors
/// When the standard output takes no more.
pub fn print(shell: Shell, command: &str) -> Result<(), String> {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut definition(command), command, &mut text);
    let text = String::from_utf8_lossy(&text);
    let text = match shell {
        Shell::Bash => bash(&text, command),
        Shell::Zsh => zsh(&text, command),
        Shell::Fish => fish(&text, command),
        _ => text.into_owned(),
    };
    std::io::stdout()
        .write_all(text.as_bytes())
        .map_err(|e| format!("cannot print the completions: {e}"))
}

fn definition(command: &str) -> clap::Command {
    match command {
        "margay" => margay_command(),
        "showmesh" => mesh_command(command),
        "poe" => poe::command(),
        _ => run_command(command),
    }
}

/// A function around that of the definition adds the names.
fn bash(text: &str, command: &str) -> String {
    format!(
        "{text}
_{command}_names() {{
    _{command} \"$@\"
    local names=
    case \"$3 ${{COMP_WORDS[0]##*/}} ${{COMP_WORDS[1]}}\" in
        -pn\\ * | --pn\\ * | -rmpool\\ * | *\\ margay\\ part) names=$({PARTITIONS}) ;;
        *\\ margay\\ cancel | *\\ margay\\ explain | *\\ margay\\ hold | *\\ margay\\ queue | \\
            *\\ margay\\ release | *\\ margay\\ wait) names=$({JOBS}) ;;
    esac
    [[ -z $names || $2 == -* ]] || COMPREPLY+=($(compgen -W \"$names\" -- \"$2\"))
}}
complete -F _{command}_names -o bashdefault -o default {command}
"
    )
}

/// What the definition completes by nothing gets the names.
fn zsh(text: &str, command: &str) -> String {
    let mut all = String::new();
    for line in text.lines() {
        let names = if line.contains(":PARTITION:") || line.contains("name -- The partition:") {
            "_margay_partitions"
        } else if line.contains("jobs -- ") && !line.contains("mpiexec")
            || line.contains("'::job -- The job:_default'")
        {
            "_margay_jobs"
        } else {
            "_default"
        };
        // Before the functions that use them.
        if line.starts_with(&format!("_{command}()")) {
            all += &format!(
                "_margay_jobs() {{ local -a names; names=(${{(f)\"$({JOBS})\"}}); compadd -a names }}\n\
                 _margay_partitions() {{ local -a names; names=(${{(f)\"$({PARTITIONS})\"}}); compadd -a names }}\n\n"
            );
        }
        all += &line.replace(":_default'", &format!(":{names}'"));
        all.push('\n');
    }
    all
}

fn fish(text: &str, command: &str) -> String {
    let lines = match command {
        "margay" => format!(
            "complete -c margay -n '__fish_seen_subcommand_from cancel explain hold queue release wait' -f -a \"({})\"\n\
             complete -c margay -n '__fish_seen_subcommand_from part' -f -a \"({})\"\n",
            JOBS.replace('$', "\\$"),
            PARTITIONS.replace('$', "\\$")
        ),
        "showmesh" | "poe" => String::new(),
        run => format!(
            "complete -c {run} -o pn -x -a \"({})\"\n",
            PARTITIONS.replace('$', "\\$")
        ),
    };
    text.to_owned() + &lines
}
