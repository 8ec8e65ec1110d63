//! The direct way to files of a parallel file system, past the kernel, beside its mount: both show
//! the same while programs write, map and cut and disks die, and the direct one lets nobody in whom
//! the kernel would not.
#![forbid(unsafe_code)]

use std::fs;
use std::io::{Seek, SeekFrom, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{FileExt, MetadataExt, chown};
use std::path::Path;
use std::time::{Duration, Instant};

use margay_fs_storage::direct::Direct;
use margay_fs_storage::direct::wire::{
    ANSWER, Answer, INVITATION, INVITES, Invitation, MOST, Request, socket_name,
};
use margay_sys_os::file::{File, How, Slice};
use margay_sys_os::packets::{Packets, map};
use margay_sys_os::port::user;
use margay_sys_os::user::Mem;
use margay_tests::jobs::Built;
use margay_tests::pfs::{Place, mounted, noise, said, tool};
use margay_tests::users::{ONE, chmod, number};
use margay_tests::voices::Voice;
use margay_tests::{command, run, stage};

/// Longest file of the model.
const MOST_SIZE: usize = 3 << 20;

fn open(path: &Path, read: bool, write: bool) -> File {
    let how = How {
        read,
        write,
        create: write,
        exclusive: false,
        permissions: 0o644,
    };
    File::open(path.to_str().unwrap(), how).unwrap()
}

fn piece(mem: &Mem, len: usize) -> Slice {
    Slice {
        mem: mem.clone(),
        at: 0,
        len,
    }
}

/// Writes directly; none where the kernel has to do it.
fn put(file: &File, way: &Direct, at: u64, bytes: &[u8]) -> Option<std::io::Result<u64>> {
    let mem = Mem::from_vec(bytes.to_vec());
    way.write_at(file, at, &[piece(&mem, bytes.len())])
}

/// Reads directly; none where the kernel has to do it.
fn get(way: &Direct, at: u64, len: usize) -> Option<std::io::Result<Vec<u8>>> {
    let mem = Mem::owned(len);
    let read = way.read_at(at, &[piece(&mem, len)])?;
    Some(read.map(|got| {
        let mut bytes = vec![0; got as usize];
        mem.read(0, &mut bytes);
        bytes
    }))
}

struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (self.0 >> 33) as usize % end
    }
}

/// A file on both ways, and what must be in it.
struct Both {
    path: std::path::PathBuf,
    file: File,
    way: Option<Direct>,
    mount: fs::File,
    appending: fs::File,
    model: Vec<u8>,
    /// Since it was opened last.
    was_mapped: bool,
    direct: u32,
}

impl Both {
    fn new(path: &Path, model: Vec<u8>) -> Both {
        let file = open(path, true, true);
        let options = || fs::File::options().read(true).clone();
        Both {
            path: path.to_owned(),
            way: Direct::begin(&file),
            file,
            mount: options().write(true).open(path).unwrap(),
            appending: options().append(true).open(path).unwrap(),
            model,
            was_mapped: false,
            direct: 0,
        }
    }

    fn note(&mut self, at: usize, bytes: &[u8]) {
        let end = at + bytes.len();
        if bytes.is_empty() {
            return;
        }
        if self.model.len() < end {
            self.model.resize(end, 0);
        }
        self.model[at..end].copy_from_slice(bytes);
    }

    fn expected(&self, at: usize, len: usize) -> &[u8] {
        let end = self.model.len();
        &self.model[at.min(end)..(at + len).min(end)]
    }

    /// The direct way, or the kernel's where that is refused: only if something has mapped it.
    fn counted<T>(&mut self, done: Option<T>) -> Option<T> {
        match done {
            Some(done) => {
                self.direct += 1;
                Some(done)
            }
            None => {
                assert!(self.was_mapped);
                None
            }
        }
    }

    fn write(&mut self, at: usize, bytes: &[u8]) {
        let done = self.way.as_ref();
        let done = done.and_then(|way| put(&self.file, way, at as u64, bytes));
        match self.counted(done) {
            Some(done) => assert_eq!(done.unwrap(), bytes.len() as u64),
            None => {
                let mem = Mem::from_vec(bytes.to_vec());
                self.file
                    .write_at(at as u64, &[piece(&mem, bytes.len())])
                    .unwrap();
            }
        }
        self.note(at, bytes);
    }

    fn read(&mut self, at: usize, len: usize) {
        let done = self.way.as_ref().and_then(|way| get(way, at as u64, len));
        let bytes = match self.counted(done) {
            Some(bytes) => bytes.unwrap(),
            None => {
                let mem = Mem::owned(len);
                let got = self.file.read_at(at as u64, &[piece(&mem, len)]).unwrap();
                let mut bytes = vec![0; got as usize];
                mem.read(0, &mut bytes);
                bytes
            }
        };
        assert!(bytes == self.expected(at, len), "at {at}, {len}");
    }

    fn read_mount(&self, at: usize, len: usize) {
        let mut bytes = vec![0; len];
        let got = self.mount.read_at(&mut bytes, at as u64).unwrap();
        let expected = self.expected(at, len);
        // The kernel may return less than was asked for.
        assert!(got == expected.len() || (got > 0 && got < expected.len()));
        assert!(bytes[..got] == expected[..got], "at {at}, {len}");
    }

    fn sizes(&mut self) {
        let len = self.model.len() as u64;
        assert_eq!(fs::metadata(&self.path).unwrap().len(), len);
        assert_eq!(self.mount.metadata().unwrap().len(), len);
        assert_eq!(self.file.size().unwrap(), len);
        assert_eq!(self.mount.seek(SeekFrom::End(0)).unwrap(), len);
    }

    /// Reads and writes through a mapping, which is whole pages of the file.
    fn map(&mut self, random: &mut Random, bytes: &[u8]) {
        let len = self.model.len() & !4095;
        if len == 0 {
            return;
        }
        self.was_mapped = true;
        let mem = map(self.mount.as_fd(), len).unwrap();
        mem.with_bytes(0, len, |there| assert!(there == &self.model[..len]));
        let bytes = &bytes[..bytes.len().min(len)];
        let at = random.below(len - bytes.len() + 1);
        mem.write(at as i64, bytes);
        self.note(at, bytes);
        // While it is mapped, as well.
        self.read(at, bytes.len());
        self.write(at, &bytes[..bytes.len().div_ceil(2)]);
        mem.with_bytes(0, len, |there| assert!(there == &self.model[..len]));
    }
}

fn walk(place: &Place, seed: u64, lost: Option<&str>) {
    let path = place.mount().join(format!("file{seed}"));
    let mut random = Random(seed);
    let source = noise(seed, 2 * MOST_SIZE);
    let mut both = Both::new(&path, Vec::new());
    let steps = 20_000;
    for step in 0..steps {
        if let Some(lost) = lost.filter(|_| step == steps / 2) {
            fs::remove_dir_all(place.path(lost)).unwrap();
        }
        let most = [300, 300, 5000, 5000, 70_000, MOST_SIZE][random.below(6)];
        let most = if most == MOST_SIZE && random.below(4) > 0 {
            1 << 18
        } else {
            most
        };
        let len = 1 + random.below(most - 1);
        let at = random.below(MOST_SIZE - len);
        let from = random.below(MOST_SIZE);
        let bytes = &source[from..from + len];
        match random.below(100) {
            0..25 => both.write(at, bytes),
            25..50 => both.read(at, len),
            50..65 => {
                both.mount.write_all_at(bytes, at as u64).unwrap();
                both.note(at, bytes);
            }
            65..85 => both.read_mount(at, len),
            85..90 if both.model.len() + len < MOST_SIZE => {
                both.appending.write_all(bytes).unwrap();
                both.note(both.model.len(), bytes);
            }
            90..93 => {
                both.mount.set_len(at as u64).unwrap();
                both.model.resize(at, 0);
            }
            93..98 => both.sizes(),
            98 => both.file.sync().unwrap(),
            _ if random.below(4) == 0 => both.map(&mut random, bytes),
            _ => {
                let direct = both.direct;
                drop((both.file, both.mount, both.appending, both.way));
                both = Both::new(&path, both.model);
                both.direct = direct;
                // The kernel says that a file is closed some time after it was.
                both.was_mapped = both.way.is_none();
            }
        }
    }
    both.sizes();
    assert!(fs::read(&path).unwrap() == both.model);
    assert!(both.direct > steps / 5, "{}", both.direct);
}

#[test]
fn a_file_is_the_same_on_both_ways_also_with_a_dead_directory() {
    let Some(place) = mounted("1") else { return };
    for seed in 1..=3 {
        walk(&place, seed, (seed == 3).then_some("d2"));
    }
    place.pfs(&["stop", "scratch"]);
}

/// A connection by hand.
struct Raw {
    line: Packets,
    memory: Mem,
}

fn invitation(file: &File) -> std::io::Result<Invitation> {
    let bytes = file.ask::<INVITATION>(INVITES)?;
    Ok(Invitation::from_bytes(&bytes).expect("an invitation"))
}

/// Shows a ticket; none: it lets nobody in.
fn show(hall: [u8; 16], ticket: &[u8]) -> Option<Raw> {
    let line = Packets::connect(&socket_name(hall), Duration::from_secs(60)).unwrap();
    line.send(ticket).ok()?;
    let memory: OwnedFd = line.receive_descriptor().ok()?;
    let memory = map(memory.as_fd(), 2 * MOST).unwrap();
    line.wait_for(None, None).unwrap();
    Some(Raw { line, memory })
}

impl Raw {
    fn ask(&self, writes: bool, offset: u64, len: usize) -> Answer {
        let request = Request {
            writes,
            maps: false,
            follows: false,
            thread: 0,
            offset,
            len: len as u32,
            place: 1,
        };
        self.say(&request.to_bytes())
    }

    fn say(&self, bytes: &[u8]) -> Answer {
        self.line.send(bytes).unwrap();
        let mut answer = [0; ANSWER];
        assert_eq!(self.line.receive(&mut answer).unwrap(), ANSWER);
        Answer::from_bytes(&answer)
    }
}

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(60);
    while !holds() {
        assert!(Instant::now() < end, "never: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_ticket_lets_in_once_for_what_the_file_was_opened_for_and_until_it_is_closed() {
    let Some(place) = mounted("1") else { return };
    let path = place.mount().join("file");
    fs::write(&path, noise(1, 5000)).unwrap();
    let (reads, writes) = (open(&path, true, false), open(&path, false, true));
    let (first, second) = (invitation(&reads).unwrap(), invitation(&reads).unwrap());
    assert_eq!(first.hall, second.hall);
    // The later one counts, and once; others are nobody's.
    assert!(show(first.hall, &first.ticket).is_none());
    let raw = show(second.hall, &second.ticket).unwrap();
    for wrong in [&second.ticket[..], &[0; 16], &[0; 5], &[]] {
        assert!(show(second.hall, wrong).is_none());
    }
    assert_eq!(raw.ask(false, 4000, 3000), Answer::Done(1000));
    let mut bytes = vec![0; 1000];
    raw.memory.read(MOST as i64, &mut bytes);
    assert!(bytes == noise(1, 5000)[4000..]);
    assert_eq!(raw.ask(true, 0, 10), Answer::Refused);
    // What is no request.
    assert_eq!(raw.say(&[9; 24]), Answer::Refused);
    let third = invitation(&writes).unwrap();
    let writing = show(third.hall, &third.ticket).unwrap();
    assert_eq!(writing.ask(false, 0, 10), Answer::Refused);
    writing.memory.write(MOST as i64, b"new");
    // The kernel says that a file is closed some time after it was.
    let written = writing.ask(true, 7000, 3);
    assert!(matches!(written, Answer::Done(3) | Answer::Grown(3)));
    assert_eq!(fs::metadata(&path).unwrap().len(), 7003);
    // As far as files go.
    assert_eq!(writing.ask(true, u64::MAX - 1, 3), Answer::Failed(27));
    // Who is to ask the kernel how long the file is, and dies instead, moves its end all the same.
    let mut appending = fs::File::options().append(true).open(&path).unwrap();
    assert_eq!(writing.ask(true, 7003, 3), Answer::Grown(3));
    appending.write_all(b"end").unwrap();
    drop(appending);
    assert_eq!(fs::read(&path).unwrap()[7000..], *b"newnewend");
    fs::File::options()
        .write(true)
        .open(&path)
        .unwrap()
        .set_len(7003)
        .unwrap();
    // A program that dies in the middle has written all of it, or nothing.
    let dying = invitation(&writes).unwrap();
    let dying = show(dying.hall, &dying.ticket).unwrap();
    dying.memory.write(MOST as i64, &[5; 3]);
    let request = Request {
        writes: true,
        maps: false,
        follows: false,
        thread: 0,
        offset: 7000,
        len: 3,
        place: 1,
    };
    dying.line.send(&request.to_bytes()).unwrap();
    drop(dying);
    until("it is written", || {
        fs::read(&path).unwrap()[7000..] == [5; 3]
    });
    // Another descriptor of the same open file keeps the right, and its name is not needed.
    fs::remove_file(&path).unwrap();
    assert_eq!(raw.ask(false, 7000, 10), Answer::Done(3));
    drop(reads);
    until("the right ends", || raw.ask(false, 0, 1) == Answer::Refused);
    assert_eq!(writing.ask(true, 0, 3), Answer::Done(3));
    drop(writes);
    until("the right ends", || {
        writing.ask(true, 0, 3) == Answer::Refused
    });
    // Directories, and files of other file systems, have none.
    for path in [place.mount(), place.path("d1/log.0"), "/dev/null".into()] {
        let file = open(&path, true, false);
        assert!(invitation(&file).is_err(), "{}", path.display());
    }
    place.pfs(&["stop", "scratch"]);
}

#[test]
fn a_killed_service_and_a_mount_that_ends_leave_the_kernels_errors() {
    let Some(place) = mounted("1") else { return };
    let path = place.mount().join("file");
    let file = open(&path, true, true);
    let way = Direct::begin(&file).unwrap();
    let bytes = noise(1, 3 << 20);
    assert_eq!(put(&file, &way, 0, &bytes).unwrap().unwrap(), 3 << 20);
    file.sync().unwrap();
    place.refused(&["stop", "scratch"], "fuser -m");
    assert!(get(&way, 0, 3 << 20).unwrap().unwrap() == bytes);
    place.kill_service("-KILL");
    assert!(get(&way, 0, 10).is_none() && put(&file, &way, 0, &bytes).is_none());
    let mem = Mem::owned(10);
    assert!(file.read_at(0, &[piece(&mem, 10)]).is_err());
    place.pfs(&["mount", "scratch", "mnt"]);
    // The old descriptor is of the old mount.
    assert!(get(&way, 0, 10).is_none() && Direct::begin(&file).is_none());
    let file = open(&path, true, true);
    let way = Direct::begin(&file).unwrap();
    assert!(get(&way, 0, 3 << 20).unwrap().unwrap() == bytes);
    // As long as the service runs, also after the mount is taken from the program.
    tool("umount", &["-l", "mnt"], place.folder.path());
    assert!(get(&way, 1000, 10).unwrap().unwrap() == bytes[1000..1010]);
    place.kill_service("-TERM");
    assert!(get(&way, 0, 10).is_none() && put(&file, &way, 0, &bytes).is_none());
}

#[test]
fn a_quota_and_a_dead_directory_without_parity_are_errors_of_the_direct_way() {
    let Some(place) = mounted("0") else { return };
    let path = place.mount().join("file");
    let file = open(&path, true, true);
    let way = Direct::begin(&file).unwrap();
    let user = fs::metadata(&path).unwrap().uid().to_string();
    let words = ["quota", "scratch", "--user", &user, "--space"];
    place.pfs(&[words.as_slice(), &["2M"]].concat());
    let error = put(&file, &way, 0, &noise(1, 4 << 20))
        .unwrap()
        .unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::QuotaExceeded);
    assert!(fs::metadata(&path).unwrap().len() <= 2 << 20);
    place.pfs(&[words.as_slice(), &["none"]].concat());
    assert_eq!(
        put(&file, &way, 0, &noise(1, 4 << 20)).unwrap().unwrap(),
        4 << 20
    );
    file.sync().unwrap();
    fs::remove_dir_all(place.path("d3")).unwrap();
    let _ = put(&file, &way, 0, &noise(2, 4 << 20));
    assert!(file.sync().is_err());
    assert!(get(&way, 0, 4 << 20).unwrap().is_err());
    drop((way, file));
    place.refused(&["stop", "scratch"], "not stored");
}

#[test]
fn a_write_and_a_read_of_a_mebibyte_are_whole() {
    let Some(place) = mounted("1") else { return };
    let path = place.mount().join("file");
    let file = open(&path, true, true);
    let way = Direct::begin(&file).unwrap();
    put(&file, &way, 0, &vec![0; MOST]).unwrap().unwrap();
    let mount = fs::File::options()
        .read(true)
        .write(true)
        .open(&path)
        .unwrap();
    std::thread::scope(|scope| {
        let rewriting = scope.spawn(|| {
            let own = open(&path, true, true);
            let other = Direct::begin(&own).unwrap();
            for n in 1..=200 {
                put(&own, &other, 0, &vec![n; MOST]).unwrap().unwrap();
            }
        });
        while !rewriting.is_finished() {
            let bytes = get(&way, 0, MOST).unwrap().unwrap();
            assert!(bytes.iter().all(|byte| *byte == bytes[0]));
            let mut bytes = vec![0; 64 << 10];
            mount.read_exact_at(&mut bytes, 128 << 10).unwrap();
            assert!(bytes.iter().all(|byte| *byte == bytes[0]));
        }
    });
    assert!(fs::read(&path).unwrap() == vec![200; MOST]);
    drop((mount, way, file));
    place.pfs(&["stop", "scratch"]);
}

#[test]
fn mpi_io_takes_the_direct_way_unless_it_is_turned_off() {
    let Some(place) = mounted("1") else { return };
    let built = Built::mpi("pfs/direct.c");
    for direct in ["1", "0"] {
        let mut mpiexec = command(stage().join("bin/mpiexec"), 60);
        let output = run(mpiexec
            .args(["-n", "2"])
            .arg(built.path())
            .arg(place.mount().join("file"))
            .arg(direct)
            .env("MARGAY_PFS_DIRECT", direct));
        assert!(output.status.success(), "{}", said(&output));
        assert_eq!(String::from_utf8_lossy(&output.stdout), "ok\n");
    }
    place.pfs(&["stop", "scratch"]);
}

#[test]
fn nx_reads_and_writes_past_the_kernel_in_all_modes() {
    let Some(place) = mounted("1") else { return };
    let nx = Voice {
        name: "nx",
        libraries: &["-lnx"],
        environment: &[],
    };
    let executable = nx.compile(place.folder.path(), "files");
    for (ranks, seed) in [("1", "5"), ("3", "6")] {
        let mut mpiexec = command(stage().join("bin/mpiexec"), 60);
        mpiexec.args(["-n", ranks]).arg(&executable);
        let output = run(mpiexec
            .arg(place.mount().join("data"))
            .args([seed, "40", "direct"]));
        assert!(output.status.success(), "{}", said(&output));
        let words = format!("all right on {ranks} nodes\n");
        assert_eq!(String::from_utf8_lossy(&output.stdout), words);
    }
    place.pfs(&["stop", "scratch"]);
}

#[test]
fn another_user_comes_in_by_its_own_files_only() {
    if user() != 0 {
        eprintln!("not run: only root can have programs of other users");
        return;
    }
    let Some(place) = mounted("1") else { return };
    let folder = place.folder.path();
    let (owner, group) = (number("-u", ONE), number("-g", ONE));
    chmod(folder, 0o755);
    fs::create_dir(place.mount().join("own")).unwrap();
    chown(place.mount().join("own"), owner, group).unwrap();
    fs::write(place.path("source"), noise(3, 1 << 20)).unwrap();
    fs::copy(
        stage().join("lib/pfs/libmargay_pfs.so.1"),
        place.path("preload.so"),
    )
    .unwrap();
    let as_one = |words: &[&str]| {
        let mut command = command("setpriv", 60);
        command.args(["--reuid", ONE, "--regid", ONE, "--clear-groups"]);
        let output = run(command.args(words).current_dir(folder));
        assert!(output.status.success(), "{words:?}: {}", said(&output));
        String::from_utf8(output.stdout).unwrap()
    };
    // Its bytes go by memory of the service's own.
    let built = Built::plain("pfs/preload.c", &["-D_GNU_SOURCE"]);
    let (program, preload) = (built.path(), "LD_PRELOAD=./preload.so");
    let at_once = "MARGAY_PFS_DIRECT=1";
    let program = program.to_str().unwrap();
    let words = [
        "env",
        preload,
        at_once,
        program,
        "mnt/own/file",
        "9",
        "1000",
        "1",
    ];
    assert_eq!(as_one(&words), "ok\n");
    // As the kernel does it for who is not root.
    let path = place.mount().join("own/program");
    let script = "cp source mnt/own/program && chmod u+s mnt/own/program";
    as_one(&["sh", "-c", script]);
    assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o4644);
    let words = ["if=source", "of=mnt/own/program", "bs=64k", "conv=notrunc"];
    as_one(&[["env", preload, at_once, "dd"].as_slice(), &words].concat());
    assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o644);
    assert!(fs::read(&path).unwrap() == noise(3, 1 << 20));
    // What shows root's right is nothing in the hands of another user.
    let built = Built::plain("pfs/guest.c", &[]);
    let file = open(&place.mount().join("file"), true, true);
    let mine = invitation(&file).unwrap();
    let ticket: String = mine
        .ticket
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    let name = String::from_utf8(socket_name(mine.hall)).unwrap();
    let guest = built.path();
    let words = [guest.to_str().unwrap(), &name, &ticket];
    assert_eq!(as_one(&words), "out\n");
    let output = run(command(&guest, 60).args(&words[1..]));
    assert_eq!(String::from_utf8_lossy(&output.stdout), "in\n");
    drop(file);
    place.pfs(&["stop", "scratch"]);
}

#[test]
fn a_mount_that_only_open_files_keep_is_not_there() {
    let Some(place) = mounted("1") else { return };
    let mut file = fs::File::create(place.mount().join("file")).unwrap();
    let lazily = ["-c", "fusermount3 -uz mnt || umount -l mnt"];
    tool("sh", &lazily, place.folder.path());
    let used = "was unmounted while programs used it";
    let status = place.pfs(&["status", "scratch"]);
    assert!(
        status.contains("\nnot mounted; ") && status.contains(used),
        "{status}"
    );
    place.refused(&["mount", "scratch", "mnt"], used);
    // It is found out soon: all of these have the time of one command.
    let margay = stage().join("bin/margay");
    let often = format!(
        "for n in $(seq 20); do {} pfs umount scratch && exit 1; done; exit 0",
        margay.display()
    );
    let mut shell = command("sh", 60);
    shell.args(["-c", &often]).current_dir(place.folder.path());
    let output = run(shell.env("XDG_STATE_HOME", place.path("state")));
    let times = said(&output).matches(used).count();
    assert_eq!(
        (output.status.success(), times),
        (true, 20),
        "{}",
        said(&output)
    );
    file.write_all(b"still here").unwrap();
    drop(file);
    place.pfs(&["mount", "scratch", "mnt"]);
    assert_eq!(fs::read(place.mount().join("file")).unwrap(), b"still here");
    place.pfs(&["stop", "scratch"]);
}
