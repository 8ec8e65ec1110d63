//! What shells complete of a queue with the files of the stage tree: numbers of jobs and names of
//! partitions, in bash, zsh and fish.
#![forbid(unsafe_code)]

use std::process::Command;

use margay_tests::queue::Queue;
use margay_tests::{stage, succeed};

/// A shell that finds the commands; none, with a note, where it is not installed.
fn shell(queue: &Queue, name: &str) -> Option<Command> {
    let is_there = Command::new(name).arg("--version").output().is_ok();
    if !is_there {
        println!("note: there is no {name} here: its completions are not tested");
        return None;
    }
    let path = std::env::var("PATH").unwrap();
    let path = format!("{}:{path}", stage().join("bin").display());
    let mut shell = queue.prepared(name);
    shell.env("PATH", path).env("TERM", "dumb");
    shell.env("SHARE", stage().join("share"));
    Some(shell)
}

fn assert_names(said: &str, names: &[&str], shell: &str) {
    for name in names {
        let mut words = said.split(|c: char| c.is_whitespace());
        assert!(words.any(|word| word == *name), "{shell}: {name}: {said}");
    }
}

#[test]
fn shells_complete_jobs_and_partitions() {
    let queue = Queue::up(1);
    let array = queue.submit(&["--hold", "-a", "0-1", "--", "true"]);
    queue.ok(&["part", "mkpart", "-sz", "1", "mine"]);
    let jobs = [0, 1].map(|task| format!("{array}_{task}"));
    let jobs = jobs.each_ref().map(String::as_str);
    let partitions = ["mine"];
    if let Some(mut bash) = shell(&queue, "bash") {
        let script = "complete_() { COMP_WORDS=(\"$@\"); COMP_CWORD=$(($# - 1)); COMPREPLY=()
             _margay_names margay '' \"${@: -2:1}\"; echo ${COMPREPLY[@]}; }
             source \"$SHARE/bash-completion/completions/margay\"
             complete_ margay cancel ''; complete_ margay part showpart ''";
        let said = succeed(bash.args(["-c", script]));
        assert_names(&said, &[&jobs[..], &partitions].concat(), "bash");
    }
    if let Some(mut fish) = shell(&queue, "fish") {
        let script = "source $SHARE/fish/vendor_completions.d/margay.fish
             complete -C 'margay cancel '; complete -C 'margay part showpart '";
        let said = succeed(fish.args(["--no-config", "-c", script]));
        assert_names(&said, &[&jobs[..], &partitions].concat(), "fish");
    }
    if let Some(mut zsh) = shell(&queue, "zsh") {
        // Completions run in a line editor alone, which wants a terminal.
        let script = "zmodload zsh/zpty; zpty z zsh -f -i
             see() { line=; until [[ $line == *$1* ]]; do zpty -r z part || exit; line+=$part; done; print -r -- $line }
             zpty -w z 'PS1=; fpath=($SHARE/zsh/site-functions $fpath); autoload -Uz compinit; compinit -u -D'
             zpty -w z 'print -r beg\"\"un'; see begun
             zpty -n -w z $'margay cancel \\t\\t'; see _1; zpty -n -w z $'\\C-u'
             zpty -n -w z $'margay part showpart \\t\\t'; see mine";
        let said = succeed(zsh.args(["-f", "-c", script]));
        assert_names(&said, &[&jobs[..], &partitions].concat(), "zsh");
    }
}
