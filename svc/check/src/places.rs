//! Files and lines of addresses, which `margay` reads in debug information when it is asked.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use margay_core_check::Site;
use margay_sys_os::python::MARK;
use margay_sys_os::signal::take_defaults_in;

pub struct Places {
    margay: PathBuf,
    /// Where an address of a process is: the file, and the address in it.
    known: HashMap<Site, (PathBuf, u64)>,
    said: HashMap<(PathBuf, u64), String>,
    reader: Option<(Child, ChildStdin, BufReader<ChildStdout>)>,
}

impl Places {
    pub fn new(margay: &Path) -> Places {
        Places {
            margay: margay.into(),
            known: HashMap::new(),
            said: HashMap::new(),
            reader: None,
        }
    }

    /// Notes where an address is.
    pub fn enter(&mut self, process: usize, address: u64, file: PathBuf, offset: u64) {
        self.known.insert(Site { process, address }, (file, offset));
    }

    /// A place in words: `at solver.c:42 in main()`.
    pub fn words(&mut self, site: Site) -> String {
        let Some(place) = self.known.get(&site).cloned() else {
            return "(place unknown)".into();
        };
        if let Some(said) = self.said.get(&place) {
            return said.clone();
        }
        let name = place.0.file_name().unwrap_or_default().to_string_lossy();
        if place.0.to_str().is_some_and(|file| file.starts_with(MARK)) {
            let name = name.strip_prefix(MARK).unwrap_or(&name);
            return format!("at {name}:{}", place.1);
        }
        // The address is that of the instruction behind the call.
        let words = self
            .ask(&place.0, place.1.saturating_sub(1))
            .filter(|words| !words.is_empty())
            .unwrap_or_else(|| format!("in {name}+{:#x}", place.1));
        self.said.insert(place, words.clone());
        words
    }

    fn ask(&mut self, file: &Path, address: u64) -> Option<String> {
        let file = file.to_str().filter(|file| !file.contains('\n'))?;
        if self.reader.is_none() {
            let mut command = Command::new(&self.margay);
            command
                .arg("lines")
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .stderr(Stdio::null());
            let mut child = take_defaults_in(&mut command).spawn().ok()?;
            let (input, output) = (child.stdin.take()?, child.stdout.take()?);
            self.reader = Some((child, input, BufReader::new(output)));
        }
        let (_, input, output) = self.reader.as_mut()?;
        writeln!(input, "{address:x} {file}")
            .and_then(|()| input.flush())
            .ok()?;
        let mut line = String::new();
        output.read_line(&mut line).ok().filter(|n| *n > 0)?;
        Some(line.trim_end_matches('\n').to_owned())
    }
}

impl Drop for Places {
    fn drop(&mut self) {
        if let Some((mut child, input, _)) = self.reader.take() {
            drop(input);
            let _ = child.wait();
        }
    }
}
