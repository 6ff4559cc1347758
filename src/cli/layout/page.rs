//! The page of a picture: the drawing, and what is known about the cell below the pointer. It needs
//! no network; its policy allows only its own script and style sheets, by their hashes.

use base64ct::{Base64, Encoding};
use sha2::{Digest, Sha256};

const CSS: &str = "\
:root{color-scheme:light dark}
body{margin:1.5rem;font:14px system-ui,sans-serif;background:#fff;color:#111}
h1{font:600 15px ui-monospace,monospace;overflow-wrap:anywhere}
#note{position:sticky;top:0;padding:.4rem 0;min-height:1.5em;background:inherit;font-family:ui-monospace,monospace}
main{overflow:auto}
.cell{cursor:pointer}
svg.some .cell{opacity:.35}
svg.some .cell.same{opacity:1}
.cell:hover rect{stroke-width:2.5}
@media (prefers-color-scheme:dark){body{background:#15171c;color:#eee}}
";

const SCRIPT: &str = "\
\"use strict\";
const note = document.getElementById(\"note\"), svg = document.querySelector(\"svg\");
const still = note.textContent;
const cells = [...svg.querySelectorAll(\".cell\")];
for (const cell of cells) {
  const title = cell.querySelector(\"title\"), text = title.textContent;
  title.remove();
  const color = cell.classList[1];
  cell.setAttribute(\"tabindex\", \"0\");
  cell.setAttribute(\"aria-label\", text);
  const show = () => {
    note.textContent = text;
    svg.classList.add(\"some\");
    for (const other of cells) other.classList.toggle(\"same\", other.classList.contains(color));
  };
  cell.addEventListener(\"mouseenter\", show);
  cell.addEventListener(\"focus\", show);
}
svg.addEventListener(\"mouseleave\", () => { note.textContent = still; svg.classList.remove(\"some\"); });
";

/// The page of a drawing.
pub(super) fn render(title: &str, svg: &str) -> String {
    let drawing_style = rgpu_layout::picture::style();
    let [css, drawing, script] = [CSS, &drawing_style, SCRIPT].map(hash);
    let title = title.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src '{css}' '{drawing}'; script-src '{script}'; base-uri 'none'; form-action 'none'\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"generator\" content=\"rgpu {version}\">\n\
         <title>{title} · rgpu</title>\n<style>{CSS}</style>\n</head>\n<body>\n<h1>{title}</h1>\n\
         <p id=\"note\">Point at a cell: it and all of its colour stand out.</p>\n\
         <main>{svg}</main>\n<script>{SCRIPT}</script>\n</body>\n</html>\n",
        version = env!("CARGO_PKG_VERSION"),
    )
}

fn hash(text: &str) -> String {
    format!("sha256-{}", Base64::encode_string(&Sha256::digest(text.as_bytes())))
}
