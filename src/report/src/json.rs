//! The profile as indented JSON, as `--json` prints it.

use super::{Document, ReportInput, Style};

/// The profile as JSON.
pub(super) fn render(subject: &ReportInput<'_>, _: &Style) -> Vec<Document> {
    let mut text = serde_json::to_string_pretty(subject.profile)
        .unwrap_or_else(|e| format!("{{\"error\": \"the profile cannot be written: {e}\"}}"));
    text.push('\n');
    vec![Document::new("profile.json", text)]
}
