//! The HTML page of real recordings, opened in a browser. Pictures go to `target/pages/`.

use std::path::{Path, PathBuf};

use rgpu::model::{Profile, Sidecars};
use rgpu::report::{ReportInput, Style, report};

use crate::browser::Browser;
use crate::laptop::{Laptop, fixture, status};

/// Drawn within a second: parsed, laid out and painted. Seen: 24 to 80 ms.
const DRAWN_MS: f64 = 1000.0;

fn pictures() -> PathBuf {
    let target = Path::new(env!("CARGO_BIN_EXE_rgpu")).ancestors().nth(2).unwrap();
    target.join("pages")
}

/// The page of a recording, in the project of `laptop`.
fn page(laptop: &Laptop, recording: &str) -> PathBuf {
    let out = laptop.project("page.html");
    let file = fixture(recording);
    let line = format!("report {} --format html --out {}", file.display(), out.display());
    let output = laptop.run(&line);
    assert_eq!(status(&output), 0, "{}", laptop.shown(&line, &output));
    assert!(std::fs::metadata(&out).unwrap().len() <= 3_000_000);
    out
}

/// Opens a page in both themes, takes its pictures, and returns the browser on it.
fn seen(page: &Path, name: &str) -> Option<Browser> {
    let mut browser = Browser::start()?;
    for scheme in ["light", "dark"] {
        browser.wish(scheme);
        let drawn = browser.open_and_draw(page);
        assert_eq!(browser.value("document.documentElement.dataset.theme"), scheme);
        assert_ne!(browser.value("document.documentElement.dataset.ready ?? ''"), "");
        eprintln!("{name}, {scheme}: drawn in {drawn:.0} ms");
        assert!(drawn > 0.0 && drawn < DRAWN_MS, "drawn in {drawn} ms");
        browser.picture(&pictures().join(format!("{name}-{scheme}.png")));
    }
    assert!(browser.complaints.is_empty(), "{}", browser.complaints.join("\n"));
    Some(browser)
}

#[test]
fn a_full_ncu_report_is_drawn_with_roofline_stalls_and_hot_spots() {
    let laptop = Laptop::new();
    let page = page(&laptop, "ncu/2025.3.1/full-tiled-matmul/report.ncu-repz");
    let Some(mut browser) = seen(&page, "tiled-matmul") else { return };
    let count = |browser: &mut Browser, what: &str| {
        browser.value(&format!("document.querySelectorAll({what:?}).length")).as_u64().unwrap()
    };
    assert!(count(&mut browser, "#roofline svg path.roof") >= 4);
    assert!(count(&mut browser, "#roofline svg circle") >= 1);
    assert!(count(&mut browser, "#stalls .fill") >= 5);
    assert!(count(&mut browser, "#hotspots tbody tr") >= 5);
    assert!(count(&mut browser, "#findings li") >= 1);
    assert!(count(&mut browser, "#metrics tbody tr") >= 50);
    let title = browser.value("document.querySelector('#summary .title').textContent");
    assert_eq!(title, "tiled_matmul is memory bound");

    // The listing sorts and is searched by keyboard alone.
    browser.value("document.querySelector('#metrics input[type=search]').focus()");
    for key in ["d", "r", "a", "m"] {
        browser.press(key);
    }
    let all = "[...document.querySelectorAll('#metrics tbody tr')]";
    let fit =
        browser.value(&format!("{all}.every(r => r.textContent.toLowerCase().includes('dram'))"));
    assert_eq!(fit, true);
    browser.value("document.querySelector('#hotspots button[aria-pressed=false]').click()");
    assert!(count(&mut browser, "#hotspots tbody tr") >= 50, "instructions");
    assert!(browser.complaints.is_empty(), "{}", browser.complaints.join("\n"));
}

#[test]
fn a_timeline_is_drawn_on_its_canvas_and_answers_to_keys() {
    let laptop = Laptop::new();
    let page = page(&laptop, "nsys/2025.3.1/regions/report.nsys-rep");
    let Some(mut browser) = seen(&page, "timeline") else { return };
    let drawn = |browser: &mut Browser| {
        browser.value("Number(document.querySelector('#timeline canvas').dataset.drawn)")
    };
    assert!(drawn(&mut browser).as_f64().unwrap() >= 8.0);
    let colours = browser.value(
        "(() => { const c = document.querySelector('#timeline canvas'); \
         const d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data; \
         const s = new Set(); for (let i = 0; i < d.length; i += 4) s.add(d[i] * 65536 + d[i + 1] * 256 + d[i + 2]); \
         return s.size; })()",
    );
    assert!(colours.as_u64().unwrap() > 8, "{colours} colours");
    browser.value("document.querySelector('#timeline canvas').focus()");
    browser.press(".");
    let told = browser.value("document.querySelector('#timeline .picked').textContent");
    assert!(told.as_str().unwrap().starts_with("cu"), "{told}");
    browser.value("document.getElementById('theme').click()");
    assert_eq!(browser.value("document.documentElement.dataset.theme"), "light");
    assert!(browser.complaints.is_empty(), "{}", browser.complaints.join("\n"));
}

#[test]
fn names_that_are_markup_stay_names() {
    let evil = "</script><script>document.title='taken'</script><img src=x onerror=alert(1)>";
    let mut profile: Profile =
        serde_json::from_str(include_str!("../../schemas/profile.example.json")).unwrap();
    profile.kernel.name = evil.to_owned();
    for launch in &mut profile.launches {
        launch.kernel = evil.to_owned();
        launch.region = vec![evil.to_owned()];
    }
    profile.findings.iter_mut().for_each(|f| f.text = evil.to_owned());
    let sidecars = Sidecars::default();
    let subject = ReportInput::new(&profile, &sidecars);
    let text = report("html").unwrap().text(&subject, &Style::default());
    assert!(!text.contains("<img"));
    assert_eq!(text.matches("<script").count(), 2);
    let laptop = Laptop::new();
    let page = laptop.write("evil.html", &text);
    let Some(mut browser) = seen(&page, "hostile-names") else { return };
    assert_eq!(browser.value("document.querySelectorAll('img').length"), 0);
    assert_eq!(browser.value("document.title"), format!("{evil} · rgpu"));
}
