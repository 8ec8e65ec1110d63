//! A server of PostgreSQL for the tests of one process: on a Unix socket alone, in a folder that
//! goes with it; or on one of several hosts.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use crate::hosts::Hosts;
use crate::{command, run, succeed, unprivileged};

/// What runs the server until its standard input ends, which it does with the process of the tests,
/// however that ends.
const KEEPER: &str = r#"
"$1/postgres" -D "$2/data" -k "$2" -c listen_addresses="$3" -c fsync=off -c full_page_writes=off \
    -c autovacuum=off -c shared_buffers=16MB -c max_connections=40 >"$2/log" 2>&1 &
cat >/dev/null
kill -INT $!
wait $!
"#;

/// A running server.
#[derive(Debug)]
pub struct Postgres {
    programs: PathBuf,
    folder: PathBuf,
    _keeper: Child,
}

/// The folder of the server's programs, which distributions keep out of the path.
fn programs() -> Option<PathBuf> {
    let versions = std::fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten();
    let versions = versions.flatten().map(|version| version.path().join("bin"));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut folders: Vec<PathBuf> = versions.chain(std::env::split_paths(&path)).collect();
    folders.retain(|folder| {
        ["initdb", "postgres", "psql"]
            .iter()
            .all(|name| folder.join(name).exists())
    });
    folders.into_iter().next()
}

impl Postgres {
    /// The server of this process's tests, which the first one starts; none, with a note, where
    /// there is no PostgreSQL.
    pub fn shared() -> Option<&'static Postgres> {
        static SERVER: OnceLock<Option<Postgres>> = OnceLock::new();
        SERVER.get_or_init(|| Postgres::start(None)).as_ref()
    }

    /// A server on one of several hosts, for all of them; none, with a note, where there is no
    /// PostgreSQL.
    pub fn on(hosts: &Hosts, host: u32) -> Option<Postgres> {
        Postgres::start(Some((hosts, host)))
    }

    fn start(place: Option<(&Hosts, u32)>) -> Option<Postgres> {
        let Some(programs) = programs() else {
            eprintln!("note: there is no PostgreSQL here (postgresql): it is not tested");
            return None;
        };
        // The server does not run as root, and so cannot have a folder of its.
        let folder =
            succeed(unprivileged(20).args(["mktemp", "-d", "-t", "margay-postgres-XXXXXX"]));
        let folder = PathBuf::from(folder.trim());
        let data = folder.join("data");
        succeed(
            unprivileged(120)
                .arg(programs.join("initdb"))
                .args([
                    "-A",
                    "trust",
                    "-U",
                    "postgres",
                    "-E",
                    "UTF8",
                    "--locale=C",
                    "-N",
                    "-D",
                ])
                .arg(&data),
        );
        // One role has a password.
        let rules = data.join("pg_hba.conf");
        let all = std::fs::read_to_string(&rules).expect("rules");
        let all = format!("local all secret scram-sha-256\n{all}host all all 10.77.0.0/24 trust\n");
        std::fs::write(&rules, all).expect("rules");
        let keeper = Self::keep(&programs, &folder, place);
        let server = Postgres {
            programs,
            folder,
            _keeper: keeper,
        };
        for _ in 0..600 {
            if run(&mut server.psql("postgres", "SELECT 1"))
                .status
                .success()
            {
                return Some(server);
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        let log = std::fs::read_to_string(server.folder.join("log")).unwrap_or_default();
        panic!("the server does not begin: {log}");
    }

    fn keep(programs: &Path, folder: &Path, place: Option<(&Hosts, u32)>) -> Child {
        let script = format!("{KEEPER}rm -rf \"$2\"\n");
        // The limit is that of tests that hang.
        let server = unprivileged(3600);
        let mut keeper = Command::new("setsid");
        let mut address = String::new();
        if let Some((hosts, host)) = place {
            keeper.args(["ip", "netns", "exec", &hosts.name(host)]);
            address = Hosts::address(host);
        }
        keeper.arg(server.get_program()).args(server.get_args());
        keeper
            .args(["sh", "-c", &script, "keeper"])
            .args([programs, folder])
            .arg(address)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        keeper.spawn().expect("a shell")
    }

    fn psql(&self, database: &str, sql: &str) -> Command {
        let mut psql = command(self.programs.join("psql"), 60);
        psql.args([
            "-X",
            "-q",
            "-A",
            "-t",
            "-v",
            "ON_ERROR_STOP=1",
            "-U",
            "postgres",
            "-h",
        ])
        .arg(&self.folder)
        .args(["-d", database, "-c", sql]);
        psql
    }

    /// Executes a statement in a database, as the one who may do all; returns its rows as text.
    pub fn sql(&self, database: &str, sql: &str) -> String {
        succeed(&mut self.psql(database, sql)).trim().to_owned()
    }

    /// Makes a database, and returns its URL, for a user of the server.
    pub fn database(&self, name: &str, user: &str) -> String {
        self.sql("postgres", &format!("CREATE DATABASE {name}"));
        self.url(name, user)
    }

    /// The URL of a database.
    pub fn url(&self, name: &str, user: &str) -> String {
        let folder = self.folder.display();
        format!("postgresql://{user}@/{name}?host={folder}")
    }

    /// Ends all connections to a database, and takes new ones or not.
    pub fn cut(&self, name: &str, takes_more: bool) {
        let sql = format!(
            "ALTER DATABASE {name} ALLOW_CONNECTIONS {takes_more}; \
             SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'"
        );
        // Each statement by its own: the first one is to be seen before others connect again.
        for statement in sql.split("; ") {
            self.sql("postgres", statement);
        }
    }
}
