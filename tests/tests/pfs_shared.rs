//! The programs that test a parallel file system of one host, on one that three hosts have: the
//! same bodies, which notice nothing.
#![forbid(unsafe_code)]

use margay_tests::cluster::Cluster;
use margay_tests::jobs::Built;
use margay_tests::stage;
use margay_tests::voices::Voice;

/// A cluster with a file system on three hosts; none where there are none.
fn cluster() -> Option<Cluster> {
    let cluster = Cluster::new(3)?;
    cluster.mounted();
    Some(cluster)
}

fn end_of(cluster: &Cluster) {
    assert!(cluster.pfs("check scratch").contains("everything is right"));
    cluster.pfs("stop scratch");
    cluster.nothing_is_left();
}

#[test]
fn rights_handles_and_the_library_for_all_programs_are_as_on_one_host() {
    let Some(cluster) = cluster() else { return };
    let rights = Built::plain("pfs/rights.c", &["-D_GNU_SOURCE"]);
    let rights = rights.path().display().to_string();
    // Handles of one host are opened on another, after a mount of its own.
    cluster.on(1, &format!("{rights} make-shared mnt $PWD/handles"));
    cluster.pfs("umount scratch");
    cluster.mounted_again();
    cluster.on(2, &format!("{rights} open mnt $PWD/handles"));
    let library = stage().join("lib/pfs/libmargay_pfs.so.1");
    let library = format!("LD_PRELOAD={} MARGAY_PFS_DIRECT=1", library.display());
    let preload = Built::plain("pfs/preload.c", &["-D_GNU_SOURCE"]);
    let program = preload.path().display().to_string();
    let said = cluster.on(2, &format!("{library} {program} mnt/file 3 1000 0"));
    assert_eq!(said, "ok\n");
    end_of(&cluster);
}

#[test]
fn mpi_io_and_nx_do_on_several_hosts_what_they_do_on_one() {
    let Some(cluster) = cluster() else { return };
    let mpiexec = |ranks: u32, program: &str| {
        let folder = cluster.hosts.folder.path().display();
        let names = cluster.hosts.names();
        let launcher = stage().join("bin/mpiexec");
        let text = format!(
            "{} -timeout 100 -host {names} -ppn 1 -n {ranks} {}",
            launcher.display(),
            program.replace('@', &format!("{folder}/mnt"))
        );
        cluster.on(1, &text)
    };
    let direct = Built::mpi("pfs/direct.c");
    let program = format!("{} @/direct 0", direct.path().display());
    assert_eq!(mpiexec(2, &program), "ok\n");
    let striped = Built::mpi("pfs/striped.c");
    let program = format!("{} @/striped 65536 2", striped.path().display());
    assert_eq!(mpiexec(3, &program), "ok\n");
    let nx = Voice {
        name: "nx",
        libraries: &["-lnx"],
        environment: &[],
    };
    let files = nx.compile(cluster.hosts.folder.path(), "files");
    let program = format!("{} @/data 6 20", files.display());
    assert_eq!(mpiexec(3, &program), "all right on 3 nodes\n");
    end_of(&cluster);
}

#[test]
fn full_disks_and_quotas_end_files_of_every_host() {
    let Some(cluster) = Cluster::new(3) else {
        return;
    };
    let folder = cluster.hosts.folder.path().display().to_string();
    for host in 1..=3 {
        let disk = format!("mkdir f{host}; mount -t tmpfs -o size=24m none f{host}");
        cluster.on(host, &disk);
    }
    let [a, b, c] = [1, 2, 3].map(|host| cluster.hosts.name(host));
    cluster.pfs(&format!(
        "create scratch f1/d {b}:{folder}/f2/d {c}:{folder}/f3/d"
    ));
    cluster.pfs(&format!("mount scratch mnt --hosts {a},{b},{c}"));
    let full = Built::plain("pfs/full.c", &["-D_GNU_SOURCE"]);
    let full = full.path().display().to_string();
    let fill = |host: u32, name: &str, piece: u32, most: u64| {
        let said = cluster.on(host, &format!("{full} mnt/{name} {piece} {most}"));
        let (end, error) = said.split_once(' ').expect("two numbers");
        (
            end.parse::<u64>().expect("an end"),
            error.trim().parse::<u64>().expect("an error"),
        )
    };
    cluster.on(3, "head -c 4M /dev/zero > mnt/other && sync -f mnt/other");
    let (end, error) = fill(2, "file", 300_000, 1 << 30);
    assert_eq!(error, 28);
    assert!((24 << 20..48 << 20).contains(&end), "{end}");
    assert_eq!(cluster.on(3, "stat -c %s mnt/file"), format!("{end}\n"));
    // What another host deletes makes room as soon as the kernel that had it has looked there.
    cluster.on(1, "rm mnt/other");
    cluster.on(3, "test ! -e mnt/other && sync -f mnt/file");
    let more = end + (1 << 20);
    assert_eq!(fill(3, "file", 7001, more), (more, 0));
    cluster.on(2, "truncate -s 1000001 mnt/file && sync -f mnt/file");
    assert_eq!(fill(1, "file", 1 << 20, 1_000_001), (1_000_001, 0));
    cluster.on(3, "rm mnt/file");
    cluster.pfs("quota scratch --user root --space 5M");
    for host in 1..=3 {
        assert_eq!(fill(host, "file", 300_000, 1 << 30), (5 << 20, 122));
        cluster.on(host, "rm mnt/file");
    }
    end_of(&cluster);
}

#[test]
fn files_are_laid_out_and_moved_for_every_host() {
    let Some(cluster) = Cluster::new(3) else {
        return;
    };
    let folder = cluster.hosts.folder.path().display().to_string();
    let [a, b, c] = [1, 2, 3].map(|host| cluster.hosts.name(host));
    cluster.pfs(&format!(
        "create scratch d1 {b}:{folder}/d2 {c}:{folder}/d3 d4 --unit 256K"
    ));
    cluster.pfs(&format!("mount scratch mnt --hosts {a},{b},{c}"));
    let margay = stage().join("bin/margay").display().to_string();
    let stripe = |host: u32, words: &str| {
        let said = cluster.on(host, &format!("{margay} pfs stripe {words}"));
        said.trim_end()
            .rsplit_once(": ")
            .map(|(_, how)| how.to_owned())
    };
    cluster.on(1, "mkdir mnt/narrow");
    stripe(2, "mnt/narrow --unit 64K --factor 2");
    cluster.on(3, "head -c 5000000 /dev/urandom > mnt/narrow/file");
    let narrow = Some("stripe unit 65536, 2 in a row".to_owned());
    assert_eq!(stripe(1, "mnt/narrow/file"), narrow);
    let hints = Built::mpi("pfs/hints.c");
    for (n, words) in ["131072 2 131072 2", "65536 100 65536 3"]
        .iter()
        .enumerate()
    {
        let text = format!(
            "{} -timeout 100 -host {} -ppn 1 -n 3 {} {folder}/mnt/file{n} {words}",
            stage().join("bin/mpiexec").display(),
            cluster.hosts.names(),
            hints.path().display()
        );
        assert_eq!(cluster.on(1, &text), "ok\n", "{words}");
    }
    // A host writes while directories come and go.
    cluster.on(2, "cp mnt/narrow/file kept");
    let write =
        "n=0; while [ ! -e stop ]; do cp kept mnt/written; n=$((n+1)); done; cp kept mnt/written";
    let mut writer = cluster.begin(3, write);
    cluster.pfs(&format!("resize scratch --add {b}:{folder}/d5 --wait"));
    cluster.pfs(&format!(
        "resize scratch --remove {c}:{folder}/d3 --add d6 --wait"
    ));
    cluster.on(1, "touch stop");
    assert!(writer.wait().expect("it ends").success());
    for host in 1..=3 {
        cluster.on(host, "cmp kept mnt/written && cmp kept mnt/narrow/file");
    }
    assert_eq!(stripe(2, "mnt/narrow/file"), narrow);
    end_of(&cluster);
}
