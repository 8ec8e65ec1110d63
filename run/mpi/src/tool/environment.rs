//! The environment variables that set no control variable. With `table.rs` it is the one definition
//! of all of them.

/// An environment variable that is not a control variable's.
pub struct Environment {
    /// Its name.
    pub name: &'static str,
    /// What reads it.
    pub reader: &'static str,
    /// What it does.
    pub about: &'static str,
}

/// The environment variables that set no control variable.
pub const ENVIRONMENT: &[Environment] = &[
    Environment {
        name: "MARGAY_RANK",
        reader: "the library",
        about: "The rank, set by the launcher; a program may read it. Without it the program is a world of one rank.",
    },
    Environment {
        name: "MARGAY_SIZE",
        reader: "programs",
        about: "The number of ranks, set by the launcher.",
    },
    Environment {
        name: "MARGAY_CRASH",
        reader: "ranks",
        about: "0: ranks leave all signals alone, and the report of a crash has no stack.",
    },
    Environment {
        name: "MARGAY_RECORD",
        reader: "the library",
        about: "How many calls of each thread the flight recorder keeps, for `margay why --calls` and reports of crashes: 1024 without it, 0 for none.",
    },
    Environment {
        name: "MARGAY_PARTITIONS",
        reader: "`margay part`",
        about: "The folder of the partitions of all users, where it is not `/var/lib/margay/partitions`.",
    },
    Environment {
        name: "MARGAY_PFS",
        reader: "programs",
        about: "The directory of the parallel file system of `mpiexec -pfs`, set for its ranks.",
    },
    Environment {
        name: "MARGAY_PFS_DIRECT",
        reader: "the library",
        about: "`0`: files of a parallel file system are read and written through its mount, as by any program, and not past the kernel. `1`: the library for other programs does that for each file at once, and not only for those of which much is moved.",
    },
    Environment {
        name: "MARGAY_POWERCAP",
        reader: "the queue, when it starts",
        about: "The folder of the counters of energy, where it is not `/sys/class/powercap`.",
    },
    Environment {
        name: "MARGAY_QUEUE",
        reader: "commands of the queue",
        about: "Which queue is asked: `own`, that of the user, or `system`, that of all users; without it the user's where it runs. Set for the processes of jobs.",
    },
    Environment {
        name: "MARGAY_JOB_ID",
        reader: "programs",
        about: "The number of the job of the queue, set for its processes.",
    },
    Environment {
        name: "MARGAY_JOB_TASKS",
        reader: "`mpiexec`",
        about: "The tasks of the job of the queue, set for its processes: the number of ranks where no option says another.",
    },
    Environment {
        name: "MARGAY_JOB_HOSTS",
        reader: "`mpiexec`",
        about: "The hosts of the job of the queue with the tasks of each, where they are not only the one on which it begins.",
    },
    Environment {
        name: "MARGAY_JOB_SLOTS",
        reader: "`srun`",
        about: "The slots of such a job, on all of its hosts.",
    },
    Environment {
        name: "MARGAY_STEP",
        reader: "`mpiexec`",
        about: "The step of such a job that `srun` has made of it, and the process for which that holds.",
    },
    Environment {
        name: "MARGAY_RSH",
        reader: "`mpiexec`",
        about: "The command that reaches the other hosts of a job, as `-launcher-exec`; `ssh` without it.",
    },
    Environment {
        name: "MARGAY_TREE_WIDTH",
        reader: "`mpiexec`",
        about: "How many remote shells one host starts, as `-tree-width`; 32 without it.",
    },
    Environment {
        name: "MARGAY_JOIN_TOKEN",
        reader: "`mpiexec -join`, `margay agent --join`",
        about: "The token that lets hosts join a job, of 16 characters or more; the ranks do not get it.",
    },
    Environment {
        name: "MARGAY_MAKE",
        reader: "`margay make`",
        about: "Set for the commands of make: the run that they belong to, its remote shell and its hosts.",
    },
    Environment {
        name: "MARGAY_DEADLOCK",
        reader: "`mpiexec`",
        about: "What is done when ranks wait for each other so that they can never go on, as `-deadlock`: `report`, `end` or `ignore`.",
    },
    Environment {
        name: "MARGAY_CHECK",
        reader: "`mpiexec`, libmargay_check",
        about: "Set for the ranks by `mpiexec -check`: where its checker listens.",
    },
    Environment {
        name: "MARGAY_BLAS",
        reader: "`margay bench`",
        about: "The BLAS library file to use instead of one that is found.",
    },
    Environment {
        name: "MARGAY_OMP_COPIES",
        reader: "libgomp",
        about: "Set by `margay omp -v`: the copies of OpenMP's libraries whose place was taken are printed at the exit.",
    },
    Environment {
        name: "MARGAY_NX_RECTANGLE",
        reader: "libnx",
        about: "Rows and columns of `-sz RxC`; set for the ranks by an NX program that starts itself.",
    },
    Environment {
        name: "MP_PROCS",
        reader: "`poe`, libmpl",
        about: "Number of tasks. When it is set, a program that is linked with libmpl and started directly starts itself through `poe`.",
    },
    Environment {
        name: "MP_LABELIO",
        reader: "`poe`",
        about: "`yes`: the task before each line of output.",
    },
    Environment {
        name: "MP_STDOUTMODE",
        reader: "`poe`",
        about: "`unordered`, `ordered`, or the task whose output is shown alone.",
    },
    Environment {
        name: "MP_STDINMODE",
        reader: "`poe`",
        about: "`all`, `none`, or the task that gets the standard input.",
    },
    Environment {
        name: "MP_INFOLEVEL",
        reader: "`poe`, libmpl",
        about: "0 to 6: how much is printed. 0 leaves out MPL's lines about errors, 2 and more print on which cores tasks run.",
    },
    Environment {
        name: "MP_EAGER_LIMIT",
        reader: "`poe`, libmpl",
        about: "Longest message in bytes that does not wait for its receive.",
    },
    Environment {
        name: "MP_CSS_INTERRUPT",
        reader: "`poe`, libmpl",
        about: "`yes`: a thread moves messages while tasks compute.",
    },
    Environment {
        name: "MP_INTRDELAY",
        reader: "libmpl",
        about: "Microseconds for which that thread polls for more messages before it sleeps.",
    },
    Environment {
        name: "MP_PMLIGHTS",
        reader: "`poe`, libmpl",
        about: "Number of lights in a task's row of the Program Marker Array, up to 32.",
    },
    Environment {
        name: "MP_HOSTFILE",
        reader: "`poe`",
        about: "A file with the host of each task on a line of its own; `NULL` is none.",
    },
    Environment {
        name: "MP_NODES",
        reader: "`poe`",
        about: "Number of machines: that many of the file of hosts, or nodes of the pool.",
    },
    Environment {
        name: "MP_TASKS_PER_NODE",
        reader: "`poe`",
        about: "Number of tasks on each machine, or on each node of the pool.",
    },
    Environment {
        name: "MP_RMPOOL",
        reader: "`poe`",
        about: "The pool, a partition, of which the job gets nodes.",
    },
    Environment {
        name: "MP_CPU_USE",
        reader: "`poe`",
        about: "`unique`: nodes of the pool are for the job alone; `multiple`: it shares them.",
    },
    Environment {
        name: "MP_ADAPTER_USE",
        reader: "`poe`",
        about: "`dedicated`: as `MP_CPU_USE=unique`; `shared`: as other variables say.",
    },
    Environment {
        name: "MP_EUILIB",
        reader: "`poe`",
        about: "`us`: nodes of a pool are for the job alone where nothing else says whether they are; `ip`: no effect.",
    },
    Environment {
        name: "MP_PGMMODEL",
        reader: "`poe`",
        about: "`spmd`, or `mpmd` with a program for each task.",
    },
    Environment {
        name: "MP_CMDFILE",
        reader: "`poe`",
        about: "The file that lists these programs, or the jobs of `MP_NEWJOB`.",
    },
    Environment {
        name: "MP_NEWJOB",
        reader: "`poe`",
        about: "Jobs one after the other, a line of the command file or of the standard input for each: `yes` or `no`.",
    },
    Environment {
        name: "MP_SAVEHOSTFILE",
        reader: "`poe`",
        about: "A file to which the host of each task is written.",
    },
    Environment {
        name: "MP_NOARGLIST",
        reader: "`poe`, libmpl",
        about: "`yes`: words after the program are not options of `poe`.",
    },
    Environment {
        name: "MP_FENCE",
        reader: "`poe`",
        about: "A word after which no options of `poe` follow.",
    },
    Environment {
        name: "MARGAY_MLP_ARENA",
        reader: "libmlp",
        about: "Bytes of the arena, with K, M, G or T if wanted. The default is half of the memory.",
    },
    Environment {
        name: "MARGAY_MLP_BIND",
        reader: "libmlp",
        about: "What is bound: `none`, `cpu` (threads), or `memory` (threads and their memory, the default).",
    },
    Environment {
        name: "MARGAY_TOPOLOGY",
        reader: "libmlp",
        about: "The folder that describes CPUs and memory nodes; the default is `/sys`.",
    },
    Environment {
        name: "MARGAY_SEGMENT_FD",
        reader: "the library",
        about: "The file descriptor of the job's shared memory, set by the launcher.",
    },
    Environment {
        name: "MARGAY_LISTENER_FD",
        reader: "the library",
        about: "The file descriptor of the rank's listening socket, set by the launcher of a job on several hosts.",
    },
    Environment {
        name: "MARGAY_AGENT",
        reader: "the library",
        about: "The socket of the host's agent, which spawning and published names need, set by the launcher of a job on several hosts.",
    },
    Environment {
        name: "MARGAY_PARENT",
        reader: "the library",
        about: "The port at which the processes that spawned this job wait, set by the launcher.",
    },
    Environment {
        name: "MARGAY_SPAWN",
        reader: "the launcher",
        about: "Where the program that spawns through this launcher waits for the processes; the library sets it, and makes its connection to the launcher the standard input.",
    },
    Environment {
        name: "MARGAY_LAUNCHER",
        reader: "the library",
        about: "The launcher's executable, for spawning. The launcher sets it; for a program without a launcher the user may.",
    },
    Environment {
        name: "MARGAY_LOCAL_RANK",
        reader: "programs",
        about: "The rank among those of its host, set by the launcher, under [other names](launcher.md#environment), too.",
    },
    Environment {
        name: "MARGAY_LOCAL_SIZE",
        reader: "programs",
        about: "The number of ranks on this host, set by the launcher.",
    },
    Environment {
        name: "MARGAY_SINGLETON",
        reader: "the library",
        about: "`1`: a process that [another launcher](launcher.md#under-another-launcher) started as one of several runs alone and is not refused.",
    },
    Environment {
        name: "MARGAY_PORT_RANGE",
        reader: "the library",
        about: "`FIRST:LAST`: the ports at which ranks listen that [another launcher](hosts.md#other-launchers) started on several hosts, and those of bridges to other jobs; `-port-range` sets it.",
    },
    Environment {
        name: "MARGAY_NET",
        reader: "the library",
        about: "The [network between hosts](hosts.md#networks), `tcp`, `ofi`, `ofi:PROVIDER` or `ofi:PROVIDER:DOMAIN`, for all ranks alike; `-net` sets it.",
    },
    Environment {
        name: "MARGAY_LIBFABRIC",
        reader: "the library",
        about: "The library of libfabric to load for `ofi`, instead of `libfabric.so.1`.",
    },
    Environment {
        name: "MARGAY_PMIX",
        reader: "the library",
        about: "The library of PMIx to load under a launcher that speaks it, instead of `libpmix.so.2`.",
    },
    Environment {
        name: "MARGAY_BYTES_ONLY",
        reader: "the library",
        about: "`1`: ranks exchange only packets and share no memory, to test how a program behaves on separate machines.",
    },
    Environment {
        name: "MPICC_CC",
        reader: "`mpicc`",
        about: "The C compiler to use instead of `cc`.",
    },
    Environment {
        name: "MPICXX_CXX",
        reader: "`mpicxx`, `mpic++`",
        about: "The C++ compiler to use instead of `c++`.",
    },
    Environment {
        name: "MPIFORT_FC",
        reader: "`mpifort`",
        about: "The Fortran compiler to use instead of `gfortran`.",
    },
    Environment {
        name: "MPIFORT_PREFIX",
        reader: "`mpifort`",
        about: "The folder into which `margay fortran` put the modules of another compiler.",
    },
    Environment {
        name: "GLIBC_TUNABLES",
        reader: "the C library",
        about: "The launcher adds `glibc.malloc.hugetlb=1` where every rank has a core, unless that tunable is set.",
    },
    Environment {
        name: "MARGAY_STAGE",
        reader: "tests, benchmarks, `cargo xtask`",
        about: "The folder to use instead of `stage/`.",
    },
    Environment {
        name: "MARGAY_PEERS",
        reader: "`make bench`",
        about: "The folder of the other implementations, each in its own Python environment.",
    },
    Environment {
        name: "MARGAY_TEST_SEEDS",
        reader: "tests",
        about: "Number of seeds that the randomized tests try.",
    },
];
