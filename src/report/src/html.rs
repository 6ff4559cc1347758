//! The HTML report: one self-contained page without network access or frameworks, light and dark.
//!
//! Foreign text (kernel names, source lines) is untrusted. It is embedded as JSON with every `<`
//! escaped, and the script only creates text nodes from it, never markup. The content security
//! policy allows only this script and this style sheet, by their hashes.

mod account;
mod data;
mod fit;

use base64ct::{Base64, Encoding};
use sha2::{Digest, Sha256};

use super::{Document, ReportInput, Style};

pub(super) const CSS: &str = include_str!("html/page.css");
/// Helpers that all pages share.
pub(super) const CORE: &str = include_str!("html/core.js");
/// The theme switch. It redraws the charts, so it must come after the scripts that draw them.
pub(super) const THEME: &str = include_str!("html/theme.js");
/// All scripts in one function scope, so that their top-level names do not become globals.
const SCRIPT: &str = concat!(
    "(() => {\n\"use strict\";\n",
    include_str!("html/core.js"),
    include_str!("html/table.js"),
    include_str!("html/summary.js"),
    include_str!("html/account.js"),
    include_str!("html/launches.js"),
    include_str!("html/samples.js"),
    include_str!("html/series.js"),
    include_str!("html/timeline.js"),
    include_str!("html/ranks.js"),
    include_str!("html/memory_use.js"),
    include_str!("html/roofline.js"),
    include_str!("html/memory_chart.js"),
    include_str!("html/hotspots.js"),
    include_str!("html/lists.js"),
    include_str!("html/compare.js"),
    include_str!("html/main.js"),
    include_str!("html/theme.js"),
    include_str!("html/navigation.js"),
    "})();\n",
);

/// The maximum size of the page in bytes.
const MAX_PAGE_BYTES: usize = 3_000_000;

/// Renders `report.html`. Long lists are cut for [`MAX_PAGE_BYTES`].
pub(super) fn render(subject: &ReportInput<'_>, _: &Style) -> Vec<Document<'static>> {
    let room = MAX_PAGE_BYTES - SCRIPT.len() - CSS.len() - 16_384;
    let data = fit::json(subject, room).replace('<', "\\u003c");
    let (name, subtitle) = (&subject.profile.kernel.name, subtitle(subject));
    vec![Document::new("report.html", page(name, &subtitle, SCRIPT, &data))]
}

/// A self-contained page that `script` draws from `data`, which is JSON without `<`.
pub(super) fn page(name: &str, subtitle: &str, script: &str, data: &str) -> String {
    let (name, subtitle) = (escape(name), escape(subtitle));
    let (style, script_hash) = (hash(CSS), hash(script));
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src '{style}'; script-src '{script_hash}'; base-uri 'none'; form-action 'none'\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"generator\" content=\"rgpu {version}\">\n\
         <title>{name} · rgpu</title>\n<style>{CSS}</style>\n</head>\n<body>\n\
         <a class=\"skip\" href=\"#summary\">Skip to the summary</a>\n\
         <header><div class=\"wrap bar\"><span class=\"brand\">rgpu</span><h1>{name}</h1>\
         <span class=\"where\">{subtitle}</span>\
         <button type=\"button\" id=\"theme\" aria-label=\"Switch between light and dark\"></button></div>\
         <nav class=\"wrap\" aria-label=\"Sections\"></nav></header>\n\
         <main class=\"wrap\"><noscript>This page needs JavaScript, which is switched off.</noscript></main>\n\
         <script type=\"application/json\" id=\"data\">{data}</script>\n\
         <script>{script}</script>\n</body>\n</html>\n",
        version = env!("CARGO_PKG_VERSION"),
    )
}

/// Device, mode with the rung if it is another, and start time, for the header line.
fn subtitle(subject: &ReportInput<'_>) -> String {
    let profile = subject.profile;
    let started = super::timestamp(&profile.run.started);
    let (mode, rung) = (&profile.run.mode, profile.rung.as_str());
    let mode =
        if rung.is_empty() || rung == mode { mode.clone() } else { format!("{mode}, rung {rung}") };
    let parts = [profile.device.as_deref().unwrap_or_default(), &mode, &started];
    parts.into_iter().filter(|p| !p.is_empty()).collect::<Vec<_>>().join(" · ")
}

/// `sha256-BASE64` of an inline element's text, for the CSP (without the quotes).
pub(super) fn hash(text: &str) -> String {
    format!("sha256-{}", Base64::encode_string(&Sha256::digest(text.as_bytes())))
}

pub(super) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c => out.push(c),
        }
    }
    out
}

/// Units that stay in one line with their number.
const UNITS: [&str; 14] =
    ["%", "ns", "µs", "ms", "s", "min", "h", "B", "kB", "MB", "GB", "GB/s", "TB/s", "MHz"];

/// A text in which no line ends between a number and its unit.
pub(super) fn unbroken(text: &str) -> String {
    let is_of_unit = |c: char| c.is_alphabetic() || matches!(c, '%' | '/');
    let is_before_unit = |at: usize| {
        let rest = &text[at + 1..];
        let unit = rest.find(|c: char| !is_of_unit(c)).map_or(rest, |end| &rest[..end]);
        text[..at].ends_with(|c: char| c.is_ascii_digit()) && UNITS.contains(&unit)
    };
    let place = |(at, c): (usize, char)| if c == ' ' && is_before_unit(at) { '\u{a0}' } else { c };
    text.char_indices().map(place).collect()
}

/// A message as markup: text in backticks is shown as code. A text with an odd number of backticks
/// stays as it is.
pub(super) fn marked_up(text: &str) -> String {
    let parts: Vec<&str> = text.split('`').collect();
    if parts.len().is_multiple_of(2) {
        return escape(text);
    }
    let part = |(at, part): (usize, &&str)| match at % 2 {
        0 => escape(&unbroken(part)),
        _ => format!("<code>{}</code>", escape(part)),
    };
    parts.iter().enumerate().map(part).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_header_has_the_rung_beside_another_mode() {
        let header = |mode: &str, rung: &str| {
            let mut profile = rgpu_model::Profile::default();
            profile.run.mode = mode.to_owned();
            profile.rung = rung.into();
            subtitle(&ReportInput::new(&profile, &rgpu_model::Sidecars::default()))
        };
        assert_eq!(header("torch", "nsys.full"), "torch, rung nsys.full");
        assert_eq!(header("torch", "torch"), "torch");
        assert_eq!(header("report", ""), "report");
    }

    #[test]
    fn backticks_of_a_message_become_code_and_its_text_is_escaped() {
        let message = "results are wrong in case `a<b>`: 2 < 3";
        let expected = "results are wrong in case <code>a&lt;b&gt;</code>: 2 &lt; 3";
        assert_eq!(marked_up(message), expected);
        assert_eq!(marked_up("one ` alone"), "one ` alone");
    }

    #[test]
    fn a_number_stays_with_its_unit_but_for_code() {
        let shown = marked_up("took 12 ms (5 %), `sleep 12 s`, 3 s; 7 sizes, at 3.05 TB/s, a 4 sm");
        let expected = "took 12\u{a0}ms (5\u{a0}%), <code>sleep 12 s</code>, 3\u{a0}s; 7 sizes, \
                        at 3.05\u{a0}TB/s, a 4 sm";
        assert_eq!(shown, expected);
    }
}
