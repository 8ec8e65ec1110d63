//! What `packaging/` has for other tools, as far as it can be checked without them.
#![forbid(unsafe_code)]

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use margay_tests::{command, run, scratch, stage, succeed};

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("the crate lies in a folder")
        .to_owned()
}

/// The action's script, with a Makefile that installs the stage tree instead of building it.
#[test]
fn the_github_action_installs_and_tells_the_following_steps() {
    let folder = scratch();
    let at = |name: &str| folder.path().join(name);
    fs::create_dir_all(at("source")).unwrap();
    let makefile = format!(
        "install:\n\tmkdir -p $(PREFIX)\n\tcp -a {}/. $(PREFIX)\n",
        stage().display()
    );
    fs::write(at("source/Makefile"), makefile).unwrap();
    // For users who are not root the script installs packages by sudo.
    fs::create_dir_all(at("tools")).unwrap();
    fs::write(at("tools/sudo"), "#!/bin/sh\nexit 0\n").unwrap();
    fs::set_permissions(at("tools/sudo"), fs::Permissions::from_mode(0o755)).unwrap();
    let path = std::env::var("PATH").unwrap_or_default();
    let script = workspace().join("packaging/github-action/install.sh");
    let mut install = command(&script, 120);
    install
        .env("PATH", format!("{}:{path}", at("tools").display()))
        .env("RUNNER_TEMP", folder.path())
        .env("ACTION_SOURCE", at("source"))
        .env("ACTION_PREFIX", "");
    for name in ["GITHUB_ENV", "GITHUB_OUTPUT", "GITHUB_PATH"] {
        install.env(name, at(name));
    }
    succeed(&mut install);
    let read = |name: &str| fs::read_to_string(at(name)).unwrap();
    let prefix = at("margay");
    let bin = read("GITHUB_PATH");
    assert_eq!(bin.trim_end(), prefix.join("bin").to_str().unwrap());
    assert_eq!(
        read("GITHUB_OUTPUT"),
        format!("prefix={}\n", prefix.display())
    );
    assert!(read("GITHUB_ENV").contains(&format!("MPI_HOME={}\n", prefix.display())));
    // The step of action.yml that follows.
    let action =
        fs::read_to_string(workspace().join("packaging/github-action/action.yml")).unwrap();
    let line = "mpiexec -n 2 -l mpiexec --version";
    assert!(action.contains(line), "{action}");
    let said = succeed(
        command("sh", 60)
            .args(["-c", line])
            .env("PATH", format!("{}:{path}", bin.trim_end())),
    );
    assert_eq!(said.matches("mpiexec (Margay) ").count(), 2, "{said}");

    install.env("ACTION_SOURCE", at("tools"));
    let failed = run(&mut install);
    let said = String::from_utf8_lossy(&failed.stderr).into_owned();
    assert!(
        !failed.status.success() && said.contains("has no Makefile"),
        "{said}"
    );
}

#[test]
fn the_recipes_are_python_and_name_this_version() {
    let version = env!("CARGO_PKG_VERSION");
    for file in [
        "packaging/spack/packages/margay/package.py".to_owned(),
        format!("packaging/easybuild/Margay-{version}-GCC-12.2.0.eb"),
    ] {
        let path = workspace().join(&file);
        let text = fs::read_to_string(&path).unwrap_or_else(|e| panic!("{file}: {e}"));
        assert!(
            text.contains(&format!("'{version}'"))
                || text.contains(&format!("version(\"{version}\")")),
            "{file}"
        );
        let parse = "import ast, sys; ast.parse(open(sys.argv[1]).read())";
        succeed(command("python3", 60).args(["-c", parse]).arg(&path));
    }
}
