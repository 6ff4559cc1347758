//! The tools that the mode of a case asks for and that gave no results.

use rgpu_model::suite::{MissingTool, NO_GPU};
use rgpu_model::{Profile, RungId};
use rgpu_plan::kernel::ProfileMode;

/// The profilers that a mode asks for.
fn tools_of(mode: ProfileMode) -> &'static [&'static str] {
    match mode {
        ProfileMode::Ncu => &["ncu"],
        ProfileMode::Nsys => &["nsys"],
        ProfileMode::Deep => &["nsys", "ncu"],
        _ => &[],
    }
}

/// The tools that `mode` asks for and that reached no rung, with the reason of the best rung that
/// failed; `ncu counters` if ncu reached only the rung without counters. A host without a GPU has
/// another remark.
pub fn missing_tools(profile: &Profile, mode: ProfileMode) -> Vec<MissingTool> {
    if profile.gaps.iter().any(|gap| gap.code == NO_GPU) {
        return Vec::new();
    }
    let tools = tools_of(mode).iter();
    tools.filter_map(|tool| missing_tool(profile, tool)).collect()
}

/// The tool, if no rung with its measurements was reached.
fn missing_tool(profile: &Profile, tool: &str) -> Option<MissingTool> {
    let rungs = || profile.ladder.iter().filter(|record| record.rung.starts_with(tool));
    if rungs().any(|record| record.ok && record.rung != RungId::NcuLaunch) {
        return None;
    }
    let name =
        if rungs().any(|record| record.ok) { format!("{tool} counters") } else { tool.to_owned() };
    let failed = || rungs().filter(|record| !record.ok);
    // Rungs that were left out come first, and are not the reason if others were tried.
    let tried = failed().find(|record| !record.argv.is_empty());
    let left_out = profile.selection.iter().flat_map(|selection| &selection.left_out);
    let (code, text) = match (tried.or(failed().next()), left_out.into_iter().next()) {
        (Some(record), _) if record.message.is_empty() => {
            (record.code.clone(), format!("rung `{}` failed", record.rung))
        }
        (Some(record), _) => (record.code.clone(), record.message.clone()),
        (None, Some(gap)) => (gap.code.clone(), gap.text.clone()),
        (None, None) => (String::new(), format!("the run ended on rung `{}`", profile.rung)),
    };
    Some(MissingTool { tool: name, code, text })
}

#[cfg(test)]
mod tests {
    use rgpu_protocol::RungRecord;

    use super::*;
    use rgpu_model::profile::Gap;

    fn record(rung: &str, ok: bool, message: &str) -> RungRecord {
        let code = if ok { "" } else { "counters_refused" };
        RungRecord {
            rung: rung.into(),
            ok,
            code: code.into(),
            message: message.into(),
            ..RungRecord::default()
        }
    }

    #[test]
    fn a_tool_whose_rungs_all_failed_is_missing_with_the_reason_of_the_best() {
        let tried = |message| RungRecord {
            argv: vec!["ncu".into()],
            ..record("ncu.asked", false, message)
        };
        let ladder = vec![
            record("ncu.asked.sudo", false, "left out"),
            tried("no permission"),
            tried("no"),
            record("nsys.full", true, ""),
        ];
        let mut profile = Profile { ladder, ..Profile::default() };
        let missing = |profile: &Profile, mode| {
            let found = missing_tools(profile, mode).into_iter();
            found.map(|m| (m.tool, m.code, m.text)).collect::<Vec<_>>()
        };
        let ncu = || vec![("ncu".into(), "counters_refused".into(), "no permission".into())];
        assert_eq!(missing(&profile, ProfileMode::Ncu), ncu());
        assert_eq!(missing(&profile, ProfileMode::Deep), ncu());
        assert_eq!(missing(&profile, ProfileMode::Nsys), []);
        assert_eq!(missing(&profile, ProfileMode::Bench), []);
        profile.ladder.push(record("ncu.launch", true, ""));
        let counters = missing(&profile, ProfileMode::Ncu);
        assert_eq!(
            (counters[0].0.as_str(), counters[0].2.as_str()),
            ("ncu counters", "no permission")
        );
        profile.ladder.push(record("ncu.basic", true, ""));
        assert_eq!(missing(&profile, ProfileMode::Ncu), []);
        profile.ladder.clear();
        let lost = missing(&profile, ProfileMode::Ncu);
        assert!(lost[0].1.is_empty() && lost[0].2.contains("ended on rung"), "{lost:?}");
        profile.gaps.push(Gap { code: NO_GPU.into(), text: String::new() });
        assert_eq!(missing(&profile, ProfileMode::Ncu), []);
    }
}
