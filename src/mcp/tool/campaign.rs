//! `campaign`: suites, the queue and loops.

use std::path::Path;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Deserialize;

use super::ToolInfo;
use super::command::{Action, actions, output, run_checked, stop};
use crate::mcp::answer::{self, Answer};
use crate::mcp::arguments::{argument_error, check_words};
use crate::mcp::call::Call;
use rgpu_model::error::Result;
use rgpu_work::own_command::{QUEUED_COMMANDS, check_agent_words};

pub(super) const TOOL: ToolInfo = ToolInfo {
    name: "campaign",
    title: "Suites, queue and loops",
    does: "Runs commands that make many runs: `bench` (suites of bench.toml: run, compare, history, \
           audit), `queue` (commands that wait for their turn) and `loop` (a kernel that a worker \
           improves step by step).",
    use_when: "many kernels or cases are measured, commands must run one after another, or a \
               loop is started or watched",
    not_for: &[
        ("one kernel", "profile"),
        ("two kernels or two single results", "compare"),
        ("waiting for one run", "runs"),
    ],
    read_only: false,
    destructive: true,
    starts_runs: false,
    input: answer::input::<Arguments>,
    output,
    call: |call| Box::pin(run(call)),
};

/// The longest name of an entry that is made from its command.
const MAX_NAME_CHARS: usize = 60;

static BENCH: &[Action] = &[
    action("list", "targets and cases; --target=suite:case (globs)"),
    action(
        "run",
        "measure; --target=suite:case (globs), --remote=NAME, --level=sol, --fail-on=slower",
    ),
    action("resume", "continue a suite; RUN"),
    action("show", "a suite's result; RUN"),
    action("compare", "two suites; RUN RUN"),
    action("history", "times over all suites; CASE"),
    action("audit", "look for what makes results less than they seem"),
];

static QUEUE: &[Action] = &[
    action("add", "a command: --name=WORD -- rgpu profile --kernel=K"),
    action("run", "run rgpu's own commands among the entries until none waits or runs"),
    action("stop", "ask the `run` of this server to stop: it starts no more entries"),
    action("list", "entries"),
    action("show", "one entry; ID"),
    action("log", "an entry's output; ID"),
    action("wait", "until entries have ended; ID …"),
    action("cancel", "end entries; ID …"),
    action("requeue", "put ended entries back; ID …"),
    action("pause", "start no more"),
    action("resume", "start again"),
];

static LOOP: &[Action] = &[
    action("start", "run a loop; LOOP.TOML, KEY=VALUE; its worker is you (mode manual)"),
    action("status", "its state; ID"),
    action("cancel", "ask it to stop; ID"),
    action("resume", "continue it; ID"),
    action("best", "the best state; ID"),
    action("report", "all iterations; ID"),
];

const fn action(name: &'static str, about: &'static str) -> Action {
    // The words of these groups are checked by an allow-list.
    Action { name, about, refused: &[] }
}

#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum CampaignKind {
    /// Suites of kernels and programs.
    Bench,
    /// Commands that wait for their turn.
    Queue,
    /// A kernel that is improved.
    Loop,
}

impl CampaignKind {
    fn group(self) -> (&'static str, &'static [Action]) {
        match self {
            Self::Bench => ("bench", BENCH),
            Self::Queue => ("queue", QUEUE),
            Self::Loop => ("loop", LOOP),
        }
    }
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Arguments {
    /// Which kind of campaign.
    of: CampaignKind,
    #[schemars(schema_with = "action_schema")]
    action: String,
    /// The words after the command: ids, and flags as --flag=VALUE.
    arguments: Option<Vec<String>>,
    /// Seconds to wait for the end: 4, at most 45. The command goes on; the same call again waits
    /// on.
    wait_s: Option<u64>,
}

fn action_schema(_: &mut SchemaGenerator) -> Schema {
    let groups =
        [CampaignKind::Bench, CampaignKind::Queue, CampaignKind::Loop].map(CampaignKind::group);
    actions(groups).try_into().unwrap_or_default()
}

async fn run(call: Call) -> Result<Answer> {
    let arguments: Arguments = call.arguments()?;
    let (group, known) = arguments.of.group();
    // Older words of the command line, which it takes too.
    let name = match (group, arguments.action.as_str()) {
        ("queue", "ls") => "list",
        ("loop", "stop") => "cancel",
        (_, name) => name,
    };
    let Some(action) = known.iter().find(|action| action.name == name) else {
        let names: Vec<&str> = known.iter().map(|action| action.name).collect();
        let what = format!("`action`: `{}` is none of {group}'s", arguments.action);
        return Err(argument_error(what).hint(names.join(", ")));
    };
    let mut words = arguments.arguments.unwrap_or_default();
    match (group, action.name) {
        // Without it nothing would ever end the command.
        ("queue", "run") if !words.iter().any(|word| word == "--once") => {
            words.insert(0, "--once".to_owned());
        }
        ("queue", "stop") => return stop(&call, ["queue", "run"], arguments.wait_s).await,
        _ => {}
    }
    check_words(call.context(), &words)?;
    let line = [&[group.to_owned(), action.name.to_owned()], words.as_slice()].concat();
    if let Err(why) = check_agent_words(&line) {
        let failure = argument_error(format!("`arguments`: {why}"));
        return Err(match (group, action.name) {
            ("queue", "add") => failure
                .hint(format!("`rgpu` with one of {}", QUEUED_COMMANDS.join(", ")))
                .hint("[\"--\", \"rgpu\", \"profile\", \"--kernel=vecadd\"]"),
            _ => failure.hint("tell your user which command to type, and why"),
        });
    }
    if (group, action.name) == ("queue", "add") {
        name_own_program(&mut words, &call.context().program)?;
    }
    run_checked(&call, &[group], action, &words, arguments.wait_s).await
}

/// Writes the path of this program for `rgpu` in the command of an entry: no other program of that
/// name on PATH is started. The entry keeps the name that it would have had.
fn name_own_program(words: &mut Vec<String>, program: &Path) -> Result<()> {
    let path = program.to_str().ok_or_else(|| {
        argument_error(format!("the path of rgpu, `{}`, is no text", program.display()))
    })?;
    let Some(at) = words.iter().position(|word| word == "--") else { return Ok(()) };
    let line = shlex::try_join(words[at + 1..].iter().map(String::as_str)).unwrap_or_default();
    if let Some(word) = words.get_mut(at + 1) {
        *word = path.to_owned();
    }
    let is_named = |word: &String| word == "--name" || word.starts_with("--name=");
    if !words[..at].iter().any(is_named) {
        let name: String = line.chars().take(MAX_NAME_CHARS).collect();
        words.insert(0, format!("--name={name}"));
    }
    Ok(())
}
