//! Adds the compiled kernels and the results of the sanitizer to the terminal report.

use super::{MAX_ROWS, Page};
use crate::TextTable;
use crate::checks;
use crate::quantity::bytes;
use rgpu_model::Profile;
use rgpu_model::sanitizer::SanitizerVerdict;

pub(super) fn add_sanitizer(page: &mut Page<'_>, profile: &Profile) {
    if profile.sanitizer.is_empty() {
        return;
    }
    page.line("");
    for result in &profile.sanitizer {
        let text = match result.verdict {
            SanitizerVerdict::Clean => match result.errors {
                Some(errors) => format!("{}, {errors} errors", page.paint("32", "clean")),
                None => page.paint("32", "clean"),
            },
            SanitizerVerdict::Found => {
                let causes = result.causes.len();
                page.paint("31", &format!("{causes} cause{}", if causes == 1 { "" } else { "s" }))
            }
            _ => format!("unknown: {}", result.note),
        };
        page.field(&result.title(), &text);
        let known = matches!(result.verdict, SanitizerVerdict::Clean | SanitizerVerdict::Found);
        if known && !result.note.is_empty() {
            page.field("", &result.note);
        }
        for cause in &result.causes {
            page.field("", &checks::cause(cause, &page.names));
            for detail in cause.details.iter().take(2) {
                page.field("", &format!("  {detail}"));
            }
        }
    }
    let texts = [checks::covered(profile, &page.names), checks::not_run(profile)];
    texts.into_iter().flatten().for_each(|text| page.field("", &text));
}

pub(super) fn add_code(page: &mut Page<'_>, profile: &Profile) {
    let mut table = TextTable::new("code | arch | regs: | stack: | spills: | shared: | size:");
    for k in profile.code.iter().take(MAX_ROWS) {
        table.add_row([
            page.names.name(k.name.as_deref().unwrap_or(&k.symbol)),
            k.arch.clone(),
            k.registers.to_string(),
            k.stack_bytes.map(|b| bytes(b.into())).unwrap_or_else(|| "?".into()),
            match (k.spill_store_bytes, k.spill_load_bytes) {
                (Some(0), Some(0)) => "0".to_owned(),
                (Some(s), Some(l)) => format!("{s}/{l} B"),
                _ => String::new(),
            },
            match k.shared_reserved_bytes {
                Some(reserved) => {
                    format!("{} + {}", bytes(k.shared_bytes.into()), bytes(reserved.into()))
                }
                None => bytes(k.shared_bytes.into()),
            },
            bytes(k.code_bytes as f64),
        ]);
    }
    page.table("compiled", table);
}
