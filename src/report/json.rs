//! The profile itself, indented: what `--json` prints.

use super::Style;
use crate::model::Profile;

/// The profile as JSON.
pub(super) fn render(profile: &Profile, _: &Style) -> String {
    let mut text = serde_json::to_string_pretty(profile)
        .unwrap_or_else(|e| format!("{{\"error\": \"the profile cannot be written: {e}\"}}"));
    text.push('\n');
    text
}
