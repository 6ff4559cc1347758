//! The examples of README.md and docs/ that need no GPU are run as they stand there.
//!
//! In a fenced block with the info string `sh runs`, each line is a command. In one with
//! `console runs`, commands stand behind `$ `, and the lines below a command are printed by it, in
//! this order; a line `…` stands for lines left out. A command ends with status 0, or with that of
//! its comment, such as `# exit 3`.

use std::path::{Path, PathBuf};

use walkdir::{DirEntry, WalkDir};

use crate::laptop::{Laptop, status};

/// A command of a page.
struct Example {
    /// The line of the page, from 1 on.
    line_number: usize,
    /// The command without its comment.
    command: String,
    expected_status: i32,
    /// Lines that the command prints, among others.
    printed: Vec<String>,
}

impl Example {
    fn new(line_number: usize, typed: &str) -> Self {
        let (command, comment) = typed.split_once(" #").unwrap_or((typed, ""));
        let mut words = comment.split_whitespace();
        let names_status = words.next() == Some("exit");
        let expected_status =
            words.next().filter(|_| names_status).map_or(0, |word| word.parse().unwrap());
        let command = command.trim().to_owned();
        Self { line_number, command, expected_status, printed: Vec::new() }
    }
}

/// The examples of a page that are to be run, in order.
fn examples(page: &str) -> Vec<Example> {
    let mut found: Vec<Example> = Vec::new();
    let mut open_block: Option<&str> = None;
    for (index, line) in page.lines().enumerate() {
        if let Some(info) = line.strip_prefix("```") {
            open_block = if open_block.is_some() { None } else { Some(info.trim()) };
            continue;
        }
        let typed = match open_block {
            Some("sh runs") => Some(line),
            Some("console runs") => line.strip_prefix("$ "),
            _ => continue,
        };
        if let Some(typed) = typed {
            if !typed.trim().is_empty() {
                found.push(Example::new(index + 1, typed));
            }
        } else if let Some(example) = found.last_mut()
            && !matches!(line.trim(), "" | "…")
        {
            example.printed.push(line.trim_end().to_owned());
        }
    }
    found
}

/// Runs a command, and compares its status and what it prints with the page.
fn check(laptop: &Laptop, page: &Path, example: &Example) {
    let place = format!("{}:{}", page.display(), example.line_number);
    let args = example.command.strip_prefix("rgpu ");
    let args = args.unwrap_or_else(|| panic!("{place}: not a command of rgpu"));
    let output = laptop.run(args);
    let shown = laptop.shown(args, &output);
    assert_eq!(status(&output), example.expected_status, "{place}: {shown}");
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    let printed = stdout + &String::from_utf8_lossy(&output.stderr);
    let mut lines = printed.lines().map(str::trim_end);
    for expected in &example.printed {
        let is_printed = lines.any(|line| line == expected.as_str());
        assert!(is_printed, "{place}: it does not print `{expected}` here: {shown}");
    }
}

#[test]
fn the_examples_that_need_no_gpu_run_as_their_page_says() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let files = WalkDir::new(root.join("docs")).sort_by_file_name().into_iter();
    let files = files.filter_map(Result::ok).map(DirEntry::into_path);
    let is_page = |path: &PathBuf| path.extension().is_some_and(|end| end == "md");
    let mut pages: Vec<PathBuf> = files.filter(is_page).collect();
    pages.push(root.join("README.md"));
    let mut checked = 0;
    for page in pages {
        let examples = examples(&std::fs::read_to_string(&page).unwrap());
        if examples.is_empty() {
            continue;
        }
        // The examples of a page build on one another.
        let laptop = Laptop::new();
        for example in &examples {
            check(&laptop, &page, example);
        }
        checked += examples.len();
    }
    assert!(checked >= 10, "only {checked} examples are run");
}

#[test]
fn an_example_has_its_status_and_what_it_prints() {
    let page = "```\nrgpu top\n```\n```sh runs\nrgpu a  # exit 3\n\nrgpu b 'x y' # exits\n```\n\
                ```console runs\n$ rgpu c\none\n…\ntwo\n```\n";
    let found: Vec<_> = examples(page)
        .into_iter()
        .map(|example| {
            (example.line_number, example.command, example.expected_status, example.printed)
        })
        .collect();
    let printed = vec!["one".to_owned(), "two".to_owned()];
    assert_eq!(
        found,
        [
            (5, "rgpu a".to_owned(), 3, Vec::new()),
            (7, "rgpu b 'x y'".to_owned(), 0, Vec::new()),
            (10, "rgpu c".to_owned(), 0, printed),
        ]
    );
}
