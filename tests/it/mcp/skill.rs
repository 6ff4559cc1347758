//! The skill: its commands work, and it goes only where it should.

use std::fs;
use std::os::unix::fs::symlink;

use crate::fake_host::FakeHost;
use crate::laptop::{Laptop, status};

#[test]
fn every_command_of_the_skill_works_in_its_order() {
    let laptop = Laptop::new();
    FakeHost::new(&laptop);
    let settings = laptop.path("config/config.toml");
    let text = fs::read_to_string(&settings).unwrap();
    fs::write(&settings, format!("default_remote = \"h200\"\n{text}")).unwrap();
    let blocks = rgpu::mcp::SKILL.split("```\n").skip(1).step_by(2);
    let commands: Vec<&str> = blocks.flat_map(str::lines).collect();
    assert!(commands.len() > 6, "{commands:?}");
    for command in commands {
        let output = laptop.run(command.strip_prefix("rgpu ").unwrap());
        assert_eq!(status(&output), 0, "{}", laptop.shown(command, &output));
    }
}

#[test]
fn the_skill_is_installed_where_agents_look_and_replaces_no_other() {
    let laptop = Laptop::new();
    let none = laptop.show("skill install");
    assert!(none.contains("no agent has settings in your home"), "{none}");
    for folder in [".claude", ".cursor"] {
        fs::create_dir(laptop.path("home").join(folder)).unwrap();
    }
    let installed = |line: &str| {
        let output = laptop.run(&format!("skill install {line} --json"));
        assert_eq!(status(&output), 0, "{}", laptop.shown(line, &output));
        let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let files = document["files"].as_array().unwrap().clone();
        let files: Vec<String> =
            files.iter().map(|file| laptop.filtered(file.as_str().unwrap())).collect();
        files
    };
    let both =
        ["[TMP]/home/.claude/skills/rgpu/SKILL.md", "[TMP]/home/.cursor/skills/rgpu/SKILL.md"];
    assert_eq!(installed(""), both);
    assert_eq!(installed("--for claude"), both[..1]);
    assert_eq!(installed("--for codex"), ["[TMP]/home/.codex/skills/rgpu/SKILL.md"]);
    let misspelt = laptop.show("skill install --for claud");
    assert!(misspelt.contains("neither an agent nor a folder"), "{misspelt}");
    assert_eq!(installed("--for ./mine"), ["[TMP]/project/mine/rgpu/SKILL.md"]);
    let text = fs::read_to_string(laptop.project("mine/rgpu/SKILL.md")).unwrap();
    assert_eq!(text, rgpu::mcp::SKILL);
    laptop.write("mine/rgpu/SKILL.md", "---\nname: other\n---\n");
    let refused = laptop.run("skill install --for ./mine");
    assert_eq!(status(&refused), 2);
    assert_eq!(installed("--for ./mine --force").len(), 1);
    let shown = laptop.run("skill show");
    assert_eq!(shown.stdout, rgpu::mcp::SKILL.as_bytes());
}

#[test]
fn a_link_of_the_project_leads_the_skill_nowhere() {
    let laptop = Laptop::new();
    let elsewhere = laptop.path("home/elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    fs::create_dir_all(laptop.project(".claude/skills")).unwrap();
    symlink(&elsewhere, laptop.project(".claude/skills/rgpu")).unwrap();
    let said = laptop.show("skill install --for .claude/skills --force");
    assert!(said.contains("is a symbolic link, which is not followed"), "{said}");
    assert_eq!(fs::read_dir(&elsewhere).unwrap().count(), 0);
    // A link in place of the file is replaced.
    fs::create_dir_all(laptop.project("mine/rgpu")).unwrap();
    symlink(elsewhere.join("new"), laptop.project("mine/rgpu/SKILL.md")).unwrap();
    assert_eq!(status(&laptop.run("skill install --for ./mine")), 0);
    assert_eq!(fs::read_dir(&elsewhere).unwrap().count(), 0);
    let text = fs::read_to_string(laptop.project("mine/rgpu/SKILL.md")).unwrap();
    assert_eq!(text, rgpu::mcp::SKILL);
}
