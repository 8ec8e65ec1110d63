//! Where things are: the workspace, the stage tree, the build folder.

use std::path::{Path, PathBuf};

/// Returns the workspace's root folder.
pub fn workspace() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .nth(2)
        .expect("the crate lies two folders below the workspace's root")
}

/// Returns the usable tree that `make stage` builds: `MARGAY_STAGE`, else `stage/` in the
/// workspace.
pub fn stage() -> PathBuf {
    std::env::var_os("MARGAY_STAGE").map_or_else(|| workspace().join("stage"), PathBuf::from)
}

/// Returns the folder for everything that can be built again: `CARGO_TARGET_DIR`, else `target/` in
/// the workspace.
pub fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| workspace().join("target"), PathBuf::from)
}

/// `path` for a reader: relative to the workspace when it lies inside.
pub fn shown(path: &Path) -> String {
    path.strip_prefix(workspace())
        .unwrap_or(path)
        .display()
        .to_string()
}
