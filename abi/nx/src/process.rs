//! Processes, nodes and clocks.

use std::ffi::{c_double, c_int, c_long, c_ulong};

use margay_abi_process::known;
use margay_run_mpi::launcher::is_in_job;
use margay_run_nx::control::{Control, Side};
use margay_run_nx::error::{EQNODE, EQPARAM, EQPARTITION, EQSTATE, Result, meaning};
use margay_run_nx::options::{self, Options};
use margay_run_nx::{Nx, refuse};
use margay_sys_os::{clock, cpu, process};

use crate::call::{control, die, in_use, joined, last, nx};
use crate::info;
use crate::user::{Argc, Argv, Cubes, Esize, Longs, LongsPlace, Small, Strings, Text, given};

/// `libnx` calls this before `main`: passes where `msginfo` is, and lets a program that was started
/// alone with options start itself anew, unless it is one that controls its application itself.
///
/// # Safety
/// `msginfo` is an array of eight integers that stays as long as the process.
#[unsafe(export_name = "margay_nx_start")]
unsafe extern "C" fn start(msginfo: Longs, controls: c_int) {
    // SAFETY: by the caller's promise.
    unsafe { info::keep_at(msginfo) };
    if controls == 0
        && let Err(error) = options::start_anew()
    {
        die("libnx", &error);
    }
}

/// The nodes of a list; all for a count of -1.
///
/// # Safety
/// The program vouches for `n` entries.
unsafe fn list(nodes: Longs, n: c_long) -> Result<Option<Vec<c_long>>> {
    match n {
        -1 => Ok(None),
        // SAFETY: by the caller's promise.
        n => unsafe { nodes.take("the list of nodes", n) }.map(Some),
    }
}

/// Calls `f` with the application that this process controls.
fn controlled<T>(f: impl FnOnce(&mut Control) -> Result<T>) -> Result<T> {
    match control().as_mut() {
        Some(control) => f(control),
        None => refuse!(
            EQSTATE,
            "this process controls no application; nx_initve makes one in a program that was started alone"
        ),
    }
}

/// # Safety
/// The program vouches for its command line: what `main` has.
unsafe fn initialize(
    size: c_long,
    part: Text,
    account: Text,
    argc: Argc,
    argv: Argv,
) -> Result<c_long> {
    let mut part = part.get().unwrap_or_default();
    let mut size = size;
    // SAFETY: by the caller's promise.
    if let Some(words) = unsafe { argc.words(argv) } {
        let options = Options::read(&words)?;
        part = options.partition.unwrap_or(part);
        size = options.size.map_or(size, c_long::from);
        // SAFETY: as above.
        unsafe { argc.keep(argv, &options.rest) };
    }
    options::enter(&part)?;
    let account = account.get().unwrap_or_default();
    if is_in_job() {
        let nx = joined("nx_initve")?;
        nx.charge(&account);
        return Ok(nx.nodes());
    }
    if size == 0
        && let Some((nodes, rectangle)) = options::default_size()?
    {
        size = nodes.into();
        if let Some((rows, columns)) = rectangle {
            options::keep_rectangle(rows.into(), columns.into());
        }
    }
    take_control(size, "", &account)
}

/// # Safety
/// The program vouches for a place in `pids` for each node, unless there is none.
unsafe fn load(
    nodes: Option<&[c_long]>,
    ptype: c_long,
    pids: Longs,
    path: Text,
    arguments: (Strings, Strings),
) -> Result<c_long> {
    let path = given(path, "the program's path")?;
    let (argv, envp) = (arguments.0.get(), arguments.1.get());
    let started = controlled(|c| c.load(nodes, ptype, &path, argv, envp))?;
    // SAFETY: by the caller's promise.
    unsafe { tell_pids(pids, &started) }
}

/// # Safety
/// The program vouches for its command line: what `main` has.
unsafe fn initialize_rectangle(
    rows: c_long,
    cols: c_long,
    part: Text,
    account: Text,
    argc: Argc,
    argv: Argv,
) -> Result<c_long> {
    if rows < 1 || cols < 1 || rows.saturating_mul(cols) > 1 << 16 {
        refuse!(
            EQPARAM,
            "{rows} rows and {cols} columns cannot be; an application has 1 to 65536 nodes"
        );
    }
    if !is_in_job() {
        options::keep_rectangle(rows, cols);
    }
    // SAFETY: by the caller's promise.
    unsafe { initialize(rows * cols, part, account, argc, argv) }
}

/// # Safety
/// The program vouches for a place for each of them, unless there is none.
unsafe fn tell_pids(pids: Longs, started: &[u32]) -> Result<c_long> {
    let numbers: Vec<c_long> = started.iter().map(|&pid| pid.into()).collect();
    if !pids.is_null() {
        // SAFETY: by the caller's promise.
        unsafe { pids.put("pids", &numbers) }?;
    }
    Ok(numbers.len() as c_long)
}

/// Calls `f` with the application that this process controls as long as it passes no messages,
/// else `g` with its NX.
fn controlled_or<T>(
    name: &str,
    f: impl FnOnce(&mut Control) -> Result<T>,
    g: impl FnOnce(&Nx) -> Result<T>,
) -> Result<T> {
    // The lock of the application may be held by a call that waits for its processes.
    if in_use().is_none()
        && let Some(control) = control().as_mut()
    {
        return f(control);
    }
    g(joined(name)?)
}

/// `killcube` and `killproc`: the controlling process ends its children, a node ends the job.
fn kill(name: &str, node: c_long, ptype: c_long) -> Result<()> {
    if let Some(control) = control().as_mut() {
        return control.kill(node, ptype);
    }
    joined(name)?.kill(node, ptype)
}

/// `nx_waitall` and `waitall`. Where this process passes messages, they move on meanwhile, and
/// handlers may run.
fn wait_for(node: c_long, ptype: c_long) -> Result<()> {
    match in_use() {
        None => controlled(|c| c.wait(node, ptype)),
        Some(nx) => nx.progress_until(|| controlled(|c| Ok(c.reap(node, ptype))).transpose())?,
    }
}

/// Whether this process controls a cube of that name.
fn is_cube(name: Text) -> Result<()> {
    let name = name.get().unwrap_or_default();
    match control().as_ref() {
        Some(control) if control.is_called(&name) => Ok(()),
        _ => refuse!(
            EQPARTITION,
            "this process has no cube '{name}'; getcube makes one, which lives as long as its process"
        ),
    }
}

/// How many nodes the type of a cube stands for: `8`, or by its dimension `d3`; without one none.
fn cube_nodes(kind: &str) -> Result<c_long> {
    let kind = kind.trim();
    let nodes = match kind.strip_prefix(['d', 'D']) {
        Some(dimension) => dimension
            .parse::<u32>()
            .ok()
            .filter(|&d| d < 16)
            .map(|d| 1 << d),
        None if kind.is_empty() => Some(0),
        None => kind.parse::<c_long>().ok().filter(|&n| n > 0),
    };
    match nodes {
        Some(nodes) => Ok(nodes),
        None => refuse!(
            EQPARAM,
            "'{kind}' is no type of a cube; it is a number of nodes (8) or a dimension (d3)"
        ),
    }
}

/// Makes this process control an application of this many nodes.
fn take_control(size: c_long, name: &str, account: &str) -> Result<c_long> {
    let mut control = control();
    if control.is_some() || known().is_some() {
        refuse!(
            EQSTATE,
            "the process takes part in an application already; nx_initve and getcube come first, and once"
        );
    }
    let mut new = Control::new(size)?;
    new.call(name, account)?;
    let nodes = new.nodes();
    *control = Some(new);
    Ok(nodes)
}

nx! {
    /// The number of this node; of the controlling process that of the host.
    free fn mynode() -> c_long {
        controlled_or("mynode", |c| Ok(c.nodes()), |nx| Ok(nx.node()))
    }

    /// How many nodes the application has.
    free fn numnodes() -> c_long {
        controlled_or("numnodes", |c| Ok(c.nodes()), |nx| Ok(nx.nodes()))
    }

    /// The number of the host, one more than that of the last node. Only a controlling process
    /// runs there.
    free fn myhost() -> c_long {
        controlled_or("myhost", |c| Ok(c.nodes()), |nx| Ok(nx.nodes()))
    }

    /// The type of this process.
    free fn myptype() -> c_long {
        controlled_or("myptype", |c| Ok(c.ptype()), |nx| Ok(nx.ptype()))
    }

    /// The old name of myptype.
    free fn mypid() -> c_long {
        controlled_or("mypid", |c| Ok(c.ptype()), |nx| Ok(nx.ptype()))
    }

    /// Changes the type of this process.
    free fn setptype(ptype: Small) {
        controlled_or("setptype", |c| c.set_ptype(ptype), |nx| nx.set_ptype(ptype))
    }

    /// The name of setptype on the iPSC.
    free fn setpid(pid: Small) {
        controlled_or("setpid", |c| c.set_ptype(pid), |nx| nx.set_ptype(pid))
    }

    /// The node of the machine on which this process runs: the first core that it may use.
    free fn myphysnode() -> c_long {
        Ok(cpu::affinity().first().copied().unwrap_or(0) as c_long)
    }

    /// Makes this process control an application of this many nodes; how many it has.
    free fn nx_initve(part: Text, size: Small, account: Text, argc: Argc, argv: Argv) -> c_long {
        initialize(size, part, account, argc, argv)
    }

    /// The same for rows and columns of nodes.
    free fn nx_initve_rect(part: Text, anchor: Small, rows: Small, cols: Small, account: Text, argc: Argc, argv: Argv) -> c_long {
        let _ = anchor;
        initialize_rectangle(rows, cols, part, account, argc, argv)
    }

    /// The same for what a list of attributes says, which `libnx` has read.
    free fn nx_initve_attr(part: Text, size: Small, rows: Small, cols: Small, account: Text, argc: Argc, argv: Argv) -> c_long {
        match rows {
            0 => initialize(size, part, account, argc, argv),
            _ => initialize_rectangle(rows, cols, part, account, argc, argv),
        }
    }

    /// Makes a copy of the controlling process on each of the nodes; how many there are, and 0 in a
    /// copy.
    free fn nx_nfork(nodes: Longs, n: Small, ptype: Small, pids: Longs) -> c_long {
        if is_in_job() {
            if n != -1 {
                refuse!(EQSTATE, "the launcher has started the processes already, one on each node");
            }
            joined("nx_nfork")?.set_ptype(ptype)?;
            return Ok(0);
        }
        let nodes = list(nodes, n)?;
        match controlled(|c| c.fork(nodes.as_deref(), ptype))? {
            Side::Parent(started) => tell_pids(pids, &started),
            Side::Child => {
                if let Some(control) = control().take() {
                    control.give_up();
                }
                Ok(0)
            }
        }
    }

    /// Starts a program on each of the nodes; how many there are.
    free fn nx_load(nodes: Longs, n: Small, ptype: Small, pids: Longs, path: Text) -> c_long {
        load(list(nodes, n)?.as_deref(), ptype, pids, path, (Strings::NONE, Strings::NONE))
    }

    /// The same with arguments and environment.
    free fn nx_loadve(nodes: Longs, n: Small, ptype: Small, pids: Longs, path: Text, argv: Strings, envp: Strings) -> c_long {
        load(list(nodes, n)?.as_deref(), ptype, pids, path, (argv, envp))
    }

    /// Starts a program on a node, -1: on all.
    free fn load(file: Text, node: Small, pid: Small) {
        let nodes = (node != -1).then_some([node]);
        let nodes = nodes.as_ref().map(<[c_long; 1]>::as_slice);
        load(nodes, pid, Longs::NONE, file, (Strings::NONE, Strings::NONE)).map(drop)
    }

    /// Waits until all processes that this one has started have ended.
    free fn nx_waitall() -> c_long {
        wait_for(-1, -1)?;
        Ok(0)
    }

    /// Waits until the processes of a type on a node have ended, which load has started; -1: all.
    free fn waitall(node: Small, pid: Small) {
        wait_for(node, pid)
    }

    /// Waits until all processes of the cube have ended.
    free fn waitcube() {
        wait_for(-1, -1)
    }

    /// The priority of the application in its partition, whichever node is named.
    fn nx_pri(node: Small, priority: Small) -> c_long |nx| {
        if !(-1..nx.nodes()).contains(&node) {
            refuse!(EQNODE, "there is no node {node}; the application has the nodes 0 to {}", nx.nodes() - 1);
        }
        if !(0..=10).contains(&priority) {
            refuse!(EQPARAM, "the priority is {priority}; it is 0 to 10");
        }
        nx.prioritize(priority)?;
        Ok(0)
    }

    /// Rows and columns of the application.
    fn nx_app_rect(rows: Longs, cols: Longs) -> c_long |nx| {
        let (r, c) = nx.rectangle();
        rows.put("rows", &[r])?;
        cols.put("cols", &[c])?;
        Ok(0)
    }

    /// Numbers of the application's nodes, in an array that the program frees; pid 0: the caller's.
    fn nx_app_nodes(pid: Small, nodes: LongsPlace, n: Longs) -> c_long |nx| {
        if pid != 0 {
            refuse!(EQPARAM, "the application {pid} cannot be asked; 0 is the caller's");
        }
        let all: Vec<c_long> = (0..nx.nodes()).collect();
        n.put("n", &[nx.nodes()])?;
        nodes.give("nodes", &all)?;
        Ok(0)
    }

    /// Rows and columns of the application.
    fn mypart(rows: Longs, cols: Longs) |nx| {
        let (r, c) = nx.rectangle();
        rows.put("rows", &[r])?;
        cols.put("cols", &[c])
    }

    /// The dimension of the smallest hypercube that has this many nodes.
    fn nodedim() -> c_long |nx| {
        Ok(nx.dimension())
    }

    /// The n-th number of the Gray code.
    free fn gray(n: Small) -> c_long {
        Ok(n ^ n >> 1)
    }

    /// Which number of the Gray code this is.
    free fn ginv(code: Small) -> c_long {
        if code < 0 {
            refuse!(EQPARAM, "{code} is no number of the Gray code; they are not negative");
        }
        let (mut n, mut rest) = (code, code >> 1);
        while rest != 0 {
            n ^= rest;
            rest >>= 1;
        }
        Ok(n)
    }

    /// Ends the processes of a type on a node, -1: all.
    free fn killcube(node: Small, pid: Small) {
        kill("killcube", node, pid)
    }

    /// Ends the process of a type on a node, -1: all.
    free fn killproc(node: Small, pid: Small) {
        kill("killproc", node, pid)
    }

    /// As nx_initve on the iPSC: the type of a cube is its number of nodes (8) or its dimension
    /// (d3).
    free fn getcube(name: Text, kind: Text, host: Text, keep: Small) {
        let _ = (host, keep);
        if is_in_job() {
            refuse!(EQSTATE, "the launcher has made the application already; start the host's program alone");
        }
        let nodes = cube_nodes(&kind.get().unwrap_or_default())?;
        take_control(nodes, &name.get().unwrap_or_default(), "").map(drop)
    }

    /// Has calls refer to a cube, which they do already: a process has one, and no other process's.
    free fn attachcube(name: Text) {
        is_cube(name)
    }

    /// What is known of up to this many cubes of this process; how many there are: one or none.
    free fn cubeinfo(table: Cubes, n: Small, global: Small) -> c_long {
        let _ = global;
        let Some([nodes, processes]) = control().as_ref().map(|c| [c.nodes(), c.processes()]) else {
            return Ok(0);
        };
        if n > 0 {
            table.put("table", &[nodes, std::process::id().into(), 1, processes])?;
        }
        Ok(1)
    }

    /// Ends what getcube has made, with all of its processes.
    free fn relcube(name: Text) {
        is_cube(name)?;
        controlled(|c| c.kill(-1, -1))?;
        wait_for(-1, -1)?;
        if in_use().is_none() {
            *control() = None;
        }
        Ok(())
    }

    /// Seconds of a clock that all nodes read.
    free fn dclock() -> c_double {
        Ok(clock::now_ns() as c_double * 1e-9)
    }

    /// Milliseconds of a clock that all nodes read.
    free fn mclock() -> c_ulong {
        Ok((clock::now_ns() / 1_000_000) as c_ulong)
    }

    /// Ticks of a clock with 10,000,000 in a second, the low and the high half.
    free fn hwclock(time: Esize) {
        let ticks = (clock::now_ns() / 100) as c_long;
        time.put("time", &[ticks & 0xffff_ffff, ticks >> 32])
    }

    /// Lets another process have the core.
    fn flick() |nx| {
        nx.yield_core();
        Ok(())
    }

    /// The light of the node: this machine has none.
    free fn led(state: Small) {
        if !matches!(state, 0 | 1) {
            refuse!(EQPARAM, "the state is {state}; 1 is on, 0 is off");
        }
        Ok(())
    }

    /// Tells the error of the last call of a twin, after a word of the program's.
    free fn nx_perror(word: Text) {
        let number = process::errno();
        let (known, text) = last().clone();
        let text = match meaning(number.into()) {
            _ if number == known && known != 0 => text,
            Some(text) => text.into(),
            None => std::io::Error::from_raw_os_error(number).to_string(),
        };
        match word.get() {
            Some(word) if !word.is_empty() => eprintln!("{word}: {text}"),
            _ => eprintln!("{text}"),
        }
        Ok(())
    }
}
