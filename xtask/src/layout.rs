//! Where things of the workspace lie in the stage tree.

/// Files that are copied as they are: from the workspace, to the tree, with which mode.
pub const FILES: [(&str, &str, u32); 15] = [
    ("abi/wrappers/mpicc", "bin/mpicc", 0o755),
    ("abi/mpi/include/mpi.h", "include/mpi.h", 0o644),
    ("abi/nx/include/nx.h", "include/nx.h", 0o644),
    ("abi/nx/include/fnx.h", "include/fnx.h", 0o644),
    ("abi/mpl/include/mpl.h", "include/mpl.h", 0o644),
    ("abi/iml/include/iml.h", "include/iml.h", 0o644),
    ("abi/mlp/include/mlp.h", "include/mlp.h", 0o644),
    ("abi/mlp/include/fmlp.h", "include/fmlp.h", 0o644),
    (
        "abi/mpi/include/mpi_fortran.h",
        "include/mpi_fortran.h",
        0o644,
    ),
    ("abi/mpi/include/mpi_ext.h", "include/mpi_ext.h", 0o644),
    ("abi/mpi/include/mpi-ext.h", "include/mpi-ext.h", 0o644),
    (
        "abi/wrappers/MPIConfig.cmake",
        "lib/cmake/MPI/MPIConfig.cmake",
        0o644,
    ),
    (
        "abi/gdb/margay_gdb.py",
        "share/margay/gdb/margay_gdb.py",
        0o644,
    ),
    // gdb looks for a script beside the library that it has loaded.
    (
        "abi/gdb/auto_load.py",
        "lib/gomp/libgomp.so.1-gdb.py",
        0o644,
    ),
    ("abi/gdb/auto_load.py", "lib/libiml.so.1-gdb.py", 0o644),
];

/// Symbolic links: the link, and what it points at.
pub const LINKS: [(&str, &str); 18] = [
    ("bin/mpicxx", "mpicc"),
    ("bin/mpic++", "mpicc"),
    ("bin/mpifort", "mpicc"),
    ("bin/mpif90", "mpicc"),
    ("bin/mpif77", "mpicc"),
    ("bin/mpcc", "mpicc"),
    ("bin/mpCC", "mpicc"),
    ("bin/mpxlf", "mpicc"),
    // The headers that old programs include.
    ("include/mpproto.h", "mpl.h"),
    ("include/pm_util.h", "mpl.h"),
    ("include/intel/cube.h", "../nx.h"),
    ("include/intel/mesh.h", "../nx.h"),
    ("lib/libmpi_abi.so", "libmpi_abi.so.1"),
    ("lib/libmpi.so", "libmpi_abi.so.1"),
    ("lib/libnx.so", "libnx.so.1"),
    ("lib/libmpl.so", "libmpl.so.1"),
    ("lib/libmlp.so", "libmlp.so.1"),
    ("lib/libiml.so", "libiml.so.1"),
];

/// Pages, and folders with pages, for those who change Margay: they stay with the sources.
const OF_DEVELOPERS: [&str; 13] = [
    "ARCHITECTURE.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "abi/",
    "core/",
    "docs/mtrace.md",
    "docs/pfs-format.md",
    "docs/protocols.md",
    "docs/segment.md",
    "docs/windows.md",
    "docs/wire.md",
    "packaging/",
    "run/",
];

/// Whether a file of the workspace is a page that is not installed.
#[must_use]
pub fn is_of_developers(path: &str) -> bool {
    path.ends_with(".md") && OF_DEVELOPERS.iter().any(|own| path.starts_with(own))
}

/// The place in the tree of a page, a picture or an example of the workspace, both as relative
/// paths; `None` for other files. Pages keep their relative places, so that links between them
/// work in the workspace and in the tree.
#[must_use]
pub fn installed(path: &str) -> Option<String> {
    if path.starts_with("examples/") {
        return Some(format!("share/margay/{path}"));
    }
    if is_of_developers(path) {
        return None;
    }
    let page = path.ends_with(".md") && !path.starts_with("bench/results/");
    (page || path.starts_with("docs/") || path == "LICENSE")
        .then(|| format!("share/doc/margay/{path}"))
}
