//! Copies of OpenMP libraries that packages bring with them, beside this one in a process.
//!
//! Wheels have `libgomp-HASH.so.1.0.0` or `libomp-HASH.so` under names of their own, so the loader
//! loads it whatever `LD_LIBRARY_PATH` says. `margay omp` therefore lets this library be loaded
//! first: what a copy defines is found here before, and the copy is never called.

use margay_sys_os::process::LoadedFile;

/// Beginnings of the names of gcc's, LLVM's and Intel's library.
const LIBRARIES: [&str; 3] = ["libgomp", "libomp", "libiomp5"];

/// Lines about the copies among the files that this process has loaded, whose place this library
/// has taken.
#[must_use]
pub fn report(files: &[LoadedFile]) -> Vec<String> {
    let Some(own) = files.iter().find(|file| file.has_address) else {
        return Vec::new();
    };
    let mut lines = Vec::new();
    for file in files.iter().filter(|file| file.path != own.path) {
        let name = file.path.file_name().unwrap_or_default().to_string_lossy();
        let path = file.path.display();
        // Not what comes with LLVM's library beside it (`libompd.so`, `libomptarget.so.19`).
        let is_copy = LIBRARIES.iter().any(|library| {
            name.strip_prefix(library)
                .is_some_and(|rest| rest.starts_with(['.', '-']))
        });
        if is_copy && name.contains(".so") {
            lines.push(format!(
                "margay omp: {} takes the place of {path}",
                own.path.display()
            ));
        }
    }
    lines.sort_unstable();
    lines.dedup();
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_are_distinguished_by_name() {
        let file = |path: &str| LoadedFile {
            path: path.into(),
            has_address: path.starts_with("/m/"),
        };
        let files: Vec<LoadedFile> = [
            "/bin/python3",
            "/m/lib/gomp/libgomp.so.1",
            "/w/scipy.libs/libgomp-a34b3233.so.1.0.0",
            "/w/faiss.libs/libomp-5f2a.so",
            "/w/mkl/libiomp5.so",
            "/w/mkl/libiomp5.so",
            "/lib/libgomptastic.txt",
            "/lib/libomptarget.so.19",
        ]
        .map(file)
        .to_vec();
        let all = report(&files);
        assert_eq!(all.len(), 3, "{all:?}");
        assert!(all.contains(
            &"margay omp: /m/lib/gomp/libgomp.so.1 takes the place of /w/scipy.libs/libgomp-a34b3233.so.1.0.0"
                .to_owned()
        ));
        assert!(report(&files[..1]).is_empty());
    }
}
