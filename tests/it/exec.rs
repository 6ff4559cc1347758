//! `rgpu exec`: a bare command on a host.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use crate::fake_host::FakeHost;
use crate::laptop::{Laptop, status, wait_for, words};
use crate::over_ssh::add_remote_to_config;
use crate::sshd::Sshd;

#[test]
fn a_file_that_is_not_there_and_code_behind_a_shells_flag_are_told_what_was_meant() {
    let laptop = Laptop::new();
    laptop.write("probe.py", "print(1)\n");
    insta::assert_snapshot!(laptop.show("exec prob.py") + &laptop.show("exec -c 'print(1)'"));
}

#[test]
fn a_list_tells_the_status_that_a_program_ended_with() {
    let laptop = Laptop::new();
    laptop.run("exec --run-id one -- sh -c 'exit 3'");
    let listed = laptop.show("runs list");
    assert!(listed.contains("done, status 3"), "{listed}");
}

#[test]
fn a_command_keeps_its_output_its_streams_and_its_status() {
    let laptop = Laptop::new();
    insta::assert_snapshot!(laptop.show("exec -- sh -c 'echo out; echo err >&2; exit 7'"));
    let record = laptop.latest_json("run.json");
    assert_eq!((&record["exit"], &record["program_exit"]), (&7.into(), &7.into()));
    assert_eq!(fs::read_to_string(laptop.latest().join("log/exec.stdout")).unwrap(), "out\n");
    laptop.wait_until_quiet();
}

#[test]
fn a_signal_is_128_more_and_a_time_limit_is_124() {
    let laptop = Laptop::new();
    insta::assert_snapshot!(laptop.show("exec -- sh -c 'kill -TERM $$'"));
    insta::assert_snapshot!(laptop.show("exec --timeout 1s -- sh -c 'sleep 1000 & sleep 1000'"));
    laptop.wait_until_quiet();
}

#[test]
fn what_rgpu_itself_cannot_do_is_125() {
    let laptop = Laptop::new();
    insta::assert_snapshot!(laptop.show("exec -- no-such-program"));
    insta::assert_snapshot!(laptop.show("exec --json -- no-such-program"));
    insta::assert_snapshot!(laptop.show("exec --remote nowhere -- true"));
}

#[test]
fn standard_input_reaches_the_command_whole() {
    let laptop = Laptop::new();
    // All bytes, no newline at the end, more than a pipe holds.
    let input: Vec<u8> = (0..300_000_u32).map(|i| (i * 7 % 256) as u8).collect();
    let output = laptop.run_with_input("exec -- cat", &input);
    assert_eq!(status(&output), 0);
    assert!(output.stdout == input, "{} of {} bytes came back", output.stdout.len(), input.len());
    let log = laptop.latest().join("log/exec.stdout");
    assert!(fs::read(log).unwrap() == input);
    // A command that does not read ends all the same.
    assert_eq!(status(&laptop.run_with_input("exec -- true", &input)), 0);
}

#[test]
fn both_streams_come_in_the_order_in_which_they_were_written() {
    let laptop = Laptop::new();
    let sshd = Sshd::start();
    add_remote_to_config(&laptop, &sshd, sshd.port);
    let both = fs::File::create(laptop.path("both")).unwrap();
    let script = "for i in 1 2 3; do echo out $i; sleep 0.3; echo err $i >&2; sleep 0.3; done";
    let words = ["exec", "--remote", "box", "--accept-new", "-q", "--", "sh", "-c", script];
    let mut command = laptop.rgpu(words);
    command.stdout(both.try_clone().unwrap()).stderr(both);
    assert!(command.status().unwrap().success());
    assert_eq!(
        fs::read_to_string(laptop.path("both")).unwrap(),
        "out 1\nerr 1\nout 2\nerr 2\nout 3\nerr 3\n"
    );
}

#[test]
fn a_run_folder_keeps_source_environment_commands_and_logs() {
    let laptop = Laptop::new();
    laptop.write("a.py", "import sys\nprint('out')\nprint('err', file=sys.stderr)\n");
    assert_eq!(status(&laptop.run("exec a.py --env WORD=x -- more")), 0);
    let kept = |name: &str| fs::read_to_string(laptop.latest().join(name)).unwrap();
    assert_eq!(kept("source/a.py"), kept("../../../a.py"));
    assert!(kept("commands.sh").contains("more"), "{}", kept("commands.sh"));
    assert_eq!(
        (kept("log/exec.stdout"), kept("log/exec.stderr")),
        ("out\n".into(), "err\n".into())
    );
    let env = laptop.latest_json("env.json");
    assert_eq!(
        (&env["schema"], &env["rgpu"]),
        (&"rgpu.env/1".into(), &env!("CARGO_PKG_VERSION").into())
    );
}

#[test]
fn bytes_that_are_no_text_and_control_sequences_go_to_files_and_pipes_as_they_are() {
    let laptop = Laptop::new();
    let output = laptop.run(r"exec -- printf '\033[31mred\033[0m\377\376[EXIT:0]\n'");
    assert_eq!(output.stdout, b"\x1b[31mred\x1b[0m\xff\xfe[EXIT:0]\n");
    assert_eq!(output.stderr, b"");
    assert_eq!(status(&output), 0);
}

#[test]
fn words_reach_the_command_as_they_were_typed() {
    let laptop = Laptop::new();
    let output = laptop.run(r#"exec -- printf '<%s>' 'a b' '' '$HOME' '*' "it's" '--json'"#);
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "<a b><><$HOME><*><it's><--json>");
}

#[test]
fn json_is_all_that_stands_on_stdout_and_events_go_where_they_are_asked() {
    let laptop = Laptop::new();
    let line = "exec --json --events events.jsonl -- sh -c 'echo hello; exit 3'";
    insta::assert_snapshot!(laptop.show(line));
    let events = fs::read_to_string(laptop.project("events.jsonl")).unwrap();
    let kinds: Vec<serde_json::Value> =
        events.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(kinds.len() > 5, "{events}");
    assert!(events.contains("\"ended\""), "{events}");
}

#[test]
fn a_storm_of_output_is_kept_up_to_the_limit_and_passes_whole() {
    let laptop = Laptop::new();
    let output = laptop.run("exec -q -- seq 1 400000");
    assert_eq!(status(&output), 0);
    let expected: String = (1..=400_000).map(|n| format!("{n}\n")).collect();
    assert!(output.stdout == expected.as_bytes());
    let output = laptop.run("exec --log-limit 1MB -- seq 1 400000");
    assert_eq!(status(&output), 0);
    assert!(output.stdout.len() <= 1_000_000, "{}", output.stdout.len());
    assert!(expected.as_bytes().starts_with(&output.stdout));
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(
        said,
        "warning: stdout of step `exec` has reached `--log-limit`; the rest is dropped\n"
    );
}

#[test]
fn output_that_cannot_be_written_is_our_failure_and_not_a_closed_pipe() {
    let laptop = Laptop::new();
    let full = |words: &[&str]| {
        let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let output = laptop.rgpu(words).stdout(full).output().unwrap();
        (status(&output), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let said = "error: cannot write output: No space left on device (os error 28)\n";
    for words in [
        &["exec", "--", "echo", "hi"][..],
        &["exec", "--", "seq", "1", "100000"],
        &["exec", "--json", "--", "sh", "-c", "exit 3"],
    ] {
        let (status, words) = full(words);
        assert!(status == 125 && words.ends_with(said), "{status}: {words}");
    }
    assert_eq!(full(&["runs", "list"]), (8, said.to_owned()));
    assert_eq!(full(&["--help"]), (8, said.to_owned()));
    laptop.wait_until_quiet();
}

#[test]
fn a_pattern_no_host_would_take_is_refused_here_and_one_that_fits_nothing_is_told() {
    let laptop = Laptop::new();
    for (pattern, why) in [("../x", "not a path inside"), ("[", "has no meaning")] {
        let output = laptop.rgpu(["exec", "--pull", pattern, "--", "ls"]).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(status(&output), 2, "{said}");
        assert!(said.starts_with(&format!("error: `--pull {pattern}`: ")), "{said}");
        assert!(said.contains(why), "{said}");
    }
    assert_eq!(laptop.run("runs list").stdout, b"");
    let output = laptop.run("exec --pull out/** -- true");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(status(&output), 0);
    assert!(said.contains("warning: nothing was pulled"), "{said}");
}

#[test]
fn a_command_without_its_dashes_and_a_line_for_a_shell_are_told_how_to_be_written() {
    let laptop = Laptop::new();
    let said = |words: &[&str]| {
        let output = laptop.rgpu(words).output().unwrap();
        assert_ne!(status(&output), 0, "{words:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    assert!(said(&["exec", "ls"]).contains("write a command after `--`: rgpu exec -- ls\n"));
    let line = said(&["exec", "--", "echo a; echo b"]);
    assert!(
        line.contains("commands run without a shell: rgpu exec -- sh -c 'echo a; echo b'"),
        "{line}"
    );
    for wrong in [["--timeout", "x"], ["--env", "x"], ["--mode", "x"]] {
        let words = said(&["exec", wrong[0], wrong[1], "--", "ls"]);
        assert!(!words.contains("commands after `--`"), "{words}");
    }
}

#[test]
fn a_program_that_is_not_found_is_127_and_one_that_cannot_be_executed_126() {
    let laptop = Laptop::new();
    laptop.write("plain.txt", "no program\n");
    let plain = laptop.project("plain.txt").display().to_string();
    for (program, expected) in [("nosuch", 127), ("/nowhere/nosuch", 127), (plain.as_str(), 126)] {
        let line = format!("exec -- {program}");
        let output = laptop.run(&line);
        assert_eq!(status(&output), expected, "{}", laptop.shown(&line, &output));
    }
    let output = laptop.rgpu(["exec", "echo hi"]).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("rgpu exec -- sh -c 'echo hi'\n"), "{said}");
    assert!(!said.contains("rgpu exec -- 'echo hi'"), "it cannot work: {said}");
}

#[test]
fn a_program_of_this_machine_runs_from_its_folder_or_its_mount() {
    let laptop = Laptop::new();
    let script = "#!/bin/sh\necho \"app $1 $(cat data.txt 2>/dev/null)\"\n";
    let app = laptop.write("tools/app", script);
    fs::set_permissions(&app, fs::Permissions::from_mode(0o755)).unwrap();
    laptop.write("data.txt", "of the mount");
    laptop.write("own.py", "print('python')\n");
    for (line, told) in [
        ("exec --mount . -- ./tools/app 1", "app 1 of the mount\n"),
        ("exec --mount . -- tools/../tools/app 2", "app 2 of the mount\n"),
        ("exec --mount tools -- tools/app 3", "app 3 \n"),
        ("exec --mount tools -- ./app 4", "app 4 \n"),
        ("exec --mount . -- python3 own.py", "python\n"),
        ("exec -- ./tools/app 5", "app 5 \n"),
        ("exec -- python3 own.py", "python\n"),
    ] {
        let output = laptop.run(line);
        assert_eq!(status(&output), 0, "{}", laptop.shown(line, &output));
        assert_eq!(String::from_utf8_lossy(&output.stdout), told, "{line}");
    }
    // Python runs it, not the system.
    let shown = laptop.show("exec -- own.py");
    assert!(shown.contains("rgpu exec -- python3 own.py\n"), "{shown}");
    assert!(shown.ends_with("status 2\n"), "{shown}");
}

#[test]
fn exec_and_profile_send_the_same_files_of_this_machine() {
    let laptop = Laptop::new();
    let sshd = Sshd::start();
    FakeHost::new(&laptop);
    add_remote_to_config(&laptop, &sshd, sshd.port);
    let app = laptop.write("app", "#!/bin/sh\necho ran\n");
    fs::set_permissions(&app, fs::Permissions::from_mode(0o755)).unwrap();
    laptop.write("own.py", "print('ran')\n");
    let sent = |words: &str| {
        let mut all = Vec::new();
        for command in ["exec", "profile --mode nvtx"] {
            let line = format!("{command} --remote box --accept-new -- {words}");
            let output = laptop.run(&line);
            assert_eq!(status(&output), 0, "{}", laptop.shown(&line, &output));
            let plan = laptop.latest_json("plan-1.json");
            let files = plan["files"].as_array().unwrap().iter();
            let files = files.filter_map(|file| file["path"].as_str());
            all.push(files.filter(|path| path.starts_with("app/")).collect::<Vec<_>>().join(" "));
        }
        assert_eq!(all[0], all[1], "{words}");
        all.remove(0)
    };
    assert_eq!(sent("./app"), "app/app");
    assert_eq!(sent(&app.display().to_string()), "app/app");
    assert_eq!(sent("python3 own.py"), "app/own.py");
    // A host has its own programs.
    assert_eq!(sent("/bin/true"), "");
    assert_eq!(sent("true"), "");
}

#[test]
fn under_a_mode_a_program_that_fails_is_told_below_its_profile() {
    let laptop = Laptop::new();
    FakeHost::new(&laptop);
    let line = "exec --mode nvtx -- sh -c 'exit 3'";
    let output = laptop.run(line);
    assert_eq!(status(&output), 3, "{}", laptop.shown(line, &output));
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(told.lines().last().unwrap_or_default().contains("ended with status 3"), "{told}");
}

#[test]
fn an_argument_that_is_no_utf_8_is_named() {
    use std::os::unix::ffi::OsStrExt;
    let laptop = Laptop::new();
    let word = std::ffi::OsStr::from_bytes(b"caf\xe9");
    let output = laptop.rgpu(["exec", "--", "echo"]).arg(word).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains(r"error: argument 4 is not UTF-8: `caf\xe9`"), "{said}");
}

#[test]
fn what_json_prints_keeps_to_its_published_schema() {
    let laptop = Laptop::new();
    let output = laptop.run("exec --json --pull out -- sh -c 'echo hi > out; exit 3'");
    assert_eq!(status(&output), 3);
    laptop.write("exec.json", &String::from_utf8_lossy(&output.stdout));
    let checked = laptop.run("schema exec --check exec.json");
    assert_eq!(status(&checked), 0, "{}", String::from_utf8_lossy(&checked.stderr));
}

#[test]
fn taking_up_a_run_again_ends_as_the_run_did() {
    let laptop = Laptop::new();
    assert_eq!(status(&laptop.run("exec --run-id five -- sh -c 'exit 5'")), 5);
    assert_eq!(status(&laptop.run("runs attach five")), 5);
    assert_eq!(status(&laptop.run("runs attach five")), 5);
}

#[test]
fn a_program_under_a_mode_runs_once_and_keeps_its_status() {
    let laptop = Laptop::new();
    let mark = laptop.path("ran");
    let script = format!("#!/bin/sh\necho once >> {}\nexit 3\n", mark.display());
    laptop.write("c0.sh", &script);
    let output = laptop.run("exec c0.sh --mode nsys");
    assert_eq!(status(&output), 3, "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(fs::read_to_string(mark).unwrap(), "once\n");
    assert_eq!(laptop.latest_json("run.json")["program_exit"], 3);
    let profile = laptop.latest_json("profile.json");
    assert_eq!(profile["rung"], "cpu");
}

#[test]
fn a_variable_is_set_for_the_command_and_the_laptops_own_do_not_travel() {
    let laptop = Laptop::new();
    let mut command = laptop.rgpu(["exec", "--env", "SIZE=large", "--", "env"]);
    let output = command.env("SECRET_TOKEN", "hunter2").output().unwrap();
    let seen = String::from_utf8(output.stdout).unwrap();
    assert!(seen.lines().any(|line| line == "SIZE=large"), "{seen}");
    assert!(!seen.contains("hunter2"), "{seen}");
}

/// `rgpu` on a terminal, as util-linux's `script` gives one; `None` where that is not installed.
pub(crate) fn on_a_terminal(laptop: &Laptop, line: &str, more: &[(&str, &str)]) -> Option<String> {
    let plain = laptop.rgpu(["--version"]);
    let mut script = Command::new("/usr/bin/script");
    script
        .args(["-qec", &format!("{} {line}", env!("CARGO_BIN_EXE_rgpu")), "/dev/null"])
        .env_clear()
        .envs(plain.get_envs().filter_map(|(name, value)| Some((name, value?))))
        .env("TERM", "xterm-256color")
        .envs(more.iter().copied())
        .current_dir(laptop.path("project"))
        .stdin(Stdio::null());
    match script.output() {
        Ok(output) => Some(String::from_utf8_lossy(&output.stdout).into_owned()),
        Err(_) => {
            eprintln!("skipped: `script` is not installed");
            None
        }
    }
}

#[test]
fn on_a_terminal_what_a_host_sends_cannot_steer_it_and_no_color_is_heard() {
    let laptop = Laptop::new();
    let line = r"exec -- printf '\033[2J\033]0;title\007\033[31mred\033[0m\n'";
    let Some(seen) = on_a_terminal(&laptop, line, &[]) else { return };
    assert!(!seen.contains("\x1b[2J") && !seen.contains("\x1b]0;"), "{seen:?}");
    // Colours do no harm.
    assert!(seen.contains("\x1b[31mred\x1b[0m"), "{seen:?}");
    let wrong = "exec --remote nowhere -- true";
    let coloured = on_a_terminal(&laptop, wrong, &[]).unwrap();
    assert!(coloured.contains("\x1b[1;31merror:"), "{coloured:?}");
    let plain = on_a_terminal(&laptop, wrong, &[("NO_COLOR", "1")]).unwrap();
    assert!(plain.contains("error:") && !plain.contains('\x1b'), "{plain:?}");
    // The flag stands above the variables, also for what clap refuses.
    let forced = format!("--color always {wrong}");
    let coloured = on_a_terminal(&laptop, &forced, &[("NO_COLOR", "1")]).unwrap();
    assert!(coloured.contains("\x1b[1;31merror:"), "{coloured:?}");
    let plain = on_a_terminal(&laptop, "--color=never runs no-such-command", &[]).unwrap();
    assert!(plain.contains("error:") && !plain.contains('\x1b'), "{plain:?}");
}

#[test]
fn the_help_is_coloured_only_where_colours_are_shown() {
    let laptop = Laptop::new();
    let help = |line: &str| String::from_utf8(laptop.run(line).stdout).unwrap();
    assert!(!help("runs --help").contains('\x1b'));
    assert!(help("runs --help --color always").contains("\x1b["));
    assert!(help("--color always --help").contains("\x1b["));
}

#[test]
fn settings_that_are_no_toml_are_told_with_their_line() {
    let laptop = Laptop::new();
    fs::write(laptop.path("config/config.toml"), "default_remote = \n").unwrap();
    insta::assert_snapshot!(laptop.show("kernels list"));
    insta::assert_snapshot!(laptop.show("exec -- true"));
}

#[test]
fn a_reader_that_goes_away_ends_the_command_on_the_host() {
    let laptop = Laptop::new();
    let mut child = laptop.start("exec -- yes");
    // `| head -1`: one read, then the pipe is closed.
    let mut output = child.stdout.take().unwrap();
    std::io::Read::read_exact(&mut output, &mut [0; 2]).unwrap();
    drop(output);
    let ended = child.wait_with_output().unwrap();
    assert_eq!((status(&ended), String::from_utf8_lossy(&ended.stderr).as_ref()), (128 + 13, ""));
    laptop.wait_until_quiet();
}

/// Waits until the newest run's log of the program's output holds `text`.
fn wait_until_printed(laptop: &Laptop, text: &str) {
    let runs = laptop.project("artifacts/runs");
    wait_for(text, || {
        let id = fs::read_to_string(runs.join(".latest")).ok()?;
        let log = fs::read(runs.join(id.trim()).join("log/exec.stdout")).ok()?;
        String::from_utf8_lossy(&log).contains(text).then_some(())
    });
}

#[test]
fn ctrl_c_reaches_the_program_as_on_a_terminal_and_harder_where_it_does_not_listen() {
    let deaf = "trap '' INT";
    for (deaf_to, hears, says) in [("", "INT", "interrupted"), (deaf, "TERM", "terminated")] {
        let laptop = Laptop::new();
        let script = format!(
            "{deaf_to}\ntrap 'echo {says}; exit 3' {hears}\necho started\nwhile :; do sleep 0.05; done\n"
        );
        laptop.write("run.sh", &script);
        let child = laptop.start("exec run.sh");
        wait_until_printed(&laptop, "started");
        kill_process(Pid::from_child(&child), Signal::INT).unwrap();
        let output = child.wait_with_output().unwrap();
        // What it had to say is heard; the command was cancelled all the same.
        assert_eq!(String::from_utf8_lossy(&output.stdout), format!("started\n{says}\n"));
        assert_eq!(status(&output), 130);
        laptop.wait_until_quiet();
    }
}

/// Prints numbers, 34 MB of them: more than pipes and memory of ours hold.
const MANY: &str = "exec -- sh -c 'seq 1 4500000; echo all >&2; exit 9'";

#[test]
fn a_reader_that_stands_still_for_long_gets_everything_in_the_end() {
    let laptop = Laptop::new();
    let child = laptop.start(MANY);
    wait_until_printed(&laptop, "4500000\n");
    let output = child.wait_with_output().unwrap();
    let want: String = (1..=4_500_000).map(|i| format!("{i}\n")).collect();
    assert!(output.stdout == want.as_bytes(), "{} of {}", output.stdout.len(), want.len());
    assert_eq!((status(&output), String::from_utf8_lossy(&output.stderr).as_ref()), (9, "all\n"));
}

#[test]
fn a_command_whose_output_nobody_takes_hears_a_signal() {
    for (line, over) in [(MANY, true), ("exec -- sh -c 'seq 1 4500000; sleep 1000'", false)] {
        let laptop = Laptop::new();
        let mut child = laptop.start(line);
        wait_until_printed(&laptop, "4500000\n");
        if over {
            // All that is left is to be read.
            wait_for("its end on the host", || {
                let events = fs::read_to_string(laptop.latest().join("events.jsonl")).ok()?;
                events.contains("\"ended\"").then_some(())
            });
        }
        kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
        let ended = wait_for("the end of the command", || child.try_wait().unwrap());
        assert_eq!(ended.code(), Some(130), "{line}");
        laptop.wait_until_quiet();
        assert_eq!(laptop.latest_json("run.json")["state"], "cancelled");
    }
}

#[test]
fn a_detached_program_reads_the_end_of_its_input() {
    let laptop = Laptop::new();
    assert_eq!(status(&laptop.run("exec --detach -- wc -c")), 0);
    let taken_up = laptop.run("runs attach latest");
    assert_eq!((status(&taken_up), taken_up.stdout.as_slice()), (0, &b"0\n"[..]));
}

#[test]
fn input_that_a_detached_program_would_not_get_is_not_thrown_away_in_silence() {
    let laptop = Laptop::new();
    let from_file = |line: &str, text: &str| {
        let file = laptop.write("big.bin", text);
        let mut command = laptop.rgpu(words(line));
        let output = command.stdin(fs::File::open(file).unwrap()).output().unwrap();
        laptop.shown(line, &output)
    };
    let refused = from_file("exec --detach -- wc -c", "some bytes\n");
    insta::assert_snapshot!(refused);
    assert!(!laptop.project("artifacts/runs/latest").exists(), "nothing was begun");
    // The code itself, and a file with nothing in it, are no input of the program.
    for (line, text) in [("exec --lang sh --detach -", "true\n"), ("exec --detach -- wc -c", "")] {
        let shown = from_file(line, text);
        assert!(shown.ends_with("status 0\n") && !shown.contains("standard input"), "{shown}");
    }
    let line = "exec --detach -- wc -c";
    let warned = laptop.shown(line, &laptop.run_with_input(line, b"piped"));
    assert!(warned.contains("warning: standard input is not sent with `--detach`\n"), "{warned}");
    assert!(warned.ends_with("status 0\n"), "{warned}");
    let silent = laptop.show("exec --detach -- true");
    assert!(!silent.contains("standard input"), "{silent}");
}

#[test]
fn a_program_taken_up_with_events_on_stdout_prints_beside_them() {
    let laptop = Laptop::new();
    assert_eq!(status(&laptop.run("exec --detach -- echo out")), 0);
    let output = laptop.run("runs attach latest --events -");
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.lines().all(|line| line.starts_with('{')) && !text.is_empty(), "{text}");
}

#[test]
fn a_detached_run_has_the_time_that_its_job_took() {
    let laptop = Laptop::new();
    assert_eq!(status(&laptop.run("exec --detach -- sleep 2")), 0);
    let listed = || String::from_utf8(laptop.run("runs list").stdout).unwrap();
    let away = listed();
    assert!(away.contains("detached") && !away.contains(" s "), "{away}");
    // Nobody waits for it.
    let ended = || laptop.run("runs list --remote local").stdout;
    wait_for("the job to end", || String::from_utf8_lossy(&ended()).contains("done").then_some(()));
    assert_eq!(status(&laptop.run("runs attach latest")), 0);
    let seconds = laptop.latest_json("run.json")["seconds"].as_f64().unwrap();
    assert!(seconds >= 2.0, "{seconds}: {}", listed());
}

#[test]
fn what_has_come_home_is_not_kept_on_the_host_too() {
    let laptop = Laptop::new();
    let jobs = || fs::read_dir(laptop.path("agent/jobs")).map_or(0, |jobs| jobs.count());
    assert_eq!(status(&laptop.run("exec -- seq 1 1000")), 0);
    wait_for("the job to go", || (jobs() == 0).then_some(()));
    assert_eq!(status(&laptop.run("exec -- sh -c 'exit 3'")), 3);
    wait_for("the job to go", || (jobs() == 0).then_some(()));
    // What was left to itself is kept until it is brought.
    assert_eq!(status(&laptop.run("exec --detach -- seq 1 1000")), 0);
    assert_eq!(jobs(), 1);
    let brought = laptop.run("runs attach latest");
    assert_eq!((status(&brought), brought.stdout.len()), (0, 3893));
    wait_for("the job to go", || (jobs() == 0).then_some(()));
    // It is told again from what is here.
    assert_eq!(status(&laptop.run("runs attach latest")), 0);
}

#[test]
fn a_program_under_a_mode_asks_this_machine_once() {
    let laptop = Laptop::new();
    let shown = laptop.show("exec --mode nsys --lang sh --code true");
    assert_eq!(shown.matches("looking for this machine's GPUs and tools").count(), 1, "{shown}");
}
