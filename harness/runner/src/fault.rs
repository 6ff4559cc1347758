//! The runner's error type, which holds the same record as the report.

use rgpu_case::{ErrorClass, RunnerError};

/// The reason why a job stops. Boxed because it is rare and would enlarge every result.
#[derive(Debug)]
pub(crate) struct Fault(pub(crate) Box<RunnerError>);

pub(crate) type Result<T, E = Fault> = std::result::Result<T, E>;

impl Fault {
    pub(crate) fn new(class: ErrorClass, text: impl Into<String>) -> Fault {
        Fault(Box::new(RunnerError {
            class,
            text: text.into(),
            phase: None,
            case: None,
            call: None,
            code: None,
        }))
    }

    /// Adds the call that failed and its numeric error.
    pub(crate) fn at_call(mut self, call: &str, code: i64) -> Fault {
        self.0.call = Some(call.to_owned());
        self.0.code = Some(code);
        self
    }

    /// Puts the attempted action before the text.
    pub(crate) fn while_doing(mut self, action: impl std::fmt::Display) -> Fault {
        self.0.text = format!("{action}: {}", self.0.text);
        self
    }

    pub(crate) fn class(&self) -> ErrorClass {
        self.0.class
    }

    pub(crate) fn with_class(mut self, class: ErrorClass) -> Fault {
        self.0.class = class;
        self
    }
}

/// An error about the contents of the runner input.
pub(crate) fn bad_case(text: impl Into<String>) -> Fault {
    Fault::new(ErrorClass::BadCase, text)
}

/// The loader's message, which libloading keeps in the source of its error.
pub(crate) fn loader_text(error: &libloading::Error) -> String {
    use std::error::Error;
    error.source().map_or_else(|| error.to_string(), |source| source.to_string())
}
