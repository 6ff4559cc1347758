//! Hosts as they are: containers, modules, sudo, Slurm, an old glibc, no Python, no bash, folders
//! that cannot be written. What a host lacks is played by wrappers around the start command.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rgpu_protocol::Outcome;
use rgpu_remote::{RemoteError, RemoteSpec, UnknownHostPolicy};

use crate::fake_host::FakeHost;
use crate::host::{JobOutput, connect, files_in, follow, submission};
use crate::laptop::{Laptop, status};
use crate::ssh::{error, user};
use crate::sshd::Sshd;

fn script(path: &Path, text: &str) -> String {
    fs::write(path, text).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    path.display().to_string()
}

/// Runs a shell's script on the host.
async fn run(spec: &RemoteSpec, text: &str) -> JobOutput {
    let mut link = match connect(spec, UnknownHostPolicy::AcceptNew, &user()).await {
        Ok(link) => link,
        Err(error) => panic!("{}", error.failure("box", "ssh")),
    };
    link.submit(&submission(&["/bin/sh", "-c", text], &[], &[]), &|_| ()).await.unwrap();
    let story = follow(&mut link).await.unwrap();
    assert_eq!(story.outcome(), &Outcome::Done);
    link.close().await;
    story
}

#[tokio::test]
async fn a_container_on_a_host_is_entered_with_its_own_path_and_home() {
    let sshd = Sshd::start();
    let inside = sshd.path("inside");
    fs::create_dir_all(inside.join("bin")).unwrap();
    script(&inside.join("bin/only-inside"), "#!/bin/sh\necho in the container\n");
    // As `docker exec -i NAME COMMAND…`, with the blanks and quotes of its words kept.
    let docker = script(
        &sshd.path("docker"),
        &format!(
            "#!/bin/sh\n[ \"$1 $2 $3\" = 'exec -i my box' ] || exit 9\nshift 3\n\
             exec env -i HOME={0} PATH={0}/bin:/usr/bin:/bin \"$@\"\n",
            inside.display()
        ),
    );
    let mut spec = sshd.remote();
    spec.via = vec![docker, "exec".into(), "-i".into(), "my box".into()];
    for _ in 0..2 {
        assert_eq!(run(&spec, "only-inside").await.stdout, b"in the container\n");
    }
    assert!(inside.join(".cache/rgpu/bin").exists());
    assert!(!sshd.path("home/.cache").exists());

    spec.via[3] = "gone".into();
    let failure =
        error(connect(&spec, UnknownHostPolicy::AcceptNew, &user()).await).failure("box", "ssh");
    assert!(failure.what.ends_with("it exited with status 9"), "{}", failure.what);
}

#[tokio::test]
async fn modules_are_loaded_by_a_login_shell_or_by_path_and_env() {
    let sshd = Sshd::start();
    let tools = sshd.path("modules/cuda/bin");
    fs::create_dir_all(&tools).unwrap();
    script(&tools.join("tool-of-module"), "#!/bin/sh\necho $CUDA_HOME\n");
    let folder = sshd.path("modules/cuda").display().to_string();
    let mut spec = sshd.remote();
    spec.path = vec![tools.display().to_string()];
    spec.env.insert("CUDA_HOME".into(), folder.clone());
    let want = format!("{folder}\n");
    assert_eq!(run(&spec, "tool-of-module").await.stdout, want.as_bytes());

    if !Path::new("/bin/bash").exists() {
        return;
    }
    let profile = format!(
        "module() {{ [ \"$*\" = 'load cuda' ] && export CUDA_HOME={folder} PATH={folder}/bin:$PATH; }}\n"
    );
    fs::write(sshd.path("home/.bash_profile"), profile).unwrap();
    let mut spec = sshd.remote();
    spec.via = ["bash", "-lc", "module load cuda && exec \"$@\"", "via"].map(Into::into).into();
    assert_eq!(run(&spec, "tool-of-module").await.stdout, want.as_bytes());
}

#[tokio::test]
async fn sudo_that_wants_a_password_is_told_in_its_words() {
    let sshd = Sshd::start();
    let sudo = script(
        &sshd.path("sudo"),
        "#!/bin/sh\n[ \"$1\" = -n ] && shift\n[ -e \"$HOME/allowed\" ] && exec env AS=root \"$@\"\n\
         echo 'sudo: a password is required' >&2\nexit 1\n",
    );
    let mut spec = sshd.remote();
    spec.via = vec![sudo, "-n".into()];
    let failure =
        error(connect(&spec, UnknownHostPolicy::AcceptNew, &user()).await).failure("box", "ssh");
    assert_eq!(failure.code, "agent_start");
    assert_eq!(failure.cause.as_deref(), Some("sudo: a password is required"));
    fs::write(sshd.path("home/allowed"), "").unwrap();
    assert_eq!(run(&spec, "id -u >/dev/null && echo done").await.stdout, b"done\n");
}

/// A host with nothing but a few programs of POSIX.
fn bare(folder: &Path, glibc: Option<&str>) -> Vec<String> {
    let bin = folder.join("bare");
    fs::create_dir(&bin).unwrap();
    for name in [
        "awk", "cat", "chmod", "cut", "df", "env", "find", "getconf", "head", "id", "ls", "mkdir",
        "mv", "rm", "sh", "uname",
    ] {
        let found = ["/usr/bin", "/bin"].into_iter().map(|dir| PathBuf::from(dir).join(name));
        symlink(found.into_iter().find(|path| path.exists()).unwrap(), bin.join(name)).unwrap();
    }
    if let Some(glibc) = glibc {
        fs::remove_file(bin.join("getconf")).unwrap();
        script(&bin.join("getconf"), &format!("#!/bin/sh\necho {glibc}\n"));
    }
    let home = folder.join("bare-home");
    fs::create_dir(&home).unwrap();
    let set = |name: &str, value: &Path| format!("{name}={}", value.display());
    vec!["env".into(), "-i".into(), set("PATH", &bin), set("HOME", &home)]
}

#[tokio::test]
async fn a_host_without_python_and_bash_is_served() {
    let sshd = Sshd::start();
    let mut spec = sshd.remote();
    spec.via = bare(&sshd.path(""), None);
    for _ in 0..2 {
        let story = run(&spec, "command -v python3 bash || echo neither").await;
        assert_eq!(story.stdout, b"neither\n");
    }
}

#[tokio::test]
async fn a_host_whose_glibc_is_too_old_is_told_before_anything_is_sent() {
    let sshd = Sshd::start();
    let mut spec = sshd.remote();
    spec.via = bare(&sshd.path(""), Some("glibc 2.12"));
    let refused = error(connect(&spec, UnknownHostPolicy::AcceptNew, &user()).await);
    assert!(matches!(refused, RemoteError::Unfit { .. }), "{refused:?}");
    let failure = refused.failure("box", "ssh");
    assert!(
        failure.what.contains("the host has glibc 2.12, this agent needs 2."),
        "{}",
        failure.what
    );
    assert!(failure.hints[0].contains("cargo xtask dist"), "{:?}", failure.hints);
    assert!(files_in(&sshd.path("bare-home")).is_empty());
}

#[tokio::test]
async fn a_host_whose_home_and_tmp_cannot_be_written_is_served_from_another_folder() {
    let sshd = Sshd::start();
    // In a mount namespace of its own, /tmp, which holds this test's home, is read-only.
    let enter = "mount --bind /tmp /tmp && mount -o remount,ro,bind /tmp && exec \"$@\"";
    let words = ["unshare", "--mount", "sh", "-c", enter, "via"];
    let can = Command::new(words[0])
        .args(&words[1..])
        .args(["sh", "-c", "! touch /tmp/rgpu-may-not-be-written"])
        .stderr(Stdio::null())
        .status();
    if !can.is_ok_and(|status| status.success()) || !sshd.path("").starts_with("/tmp") {
        eprintln!("skipped: no mount namespaces for this user, or another temporary folder");
        return;
    }
    // A checkout may itself lie under /tmp.
    let folder = Path::new("/var/tmp").join(format!("rgpu-ro-{}", std::process::id()));
    let mut spec = sshd.remote();
    // Jobs lie there too, and not in the folder of this machine's own user.
    let home = format!("RGPU_AGENT_HOME={}", folder.join("home").display());
    spec.via = ["env".to_owned(), home].into_iter().chain(words.map(Into::into)).collect();
    spec.agent_folder = Some(folder.display().to_string());
    let story = run(&spec, "touch /tmp/x 2>/dev/null || echo read-only").await;
    assert_eq!(story.stdout, b"read-only\n");
    assert!(files_in(&sshd.path("home")).is_empty());
    // The job's supervisor may still be putting its folder in order.
    for _ in 0..100 {
        if fs::remove_dir_all(&folder).is_ok() {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    assert!(!folder.exists());
}

#[tokio::test]
async fn a_link_that_takes_a_folders_place_while_the_agent_is_installed_is_not_followed() {
    let sshd = Sshd::start();
    let mut spec = sshd.remote();
    spec.via = bare(&sshd.path(""), None);
    // What a neighbour can do at that moment to a folder in /var/tmp that is not there yet.
    let (planted, mine) = (sshd.path("planted"), sshd.path("mine"));
    fs::create_dir(&mine).unwrap();
    let mkdir = sshd.path("bare/mkdir");
    fs::remove_file(&mkdir).unwrap();
    let plant = format!("[ -e {0} ] || /bin/ln -s {1} {0}", planted.display(), mine.display());
    script(&mkdir, &format!("#!/bin/sh\n{plant}\nexec /bin/mkdir \"$@\"\n"));
    spec.agent_folder = Some(planted.display().to_string());
    for _ in 0..2 {
        assert_eq!(run(&spec, "echo served").await.stdout, b"served\n");
    }
    assert!(planted.is_symlink());
    assert_eq!(files_in(&mine), Vec::<PathBuf>::new());
    assert!(!files_in(&sshd.path("bare-home")).is_empty());
}

#[test]
fn a_slurm_login_node_is_refused_with_what_to_do() {
    let laptop = Laptop::new();
    FakeHost::with(&laptop, &["nvcc"]);
    script(&laptop.path("h200/bin/sinfo"), "#!/bin/sh\necho slurm 22.05.8\n");
    let line = "profile --kernel vecadd --remote h200 --mode bench";
    let output = laptop.run(line);
    let shown = laptop.shown(line, &output);
    assert_eq!(status(&output), 4, "{shown}");
    assert!(shown.contains("`h200` is a login node of a Slurm cluster"), "{shown}");
    assert!(shown.contains("slurm --login") && shown.contains("salloc"), "{shown}");
    let check = laptop.show("remote check h200");
    assert!(check.contains("slurm") && check.contains("22.05.8"), "{check}");
    // What needs no GPU runs there all the same.
    assert_eq!(status(&laptop.run("exec --remote h200 -- true")), 0);
}
