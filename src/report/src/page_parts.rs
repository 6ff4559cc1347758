//! Parts that other pages share with reports: style sheet, elements, and the theme switch.

/// The style sheet of reports, with its light and dark theme.
pub const CSS: &str = super::html::CSS;

/// Elements and formatted numbers. It reads the JSON of `#data` as `page`.
pub const CORE: &str = super::html::CORE;

/// The theme switch, for the button `#theme`; it must come last.
pub const THEME: &str = super::html::THEME;

/// `sha256-BASE64` of an inline element's text, for the content security policy.
pub fn hash(text: &str) -> String {
    super::html::hash(text)
}

/// A message as markup: text in backticks is shown as code.
pub fn marked_up(text: &str) -> String {
    super::html::marked_up(text)
}
