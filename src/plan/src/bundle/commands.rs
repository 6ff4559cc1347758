//! Renders a plan as shell commands that a person can read and run: `commands.sh` and `--dry-run`.

use std::fmt::Write;

use rgpu_protocol::Plan;
use rgpu_protocol::plan::Arg;

use rgpu_model::error::shell_word;

/// `argv` as one shell line.
pub fn quoted(argv: &[String]) -> String {
    argv.iter().map(shell_word).collect::<Vec<_>>().join(" ")
}

/// Every command of the plan, in order. The rungs of a step are alternatives, so all but the first
/// are comments.
pub fn commands(plan: &Plan) -> String {
    let mut out = String::new();
    // Writing to a String cannot fail.
    let mut line = |text: &str| {
        let _ = writeln!(out, "{text}");
    };
    line("#!/bin/sh");
    line(&format!("# {}: what rgpu runs on the host, one line a command.", one_line(&plan.title)));
    line(
        "# JOB is the job's folder. Rungs that are comments are tried when the one above them fails.",
    );
    line(": \"${JOB:=$PWD}\"");
    for step in &plan.steps {
        line("");
        let gpu = if step.gpu { ", with the GPU locked" } else { "" };
        line(&format!(
            "# step {}: {}, at most {} s{gpu}",
            step.id,
            one_line(&step.title),
            step.timeout_s
        ));
        for (at, rung) in step.rungs.iter().enumerate() {
            if !rung.loses.is_empty() {
                line(&format!("# rung {}, which loses {}", rung.id, one_line(&rung.loses)));
            } else if step.rungs.len() > 1 {
                line(&format!("# rung {}", rung.id));
            }
            let mut command = format!("cd {} &&", quoted_word(&Arg::in_job(rung.cwd.as_str())));
            for (name, value) in plan.env.iter().chain(&rung.env) {
                let _ = write!(command, " {name}={}", quoted_word(value));
            }
            for argument in &rung.argv {
                command.push(' ');
                command.push_str(&quoted_word(argument));
            }
            let command = format!("({command})");
            // A quoted word may hold line breaks: each of its lines is part of the comment.
            line(&if at == 0 { command } else { format!("# {}", command.replace('\n', "\n# ")) });
        }
    }
    out
}

fn quoted_word(word: &Arg) -> String {
    match word {
        Arg::Text(text) => shell_word(text),
        Arg::InJob { prefix, in_job } => {
            let prefix = if prefix.is_empty() { String::new() } else { shell_word(prefix) };
            let path =
                if in_job.is_empty() { String::new() } else { format!("/{}", shell_word(in_job)) };
            format!("{prefix}\"$JOB\"{path}")
        }
    }
}

/// Replaces control characters: a newline in a title would end the comment.
fn one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}
