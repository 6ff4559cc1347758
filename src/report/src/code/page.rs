//! One self-contained page with source, PTX and SASS side by side, linked line by line. Style,
//! helpers and content security policy are shared with the HTML report.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::super::html::{CORE, THEME, escape, hash};
use rgpu_model::code::{CodeDocument, CodeImage, CodeKernel, CodeLine};
use rgpu_model::hotspots::shown_source_name;

const CSS: &str = concat!(include_str!("../html/page.css"), include_str!("page.css"));
const SCRIPT: &str = include_str!("page.js");

/// Marks the page as ready, with the time that rendering took.
const END: &str =
    "document.documentElement.dataset.ready = (performance.now() - began).toFixed(0);\n";

/// The maximum size of the page's data in bytes. The page draws one kernel at a time, but the
/// browser parses all data.
const MAX_DATA_BYTES: usize = 32_000_000;

/// Renders the page; `title` is the window title.
pub fn page(code: &CodeDocument, title: &str) -> String {
    let data = data(code, title).to_string().replace('<', "\\u003c");
    let script = format!("(() => {{\n\"use strict\";\n{CORE}{SCRIPT}{THEME}{END}}})();\n");
    let (style_hash, script_hash) = (hash(CSS), hash(&script));
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src '{style_hash}'; script-src '{script_hash}'; base-uri 'none'; form-action 'none'\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"generator\" content=\"rgpu {version}\">\n\
         <title>{title} · rgpu</title>\n<style>{CSS}</style>\n</head>\n<body class=\"code\">\n\
         <header><div class=\"bar\"><span class=\"brand\">rgpu</span><span id=\"pick\"></span>\
         <span class=\"tools\" id=\"tools\"></span>\
         <button type=\"button\" id=\"theme\" aria-label=\"Switch between light and dark\"></button></div>\
         <p class=\"facts\" id=\"facts\"></p></header>\n\
         <main class=\"columns\"><noscript>This page needs JavaScript, which is switched off.</noscript></main>\n\
         <script type=\"application/json\" id=\"data\">{data}</script>\n\
         <script>{script}</script>\n</body>\n</html>\n",
        version = env!("CARGO_PKG_VERSION"),
        title = escape(title),
    )
}

/// The page's data: kernels with the most samples first. Kernels that do not fit are counted.
fn data(code: &CodeDocument, title: &str) -> Value {
    let mut kernels: Vec<(&CodeImage, &CodeKernel)> =
        code.images.iter().flat_map(|i| i.kernels.iter().map(move |k| (i, k))).collect();
    kernels.sort_by_key(|(_, k)| std::cmp::Reverse(k.samples));
    let (mut shown, mut left_out, mut room) = (Vec::new(), 0, MAX_DATA_BYTES);
    for (image, kernel) in kernels {
        let value = kernel_value(code, image, kernel);
        let bytes = value.to_string().len();
        match room.checked_sub(bytes) {
            Some(rest) => {
                room = rest;
                shown.push(value);
            }
            None => left_out += 1,
        }
    }
    json!({ "title": title, "kernels": shown, "left_out": left_out })
}

fn kernel_value(code: &CodeDocument, image: &CodeImage, kernel: &CodeKernel) -> Value {
    let number = |file: &'_ str, all: &mut Vec<String>| -> usize {
        all.iter().position(|known| known == file).unwrap_or_else(|| {
            all.push(file.to_owned());
            all.len() - 1
        })
    };
    let mut names: Vec<String> = Vec::new();
    let mut lines: Vec<Value> = Vec::new();
    for line in &kernel.instructions {
        let at: Vec<[usize; 2]> =
            line.at.iter().map(|at| [number(&at.file, &mut names), at.line as usize]).collect();
        lines.push(line_value(line, &at));
    }
    let texts: Vec<Value> = names.iter().map(|file| source(image, kernel, file)).collect();
    let (first, ptx, joined) = ptx(code, image, kernel);
    json!({
        "name": kernel.shown(),
        "arch": image.arch,
        "path": image.path,
        "place": image.place,
        "tool": image.tool,
        "problem": image.tool_problem,
        "registers": kernel.registers,
        "spills": kernel.spill_bytes,
        "shared": kernel.shared_bytes,
        "samples": kernel.samples,
        "lines": lines,
        "heads": kernel.blocks.iter().filter(|b| b.loop_head).map(|b| b.start).collect::<Vec<_>>(),
        "starts": kernel.blocks.iter().map(|b| b.start).collect::<Vec<_>>(),
        "files": texts,
        "ptx": { "first": first, "lines": ptx, "joined": joined },
    })
}

fn line_value(line: &CodeLine, at: &[[usize; 2]]) -> Value {
    let mut value = json!({ "o": line.offset, "t": line.text, "c": line.control });
    let mut put = |name: &str, inner: Value| {
        if let Some(object) = value.as_object_mut() {
            object.insert(name.to_owned(), inner);
        }
    };
    if !at.is_empty() {
        put("s", json!(at));
    }
    if let Some(ptx) = line.ptx_line {
        put("p", json!(ptx));
    }
    if let Some(target) = line.target {
        put("g", json!(target));
    }
    if let Some(function) = &line.function {
        put("f", json!(function));
    }
    if let Some(live) = line.live {
        put("l", json!(live.registers));
    }
    if let Some(counts) = &line.counts {
        put("n", json!(counts.samples.unwrap_or(0)));
        let stalls = counts.stalls.iter().filter(|(reason, _)| *reason != "selected");
        if let Some((reason, _)) = stalls.max_by_key(|(_, n)| **n) {
            put("w", json!(reason));
        }
    }
    value
}

/// The lines of a source file that belong to this kernel, with some lines around them.
fn source(image: &CodeImage, kernel: &CodeKernel, file: &str) -> Value {
    const CONTEXT_LINES: u32 = 6;
    let seen: Vec<u32> = kernel
        .instructions
        .iter()
        .flat_map(|i| &i.at)
        .filter(|at| at.file == file)
        .map(|at| at.line)
        .collect();
    let text = image.sources.iter().find(|s| s.file == file);
    let mut lines: BTreeMap<u32, Option<&str>> = seen.iter().map(|line| (*line, None)).collect();
    for (number, words) in text.iter().flat_map(|t| &t.lines) {
        if seen.iter().any(|line| line.abs_diff(*number) <= CONTEXT_LINES) {
            lines.insert(*number, Some(words));
        }
    }
    let read_from = text.and_then(|t| t.read_from.as_deref());
    let name = shown_source_name(file);
    json!({ "name": name, "from": read_from, "lines": lines.into_iter().collect::<Vec<_>>() })
}

/// The kernel's part of the PTX: the number of its first line, the lines, and whether they are
/// linked with the SASS. If the cubin contains no PTX, PTX of the same file is used.
fn ptx<'c>(
    code: &'c CodeDocument,
    image: &'c CodeImage,
    kernel: &CodeKernel,
) -> (usize, Vec<&'c str>, bool) {
    let joined: Vec<usize> =
        kernel.instructions.iter().filter_map(|i| Some(i.ptx_line? as usize)).collect();
    let of_file = || code.images.iter().filter(|i| i.path == image.path);
    let text = image.ptx.as_deref().or_else(|| of_file().find_map(|i| i.ptx.as_deref()));
    let Some(text) = text else { return (1, Vec::new(), false) };
    let lines: Vec<&str> = text.lines().collect();
    let is_entry = |line: &&str| {
        let named = line.split(|c: char| !(c.is_alphanumeric() || c == '_' || c == '$'));
        line.contains(".entry") && named.into_iter().any(|word| word == kernel.symbol)
    };
    let entry = lines.iter().position(is_entry);
    let Some(start) = entry.or(joined.iter().min().and_then(|n| n.checked_sub(1))) else {
        return (1, Vec::new(), false);
    };
    let last = joined.iter().max().copied().unwrap_or(0).max(start);
    let end = lines.iter().skip(last).position(|line| line.starts_with('}'));
    let end = end.map_or(lines.len(), |more| last + more + 1).min(lines.len());
    let part = lines.get(start..end).unwrap_or_default().to_vec();
    (start + 1, part, !joined.is_empty())
}
