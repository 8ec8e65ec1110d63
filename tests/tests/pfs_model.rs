//! Clients of a parallel file system do what chance says, one after the other, and each has to
//! answer as POSIX says: through the kernel of one host and of two, by the library for all
//! programs, and by MPI-IO. MARGAY_TEST_SEEDS widens the search.
#![forbid(unsafe_code)]

use std::collections::VecDeque;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use margay_tests::cluster::Cluster;
use margay_tests::jobs::Built;
use margay_tests::pfs::mounted;
use margay_tests::posix::{APPEND, BOTH, CREATE, CUT, EXCLUSIVE, Model, Step, WRITE};
use margay_tests::{command, stage};

/// Steps of a seed.
const STEPS: usize = 4000;

/// Files that a client has open at a time.
const FILES: usize = 6;

/// Steps that are shown when one was answered wrong.
const SHOWN: usize = 60;

/// The error ESTALE of Linux.
const STALE: &str = "-116";

/// How long a client may live.
const LIMIT_S: u32 = 100;

fn seeds() -> u64 {
    let wished = std::env::var("MARGAY_TEST_SEEDS").ok();
    wished.and_then(|text| text.parse().ok()).unwrap_or(1)
}

struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (self.0 >> 33) % end
    }

    fn of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len() as u64) as usize]
    }

    /// A path of few names, so that they meet.
    fn path(&mut self) -> String {
        let depth = self.of(&[1, 1, 2, 2, 3]);
        let names: Vec<&str> = (0..depth).map(|_| self.of(&["a", "b", "c"])).collect();
        names.join("/")
    }

    /// Where something begins, and how long it is.
    fn range(&mut self) -> (u64, u64) {
        let most = self.of(&[100, 5000, 5000, 70_000, 300_000]);
        (self.below(most), 1 + self.below(most))
    }
}

/// A program that does what it is sent.
struct Client {
    name: &'static str,
    child: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
    uses_mpi: bool,
}

impl Client {
    fn begin(name: &'static str, mut program: Command, welcomes: bool, uses_mpi: bool) -> Client {
        program.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = program.spawn().unwrap();
        let mut client = Client {
            name,
            to: child.stdin.take().unwrap(),
            from: BufReader::new(child.stdout.take().unwrap()),
            child,
            uses_mpi,
        };
        if welcomes {
            client.hear();
        }
        client
    }

    fn hear(&mut self) -> String {
        let mut line = String::new();
        self.from.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    fn answer(&mut self, step: &Step) -> String {
        self.to.write_all(step.line().as_bytes()).unwrap();
        self.hear()
    }

    fn end(mut self) {
        drop(self.to);
        assert!(self.child.wait().unwrap().success(), "{}", self.name);
    }
}

/// What a client does next.
fn next(random: &mut Random, model: &Model, client: usize, uses_mpi: bool) -> Step {
    let opened = model.opened(client);
    let free = (0..FILES).find(|file| !opened.contains(file));
    let (at, len) = random.range();
    let mut step = Step {
        path: random.path(),
        other: random.path(),
        at,
        len,
        seed: random.below(1 << 30),
        ..Step::default()
    };
    let chance = random.below(100);
    if chance < 60 && !opened.is_empty() {
        step.file = random.of(&opened);
        step.what = match chance {
            0..20 => "read",
            20..38 => "write",
            38..44 => "cut",
            44..52 => "lock",
            52..56 => "facts",
            56 => "hole",
            57 => "sync",
            58 => "asklock",
            _ => "close",
        };
        if step.what == "lock" || step.what == "asklock" {
            step.path = random.of(&["r", "w", "u"]).into();
        }
        if step.what == "asklock" && step.path == "u" {
            step.path = "w".into();
        }
        if uses_mpi {
            step.what = match step.what {
                "read" => "mread",
                "write" => "mwrite",
                "cut" => "mcut",
                "close" => "mclose",
                _ => "msize",
            };
        }
    } else if chance < 75
        && let Some(file) = free
    {
        step.file = file;
        let is_folder = model.is_folder(&step.path);
        if uses_mpi && is_folder == Some(false) {
            step.what = "mopen";
        } else if uses_mpi || random.below(8) == 0 {
            step.what = "stat";
        } else {
            step.what = "open";
            step.at = random.of(&[
                0,
                WRITE,
                BOTH,
                BOTH | CREATE,
                BOTH | CREATE,
                WRITE | CREATE | CUT,
                WRITE | CREATE | EXCLUSIVE,
                BOTH | CREATE | APPEND,
            ]);
            if step.at == 0 && is_folder == Some(true) {
                step.what = "list";
            }
        }
    } else {
        step.what = random.of(&[
            "stat", "stat", "list", "list", "cutpath", "mkdir", "mkdir", "rmdir", "unlink", "link",
            "rename", "rename", "chmod", "note", "noted",
        ]);
        match step.what {
            "chmod" => step.at = random.of(&[0o600, 0o640, 0o755]),
            "list" if random.below(4) == 0 => step.path = ".".into(),
            _ => {}
        }
    }
    step
}

/// Where clients are, how each begins in a folder of the mount, and what happens to a directory.
struct Scene<'a> {
    what: &'a str,
    begin: &'a dyn Fn(&str) -> Vec<Client>,
    lose: &'a dyn Fn(),
}

impl Scene<'_> {
    /// Lets clients do the steps of all seeds; in the middle of the last one a stripe directory is
    /// lost.
    fn play(&self) {
        for seed in 0..seeds() {
            let mut clients = (self.begin)(&format!("s{seed}"));
            let mut model = Model::default();
            let mut random = Random(seed);
            let mut last = VecDeque::new();
            for n in 0..STEPS {
                if seed + 1 == seeds() && n == STEPS / 2 {
                    (self.lose)();
                }
                let at = random.below(clients.len() as u64) as usize;
                let client = &mut clients[at];
                let mut step = next(&mut random, &model, at, client.uses_mpi);
                if step.what == "write" && model.appends(at, step.file) {
                    step.what = "append";
                }
                last.push_back(format!("{}: {}", client.name, step.line().trim_end()));
                if last.len() > SHOWN {
                    last.pop_front();
                }
                let got = self.answer(client, &step);
                let expected = model.answer(at, &step);
                let what = self.what;
                assert_eq!(got, expected, "{what}, seed {seed}, step {n}: {last:#?}");
            }
            clients.into_iter().for_each(Client::end);
        }
    }

    fn answer(&self, client: &mut Client, step: &Step) -> String {
        let got = client.answer(step);
        if step.what != "rename" || got != STALE {
            return got;
        }
        // The kernel takes a directory that another host has moved from its old place, and cannot
        // do so within a rename: nothing is renamed, and it is looked up first.
        assert_eq!(self.what, "two hosts");
        for path in [&step.path, &step.other] {
            client.answer(&Step {
                what: "stat",
                path: path.clone(),
                ..Step::default()
            });
        }
        client.answer(step)
    }
}

#[test]
fn programs_of_one_host_see_files_as_posix_says() {
    let Some(place) = mounted("1") else { return };
    let plain = Built::plain("pfs/client.c", &["-DWITHOUT_MPI"]);
    let mpi = Built::mpi("pfs/client.c");
    let library = stage().join("lib/pfs/libmargay_pfs.so.1");
    let library = library.to_str().unwrap();
    let client = |name, built: &Built, library: &str, folder: &str| {
        let mut program = command("env", LIMIT_S);
        program.arg(format!("LD_PRELOAD={library}"));
        program.arg("MARGAY_PFS_DIRECT=1").arg(built.path());
        program.arg(place.mount().join(folder));
        Client::begin(name, program, false, name == "MPI-IO")
    };
    let begin = |folder: &str| {
        fs::create_dir(place.mount().join(folder)).unwrap();
        vec![
            client("the kernel", &plain, "", folder),
            client("the kernel again", &plain, "", folder),
            client("the library", &plain, library, folder),
            client("MPI-IO", &mpi, "", folder),
        ]
    };
    Scene {
        what: "one host",
        begin: &begin,
        lose: &|| fs::remove_dir_all(place.path("d2")).unwrap(),
    }
    .play();
    place.pfs(&["stop", "scratch"]);
}

#[test]
fn programs_of_two_hosts_see_files_as_posix_says() {
    let Some(cluster) = Cluster::new(3) else {
        return;
    };
    cluster.mounted();
    let plain = Built::plain("pfs/client.c", &["-DWITHOUT_MPI"]);
    let mpi = Built::mpi("pfs/client.c");
    let library = stage().join("lib/pfs/libmargay_pfs.so.1");
    let client = |name, host, built: &Built, library: &str, folder: &str| {
        let text = format!(
            "LD_PRELOAD={library} MARGAY_PFS_DIRECT=1 exec {} mnt/{folder}",
            built.path().display()
        );
        let program = cluster.hosts.on(host, &cluster.here(&text));
        Client::begin(name, program, true, name == "MPI-IO")
    };
    let begin = |folder: &str| {
        cluster.on(3, &format!("mkdir mnt/{folder}"));
        vec![
            client("host 1", 1, &plain, "", folder),
            client("host 2", 2, &plain, "", folder),
            client("the library", 2, &plain, library.to_str().unwrap(), folder),
            client("MPI-IO", 1, &mpi, "", folder),
        ]
    };
    Scene {
        what: "two hosts",
        begin: &begin,
        lose: &|| fs::remove_dir_all(cluster.path("d3")).unwrap(),
    }
    .play();
    cluster.pfs("stop scratch");
    cluster.nothing_is_left();
}
