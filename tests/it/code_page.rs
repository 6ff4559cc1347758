//! The page of `rgpu disasm --format html`, opened in a browser. Pictures go to `target/pages/`.

use std::fs;
use std::path::Path;

use crate::browser::Browser;
use crate::laptop::{Laptop, fixture, status};

/// The page that a command writes, opened in both themes.
fn seen(laptop: &Laptop, line: &str, name: &str) -> Option<Browser> {
    let output = laptop.run(line);
    assert_eq!(status(&output), 0, "{}", laptop.shown(line, &output));
    let page = laptop.project(String::from_utf8(output.stdout).unwrap().trim());
    let target = Path::new(env!("CARGO_BIN_EXE_rgpu")).ancestors().nth(2).unwrap();
    let mut browser = Browser::start()?;
    for scheme in ["light", "dark"] {
        browser.wish(scheme);
        browser.open(&page);
        assert_eq!(browser.value("document.documentElement.dataset.theme"), scheme);
        assert!(browser.value("document.documentElement.dataset.ready").is_string());
        browser.value("document.querySelector('#sass .row.j:nth-child(12)').click()");
        browser.picture(&target.join("pages").join(format!("{name}-{scheme}.png")));
        browser.value("document.querySelector('.row.pin').click()");
    }
    assert!(browser.complaints.is_empty(), "{}", browser.complaints.join("\n"));
    Some(browser)
}

/// Texts of the rows of a column that have a class.
fn rows(browser: &mut Browser, column: &str, class: &str) -> Vec<String> {
    let texts = browser.value(&format!(
        "[...document.querySelectorAll('#{column} .row.{class} .tx')].map(n => n.textContent.trim())"
    ));
    serde_json::from_value(texts).unwrap()
}

#[test]
fn a_line_of_the_source_lights_its_ptx_and_its_sass() {
    let laptop = Laptop::new();
    for file in ["sm_90a.cubin", "inlined.cu", "inlined.cuh"] {
        fs::copy(fixture(&format!("cubin/13.5/inlined/{file}")), laptop.project(file)).unwrap();
    }
    let line = "disasm sm_90a.cubin --tool rgpu --format html";
    let Some(mut browser) = seen(&laptop, line, "code-inlined") else { return };
    browser.value(
        "(() => { const s = document.querySelector('select'); s.selectedIndex = \
         [...s.options].findIndex(o => o.textContent.startsWith('first')); \
         s.dispatchEvent(new Event('change')); })()",
    );
    let pick = |browser: &mut Browser, column: &str, text: &str| {
        browser.value(&format!(
            "[...document.querySelectorAll('#{column} .row.j')].find(r => \
             r.textContent.includes({text:?})).click()"
        ));
    };
    pick(&mut browser, "source", "threadIdx.x");
    assert_eq!(rows(&mut browser, "sass", "on"), ["S2R", "S2UR", "LDC", "IMAD"]);
    let ptx = rows(&mut browser, "ptx", "on");
    assert!(ptx.iter().any(|line| line.contains("%tid.x")), "{ptx:?}");

    // An instruction of an inlined function belongs to its line, and to those it was inlined at.
    pick(&mut browser, "source", "return x * x + 1.0f");
    assert_eq!(rows(&mut browser, "sass", "on"), ["FFMA", "FFMA"]);
    let via = rows(&mut browser, "source", "via");
    assert!(via.iter().any(|line| line.contains("twice_squared(in[i])")), "{via:?}");
    assert!(via.iter().any(|line| line.contains("float once = square(x)")), "{via:?}");
    pick(&mut browser, "ptx", "setp.ge.s32");
    assert_eq!(rows(&mut browser, "sass", "on"), ["ULDC", "ISETP"]);
    assert_eq!(rows(&mut browser, "source", "on"), ["if (i < n) {"]);

    // Search by keyboard alone, through all columns.
    browser.value("document.querySelector('input[type=search]').focus()");
    for key in ["l", "d", "g"] {
        browser.press(key);
    }
    assert_eq!(rows(&mut browser, "sass", "hit"), ["LDG"]);
    browser.press("Escape");
    assert!(rows(&mut browser, "sass", "hit").is_empty());
    let shown = "getComputedStyle(document.querySelector('#sass .ct')).display";
    assert_eq!(browser.value(shown), "none");
    browser.value("[...document.querySelectorAll('button')].find(b => b.textContent === 'Control codes').click()");
    assert_ne!(browser.value(shown), "none");
    assert!(browser.complaints.is_empty(), "{}", browser.complaints.join("\n"));
}

#[test]
fn samples_of_a_report_stand_beside_its_code() {
    let laptop = Laptop::new();
    let report = fixture("ncu/2025.3.1/full-tiled-matmul/report.ncu-repz");
    fs::copy(report, laptop.project("report.ncu-repz")).unwrap();
    let line = "disasm report.ncu-repz --hot --format html --out page.html";
    let Some(mut browser) = seen(&laptop, line, "code-hot") else { return };
    let sum = |browser: &mut Browser, column: &str| {
        let sum = format!(
            "[...document.querySelectorAll('#{column} .ht span')].reduce((n, s) => \
             n + Number(s.textContent.replace(/\\D/g, '')), 0)"
        );
        browser.value(&sum).as_u64().unwrap()
    };
    let sass = sum(&mut browser, "sass");
    assert!(sass > 1000, "{sass}");
    assert_eq!((sum(&mut browser, "source"), sum(&mut browser, "ptx")), (sass, sass));
    assert!(browser.complaints.is_empty(), "{}", browser.complaints.join("\n"));
}

#[test]
fn hostile_names_and_sources_stay_text() {
    use rgpu_model::code::{CodeDocument, CodeImage, CodeKernel, CodeLine};
    let evil = "</script><script>document.title='taken'</script><img src=x onerror=alert(1)>";
    let line = CodeLine { text: evil.to_owned(), ..CodeLine::default() };
    let kernel =
        CodeKernel { symbol: evil.to_owned(), instructions: vec![line], ..CodeKernel::default() };
    let image = CodeImage { path: evil.to_owned(), kernels: vec![kernel], ..CodeImage::default() };
    let code = CodeDocument { images: vec![image], ..CodeDocument::default() };
    let text = rgpu_report::code::page(&code, evil);
    assert!(!text.contains("<img") && text.matches("<script").count() == 2);
    let laptop = Laptop::new();
    let page = laptop.write("evil.html", &text);
    let Some(mut browser) = Browser::start() else { return };
    browser.open(&page);
    assert_eq!(browser.value("document.querySelectorAll('img').length"), 0);
    assert_eq!(browser.value("document.title"), format!("{evil} · rgpu"));
    assert!(browser.complaints.is_empty(), "{}", browser.complaints.join("\n"));
}

#[test]
fn columns_without_content_and_columns_switched_off_give_their_room_to_the_others() {
    let laptop = Laptop::new();
    for (from, to) in
        [("13.5/facts/sm_80.cubin", "bare.cubin"), ("13.5/inlined/sm_90a.cubin", "k.cubin")]
    {
        fs::copy(fixture(&format!("cubin/{from}")), laptop.project(to)).unwrap();
    }
    let shown = |browser: &mut Browser| {
        let columns = "[...document.querySelectorAll('.pane')].filter(p => p.offsetWidth > 0)";
        browser.value(&format!("{columns}.map(p => p.querySelector('h2').firstChild.data).join()"))
    };
    let line = "disasm bare.cubin --tool rgpu --format html";
    let Some(mut browser) = seen(&laptop, line, "code-bare") else { return };
    assert_eq!(shown(&mut browser), "SASS");
    let facts = browser.value("document.getElementById('facts').textContent");
    assert!(facts.as_str().unwrap().contains("no source lines and no PTX"), "{facts}");
    let line = "disasm k.cubin --tool rgpu --format html";
    let Some(mut browser) = seen(&laptop, line, "code-switches") else { return };
    assert_eq!(shown(&mut browser), "Source,PTX,SASS");
    browser.value(
        "[...document.querySelectorAll('button')].find(b => b.textContent === 'PTX').click()",
    );
    assert_eq!(shown(&mut browser), "Source,SASS");
}
