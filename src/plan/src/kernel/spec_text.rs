//! Writes a [`KernelSpec`] as the kernel.toml that says the same.

use std::fmt::Write;

use rgpu_case::{Init, Number, Role, Setting};

use super::expr::Expr;
use super::spec::{ArgSpec, EntryPoint, KernelSpec, LaunchSpec, ScalarValue};

impl KernelSpec {
    /// The launch that was assumed for a bare source, as `--launch` takes it: `_` stands for the
    /// elements of an array. `None` with a kernel.toml, and for an entry that launches by itself.
    pub fn assumed_launch(&self) -> Option<String> {
        let (None, EntryPoint::Device(entry), Some(launch)) =
            (&self.file, &self.entry, &self.launch)
        else {
            return None;
        };
        let axes = |axes: &[Expr]| {
            let texts: Vec<&str> = axes.iter().map(Expr::text).collect();
            if let [only] = texts.as_slice() {
                return (*only).to_owned();
            }
            format!("({})", texts.join(", "))
        };
        let shared = launch.shared.as_ref().map(|bytes| format!(", {}", bytes.text()));
        let argument = |arg: &ArgSpec| match &arg.value {
            Some(ScalarValue::Expr(value)) => value.text().to_owned(),
            Some(ScalarValue::Number(Number::Int(value))) if !arg.dtype.is_float() => {
                value.to_string()
            }
            _ => "_".to_owned(),
        };
        let arguments: Vec<String> = self.args.iter().map(argument).collect();
        Some(format!(
            "{entry}<<<{}, {}{}>>>({})",
            axes(&launch.grid),
            axes(&launch.block),
            shared.unwrap_or_default(),
            arguments.join(", ")
        ))
    }
}

/// The kernel.toml of `spec`, with paths relative to its folder. A Python kernel's reference in
/// its own source is written like any other.
pub fn toml_text(spec: &KernelSpec) -> String {
    let mut toml = String::new();
    let relative = |path: &std::path::Path| {
        let path = path.strip_prefix(&spec.folder).unwrap_or(path);
        quoted(&path.display().to_string())
    };
    // Writing to a String cannot fail.
    let mut line = |text: String| {
        let _ = writeln!(toml, "{text}");
    };
    line(format!("name = {}", quoted(&spec.name)));
    line(format!("language = {}", quoted(spec.language)));
    line(format!("source = {}", relative(&spec.source)));
    line(format!("entry = {}", entry(&spec.entry)));
    if let Some(mode) = spec.mode {
        line(format!("mode = {}", quoted(mode.name())));
    }
    for (key, values) in [("arch", &spec.arch), ("flags", &spec.flags)] {
        if !values.is_empty() {
            let values: Vec<String> = values.iter().map(|value| quoted(value)).collect();
            line(format!("{key} = [{}]", values.join(", ")));
        }
    }
    if !spec.extra_files.is_empty() {
        let files: Vec<String> = spec.extra_files.iter().map(|file| relative(file)).collect();
        line(format!("files = [{}]", files.join(", ")));
    }
    for arg in &spec.args {
        line(String::new());
        line(arg_text(arg));
    }
    if let Some(launch) = &spec.launch {
        line(format!("\n[launch]\n{}", launch_text(launch)));
    }
    if !spec.sizes.vars.is_empty() || !spec.sizes.cases.is_empty() {
        line(format!("\n[sizes]\n{}", sizes_text(spec)));
    }
    if let Some(reference) = &spec.reference {
        let tolerance = reference.tolerance;
        line(format!("\n[reference]\nsource = {}", relative(&reference.source)));
        line(format!("function = {}", quoted(&reference.function)));
        let misses = match tolerance.mismatch_fraction {
            0.0 => String::new(),
            fraction => format!(", mismatch_fraction = {fraction:?}"),
        };
        line(format!(
            "tolerance = {{ abs = {:?}, rel = {:?}{misses} }}",
            tolerance.abs, tolerance.rel
        ));
        if let Some(device) = &reference.device {
            line(format!("device = {}", quoted(&device.function)));
            let small: Vec<String> = device.small.iter().map(|name| quoted(name)).collect();
            line(format!("small = [{}]", small.join(", ")));
            if let Some(launch) = &device.launch {
                line(launch_text(launch));
            }
        }
    }
    if spec.work.flops.is_some() || spec.work.bytes.is_some() || !spec.work.regions.is_empty() {
        line("\n[work]".to_owned());
        for (key, expr) in [("flops", &spec.work.flops), ("bytes", &spec.work.bytes)] {
            if let Some(expr) = expr {
                line(format!("{key} = {}", value(expr)));
            }
        }
        for (region, expr) in &spec.work.regions {
            line(format!("regions.{} = {}", quoted(region), value(expr)));
        }
    }
    if let Some(model) = &spec.model {
        line(format!("\n[model]\nname = {}", quoted(&model.name)));
        for (key, text) in [("variant", &model.variant), ("dtype", &model.dtype)] {
            if !text.is_empty() {
                line(format!("{key} = {}", quoted(text)));
            }
        }
        for (key, setting) in &model.settings {
            line(format!("{} = {}", quoted(key), setting_text(setting)));
        }
    }
    toml
}

fn entry(entry: &EntryPoint) -> String {
    match entry {
        EntryPoint::Device(function) => format!("{{ device = {} }}", quoted(function)),
        EntryPoint::Host => "{ host = 1 }".to_owned(),
        EntryPoint::Python(python) => {
            let mut text = format!("{{ python = {}", quoted(&python.function));
            if let Some(prepare) = &python.prepare {
                let _ = write!(text, ", prepare = {}", quoted(prepare));
            }
            if python.fresh {
                text.push_str(", fresh = true");
            }
            text + " }"
        }
    }
}

fn arg_text(arg: &ArgSpec) -> String {
    let role = match arg.role {
        Role::In => "in",
        Role::Out => "out",
        Role::InOut => "inout",
        Role::Scalar => "scalar",
    };
    let mut lines = vec![
        "[[arg]]".to_owned(),
        format!("name = {}", quoted(&arg.name)),
        format!("dtype = {}", quoted(arg.dtype.name())),
        format!("role = {}", quoted(role)),
    ];
    if !arg.shape.is_empty() {
        lines.push(format!("shape = [{}]", list(&arg.shape)));
    }
    match &arg.value {
        Some(ScalarValue::Expr(expr)) => lines.push(format!("value = {}", value(expr))),
        Some(ScalarValue::Number(given)) => lines.push(format!("value = {}", number(*given))),
        None => {}
    }
    if let Some(init) = &arg.init {
        let init = match init {
            Init::Uniform { lo, hi } => Some(format!("uniform = [{lo:?}, {hi:?}]")),
            Init::Normal { mean, sd } => Some(format!("normal = [{mean:?}, {sd:?}]")),
            Init::Ints { lo, hi } => Some(format!("ints = [{lo}, {hi}]")),
            Init::Bits { mask } => Some(format!("bits = {mask:#x}")),
            Init::File { path } => Some(format!("file = {}", quoted(path))),
            Init::Const { value } => Some(format!("const = {}", number(*value))),
            // The default of an `in` or `inout`.
            Init::Zeros => None,
        };
        lines.extend(init.map(|init| format!("init = {{ {init} }}")));
    }
    lines.join("\n")
}

fn launch_text(launch: &LaunchSpec) -> String {
    let mut lines = vec![
        format!("grid = [{}]", list(&launch.grid)),
        format!("block = [{}]", list(&launch.block)),
    ];
    lines.extend(launch.cluster.as_ref().map(|axes| format!("cluster = [{}]", list(axes))));
    lines.extend(launch.shared.as_ref().map(|bytes| format!("shared = {}", value(bytes))));
    lines.join("\n")
}

fn sizes_text(spec: &KernelSpec) -> String {
    let sizes = &spec.sizes;
    let vars: Vec<String> = sizes.vars.iter().map(|var| quoted(var)).collect();
    let mut lines = vec![format!("vars = [{}]", vars.join(", "))];
    if sizes.groups {
        lines.push("groups = true".to_owned());
    }
    for case in &sizes.cases {
        let rows: Vec<String> = case
            .groups
            .iter()
            .map(|row| {
                let pairs = sizes.vars.iter().zip(row).map(|(var, n)| format!("{var} = {n}"));
                format!("{{ {} }}", pairs.collect::<Vec<_>>().join(", "))
            })
            .collect();
        let rows = rows.join(", ");
        let rows = if sizes.groups { format!("[{rows}]") } else { rows };
        lines.push(format!("cases.{} = {rows}", quoted(&case.name)));
    }
    lines.extend(sizes.default.as_ref().map(|name| format!("default = {}", quoted(name))));
    lines.join("\n")
}

fn list(exprs: &[Expr]) -> String {
    exprs.iter().map(value).collect::<Vec<_>>().join(", ")
}

/// A number as it is, anything else in quotes.
fn value(expr: &Expr) -> String {
    match expr.text().parse::<i64>() {
        Ok(number) => number.to_string(),
        Err(_) => quoted(expr.text()),
    }
}

fn setting_text(setting: &Setting) -> String {
    match setting {
        Setting::Bool(value) => value.to_string(),
        Setting::Number(value) => number(*value),
        Setting::Text(text) => quoted(text),
        Setting::List(items) => {
            let items: Vec<String> = items.iter().map(setting_text).collect();
            format!("[{}]", items.join(", "))
        }
    }
}

fn number(number: Number) -> String {
    match number {
        Number::Int(value) => value.to_string(),
        Number::Float(value) => format!("{value:?}"),
    }
}

fn quoted(text: &str) -> String {
    toml::Value::from(text).to_string()
}

#[cfg(test)]
mod tests {
    use super::toml_text;
    use crate::kernel::{KernelFolders, find, read};

    #[test]
    fn every_shipped_kernel_reads_back_as_it_was_written() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../kernels");
        let folders = KernelFolders { shipped: Some(folder.into()), ..KernelFolders::default() };
        let kernels = find::list(&folders);
        assert!(kernels.len() > 10);
        for kernel in kernels {
            let spec = kernel.spec.unwrap();
            let text = toml_text(&spec);
            let file = spec.file.clone().unwrap();
            let again = read(&file, &text).unwrap_or_else(|error| panic!("{error}\n{text}"));
            assert_eq!(again, spec, "{text}");
        }
    }
}
