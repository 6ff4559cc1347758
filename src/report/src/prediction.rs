//! The page of a prediction of `rgpu model`: a kernel, a collective, or a language model, alone or
//! beside another configuration. Style, helpers and content security policy are those of the HTML
//! report.

use serde::Serialize;

use super::html;

/// All scripts in one function scope.
const SCRIPT: &str = concat!(
    "(() => {\n\"use strict\";\n",
    include_str!("html/core.js"),
    include_str!("html/table.js"),
    include_str!("prediction/waterfall.js"),
    include_str!("prediction/server.js"),
    include_str!("prediction/plots.js"),
    include_str!("prediction/main.js"),
    include_str!("html/theme.js"),
    include_str!("html/navigation.js"),
    "})();\n",
);

/// A prediction with its name on the page.
#[derive(Clone, Debug, Serialize)]
pub struct Side {
    /// What distinguishes it from the other side.
    pub name: String,
    /// The document that `--json` prints.
    pub document: serde_json::Value,
}

/// The page of `sides`, which are predictions of one kind.
#[must_use]
pub fn page(title: &str, place: &str, sides: &[Side]) -> String {
    let data = serde_json::json!({ "sides": sides }).to_string().replace('<', "\\u003c");
    html::page(title, place, SCRIPT, &data)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_documents_that_are_markup_stay_text() {
        let evil = "</script><img src=x onerror=alert(1)>";
        let document = serde_json::json!({ "schema": "rgpu.model-kernel/1", "subject": evil });
        let page = page(evil, evil, &[Side { name: evil.to_owned(), document }]);
        assert!(!page.contains("<img"));
        assert_eq!(page.matches("</script").count(), 2);
        assert!(page.contains("&lt;/script&gt;&lt;img"));
    }
}
