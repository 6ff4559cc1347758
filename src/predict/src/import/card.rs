//! A model card: Markdown with a YAML head between lines of `---`, as model hubs have it.
//!
//! Sizes are in the head (`num_hidden_layers: 36`) or in a list or table of the text (`- Number of
//! Layers: 36`). Cards are written by hand, so every value keeps its line, and what is unknown,
//! missing or contradictory is named.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use super::ImportError;
use crate::Dtype;

/// The facts of a model card about the model (`rgpu.model-card/1`). What it does not state is
/// absent, and is in `missing`.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct ModelCard {
    /// Name and version of this schema: `rgpu.model-card/1`.
    pub schema: &'static str,
    /// The path of the file.
    pub file: String,
    /// The model's name: `model_name` of the head, else the first heading.
    pub name: Option<String>,
    /// The model that it was made from.
    pub base_model: Option<String>,
    /// Number of parameters, as exact as the card states it.
    pub parameters: Option<f64>,
    /// Number of parameters that one token uses, if the card states it.
    pub active_parameters: Option<f64>,
    /// Number of layers.
    pub layers: Option<u64>,
    /// The longest context, in tokens; of several, the first.
    pub context: Option<u64>,
    /// The number format of the weights.
    pub dtype: Option<Dtype>,
    /// The line of each value, from 1; values of the head have line 1.
    pub lines: BTreeMap<&'static str, usize>,
    /// Fields of the head that rgpu does not know.
    pub unknown: Vec<String>,
    /// Fields that predictions need and the card does not state.
    pub missing: Vec<&'static str>,
}

/// A field of a card.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Field {
    Name,
    BaseModel,
    Parameters,
    ActiveParameters,
    Layers,
    Context,
    Dtype,
}

/// The names of fields, in heads and in texts, in lower case with blanks.
const NAMES: &[(&str, Field)] = &[
    ("model name", Field::Name),
    ("base model", Field::BaseModel),
    ("parameters", Field::Parameters),
    ("params", Field::Parameters),
    ("total parameters", Field::Parameters),
    ("num parameters", Field::Parameters),
    ("number of parameters", Field::Parameters),
    ("model size", Field::Parameters),
    ("active parameters", Field::ActiveParameters),
    ("activated parameters", Field::ActiveParameters),
    ("number of activated parameters", Field::ActiveParameters),
    ("layers", Field::Layers),
    ("num layers", Field::Layers),
    ("num hidden layers", Field::Layers),
    ("number of layers", Field::Layers),
    ("context", Field::Context),
    ("context length", Field::Context),
    ("context window", Field::Context),
    ("max position embeddings", Field::Context),
    ("dtype", Field::Dtype),
    ("torch dtype", Field::Dtype),
    ("tensor type", Field::Dtype),
    ("precision", Field::Dtype),
];

/// Fields of a head that say nothing about sizes (Hugging Face, `modelcard.md`).
const OTHER_NAMES: &[&str] = &[
    "base model relation",
    "co2 eq emissions",
    "datasets",
    "inference",
    "language",
    "library name",
    "license",
    "license link",
    "license name",
    "metrics",
    "model index",
    "model type",
    "new version",
    "pipeline tag",
    "tags",
    "thumbnail",
    "widget",
];

/// Texts are longer; heads are not.
const MAX_HEAD_BYTES: usize = 1 << 16;

/// Reads a card.
///
/// # Errors
/// The head is not closed or no YAML, a value has another form, or two values contradict.
pub fn read(file: &str, text: &str) -> Result<ModelCard, ImportError> {
    let mut card =
        ModelCard { schema: "rgpu.model-card/1", file: file.to_owned(), ..ModelCard::default() };
    let (head, body_line, body) = split_head(file, text)?;
    if let Some(head) = head {
        read_head(&mut card, head)?;
    }
    let mut is_code = false;
    for (at, line) in body.lines().enumerate() {
        let number = body_line + at;
        if line.trim_start().starts_with("```") {
            is_code = !is_code;
        }
        if is_code {
            continue;
        }
        if let Some(title) = line.strip_prefix("# ") {
            card.name.get_or_insert_with(|| title.trim().to_owned());
        }
        if let Some((field, value)) = labelled(line) {
            card.set(field, value, number)?;
        }
    }
    let stated = [
        ("parameters", card.parameters.is_some()),
        ("layers", card.layers.is_some()),
        ("context", card.context.is_some()),
        ("dtype", card.dtype.is_some()),
    ];
    card.missing = stated.into_iter().filter(|(_, is_there)| !is_there).map(|(n, _)| n).collect();
    if card.missing.len() == stated.len() {
        Err(ImportError::shape(file, "", "states no sizes: is it a model card?"))
    } else {
        Ok(card)
    }
}

/// The head, the line number of the text below it, and that text.
fn split_head<'a>(
    file: &str,
    text: &'a str,
) -> Result<(Option<&'a str>, usize, &'a str), ImportError> {
    let Some(rest) = text.strip_prefix("---\n").or_else(|| text.strip_prefix("---\r\n")) else {
        return Ok((None, 1, text));
    };
    let mut end = 0;
    for (at, line) in rest.split_inclusive('\n').enumerate() {
        if line.trim_end() == "---" {
            return Ok((Some(&rest[..end]), at + 3, &rest[end + line.len()..]));
        }
        end += line.len();
        if end > MAX_HEAD_BYTES {
            break;
        }
    }
    Err(ImportError::shape(file, "line 1", "begins a YAML head that no second `---` ends"))
}

fn read_head(card: &mut ModelCard, head: &str) -> Result<(), ImportError> {
    let wrong = |file: &str, cause: String| ImportError::shape(file, "the YAML head", cause);
    let fields: BTreeMap<String, Value> = if head.trim().is_empty() {
        BTreeMap::new()
    } else {
        serde_saphyr::from_str(head)
            .map_err(|error| wrong(&card.file, format!("cannot be read: {error}")))?
    };
    for (name, value) in fields {
        let plain = name.to_lowercase().replace(['_', '-'], " ");
        let known = NAMES.iter().find(|(known, _)| *known == plain).map(|(_, field)| *field);
        let is_other = OTHER_NAMES.contains(&plain.as_str()) || plain.starts_with("extra gated");
        match (known, &value) {
            (Some(field), Value::String(text)) => card.set(field, text, 1)?,
            (Some(field), Value::Number(number)) => card.set(field, &number.to_string(), 1)?,
            (Some(Field::BaseModel), Value::Array(models)) => {
                card.base_model = models.first().and_then(Value::as_str).map(str::to_owned);
            }
            (Some(_), other) => {
                let text = format!("has `{name}: {other}`; a text or a number belongs there");
                return Err(wrong(&card.file, text));
            }
            (None, _) if is_other => {}
            (None, _) => card.unknown.push(name),
        }
    }
    Ok(())
}

/// A line `- **Number of Layers**: 36` or `| Layers | 36 |` of a known field.
fn labelled(line: &str) -> Option<(Field, &str)> {
    let is_mark = |c: char| "-*+|>_`".contains(c) || c.is_whitespace();
    let row = line.trim().strip_prefix('|');
    let (label, value) = match row {
        Some(row) => {
            let (label, value) = row.trim_end_matches('|').split_once('|')?;
            // Of a table with more columns it is not known which one is meant.
            if value.contains('|') {
                return None;
            }
            (label, value)
        }
        None => line.split_once(':')?,
    };
    let label = label.trim_matches(is_mark).to_lowercase();
    let field = NAMES.iter().find(|(name, _)| *name == label).map(|(_, field)| *field)?;
    let value = value.trim_matches(is_mark);
    (!value.is_empty() && !matches!(field, Field::Name | Field::BaseModel))
        .then_some((field, value))
}

impl ModelCard {
    fn set(&mut self, field: Field, text: &str, line: usize) -> Result<(), ImportError> {
        let place = format!("line {line}");
        let wrong = |what: &str| {
            let text = format!("`{text}` is not a {what}");
            Err(ImportError::shape(&self.file, place.clone(), text))
        };
        let (name, old, new) = match field {
            Field::Name => {
                self.name = Some(text.to_owned());
                return Ok(());
            }
            Field::BaseModel => {
                self.base_model = Some(text.to_owned());
                return Ok(());
            }
            Field::Dtype => {
                let Some(dtype) = dtype(text) else { return wrong("number format") };
                let old = self.dtype.replace(dtype).map(|dtype| dtype.to_string());
                ("dtype", old, dtype.to_string())
            }
            Field::Parameters | Field::ActiveParameters => {
                let Some(count) = quantity(text, 1000.0).filter(|count| *count >= 1.0) else {
                    return wrong("number of parameters");
                };
                let (name, place) = match field {
                    Field::Parameters => ("parameters", &mut self.parameters),
                    _ => ("active_parameters", &mut self.active_parameters),
                };
                let old = place.replace(count).map(|count| count.to_string());
                if field == Field::Parameters
                    && let Some((_, active)) = text.split_once(" and ")
                    && active.contains("activ")
                {
                    self.active_parameters = quantity(active, 1000.0);
                }
                (name, old, count.to_string())
            }
            Field::Layers | Field::Context => {
                // `128K` tokens are 131072.
                let count = quantity(text, 1024.0).filter(|count| *count >= 1.0 && *count < 1e12);
                let Some(count) = count.map(|count| count.round() as u64) else {
                    return wrong("number");
                };
                let (name, place) = match field {
                    Field::Layers => ("layers", &mut self.layers),
                    _ => ("context", &mut self.context),
                };
                (name, place.replace(count).map(|count| count.to_string()), count.to_string())
            }
        };
        match (old, self.lines.get(name)) {
            (Some(old), Some(first)) if old != new => {
                let text = format!("has {name} {new}, but line {first} has {old}");
                Err(ImportError::shape(&self.file, place, text))
            }
            (_, Some(_)) => Ok(()),
            (_, None) => {
                self.lines.insert(name, line);
                Ok(())
            }
        }
    }
}

/// The first number of a text, with `K`, `M`, `B` or `T` behind it: `8.2B`, `32,768 natively`.
fn quantity(text: &str, thousand: f64) -> Option<f64> {
    let start = text.find(|c: char| c.is_ascii_digit())?;
    let rest = &text[start..];
    let end = rest.find(|c: char| !(c.is_ascii_digit() || ".,_".contains(c)));
    let (digits, rest) = rest.split_at(end.unwrap_or(rest.len()));
    let digits: String = digits.chars().filter(|c| !",_".contains(*c)).collect();
    let number: f64 = digits.trim_end_matches('.').parse().ok()?;
    let word: String = rest.trim_start().chars().take_while(|c| c.is_alphabetic()).collect();
    let scale = match word.to_lowercase().as_str() {
        "k" | "thousand" => thousand,
        "m" | "million" => thousand * thousand,
        "b" | "billion" => 1e9,
        "t" | "trillion" => 1e12,
        _ => 1.0,
    };
    Some((number * scale).round()).filter(|number| number.is_finite())
}

/// The first number format of a text such as `BF16 · F8_E4M3`.
fn dtype(text: &str) -> Option<Dtype> {
    let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
    words.filter(|word| !word.is_empty()).find_map(|word| {
        let plain = match word.to_lowercase().as_str() {
            "f32" => "fp32".to_owned(),
            "f16" => "fp16".to_owned(),
            "f8_e4m3" | "f8_e5m2" => "fp8".to_owned(),
            other => other.to_owned(),
        };
        plain.parse().ok()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const CARD: &str = "---\nlicense: apache-2.0\nlibrary_name: transformers\nbase_model:\n- \
        lab/Model-8B-Base\ncolour: red\ndtype: bfloat16\n---\n\n# Model 8B\n\n\
        - Type: Causal Language Models\n- Number of Parameters: 8.2B\n- **Number of Layers**: 36\n\
        - Context Length: 32,768 natively and 131,072 with YaRN\n\n```\nlayers: 99\n```\n";

    #[test]
    fn head_and_text_are_read_and_unknown_fields_named() {
        let card = read("card.md", CARD).unwrap();
        assert_eq!(card.name.as_deref(), Some("Model 8B"));
        assert_eq!(card.base_model.as_deref(), Some("lab/Model-8B-Base"));
        assert_eq!((card.parameters, card.layers), (Some(8.2e9), Some(36)));
        assert_eq!((card.context, card.dtype), (Some(32768), Some(Dtype::Bf16)));
        assert_eq!(card.unknown, ["colour"]);
        assert!(card.missing.is_empty());
        assert_eq!((card.lines["dtype"], card.lines["layers"]), (1, 14));
    }

    #[test]
    fn a_table_and_active_parameters_are_read_and_what_is_missing_named() {
        let text = "| Parameters | 30.5B in total and 3.3B activated |\n| Layers | 48 |\n\
            | Model | Layers | Heads |\n| Context Window | 128K |\n";
        let card = read("card.md", text).unwrap();
        assert_eq!((card.parameters, card.active_parameters), (Some(30.5e9), Some(3.3e9)));
        assert_eq!((card.layers, card.context), (Some(48), Some(131_072)));
        assert_eq!(card.missing, ["dtype"]);
    }

    #[test]
    fn contradictions_and_wrong_values_have_their_line() {
        let text = CARD.replace("- Type", "- Layers: 40\n- Type");
        let error = read("card.md", &text).unwrap_err().to_string();
        assert_eq!(error, "`card.md`: line 15 has layers 36, but line 12 has 40");
        let error = read("card.md", &CARD.replace("8.2B", "many")).unwrap_err().to_string();
        assert!(error.contains("line 13 `many` is not a number of parameters"), "{error}");
        let error = read("card.md", &CARD.replace("bfloat16", "[1]")).unwrap_err().to_string();
        assert!(error.contains("a text or a number"), "{error}");
        assert!(read("card.md", "# A text\n").is_err());
    }

    #[test]
    fn a_damaged_card_is_refused_or_read_but_never_a_panic() {
        for end in 0..CARD.len() {
            let _ = read("card.md", &CARD[..end]);
        }
        assert!(read("card.md", "---\na: b\n").unwrap_err().to_string().contains("no second"));
        assert!(read("card.md", "---\na: [b\n---\n").is_err());
        let deep = format!("---\na: {}\n---\n", "[".repeat(50_000));
        assert!(read("card.md", &deep).is_err());
        let bomb = "---\na: &a [x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a]\n\
            c: &c [*b,*b,*b,*b,*b,*b,*b,*b]\nd: &d [*c,*c,*c,*c,*c,*c,*c,*c]\n\
            e: &e [*d,*d,*d,*d,*d,*d,*d,*d]\nf: &f [*e,*e,*e,*e,*e,*e,*e,*e]\n\
            g: &g [*f,*f,*f,*f,*f,*f,*f,*f]\nh: [*g,*g,*g,*g,*g,*g,*g,*g]\n---\nlayers: 3\n";
        let _ = read("card.md", bomb);
    }
}
