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

fn end(cluster: &Cluster) {
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
    end(&cluster);
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
    end(&cluster);
}
