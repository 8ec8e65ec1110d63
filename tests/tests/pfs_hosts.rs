//! A parallel file system on several hosts: its stripe directories lie on all of them, and all of
//! them mount it. The hosts are network namespaces with mounts of their own, which only root can
//! make.
#![forbid(unsafe_code)]

use std::collections::BTreeSet;
use std::fs;
use std::time::Duration;

use margay_tests::cluster::Cluster;
use margay_tests::jobs::Built;
use margay_tests::pfs::noise;
use margay_tests::{run, stage};

#[test]
fn hosts_share_names_files_locks_and_appends() {
    let Some(cluster) = Cluster::new(3) else {
        return;
    };
    cluster.mounted();
    let status = cluster.pfs("status scratch");
    let names = [1, 2, 3].map(|host| cluster.hosts.name(host)).join(", ");
    assert!(status.contains(&format!("mnt on {names}")), "{status}");
    // A tree that one host writes is what others see at once, and so are changes.
    fs::create_dir(cluster.path("source")).unwrap();
    for n in 0..40_u64 {
        fs::write(
            cluster.path(&format!("source/f{n}")),
            noise(n, 9000 * n as usize),
        )
        .unwrap();
    }
    cluster.on(2, "cp -a source mnt/copy && ln -s copy mnt/link");
    cluster.on(
        3,
        "diff -r source mnt/link && rm mnt/copy/f7 && mv mnt/copy mnt/moved",
    );
    cluster.on(
        1,
        "test ! -e mnt/copy && test ! -e mnt/moved/f7 && cmp source/f39 mnt/moved/f39",
    );
    cluster.on(
        2,
        "truncate -s 10000 mnt/moved/f39 && chmod 600 mnt/moved/f39",
    );
    assert_eq!(
        cluster.on(3, "stat -c '%s %a' mnt/moved/f39"),
        "10000 600\n"
    );
    // A file that is deleted on one host and open on another is there until that closes it.
    cluster.on(1, "echo text > mnt/open");
    let reads =
        "exec 3< mnt/open; touch mnt/begun; while [ -e mnt/open ]; do :; done; cat <&3 > mnt/read";
    let mut reader = cluster.begin(2, reads);
    cluster.until("it is open", || cluster.path_is_on(1, "mnt/begun"));
    cluster.on(3, "rm mnt/open");
    assert!(reader.wait().unwrap().success());
    assert_eq!(cluster.on(1, "cat mnt/read"), "text\n");
    // Two hosts count under a lock, by each of the two kinds, and append.
    let count = |how: &str| {
        format!(
            "python3 -c 'import fcntl,os\nf=os.open(\"mnt/{how}\",os.O_RDWR|os.O_CREAT)\na=os.open(\"mnt/log\",os.O_WRONLY|os.O_CREAT|os.O_APPEND)\n\
             for i in range(150):\n fcntl.{how}(f,fcntl.LOCK_EX)\n n=int(os.pread(f,9,0) or 0)+1\n os.pwrite(f,b\"%d\"%n,0)\n \
             fcntl.{how}(f,fcntl.LOCK_UN)\n os.write(a,b\"x\"*99+b\"\\n\")'"
        )
    };
    for how in ["lockf", "flock"] {
        let mut others = [2, 3].map(|host| cluster.begin(host, &count(how)));
        cluster.on(1, &count(how));
        for other in &mut others {
            assert!(other.wait().unwrap().success());
        }
        assert_eq!(cluster.on(2, &format!("cat mnt/{how}")), "450");
    }
    assert_eq!(
        cluster.on(
            3,
            "sort mnt/log | uniq -c | tr -s ' ' | cut -d' ' -f2; wc -c < mnt/log"
        ),
        "900\n90000\n"
    );
    // Who waits for a lock can be ended, and gets it when its holder is killed.
    let mut holder = cluster.begin(1, "flock mnt/held sh -c 'touch mnt/holds; exec sleep 100'");
    cluster.until("it is locked", || cluster.path_is_on(2, "mnt/holds"));
    let waited = run(&mut cluster
        .hosts
        .on(2, &cluster.here("timeout 1 flock mnt/held true")));
    assert_eq!(waited.status.code(), Some(124));
    cluster.kill(1, "sleep 100");
    holder.wait().unwrap();
    cluster.on(3, "timeout 50 flock mnt/held true");
    let busy = "cd mnt && touch busy && exec sleep 100";
    let mut user = cluster.begin(2, busy);
    cluster.until("it is used", || cluster.path_is_on(1, "mnt/busy"));
    let why = cluster.refused("umount scratch");
    assert!(
        why.contains(&format!("on {}", cluster.hosts.name(2))) && why.contains("busy"),
        "{why}"
    );
    cluster.kill(2, "sleep 100");
    user.wait().unwrap();
    cluster.pfs("stop scratch");
    cluster.nothing_is_left();
    mounts_come_right_after_others(&cluster);
    // All of it is there again, on other hosts.
    let names = [2, 3].map(|host| cluster.hosts.name(host)).join(",");
    cluster.pfs(&format!("mount scratch mnt --hosts {names}"));
    cluster.pfs(&format!(
        "mount scratch mnt --hosts {}",
        cluster.hosts.name(1)
    ));
    cluster.on(
        1,
        "rm -r mnt/moved/f39 source/f7 source/f39 && diff -r source mnt/moved",
    );
    assert!(cluster.pfs("check scratch").contains("everything is right"));
    cluster.pfs("stop scratch");
    cluster.nothing_is_left();
}

#[test]
fn a_cable_is_cut_and_mended_and_nothing_is_lost() {
    let Some(cluster) = Cluster::new(3) else {
        return;
    };
    cluster.mounted();
    fs::write(cluster.path("source"), noise(1, 20 << 20)).unwrap();
    let mut writers = [1, 2].map(|host| {
        let copies = format!(
            "for n in 1 2 3 4 5; do cp source mnt/{host}.$n && sync mnt/{host}.$n || exit 1; done"
        );
        cluster.begin(host, &copies)
    });
    cluster.until("they write", || cluster.path_is_on(2, "mnt/2.1"));
    // The host of a mount and of a stripe directory.
    assert!(cluster.hosts.works("ip -n @s link set @p2 down"));
    let host = cluster.hosts.name(2);
    cluster.until("the loss is noticed", || {
        cluster
            .pfs("status scratch")
            .contains(&format!("{host} (no connection)"))
    });
    assert!(cluster.hosts.works("ip -n @s link set @p2 up"));
    for writer in &mut writers {
        assert!(writer.wait().unwrap().success());
    }
    let same = "for f in mnt/[12].[1-5]; do cmp source $f || exit 1; done";
    cluster.on(3, same);
    cluster.pfs("rebuild scratch --wait");
    assert!(cluster.pfs("check scratch").contains("everything is right"));
    cluster.pfs("stop scratch");
    cluster.nothing_is_left();
}

#[test]
fn what_keeps_a_directory_a_mount_and_the_service_are_killed() {
    let Some(cluster) = Cluster::new(3) else {
        return;
    };
    cluster.mounted();
    fs::write(cluster.path("source"), noise(1, 20 << 20)).unwrap();
    cluster.on(2, "cp source mnt/before");
    let kill = |host, pid: u32| cluster.on(host, &format!("kill -KILL {pid}"));
    kill(3, cluster.keeper(3, "/d3/lock"));
    cluster.on(2, "cp source mnt/after && sync mnt/after");
    cluster.until("the directory fails", || {
        cluster.pfs("status scratch").contains("degraded")
    });
    cluster.on(3, "cmp source mnt/before && cmp source mnt/after");
    cluster.pfs("rebuild scratch --wait");
    assert!(cluster.pfs("check scratch").contains("everything is right"));
    // A mount whose program is gone is made anew.
    kill(2, cluster.keeper(2, "/dev/fuse"));
    let host = cluster.hosts.name(2);
    cluster.until("the loss is noticed", || {
        let status = cluster.pfs("status scratch");
        !status.contains(&host) || status.contains(&format!("{host} (no connection)"))
    });
    cluster.pfs(&format!("mount scratch mnt --hosts {host}"));
    cluster.on(2, "cmp source mnt/after");
    // Without a service there is nothing to be had, and nothing hangs.
    cluster.kill(1, "[^ ]*margay-pfs serve");
    cluster.nothing_is_left();
    cluster.mounted_again();
    cluster.on(3, "cmp source mnt/before && cmp source mnt/after");
    assert!(cluster.pfs("check scratch").contains("everything is right"));
    cluster.pfs("stop scratch");
    cluster.nothing_is_left();
}

#[test]
fn wrong_hosts_and_directories_are_named() {
    let Some(cluster) = Cluster::new(2) else {
        return;
    };
    let host = cluster.hosts.name(2);
    let folder = cluster.hosts.folder.path().display().to_string();
    let why = cluster.refused(&format!("create scratch d1 {host}:/proc/x d3"));
    assert!(
        why.contains(&format!(
            "host {host}: cannot make the stripe directory /proc/x"
        )),
        "{why}"
    );
    let why = cluster.refused("create scratch d1 nobody:/x d3");
    assert!(
        why.contains("host nobody: the remote shell ended with code"),
        "{why}"
    );
    let why = cluster.refused("create scratch d1 nobody:x d3");
    assert!(why.contains("by its whole path, as nobody:/PATH"), "{why}");
    let why = cluster.refused("create scratch d1 'no body:/x' d3");
    assert!(why.contains("'no body' is no name of a host"), "{why}");
    cluster.pfs(&format!("create scratch d1 {host}:{folder}/d2 d3"));
    let why = cluster.refused(&format!("mount scratch /nowhere --hosts {host}"));
    assert!(
        why.contains(&format!(
            "host {host}: cannot mount at /nowhere: No such file"
        )),
        "{why}"
    );
    cluster.nothing_is_left();
    // A directory there that another process has: nothing goes on without it.
    let held = format!("exec 9> {folder}/d2/lock; flock 9; touch {folder}/held; exec sleep 100");
    let mut holder = cluster.begin(2, &held);
    cluster.until("it is held", || cluster.path("held").exists());
    let why = cluster.refused("start scratch");
    assert!(why.contains("is in use"), "{why}");
    cluster.kill(2, "sleep 100");
    holder.wait().unwrap();
    cluster.pfs(&format!(
        "mount scratch mnt --hosts {host} --port-range 45000:45010"
    ));
    cluster.on(2, "echo text > mnt/file");
    cluster.pfs("replace scratch d3 d4");
    cluster.pfs(&format!(
        "replace scratch {host}:{folder}/d2 {host}:{folder}/d5"
    ));
    cluster.pfs("rebuild scratch --wait");
    assert_eq!(cluster.on(2, "cat mnt/file"), "text\n");
    assert!(cluster.pfs("check scratch").contains("everything is right"));
    cluster.pfs("stop scratch");
    cluster.nothing_is_left();
}

#[test]
fn a_job_on_several_hosts_has_a_file_system_of_its_own() {
    let Some(cluster) = Cluster::new(3) else {
        return;
    };
    let built = Built::mpi("mpi/files.c");
    let names = cluster.hosts.names();
    let job = format!(
        "{} -timeout 100 -host {names} -ppn 2 -n 6 -pfs -pfs-drain results sh -c \
         'echo $MARGAY_PFS; {} $MARGAY_PFS/file && echo hello > $MARGAY_PFS/by.$MARGAY_RANK'",
        stage().join("bin/mpiexec").display(),
        built.path().display()
    );
    let said = cluster.on(1, &job);
    let places: Vec<&str> = said
        .lines()
        .filter(|line| line.contains("margay-pfs-"))
        .collect();
    assert_eq!(places.len(), 6, "{said}");
    for rank in 0..6 {
        let text = fs::read_to_string(cluster.path(&format!("results/by.{rank}"))).unwrap();
        assert_eq!(text, "hello\n");
    }
    cluster.nothing_is_left();
    let entries = fs::read_dir(cluster.hosts.folder.path()).unwrap().flatten();
    let left: Vec<_> = entries
        .map(|entry| entry.file_name().into_string().unwrap())
        .collect();
    assert!(
        !left.iter().any(|name| name.starts_with("margay-pfs-")),
        "{left:?}"
    );
    // The launcher is killed: all of it goes.
    let sleeps = format!(
        "{} -host {names} -ppn 1 -pfs sh -c 'touch {}/runs; exec sleep 100'",
        stage().join("bin/mpiexec").display(),
        cluster.hosts.folder.path().display()
    );
    is_ended_by_a_kill(&cluster, &sleeps);
    // The same with directories on all hosts, and everything copied from them.
    let [a, b] = [1, 2].map(|host| cluster.hosts.name(host));
    let folder = cluster.hosts.folder.path().display().to_string();
    for directory in ["l1", "l2"] {
        fs::create_dir(cluster.path(directory)).unwrap();
    }
    let over = format!("-pfs=each:{folder}/l1,{b}:{folder}/l2");
    let job = format!(
        "{} -timeout 100 -host {a},{b} -ppn 2 -n 4 {over} -pfs-drain more sh -c \
         '{} $MARGAY_PFS/file && echo hello > $MARGAY_PFS/by.$MARGAY_RANK; ls -d {folder}/l?/*'",
        stage().join("bin/mpiexec").display(),
        built.path().display()
    );
    let said = cluster.on(1, &job);
    let made: BTreeSet<&str> = (said.lines()).filter(|line| line.contains("/l")).collect();
    assert_eq!(made.len(), 3, "{said}");
    for rank in 0..4 {
        let text = fs::read_to_string(cluster.path(&format!("more/by.{rank}"))).unwrap();
        assert_eq!(text, "hello\n");
    }
    cluster.nothing_is_left();
    assert_eq!(cluster.on(1, "ls l1 l2"), "l1:\n\nl2:\n");
    fs::remove_file(cluster.path("runs")).unwrap();
    is_ended_by_a_kill(&cluster, &sleeps.replace("-pfs ", &format!("{over} ")));
    // Those of other hosts go; what may be left on the first one, the next job removes.
    cluster.until("the directories go", || {
        cluster
            .on(1, "test $(ls l1 | wc -l) -le 1 && ls l2 || echo more")
            .is_empty()
    });
}

/// A mount that comes right after another one stays, also when the program of that ends, and so
/// does one beside which another one fails.
fn mounts_come_right_after_others(cluster: &Cluster) {
    let [a, b] = [1, 2].map(|host| cluster.hosts.name(host));
    for _ in 0..3 {
        cluster.pfs(&format!("mount scratch mnt --hosts {b}"));
        cluster.pfs("umount scratch");
    }
    cluster.pfs(&format!("mount scratch mnt --hosts {b}"));
    let why = cluster.refused(&format!("mount scratch mnt --hosts {a},nobody"));
    assert!(why.contains("host nobody: the remote shell ended"), "{why}");
    std::thread::sleep(Duration::from_secs(2));
    let status = cluster.pfs("status scratch");
    assert!(status.contains(&format!("mnt on {b}\n")), "{status}");
    let elsewhere = cluster.here(&format!(
        "XDG_STATE_HOME=/nowhere {} pfs status scratch",
        stage().join("bin/margay").display()
    ));
    let output = run(&mut cluster.hosts.on(2, &elsewhere));
    let why = String::from_utf8_lossy(&output.stderr);
    assert!(why.contains("its service is on another host"), "{why}");
    cluster.pfs("stop scratch");
    cluster.nothing_is_left();
}

/// A job whose launcher is killed, and what keeps its file system.
fn is_ended_by_a_kill(cluster: &Cluster, job: &str) {
    let mut launcher = cluster.begin(1, job);
    cluster.until("it runs", || cluster.path("runs").exists());
    cluster.kill(1, "[^ ]*mpiexec -host");
    cluster.kill(1, "[^ ]*margay-pfs job");
    launcher.wait().unwrap();
    cluster.nothing_is_left();
}
