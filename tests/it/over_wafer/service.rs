//! The stand-in for Wafer's service, and a laptop that is logged in to it.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

use crate::host::digest;
use crate::laptop::{Laptop, built};

/// Good until the year 2100, and until 1970.
pub(crate) const TOKEN: &str = "e30.eyJleHAiOjQxMDI0NDQ4MDB9.x";
pub(crate) const EXPIRED: &str = "e30.eyJleHAiOjF9.x";

/// The fake of Wafer's service, in a process of its own.
pub(crate) struct Service {
    child: Child,
    pub(crate) port: u16,
}

impl Service {
    /// With one running workspace, `b200-dev`, known to the laptop as `w200`, which has the agent.
    pub(crate) fn start(laptop: &Laptop) -> Self {
        Self::with(laptop, json!({})).having_the_agent(laptop)
    }

    /// Puts the agent where an earlier command would have left it.
    pub(crate) fn having_the_agent(self, laptop: &Laptop) -> Self {
        let cache = laptop.path("wafer/home/.cache/rgpu");
        fs::create_dir_all(cache.join("bin")).unwrap();
        fs::set_permissions(&cache, fs::Permissions::from_mode(0o700)).unwrap();
        let agent = fs::read(laptop.path("libexec/rgpu-agent")).unwrap();
        let name = format!("agent-{}", digest(&agent));
        fs::hard_link(built("rgpu-agent"), cache.join("bin").join(name)).unwrap();
        self
    }

    /// The same with other settings over the usual ones.
    pub(crate) fn with(laptop: &Laptop, settings: Value) -> Self {
        let folder = laptop.path("wafer");
        fs::create_dir_all(folder.join("home")).unwrap();
        fs::create_dir_all(laptop.path("served")).unwrap();
        let mut all = json!({
            "token": TOKEN,
            "ssh": null,
            "env": {
                "PATH": format!("{}:/usr/bin:/bin", laptop.path("h200/bin").display()),
                "HOME": folder.join("home"),
                "LANG": "C.UTF-8",
                "TMPDIR": laptop.path("tmp"),
                "RGPU_FAKE_HOST": laptop.path("h200"),
                "RGPU_AGENT_HOME": laptop.path("agent"),
                "RGPU_LOCK_DIR": laptop.path("lock"),
            },
            // Another machine, which lets everyone read its counters.
            "ncu_env": {
                "PATH": format!(
                    "{}:{}:/usr/bin:/bin",
                    laptop.path("served/bin").display(),
                    laptop.path("h200/bin").display(),
                ),
                "RGPU_FAKE_HOST": laptop.path("served"),
            },
            "workspaces": [
                {"name": "b200-dev", "gpu_type": "B200", "environment": "baremetal", "status": "running"}
            ],
        });
        for (name, value) in settings.as_object().unwrap() {
            all[name] = value.clone();
        }
        fs::write(folder.join("service.json"), all.to_string()).unwrap();
        let program = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/over_wafer/service.py");
        let mut command = Command::new("python3");
        command.arg(program).arg(&folder).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let port = line.trim().parse().expect("a port");
        let this = Self { child, port };
        this.add_remote_to_config(laptop, "");
        this.log_in(laptop, TOKEN);
        this
    }

    /// Makes the workspace known to the laptop, with these settings more.
    pub(crate) fn add_remote_to_config(&self, laptop: &Laptop, more: &str) {
        let settings = format!(
            "[remote.w200]\nurl = \"wafer://b200-dev\"\npath = [{:?}]\n\
             env = {{ RGPU_FAKE_HOST = {:?} }}\nprice_per_hour = 3600\n{more}\n",
            laptop.path("h200/bin"),
            laptop.path("h200"),
        );
        fs::write(laptop.path("config/config.toml"), settings).unwrap();
    }

    /// Tells the laptop where the service is, and a token for it.
    pub(crate) fn log_in(&self, laptop: &Laptop, token: &str) {
        let folder = laptop.path("home/.wafer");
        fs::create_dir_all(&folder).unwrap();
        let url = format!("http://127.0.0.1:{}", self.port);
        let config = format!(
            "[api]\nenvironment = \"local\"\n[api.environments.local]\nurl = \"{url}\"\n\
             supabase_url = \"{url}\"\nsupabase_anon_key = \"public\"\n"
        );
        fs::write(folder.join("config.toml"), config).unwrap();
        let path = folder.join("credentials.json");
        let login = json!({"access_token": token, "refresh_token": "refresh-1"});
        fs::write(&path, login.to_string()).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    }

    /// Lets things go wrong, see `service.py`.
    pub(crate) fn faults(&self, laptop: &Laptop, rules: Value) {
        fs::write(laptop.path("wafer/faults.json"), rules.to_string()).unwrap();
    }

    /// How often this was asked.
    pub(crate) fn asked(laptop: &Laptop, request: &str) -> usize {
        let log = fs::read_to_string(laptop.path("wafer/requests")).unwrap_or_default();
        log.lines().filter(|line| line.starts_with(request)).count()
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
