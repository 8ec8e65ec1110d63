//! Copies of OpenMP libraries that packages bring with them, beside this one in a process.
//!
//! Wheels have `libgomp-HASH.so.1.0.0` under names of their own, so the loader loads it whatever
//! `LD_LIBRARY_PATH` says. `margay omp` therefore lets this library be loaded first: what a copy
//! defines is found here before, and the copy is never called.

use margay_sys_os::process::LoadedFile;

/// Lines about the copies among the files that this process has loaded; those about copies that this
/// library has replaced only if `verbose`.
#[must_use]
pub fn report(files: &[LoadedFile], verbose: bool) -> Vec<String> {
    let Some(own) = files.iter().find(|file| file.has_address) else {
        return Vec::new();
    };
    let mut lines = Vec::new();
    for file in files.iter().filter(|file| file.path != own.path) {
        let name = file.path.file_name().unwrap_or_default().to_string_lossy();
        let path = file.path.display();
        let is_library = name.contains(".so");
        if is_library && (name.starts_with("libomp") || name.starts_with("libiomp5")) {
            lines.push(format!(
                "margay omp: {path} stays in use beside Margay's library: it is LLVM's or Intel's OpenMP, whose calls \
                 are others"
            ));
        } else if verbose && is_library && name.starts_with("libgomp") {
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
    fn copies_are_told_apart_by_name() {
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
        ]
        .map(file)
        .to_vec();
        let quiet = report(&files, false);
        assert_eq!(quiet.len(), 2, "{quiet:?}");
        assert!(quiet[0].contains("/w/faiss.libs/libomp-5f2a.so stays in use"));
        let all = report(&files, true);
        assert_eq!(all.len(), 3, "{all:?}");
        assert!(all.contains(
            &"margay omp: /m/lib/gomp/libgomp.so.1 takes the place of /w/scipy.libs/libgomp-a34b3233.so.1.0.0"
                .to_owned()
        ));
        assert!(report(&files[..1], true).is_empty());
    }
}
