//! The prompts of a loop, and the files with which a worker or a reviewer answers them.

use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Value, json};

use super::config::LoopMode;
use super::documents::{DocumentKind, SignedDocument, read_signed, reject, write_json, write_text};
use super::driver::LoopRunner;
use super::measure::PhaseError;
use super::prompt::{self, PromptInput};
use rgpu_model::fault_point;
use rgpu_model::regular_file::MAX_FILE_BYTES;

/// The time between two looks for a file that somebody else writes.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

impl DocumentKind {
    pub(super) fn prompt_file(self) -> &'static str {
        match self {
            Self::Worker => "worker_prompt.txt",
            Self::Reviewer => "reviewer_prompt.txt",
        }
    }

    pub(super) fn answer_file(self) -> &'static str {
        match self {
            Self::Worker => "worker_result.json",
            Self::Reviewer => "reviewer_verdict.json",
        }
    }
}

impl LoopRunner {
    /// Writes the prompt and gets the answer: from a person or program outside, from the user's
    /// command, or made up. The inner error tells how a command ended that wrote no answer.
    pub(super) fn ask<T: SignedDocument>(
        &mut self,
        kind: DocumentKind,
    ) -> Result<Result<T, String>, PhaseError> {
        let prompt = self.write_prompt(kind)?;
        match self.config.mode {
            LoopMode::Manual => {
                let file = self.iteration_folder().join(kind.answer_file());
                let (prompt, file) = (prompt.display(), file.display());
                self.tell(&format!("the prompt is {prompt}; waiting for {file}"));
                Ok(Ok(self.wait_for_answer(kind)?))
            }
            LoopMode::Command => {
                let config = &self.config;
                let (command, limit) = match kind {
                    DocumentKind::Worker => (&config.worker_command, &config.worker_timeout),
                    DocumentKind::Reviewer => (&config.reviewer_command, &config.reviewer_timeout),
                };
                let (command, limit) = (command.clone().unwrap_or_default(), limit.duration());
                let end = self.run_template(&command, &prompt, limit)?;
                if kind == DocumentKind::Worker {
                    fault_point::kill_if_named("loop worker ended");
                }
                Ok(self.take_answer(kind).ok_or_else(|| end.text()))
            }
            LoopMode::DryRun => {
                let answer = self.made_up(kind);
                let path = self.iteration_folder().join(kind.answer_file());
                write_json(&self.loops.files, &path, &answer)?;
                Ok(Ok(self.wait_for_answer(kind)?))
            }
        }
    }

    fn made_up(&self, kind: DocumentKind) -> Value {
        let (iteration, nonce) = (self.state.iteration, &self.state.nonce);
        match kind {
            DocumentKind::Worker => json!({
                "iteration": iteration, "nonce": nonce, "decision": "KEEP", "note": "made up",
            }),
            DocumentKind::Reviewer => json!({
                "iteration": iteration, "nonce": nonce, "verdict": "CONTINUE",
                "confidence": "low", "reason": "made up",
            }),
        }
    }

    /// Writes a prompt and returns its path.
    fn write_prompt(&mut self, kind: DocumentKind) -> Result<PathBuf, PhaseError> {
        let folder = self.iteration_folder();
        let best = self.state.best.as_ref().and_then(|best| best.profile.clone());
        let profile = self.state.proposal.profile.clone().or(best);
        let brief = self.brief(profile.as_deref(), self.config.prompt_bytes / 3)?;
        let instructions = self.config.instructions_text(&self.loops.project);
        let instructions = instructions.unwrap_or_else(|why| {
            self.tell(&format!("the prompt has no instructions: {why}"));
            String::new()
        });
        let answer = folder.join(kind.answer_file()).to_string_lossy().into_owned();
        let patch = self.loops.files.read_to_string(folder.join("git_diff.patch"), MAX_FILE_BYTES);
        let patch = patch.unwrap_or_default();
        let schema = serde_json::to_string(&kind.schema()).unwrap_or_default();
        let input = PromptInput {
            config: &self.config,
            state: &self.state,
            history: &self.loops.iterations(self.number)?,
            instructions: &instructions,
            brief: &brief,
            patch: &patch,
            answer: &answer,
            schema: &schema,
        };
        let text = match kind {
            DocumentKind::Worker => prompt::worker(&input),
            DocumentKind::Reviewer => prompt::reviewer(&input),
        };
        let path = folder.join(kind.prompt_file());
        write_text(&self.loops.files, &path, text.as_bytes())?;
        Ok(path)
    }

    /// The answer, if there is one. An invalid file is moved away, and the user gets a note.
    pub(super) fn take_answer<T: SignedDocument>(&self, kind: DocumentKind) -> Option<T> {
        let name = kind.answer_file();
        let path = self.iteration_folder().join(name);
        match read_signed(&self.loops.files, &path, self.state.iteration, &self.state.nonce)? {
            Ok(document) => Some(document),
            Err(why) => {
                let moved = reject(&self.loops.files, &path).unwrap_or_default();
                self.tell(&format!("`{name}` does not count: {why}; it is `{moved}` now"));
                None
            }
        }
    }

    /// Waits for an answer that somebody else writes.
    fn wait_for_answer<T: SignedDocument>(&mut self, kind: DocumentKind) -> Result<T, PhaseError> {
        loop {
            if let Some(document) = self.take_answer(kind) {
                return Ok(document);
            }
            self.pause(POLL_INTERVAL)?;
            self.check_limits()?;
        }
    }
}
