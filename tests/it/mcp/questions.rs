//! Questions as users ask them, written from the names of the tools alone: the words of the
//! descriptions lead to the right tool, by BM25.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::laptop::Laptop;

/// Words that say nothing about a tool.
const STOP_WORDS: &str = "a an and are as at be before by can did do does for from give has have how i \
    if in is it its many me more much my need no not of on one or show so tell than that the them these \
    they this those to up use was what when which why will with would you your s t were";

/// How many of the questions must find their tool.
const LEAST: usize = 54;

/// The words of a text, without endings.
fn words(text: &str) -> Vec<String> {
    let text = text.to_lowercase().replace('-', "");
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let all = text.split(|c| !is_part(c)).filter(|word| !word.is_empty());
    let telling = all.filter(|word| !STOP_WORDS.split_whitespace().any(|stop| stop == *word));
    let stem = |word: &str| {
        let ending = ["ing", "ed", "es", "s", "e"]
            .into_iter()
            .find(|e| word.ends_with(e) && word.len() - e.len() >= 3);
        word[..word.len() - ending.map_or(0, str::len)].to_owned()
    };
    telling.map(stem).collect()
}

/// The words about each tool: its name, title and description. What a tool is not for counts for
/// the tool that is named there.
fn documents(tools: &[Value]) -> BTreeMap<String, Vec<String>> {
    let mut documents: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut add = |name: &str, text: &str| {
        documents.entry(name.to_owned()).or_default().extend(words(text));
    };
    for tool in tools {
        let text = |key: &str| tool[key].as_str().unwrap();
        let (name, title, description) = (text("name"), text("title"), text("description"));
        let (own, other) = description.split_once(" Not for ").unwrap();
        add(name, &format!("{name} {title} {own}"));
        for part in other.split(')') {
            if let Some((what, instead)) = part.split_once(" (use ") {
                add(instead, what);
            }
        }
    }
    documents
}

/// How well a document answers a question.
fn score(question: &[String], document: &[String], all: &BTreeMap<String, Vec<String>>) -> f64 {
    let count = all.len() as f64;
    let average = all.values().map(Vec::len).sum::<usize>() as f64 / count;
    let of_word = |word: &String| {
        let here = document.iter().filter(|w| *w == word).count() as f64;
        let with = all.values().filter(|d| d.contains(word)).count() as f64;
        let rarity = (1.0 + (count - with + 0.5) / (with + 0.5)).ln();
        rarity * here * 2.2 / (here + 1.2 * (0.25 + 0.75 * document.len() as f64 / average))
    };
    question.iter().collect::<BTreeSet<_>>().into_iter().map(of_word).sum()
}

#[test]
fn sixty_questions_find_their_tools_by_the_words_of_the_descriptions() {
    let laptop = Laptop::new();
    let listed = laptop.run("mcp --list --json");
    let tools: Vec<Value> = serde_json::from_slice(&listed.stdout).unwrap();
    let documents = documents(&tools);
    assert_eq!(documents.len(), tools.len());
    let questions: Vec<(String, String)> =
        serde_json::from_str(include_str!("questions.json")).unwrap();
    assert_eq!(questions.len(), 60);
    let mut lost = Vec::new();
    for (expected, question) in &questions {
        assert!(documents.contains_key(expected), "there is no tool `{expected}`");
        let asked = words(question);
        let scores = documents.iter().map(|(name, text)| (score(&asked, text, &documents), name));
        let (best, name) = scores.max_by(|a, b| a.0.total_cmp(&b.0)).unwrap();
        if name != expected || best <= 0.0 {
            lost.push(format!("`{question}`: {name}, not {expected}"));
        }
    }
    let found = questions.len() - lost.len();
    assert!(found >= LEAST, "{found} of {}:\n{}", questions.len(), lost.join("\n"));
}
