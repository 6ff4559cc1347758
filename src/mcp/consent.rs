//! What a person has to agree to: a new host key, and what costs money. A client that declares elicitation
//! asks its user. For all others the call stays refused, with the command that the user can type.

use std::collections::BTreeMap;
use std::time::Duration;

use rmcp::RoleServer;
use rmcp::model::{
    CallToolResponse, ElicitRequest, ElicitRequestParams, ElicitResult, ElicitationAction,
    ElicitationSchema, InputRequest, InputRequiredResult, InputResponses, ProtocolVersion,
};
use rmcp::service::RequestContext;
use serde_json::Value;

use super::McpContext;
use super::hint::code_spans;
use rgpu_model::error::{Result, is_line_break};
use rgpu_work::own_command::CommandLine;

/// The field of the form, and the name of the question in revisions without requests of servers.
const ACCEPT: &str = "accept";

/// How long the user may think.
const ANSWER_LIMIT: Duration = Duration::from_secs(600);

/// How long the command may take.
const COMMAND_LIMIT: Duration = Duration::from_secs(600);

/// The longest question, in characters.
const MAX_QUESTION_CHARS: usize = 1000;

/// A command that a person has to agree to.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Consent {
    /// The words after `rgpu`.
    argv: Vec<String>,
    question: String,
}

/// What the user decided.
#[expect(clippy::large_enum_variant, reason = "it lives for one call")]
pub(super) enum Decision {
    Accepted,
    Refused,
    /// The client sends the call again, with the decision.
    Asked(CallToolResponse),
}

/// The decision that came with a call that the client sent again.
pub(super) struct RepeatedCall {
    pub(super) responses: Option<InputResponses>,
    pub(super) state: Option<String>,
}

impl Consent {
    /// What the user has to agree to, so that a failed call can be tried again.
    pub(super) fn for_answer(answer: &Value) -> Option<Self> {
        let error = &answer["error"];
        let hints = error["hints"].as_array()?;
        let argv = hints.iter().filter_map(Value::as_str).find_map(command)?;
        let costs = if argv.contains(&"up".to_owned()) { " It may cost money." } else { "" };
        let what = error["what"].as_str().unwrap_or_default();
        let cause = error["cause"].as_str().map(|c| format!(" ({c})")).unwrap_or_default();
        let typed = shlex::try_join(argv.iter().map(|word| &**word)).ok()?;
        let question = format!("{what}{cause}.{costs} Run `rgpu {typed}`?");
        // One line: text of a host cannot look like a question of its own.
        let plain = |c: char| if is_line_break(c) || c.is_control() { ' ' } else { c };
        let question = question.chars().map(plain).take(MAX_QUESTION_CHARS).collect();
        Some(Self { argv, question })
    }

    /// Asks the user, through a client that declares that it can.
    pub(super) async fn ask(
        &self,
        context: &RequestContext<RoleServer>,
        repeated: RepeatedCall,
    ) -> Decision {
        let declared = context.client_capabilities().and_then(|c| c.elicitation);
        let takes_forms = declared.is_some_and(|e| e.form.is_some() || e.url.is_none());
        let form = ElicitationSchema::builder().required_bool(ACCEPT).build();
        let (true, Ok(requested_schema)) = (takes_forms, form) else { return Decision::Refused };
        let question = ElicitRequestParams::FormElicitationParams {
            meta: None,
            message: self.question.clone(),
            requested_schema,
        };
        let version = context.protocol_version();
        if version.is_none_or(|version| version < ProtocolVersion::V_2026_07_28) {
            let asked = context.peer.create_elicitation_with_timeout(question, Some(ANSWER_LIMIT));
            return match asked.await {
                Ok(result) if accepts(&result) => Decision::Accepted,
                _ => Decision::Refused,
            };
        }
        let state = self.argv.join(" ");
        let response = repeated.responses.and_then(|mut responses| responses.remove(ACCEPT));
        match response.map(serde_json::from_value::<ElicitResult>) {
            Some(Ok(result)) if repeated.state.as_ref() == Some(&state) => {
                if accepts(&result) {
                    Decision::Accepted
                } else {
                    Decision::Refused
                }
            }
            Some(_) => Decision::Refused,
            None => {
                let question = InputRequest::Elicitation(ElicitRequest::new(question));
                let questions = BTreeMap::from([(ACCEPT.to_owned(), question)]);
                Decision::Asked(InputRequiredResult::new(Some(questions), Some(state)).into())
            }
        }
    }

    /// Runs the command.
    pub(super) async fn carry_out(&self, context: &McpContext) -> Result<()> {
        let ended = CommandLine::new(&self.argv).run(&context.own_program(), COMMAND_LIMIT).await?;
        ended.into_document().map(drop)
    }
}

/// Whether the user agreed: the form was sent, and its answer is yes.
fn accepts(result: &ElicitResult) -> bool {
    let is_yes = |content: &Value| content[ACCEPT] == true;
    result.action == ElicitationAction::Accept && result.content.as_ref().is_some_and(is_yes)
}

/// The command of a hint that a person can allow: `remote check NAME --accept-new` or
/// `remote up NAME`.
fn command(hint: &str) -> Option<Vec<String>> {
    code_spans(hint).find_map(|typed| {
        let words = shlex::split(typed)?;
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let name = match words.as_slice() {
            ["rgpu", "remote", "check", name, "--accept-new"] | ["rgpu", "remote", "up", name] => {
                name
            }
            _ => return None,
        };
        let is_name = !name.starts_with('-') && !name.is_empty();
        is_name.then(|| words[1..].iter().map(|word| (*word).to_owned()).collect())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn wanted(hint: &str) -> Option<Consent> {
        Consent::for_answer(&json!({"error": {"what": "no\nkey", "hints": ["x", hint]}}))
    }

    #[test]
    fn only_two_commands_of_hints_are_asked_for() {
        let key =
            wanted("compare it (`ssh-keygen -lf x`), then `rgpu remote check h200 --accept-new`");
        let key = key.unwrap();
        assert_eq!(key.argv, ["remote", "check", "h200", "--accept-new"]);
        assert_eq!(key.question, "no key. Run `rgpu remote check h200 --accept-new`?");
        let money = wanted("start it: `rgpu remote up cloud`").unwrap();
        assert!(money.question.contains("cost money"), "{}", money.question);
        for other in [
            "`rgpu remote up --yes`",
            "`rgpu remote down cloud --yes`",
            "`rgpu setup nvdisasm --yes`",
            "`rgpu remote check -x --accept-new`",
            "`rgpu remote up a; rm -rf b`",
            "rgpu remote up cloud",
        ] {
            assert_eq!(wanted(other), None, "{other}");
        }
        assert_eq!(Consent::for_answer(&json!({"state": "done"})), None);
    }

    #[test]
    fn only_a_sent_form_with_a_yes_is_a_yes() {
        let result = |value: Value| accepts(&serde_json::from_value(value).unwrap());
        assert!(result(json!({"action": "accept", "content": {"accept": true}})));
        for no in [
            json!({"action": "accept"}),
            json!({"action": "accept", "content": {"accept": "true"}}),
            json!({"action": "accept", "content": {"accept": false}}),
            json!({"action": "decline", "content": {"accept": true}}),
            json!({"action": "cancel"}),
        ] {
            assert!(!result(no.clone()), "{no}");
        }
    }
}
