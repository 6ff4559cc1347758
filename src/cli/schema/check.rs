//! Checks a JSON document against a JSON Schema of rgpu.
//!
//! Knows only the keywords of draft 2020-12 that our schemas use, and refuses a schema with any
//! other keyword, so that no rule is silently skipped. A general validator would add some forty
//! packages.

use std::collections::BTreeSet;

use regex::Regex;
use serde_json::{Map, Value};

/// A place where a file violates its schema.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Violation {
    /// JSON pointer to the offending value; empty for the whole document.
    pub(super) pointer: String,
    /// The violation, without its place.
    pub(super) text: String,
}

/// Everything in `document` that violates `schema`.
pub(super) fn violations(schema: &Value, document: &Value) -> Result<Vec<Violation>, String> {
    let mut check = Validator { root: schema, violations: Vec::new() };
    check.value(schema, document, "")?;
    Ok(check.violations)
}

struct Validator<'a> {
    root: &'a Value,
    violations: Vec<Violation>,
}

impl Validator<'_> {
    fn report(&mut self, pointer: &str, text: String) {
        self.violations.push(Violation { pointer: pointer.to_owned(), text });
    }

    /// Whether `value` matches `schema`. Records no violations.
    fn is_valid(&self, schema: &Value, value: &Value) -> Result<bool, String> {
        Ok(violations_in(self.root, schema, value)?.is_empty())
    }

    fn value(&mut self, schema: &Value, value: &Value, pointer: &str) -> Result<(), String> {
        let keywords = match schema {
            Value::Bool(true) => return Ok(()),
            Value::Object(keywords) => keywords,
            _ => {
                self.report(pointer, "is not allowed".to_owned());
                return Ok(());
            }
        };
        for (keyword, rule) in keywords {
            match keyword.as_str() {
                "$schema" | "title" | "description" | "default" | "$defs" | "format" => {}
                "$ref" => {
                    let target = rule.as_str().and_then(|r| r.strip_prefix('#'));
                    let target = target.and_then(|pointer| self.root.pointer(pointer));
                    let target = target.ok_or_else(|| format!("the reference {rule}"))?.clone();
                    self.value(&target, value, pointer)?;
                }
                "type" => self.check_type(rule, value, pointer),
                "const" if rule != value => self.report(pointer, format!("must be {rule}")),
                "const" => {}
                "enum" => {
                    if !rule.as_array().is_some_and(|all| all.contains(value)) {
                        self.report(pointer, format!("must be one of {rule}"));
                    }
                }
                "minimum" | "maximum" => self.bound(keyword, rule, value, pointer),
                "required" | "properties" | "patternProperties" | "additionalProperties" => {}
                "items" | "prefixItems" | "minItems" | "maxItems" => {}
                "anyOf" | "oneOf" => self.check_alternatives(keyword, rule, value, pointer)?,
                unknown => return Err(format!("the keyword `{unknown}`")),
            }
        }
        match value {
            Value::Object(object) => self.object(keywords, object, pointer),
            Value::Array(list) => self.list(keywords, list, pointer),
            _ => Ok(()),
        }
    }

    fn check_type(&mut self, rule: &Value, value: &Value, pointer: &str) {
        let has_type = |name: &str| match name {
            "null" => value.is_null(),
            "boolean" => value.is_boolean(),
            "string" => value.is_string(),
            "array" => value.is_array(),
            "object" => value.is_object(),
            "number" => value.is_number(),
            "integer" => {
                value.is_u64() || value.is_i64() || value.as_f64().is_some_and(|x| x.fract() == 0.0)
            }
            _ => false,
        };
        let names: Vec<&str> = match rule {
            Value::String(name) => vec![name],
            Value::Array(list) => list.iter().filter_map(Value::as_str).collect(),
            _ => Vec::new(),
        };
        if !names.iter().any(|name| has_type(name)) {
            self.report(pointer, format!("must be {}, is {}", names.join(" or "), shown(value)));
        }
    }

    fn bound(&mut self, keyword: &str, rule: &Value, value: &Value, pointer: &str) {
        let (Some(limit), Some(x)) = (rule.as_f64(), value.as_f64()) else { return };
        let is_violated = if keyword == "minimum" { x < limit } else { x > limit };
        if is_violated {
            let word = if keyword == "minimum" { "at least" } else { "at most" };
            self.report(pointer, format!("must be {word} {rule}, is {value}"));
        }
    }

    fn check_alternatives(
        &mut self,
        keyword: &str,
        rule: &Value,
        value: &Value,
        pointer: &str,
    ) -> Result<(), String> {
        let mut matched = 0;
        let alternatives = rule.as_array().map(Vec::as_slice).unwrap_or_default();
        for alternative in alternatives {
            matched += usize::from(self.is_valid(alternative, value)?);
        }
        // `T or null` is how an option is written; the violation inside `T` is the better message.
        let is_null = |s: &&Value| s.get("type").is_some_and(|t| t == "null");
        if matched == 0
            && alternatives.len() == 2
            && alternatives.iter().filter(is_null).count() == 1
        {
            let inner = alternatives.iter().find(|s| !is_null(s));
            return inner.map_or(Ok(()), |schema| self.value(schema, value, pointer));
        }
        if matched == 0 || keyword == "oneOf" && matched > 1 {
            self.report(
                pointer,
                format!("matches {matched} of {} allowed forms", alternatives.len()),
            );
        }
        Ok(())
    }

    fn object(
        &mut self,
        keywords: &Map<String, Value>,
        object: &Map<String, Value>,
        pointer: &str,
    ) -> Result<(), String> {
        let names = keywords.get("required").and_then(Value::as_array);
        for name in names.into_iter().flatten().filter_map(Value::as_str) {
            if !object.contains_key(name) {
                self.report(pointer, format!("lacks `{name}`"));
            }
        }
        let none = Map::new();
        let known = keywords.get("properties").and_then(Value::as_object).unwrap_or(&none);
        let patterns = keywords.get("patternProperties").and_then(Value::as_object);
        let mut shapes = Vec::new();
        for (pattern, schema) in patterns.unwrap_or(&none) {
            let names = Regex::new(pattern).map_err(|_| format!("the pattern `{pattern}`"))?;
            shapes.push((names, schema));
        }
        for (name, inner) in object {
            let inner_pointer = format!("{pointer}/{}", name.replace('~', "~0").replace('/', "~1"));
            let mut schemas = known.get(name).into_iter().collect::<Vec<_>>();
            schemas
                .extend(shapes.iter().filter(|(names, _)| names.is_match(name)).map(|(_, s)| *s));
            if schemas.is_empty() {
                schemas.extend(keywords.get("additionalProperties"));
            }
            for schema in schemas {
                self.value(schema, inner, &inner_pointer)?;
            }
        }
        Ok(())
    }

    fn list(
        &mut self,
        keywords: &Map<String, Value>,
        list: &[Value],
        pointer: &str,
    ) -> Result<(), String> {
        let count = |name: &str| keywords.get(name).and_then(Value::as_u64);
        if count("minItems").is_some_and(|n| (list.len() as u64) < n)
            || count("maxItems").is_some_and(|n| list.len() as u64 > n)
        {
            self.report(
                pointer,
                format!("has {} items, a different number is required", list.len()),
            );
        }
        let first = keywords.get("prefixItems").and_then(Value::as_array);
        let first = first.map(Vec::as_slice).unwrap_or_default();
        for (n, inner) in list.iter().enumerate() {
            if let Some(schema) = first.get(n).or_else(|| keywords.get("items")) {
                self.value(schema, inner, &format!("{pointer}/{n}"))?;
            }
        }
        Ok(())
    }
}

fn violations_in(root: &Value, schema: &Value, value: &Value) -> Result<Vec<Violation>, String> {
    let mut check = Validator { root, violations: Vec::new() };
    check.value(schema, value, "")?;
    Ok(check.violations)
}

/// A value in a message, cut short.
fn shown(value: &Value) -> String {
    match value {
        Value::Object(_) => "an object".to_owned(),
        Value::Array(_) => "an array".to_owned(),
        other => other.to_string().chars().take(60).collect(),
    }
}

/// Top-level keys of `document` that `schema` does not name. They are allowed, since later versions
/// add some, but are reported. None if the schema is closed: then they are violations.
pub(super) fn unknown_keys(schema: &Value, document: &Value) -> BTreeSet<String> {
    let is_closed = schema.get("additionalProperties") == Some(&Value::Bool(false));
    let known = schema.get("properties").and_then(Value::as_object).filter(|_| !is_closed);
    let keys = document.as_object().into_iter().flat_map(|o| o.keys());
    keys.filter(|key| known.is_some_and(|k| !k.contains_key(*key))).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn lines(schema: &Value, document: &Value) -> Vec<String> {
        let violations = violations(schema, document).unwrap();
        violations.into_iter().map(|v| format!("{}: {}", v.pointer, v.text)).collect()
    }

    #[test]
    fn each_violation_is_said_once_with_its_place() {
        let schema = json!({
            "type": "object",
            "required": ["id", "grid"],
            "properties": {
                "id": { "type": "integer", "minimum": 0 },
                "grid": { "type": "array", "items": { "type": "integer" }, "minItems": 3, "maxItems": 3 },
                "host": { "anyOf": [{ "$ref": "#/$defs/host" }, { "type": "null" }] },
                "kind": { "oneOf": [{ "const": "a" }, { "const": "b" }] },
            },
            "additionalProperties": { "type": "string" },
            "$defs": { "host": { "type": "object", "required": ["name"] } },
        });
        assert!(lines(&schema, &json!({"id": 0, "grid": [1, 2, 3], "host": null})).is_empty());
        let broken = json!({"id": -1, "grid": [1, "x"], "host": {}, "kind": "c", "a/b": 1});
        insta::assert_snapshot!(lines(&schema, &broken).join("\n"), @r#"
        /id: must be at least 0, is -1
        /grid: has 2 items, a different number is required
        /grid/1: must be integer, is "x"
        /host: lacks `name`
        /kind: matches 0 of 2 allowed forms
        /a~1b: must be string, is 1
        "#);
        assert_eq!(lines(&schema, &json!([])), [": must be object, is an array"]);
    }

    #[test]
    fn names_of_a_pattern_have_the_patterns_schema_and_others_the_rest() {
        let schema = json!({
            "type": "object",
            "patternProperties": { "^\\d+$": { "type": "integer" } },
            "additionalProperties": false,
        });
        assert!(lines(&schema, &json!({"12": 1})).is_empty());
        assert_eq!(
            lines(&schema, &json!({"12": "x", "y": 1})),
            ["/12: must be integer, is \"x\"", "/y: is not allowed"]
        );
    }

    #[test]
    fn unknown_keys_are_allowed_only_in_an_open_schema() {
        let mut schema = json!({ "properties": { "id": {} } });
        let document = json!({ "id": 1, "langage": "cuda" });
        assert_eq!(unknown_keys(&schema, &document), BTreeSet::from(["langage".to_owned()]));
        schema["additionalProperties"] = json!(false);
        assert_eq!(unknown_keys(&schema, &document), BTreeSet::new());
    }

    #[test]
    fn a_schema_with_a_keyword_of_another_world_is_refused() {
        assert!(violations(&json!({"dependentSchemas": {}}), &json!({})).is_err());
    }
}
