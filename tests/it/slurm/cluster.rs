//! A cluster of Slurm on this machine, with one node or several and played GPUs: Debian's
//! slurmctld, slurmd and munge, with keys, ports and folders of their own. It needs root, as slurmd
//! does.
//!
//! A slurmd of Debian takes its node's name from the machine. So each further one has a name of the
//! machine of its own (`unshare --uts`).

use std::fs;
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use crate::laptop::{Laptop, wait_for};
use crate::sshd::{Sshd, free_port};

/// A running cluster, whose login node is a real OpenSSH server.
pub(crate) struct Cluster {
    folder: PathBuf,
    pub(crate) sshd: Sshd,
    daemons: Vec<(&'static str, Child)>,
}

impl Cluster {
    /// Starts a cluster of one node, and makes it known to the laptop as `cluster`.
    pub(crate) fn start(laptop: &Laptop) -> Self {
        Self::with_nodes(laptop, 1)
    }

    /// Starts a cluster of so many nodes.
    pub(crate) fn with_nodes(laptop: &Laptop, count: usize) -> Self {
        let folder = laptop.path("slurm");
        for part in ["", "munge", "state", "spool"] {
            fs::create_dir(folder.join(part)).unwrap();
        }
        // munge refuses folders that others may write.
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o755)).unwrap();
        let key: Vec<u8> = (0..1024).map(|i: u32| (i * 7 + std::process::id()) as u8).collect();
        fs::write(folder.join("munge/key"), key).unwrap();
        fs::set_permissions(folder.join("munge/key"), fs::Permissions::from_mode(0o400)).unwrap();
        for gpu in ["gpu0", "gpu1"] {
            fs::write(folder.join(gpu), "").unwrap();
        }
        let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap().trim().to_owned();
        let controller = free_port();
        let names: Vec<String> = (0..count)
            .map(|at| if at == 0 { host.clone() } else { format!("{host}-{at}") })
            .collect();
        let nodes: Vec<String> = names
            .iter()
            .map(|name| {
                format!(
                    "NodeName={name} NodeAddr=127.0.0.1 Port={} CPUs=8 RealMemory=8000 Gres=gpu:2 \
                     State=UNKNOWN",
                    free_port()
                )
            })
            .collect();
        let config = include_str!("slurm.conf")
            .replace("FOLDER", folder.to_str().unwrap())
            .replace("HOSTNAME", &host)
            .replace("CONTROLLER_PORT", &controller.to_string())
            .replace("NODES", &nodes.join("\n"));
        fs::write(folder.join("slurm.conf"), config).unwrap();
        let gres: String = ["gpu0", "gpu1"]
            .map(|gpu| format!("Name=gpu File={}/{gpu}\n", folder.display()))
            .concat();
        fs::write(folder.join("gres.conf"), gres).unwrap();
        let sshd = Sshd::start();
        let text = fs::read_to_string(sshd.path("sshd_config")).unwrap();
        let variable = format!("SetEnv SLURM_CONF={} HOME=", folder.join("slurm.conf").display());
        fs::write(sshd.path("sshd_config"), text.replace("SetEnv HOME=", &variable)).unwrap();
        let sshd = sshd.restart("");
        let mut cluster = Self { folder, sshd, daemons: Vec::new() };
        let config = cluster.path("slurm.conf").display().to_string();
        let munge_folder = cluster.path("munge");
        let munge = |name: &str| munge_folder.join(name).display().to_string();
        let options = [
            "--foreground".to_owned(),
            "--force".to_owned(),
            format!("--key-file={}", munge("key")),
            format!("--socket={}", munge("sock")),
            format!("--log-file={}", munge("log")),
            format!("--pid-file={}", munge("pid")),
            format!("--seed-file={}", munge("seed")),
            "--num-threads=1".to_owned(),
        ];
        cluster.daemon("munged", &options);
        wait_for("munge", || cluster.path("munge/sock").exists().then_some(()));
        let config = ["-D".to_owned(), "-f".to_owned(), config];
        cluster.daemon("slurmctld", &config);
        wait_for("slurmctld", || TcpStream::connect(("127.0.0.1", controller)).ok());
        cluster.daemon("slurmd", &config);
        for name in &names[1..] {
            let start = format!("hostname {name} && exec /usr/sbin/slurmd {}", config.join(" "));
            cluster.daemon_at(
                "slurmd",
                Path::new("/usr/bin/unshare"),
                &["--uts", "sh", "-c", &start].map(str::to_owned),
            );
        }
        let idle = format!("{count}:idle");
        wait_for("the nodes", || {
            (cluster.ask("sinfo --noheader --partition=gpu --format=%D:%t") == idle).then_some(())
        });
        let port = cluster.sshd.port;
        cluster.add_remote(laptop, port, "");
        cluster
    }

    fn daemon(&mut self, program: &'static str, args: &[String]) {
        let path = format!("/usr/sbin/{program}");
        assert!(
            Path::new(&path).exists(),
            "install Slurm: apt-get install slurmctld slurmd slurm-client munge"
        );
        self.daemon_at(program, Path::new(&path), args);
    }

    fn daemon_at(&mut self, program: &'static str, path: &Path, args: &[String]) {
        let name = format!("{program}.{}.out", self.daemons.len());
        let log = fs::File::create(self.path(&name)).unwrap();
        let mut command = Command::new(path);
        command.args(args).stdin(Stdio::null()).stderr(log.try_clone().unwrap()).stdout(log);
        self.daemons.push((program, command.spawn().unwrap()));
    }

    /// A path in the cluster's folder.
    pub(crate) fn path(&self, inner: &str) -> PathBuf {
        self.folder.join(inner)
    }

    /// Makes the cluster known to the laptop as `cluster`, through `port`, with further settings.
    pub(crate) fn add_remote(&self, laptop: &Laptop, port: u16, options: &str) {
        let settings = format!(
            "[remote.cluster]\nurl = \"slurm://{}@127.0.0.1:{port}\"\nssh_config = {:?}\n\
             path = [{:?}]\nenv = {{ RGPU_FAKE_HOST = {:?}, RGPU_LOCK_DIR = {:?} }}\n\
             [remote.cluster.options]\npartition = \"gpu\"\ngpus = \"1\"\nfolder = {:?}\n{options}\n",
            self.sshd.user,
            self.sshd.path("ssh_config"),
            laptop.path("h200/bin"),
            laptop.path("h200"),
            laptop.path("lock"),
            laptop.path("shared"),
        );
        fs::write(laptop.path("config/config.toml"), settings).unwrap();
    }

    /// Runs a command on the cluster.
    pub(crate) fn run(&self, line: &str) -> Output {
        let mut words = line.split_whitespace();
        let mut command = Command::new(words.next().unwrap());
        command.args(words).env("SLURM_CONF", self.path("slurm.conf")).output().unwrap()
    }

    /// What a command on the cluster prints.
    pub(crate) fn ask(&self, line: &str) -> String {
        String::from_utf8_lossy(&self.run(line).stdout).trim().to_owned()
    }

    /// Numbers and states of the jobs that have not ended.
    pub(crate) fn jobs(&self) -> String {
        self.ask("squeue --noheader --format=%i:%T")
    }

    /// Waits until the jobs are these.
    pub(crate) fn wait_for_jobs(&self, jobs: &str) {
        wait_for(&format!("jobs `{jobs}`"), || (self.jobs() == jobs).then_some(()));
    }

    /// The state of a job, as the controller keeps it after its end.
    pub(crate) fn state(&self, job: u32) -> String {
        let line = self.ask(&format!("scontrol --oneliner show job {job}"));
        let state = line.split_whitespace().find_map(|pair| pair.strip_prefix("JobState="));
        state.unwrap_or("forgotten").to_owned()
    }

    /// Fills the node, so that further jobs wait; the job's number.
    pub(crate) fn fill_node(&self) -> String {
        let mut command = Command::new("sbatch");
        command.args(["--parsable", "--exclusive", "--output=/dev/null", "--wrap=sleep 1000"]);
        let output = command.env("SLURM_CONF", self.path("slurm.conf")).output().unwrap();
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }

    /// Kills a daemon, as a power cut would.
    pub(crate) fn kill_daemon(&mut self, program: &str) {
        for (_, child) in self.daemons.iter_mut().filter(|(name, _)| *name == program) {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        // The processes of its jobs end with them.
        let _ = self.run("scancel --full --signal=KILL --state=RUNNING");
        let _ = self.run("scancel --state=PENDING");
        for (_, child) in self.daemons.iter_mut().rev() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
