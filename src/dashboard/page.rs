//! The page: one document with its style sheet and script, which asks `/api/v1` for everything
//! else.
//!
//! Its policy allows this script and this style sheet by their hashes, requests to this server, and
//! frames of this server for reports. Text of hosts becomes text nodes, never markup.

use serde_json::{Value, json};

use super::DashboardContext;
use super::access::AccessControl;
use super::field_names::field_names;
use rgpu_plan::kernel::MODES;
use rgpu_report::page_parts::{CORE, CSS, THEME, hash, marked_up};
use rgpu_work::queue::MIN_SHOWN_SILENCE_S;

/// The style sheet of the report, which gives colours and tables, and what only this page has.
const OWN_CSS: &str = include_str!("page/page.css");

/// The style of a page that only has a message.
const MESSAGE_CSS: &str = ":root{color-scheme:light dark}\
    body{font:16px/1.5 system-ui,sans-serif;max-width:44rem;margin:2.5rem auto;padding:0 16px;overflow-wrap:anywhere}\
    p{margin:0 0 .6rem;white-space:pre-wrap}code{font-family:ui-monospace,monospace;font-size:.9em}";

/// All scripts in one function scope.
const SCRIPT: [&str; 16] = [
    "(() => {\n\"use strict\";\n",
    CORE,
    include_str!("page/api.js"),
    include_str!("page/parts.js"),
    include_str!("page/action.js"),
    include_str!("page/overview.js"),
    include_str!("page/hosts.js"),
    include_str!("page/runs.js"),
    include_str!("page/ranks.js"),
    include_str!("page/run.js"),
    include_str!("page/compare.js"),
    include_str!("page/suites.js"),
    include_str!("page/queue_and_loops.js"),
    include_str!("page/main.js"),
    THEME,
    "})();\n",
];

/// The settings that are written into the page.
pub(super) struct PageSettings {
    value: Value,
}

impl PageSettings {
    /// The settings of a served page.
    pub(super) fn for_server(context: &DashboardContext, access: &AccessControl) -> Self {
        let mut settings = Self::common(context);
        settings.value["read_only"] = access.is_read_only().into();
        settings
    }

    /// The settings of an exported page: the answers to all its requests.
    pub(super) fn exported(context: &DashboardContext, answers: Value) -> Self {
        let now = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ");
        let mut settings = Self::common(context);
        settings.value["read_only"] = true.into();
        settings.value["exported"] = now.to_string().into();
        settings.value["answers"] = answers;
        settings
    }

    fn common(context: &DashboardContext) -> Self {
        let project = context.project.file_name().unwrap_or(context.project.as_os_str());
        let value = json!({
            "project": project.to_string_lossy(),
            "fields": field_names(),
            "modes": MODES.iter().map(|mode| mode.name).collect::<Vec<_>>(),
            "default_remote": context.hosts.iter().find(|host| host.default).map(|host| &host.name),
            "min_shown_silence_s": MIN_SHOWN_SILENCE_S,
        });
        Self { value }
    }
}

/// The HTML document of the page, and its content security policy.
pub(super) struct PageDocument {
    html: String,
    policy: String,
}

/// A page without script that has a message in lines, and its policy.
pub(super) fn message_page(message: &str) -> (String, String) {
    let lines: String =
        message.trim_end().lines().map(|line| format!("<p>{}</p>\n", marked_up(line))).collect();
    let html = format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <link rel=\"icon\" href=\"data:,\">\n<title>rgpu dashboard</title>\n\
         <style>{MESSAGE_CSS}</style>\n</head>\n<body>\n{lines}</body>\n</html>\n"
    );
    let policy = format!("default-src 'none'; style-src '{}'; img-src data:", hash(MESSAGE_CSS));
    (html, policy)
}

impl PageDocument {
    /// The page with these settings.
    pub(super) fn new(settings: &PageSettings) -> Self {
        let (css, script) = ([CSS, OWN_CSS].concat(), SCRIPT.concat());
        let policy = format!(
            "default-src 'none'; script-src '{}'; style-src '{}'; img-src data:; \
             connect-src 'self'; frame-src 'self'{files}; base-uri 'none'; form-action 'none'",
            hash(&script),
            hash(&css),
            // To a page that is a file, the reports beside it are of another origin.
            files = if settings.value.get("answers").is_some() { " file:" } else { "" },
        );
        let data = settings.value.to_string().replace('<', "\\u003c");
        let html = format!(
            "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta http-equiv=\"Content-Security-Policy\" content=\"{policy}\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
             <meta name=\"generator\" content=\"rgpu {version}\">\n\
             <link rel=\"icon\" href=\"data:,\">\n\
             <title>rgpu dashboard</title>\n<style>{css}</style>\n</head>\n<body class=\"dashboard\">\n\
             <a class=\"skip\" href=\"#main\">Skip to the content</a>\n\
             <header><div class=\"wrap bar\"><span class=\"brand\">rgpu</span>\
             <span class=\"project\" id=\"project\"></span>\
             <span class=\"where\" id=\"live\" role=\"status\"></span>\
             <button type=\"button\" id=\"theme\" aria-label=\"Switch between light and dark\"></button></div>\
             <nav class=\"wrap\" aria-label=\"Views\"></nav></header>\n\
             <main class=\"wrap\" id=\"main\" tabindex=\"-1\">\
             <noscript>This page needs JavaScript, which is switched off.</noscript></main>\n\
             <script type=\"application/json\" id=\"data\">{data}</script>\n\
             <script>{script}</script>\n</body>\n</html>\n",
            version = env!("CARGO_PKG_VERSION"),
        );
        Self { html, policy: format!("{policy}; frame-ancestors 'none'") }
    }

    pub(super) fn html(&self) -> &str {
        &self.html
    }

    /// The policy for the answer's header.
    pub(super) fn policy(&self) -> &str {
        &self.policy
    }
}
