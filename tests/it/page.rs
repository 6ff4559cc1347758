//! The HTML page of real recordings, opened in a browser. Pictures go to `target/pages/`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use rgpu_model::{Profile, Sidecars};
use rgpu_report::{ReportInput, Style, report};

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
        let lists = browser.value("document.querySelector('main').textContent.includes('[object')");
        assert_eq!(lists, false, "a list or an element is shown as its type");
        assert_eq!(browser.broken_quantities(), serde_json::json!([]));
        browser.picture(&pictures().join(format!("{name}-{scheme}.png")));
    }
    assert!(browser.complaints.is_empty(), "{}", browser.complaints.join("\n"));
    Some(browser)
}

#[test]
fn a_page_in_a_frame_without_a_height_marks_its_first_section() {
    let laptop = Laptop::new();
    let page = page(&laptop, "ncu/2025.3.1/full-tiled-matmul/report.ncu-repz");
    let text = std::fs::read_to_string(page).unwrap();
    let text = text.replace('&', "&amp;").replace('"', "&quot;");
    let outer = laptop.project("notebook.html");
    // As an output of a notebook that is laid out later.
    let frame =
        format!("<!doctype html><iframe srcdoc=\"{text}\" style=\"display: none\"></iframe>");
    std::fs::write(&outer, frame).unwrap();
    let Some(mut browser) = Browser::start() else { return };
    browser.open(&outer);
    let marked = "[...frames[0].document.querySelectorAll('nav a')]
        .flatMap((a, at) => a.classList.contains('here') ? [at] : [])";
    assert_eq!(browser.value(marked), serde_json::json!([0]));
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
    let row = "(() => { const [first] = document.querySelectorAll('nav a'); \
               return document.querySelector('nav').offsetHeight < 2 * first.offsetHeight; })()";
    assert_eq!(browser.value(row), true, "the navigation is one row");
    assert!(browser.complaints.is_empty(), "{}", browser.complaints.join("\n"));
}

/// Draws the timeline again and returns the texts that leave the canvas, and the times on its axis
/// that overlap.
const CUT_TEXTS: &str = "(() => {
    const draw = CanvasRenderingContext2D.prototype.fillText;
    const texts = [], canvas = document.querySelector('#timeline canvas');
    CanvasRenderingContext2D.prototype.fillText = function (text, x, y, room) {
        texts.push({ text, x, y, end: x + Math.min(this.measureText(text).width, room ?? Infinity) });
        draw.call(this, text, x, y, room);
    };
    for (const press of [1, 2]) { texts.length = 0; document.getElementById('theme').click(); }
    CanvasRenderingContext2D.prototype.fillText = draw;
    const axis = texts.filter(t => t.y === texts[0].y);
    return [...texts.filter(t => t.end > canvas.clientWidth),
        ...axis.filter((t, at) => at && t.x < axis[at - 1].end)].map(t => t.text);
})()";

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
    assert_eq!(browser.value(CUT_TEXTS), serde_json::json!([]), "texts that are cut or overlap");
    browser.press(".");
    let told = browser.value("document.querySelector('#timeline .picked').textContent");
    assert!(told.as_str().unwrap().starts_with("cu"), "{told}");
    browser.value("document.getElementById('theme').click()");
    assert_eq!(browser.value("document.documentElement.dataset.theme"), "light");
    assert!(browser.complaints.is_empty(), "{}", browser.complaints.join("\n"));
}

#[test]
fn the_launch_of_the_headline_is_selected_in_the_list_and_in_the_selector() {
    let laptop = Laptop::new();
    let page = page(&laptop, "ncu/2025.3.1/regions/report.ncu-repz");
    let Some(mut browser) = seen(&page, "regions") else { return };
    let selected = |browser: &mut Browser| {
        let selector = "document.querySelector('.picker select').selectedOptions[0].textContent";
        let row = "document.querySelector('#launches tr.on td').textContent";
        let tile = "document.querySelector('#summary .tile .k').textContent";
        [selector, row, tile].map(|what| browser.value(what).as_str().unwrap_or("none").to_owned())
    };
    let [selector, row, tile] = selected(&mut browser);
    assert!(selector.starts_with("#3 vecadd"), "{selector}");
    assert_eq!((row.as_str(), tile.as_str()), ("3", "Launch #3 vecadd"));

    browser.value("document.querySelectorAll('#launches tbody tr')[1].click()");
    let [selector, row, tile] = selected(&mut browser);
    assert!(selector.starts_with("#1 "), "{selector}");
    assert_eq!(row, "1");
    assert!(tile.starts_with("Launch #1 "), "{tile}");
    assert!(browser.complaints.is_empty(), "{}", browser.complaints.join("\n"));
}

/// The arrows of the memory chart by their metrics, as the table below the chart has them.
fn arrows(browser: &mut Browser) -> BTreeMap<String, String> {
    let rows = browser.value(
        "[...document.querySelectorAll('#memory tbody tr')].map(row => { \
         const cells = [...row.cells].map(c => c.textContent); \
         return [cells.at(-1), cells[2].replaceAll('\u{202f}', '')]; })",
    );
    serde_json::from_value::<Vec<(String, String)>>(rows).unwrap().into_iter().collect()
}

#[test]
fn the_memory_chart_has_the_numbers_of_ncus_own_pages() {
    let laptop = Laptop::new();
    let folder = "ncu/2025.3.1/full-spill";
    let page = page(&laptop, &format!("{folder}/report.ncu-repz"));
    let Some(mut browser) = seen(&page, "memory-chart") else { return };
    let arrows = arrows(&mut browser);

    // The second line of ncu's raw page has units, the third the values.
    let raw = std::fs::read(fixture(&format!("{folder}/raw.csv"))).unwrap();
    let mut raw = csv::Reader::from_reader(raw.as_slice());
    let names = raw.headers().unwrap().clone();
    let values = raw.records().nth(1).unwrap().unwrap();
    let raw: BTreeMap<&str, &str> = names.iter().zip(values.iter()).collect();
    let single = arrows.iter().filter(|(metric, _)| !metric.contains(' '));
    let compared = single.inspect(|(metric, shown)| {
        assert_eq!(shown.as_str(), raw[metric.as_str()], "{metric}");
    });
    assert!(compared.count() >= 12);
    assert_eq!(arrows["dram__bytes_write.sum"], "363328000");
    assert_eq!(arrows["smsp__sass_inst_executed_op_local_ld.sum"], "2605056");

    // What ncu's details page says: L1/TEX Hit Rate 15.61, L2 Hit Rate 68.47, 3.05 Tbyte/s.
    let details = std::fs::read_to_string(fixture(&format!("{folder}/details.csv"))).unwrap();
    let drawn = browser.value("document.querySelector('#memory svg').textContent");
    let drawn = drawn.as_str().unwrap();
    for (line, label) in [
        ("\"L1/TEX Hit Rate\",\"%\",\"15.61\"", "hit rate 15.6 %"),
        ("\"L2 Hit Rate\",\"%\",\"68.47\"", "hit rate 68.5 %"),
        ("\"Memory Throughput\",\"Tbyte/s\",\"3.05\"", "3.05 TB/s"),
    ] {
        assert!(details.contains(line), "{line}");
        assert!(drawn.contains(label), "{label} is not in {drawn}");
    }
    for label in ["2.61 M inst", "2.79 M requests · 5.92 %", "363 MB · 40 %", "0 wavefronts"] {
        assert!(drawn.contains(label), "{label} is not in {drawn}");
    }

    // The text alternative is reached and opened by keyboard.
    browser.value("document.querySelector('#memory summary').focus()");
    browser.press(" ");
    assert_eq!(browser.value("document.querySelector('#memory details').open"), true);
    assert!(browser.complaints.is_empty(), "{}", browser.complaints.join("\n"));
}

#[test]
fn the_memory_chart_shows_what_a_report_lacks_as_not_collected() {
    let laptop = Laptop::new();
    let page = page(&laptop, "ncu/2025.3.1/eight-transpose-conflicts/report.ncu-repz");
    let Some(mut browser) = seen(&page, "memory-chart-gaps") else { return };
    let arrows = arrows(&mut browser);
    assert_eq!(arrows["l1tex__m_xbar2l1tex_read_bytes.sum"], "not collected");
    assert_eq!(arrows["l1tex__t_requests_pipe_lsu_mem_local_op_ld.sum"], "0");
    let drawn = browser.value("document.querySelector('#memory').textContent");
    let drawn = drawn.as_str().unwrap();
    assert_eq!(drawn.matches("hit rate not collected").count(), 2, "{drawn}");
    assert!(drawn.contains("Not in the report: TMA, Tensor operands."), "{drawn}");

    // Without any of its counters there is no chart, and the page says so.
    let page = self::page(&laptop, "ncu/2025.3.1/regions/report.ncu-repz");
    browser.open(&page);
    assert_eq!(browser.value("document.querySelector('#memory')"), serde_json::Value::Null);
    let about = browser.value("document.querySelector('#about').textContent");
    assert!(about.as_str().unwrap().contains("Memory chart: its counters were not collected"));
}

#[test]
fn a_narrow_screen_cuts_nothing_off() {
    let laptop = Laptop::new();
    let Some(mut browser) = Browser::start() else { return };
    browser.resize(390);
    for (name, recording) in [
        ("tiled-matmul", "ncu/2025.3.1/full-tiled-matmul/report.ncu-repz"),
        ("timeline", "nsys/2025.3.1/regions/report.nsys-rep"),
        ("torch-add", "torch/public/simple-add/trace.json"),
    ] {
        browser.open(&page(&laptop, recording));
        browser.picture(&pictures().join(format!("{name}-narrow.png")));
        let wide = browser.value("document.documentElement.scrollWidth").as_u64().unwrap();
        assert!(wide <= 390, "{name} is {wide} pixels wide");
        // One letter a line would make a page of tens of thousands of pixels.
        let high = browser.value("document.documentElement.scrollHeight").as_u64().unwrap();
        assert!(high < 15_000, "{name} is {high} pixels high");
    }
}

/// Texts of the charts that are outside of them or below 10 pixels, and tables of these sections
/// that are wider than the screen.
const TOO_WIDE: &str = "(() => {
    const texts = [...document.querySelectorAll('#roofline svg, #memory svg')].flatMap(chart => {
        const box = chart.getBoundingClientRect();
        return [...chart.querySelectorAll('text')].filter(text => {
            const { left, right } = text.getBoundingClientRect();
            // The parts of a chart hide each other's columns.
            if (right < box.left || left > box.right) return false;
            const { a, b } = text.getScreenCTM();
            const size = parseFloat(getComputedStyle(text).fontSize) * Math.hypot(a, b);
            return size < 10 || left < box.left - 1 || right > box.right + 1;
        });
    });
    const names = innerWidth > 640 ? ['operators']
        : ['operators', 'kernels', 'launches', 'hotspots', 'regions', 'verdicts'];
    const tables = names.flatMap(id => [...document.querySelectorAll(`#${id} .scroll`)])
        .filter(table => table.scrollWidth > table.clientWidth);
    return [...texts.map(t => t.textContent), ...tables.map(t => t.ariaLabel)];
})()";

#[test]
fn charts_and_rows_fit_any_screen() {
    let laptop = Laptop::new();
    let Some(mut browser) = Browser::start() else { return };
    for recording in [
        "ncu/2025.3.1/full-tiled-matmul/report.ncu-repz",
        "ncu/2025.3.1/full-spill/report.ncu-repz",
        "nsys/2025.3.1/regions/report.nsys-rep",
        "torch/public/simple-add/trace.json",
    ] {
        let page = page(&laptop, recording);
        for width in [420, 1280] {
            browser.resize(width);
            browser.open(&page);
            assert_eq!(browser.value(TOO_WIDE), serde_json::json!([]), "{recording} at {width}");
        }
    }
}

/// A page with more launches than it keeps hot spots of; each launch takes longer than the last.
fn page_of_many_launches(laptop: &Laptop) -> PathBuf {
    let launch = |id: u32| {
        let metrics = serde_json::json!({ "sm__cycles_elapsed.max": { "value": 1.0 } });
        let roofline = serde_json::json!([
            { "chart": "", "label": "FP32", "peak": 1e13, "unit": "FLOP/s", "source": "report" },
            { "chart": "", "label": "DRAM", "peak": 1e12, "unit": "byte/s", "source": "report" },
        ]);
        serde_json::json!({ "id": id, "kernel": "k", "duration_ns": f64::from(id + 1),
            "metrics": metrics, "roofline": roofline })
    };
    let spots = |id: u32| {
        serde_json::json!({ "launch": id, "kernel": "k", "samples": 1,
            "instructions": [{ "offset": 0, "sass": "EXIT", "samples": 1 }] })
    };
    let launches = (0..66).map(|id| serde_json::from_value(launch(id)).unwrap()).collect();
    let profile = Profile { launches, ..Profile::default() };
    let spots: Vec<_> = (0..66).map(spots).collect();
    let spots = serde_json::json!({ "schema": "rgpu.hotspots/1", "launches": spots });
    let hotspots = Some(serde_json::from_value(spots).unwrap());
    let sidecars = Sidecars { hotspots, ..Sidecars::default() };
    let subject = ReportInput::new(&profile, &sidecars);
    laptop.write("many.html", &report("html").unwrap().text(&subject, &Style::default()))
}

#[test]
fn the_launch_shown_first_has_its_hot_spots_and_left_out_ones_are_said_to_be() {
    let laptop = Laptop::new();
    let page = page_of_many_launches(&laptop);
    let Some(mut browser) = seen(&page, "many-launches") else { return };
    let chosen = "document.querySelector('.picker select').selectedOptions[0].textContent";
    assert_eq!(browser.value(chosen), "#65 k, 66 ns");
    let shown = "document.querySelector('#hotspots td.code').textContent";
    assert_eq!(browser.value(shown), "EXIT");

    // Without source lines, only the instructions can be chosen.
    let tabs = "[...document.querySelectorAll('#hotspots .tools button:not(.gone)')]
        .map(b => [b.textContent, b.disabled, b.ariaPressed])";
    let expected =
        serde_json::json!([["Source lines", true, "false"], ["Instructions", false, "true"]]);
    assert_eq!(browser.value(tabs), expected);

    // Without a point there is no chart to explain.
    let roofline = browser.value("document.querySelector('#roofline').textContent");
    let roofline = roofline.as_str().unwrap();
    assert!(roofline.contains("no point can be drawn"), "{roofline}");
    assert!(!roofline.contains("A point is"), "{roofline}");

    browser.value(
        "(() => { const s = document.querySelector('.picker select'); \
         s.value = '64'; s.dispatchEvent(new Event('change')); })()",
    );
    let told = "document.querySelector('#hotspots p.dim').textContent";
    let expected =
        "The values per instruction of this launch are not in this page; they are in the JSON.";
    assert_eq!(browser.value(told), expected);
}

#[test]
fn the_place_of_start_up_among_the_findings_is_explained() {
    let laptop = Laptop::new();
    let Some(mut browser) = Browser::start() else { return };
    let mut note = |ids: &[&str]| {
        let finding = |id: &&str| {
            serde_json::json!({ "id": id, "priority": 1, "category": "host",
            "text": "text", "hint": "hint", "evidence": [] })
        };
        let findings = ids.iter().map(|id| serde_json::from_value(finding(id)).unwrap()).collect();
        let profile = Profile { findings, ..Profile::default() };
        let sidecars = Sidecars::default();
        let subject = ReportInput::new(&profile, &sidecars);
        let text = report("html").unwrap().text(&subject, &Style::default());
        browser.open(&laptop.write("findings.html", &text));
        let note = browser.value("document.querySelector('#findings .note').textContent");
        note.as_str().unwrap().to_owned()
    };
    let start_up = "gpu_waits_for_first_launches";
    let based = "Each finding has the numbers it is based on.";
    assert_eq!(note(&["a", "b"]), format!("Most time at stake first. {based}"));
    let repeats =
        "Most time at stake first, but start-up, which happens once, comes after what repeats.";
    assert_eq!(note(&["a", start_up]), format!("{repeats} {based}"));
    let first = "Most time at stake first. Start-up is first, because what repeats has next to \
                 nothing to give back.";
    assert_eq!(note(&[start_up, "a"]), format!("{first} {based}"));
}

#[test]
fn names_that_are_markup_stay_names() {
    let evil = "</script><script>document.title='taken'</script><img src=x onerror=alert(1)>";
    let mut profile: Profile =
        serde_json::from_str(include_str!("../../schemas/profile.example.json")).unwrap();
    profile.kernel.name = evil.to_owned();
    for launch in &mut profile.launches {
        launch.kernel = evil.to_owned();
        launch.region = vec![evil.to_owned()].into();
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
