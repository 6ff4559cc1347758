//! What a person has to agree to: a new host key, and what costs money. A client that declares
//! elicitation asks its user. For all others the call stays refused, with the command that the user
//! can type.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

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
use rgpu_run::store::state::random_id;
use rgpu_work::own_command::CommandLine;

/// The field of the form, and the name of the question in revisions without requests of servers.
const ACCEPT: &str = "accept";

/// How long the user may think.
const ANSWER_LIMIT: Duration = Duration::from_secs(600);

/// How long the command may take.
const COMMAND_LIMIT: Duration = Duration::from_secs(600);

/// The longest question, in characters.
const MAX_QUESTION_CHARS: usize = 1000;

/// The most questions that wait for their answers. A new one takes the place of the oldest.
const MAX_OPEN_QUESTIONS: usize = 64;

/// The first characters of a key's fingerprint.
const FINGERPRINT: &str = "SHA256:";

/// A command that a person has to agree to.
#[derive(Clone, Debug, PartialEq, Eq)]
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

/// The questions that clients answer by sending their call again. Each is answered once.
#[derive(Debug, Default)]
pub(super) struct OpenQuestions(Mutex<Vec<OpenQuestion>>);

/// A question, and the call for which it was asked.
#[derive(Debug)]
struct OpenQuestion {
    /// The random state that the client sends back.
    state: String,
    asked_at: Instant,
    /// The tool and its arguments.
    call: Value,
    consent: Consent,
}

impl OpenQuestions {
    /// Remembers a question, and gives its state. `None` without random numbers.
    fn add(&self, call: &Value, consent: &Consent) -> Option<String> {
        let state = random_id().ok()?;
        let (call, consent) = (call.clone(), consent.clone());
        let question =
            OpenQuestion { state: state.clone(), asked_at: Instant::now(), call, consent };
        let mut open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if open.len() >= MAX_OPEN_QUESTIONS {
            open.remove(0);
        }
        open.push(question);
        Some(state)
    }

    /// Whether this was asked with this state for the same call, not long ago. Asked only once: the
    /// question is closed.
    fn take(&self, state: &str, call: &Value, consent: &Consent) -> bool {
        let mut open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|question| question.asked_at.elapsed() < ANSWER_LIMIT);
        let Some(at) = open.iter().position(|question| question.state == state) else {
            return false;
        };
        let question = open.remove(at);
        question.call == *call && question.consent == *consent
    }
}

impl Consent {
    /// What the user has to agree to, so that a failed call can be tried again.
    pub(super) fn for_answer(answer: &Value) -> Option<Self> {
        let error = &answer["error"];
        let hints = error["hints"].as_array()?;
        let mut argv = hints.iter().filter_map(Value::as_str).find_map(command)?;
        if argv.last().is_some_and(|word| word == "--accept-new") {
            // A yes is one to the key that was shown. Without its fingerprint nobody can say it.
            let key = fingerprint(error["cause"].as_str()?)?;
            argv.pop();
            argv.extend(["--host-key".to_owned(), key.to_owned()]);
        }
        let costs = if argv.contains(&"up".to_owned()) { " It may cost money." } else { "" };
        let what = error["what"].as_str().unwrap_or_default();
        let cause = error["cause"].as_str().map(|c| format!(" ({c})")).unwrap_or_default();
        let typed = shlex::try_join(argv.iter().map(|word| &**word)).ok()?;
        // One line: text of a host cannot look like a question of its own.
        let plain = |c: char| if is_line_break(c) || c.is_control() { ' ' } else { c };
        let told = format!("{what}{cause}");
        let told: String = told.chars().map(plain).take(MAX_QUESTION_CHARS).collect();
        let question = format!("{told}.{costs} Run `rgpu {typed}`?");
        Some(Self { argv, question })
    }

    /// Asks the user, through a client that declares that it can. `call` tells the tool and its
    /// arguments.
    pub(super) async fn ask(
        &self,
        context: &RequestContext<RoleServer>,
        repeated: RepeatedCall,
        open: &OpenQuestions,
        call: &Value,
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
        let is_open = repeated.state.is_some_and(|state| open.take(&state, call, self));
        let response = repeated.responses.and_then(|mut responses| responses.remove(ACCEPT));
        match response.map(serde_json::from_value::<ElicitResult>) {
            Some(Ok(result)) if is_open && accepts(&result) => Decision::Accepted,
            Some(_) => Decision::Refused,
            None => {
                let Some(state) = open.add(call, self) else { return Decision::Refused };
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

/// The one fingerprint in a text. `None` if there is none, or another too.
fn fingerprint(text: &str) -> Option<&str> {
    let mut keys = text.split_whitespace().filter(|word| word.starts_with(FINGERPRINT));
    let key = keys.next().filter(|_| keys.next().is_none())?;
    let mut digits = key[FINGERPRINT.len()..].bytes();
    let is_digit = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/');
    (key.len() > FINGERPRINT.len() && digits.all(is_digit)).then_some(key)
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
        let cause = "it shows ssh-ed25519 SHA256:a/+9";
        Consent::for_answer(
            &json!({"error": {"what": "no\nkey", "cause": cause, "hints": ["x", hint]}}),
        )
    }

    #[test]
    fn only_two_commands_of_hints_are_asked_for() {
        let key =
            wanted("compare it (`ssh-keygen -lf x`), then `rgpu remote check h200 --accept-new`");
        let key = key.unwrap();
        assert_eq!(key.argv, ["remote", "check", "h200", "--host-key", "SHA256:a/+9"]);
        assert_eq!(
            key.question,
            "no key (it shows ssh-ed25519 SHA256:a/+9). \
             Run `rgpu remote check h200 --host-key SHA256:a/+9`?"
        );
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
    fn a_key_without_one_fingerprint_is_not_asked_for() {
        for cause in [
            json!(null),
            json!("no key is known"),
            json!("SHA256:a SHA256:b"),
            json!("SHA256:"),
            json!("SHA256:a;b"),
        ] {
            let hints = ["`rgpu remote check h200 --accept-new`"];
            let error = json!({"error": {"what": "x", "cause": cause, "hints": hints}});
            assert_eq!(Consent::for_answer(&error), None, "{cause}");
        }
    }

    #[test]
    fn a_question_is_answered_once_for_its_own_call_and_with_its_own_state() {
        let (exec, profile) = (json!(["exec", {}]), json!(["profile", {}]));
        let open = OpenQuestions::default();
        let money = wanted("`rgpu remote up cloud`").unwrap();
        let other = wanted("`rgpu remote up other`").unwrap();
        assert!(!open.take("remote up cloud", &exec, &money), "it was never asked");
        let state = open.add(&exec, &money).unwrap();
        assert!(open.take(&state, &exec, &money));
        assert!(!open.take(&state, &exec, &money), "answered twice");
        for (call, consent) in [(&profile, &money), (&exec, &other)] {
            let state = open.add(&exec, &money).unwrap();
            assert!(!open.take(&state, call, consent), "{call}");
        }
        let first = open.add(&exec, &money).unwrap();
        for _ in 0..MAX_OPEN_QUESTIONS {
            open.add(&exec, &money).unwrap();
        }
        assert!(!open.take(&first, &exec, &money));
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
