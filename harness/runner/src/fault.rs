//! The runner's error: the same record that goes into the report.

use rgpu_case::{ErrorClass, RunError};

/// Why a job cannot go on. Boxed, since it is rare and would widen every result.
#[derive(Debug)]
pub(crate) struct Fault(pub(crate) Box<RunError>);

/// A result with a [`Fault`].
pub(crate) type Outcome<T> = Result<T, Fault>;

impl Fault {
    pub(crate) fn new(class: ErrorClass, text: impl Into<String>) -> Fault {
        Fault(Box::new(RunError {
            class,
            text: text.into(),
            phase: None,
            data_set: None,
            call: None,
            code: None,
        }))
    }

    /// Names the call that failed and its numeric answer.
    pub(crate) fn at_call(mut self, call: &str, code: i64) -> Fault {
        self.0.call = Some(call.to_owned());
        self.0.code = Some(code);
        self
    }

    /// Puts what was tried before the text.
    pub(crate) fn while_doing(mut self, what: impl std::fmt::Display) -> Fault {
        self.0.text = format!("{what}: {}", self.0.text);
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

/// A Case that cannot be run as it is.
pub(crate) fn bad_case(text: impl Into<String>) -> Fault {
    Fault::new(ErrorClass::BadCase, text)
}

/// What the loader said: libloading keeps it in the source of its error.
pub(crate) fn loader_text(error: &libloading::Error) -> String {
    use std::error::Error;
    error.source().map_or_else(|| error.to_string(), |said| said.to_string())
}
