//! Keeps results short enough for a language model: what is too long is cut, and the result says
//! what.

use std::ops::Range;

use serde::Serialize;
use serde_json::Value;

/// The largest result of a tool, in bytes of JSON.
pub const MAX_RESULT_BYTES: usize = 8000;

/// Kept free for the list of what was cut.
const LIST_BYTES: usize = 600;

/// The most entries of that list.
const MAX_LISTED: usize = 6;

/// A part of a document that can be cut: its path, and its size as JSON.
struct Part {
    path: Vec<Step>,
    bytes: usize,
}

#[derive(Clone, PartialEq)]
enum Step {
    Key(String),
    Index(usize),
}

/// Shortens the longest lists and texts of an object until it fits into `limit` bytes, and adds the
/// field `cut`, which names them.
pub(super) fn fit(mut document: Value, limit: usize) -> Value {
    if size(&document) <= limit {
        return document;
    }
    // Earlier cuts are listed, too, and are not cut themselves.
    let told = document.as_object_mut().and_then(|fields| fields.shift_remove("cut"));
    let room = limit.saturating_sub(LIST_BYTES + told.as_ref().map_or(0, size));
    let mut cut: Vec<(Vec<Step>, usize)> = Vec::new();
    while size(&document) > room {
        let mut longest = None;
        longest_part(&document, &mut Vec::new(), &mut longest);
        let Some(part) = longest else { break };
        let Some(value) = find(&mut document, &part.path) else { break };
        let before = length(value);
        shorten(value);
        if !cut.iter().any(|(path, _)| *path == part.path) {
            cut.push((part.path, before));
        }
    }
    let total = cut.len();
    let mut list: Vec<Value> = told.and_then(|told| told.as_array().cloned()).unwrap_or_default();
    for (path, before) in cut.into_iter().take(MAX_LISTED) {
        // A part of a list that was itself cut later is gone.
        if let Some(value) = find(&mut document, &path) {
            let unit = if value.is_string() { "bytes" } else { "entries" };
            list.push(format!("{}: {} of {before} {unit}", name(&path), length(value)).into());
        }
    }
    if total > MAX_LISTED {
        list.push(format!("and {} more", total - MAX_LISTED).into());
    }
    if let Value::Object(fields) = &mut document {
        fields.insert("cut".to_owned(), list.into());
    }
    document
}

/// The items from `offset` on that fit into `bytes`, at most `count`; at least one, if there is
/// one.
pub(super) fn page<T: Serialize>(
    items: &[T],
    offset: usize,
    count: usize,
    bytes: usize,
) -> Range<usize> {
    let start = offset.min(items.len());
    let mut end = start;
    let mut used = 0;
    for item in items.iter().skip(start).take(count) {
        used += serde_json::to_string(item).map_or(0, |text| text.len() + 1);
        if used > bytes && end > start {
            break;
        }
        end += 1;
    }
    start..end
}

/// The size of a value as JSON.
pub(super) fn size(value: &Value) -> usize {
    match value {
        Value::Array(values) => values.iter().map(|value| size(value) + 1).sum::<usize>() + 2,
        Value::Object(fields) => {
            fields.iter().map(|(key, value)| key.len() + 4 + size(value)).sum::<usize>() + 2
        }
        other => other.to_string().len(),
    }
}

/// Finds the largest list or text whose parts are not larger lists or texts themselves.
fn longest_part(value: &Value, path: &mut Vec<Step>, longest: &mut Option<Part>) -> usize {
    let bytes = match value {
        Value::Array(values) => {
            let mut bytes = 2;
            for (at, value) in values.iter().enumerate() {
                path.push(Step::Index(at));
                bytes += longest_part(value, path, longest) + 1;
                path.pop();
            }
            bytes
        }
        Value::Object(fields) => {
            let mut bytes = 2;
            for (key, value) in fields {
                path.push(Step::Key(key.clone()));
                bytes += longest_part(value, path, longest) + key.len() + 4;
                path.pop();
            }
            return bytes;
        }
        other => size(other),
    };
    let can_be_cut = match value {
        Value::Array(values) => !values.is_empty(),
        Value::String(text) => text.len() > 64,
        _ => false,
    };
    if can_be_cut && longest.as_ref().is_none_or(|longest| bytes > longest.bytes) {
        *longest = Some(Part { path: path.clone(), bytes });
    }
    bytes
}

fn find<'v>(document: &'v mut Value, path: &[Step]) -> Option<&'v mut Value> {
    path.iter().try_fold(document, |value, step| match step {
        Step::Key(key) => value.get_mut(key),
        Step::Index(at) => value.get_mut(at),
    })
}

fn name(path: &[Step]) -> String {
    let steps = path.iter().map(|step| match step {
        Step::Key(key) => format!(".{key}"),
        Step::Index(at) => format!("[{at}]"),
    });
    steps.collect::<String>().trim_start_matches('.').to_owned()
}

/// The bytes of a text, or the entries of a list.
fn length(value: &Value) -> usize {
    match value {
        Value::String(text) => text.len(),
        Value::Array(values) => values.len(),
        _ => 0,
    }
}

/// Keeps the first half.
fn shorten(value: &mut Value) {
    match value {
        Value::Array(values) => values.truncate(values.len() / 2),
        Value::String(text) => {
            let half = text.len() / 2;
            let end = (0..=half).rev().find(|end| text.is_char_boundary(*end));
            text.truncate(end.unwrap_or_default());
            text.push('…');
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_fits_stays_and_what_does_not_is_cut_and_named() {
        let small = json!({"a": [1, 2, 3]});
        assert_eq!(fit(small.clone(), 100), small);
        let large = json!({
            "kept": "short",
            "launches": (0..5000).map(|i| json!({"id": i, "kernel": "k"})).collect::<Vec<_>>(),
            "text": "é".repeat(9000),
        });
        let cut = fit(large, MAX_RESULT_BYTES);
        assert!(cut.to_string().len() <= MAX_RESULT_BYTES, "{}", cut.to_string().len());
        assert_eq!(cut["kept"], "short");
        assert!(!cut["launches"].as_array().unwrap().is_empty());
        let list = cut["cut"].as_array().unwrap();
        assert!(list.iter().any(|e| e.as_str().unwrap().starts_with("launches: ")), "{list:?}");
        assert!(list.iter().any(|e| e.as_str().unwrap().ends_with(" of 18000 bytes")), "{list:?}");
        let again = json!({"cut": ["told before"], "text": "x".repeat(9000)});
        let again = fit(again, MAX_RESULT_BYTES);
        assert!(again.to_string().len() <= MAX_RESULT_BYTES);
        assert_eq!(again["cut"][0], "told before");
        assert!(again["cut"][1].as_str().unwrap().starts_with("text: "), "{again}");
    }

    #[test]
    fn a_page_takes_what_fits_and_never_nothing() {
        let items: Vec<String> = (0..10).map(|i| format!("{i:08}")).collect();
        assert_eq!(page(&items, 0, 100, 33), 0..3);
        assert_eq!(page(&items, 3, 2, 33), 3..5);
        assert_eq!(page(&items, 9, 5, 33), 9..10);
        assert_eq!(page(&items, 10, 5, 33), 10..10);
        assert_eq!(page(&items, 99, 5, 33), 10..10);
        assert_eq!(page(&items, 0, 5, 1), 0..1);
    }

    #[test]
    fn many_small_parts_are_cut_too() {
        let many: serde_json::Map<String, Value> =
            (0..400).map(|i| (format!("field{i}"), json!("x".repeat(200)))).collect();
        let cut = fit(Value::Object(many), MAX_RESULT_BYTES * 4);
        assert!(cut.to_string().len() <= MAX_RESULT_BYTES * 4);
        assert!(
            cut["cut"].as_array().unwrap().last().unwrap().as_str().unwrap().starts_with("and ")
        );
    }
}
