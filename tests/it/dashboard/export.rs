//! `rgpu dashboard export` of damaged projects, and into folders that take no export.

use std::fs;
use std::path::Path;

use super::make_run;
use crate::faults::Disk;
use crate::laptop::{Laptop, status};

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
