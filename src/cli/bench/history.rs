//! `rgpu bench history`: the times of cases over the suites of this project.

#![expect(
    clippy::disallowed_methods,
    reason = "the page's path, which the user named or which was checked for links"
)]

use std::collections::BTreeSet;

use super::args::HistoryArgs;
use crate::cli::support::app::{App, Status};
use crate::cli::support::overwrite;
use crate::cli::support::suite_index;
use crate::cli::support::terminal::escape_but_own_colors;
use rgpu_model::duration::parse_duration;
use rgpu_model::error::{Exit, Failure, Result, nearest, shell_word};
use rgpu_model::suite::RowState;
use rgpu_report::suite::{history_page, history_table};
use rgpu_work::suite::{PointsByKey, RunIndex, TimeQuery, history};

pub(super) fn run(app: &App, args: &HistoryArgs) -> Result<Status> {
    app.check_one_format(args.format.as_deref())?;
    let format = args.format.as_deref().unwrap_or(if app.global.json { "json" } else { "table" });
    if args.out.is_some() && format != "html" {
        return Err(Failure::new(Exit::Usage, "usage", "`--out` is for `--format html`")
            .hint("the table and the JSON go to stdout"));
    }
    let now = jiff::Timestamp::now();
    let since = args.since.as_deref().map(|text| since(text, now)).transpose()?;
    let query = TimeQuery { case: args.case.clone(), gpu: args.gpu.clone() };
    let index = suite_index::open_existing(app)?;
    let points = match &index {
        Some(index) => index.history(&query)?,
        None => PointsByKey::new(),
    };
    let history = history(points, args.threshold, since.as_deref());
    if history.series.is_empty() {
        return Err(no_history(index.as_ref(), args)?);
    }
    match format {
        "json" => app.print_json(&history)?,
        "html" => {
            let beside = app.config.folder_beside_runs("history.html")?;
            let path = args.out.as_ref().map_or(beside, |out| app.cwd.join(out));
            let page = history_page(&history, &app.config.project);
            if !args.force {
                overwrite::check(&path, page.as_bytes())?;
            }
            let failed = |e: std::io::Error| {
                Failure::new(Exit::Disk, "disk", "the page cannot be written")
                    .file(path.display())
                    .cause(e)
            };
            if let Some(folder) = path.parent() {
                std::fs::create_dir_all(folder).map_err(failed)?;
            }
            rgpu_run::store::atomic::write(&path, page.as_bytes()).map_err(failed)?;
            app.print(&format!("{}\n", app.short(&path)));
        }
        _ => app.print(&escape_but_own_colors(history_table(&history, &app.style()).as_bytes())),
    }
    Ok(0)
}

/// Why there is no time of the case.
fn no_history(index: Option<&RunIndex>, args: &HistoryArgs) -> Result<Failure> {
    let case = &args.case;
    let states = index.map(|index| index.states_of(case)).transpose()?.unwrap_or_default();
    if !states.is_empty() && states.iter().all(|state| state == RowState::NoGpu.as_str()) {
        let what = format!("`{case}` ran only on hosts without a GPU, so it has no times");
        let again = format!("rgpu bench run -t {} --remote NAME", shell_word(case));
        return Ok(Failure::new(Exit::Usage, "no_history", what)
            .hint(format!("name a host with a GPU: `{again}`")));
    }
    let mut what = format!("no suite has a time of `{case}`");
    for (flag, value) in [("--gpu", &args.gpu), ("--since", &args.since)] {
        if let Some(value) = value {
            what += &format!(" with `{flag} {value}`");
        }
    }
    let mut failure = Failure::new(Exit::Usage, "no_history", what);
    if states.is_empty() {
        let timed = index.map(RunIndex::timed_cases).transpose()?.unwrap_or_default();
        let target = |case: &String| case.split(['[', '@']).next().unwrap_or_default().to_owned();
        let names: BTreeSet<String> = timed.iter().map(target).chain(timed.clone()).collect();
        let near = nearest(case, names.iter().map(String::as_str));
        if !near.is_empty() {
            failure = failure.hint(format!("did you mean `{}`?", near.join("`, `")));
        }
    }
    if args.since.is_some() && !states.is_empty() {
        return Ok(failure.hint("without `--since` all of its times are shown"));
    }
    Ok(failure
        .hint("`rgpu bench list` shows the cases; `*` and `?` match any characters")
        .hint("`rgpu runs reindex` makes the index again from the run folders"))
}

/// The moment that `30d`, `1d12h` or a date means, as RFC 3339. A number without a unit is refused:
/// nobody means seconds here.
fn since(text: &str, now: jiff::Timestamp) -> Result<String> {
    let has_unit = text.ends_with(|c: char| c.is_ascii_alphabetic());
    if let Some(time) = parse_duration(text).filter(|_| has_unit)
        && let Ok(moment) = now.checked_sub(time)
    {
        return Ok(moment.to_string());
    }
    match text.parse::<jiff::civil::Date>() {
        Ok(date) => Ok(date.to_string()),
        Err(_) => {
            Err(Failure::new(Exit::Usage, "usage", format!("`--since {text}` is not a valid time"))
                .hint("write 30d, 12h or 2026-11-01"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_ago_and_a_date_are_moments() {
        let now: jiff::Timestamp = "2026-01-31T12:00:00Z".parse().unwrap();
        assert_eq!(since("30d", now).unwrap(), "2026-01-01T12:00:00Z");
        assert_eq!(since("1d6h", now).unwrap(), "2026-01-30T06:00:00Z");
        assert_eq!(since("12h", now).unwrap(), "2026-01-31T00:00:00Z");
        assert_eq!(since("2026-01-02", now).unwrap(), "2026-01-02");
        for wrong in ["30", "x", "d", "2026-13-01"] {
            assert_eq!(since(wrong, now).unwrap_err().exit, Exit::Usage, "{wrong}");
        }
    }
}
