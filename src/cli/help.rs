//! `rgpu help PAGE`, and the pages of `--help`: examples first, then the flags that most users
//! need. The flags of one tool are behind `--help=TOPIC`.

use std::ffi::OsString;

use clap::builder::StyledStr;
use clap::{Arg, Command};

use super::support::terminal::escape_controls;
use rgpu_model::error::nearest;

/// A document that `rgpu help NAME` prints.
struct Page {
    name: &'static str,
    text: &'static str,
}

/// The documents: README.md, those of docs/, and the keys of kernel.toml. A document in a folder of
/// docs/ has that folder's name before its own.
macro_rules! pages {
    ($($name:literal: $path:literal),+ $(,)?) => {
        &[$(Page { name: $name, text: include_str!(concat!("../../", $path)) }),+]
    };
}

const PAGES: &[Page] = pages! {
    "readme": "README.md",
    "docs": "docs/README.md",
    "kernel-toml": "kernels/README.md",
    "bench": "docs/bench.md",
    "build": "docs/build.md",
    "commands": "docs/commands.md",
    "configuration": "docs/configuration.md",
    "dashboard": "docs/dashboard.md",
    "evidence-install": "docs/evidence/install.md",
    "evidence-judge": "docs/evidence/judge.md",
    "evidence-model": "docs/evidence/model.md",
    "evidence-programs": "docs/evidence/programs.md",
    "evidence-ranks": "docs/evidence/ranks.md",
    "evidence-remotes": "docs/evidence/remotes.md",
    "evidence-steps": "docs/evidence/steps.md",
    "evidence-suites": "docs/evidence/suites.md",
    "evidence": "docs/evidence/README.md",
    "exec": "docs/exec.md",
    "faults": "docs/faults.md",
    "formats": "docs/formats.md",
    "install": "docs/install.md",
    "ladders": "docs/ladders.md",
    "layout": "docs/layout.md",
    "loop": "docs/loop.md",
    "mcp": "docs/mcp.md",
    "model": "docs/model.md",
    "output": "docs/output.md",
    "problems": "docs/problems.md",
    "programs": "docs/programs.md",
    "python": "docs/python.md",
    "pytorch": "docs/pytorch.md",
    "queue": "docs/queue.md",
    "ranks": "docs/ranks.md",
    "reading-a-profile": "docs/reading-a-profile.md",
    "regions": "docs/regions.md",
    "remotes-http": "docs/remotes/http.md",
    "remotes-local": "docs/remotes/local.md",
    "remotes-modal": "docs/remotes/modal.md",
    "remotes-slurm": "docs/remotes/slurm.md",
    "remotes-ssh": "docs/remotes/ssh.md",
    "remotes-wafer": "docs/remotes/wafer.md",
    "remotes": "docs/remotes.md",
    "settings": "docs/settings.md",
    "tuning": "docs/tuning.md",
};

/// The names of all documents.
pub(super) fn page_names() -> impl Iterator<Item = &'static str> {
    PAGES.iter().map(|page| page.name)
}

/// The document that a command line `rgpu help PAGE` names. `None` for any other command line.
pub(super) fn page(argv: &[OsString]) -> Option<String> {
    let [_, help, name] = argv else { return None };
    if help != "help" {
        return None;
    }
    let page = PAGES.iter().find(|page| name == page.name)?;
    let mut text = escape_controls(page.text.as_bytes());
    let root = super::args::Cli::command_list();
    if root.iter().any(|command| command == page.name) {
        text += &format!("\nThe flags: rgpu {} --help\n", page.name);
    }
    Some(text)
}

/// What to type instead of a document or command that does not exist. `None` for a command line
/// without one.
pub(super) fn nearest_page(argv: &[OsString]) -> Option<String> {
    let [_, help, name, ..] = argv else { return None };
    let typed = name.to_str().filter(|_| help == "help")?;
    let commands = super::args::Cli::command_list();
    let of_commands = commands.iter().map(String::as_str);
    let own: Vec<&str> = page_names().filter(|page| !commands.iter().any(|c| c == page)).collect();
    let near = nearest(typed, own.iter().copied().chain(of_commands));
    let near: Vec<String> = near.iter().map(|name| format!("`rgpu help {name}`")).collect();
    Some(if near.is_empty() {
        format!("there are the commands of `rgpu --help`, and {}", own.join(", "))
    } else {
        format!("did you mean {}?", near.join(", "))
    })
}

/// A subject of `--help=TOPIC`: flags with this heading.
struct Topic {
    name: &'static str,
    heading: &'static str,
}

const TOPICS: &[Topic] = &[
    Topic { name: "ncu", heading: "Nsight Compute" },
    Topic { name: "nsys", heading: "Nsight Systems" },
    Topic { name: "sanitizer", heading: "compute-sanitizer" },
    Topic { name: "deep", heading: "Mode deep" },
    Topic { name: "window", heading: "Part of the run" },
    Topic { name: "ranks", heading: "Ranks and several GPUs" },
    Topic { name: "slurm", heading: "Slurm" },
    Topic { name: "sweep", heading: "Sweeps" },
    Topic { name: "record", heading: "Record of the run" },
];

/// The topic of every flag.
const ALL: &str = "all";

/// The topic that `--help=TOPIC` names.
pub(super) fn asked_topic(argv: &[OsString]) -> Option<&str> {
    let words = argv.iter().take_while(|word| *word != "--").filter_map(|word| word.to_str());
    words.into_iter().find_map(|word| word.strip_prefix("--help="))
}

/// The page of `--help`, `-h`, `rgpu help COMMAND` or `--help=TOPIC` of the command that was typed.
/// `root` is the built command line. Fails with the command's topics if there is no such topic.
pub(super) fn help_page(root: &Command, argv: &[OsString]) -> Result<StyledStr, Vec<&'static str>> {
    let words: Vec<&str> = argv.iter().skip(1).filter_map(|word| word.to_str()).collect();
    let typed_help = words.first() == Some(&"help");
    let mut command = root;
    for word in words.iter().skip(usize::from(typed_help)) {
        match command.find_subcommand(word) {
            Some(inner) => command = inner,
            None if word.starts_with('-') => {}
            None => break,
        }
    }
    let topics = topics_of(command);
    if let Some(asked) = asked_topic(argv) {
        return match topics.iter().find(|topic| topic.name == asked) {
            Some(topic) => Ok(topic_page(command, topic)),
            None if asked == ALL => Ok(examples_first(command.clone()).render_long_help()),
            None => Err(topics.iter().map(|topic| topic.name).chain([ALL]).collect()),
        };
    }
    let is_long =
        typed_help || words.iter().take_while(|word| **word != "--").any(|word| *word == "--help");
    Ok(match (topics.is_empty(), is_long) {
        (true, true) => examples_first(command.clone()).render_long_help(),
        (true, false) => command.clone().render_help(),
        (false, _) => common_page(command, &topics, is_long),
    })
}

/// The topics that the command has flags of.
fn topics_of(command: &Command) -> Vec<&'static Topic> {
    let has = |topic: &&Topic| command.get_arguments().any(|arg| is_about(arg, topic));
    let topics: Vec<&Topic> = TOPICS.iter().filter(has).collect();
    // A command with the flags of one run alone is short enough.
    if topics.len() > 1 { topics } else { Vec::new() }
}

fn is_about(arg: &Arg, topic: &Topic) -> bool {
    arg.get_help_heading() == Some(topic.heading)
}

/// The flags of one topic, with their whole text.
fn topic_page(command: &Command, topic: &Topic) -> StyledStr {
    let command = command.clone().mut_args(|arg| {
        let hide = !is_about(&arg, topic);
        arg.hide(hide)
    });
    command.after_long_help("").help_template("{all-args}").render_long_help()
}

/// The flags that belong to no topic, a line or two for each. The long page has the examples too.
fn common_page(command: &Command, topics: &[&Topic], is_long: bool) -> StyledStr {
    let names: Vec<&str> = topics.iter().map(|topic| topic.name).chain([ALL]).collect();
    let more = format!("More flags: --help={}", names.join(", --help="));
    let command = command.clone().mut_args(|arg| {
        let hide = arg.is_hide_set() || topics.iter().any(|topic| is_about(&arg, topic));
        arg.hide(hide)
    });
    let mut command = command.after_help(more);
    match (is_long, command.get_after_long_help().cloned()) {
        (true, Some(examples)) => with_examples(command, examples).render_help(),
        _ => command.render_help(),
    }
}

/// The command with its examples before the flags.
fn examples_first(command: Command) -> Command {
    match command.get_after_long_help().cloned() {
        Some(text) if text.to_string().starts_with("Examples:") => {
            with_examples(command, text).after_long_help("")
        }
        _ => command,
    }
}

fn with_examples(command: Command, examples: StyledStr) -> Command {
    command.before_help(examples.clone()).before_long_help(examples).help_template(
        "{about-with-newline}\n{usage-heading} {usage}\n\n{before-help}{all-args}{after-help}",
    )
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use clap::CommandFactory;

    use super::*;
    use crate::cli::args::Cli;

    fn shown(line: &str) -> String {
        let mut root = Cli::command();
        root.build();
        let argv: Vec<OsString> = line.split(' ').map(OsString::from).collect();
        help_page(&root, &argv).unwrap().to_string()
    }

    #[test]
    fn help_of_profile_has_examples_first_and_the_tools_flags_behind_their_topic() {
        let page = shown("rgpu profile --help");
        let at = |word: &str| page.find(word).unwrap_or_else(|| panic!("{word}: {page}"));
        assert!(at("rgpu profile vecadd") < at("--mode"), "{page}");
        assert!(!page.contains("--launch-skip") && !page.contains("--hang"), "{page}");
        assert!(at("--mode") < at("More flags: --help=ncu"), "{page}");
        let lines = page.lines().count();
        assert!(lines <= 95, "{lines} lines: {page}");
        let short = shown("rgpu profile -h").lines().count();
        assert!(short < lines, "{short} {lines}");
        let ncu = shown("rgpu profile --help=ncu");
        assert!(ncu.contains("--launch-skip") && !ncu.contains("--hang"), "{ncu}");
        assert!(!ncu.contains("--json"), "{ncu}");
        let all = shown("rgpu profile --help=all");
        assert!(all.contains("--launch-skip") && all.contains("--hang"), "{all}");
    }

    #[test]
    fn every_flag_is_on_a_page() {
        let mut root = Cli::command();
        root.build();
        let profile = root.find_subcommand("profile").unwrap();
        let names = topics_of(profile).into_iter().map(|topic| format!("--help={}", topic.name));
        let pages: String = names
            .chain(["--help".to_owned()])
            .map(|word| shown(&format!("rgpu profile {word}")))
            .collect();
        for arg in profile.get_arguments().filter(|arg| !arg.is_hide_set()) {
            let Some(long) = arg.get_long() else { continue };
            assert!(pages.contains(&format!("--{long}")), "--{long}");
        }
    }

    #[test]
    fn an_unknown_topic_names_those_there_are() {
        let mut root = Cli::command();
        root.build();
        let argv = ["rgpu", "profile", "--help=foo"].map(OsString::from);
        let topics = help_page(&root, &argv).unwrap_err();
        assert!(topics.contains(&"ncu") && topics.contains(&ALL), "{topics:?}");
    }

    /// The text files below a folder of this repository.
    fn texts(folder: &str) -> Vec<(String, String)> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
        let files = walkdir::WalkDir::new(folder).into_iter().filter_map(Result::ok);
        let files = files.filter(|file| file.file_type().is_file());
        let texts = files.filter_map(|file| {
            let text = std::fs::read_to_string(file.path()).ok()?;
            Some((file.path().display().to_string(), text))
        });
        texts.collect()
    }

    /// The name of the page of a document in docs/: `remotes-ssh` for docs/remotes/ssh.md, and that
    /// of its folder for a README.md.
    fn page_name(path: &str) -> String {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs");
        let inner = Path::new(path).strip_prefix(folder).unwrap().with_extension("");
        let words = inner.iter().map(|word| word.to_string_lossy().into_owned());
        let words: Vec<String> = words.filter(|word| word != "README").collect();
        if words.is_empty() { "docs".to_owned() } else { words.join("-") }
    }

    #[test]
    fn every_document_is_a_page_and_every_hint_names_one() {
        let names: BTreeSet<&str> = PAGES.iter().map(|page| page.name).collect();
        for (path, _) in texts("docs") {
            let name = page_name(&path);
            assert!(names.contains(name.as_str()), "{path} is no page");
        }
        let root = Cli::command();
        let commands: Vec<&str> = root.get_subcommands().map(Command::get_name).collect();
        let hint = regex::Regex::new(r"rgpu help ([a-z][a-z-]*)").unwrap();
        let path_of_document = regex::Regex::new(r"docs/[a-z/-]+\.md").unwrap();
        let mut hints = 0;
        for (path, text) in texts("src").into_iter().chain(texts("harness/templates")) {
            for found in hint.captures_iter(&text) {
                let name = &found[1];
                hints += 1;
                assert!(names.contains(name) || commands.contains(&name), "{path}: {name}");
            }
            // The page of the dashboard and the comments are for those who have the repository.
            let lines = text.lines().filter(|line| !line.trim_start().starts_with("//"));
            for line in
                lines.filter(|line| !path.ends_with("cli/help.rs") && !line.contains("include_str"))
            {
                assert!(!path_of_document.is_match(line), "{path} names a file: {line}");
            }
        }
        assert!(hints >= 4, "{hints}");
        let listed = root.get_after_long_help().unwrap().to_string();
        for name in names {
            assert!(listed.contains(name), "`rgpu --help` does not list {name}");
        }
    }

    #[test]
    fn a_mistyped_page_or_command_gets_the_nearest() {
        let of =
            |words: &[&str]| nearest_page(&words.iter().map(OsString::from).collect::<Vec<_>>());
        let hint = |typed: &str| of(&["rgpu", "help", typed]).unwrap();
        assert_eq!(hint("settngs"), "did you mean `rgpu help settings`?");
        assert_eq!(hint("profle"), "did you mean `rgpu help profile`?");
        assert_eq!(hint("benhc"), "did you mean `rgpu help bench`?");
        assert!(hint("zzzzzz").ends_with("tuning"), "{}", hint("zzzzzz"));
        assert_eq!(of(&["rgpu", "settngs"]), None);
    }

    #[test]
    fn a_page_is_printed_for_its_name_alone() {
        let of = |words: &[&str]| page(&words.iter().map(OsString::from).collect::<Vec<_>>());
        assert!(of(&["rgpu", "help", "loop"]).unwrap().ends_with("rgpu loop --help\n"));
        assert!(of(&["rgpu", "help", "settings"]).unwrap().starts_with("# "));
        assert_eq!(of(&["rgpu", "help", "profile"]), None);
        assert_eq!(of(&["rgpu", "loop", "settings"]), None);
    }
}
