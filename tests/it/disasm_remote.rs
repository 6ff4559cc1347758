//! `rgpu disasm` with nvdisasm on a host behind a real OpenSSH server, played from recordings.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use rustix::process::{Pid, Signal, kill_process};

use crate::disasm::summary;
use crate::fake_host::FakeHost;
use crate::laptop::{Laptop, fixture, status, wait_for, words};
use crate::over_ssh::add_remote_to_config;
use crate::sshd::Sshd;

/// Recorded cubins with their recorded listings.
const RECORDED: &str = "cubin/13.5/instructions";

/// A laptop with these fixtures in its project, and a host of which it knows as `box`.
fn laptop(files: &[(&str, &str)]) -> (Laptop, Sshd) {
    let laptop = Laptop::new();
    for (from, to) in files {
        let to = laptop.project(to);
        fs::create_dir_all(to.parent().unwrap()).unwrap();
        fs::copy(fixture(from), to).unwrap();
    }
    fs::create_dir_all(laptop.path("h200/bin")).unwrap();
    let sshd = Sshd::start();
    add_remote_to_config(&laptop, &sshd, sshd.port);
    assert_eq!(status(&laptop.run("exec --remote box --accept-new -- true")), 0);
    fs::remove_dir_all(laptop.project("artifacts")).unwrap();
    (laptop, sshd)
}

/// Puts an nvdisasm on the host: it knows the recorded cubins, and refuses all others in
/// nvdisasm's own words.
fn nvdisasm(laptop: &Laptop) {
    let script = format!(
        r#"#!/bin/sh
if [ "$1" = --version ]; then echo 'Cuda compilation tools, release 13.5, V13.5.37'; exit; fi
echo "$@" >> '{log}'
for file; do :; done
for cubin in '{recorded}'/*.cubin; do
    cmp -s "$file" "$cubin" && exec cat "${{cubin%.cubin}}.sass"
done
echo "nvdisasm fatal   : CUDA architecture \"SM70\" is deprecated in $file" >&2
exit 1
"#,
        log = laptop.path("calls").display(),
        recorded = fixture(RECORDED).display(),
    );
    played(laptop, &script);
}

fn played(laptop: &Laptop, script: &str) {
    let path = laptop.path("h200/bin/nvdisasm");
    fs::write(&path, script).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn many_files_with_names_that_no_shell_should_see_are_one_job() {
    let names = ["a b.cubin", "$(touch pwned).cubin", "-rf.cubin", "x;y'z\".cubin"];
    let cubins = ["control.sm_80", "tensor.sm_80", "hopper.sm_90a", "tcgen05.sm_100a"];
    let from = cubins.map(|c| format!("{RECORDED}/{c}.O3.cubin"));
    let files: Vec<(&str, &str)> = from.iter().map(String::as_str).zip(names).collect();
    let (laptop, _sshd) = laptop(&files);
    nvdisasm(&laptop);
    let output = laptop.run("disasm . --remote box --json");
    assert_eq!(status(&output), 0, "{}", laptop.shown("disasm", &output));
    for (name, cubin) in names.iter().zip(cubins) {
        let document = summary(&laptop);
        let inputs = document["inputs"].as_array().unwrap();
        let input = inputs.iter().find(|i| i["path"].as_str().unwrap().ends_with(name)).unwrap();
        let image = &input["images"][0];
        assert_eq!(image["tool"], "nvdisasm 13.5.37 on box");
        let file = image["files"][0].as_str().unwrap();
        let listing = fs::read_to_string(laptop.project("artifacts/sass").join(file)).unwrap();
        let recorded = fixture(&format!("{RECORDED}/{cubin}.O3.sass"));
        assert_eq!(listing, fs::read_to_string(recorded).unwrap());
    }
    // Each file was asked for once; a host and a run folder are left as they were.
    assert_eq!(fs::read_to_string(laptop.path("calls")).unwrap().lines().count(), 4);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!said.contains("pwned") && !laptop.project("artifacts/runs").exists(), "{said}");
    // Nor is a job left there that no run of this machine knows.
    let jobs = |laptop: &Laptop| {
        let output = laptop.run("runs list --remote box --json");
        assert_eq!(status(&output), 0, "{}", laptop.shown("runs list", &output));
        String::from_utf8_lossy(&output.stdout).matches("disasm").count()
    };
    wait_for("the job to be gone", || (jobs(&laptop) == 0).then_some(()));
    // The default remote serves where this machine has none, without being named.
    let config = laptop.path("config/config.toml");
    let text = fs::read_to_string(&config).unwrap();
    fs::write(config, format!("default_remote = \"box\"\n{text}")).unwrap();
    let output = laptop.run("disasm -- -rf.cubin");
    assert_eq!(status(&output), 0, "{}", laptop.shown("disasm", &output));
    assert_eq!(summary(&laptop)["inputs"][0]["images"][0]["tool"], "nvdisasm 13.5.37 on box");
    assert_eq!(fs::read_to_string(laptop.path("calls")).unwrap().lines().count(), 5);
}

#[test]
fn two_builds_are_compared_with_what_the_hosts_nvdisasm_says() {
    let (laptop, _sshd) = laptop(&[
        (&format!("{RECORDED}/control.sm_80.O3.cubin"), "old.cubin"),
        (&format!("{RECORDED}/tensor.sm_80.O3.cubin"), "new.cubin"),
    ]);
    nvdisasm(&laptop);
    let output = laptop.run("disasm --diff old.cubin old.cubin --remote box --json");
    assert_eq!(status(&output), 0, "{}", laptop.shown("disasm", &output));
    let output = laptop.run("disasm --diff old.cubin new.cubin --remote box");
    assert_eq!(status(&output), 0, "{}", laptop.shown("disasm", &output));
    assert_eq!(fs::read_to_string(laptop.path("calls")).unwrap().lines().count(), 3);
}

#[test]
fn a_cubin_that_the_hosts_nvdisasm_refuses_is_listed_by_rgpu_and_the_others_are_not() {
    let (laptop, _sshd) = laptop(&[
        (&format!("{RECORDED}/tcgen05.sm_100a.O3.cubin"), "tensor.cubin"),
        ("cubin/13.5/facts/sm_80.cubin", "old.cubin"),
    ]);
    nvdisasm(&laptop);
    let output = laptop.run("disasm old.cubin tensor.cubin --remote box -q");
    insta::assert_snapshot!(laptop.shown("disasm …", &output));
    let inputs = &summary(&laptop)["inputs"];
    let tool = |at: usize| inputs[at]["images"][0]["tool"].as_str().unwrap();
    assert!(tool(0).starts_with("rgpu "));
    assert_eq!(tool(1), "nvdisasm 13.5.37 on box");
    assert_eq!(
        inputs[0]["images"][0]["tool_problem"],
        "nvdisasm fatal   : CUDA architecture \"SM70\" is deprecated in the cubin"
    );
}

#[test]
fn a_host_without_nvdisasm_leaves_the_listing_to_rgpu_and_says_so() {
    let (laptop, _sshd) = laptop(&[("cubin/13.5/facts/sm_80.cubin", "k.cubin")]);
    let output = laptop.run("disasm k.cubin --remote box");
    assert_eq!(status(&output), 0);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("no nvdisasm on `box`: listings come without operands"), "{said}");
    assert!(fs::read_to_string(laptop.project("artifacts/sass/k.sm_80.sass")).is_ok());
    let output = laptop.run("disasm k.cubin --remote box --tool nvdisasm --json");
    assert_eq!(status(&output), 5);
    let error: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        (&error["schema"], &error["error"]["code"]),
        (&"rgpu.error/1".into(), &"no_nvdisasm".into())
    );
}

#[test]
fn ctrl_c_ends_nvdisasm_on_the_host_and_leaves_no_listing() {
    let (laptop, _sshd) = laptop(&[("cubin/13.5/facts/sm_80.cubin", "k.cubin")]);
    played(
        &laptop,
        &format!(
            "#!/bin/sh\n[ \"$1\" = --version ] && exec echo 'release 13.5, V13.5.37'\n\
             touch '{}'\nexec sleep 1000\n",
            laptop.path("started").display()
        ),
    );
    let child = laptop.start("disasm k.cubin --remote box --json");
    wait_for("nvdisasm", || laptop.path("started").exists().then_some(()));
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(status(&output), 130, "{}", laptop.shown("disasm", &output));
    laptop.wait_until_quiet();
    let written = fs::read_dir(laptop.project("artifacts/sass"));
    assert_eq!(written.map_or(0, Iterator::count), 0);
    assert_eq!(fs::read_dir(laptop.path("tmp")).unwrap().count(), 0);
}

#[test]
fn a_profile_has_the_sass_of_its_kernel_from_the_hosts_nvdisasm() {
    let laptop = Laptop::new();
    FakeHost::new(&laptop);
    let sshd = Sshd::start();
    add_remote_to_config(&laptop, &sshd, sshd.port);
    let answer = fixture("ncu/2025.3.1/full-tiled-matmul/nvdisasm.sass");
    let version = "[ \"$1\" = --version ] && exec echo 'release 13.0, V13.0.85'";
    played(&laptop, &format!("#!/bin/sh\n{version}\nexec cat '{}'\n", answer.display()));
    const LINE: &str = "profile --kernel tiled-matmul --mode ncu --remote box --accept-new -q";
    let output = laptop.run(LINE);
    assert_eq!(status(&output), 0, "{}", laptop.shown(LINE, &output));
    let summary = laptop.latest_json("sass/summary.json");
    let image = &summary["inputs"][0]["images"][0];
    assert_eq!(image["tool"], "nvdisasm 13.0.85 on box");
    let file = format!("sass/{}", image["files"][0].as_str().unwrap());
    let listing = fs::read_to_string(laptop.latest().join(&file)).unwrap();
    assert_eq!(listing, fs::read_to_string(&answer).unwrap());
    let profile = laptop.latest_json("profile.json");
    let artifacts = profile["artifacts"].as_array().unwrap();
    assert!(artifacts.iter().any(|a| a["kind"] == "sass" && a["path"] == file.as_str()));
    let spots = laptop.latest_json("hotspots.json").to_string();
    assert!(spots.contains("STG.E desc[UR8][R2.64], R21"));
    assert!(!laptop.latest().join("raw/sass").exists());
    // What goes wrong there costs operands, and nothing else.
    played(&laptop, &format!("#!/bin/sh\n{version}\necho broken >&2; exit 1\n"));
    let output = laptop.run(LINE);
    assert_eq!(status(&output), 0, "{}", laptop.shown(LINE, &output));
    let summary = laptop.latest_json("sass/summary.json");
    let image = &summary["inputs"][0]["images"][0];
    assert_eq!(image["tool_problem"], "broken");
    assert!(
        laptop.latest().join(format!("sass/{}", image["files"][0].as_str().unwrap())).is_file()
    );
}

#[test]
fn life_ranges_and_the_page_are_made_of_what_the_hosts_nvdisasm_says() {
    const INLINED: &str = "cubin/13.5/inlined";
    let (laptop, _sshd) = laptop(&[(&format!("{INLINED}/sm_90a.cubin"), "inlined.cubin")]);
    // Life ranges are asked for by a flag of their own.
    played(
        &laptop,
        &format!(
            "#!/bin/sh\n[ \"$1\" = --version ] && exec echo 'release 13.5, V13.5.37'\n\
             echo \"$@\" >> '{}'\ncase $* in *-plr*) exec cat '{}';; esac\nexit 1\n",
            laptop.path("calls").display(),
            fixture(&format!("{INLINED}/nvdisasm.lives.txt")).display()
        ),
    );
    let output = laptop.run("disasm inlined.cubin --view live --remote box");
    assert_eq!(status(&output), 0, "{}", laptop.shown("disasm", &output));
    let text = String::from_utf8_lossy(&output.stdout);
    let local = laptop.path("h200/bin");
    let mut command = laptop.rgpu(words("disasm inlined.cubin --view live"));
    let here = command.env("PATH", format!("{}:/usr/bin:/bin", local.display())).output().unwrap();
    assert!(text.lines().count() > 20, "{text}");
    assert_eq!(text, String::from_utf8_lossy(&here.stdout));

    let output = laptop.run("disasm inlined.cubin --remote box --out page.html");
    assert_eq!(status(&output), 0, "{}", laptop.shown("disasm", &output));
    let page = fs::read_to_string(laptop.project("page.html")).unwrap();
    assert!(page.starts_with("<!doctype html>") && page.contains("nvdisasm 13.5.37 on box"));
    // Operands, and how many registers live.
    assert!(page.contains("LDG.E R") && page.contains("\"l\":"));
    assert_eq!(fs::read_to_string(laptop.path("calls")).unwrap().lines().count(), 3);
}

/// With `RGPU_NVDISASM` set to NVIDIA's program, that one is the host's.
#[test]
fn the_real_nvdisasm_says_on_a_host_what_it_says_here() {
    let Some(real) = std::env::var_os("RGPU_NVDISASM") else { return };
    let real = PathBuf::from(real);
    let (laptop, _sshd) = laptop(&[
        ("cubin/13.5/inlined/sm_90a.cubin", "inlined.cubin"),
        ("cubin/12.9/facts/sm_90a.cubin", "facts.cubin"),
        ("cubin/12.9/pascal/sm_60.cubin", "pascal.cubin"),
    ]);
    played(&laptop, &format!("#!/bin/sh\nexec '{}' \"$@\"\n", real.display()));
    let path = format!("{}:/usr/bin:/bin", real.parent().unwrap().display());
    for line in [
        "disasm inlined.cubin facts.cubin --view sass --control-codes",
        "disasm inlined.cubin facts.cubin --view sass --line-info",
        "disasm inlined.cubin facts.cubin --view live",
        "disasm inlined.cubin facts.cubin --view source --json",
        "disasm facts.cubin pascal.cubin --view sass",
        "disasm inlined.cubin facts.cubin --format html --out page.html --force",
    ] {
        let page = || fs::read_to_string(laptop.project("page.html")).unwrap_or_default();
        let there = laptop.run(&format!("{line} --remote box"));
        assert_eq!(status(&there), 0, "{}", laptop.shown(line, &there));
        let there = String::from_utf8_lossy(&there.stdout).into_owned() + &page();
        let here = laptop.rgpu(words(line)).env("PATH", &path).output().unwrap();
        let here = String::from_utf8_lossy(&here.stdout).into_owned() + &page();
        assert!(here.len() > 1000, "{line}: {here}");
        assert_eq!(there.replace(" on box", ""), here, "{line}");
    }
}
