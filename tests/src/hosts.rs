//! Hosts on one machine: network namespaces on a bridge, which only root can make. The "remote
//! shell" enters them.

use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use crate::jobs::{Built, Job, Words, mark, nothing_is_left};
use crate::{command, run, scratch, stage};

/// Hosts that are gone with the value.
pub struct Hosts {
    /// Processes that keep the hosts' own mounts.
    keepers: Vec<Child>,
    tag: String,
    /// How many there are.
    pub number: u32,
    /// A folder that they share.
    pub folder: tempfile::TempDir,
}

impl Hosts {
    /// Makes hosts; none, with a note, where that is not possible.
    pub fn make(number: u32) -> Option<Hosts> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let tag = format!(
            "m{}x{}",
            std::process::id(),
            NEXT.fetch_add(1, Ordering::Relaxed)
        );
        let hosts = Hosts {
            keepers: Vec::new(),
            tag,
            number,
            folder: scratch(),
        };
        let may = [
            "ip netns add @s",
            "ip -n @s link add br0 type bridge",
            "ip -n @s link set br0 up",
        ]
        .iter()
        .all(|line| hosts.works(line));
        let all = may && (1..=number).all(|host| hosts.plug(host));
        if !all {
            println!(
                "note: no network namespaces here (not root, or no iproute2): several hosts are not tested"
            );
            return None;
        }
        hosts.write_shell(&hosts.shell(), "true");
        Some(hosts)
    }

    /// Makes hosts each of which has mounts of its own, which stay from one command to the next.
    pub fn with_mounts(number: u32) -> Option<Hosts> {
        let mut hosts = Hosts::make(number)?;
        for host in 1..=number {
            let name = hosts.name(host);
            let mut keeper = Command::new("ip")
                .args(["netns", "exec", &name, "unshare", "-m", "-u", "sh", "-c"])
                // Copies of other tests' mounts would keep these in use.
                .arg(format!(
                    "hostname {name}; grep ' pfs:' /proc/self/mountinfo | cut -d' ' -f5 | xargs -r umount -l; \
                     echo ready && exec sleep 600"
                ))
                .stdout(Stdio::piped())
                .spawn()
                .expect("iproute2 is there");
            let mut ready = [0; 6];
            let stdout = keeper.stdout.as_mut().expect("a pipe");
            stdout.read_exact(&mut ready).expect("it has begun");
            let pid = hosts.folder.path().join(format!("keeper.{name}"));
            std::fs::write(pid, keeper.id().to_string()).expect("the folder takes files");
            hosts.keepers.push(keeper);
        }
        let enter = format!(
            "#!/bin/sh\nhost=$1; shift\nexec nsenter -t $(cat {}/keeper.$host) -n -m -u sh -c 'echo welcome to $0; exec \
             sh -c \"$1\"' \"$host\" \"$*\"\n",
            hosts.folder.path().display()
        );
        hosts.write_script(&hosts.shell(), &enter);
        Some(hosts)
    }

    /// Makes hosts whose remote shell is OpenSSH, with keys of its own and no user's settings. What
    /// a command starts is no child of the shell then; each host has mounts of its own, and a line
    /// is printed before a command runs. Its energy counters are in the folder
    /// `powercap`. None, with a note, where that is not possible.
    pub fn with_ssh(number: u32) -> Option<Hosts> {
        let mut hosts = Hosts::make(number)?;
        let server = ["/usr/sbin/sshd", "/usr/local/sbin/sshd", "/sbin/sshd"];
        let Some(server) = server.into_iter().find(|path| Path::new(path).exists()) else {
            println!("note: there is no sshd here: hosts are not reached by ssh");
            return None;
        };
        let folder = hosts.folder.path().to_owned();
        let key = folder.join("key");
        let made = command("ssh-keygen", 30)
            .args(["-q", "-t", "ed25519", "-N", "", "-f"])
            .arg(&key)
            .status();
        assert!(made.expect("OpenSSH is there").success());
        // The server's own folder, which a package makes when the system starts.
        std::fs::create_dir_all("/run/sshd").expect("root makes folders");
        let at = folder.display();
        let settings = format!(
            "HostKey {at}/key\nAuthorizedKeysFile {at}/key.pub\nStrictModes no\nUsePAM no\nPidFile none\n\
             PermitRootLogin yes\nPasswordAuthentication no\nKbdInteractiveAuthentication no\nMaxStartups 100\nSetEnv MARGAY_POWERCAP={at}/powercap\n\
             ForceCommand echo welcome; exec sh -c \"$SSH_ORIGINAL_COMMAND\"\n"
        );
        std::fs::write(folder.join("sshd"), settings).expect("the folder takes files");
        let mut client = format!(
            "IdentityFile {at}/key\nIdentitiesOnly yes\nUserKnownHostsFile /dev/null\n\
             StrictHostKeyChecking no\nLogLevel ERROR\n"
        );
        assert!(hosts.works("ip -n @s addr add 10.77.0.254/24 dev br0"));
        for host in 1..=number {
            let (name, address) = (hosts.name(host), Hosts::address(host));
            client.push_str(&format!("Host {name}\n HostName {address}\n"));
            let keeper = Command::new("ip")
                .args(["netns", "exec", &name, "unshare", "-m", "-u", "sh", "-c"])
                .arg(format!(
                    "hostname {name}; exec {server} -D -e -f {at}/sshd 2>> {at}/sshd.log"
                ))
                .spawn();
            hosts.keepers.push(keeper.expect("iproute2 is there"));
        }
        std::fs::write(folder.join("ssh"), client).expect("the folder takes files");
        let shell = format!(
            "#!/bin/sh\nexec ip netns exec {} ssh -F {at}/ssh \"$@\"\n",
            hosts.named("@s")
        );
        hosts.write_script(&hosts.shell(), &shell);
        for host in 1..=number {
            let since = Instant::now();
            let answers = || {
                run(hosts.on(host, "true").stdin(Stdio::null()))
                    .status
                    .success()
            };
            while !answers() {
                let log = std::fs::read_to_string(folder.join("sshd.log")).unwrap_or_default();
                assert!(since.elapsed() < Duration::from_secs(30), "{log}");
                std::thread::sleep(Duration::from_millis(50));
            }
        }
        Some(hosts)
    }

    /// A command of the shell on a host, whose first line of output is the shell's welcome.
    pub fn on(&self, host: u32, text: &str) -> Command {
        let mut command = command(self.shell(), 110);
        command.arg(self.name(host)).arg(text);
        command
    }

    /// What such a command prints, which succeeds.
    pub fn said(&self, host: u32, text: &str) -> String {
        let output = run(&mut self.on(host, text));
        let err = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "host {host}: {text}: {err}");
        let out = String::from_utf8(output.stdout).expect("text");
        let (_welcome, said) = out.split_once('\n').expect("a welcome");
        said.to_owned()
    }

    fn write_shell(&self, shell: &Path, first: &str) {
        let script = format!(
            "#!/bin/sh\nhost=$1; shift\nexec ip netns exec \"$host\" unshare -u sh -c 'hostname \"$0\"; echo welcome to $0; {first}; exec sh -c \"$1\"' \"$host\" \"$*\"\n"
        );
        self.write_script(shell, &script);
    }

    fn write_script(&self, path: &Path, text: &str) {
        std::fs::write(path, text).expect("the folder takes files");
        let mode = PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(path, mode).expect("the file is ours");
    }

    /// A remote shell that runs a command first, in the mount namespace that the host has then.
    pub fn shell_that(&self, first: &str) -> PathBuf {
        let shell = self.folder.path().join("shell-that");
        self.write_shell(&shell, first);
        shell
    }

    fn plug(&self, host: u32) -> bool {
        let n = host.to_string();
        [
            "ip netns add @hN",
            "ip link add @vN netns @hN type veth peer name @pN netns @s",
            "ip -n @s link set @pN master br0",
            "ip -n @s link set @pN up",
            "ip -n @hN link set lo up",
            "ip -n @hN addr add 10.77.0.N/24 dev @vN",
            "ip -n @hN link set @vN up",
        ]
        .iter()
        .all(|line| self.works(&line.replace('N', &n)))
    }

    /// Runs a command in whose words `@` stands for what all names of these hosts begin with.
    /// Returns whether it succeeded.
    pub fn works(&self, line: &str) -> bool {
        let line = self.named(line);
        let words: Vec<&str> = line.split_whitespace().collect();
        let output = Command::new(words[0]).args(&words[1..]).output();
        output.is_ok_and(|output| output.status.success())
    }

    /// A command in which `@` is replaced by what all names of these hosts begin with.
    pub fn named(&self, line: &str) -> String {
        line.replace('@', &self.tag)
    }

    /// The remote shell.
    pub fn shell(&self) -> PathBuf {
        self.folder.path().join("shell")
    }

    /// Writes a remote shell, `reach` in the folder, that reaches hosts by another one, and not
    /// those that are switched off.
    pub fn write_reach(&self, shell: &Path) {
        let reach = self.folder.path().join("reach");
        let text = format!(
            "#!/bin/sh\nif [ -e {}/off.$1 ]; then echo no route to host >&2; exit 255; fi\nexec {} \"$@\"\n",
            self.folder.path().display(),
            shell.display(),
        );
        self.write_script(&reach, &text);
    }

    fn off(&self, host: u32) -> PathBuf {
        self.folder.path().join(format!("off.{}", self.name(host)))
    }

    /// A host cannot be reached.
    pub fn cut_off(&self, host: u32) {
        std::fs::write(self.off(host), "").expect("the folder takes files");
    }

    /// All processes of a host die, and it cannot be reached.
    pub fn switch_off(&self, host: u32) {
        self.cut_off(host);
        let pids = run(command("ip", 10).args(["netns", "pids", &self.name(host)]));
        for pid in String::from_utf8_lossy(&pids.stdout).split_whitespace() {
            let _ = command("kill", 10).args(["-KILL", pid]).output();
        }
    }

    /// It can be reached again.
    pub fn switch_on(&self, host: u32) {
        std::fs::remove_file(self.off(host)).expect("it was off");
    }

    /// The name of a host; the first one is 1.
    pub fn name(&self, host: u32) -> String {
        format!("{}h{host}", self.tag)
    }

    /// The address of a host.
    pub fn address(host: u32) -> String {
        format!("10.77.0.{host}")
    }

    /// All names, with commas.
    pub fn names(&self) -> String {
        let names: Vec<String> = (1..=self.number).map(|host| self.name(host)).collect();
        names.join(",")
    }

    /// The launcher on these hosts.
    pub fn mpiexec(&self, options: &str) -> Words {
        self.mpiexec_by(&self.shell(), options)
    }

    /// The same with another remote shell.
    pub fn mpiexec_by(&self, shell: &Path, options: &str) -> Words {
        Words::default()
            .and(stage().join("bin/mpiexec"))
            .and_all("-timeout 100 -launcher-exec")
            .and(shell)
            .and_all(&format!("-host {} {options}", self.names()))
    }

    /// The launcher on some of these hosts, whose names are parted by commas.
    pub fn mpiexec_on(&self, names: &str, options: &str) -> Words {
        Words::default()
            .and(stage().join("bin/mpiexec"))
            .and_all("-timeout 100 -launcher-exec")
            .and(self.shell())
            .and_all(&format!("-host {names} {options}"))
    }

    /// Two ranks of `program` talk, on a host each; the cable of host 2 is cut meanwhile. The
    /// launcher reports that host by name and ends the job; the cable is mended.
    pub fn cut_while_they_talk(&self, options: &str, program: &Built) {
        let words = self.mpiexec(&format!("{options} -ppn 1"));
        let mut job = Job::start(&words.and(program.path()), 90);
        job.until("talking", 1);
        let cut = Instant::now();
        assert!(self.works("ip -n @s link set @p2 down"));
        let end = job.ended_with_nothing_left();
        assert!(self.works("ip -n @s link set @p2 up"));
        assert_eq!(end.status.code(), Some(1), "{}", end.err);
        assert!(end.err.contains("cannot reach rank"), "{}", end.err);
        assert!(end.err.contains(&self.name(2)), "{}", end.err);
        // It is found out within 10 s; the machine may do other things, too.
        assert!(cut.elapsed() < Duration::from_secs(40), "{}", end.err);
    }

    /// Runs a program of the shell on these hosts.
    pub fn run(&self, options: &str, program: &str) -> Output {
        let words = self.mpiexec(options);
        let mut command = words.command(110);
        command.args(["sh", "-c", program]);
        let mark = mark(&mut command);
        let output = run(&mut command);
        nothing_is_left(&mark);
        output
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        for keeper in &mut self.keepers {
            // It may have been killed with its host.
            let _ = keeper.kill();
            let _ = keeper.wait();
        }
        for host in 1..=self.number {
            self.works(&format!("ip netns del @h{host}"));
        }
        self.works("ip netns del @s");
    }
}
