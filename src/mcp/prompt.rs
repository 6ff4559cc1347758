//! Prompts: the usual chains of calls, for users who start them by name.

use rmcp::ErrorData;
use rmcp::model::{GetPromptResult, JsonObject, Prompt, PromptArgument, PromptMessage, Role};

/// A chain of calls.
struct PromptInfo {
    name: &'static str,
    title: &'static str,
    description: &'static str,
    /// The text; `KERNEL` and `REMOTE` stand for the arguments.
    text: &'static str,
}

static PROMPTS: &[PromptInfo] = &[
    PromptInfo {
        name: "find-the-bottleneck",
        title: "Find the bottleneck of a kernel",
        description: "Profile a kernel and say what limits it, with numbers",
        text: "Find out what limits the kernel KERNEL on REMOTE.\n\
               1. `hosts` with action `list`: does the remote exist?\n\
               2. `profile` with kernel `KERNEL` and mode `ncu`; while its state is `running`, \
               `runs` with action `wait`.\n\
               3. Read `findings` and `ncu`. For details: `report` with part `hot_spots`, then \
               `disasm` for the code of the hottest lines.\n\
               4. Say in a few sentences what limits the kernel, with the numbers that show it, \
               and what to try first. Do not guess numbers that were not measured.",
    },
    PromptInfo {
        name: "optimise-a-kernel",
        title: "Make a kernel faster",
        description: "Measure, find the cause, change one thing, verify, compare; and repeat",
        text: "Make the kernel KERNEL faster on REMOTE. Keep the original beside each version.\n\
               1. `profile` with kernel `KERNEL` and mode `ncu`: what limits it, and how much time \
               is at stake?\n\
               2. Change one thing that the first finding names.\n\
               3. `profile` the new version with mode `verify`. If its results are wrong, repair \
               or drop the change.\n\
               4. `compare` with kernels [original, new version]. Keep the change only if the \
               verdict is FASTER. AMBIGUOUS is not a success.\n\
               5. Go on with 1 until no finding has time at stake, or three changes in a row were \
               dropped. Report each change with its verdict and numbers.",
    },
    PromptInfo {
        name: "check-correctness",
        title: "Check that a kernel is right",
        description: "Check results against the reference, and look for races and bad accesses",
        text: "Check that the kernel KERNEL is right, on REMOTE.\n\
               1. `profile` with kernel `KERNEL` and mode `verify`: every named size against the \
               reference.\n\
               2. `profile` with mode `sanitizer`: memory errors, races, uninitialised reads.\n\
               3. For each fault name the line, what happens there, and a repair.",
    },
];

/// The prompts.
pub(super) fn list() -> Vec<Prompt> {
    PROMPTS.iter().map(PromptInfo::definition).collect()
}

/// The messages of a prompt.
pub(super) fn get(name: &str, arguments: &JsonObject) -> Result<GetPromptResult, ErrorData> {
    let Some(chain) = PROMPTS.iter().find(|chain| chain.name == name) else {
        return Err(ErrorData::invalid_params(format!("there is no prompt `{name}`"), None));
    };
    let argument = |name: &str| arguments.get(name).and_then(|value| value.as_str());
    let Some(kernel) = argument("kernel") else {
        return Err(ErrorData::invalid_params("`kernel` is missing", None));
    };
    let remote = argument("remote").map_or("the default remote".to_owned(), |r| format!("`{r}`"));
    let text = chain.text.replace("REMOTE", &remote).replace("KERNEL", kernel);
    let messages = vec![PromptMessage::new_text(Role::User, text)];
    Ok(GetPromptResult::new(messages).with_description(chain.description))
}

impl PromptInfo {
    fn definition(&self) -> Prompt {
        let arguments = vec![
            PromptArgument::new("kernel")
                .with_description(
                    "A name of `rgpu kernels list`, a folder with kernel.toml, or a file",
                )
                .with_required(true),
            PromptArgument::new("remote")
                .with_description("The GPU host; without it the default remote")
                .with_required(false),
        ];
        Prompt::new(self.name, Some(self.description), Some(arguments)).with_title(self.title)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mcp::tool::TOOLS;

    #[test]
    fn prompts_name_only_tools_modes_and_parts_that_exist() {
        let names: Vec<&str> = TOOLS.iter().map(|tool| tool.name).collect();
        for chain in PROMPTS {
            let quoted = chain.text.split('`').skip(1).step_by(2);
            let known = ["KERNEL", "ncu", "verify", "sanitizer", "list", "wait", "running"];
            let fields = ["findings", "hot_spots"];
            for word in quoted {
                let is_known =
                    names.contains(&word) || known.contains(&word) || fields.contains(&word);
                assert!(is_known, "{}: {word}", chain.name);
            }
        }
    }

    #[test]
    fn a_prompt_has_its_arguments_in_its_text() {
        let arguments = serde_json::json!({"kernel": "vecadd", "remote": "h200"});
        let prompt = get("find-the-bottleneck", arguments.as_object().unwrap()).unwrap();
        let text = serde_json::to_string(&prompt.messages).unwrap();
        assert!(text.contains("kernel vecadd on `h200`"), "{text}");
        assert!(get("find-the-bottleneck", &JsonObject::new()).is_err());
        assert!(get("other", arguments.as_object().unwrap()).is_err());
    }
}
