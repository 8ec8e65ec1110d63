//! The environment variables that set no control variable. With `table.rs` it is the one definition of all of them.

/// An environment variable that is not a control variable's.
pub struct Environment {
    /// Its name.
    pub name: &'static str,
    /// Who reads it.
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
        name: "MARGAY_BLAS",
        reader: "`margay bench`",
        about: "The file of the BLAS that its programs use, instead of one that they find.",
    },
    Environment {
        name: "MARGAY_NX_RECTANGLE",
        reader: "libnx",
        about: "Rows and columns of `-sz RxC`, as an NX program that starts itself tells its ranks.",
    },
    Environment {
        name: "MP_PROCS",
        reader: "`poe`, libmpl",
        about: "Number of tasks; a program that is linked with libmpl and started alone starts itself through `poe` when it is set.",
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
        about: "0 to 6: how much is told; 0 leaves MPL's lines about errors out, 2 and more tell on which cores tasks run.",
    },
    Environment {
        name: "MP_EAGER_LIMIT",
        reader: "`poe`, libmpl",
        about: "Bytes up to which a message does not wait for its receive.",
    },
    Environment {
        name: "MP_CSS_INTERRUPT",
        reader: "`poe`, libmpl",
        about: "`yes`: a thread moves messages while tasks compute.",
    },
    Environment {
        name: "MP_INTRDELAY",
        reader: "libmpl",
        about: "How long that thread looks for more before it sleeps, in microseconds.",
    },
    Environment {
        name: "MP_PMLIGHTS",
        reader: "`poe`, libmpl",
        about: "Lights of a task's row in the Program Marker Array, up to 32.",
    },
    Environment {
        name: "MP_HOSTFILE",
        reader: "`poe`",
        about: "A file of hosts, which must all be this machine.",
    },
    Environment {
        name: "MP_NODES",
        reader: "`poe`",
        about: "Number of machines: 1.",
    },
    Environment {
        name: "MP_TASKS_PER_NODE",
        reader: "`poe`",
        about: "Number of tasks on each machine.",
    },
    Environment {
        name: "MP_PGMMODEL",
        reader: "`poe`",
        about: "`spmd`, or `mpmd` with a program for each task.",
    },
    Environment {
        name: "MP_CMDFILE",
        reader: "`poe`",
        about: "The file of these programs.",
    },
    Environment {
        name: "MP_NOARGLIST",
        reader: "`poe`, libmpl",
        about: "`yes`: words behind the program are no options of `poe`.",
    },
    Environment {
        name: "MP_FENCE",
        reader: "`poe`",
        about: "A word behind which no options of `poe` stand.",
    },
    Environment {
        name: "MARGAY_MLP_ARENA",
        reader: "libmlp",
        about: "Bytes of the arena, perhaps with K, M, G or T; half of the memory without it.",
    },
    Environment {
        name: "MARGAY_MLP_BIND",
        reader: "libmlp",
        about: "What is bound: `none`, `cpu` for threads, or `memory` for threads and their memory, as without it.",
    },
    Environment {
        name: "MARGAY_TOPOLOGY",
        reader: "libmlp",
        about: "The folder that describes CPUs and memory nodes, instead of `/sys`.",
    },
    Environment {
        name: "MARGAY_SEGMENT_FD",
        reader: "the library",
        about: "The file descriptor of the job's shared memory, set by the launcher.",
    },
    Environment {
        name: "MARGAY_PARENT",
        reader: "the library",
        about: "The port at which the processes that spawned this job wait, set by the launcher.",
    },
    Environment {
        name: "MARGAY_SPAWN",
        reader: "the launcher",
        about: "Who spawns by this launcher: where that program waits for the launcher and for the processes; set by the library.",
    },
    Environment {
        name: "MARGAY_LAUNCHER",
        reader: "the library",
        about: "The launcher's executable, set by the launcher, for spawning; a program without a launcher may set it.",
    },
    Environment {
        name: "MARGAY_BYTES_ONLY",
        reader: "the library",
        about: "`1`: ranks exchange bytes through pipes only, without common memory and without attaching to each other; to test what a program does on machines that are apart.",
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
        about: "Where `margay fortran` has put the modules of another compiler.",
    },
    Environment {
        name: "GLIBC_TUNABLES",
        reader: "the C library",
        about: "The launcher adds `glibc.malloc.hugetlb=1` where every rank has a core, unless that tunable is set.",
    },
    Environment {
        name: "MARGAY_STAGE",
        reader: "tests, benchmarks, `cargo xtask`",
        about: "Another place for `stage/`.",
    },
    Environment {
        name: "MARGAY_PEERS",
        reader: "`make bench`",
        about: "A folder with the other implementations, each in a Python environment of its own.",
    },
    Environment {
        name: "MARGAY_TEST_SEEDS",
        reader: "tests",
        about: "How many seeds the randomized tests try; more than in a usual run.",
    },
];
