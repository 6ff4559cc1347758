//! Adds the compiled kernels and the results of the sanitizer to the terminal report.

use super::{MAX_ROWS, View};
use crate::TextTable;
use crate::blocks::{Block, Blocks};
use crate::checks;
use crate::quantity::bytes;
use rgpu_model::number_form::by_number;
use rgpu_model::sanitizer::SanitizerVerdict;

pub(super) fn add_sanitizer(out: &mut Blocks, view: &View<'_>) {
    let profile = view.profile;
    if profile.sanitizer.is_empty() {
        return;
    }
    out.add(Block::Group("sanitizer"));
    for result in &profile.sanitizer {
        let (word, color, rest) = match (&result.verdict, result.errors) {
            (SanitizerVerdict::Clean, errors) => {
                let errors = errors.map(|errors| format!(", {errors} errors"));
                ("clean".to_owned(), "32", errors.unwrap_or_default())
            }
            (SanitizerVerdict::Found, _) => {
                let causes = result.causes.len();
                (format!("{causes} {}", by_number(causes, "cause", "causes")), "31", String::new())
            }
            _ => (String::new(), "", format!("unknown: {}", result.note)),
        };
        out.painted_field(result.title(), format!("{word}{rest}"), color, word.len());
        let known = matches!(result.verdict, SanitizerVerdict::Clean | SanitizerVerdict::Found);
        if known && !result.note.is_empty() {
            out.field("", &result.note);
        }
        for cause in &result.causes {
            out.field("", checks::cause(cause, &view.names));
            for detail in cause.details.iter().take(2) {
                out.field("", format!("  {detail}"));
            }
        }
    }
    let texts = [checks::covered(profile, &view.names), checks::not_run(profile)];
    texts.into_iter().flatten().for_each(|text| out.field("", text));
}

pub(super) fn add_code(out: &mut Blocks, view: &View<'_>) {
    let table = TextTable::of(
        view.profile.code.iter().take(view.rows(MAX_ROWS)),
        &[
            ("code", &|k| view.names.name(k.name.as_deref().unwrap_or(&k.symbol))),
            ("arch", &|k| k.arch.clone()),
            ("regs:", &|k| k.registers.to_string()),
            ("stack:", &|k| k.stack_bytes.map_or_else(|| "?".into(), |b| bytes(b.into()))),
            ("spills:", &|k| match (k.spill_store_bytes, k.spill_load_bytes) {
                (Some(0), Some(0)) => "0".to_owned(),
                (Some(s), Some(l)) => format!("{s}/{l} B"),
                _ => String::new(),
            }),
            ("shared:", &|k| match k.shared_reserved_bytes {
                Some(reserved) => {
                    format!("{} + {}", bytes(k.shared_bytes.into()), bytes(reserved.into()))
                }
                None => bytes(k.shared_bytes.into()),
            }),
            ("size:", &|k| bytes(k.code_bytes as f64)),
        ],
    );
    out.table("compiled", table);
}
