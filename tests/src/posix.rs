//! What POSIX says of files, in memory: a model that clients of a file system are compared with.
//! Each operation is answered as the program `pfs/client.c` does.

use std::collections::BTreeMap;

/// Errors of Linux.
const EPERM: i32 = 1;
const ENOENT: i32 = 2;
const EBADF: i32 = 9;
const EAGAIN: i32 = 11;
const EEXIST: i32 = 17;
const ENOTDIR: i32 = 20;
const EISDIR: i32 = 21;
const EINVAL: i32 = 22;
const ENOTEMPTY: i32 = 39;
const ENODATA: i32 = 61;

/// Flags of an open file, of Linux.
const ACCESS: u64 = 3;
pub const WRITE: u64 = 1;
pub const BOTH: u64 = 2;
pub const CREATE: u64 = 0o100;
pub const EXCLUSIVE: u64 = 0o200;
pub const CUT: u64 = 0o1000;
pub const APPEND: u64 = 0o2000;

/// An operation: its name, a number of an open file, two paths, and what else it takes.
#[derive(Clone, Debug, Default)]
pub struct Step {
    pub what: &'static str,
    pub file: usize,
    pub path: String,
    pub other: String,
    pub at: u64,
    pub len: u64,
    pub seed: u64,
}

impl Step {
    /// As the clients read it.
    #[must_use]
    pub fn line(&self) -> String {
        let word = |text: &str| {
            if text.is_empty() {
                "-".into()
            } else {
                text.to_owned()
            }
        };
        format!(
            "{} {} {} {} {} {} {}\n",
            self.what,
            self.file,
            word(&self.path),
            word(&self.other),
            self.at,
            self.len,
            self.seed
        )
    }
}

#[derive(Debug)]
enum Body {
    File(Vec<u8>),
    Folder(BTreeMap<String, usize>),
}

#[derive(Debug)]
struct Node {
    body: Body,
    links: u64,
    mode: u64,
    note: Option<u64>,
}

#[derive(Clone, Copy, Debug)]
struct Open {
    node: usize,
    reads: bool,
    writes: bool,
    appends: bool,
}

/// A lock of a client.
#[derive(Clone, Copy, Debug)]
struct Lock {
    node: usize,
    client: usize,
    from: u64,
    to: u64,
    writes: bool,
}

/// Files and folders, and what clients have of them.
#[derive(Debug)]
pub struct Model {
    nodes: Vec<Node>,
    open: BTreeMap<(usize, usize), Open>,
    locks: Vec<Lock>,
}

type Done = Result<String, i32>;

fn done() -> Done {
    Ok("0".into())
}

/// The bytes that a client writes.
fn bytes(seed: u64, len: u64) -> Vec<u8> {
    let byte = |i: u64| ((seed + i).wrapping_mul(2_654_435_761) >> 13) as u8;
    (0..len).map(byte).collect()
}

impl Default for Model {
    fn default() -> Model {
        Model {
            nodes: vec![Node {
                body: Body::Folder(BTreeMap::new()),
                links: 2,
                mode: 0o755,
                note: None,
            }],
            open: BTreeMap::new(),
            locks: Vec::new(),
        }
    }
}

impl Model {
    /// What a client has to answer.
    pub fn answer(&mut self, client: usize, step: &Step) -> String {
        self.apply(client, step)
            .unwrap_or_else(|error| format!("-{error}"))
    }

    /// The numbers of the files that a client has open.
    #[must_use]
    pub fn opened(&self, client: usize) -> Vec<usize> {
        let all = self.open.range((client, 0)..(client + 1, 0));
        all.map(|((_, file), _)| *file).collect()
    }

    /// Whether a client has a file open for appending.
    #[must_use]
    pub fn appends(&self, client: usize, file: usize) -> bool {
        self.open
            .get(&(client, file))
            .is_some_and(|open| open.appends)
    }

    /// Whether there is a file or a folder, and which of them.
    #[must_use]
    pub fn is_folder(&self, path: &str) -> Option<bool> {
        let node = self.find(path).ok()?;
        Some(matches!(self.nodes[node].body, Body::Folder(_)))
    }

    fn folder(&self, node: usize) -> Result<&BTreeMap<String, usize>, i32> {
        match &self.nodes[node].body {
            Body::Folder(entries) => Ok(entries),
            Body::File(_) => Err(ENOTDIR),
        }
    }

    fn entries(&mut self, node: usize) -> &mut BTreeMap<String, usize> {
        match &mut self.nodes[node].body {
            Body::Folder(entries) => entries,
            Body::File(_) => unreachable!("it is a folder"),
        }
    }

    fn data(&mut self, node: usize) -> Result<&mut Vec<u8>, i32> {
        match &mut self.nodes[node].body {
            Body::File(data) => Ok(data),
            Body::Folder(_) => Err(EISDIR),
        }
    }

    /// The folder of the last name of a path, and that name.
    fn parent<'a>(&self, path: &'a str) -> Result<(usize, &'a str), i32> {
        let mut names: Vec<&str> = path.split('/').collect();
        let last = names.pop().unwrap_or_default();
        let mut node = 0;
        for name in names {
            node = *self.folder(node)?.get(name).ok_or(ENOENT)?;
        }
        self.folder(node)?;
        Ok((node, last))
    }

    fn find(&self, path: &str) -> Result<usize, i32> {
        let (parent, name) = self.parent(path)?;
        self.folder(parent)?.get(name).copied().ok_or(ENOENT)
    }

    fn make(&mut self, parent: usize, name: &str, body: Body) -> usize {
        let is_folder = matches!(body, Body::Folder(_));
        self.nodes.push(Node {
            body,
            links: if is_folder { 2 } else { 1 },
            mode: if is_folder { 0o755 } else { 0o644 },
            note: None,
        });
        let node = self.nodes.len() - 1;
        self.entries(parent).insert(name.into(), node);
        self.nodes[parent].links += u64::from(is_folder);
        node
    }

    /// Takes a name away.
    fn remove(&mut self, parent: usize, name: &str) {
        let node = self.entries(parent).remove(name);
        let Some(node) = node else { return };
        if self.folder(node).is_ok() {
            self.nodes[parent].links -= 1;
            self.nodes[node].links = 0;
        } else {
            self.nodes[node].links -= 1;
        }
    }

    fn apply(&mut self, client: usize, step: &Step) -> Done {
        match step.what {
            "open" | "mopen" => self.open_file(client, step),
            "mkdir" | "rmdir" | "unlink" | "link" | "rename" => self.change_names(step),
            "stat" => self.find(&step.path).map(|node| self.facts(node)),
            "list" => {
                let node = self.find_folder(&step.path)?;
                let names: Vec<&str> = self.folder(node)?.keys().map(String::as_str).collect();
                Ok([&[".", ".."], names.as_slice()].concat().join(" "))
            }
            "cutpath" => {
                let node = self.find(&step.path)?;
                self.data(node)?.resize(step.at as usize, 0);
                done()
            }
            "chmod" => {
                let node = self.find(&step.path)?;
                self.nodes[node].mode = step.at;
                done()
            }
            "note" => {
                let node = self.find(&step.path)?;
                self.nodes[node].note = Some(step.seed);
                done()
            }
            "noted" => {
                let node = self.find(&step.path)?;
                let note = self.nodes[node].note.ok_or(ENODATA)?;
                Ok(note.to_string())
            }
            _ => self.use_file(client, step),
        }
    }

    fn find_folder(&self, path: &str) -> Result<usize, i32> {
        match path {
            "." => Ok(0),
            path => self.find(path),
        }
    }

    fn facts(&self, node: usize) -> String {
        let node = &self.nodes[node];
        let (kind, size) = match &node.body {
            Body::File(data) => ("file", data.len()),
            Body::Folder(_) => ("folder", 0),
        };
        format!("{kind} {size} {} {:o}", node.links, node.mode)
    }

    fn open_file(&mut self, client: usize, step: &Step) -> Done {
        let flags = if step.what == "mopen" { BOTH } else { step.at };
        let writes = flags & ACCESS != 0;
        let (parent, name) = self.parent(&step.path)?;
        let node = match self.folder(parent)?.get(name).copied() {
            Some(_) if flags & CREATE != 0 && flags & EXCLUSIVE != 0 => return Err(EEXIST),
            Some(node) => {
                if self.folder(node).is_ok() && (writes || flags & CREATE != 0) {
                    return Err(EISDIR);
                }
                node
            }
            None if flags & CREATE != 0 => self.make(parent, name, Body::File(Vec::new())),
            None => return Err(ENOENT),
        };
        if flags & CUT != 0 {
            self.data(node)?.clear();
        }
        let open = Open {
            node,
            reads: flags & ACCESS != WRITE,
            writes,
            appends: flags & APPEND != 0,
        };
        self.open.insert((client, step.file), open);
        done()
    }

    fn change_names(&mut self, step: &Step) -> Done {
        match step.what {
            "mkdir" => {
                let (parent, name) = self.parent(&step.path)?;
                if self.folder(parent)?.contains_key(name) {
                    return Err(EEXIST);
                }
                self.make(parent, name, Body::Folder(BTreeMap::new()));
            }
            "rmdir" => {
                let (parent, name) = self.parent(&step.path)?;
                if !self.folder(self.find(&step.path)?)?.is_empty() {
                    return Err(ENOTEMPTY);
                }
                self.remove(parent, name);
            }
            "unlink" => {
                let (parent, name) = self.parent(&step.path)?;
                let node = self.find(&step.path)?;
                self.data(node)?;
                self.remove(parent, name);
            }
            "link" => {
                let node = self.find(&step.path)?;
                let (parent, name) = self.parent(&step.other)?;
                if self.folder(parent)?.contains_key(name) {
                    return Err(EEXIST);
                }
                if self.folder(node).is_ok() {
                    return Err(EPERM);
                }
                self.entries(parent).insert(name.into(), node);
                self.nodes[node].links += 1;
            }
            _ => self.rename(&step.path, &step.other)?,
        }
        done()
    }

    fn rename(&mut self, from: &str, to: &str) -> Result<(), i32> {
        let (from_parent, from_name) = self.parent(from)?;
        let (to_parent, to_name) = self.parent(to)?;
        let node = self.find(from)?;
        let is_folder = self.folder(node).is_ok();
        if to.starts_with(&format!("{from}/")) {
            return Err(EINVAL);
        }
        let there = self.folder(to_parent)?.get(to_name).copied();
        if from.starts_with(&format!("{to}/")) {
            return Err(ENOTEMPTY);
        }
        if let Some(there) = there {
            if there == node {
                return Ok(());
            }
            match (is_folder, self.folder(there)) {
                (true, Err(error)) => return Err(error),
                (false, Ok(_)) => return Err(EISDIR),
                (true, Ok(entries)) if !entries.is_empty() => return Err(ENOTEMPTY),
                _ => self.remove(to_parent, to_name),
            }
        }
        self.entries(from_parent).remove(from_name);
        self.entries(to_parent).insert(to_name.into(), node);
        self.nodes[from_parent].links -= u64::from(is_folder);
        self.nodes[to_parent].links += u64::from(is_folder);
        Ok(())
    }

    /// What is done with an open file.
    fn use_file(&mut self, client: usize, step: &Step) -> Done {
        let open = self.open[&(client, step.file)];
        let (at, len) = (step.at as usize, step.len as usize);
        match step.what {
            "read" | "mread" => {
                if !open.reads {
                    return Err(EBADF);
                }
                let data = self.data(open.node)?;
                let end = data.len();
                let got = &data[at.min(end)..(at + len).min(end)];
                let hash = got
                    .iter()
                    .fold(14_695_981_039_346_656_037_u64, |hash, byte| {
                        (hash ^ u64::from(*byte)).wrapping_mul(1_099_511_628_211)
                    });
                Ok(format!("{} {hash}", got.len()))
            }
            "write" | "append" | "mwrite" => {
                if !open.writes {
                    return Err(EBADF);
                }
                let data = self.data(open.node)?;
                let at = if open.appends { data.len() } else { at };
                let end = data.len().max(at + len);
                data.resize(end, 0);
                data[at..at + len].copy_from_slice(&bytes(step.seed, step.len));
                Ok(len.to_string())
            }
            "cut" | "mcut" => {
                if !open.writes {
                    return Err(EINVAL);
                }
                self.data(open.node)?.resize(at, 0);
                done()
            }
            "hole" => {
                if !open.writes {
                    return Err(EBADF);
                }
                let data = self.data(open.node)?;
                let end = data.len();
                data[at.min(end)..(at + len).min(end)].fill(0);
                done()
            }
            "msize" => Ok(self.data(open.node)?.len().to_string()),
            "facts" => Ok(self.facts(open.node)),
            "lock" | "asklock" => self.lock(client, open, step),
            "close" | "mclose" => {
                self.open.remove(&(client, step.file));
                let is_own = |lock: &Lock| lock.node == open.node && lock.client == client;
                self.locks.retain(|lock| !is_own(lock));
                done()
            }
            _ => done(),
        }
    }

    fn lock(&mut self, client: usize, open: Open, step: &Step) -> Done {
        let (from, to) = (step.at, step.at + step.len);
        let writes = step.path == "w";
        let meets = |lock: &&Lock| lock.node == open.node && lock.from < to && from < lock.to;
        let mut others = self.locks.iter().filter(|lock| lock.client != client);
        if step.what == "asklock" {
            let is_held = others.any(|lock| meets(&lock) && (writes || lock.writes));
            let kind = if is_held { "held" } else { "free" };
            return Ok(kind.into());
        }
        if step.path != "u" {
            let may = if writes { open.writes } else { open.reads };
            if !may {
                return Err(EBADF);
            }
            if others.any(|lock| meets(&lock) && (writes || lock.writes)) {
                return Err(EAGAIN);
            }
        }
        let mut kept = Vec::new();
        for lock in self.locks.drain(..) {
            if lock.client != client || !meets(&&lock) {
                kept.push(lock);
                continue;
            }
            if lock.from < from {
                kept.push(Lock { to: from, ..lock });
            }
            if to < lock.to {
                kept.push(Lock { from: to, ..lock });
            }
        }
        self.locks = kept;
        if step.path != "u" {
            self.locks.push(Lock {
                node: open.node,
                client,
                from,
                to,
                writes,
            });
        }
        done()
    }
}
