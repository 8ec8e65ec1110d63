//! Several users of one installation, for tests that root runs.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;
use std::process::Command;

use crate::{command, run, stage};

/// Users that every system has.
pub const ONE: &str = "daemon";
pub const OTHER: &str = "bin";

pub fn chmod(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

/// The number of a user (`-u`), or of the user's group (`-g`).
pub fn number(flag: &str, user: &str) -> Option<u32> {
    let output = run(command("id", 10).args([flag, user]));
    String::from_utf8(output.stdout)
        .unwrap()
        .trim()
        .parse()
        .ok()
}

/// Makes an installation in `margay` below a folder, with these programs, which root alone can
/// change, and homes of the users and of root.
pub fn install(folder: &Path, programs: &[&str]) {
    let bin = folder.join("margay/bin");
    fs::create_dir_all(&bin).unwrap();
    for name in programs {
        let mut copy = Command::new("cp");
        copy.arg("-a").arg(stage().join("bin").join(name)).arg(&bin);
        assert!(copy.status().unwrap().success());
        let own = bin.join(name);
        if !own.is_symlink() {
            chown(&own, Some(0), Some(0)).unwrap();
            chmod(&own, 0o755);
        }
    }
    for path in ["margay", "margay/bin"] {
        chmod(&folder.join(path), 0o755);
    }
    for user in [ONE, OTHER] {
        let home = folder.join(user);
        fs::create_dir(&home).unwrap();
        chmod(&home, 0o755);
        chown(&home, number("-u", user), number("-g", user)).unwrap();
    }
    fs::create_dir(folder.join("root")).unwrap();
}
