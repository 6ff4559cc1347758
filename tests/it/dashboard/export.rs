//! `rgpu dashboard export` of damaged projects, and into folders that take no export.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;

use rustix::process::{Pid, Signal, kill_process};

use super::make_run;
use crate::faults::Disk;
use crate::laptop::{Laptop, status, wait_for};

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// The status of `dashboard export` into `folder`, and what it told.
fn export(laptop: &Laptop, folder: &str) -> (i32, String) {
    let output = laptop.run(&format!("dashboard export {folder}"));
    (status(&output), String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn an_export_has_the_good_runs_of_a_damaged_project() {
    let laptop = Laptop::new();
    make_run(&laptop, "good", "vecadd", 1);
    make_run(&laptop, "cut", "vecadd", 2);
    make_run(&laptop, "newer", "vecadd", 3);
    make_run(&laptop, "hostile", "</script><script>alert(1)</script>../../x", 4);
    make_run(&laptop, "moved", "vecadd", 5);
    let runs = laptop.project("artifacts/runs");
    fs::write(runs.join("cut/profile.json"), "{\"schema\": \"rgpu.pro").unwrap();
    fs::write(runs.join("newer/profile.json"), "{\"schema\": \"rgpu.profile/7\"}").unwrap();
    fs::create_dir(runs.join("half")).unwrap();
    fs::write(runs.join("half/run.json"), "{\"schema\"").unwrap();
    let record = fs::read_to_string(runs.join("moved/run.json")).unwrap();
    fs::write(runs.join("moved/run.json"), record.replace("\"moved\"", "\"../../moved\"")).unwrap();
    let (status, told) = export(&laptop, "page");
    assert_eq!(status, 0, "{told}");
    let folder = laptop.project("page");
    assert_eq!(names(&folder), ["index.html", "runs"]);
    assert_eq!(names(&folder.join("runs")), ["good", "hostile"]);
    let page = fs::read_to_string(folder.join("index.html")).unwrap();
    assert!(!page.contains("<script>alert(1)"), "a name is markup");
    assert!(page.contains("rgpu.profile/7") && page.contains("profile.json cannot be read"));
    let report = fs::read_to_string(folder.join("runs/hostile/report.html")).unwrap();
    assert!(!report.contains("<script>alert(1)"), "a name is markup");
    // A run that is gone is gone from the next export, which takes the place of this one.
    fs::remove_dir_all(runs.join("good")).unwrap();
    fs::write(folder.join("CNAME"), "mine").unwrap();
    let (status, told) = export(&laptop, "page");
    assert_eq!(status, 0, "{told}");
    assert_eq!(names(&folder), ["CNAME", "index.html", "runs"]);
    assert_eq!(names(&folder.join("runs")), ["hostile"]);
    // The documents of every run that is left keep to their schemas.
    for run in ["newer", "moved"] {
        fs::remove_dir_all(runs.join(run)).unwrap();
    }
}

#[test]
fn folders_of_others_are_not_overwritten() {
    let laptop = Laptop::new();
    make_run(&laptop, "good", "vecadd", 1);
    fs::write(laptop.project("file"), "mine").unwrap();
    let (status, told) = export(&laptop, "file/page");
    assert_eq!(status, 8, "{told}");
    assert_eq!(fs::read_to_string(laptop.project("file")).unwrap(), "mine");
    // The folder of the runs looks like the one of an export's reports.
    let (status, told) = export(&laptop, "artifacts");
    assert_eq!(status, 2, "{told}");
    assert!(told.contains("no export made"), "{told}");
    assert!(laptop.project("artifacts/runs/good/run.json").is_file());
    assert!(!names(&laptop.project("artifacts")).iter().any(|name| name.starts_with(".writing")));
    fs::create_dir(laptop.project("site")).unwrap();
    fs::write(laptop.project("site/index.html"), "<!doctype html><title>mine</title>").unwrap();
    let (status, told) = export(&laptop, "site");
    assert_eq!(status, 2, "{told}");
    assert_eq!(names(&laptop.project("site")), ["index.html"]);
}

#[test]
fn a_full_or_read_only_disk_leaves_nothing_of_an_export() {
    let laptop = Laptop::new();
    make_run(&laptop, "good", "vecadd", 1);
    let folder = laptop.project("page");
    fs::create_dir(&folder).unwrap();
    {
        let Some(_disk) = Disk::mount(&folder, "size=64k") else { return };
        let (status, told) = export(&laptop, "page");
        assert_eq!(status, 8, "{told}");
        assert!(told.contains("No space left on device"), "{told}");
        assert_eq!(names(&folder), [""; 0]);
    }
    {
        let Some(_disk) = Disk::mount(&folder, "size=1m,ro") else { return };
        let (status, told) = export(&laptop, "page");
        assert_eq!(status, 8, "{told}");
        assert!(told.contains("Read-only file system"), "{told}");
    }
    let (status, told) = export(&laptop, "page");
    assert_eq!(status, 0, "{told}");
}

/// Exports six runs into `page`, and does `meanwhile` once the newest run's report is written. The
/// export is stopped during that, and goes on with `signal`.
fn export_interrupted(laptop: &Laptop, signal: Signal, meanwhile: impl FnOnce()) -> Output {
    for at in 0..6 {
        make_run(laptop, &format!("run{at}"), "vecadd", [1, 2, 4, 5, 6, 7][at]);
    }
    let child = laptop.start("dashboard export page");
    let pid = Pid::from_child(&child);
    let written = || -> Option<PathBuf> {
        let entries = fs::read_dir(laptop.project("page")).ok()?.flatten();
        let mut staged =
            entries.filter(|e| e.file_name().to_string_lossy().starts_with(".writing"));
        Some(staged.next()?.path().join("new/runs"))
    };
    wait_for("the first report", || written()?.join("run5/report.html").is_file().then_some(()));
    kill_process(pid, Signal::STOP).unwrap();
    assert!(!written().unwrap().join("run0").exists(), "the export was faster than this test");
    meanwhile();
    kill_process(pid, signal).unwrap();
    kill_process(pid, Signal::CONT).unwrap();
    child.wait_with_output().unwrap()
}

#[test]
fn a_run_that_is_removed_meanwhile_is_left_out_and_named() {
    let laptop = Laptop::new();
    let output = export_interrupted(&laptop, Signal::CONT, || {
        fs::remove_dir_all(laptop.project("artifacts/runs/run0")).unwrap();
        // Its report is written, so it stays.
        fs::remove_dir_all(laptop.project("artifacts/runs/run5")).unwrap();
    });
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(status(&output), 0, "{told}");
    assert_eq!(told, "`run0` is left out: it was removed meanwhile\n");
    let folder = laptop.project("page");
    assert_eq!(names(&folder), ["index.html", "runs"]);
    assert_eq!(names(&folder.join("runs")), ["run1", "run2", "run3", "run4", "run5"]);
    let page = fs::read_to_string(folder.join("index.html")).unwrap();
    assert!(!page.contains("run0"), "the page lists a run that it does not have");
    assert!(page.contains("/runs/run5") && page.contains("/runs/run1"));
}

#[test]
fn ctrl_c_leaves_nothing_of_an_export_and_an_earlier_one_whole() {
    let laptop = Laptop::new();
    make_run(&laptop, "earlier", "vecadd", 1);
    assert_eq!(export(&laptop, "page").0, 0);
    let folder = laptop.project("page");
    let files = || {
        let files = walkdir::WalkDir::new(&folder).sort_by_file_name().into_iter().flatten();
        files.map(|file| (file.path().to_owned(), fs::read(file.path()).ok())).collect::<Vec<_>>()
    };
    let before = files();
    let output = export_interrupted(&laptop, Signal::INT, || ());
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(status(&output), 130, "{told}");
    assert_eq!(told, "error: the export was cancelled; nothing of it was kept\n");
    assert!(files() == before, "{:?}", names(&folder));
    laptop.wait_until_quiet();
    assert_eq!(names(&laptop.path("tmp")), [""; 0]);
    // The next one has nothing in its way.
    assert_eq!(export(&laptop, "page").0, 0);
    assert_eq!(names(&folder.join("runs")).len(), 7);
}

#[test]
fn an_export_is_not_written_through_a_link_of_the_project() {
    let laptop = Laptop::new();
    let mine = laptop.path("mine");
    fs::create_dir(&mine).unwrap();
    for (link, folder) in [("page", "page"), ("site", "site/page"), ("artifacts", "artifacts/p/")] {
        std::os::unix::fs::symlink(&mine, laptop.project(link)).unwrap();
        let (status, told) = export(&laptop, folder);
        assert_eq!(status, 3, "{told}");
        assert!(told.contains("is a symbolic link"), "{told}");
        assert_eq!(fs::read_dir(&mine).unwrap().count(), 0, "{told}");
        fs::remove_file(laptop.project(link)).unwrap();
    }
    // The user's own word holds.
    let (status, told) = export(&laptop, &mine.display().to_string());
    assert_eq!(status, 0, "{told}");
}
