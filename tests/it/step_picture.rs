//! The picture of a step on the page: every part is named in it or beside it, on any screen.
//! Pictures go to `target/pages/`.

use std::path::{Path, PathBuf};

use rgpu_model::account::{AccountCause, AccountPart, StepSource, StepTime};
use rgpu_model::trace::{Trace, TraceWork, TraceWorkKind};
use rgpu_model::{Account, Profile, Sidecars};
use rgpu_report::{ReportInput, Style, report};
use serde_json::json;

use crate::browser::Browser;
use crate::laptop::Laptop;

const MS: u64 = 1_000_000;

/// Parts of a step of 100 ms, by their percent, and what is hidden of each.
type Parts<'a> = &'a [(AccountCause, u64, u64)];

const TRAINING: Parts<'_> = &[
    (AccountCause::MatrixProduct, 51, 0),
    (AccountCause::Host, 24, 3),
    (AccountCause::CopyPageable, 12, 0),
    (AccountCause::Cast, 7, 1),
    (AccountCause::Communication, 3, 27),
    (AccountCause::Synchronisation, 2, 0),
    (AccountCause::Unknown, 1, 0),
];

const MANY: Parts<'_> = &[
    (AccountCause::MatrixProduct, 16, 4),
    (AccountCause::Attention, 13, 0),
    (AccountCause::CopyPageable, 11, 9),
    (AccountCause::Normalisation, 10, 0),
    (AccountCause::Softmax, 9, 0),
    (AccountCause::Reduction, 8, 2),
    (AccountCause::ElementWise, 7, 0),
    (AccountCause::Cast, 6, 0),
    (AccountCause::GatherScatter, 5, 1),
    (AccountCause::CopyUnified, 5, 0),
    (AccountCause::Host, 4, 0),
    (AccountCause::LaunchLatency, 3, 0),
    (AccountCause::Synchronisation, 2, 0),
    (AccountCause::Unknown, 1, 0),
];

fn account(parts: Parts<'_>) -> Account {
    let part = |(cause, ms, hidden_ms): &(AccountCause, u64, u64)| AccountPart {
        cause: cause.clone(),
        ns: ms * MS,
        share: *ms as f64 / 100.0,
        hidden_ns: hidden_ms * MS,
        count: 1.0,
        ..AccountPart::default()
    };
    let step = StepTime {
        found_by: StepSource::Period,
        count: 40,
        median_ns: 100 * MS,
        match_share: 1.0,
        shown_start_ns: 4_000 * MS,
        shown_ns: 100 * MS,
        ..StepTime::default()
    };
    let parts = parts.iter().map(part).collect();
    Account { step: Some(step), parts, program_ns: 6_000 * MS, ..Account::default() }
}

/// A kernel in each of 40 steps, which begin at 2 s.
fn trace() -> Trace {
    let kernel = |at: u64| TraceWork {
        kind: TraceWorkKind::Kernel,
        start_ns: (2_000 + 100 * at + 40) * MS,
        duration_ns: 20 * MS,
        ..TraceWork::default()
    };
    Trace {
        span_ns: 6_000 * MS,
        names: vec!["step_kernel".to_owned()],
        work: (0..40).map(kernel).collect(),
        ..Trace::default()
    }
}

/// The page of a profile with this account.
fn page(laptop: &Laptop, account: Account, name: &str) -> PathBuf {
    let mut profile = Profile { account: Some(account), ..Profile::default() };
    profile.kernel.name = "train.py".to_owned();
    let sidecars = Sidecars { trace: Some(trace()), ..Sidecars::default() };
    let subject = ReportInput::new(&profile, &sidecars);
    laptop.write(name, &report("html").unwrap().text(&subject, &Style::default()))
}

/// Labels of the picture that leave it, cross another one, or are crossed by a line; and parts that
/// no label names.
const MISPLACED: &str = "(() => {
    const picture = document.querySelector('#account svg.step');
    const box = picture.getBoundingClientRect();
    const texts = [...picture.querySelectorAll('text')];
    const boxes = texts.map(text => text.getBoundingClientRect());
    const cross = (a, b) => a.left < b.right - 1 && b.left < a.right - 1 && a.top < b.bottom - 3 && b.top < a.bottom - 3;
    const lines = [...picture.querySelectorAll('.lead')].map(line => line.getBoundingClientRect());
    const wrong = texts.filter((text, at) => boxes[at].left < box.left - 1 || boxes[at].right > box.right + 1
        || boxes[at].bottom > box.bottom + 1
        || boxes.some((other, place) => place !== at && cross(boxes[at], other)));
    const crossed = innerWidth < 640 ? [] : texts.filter((text, at) => lines.some(line => {
        const x = line.height > line.width ? line : null;
        const stands = x && [x.left, x.right].some(side => side > boxes[at].left + 2 && side < boxes[at].right - 2);
        return stands && line.top < boxes[at].bottom - 8 && line.bottom > boxes[at].bottom + 2;
    }));
    const told = texts.map(text => text.textContent).join(' ');
    const unnamed = [...picture.querySelectorAll('rect title')].map(title => title.textContent.split(',')[0])
        .filter(title => !title.split(' ').every(word => told.includes(word)));
    return [...wrong, ...crossed].map(text => text.textContent).concat(unnamed);
})()";

#[test]
fn every_part_of_a_step_is_named_in_the_picture_or_beside_it() {
    let laptop = Laptop::new();
    let Some(mut browser) = Browser::start() else { return };
    let pictures = Path::new(env!("CARGO_BIN_EXE_rgpu")).ancestors().nth(2).unwrap().join("pages");
    for (name, parts) in [("training", TRAINING), ("many", MANY)] {
        let page = page(&laptop, account(parts), &format!("{name}.html"));
        for (width, scheme) in [(1280, "light"), (1280, "dark"), (390, "light"), (390, "dark")] {
            browser.resize(width);
            browser.wish(scheme);
            browser.open_and_draw(&page);
            browser.picture(&pictures.join(format!("step-{name}-{width}-{scheme}.png")));
            assert_eq!(browser.value(MISPLACED), json!([]), "{name} at {width}, {scheme}");
            let drawn = "document.querySelectorAll('#account > .step rect').length";
            let hidden = parts.iter().filter(|(.., hidden)| *hidden > 0).count();
            assert_eq!(browser.value(drawn), json!(parts.len() + hidden));
            let wide = browser.value("document.documentElement.scrollWidth").as_u64().unwrap();
            assert!(wide <= u64::from(width), "{name} is {wide} pixels wide at {width}");
        }
    }
    assert_eq!(browser.complaints, Vec::<String>::new());
}

#[test]
fn the_timeline_begins_at_the_step_that_is_shown() {
    let laptop = Laptop::new();
    let Some(mut browser) = Browser::start() else { return };
    let drawn = "Number(document.querySelector('#timeline canvas').dataset.drawn)";
    browser.open_and_draw(&page(&laptop, account(TRAINING), "step.html"));
    assert_eq!(browser.value(drawn), json!(1));
    let all = "[...document.querySelectorAll('#timeline button')].find(b => b.textContent === 'All').click()";
    browser.value(all);
    assert_eq!(browser.value(drawn), json!(40));
    let step = "[...document.querySelectorAll('#timeline button')].find(b => b.textContent === 'A step').click()";
    browser.value(step);
    assert_eq!(browser.value(drawn), json!(1));
    // Without steps it begins at the first piece of GPU work.
    let without_steps = Account { step: None, ..account(TRAINING) };
    browser.open_and_draw(&page(&laptop, without_steps, "program.html"));
    assert_eq!(browser.value(drawn), json!(40));
}
