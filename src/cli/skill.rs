//! `rgpu skill`: the skill that tells coding agents how to work with rgpu.

use std::io;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand, ValueHint};
use etcetera::home_dir;
use schemars::JsonSchema;
use serde::Serialize;

use super::support::app::{App, Status};
use crate::mcp::SKILL;
use rgpu_model::error::{Exit, Failure, Result};
use rgpu_model::regular_file;
use rgpu_run::store::atomic;

/// Agents with a folder for skills, below the user's home.
const AGENTS: &[(&str, &str)] =
    &[("claude", ".claude"), ("codex", ".codex"), ("cursor", ".cursor")];

/// The largest skill that is read.
const MAX_SKILL_BYTES: u64 = 1 << 20;

/// How our own file begins.
const OWN_HEAD: &str = "---\nname: rgpu\n";

/// Tell coding agents how to work with rgpu
#[derive(Subcommand, Clone, Debug)]
pub(super) enum SkillCommand {
    /// Write the skill where agents look for skills
    #[command(after_long_help = examples!(
        "rgpu skill install",
        "rgpu skill install --for claude",
        "rgpu skill install --for .agents/skills",
    ))]
    Install(InstallArgs),
    /// Print the skill
    #[command(after_long_help = examples!("rgpu skill show"))]
    Show,
}

#[derive(Args, Clone, Debug)]
pub(super) struct InstallArgs {
    /// An agent, for all projects of this user, or a folder of skills [default: the agents that
    /// have settings in your home folder]
    #[arg(long = "for", value_name = "claude|codex|cursor|DIR", value_hint = ValueHint::DirPath)]
    pub target: Option<String>,

    /// Overwrite a skill of this name that is not rgpu's
    #[arg(long)]
    pub force: bool,
}

/// The output of `skill install --json` (`rgpu.skill/1`).
#[derive(Serialize, JsonSchema)]
pub(super) struct InstalledSkill {
    /// Name and version of this schema: `rgpu.skill/1`.
    schema: String,
    /// The files that were written.
    files: Vec<PathBuf>,
}

pub(super) fn run(app: &App, command: &SkillCommand) -> Result<Status> {
    match command {
        SkillCommand::Install(args) => install(app, args),
        SkillCommand::Show => {
            app.print(SKILL);
            Ok(0)
        }
    }
}

fn install(app: &App, args: &InstallArgs) -> Result<Status> {
    let home = home_dir().map_err(|e| {
        Failure::new(Exit::Config, "no_home", "your home folder is unknown").cause(e)
    })?;
    let files: Vec<PathBuf> = folders(app, &home, args.target.as_deref())?
        .iter()
        .map(|folder| folder.join("rgpu/SKILL.md"))
        .collect();
    let is_agent = |target: &String| AGENTS.iter().any(|(name, _)| name == target);
    let is_folder = args.target.as_ref().is_some_and(|target| !is_agent(target));
    for file in &files {
        if let Some(folder) = file.parent().filter(|_| is_folder) {
            app.config.check_output_folder(folder)?;
        }
        check(file, args.force)?;
    }
    for file in &files {
        let written = file.parent().map_or(Ok(()), atomic::make_folder);
        written.and_then(|()| atomic::write(file, SKILL.as_bytes())).map_err(|e| {
            Failure::new(Exit::Disk, "disk", "the skill cannot be written")
                .file(file.display())
                .cause(e)
        })?;
    }
    if app.global.json {
        app.print_json(&InstalledSkill { schema: "rgpu.skill/1".to_owned(), files })?;
    } else {
        files.iter().for_each(|file| app.print(&format!("{}\n", file.display())));
    }
    Ok(0)
}

/// The folders of skills to write into.
fn folders(app: &App, home: &Path, target: Option<&str>) -> Result<Vec<PathBuf>> {
    let of_agent = |folder: &str| home.join(folder).join("skills");
    if let Some(target) = target {
        let agent = AGENTS.iter().find(|(name, _)| *name == target);
        return Ok(vec![match agent {
            Some((_, folder)) => of_agent(folder),
            None if !target.contains('/') && !app.cwd.join(target).is_dir() => {
                let what = format!("`{target}` is neither an agent nor a folder");
                return Err(Failure::new(Exit::Usage, "unknown_agent", what).hint(
                    "agents: claude, codex, cursor; a new folder is named with a slash: ./skills/",
                ));
            }
            // Without `./`, which the printed path would otherwise keep.
            None => app.cwd.join(target).components().collect(),
        }]);
    }
    let present = AGENTS.iter().filter(|(_, folder)| home.join(folder).is_dir());
    let found: Vec<PathBuf> = present.map(|(_, folder)| of_agent(folder)).collect();
    if found.is_empty() {
        Err(Failure::new(Exit::Config, "no_agent", "no agent has settings in your home")
            .cause("looked for .claude, .codex and .cursor")
            .hint("name one: `rgpu skill install --for claude`, or a folder of skills"))
    } else {
        Ok(found)
    }
}

/// Refuses to overwrite a file that is not ours, or that somebody may have changed.
fn check(file: &Path, force: bool) -> Result<()> {
    let (code, what) = match regular_file::read_to_string(file, MAX_SKILL_BYTES) {
        _ if force => return Ok(()),
        Ok(text) if text == SKILL => return Ok(()),
        Ok(text) if text.starts_with(OWN_HEAD) => {
            ("other_text", "the installed skill is another version, or was changed")
        }
        // Writing a file below another file reports that.
        Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            return Ok(());
        }
        _ => ("foreign_file", "another skill has this name"),
    };
    let failure = Failure::new(Exit::Usage, code, what).file(file.display());
    Err(failure.hint("`--force` overwrites it"))
}
