//! The options of other launchers, and what they are here.

use super::Meaning::{By, File, Nothing, Pair, Refused, Same, Words};
use super::{Foreign, translate};

const fn option(names: &'static [&'static str], values: usize, meaning: super::Meaning) -> Foreign {
    Foreign {
        names,
        values,
        meaning,
    }
}

/// Options whose meaning here needs more than another name. Names that only differ are aliases in
/// the definition of Margay's options.
pub const TABLE: &[Foreign] = &[
    // Numbers of ranks, and where they run.
    option(&["npernode", "N"], 1, By(translate::per_node)),
    option(&["npersocket"], 1, By(translate::per_socket)),
    option(&["pernode"], 0, Words(&["--map-by=ppr:1:node"])),
    option(&["grr"], 1, Same("ppn")),
    option(&["byslot", "bycore"], 0, Nothing),
    option(
        &["rr", "bynode", "loadbalance"],
        0,
        Words(&["--map-by=node"]),
    ),
    option(&["bysocket"], 0, Words(&["--map-by=socket"])),
    option(&["bind-to-core"], 0, Words(&["--bind=core"])),
    option(&["bind-to-socket"], 0, Words(&["--bind=socket"])),
    option(&["bind-to-none"], 0, Words(&["--bind=none"])),
    option(&["cpu-bind"], 1, By(translate::cpu_bind)),
    option(&["d"], 1, Same("cores-per-rank")),
    option(&["rankfile", "rf"], 1, By(translate::rank_file)),
    option(
        &["nolocal"],
        0,
        Refused("name the hosts without this one with -host or -hostfile"),
    ),
    option(
        &["add-host", "add-hostfile"],
        1,
        Refused("name all hosts with -host or -hostfile"),
    ),
    // Environment.
    option(&["env"], 1, Pair("--env")),
    option(&["genv"], 1, Pair("--genv")),
    option(
        &["mca", "gmca", "omca", "gomca", "prtemca", "pmixmca", "oca"],
        2,
        By(translate::mca),
    ),
    option(&["am", "tune"], 1, Nothing),
    // Input, output and what the launcher tells.
    option(&["output-filename"], 1, By(translate::output_filename)),
    option(&["output"], 1, By(translate::output)),
    option(&["display"], 1, By(translate::display)),
    option(
        &["v", "verbose"],
        0,
        Words(&["--display-allocation", "--display-map", "--report-bindings"]),
    ),
    option(&["info"], 0, Words(&["--version"])),
    option(
        &["prepend-pattern"],
        1,
        Refused("-l puts the rank before each line, -timestamp the time"),
    ),
    option(
        &["xml"],
        0,
        Refused("showmesh --json prints what the ranks do"),
    ),
    option(
        &["xterm", "xterm-ranks"],
        1,
        Refused("start a terminal for each rank: mpiexec -n 4 xterm -hold -e ./a.out"),
    ),
    option(
        &["report-uri"],
        1,
        Refused(
            "the launcher has no address; MPI_Open_port and MPI_Publish_name need no server, and showmesh shows the jobs",
        ),
    ),
    option(
        &["report-pid"],
        1,
        Refused("showmesh shows the jobs; a job's number is its launcher's process id"),
    ),
    option(
        &["ompi-server", "nameserver"],
        1,
        Refused("published names need no server; leave it out"),
    ),
    option(
        &["display-topo", "display-topology"],
        0,
        Refused("lscpu -e shows the machine's cores"),
    ),
    option(
        &["do-not-launch", "donotlaunch"],
        0,
        Refused(
            "start the ranks of `true` instead: mpiexec -display-map -report-bindings -n 4 true",
        ),
    ),
    option(
        &["print-all-exitcodes"],
        0,
        Refused("the report names the first rank that fails, with its exit code"),
    ),
    // Debuggers and tools.
    option(
        &["gdb", "debug"],
        0,
        Refused(
            "start each rank under a server of gdb, and connect with `target remote :5000` and so on: \
             mpiexec -n 4 sh -c 'exec gdbserver :$((5000+MARGAY_RANK)) ./a.out'; or attach: showmesh shows the process ids, \
             gdb -p PID",
        ),
    ),
    option(
        &["tv", "ddt"],
        0,
        Refused("start the debugger with the process ids that showmesh shows"),
    ),
    option(
        &["debugger", "gtool", "gtoolfile"],
        1,
        Refused("put the tool before the program: mpiexec -n 4 TOOL ./a.out"),
    ),
    option(
        &["t", "check_mpi", "check-mpi", "aps", "mps"],
        0,
        Refused(
            "put the tool before the program, or preload its library: mpiexec -x LD_PRELOAD=LIBRARY -n 4 ./a.out",
        ),
    ),
    option(
        &["index-argv-by-rank", "stop-on-exec", "stop-in-init"],
        0,
        Refused("attach a debugger by the process ids that showmesh shows"),
    ),
    option(
        &[
            "ckpoint",
            "ckpoint-interval",
            "ckpoint-prefix",
            "ckpoint-num",
            "ckpointlib",
            "max-restarts",
        ],
        1,
        Refused(
            "Margay neither saves nor restarts programs; -continue-on-failure lets the other ranks go on",
        ),
    ),
    // Programs.
    option(&["configfile", "app"], 1, File),
    option(
        &["path"],
        1,
        Refused("write the program with its folder, or set PATH: -env PATH FOLDER"),
    ),
    option(
        &["arch", "soft", "file"],
        1,
        Refused("no launcher of today has it; leave it out"),
    ),
    option(&["with-ft"], 1, By(translate::with_ft)),
    // What Margay does anyway.
    option(
        &[
            "oversubscribe",
            "use-hwthread-cpus",
            "use-hwthreads",
            "allow-run-as-root",
            "genvall",
            "genvuser",
            "envall",
            "envuser",
            "ordered-output",
            "get-stack-traces",
            "report-state-on-timeout",
            "abort-on-non-zero-status",
            "no-oversubscribe-check",
            "localonly",
            "noconf",
            "cleanup",
            "forward-signals",
        ],
        0,
        Nothing,
    ),
    // What concerns other hosts, other launchers' parts, or a network.
    option(
        &[
            "launcher",
            "bootstrap",
            "rmk",
            "iface",
            "topolib",
            "demux",
            "usize",
            "localhost",
            "branch-count",
            "pmi-connect",
            "prefix",
            "tmpdir",
            "launch-agent",
            "personality",
            "preload-files",
            "runtime-options",
            "mem-bind",
            "gpu-bind",
            "ppn-affinity",
            "pmi-version",
            "hosts-group",
            "max-vm-size",
            "psm-timeout",
        ],
        1,
        Nothing,
    ),
    option(
        &[
            "noprefix",
            "show-progress",
            "hetero-nodes",
            "hetero-apps",
            "novm",
            "nw",
            "leave-session-attached",
            "debug-daemons",
            "debug-daemons-file",
            "do-not-resolve",
            "disable-recovery",
            "disable-hostname-propagation",
            "disable-x",
            "enable-x",
            "skip-launch-node",
            "pmi-noaggregate",
            "pmi-aggregate",
            "silent-abort",
            "ilp64",
            "psm",
            "psm2",
            "ofi",
            "ofa",
            "dapl",
            "rdma",
            "ib",
            "tmi",
            "no-vni",
            "line-buffer",
            "parsable",
            "parseable",
        ],
        0,
        Nothing,
    ),
];
