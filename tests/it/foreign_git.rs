//! What a `.git` that somebody else has made can lead to: an unpacked archive or a share brings one
//! with links, paths and settings of its own.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use crate::laptop::{Laptop, status, words};
use crate::loops::TestLoop;

const DRY_RUN: &str = "loop start loop.toml --mode dry-run max_iterations=1";

fn git(folder: &Path, line: &str) -> String {
    let mut git = std::process::Command::new("git");
    git.arg("-C").arg(folder).args(["-c", "user.name=x", "-c", "user.email=x@x"]);
    git.args(["-c", "protocol.file.allow=always"]);
    let output = git.args(line.split(' ')).output().unwrap();
    assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// A repository with one commit.
fn make_repository(folder: &Path) {
    fs::create_dir_all(folder).unwrap();
    fs::write(folder.join("mine"), "private\n").unwrap();
    git(folder, "init -q");
    git(folder, "add -A");
    git(folder, "commit -q -m mine");
}

/// All files and links below a folder, with what is in them.
fn content(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let entries = walkdir::WalkDir::new(folder).into_iter().map(Result::unwrap);
    let content = |entry: walkdir::DirEntry| {
        let bytes =
            if entry.file_type().is_file() { fs::read(entry.path()).unwrap() } else { Vec::new() };
        (entry.into_path(), bytes)
    };
    entries.map(content).collect()
}

/// Makes something in the project (first) lead to the user's repository (second).
type Way = (&'static str, fn(&Path, &Path));

const WAYS: &[Way] = &[
    ("a file to another repository", |project, mine| {
        fs::write(project.join(".git"), format!("gitdir: {}/.git\n", mine.display())).unwrap();
    }),
    ("a link to another repository", |project, mine| {
        symlink(mine.join(".git"), project.join(".git")).unwrap();
    }),
    ("another common folder", |project, mine| {
        make_repository(project);
        let common = format!("{}/.git\n", mine.display());
        fs::write(project.join(".git/commondir"), common).unwrap();
    }),
    ("another common folder behind a file", |project, mine| {
        make_repository(project);
        fs::rename(project.join(".git"), project.join("store")).unwrap();
        fs::write(project.join(".git"), "gitdir: store\n").unwrap();
        let common = format!("{}/.git\n", mine.display());
        fs::write(project.join("store/commondir"), common).unwrap();
    }),
    ("a work tree that names only itself", |project, mine| {
        make_repository(project);
        fs::rename(project.join(".git"), project.join("store")).unwrap();
        fs::write(project.join(".git"), "gitdir: store\n").unwrap();
        let entry = format!("{}\n", project.join(".git").display());
        fs::write(project.join("store/gitdir"), entry).unwrap();
        let common = format!("{}/.git\n", mine.display());
        fs::write(project.join("store/commondir"), common).unwrap();
    }),
    ("another work tree", |project, mine| {
        make_repository(project);
        git(project, &format!("config core.worktree {}", mine.display()));
    }),
    ("a work tree above", |project, _| {
        make_repository(project);
        git(project, "config core.worktree ../..");
    }),
    ("a link for the objects", |project, mine| {
        make_repository(project);
        replace_by_link(&project.join(".git/objects"), &mine.join(".git/objects"));
    }),
    ("a link among the objects", |project, mine| {
        make_repository(project);
        let kinds = mine.join("kept");
        fs::create_dir(&kinds).unwrap();
        symlink(&kinds, project.join(".git/objects/zz")).unwrap();
    }),
    ("a link for refs", |project, mine| {
        make_repository(project);
        symlink(mine.join(".git/refs"), project.join(".git/refs/rgpu")).unwrap();
    }),
    ("a link for packed refs", |project, mine| {
        make_repository(project);
        symlink(mine.join(".git/packed-refs"), project.join(".git/packed-refs")).unwrap();
    }),
    ("a link for logs", |project, mine| {
        make_repository(project);
        fs::create_dir_all(project.join(".git/logs/refs")).unwrap();
        symlink(mine.join(".git/logs/refs"), project.join(".git/logs/refs/rgpu")).unwrap();
    }),
];

fn replace_by_link(folder: &Path, target: &Path) {
    for entry in walkdir::WalkDir::new(folder).min_depth(1).max_depth(1) {
        let entry = entry.unwrap().into_path();
        let to = target.join(entry.file_name().unwrap());
        if !to.exists() {
            fs::rename(&entry, to).unwrap();
        }
    }
    fs::remove_dir_all(folder).unwrap();
    symlink(target, folder).unwrap();
}

#[test]
fn a_git_that_leads_out_of_the_project_is_refused_and_nothing_is_read_or_written_there() {
    for (name, way) in WAYS {
        let test = TestLoop::new(&[]);
        let laptop = &test.laptop;
        let mine = laptop.path("mine");
        make_repository(&mine);
        way(&laptop.project(""), &mine);
        let before = content(&mine);
        for line in
            [DRY_RUN, "queue add --snapshot patch -- true", "queue add --snapshot copy -- true"]
        {
            let output = laptop.run(&format!("--json {line}"));
            let shown = laptop.shown(line, &output);
            assert_eq!(status(&output), 3, "{name}: {shown}");
            assert!(shown.contains("foreign_repository"), "{name}: {shown}");
            assert!(shown.contains("rgpu uses no repository through `"), "{name}: {shown}");
            assert_eq!(content(&mine), before, "{name}: {line}");
        }
        let state = content(&laptop.project(".rgpu"));
        let copied = state.values().any(|bytes| String::from_utf8_lossy(bytes).contains("private"));
        assert!(!copied, "{name}: {state:?}");
    }
}

#[test]
fn a_loop_that_is_removed_leaves_the_refs_of_another_repository() {
    let test = TestLoop::new(&[]);
    let laptop = &test.laptop;
    let mine = laptop.path("mine");
    make_repository(&mine);
    test.run("--mode dry-run max_iterations=1", 0);
    let id = test.report()["id"].as_str().map(str::to_owned);
    let id = id.unwrap_or_else(|| panic!("{:#}", test.report()));
    let reference = format!("refs/rgpu/loop/{id}");
    git(&mine, &format!("update-ref {reference} HEAD"));
    fs::write(laptop.project(".git"), format!("gitdir: {}/.git\n", mine.display())).unwrap();
    let output = laptop.run("loop clean --keep 0 --yes");
    assert_eq!(status(&output), 0, "{}", laptop.shown("loop clean", &output));
    assert_eq!(git(&mine, &format!("rev-parse {reference}")), git(&mine, "rev-parse HEAD"));
}

#[test]
fn a_work_tree_and_a_submodule_keep_their_commits_and_snapshots() {
    let test = TestLoop::new(&[]);
    let laptop = &test.laptop;
    let project = laptop.project("");
    let aside = laptop.path("aside");
    let main = laptop.path("main");
    make_repository(&main);
    // The tool has its files there already.
    fs::rename(&project, &aside).unwrap();
    git(&main, &format!("worktree add -q --detach {}", project.display()));
    move_into(&aside, &project);
    let kept = |repository: &Path| {
        test.run("--mode dry-run max_iterations=1", 0);
        let refs = git(repository, "for-each-ref --format=%(refname) refs/rgpu/loop");
        assert_eq!(refs.lines().count(), 1, "{refs}");
        for mode in ["patch", "copy"] {
            let line = format!("queue add --snapshot {mode} -- true");
            let output = laptop.run(&line);
            assert_eq!(status(&output), 0, "{}", laptop.shown(&line, &output));
        }
    };
    kept(&main);
    // A submodule.
    fs::remove_file(project.join(".git")).unwrap();
    fs::remove_dir_all(project.join(".rgpu")).unwrap();
    fs::remove_dir_all(&aside).unwrap();
    fs::rename(&project, &aside).unwrap();
    let library = laptop.path("library");
    make_repository(&library);
    make_repository(&laptop.path(""));
    git(&laptop.path(""), &format!("submodule add -q {} project", library.display()));
    move_into(&aside, &project);
    kept(&project);
}

/// Moves what is in one folder into another.
fn move_into(from: &Path, to: &Path) {
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        if !to.join(entry.file_name()).exists() {
            fs::rename(entry.path(), to.join(entry.file_name())).unwrap();
        }
    }
}

/// A script that leaves a mark when it runs, then passes its input on.
fn write_filter(laptop: &Laptop, name: &str) -> (PathBuf, PathBuf) {
    let (script, mark) = (laptop.path(name), laptop.path(format!("{name}-ran")));
    fs::write(&script, format!("#!/bin/sh\ntouch '{}'\ncat\n", mark.display())).unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    (script, mark)
}

#[test]
fn a_filter_of_an_inner_repository_is_not_started() {
    let test = TestLoop::new(&[]);
    let laptop = &test.laptop;
    let project = laptop.project("");
    let (script, mark) = write_filter(laptop, "filter");
    make_repository(&project.join("inner"));
    make_repository(&project);
    git(&project.join("inner"), &format!("config filter.x.clean {}", script.display()));
    laptop.write("inner/.gitattributes", "* filter=x\n");
    laptop.write("inner/mine", "changed\n");
    git(&project, "add -A");
    assert!(mark.exists(), "git alone starts it");
    fs::remove_file(&mark).unwrap();
    test.run("--mode dry-run max_iterations=1", 0);
    assert_eq!(git(&project, "for-each-ref refs/rgpu/loop").lines().count(), 1);
    let output = laptop.run("queue add --snapshot patch -- true");
    assert_eq!(status(&output), 3, "{}", laptop.shown("queue add", &output));
    assert!(!mark.exists());
}

#[test]
fn the_users_own_filter_stays_and_the_repositorys_does_not() {
    let laptop = Laptop::new();
    let project = laptop.project("");
    let (own, own_ran) = write_filter(&laptop, "own");
    let (foreign, foreign_ran) = write_filter(&laptop, "foreign");
    make_repository(&project);
    laptop.write(".gitattributes", "mine filter=lfs\n");
    laptop.write("mine", "changed\n");
    let settings = format!("[filter \"lfs\"]\n\tclean = {}\n\trequired = true\n", own.display());
    fs::write(laptop.path("home/.gitconfig"), settings).unwrap();
    // This machine may have git-lfs in the settings of its system.
    let add = || {
        let mut command = laptop.rgpu(words("queue add --snapshot patch -- true"));
        status(&command.env("GIT_CONFIG_NOSYSTEM", "1").output().unwrap())
    };
    git(&project, &format!("config filter.lfs.clean {}", foreign.display()));
    assert_eq!(add(), 0);
    assert!(own_ran.exists() && !foreign_ran.exists());
    // git-lfs itself would start these.
    for key in [
        "lfs.extension.x.clean",
        "lfs.customtransfer.x.path",
        "lfs.standalonetransferagent",
        "core.sshCommand",
        "credential.https://x.helper",
        "lfs.storage",
    ] {
        fs::remove_file(&own_ran).unwrap_or_default();
        git(&project, &format!("config {key} {}", foreign.display()));
        assert_eq!(add(), 0, "{key}");
        assert!(!own_ran.exists() && !foreign_ran.exists(), "{key}");
        git(&project, &format!("config --unset {key}"));
    }
}

#[test]
fn variables_that_git_sets_for_its_hooks_choose_no_other_repository() {
    let laptop = Laptop::new();
    let mine = laptop.path("mine");
    make_repository(&mine);
    make_repository(&laptop.project(""));
    laptop.write("mine", "changed\n");
    let before = content(&mine);
    for (name, value) in [("GIT_DIR", ".git"), ("GIT_INDEX_FILE", ".git/index")] {
        let mut command = laptop.rgpu(words("queue add --snapshot patch -- cat mine"));
        let output = command.env(name, mine.join(value)).output().unwrap();
        assert_eq!(status(&output), 0, "{}", laptop.shown(name, &output));
    }
    let mut run = laptop.rgpu(words("queue run --once"));
    let output = run.env("GIT_DIR", mine.join(".git")).output().unwrap();
    assert_eq!(status(&output), 0, "{}", laptop.shown("queue run", &output));
    assert_eq!(content(&mine), before);
    let printed = laptop.run("queue log 1");
    assert!(String::from_utf8_lossy(&printed.stdout).contains("changed"));
}
