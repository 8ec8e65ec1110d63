//! Slurm on hosts of one machine: Debian's, without systemd, started and ended by a test.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use crate::hosts::Hosts;
use crate::jobs::{Words, text};
use crate::{command, run};

/// How long its daemons may take to be there or gone.
const SOON: Duration = Duration::from_secs(30);
/// CPUs that each host claims to have.
const CPUS: u32 = 4;

/// A cluster that is gone with the value.
pub struct Slurm {
    /// Its hosts.
    pub hosts: Hosts,
    folder: PathBuf,
}

impl Slurm {
    /// Starts a cluster; none, with a note, where hosts or Slurm are missing.
    ///
    /// # Panics
    /// When it does not come up.
    pub fn start(number: u32) -> Option<Slurm> {
        Self::start_as(number, false)
    }

    /// The same with its database, without which the size of a job cannot be changed twice.
    ///
    /// # Panics
    /// When it does not come up.
    pub fn start_with_accounts(number: u32) -> Option<Slurm> {
        Self::start_as(number, true)
    }

    fn start_as(number: u32, has_accounts: bool) -> Option<Slurm> {
        let has = |program: &str| {
            let found = Command::new("sh")
                .args(["-c", &format!("command -v {program}")])
                .output();
            found.is_ok_and(|output| output.status.success())
        };
        if !["munged", "slurmctld", "slurmd", "srun"]
            .into_iter()
            .all(has)
        {
            println!(
                "note: there is no Slurm here (slurmctld, slurmd, slurm-client, munge): it is not tested"
            );
            return None;
        }
        if has_accounts && !["slurmdbd", "mariadbd", "mariadb"].into_iter().all(has) {
            println!("note: there is no slurmdbd or MariaDB here: growth in Slurm is not tested");
            return None;
        }
        let hosts = Hosts::make(number)?;
        let folder = hosts.folder.path().join("slurm");
        let slurm = Slurm { hosts, folder };
        slurm.configure(has_accounts);
        let folder = slurm.folder.display();
        slurm.start_daemon(&format!(
            "munged --force --key-file={folder}/key --socket={folder}/munge/socket --pid-file={folder}/munge/pid \
             --log-file={folder}/munge/log --seed-file={folder}/munge/seed"
        ));
        if has_accounts {
            slurm.start_accounts();
        }
        slurm.start_daemon(&slurm.on(1, "slurmctld"));
        for host in 1..=number {
            let name = slurm.hosts.name(host);
            // The hosts have folders of their own for PMIx.
            let own = format!("mount -t tmpfs own {folder}/pmix && slurmd -N {name}");
            slurm.start_daemon(&slurm.on(host, &own));
        }
        slurm.until("sinfo -h -t idle -o %D", |said| {
            said.trim() == number.to_string()
        });
        Some(slurm)
    }

    /// Starts its database on the first host, and the daemon that keeps accounts there.
    fn start_accounts(&self) {
        let folder = self.folder.display();
        self.write(
            "slurmdbd.conf",
            &format!(
                "DbdHost=localhost\nDbdAddr=10.77.0.1\nSlurmUser=root\nAuthType=auth/munge\nAuthInfo=socket={folder}/munge/socket\n\
                 StorageType=accounting_storage/mysql\nStorageHost=127.0.0.1\nStoragePort=3306\nStorageUser=root\n\
                 PidFile={folder}/dbd.pid\nLogFile={folder}/dbd.log\n"
            ),
        );
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        fs::set_permissions(self.folder.join("slurmdbd.conf"), mode).expect("the file is ours");
        let made = format!(
            "mariadb-install-db --no-defaults --user=root --skip-test-db --datadir={folder}/db"
        );
        self.start_daemon(&made);
        let served = format!(
            "ip link set lo up; setsid mariadbd --no-defaults --user=root --datadir={folder}/db --bind-address=127.0.0.1 \
             --socket={folder}/db.socket --pid-file={folder}/db.pid --skip-grant-tables --innodb-buffer-pool-size=128M --innodb-lock-wait-timeout=900 \
             >{folder}/db.log 2>&1 &"
        );
        self.start_daemon(&self.on(1, &served));
        let asked = "mariadb --no-defaults -h 127.0.0.1 -u root -e 'select 1'";
        self.until(asked, |said| said.contains('1'));
        self.start_daemon(&self.on(1, "slurmdbd"));
        self.until("sacctmgr list cluster", |said| said.contains("Cluster"));
        let added = self.run("sacctmgr -i add cluster test", 20);
        assert!(added.status.success(), "{}", text(&added));
    }

    fn configure(&self, has_accounts: bool) {
        let (number, folder) = (self.hosts.number, self.folder.display());
        for part in ["munge", "state", "pmix"] {
            fs::create_dir_all(self.folder.join(part)).expect("the folder takes files");
        }
        let key: String = (0..64).map(|n| format!("key of a test, {n:04};")).collect();
        self.write("key", &key);
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        fs::set_permissions(self.folder.join("key"), mode).expect("the file is ours");
        self.write("cgroup.conf", "CgroupPlugin=cgroup/v1\n");
        self.write("mpi.conf", &format!("PMIxCliTmpDirBase={folder}/pmix\n"));
        let mut text = format!(
            "ClusterName=test\nSlurmctldHost={}(10.77.0.1)\nSlurmUser=root\nSlurmdUser=root\nAuthType=auth/munge\n\
             AuthInfo=socket={folder}/munge/socket\nStateSaveLocation={folder}/state\nSlurmdSpoolDir={folder}/spool-%n\n\
             SlurmctldPidFile={folder}/ctld.pid\nSlurmdPidFile={folder}/slurmd-%n.pid\nSlurmctldLogFile={folder}/ctld.log\n\
             SlurmdLogFile={folder}/slurmd-%n.log\nProctrackType=proctrack/linuxproc\nTaskPlugin=task/none\n\
             SelectType=select/cons_tres\nSelectTypeParameters=CR_CPU\nSchedulerType=sched/builtin\n\
             SlurmdParameters=config_overrides\nMpiDefault=none\nReturnToService=2\nSwitchType=switch/none\n\
             JobAcctGatherType=jobacct_gather/none\nKillWait=2\nOverTimeLimit=0\nMinJobAge=300\n",
            self.hosts.name(1)
        );
        if has_accounts {
            text += &format!(
                "AccountingStorageType=accounting_storage/slurmdbd\nAccountingStorageHost=10.77.0.1\n\
                 AccountingStoragePass={folder}/munge/socket\nSchedulerParameters=permit_job_expansion\n"
            );
        }
        for host in 1..=number {
            let name = self.hosts.name(host);
            text += &format!("NodeName={name} NodeAddr=10.77.0.{host} CPUs={CPUS} State=UNKNOWN\n");
        }
        text += "PartitionName=all Nodes=ALL Default=YES State=UP MaxTime=INFINITE\n";
        self.write("slurm.conf", &text);
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.folder.join(name), text).expect("the folder takes files");
    }

    /// A file among those of the cluster.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    fn start_daemon(&self, line: &str) {
        let mut starter = command("sh", 60);
        starter
            .args(["-c", line])
            .env("SLURM_CONF", self.path("slurm.conf"));
        // It goes on with the streams of the one who starts it.
        let log = fs::File::create(self.path("start.log")).expect("the folder takes files");
        starter
            .stdout(log.try_clone().expect("a descriptor is left"))
            .stderr(log);
        let status = starter.status().expect("there is a shell");
        let said = fs::read_to_string(self.path("start.log")).unwrap_or_default();
        assert!(status.success(), "{line}: {said}");
    }

    /// The line that runs another one on a host.
    fn on(&self, host: u32, line: &str) -> String {
        let name = self.hosts.name(host);
        let inner = format!("hostname {name}; {line}").replace('\'', "'\\''");
        format!("ip netns exec {name} unshare -um sh -c '{inner}'")
    }

    /// The words of a line for the shell on the first host, from which jobs are started.
    pub fn words(&self, line: &str) -> Words {
        let conf = format!(
            "export SLURM_CONF={}; exec {line}",
            self.path("slurm.conf").display()
        );
        let mut words = Words::default().and("sh").and("-c");
        words = words.and(self.on(1, &conf));
        words
    }

    /// Runs a line of the shell on the first host.
    pub fn run(&self, line: &str, limit_s: u32) -> Output {
        run(&mut self.words(line).command(limit_s))
    }

    /// Waits until what a line prints is as wanted.
    ///
    /// # Panics
    /// When it does not become so.
    pub fn until(&self, line: &str, is_good: impl Fn(&str) -> bool) {
        let end = Instant::now() + SOON;
        loop {
            let output = self.run(line, 20);
            let said = String::from_utf8_lossy(&output.stdout).into_owned();
            if is_good(&said) {
                return;
            }
            assert!(
                Instant::now() < end,
                "{line} says {said:?}; {}",
                self.logs()
            );
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// The ends of the daemons' logs.
    pub fn logs(&self) -> String {
        let files = fs::read_dir(&self.folder).into_iter().flatten().flatten();
        let logs = files
            .map(|file| file.path())
            .filter(|path| has_end(path, "log"));
        logs.map(|path| {
            let text = fs::read_to_string(&path).unwrap_or_default();
            let lines: Vec<&str> = text.lines().collect();
            let last = &lines[lines.len().saturating_sub(6)..];
            format!("{}:\n{}\n", path.display(), last.join("\n"))
        })
        .collect()
    }
}

fn has_end(path: &Path, end: &str) -> bool {
    path.extension().is_some_and(|extension| extension == end)
}

impl Drop for Slurm {
    fn drop(&mut self) {
        let files = fs::read_dir(&self.folder).into_iter().flatten().flatten();
        let mut pids: Vec<String> = files
            .map(|file| file.path())
            .filter(|path| has_end(path, "pid"))
            .chain([self.path("munge/pid")])
            .filter_map(|path| Some(fs::read_to_string(path).ok()?.trim().to_owned()))
            .collect();
        let end = Instant::now() + SOON;
        while !pids.is_empty() && Instant::now() < end {
            let _ = Command::new("kill").args(&pids).output();
            pids.retain(|pid| Path::new("/proc").join(pid).exists());
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}
