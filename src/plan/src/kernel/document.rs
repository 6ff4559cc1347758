//! A TOML document whose values know their line and key, and whose keys must all be known.
//!
//! serde's derive names an unknown key, but neither suggests the right one nor gives the line of a
//! value that parses but is invalid. So `kernel.toml` is read by hand through [`Table`].

use std::ops::Range;
use std::path::{Path, PathBuf};

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::KernelError;
use rgpu_model::error::nearest;
use rgpu_model::toml_error;

/// The file of a document, for error messages.
pub struct Origin<'a> {
    /// The path of the document.
    pub file: &'a Path,
    /// The whole text of the document.
    pub text: &'a str,
}

impl Origin<'_> {
    /// The line of a position, from 1.
    fn line(&self, position: usize) -> usize {
        self.text.get(..position).unwrap_or(self.text).matches('\n').count() + 1
    }

    /// An error at `span`, for the value of `key`.
    pub fn error(
        &self,
        span: Range<usize>,
        key: &str,
        problem: impl Into<String>,
        hint: Option<String>,
    ) -> KernelError {
        KernelError::Toml {
            file: PathBuf::from(self.file),
            line: self.line(span.start),
            key: toml_error::short(key),
            problem: toml_error::short(&problem.into()),
            hint,
        }
    }
}

/// A value and its key, for error messages.
pub struct Item<'a> {
    pub(crate) origin: &'a Origin<'a>,
    /// The full key, such as `entry.device`.
    pub key: String,
    pub(crate) value: &'a Spanned<DeValue<'a>>,
}

impl<'a> Item<'a> {
    /// An error at this value.
    pub fn error(&self, problem: impl Into<String>) -> KernelError {
        self.origin.error(self.value.span(), &self.key, problem, None)
    }

    /// As [`Self::error`], with what to do next.
    pub fn error_with(&self, problem: impl Into<String>, hint: String) -> KernelError {
        self.origin.error(self.value.span(), &self.key, problem, Some(hint))
    }

    /// The line of the value, from 1.
    pub fn line(&self) -> usize {
        self.origin.line(self.value.span().start)
    }

    fn wrong_type(&self, expected: &str) -> KernelError {
        let found = self.value.get_ref().type_str();
        self.error(format!("`{}` must be {expected}, not a TOML {found}", self.key))
    }

    /// The value as a string.
    pub fn text(&self) -> Result<&'a str, KernelError> {
        match self.value.get_ref() {
            DeValue::String(text) => Ok(text),
            _ => Err(self.wrong_type("a string")),
        }
    }

    /// The value as true or false.
    pub fn boolean(&self) -> Result<bool, KernelError> {
        self.value.get_ref().as_bool().ok_or_else(|| self.wrong_type("true or false"))
    }

    /// The value as an integer; `None` if it is not one.
    pub fn as_integer(&self) -> Result<Option<i64>, KernelError> {
        let DeValue::Integer(number) = self.value.get_ref() else { return Ok(None) };
        i64::from_str_radix(number.as_str(), number.radix())
            .map(Some)
            .map_err(|_| self.error(format!("`{}` does not fit in 64 bits", self.key)))
    }

    /// The value as a whole number.
    pub fn integer(&self) -> Result<i64, KernelError> {
        self.as_integer()?.ok_or_else(|| self.wrong_type("a whole number"))
    }

    /// The value as a finite number; integers count.
    pub fn float(&self) -> Result<f64, KernelError> {
        let value = match self.value.get_ref() {
            DeValue::Float(number) => number.as_str().parse().ok(),
            _ => self.as_integer()?.map(|number| number as f64),
        };
        value.filter(|v: &f64| v.is_finite()).ok_or_else(|| self.wrong_type("a finite number"))
    }

    pub(crate) fn is_float(&self) -> bool {
        self.value.get_ref().is_float()
    }

    /// The value as a table, which may only have `known` keys.
    pub fn table(&self, known: &'static [&'static str]) -> Result<Table<'a>, KernelError> {
        match self.value.get_ref() {
            DeValue::Table(table) => {
                Table::new(self.origin, &self.key, table, self.value.span(), known)
            }
            _ => Err(self.wrong_type("a table")),
        }
    }

    /// The entries of a table whose keys the user chooses, in the order written.
    pub fn entries(&self) -> Result<Vec<(&'a str, Item<'a>)>, KernelError> {
        let DeValue::Table(table) = self.value.get_ref() else {
            return Err(self.wrong_type("a table"));
        };
        let mut entries: Vec<_> = table.iter().collect();
        entries.sort_by_key(|(key, _)| key.span().start);
        Ok(entries
            .into_iter()
            .map(|(key, value)| {
                let name: &str = key.get_ref();
                let key = format!("{}.{name}", self.key);
                (name, Item { origin: self.origin, key, value })
            })
            .collect())
    }

    /// The value as a list.
    pub fn list(&self) -> Result<Vec<Item<'a>>, KernelError> {
        let DeValue::Array(items) = self.value.get_ref() else {
            return Err(self.wrong_type("a list"));
        };
        Ok(items
            .iter()
            .enumerate()
            .map(|(i, value)| Item {
                origin: self.origin,
                key: format!("{}[{i}]", self.key),
                value,
            })
            .collect())
    }
}

/// A table in which every key is known.
pub struct Table<'a> {
    origin: &'a Origin<'a>,
    key: String,
    table: &'a DeTable<'a>,
    span: Range<usize>,
}

impl<'a> Table<'a> {
    /// The table at `key`.
    pub fn new(
        origin: &'a Origin<'a>,
        key: &str,
        table: &'a DeTable<'a>,
        span: Range<usize>,
        known: &'static [&'static str],
    ) -> Result<Self, KernelError> {
        let this = Self { origin, key: key.to_owned(), table, span };
        let unknown = table
            .keys()
            .filter(|key| !known.contains(&key.get_ref().as_ref()))
            .min_by_key(|key| key.span().start);
        let Some(key) = unknown else { return Ok(this) };
        let path = this.path(key.get_ref());
        let near = nearest(key.get_ref(), known.iter().copied());
        let hint = match near.first() {
            Some(near) => format!("did you mean `{near}`?"),
            None => format!("known here: `{}`", known.join("`, `")),
        };
        Err(origin.error(key.span(), &path, format!("unknown key `{path}`"), Some(hint)))
    }

    fn path(&self, key: &str) -> String {
        if self.key.is_empty() { key.to_owned() } else { format!("{}.{key}", self.key) }
    }

    /// An error at the table itself.
    pub fn error(&self, problem: impl Into<String>) -> KernelError {
        self.origin.error(self.span.clone(), &self.key, problem, None)
    }

    /// The value of a key; `None` if it is absent.
    pub fn optional(&self, key: &str) -> Option<Item<'a>> {
        let value = self.table.get(key)?;
        Some(Item { origin: self.origin, key: self.path(key), value })
    }

    /// The value of a key.
    pub fn required(&self, key: &str) -> Result<Item<'a>, KernelError> {
        self.optional(key).ok_or_else(|| self.error(format!("`{}` is missing", self.path(key))))
    }
}
