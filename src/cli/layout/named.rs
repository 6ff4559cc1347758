//! Reads named layouts from JSON: our dumps and snapshots, and documents of other tools.
//!
//! A list `layouts` of objects with `name` and `layout` is taken as it is. Elsewhere every text
//! that is a layout counts, under the path of its keys; `inner` and `outer` beside each other are a
//! swizzle and its layout, and `shape` and `stride` the two halves of one.

use std::path::Path;

use rgpu_layout::{Layout, SwizzledLayout};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use super::input::file;
use rgpu_model::error::{Exit, Failure, Result};

/// A layout with its name.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(super) struct NamedLayout {
    /// The name of the layout.
    pub(super) name: String,
    /// The layout with its swizzle and offset.
    pub(super) layout: SwizzledLayout,
}

/// Reads the layouts of a file.
pub(super) fn read(path: &Path) -> Result<Vec<NamedLayout>> {
    let value: Value = rgpu_run::saved_json::any_from_slice(&file(path)?).map_err(|e| {
        Failure::new(Exit::Artifact, "unreadable", "the file is not JSON")
            .file(path.display())
            .cause(e)
    })?;
    let mut layouts = Vec::new();
    collect(&value, &mut Vec::new(), &mut layouts);
    if layouts.is_empty() {
        return Err(Failure::new(Exit::Artifact, "no_layouts", "the file holds no layouts")
            .file(path.display())
            .hint("`rgpu layout dump` and `rgpu layout snapshot` write such files"));
    }
    Ok(layouts)
}

fn collect(value: &Value, path: &mut Vec<String>, layouts: &mut Vec<NamedLayout>) {
    match value {
        Value::Object(fields) => {
            let field = |name: &str| fields.get(name).and_then(Value::as_str);
            if let (Some(name), Some(Ok(layout))) = (field("name"), field("layout").map(str::parse))
            {
                layouts.push(NamedLayout { name: name.to_owned(), layout });
                return;
            }
            let halves = match (fields.get("shape"), fields.get("stride")) {
                (Some(shape), Some(stride)) => Some((tuple(shape), tuple(stride))),
                _ => match (field("inner"), field("outer")) {
                    (Some(inner), Some(outer)) => Some((Some(inner.into()), Some(outer.into()))),
                    _ => None,
                },
            };
            if let Some((Some(first), Some(second))) = halves {
                let swizzled = format!("{first} o 0 o {second}");
                let both = [format!("{first}:{second}"), swizzled];
                if let Some(layout) = both.iter().find_map(|text| text.parse().ok()) {
                    layouts.push(NamedLayout { name: path.join("."), layout });
                    return;
                }
            }
            for (key, value) in fields {
                path.push(key.clone());
                collect(value, path, layouts);
                path.pop();
            }
        }
        Value::Array(values) => {
            for (index, value) in values.iter().enumerate() {
                path.push(index.to_string());
                collect(value, path, layouts);
                path.pop();
            }
        }
        // A lone number or shape is no layout here: too much else looks like it.
        Value::String(text) if text.contains(':') => {
            if let Ok(layout) = text.parse() {
                layouts.push(NamedLayout { name: path.join("."), layout });
            }
        }
        _ => {}
    }
}

/// A tuple of numbers, as CuTe writes it.
fn tuple(value: &Value) -> Option<String> {
    match value {
        Value::Number(number) => Some(number.to_string()),
        Value::String(text) => Some(text.clone()),
        Value::Array(parts) => {
            let parts: Option<Vec<String>> = parts.iter().map(tuple).collect();
            parts.map(|parts| format!("({})", parts.join(",")))
        }
        _ => None,
    }
}

/// The layout of this name without a swizzle, if there is one.
pub(super) fn plain<'a>(layouts: &'a [NamedLayout], name: &str) -> Option<&'a Layout> {
    let ends_with = |layout: &&NamedLayout| {
        layout.name == name || layout.name.rsplit('.').any(|part| part == name)
    };
    layouts.iter().find(ends_with).map(|layout| layout.layout.layout())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(json: &str) -> Vec<String> {
        let mut layouts = Vec::new();
        collect(&serde_json::from_str(json).unwrap(), &mut Vec::new(), &mut layouts);
        layouts.iter().map(|l| format!("{} {}", l.name, l.layout)).collect()
    }

    #[test]
    fn layouts_of_several_kinds_of_documents_are_found() {
        let ours = r#"{"layouts": [{"name": "acc", "layout": "(2,4):(4,1)", "formula": "8:1"}]}"#;
        assert_eq!(names(ours), ["acc (2,4):(4,1)"]);
        let other = r#"{"tool": "x", "a_smem": {"inner": "S<3,4,3>", "outer": "(8,64):(64,1)"},
            "t2r": {"tCtAcc": "((128,64),1):((65536,1),0)", "shape": "80:1 tiles"},
            "gC": {"shape": [128, [2, 64]], "stride": [4096, [1, 2]]}}"#;
        assert_eq!(
            names(other),
            [
                "a_smem S<3,4,3> o 0 o (8,64):(64,1)",
                "t2r.tCtAcc ((128,64),1):((65536,1),0)",
                "gC (128,(2,64)):(4096,(1,2))"
            ]
        );
    }
}
