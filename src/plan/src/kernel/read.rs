//! Reads a `kernel.toml` into a [`KernelSpec`]. The keys are described in `kernels/README.md`.

#![expect(clippy::disallowed_methods, reason = "the project's own sources")]

use std::path::Path;

use rgpu_case::{Dtype, Init, Number, Role};
use toml::de::DeTable;

use super::document::{Item, Origin, Table};
use super::expr::{Expr, Grammar};
use super::spec::{
    ArgSpec, DeclaredWork, EntryPoint, KernelSpec, LaunchSpec, NamedCase, ScalarValue, Sizes,
};
use super::{KernelError, LANGUAGES, MODES, ProfileMode, python, reference};

/// The allowed top-level keys.
pub(super) const KEYS: [&str; 14] = [
    "name",
    "language",
    "source",
    "entry",
    "mode",
    "arch",
    "flags",
    "arg",
    "launch",
    "sizes",
    "reference",
    "work",
    "files",
    "model",
];

/// Parses the `text` of the kernel.toml `file`. The files that it names must exist.
pub fn read(file: &Path, text: &str) -> Result<KernelSpec, KernelError> {
    let origin = Origin { file, text };
    let document = DeTable::parse(text).map_err(|error| {
        let problem = format!("not TOML: {}", error.message());
        origin.error(error.span().unwrap_or(0..0), "", problem, None)
    })?;
    let top = Table::new(&origin, "", document.get_ref(), 0..0, &KEYS)?;
    let folder = file.parent().unwrap_or(Path::new("")).to_owned();

    let name = top.required("name")?;
    let language = language(&top.required("language")?)?;
    let source = existing_file(&top.required("source")?, &folder, "source")?;
    let entry = entry(&top.required("entry")?, language)?;
    let mode = top.optional("mode").map(|item| mode(&item)).transpose()?;
    let arch = strings(top.optional("arch"), architecture)?;
    let flags = strings(top.optional("flags"), |item| Ok(item.text()?.to_owned()))?;
    let sizes = top.optional("sizes").map(|item| sizes(&item)).transpose()?.unwrap_or_default();
    let args = match top.optional("arg") {
        Some(item) => args(&item, &sizes.vars)?,
        None => Vec::new(),
    };
    let launch = match (top.optional("launch"), &entry) {
        (Some(item), EntryPoint::Device(_)) => Some(launch(&item, &sizes.vars)?),
        (Some(item), EntryPoint::Host) => {
            return Err(item.error("a host entry launches its own kernels: it takes no `[launch]`"));
        }
        (Some(item), EntryPoint::Python(_)) => {
            return Err(
                item.error("a Python entry launches its own kernels: it takes no `[launch]`")
            );
        }
        (None, EntryPoint::Python(_)) => None,
        (None, EntryPoint::Device(_)) => {
            return Err(top.error("`[launch]` is missing: a device entry needs `grid` and `block`"));
        }
        (None, EntryPoint::Host) => None,
    };
    if sizes.groups && launch.is_some() {
        return Err(top.error(
            "`sizes.groups` needs a host entry: one launch of a device entry takes one group",
        ));
    }
    let reference = match top.optional("reference") {
        Some(item) => Some(reference::read(&item, &folder, &source, &entry, &args, &sizes)?),
        None => None,
    };
    let work = match top.optional("work") {
        Some(item) => work(&item, &sizes.vars)?,
        None => DeclaredWork::default(),
    };
    let extra_files = strings(top.optional("files"), |item| existing_file(item, &folder, "files"))?;
    let model = match top.optional("model") {
        Some(item) if !matches!(entry, EntryPoint::Python(_)) => {
            return Err(item.error("only a Python kernel has a `[model]`"));
        }
        Some(item) => Some(python::model(&item)?),
        None => None,
    };
    let spec = KernelSpec {
        name: checked_name(&name)?,
        language,
        folder,
        file: Some(file.to_owned()),
        source,
        entry,
        mode,
        arch,
        flags,
        args,
        launch,
        sizes,
        reference,
        work,
        extra_files,
        model,
        task: None,
    };
    Ok(spec)
}

pub(super) fn one_of<'a>(
    item: &Item<'a>,
    what: &str,
    names: &[&str],
) -> Result<&'a str, KernelError> {
    let text = item.text()?;
    if names.contains(&text) {
        return Ok(text);
    }
    // `input` is a longer word for `in`, though `inout` has more of its letters.
    let begun = names.iter().filter(|name| text.starts_with(**name)).max_by_key(|name| name.len());
    let near = rgpu_model::error::nearest(text, names.iter().copied());
    let hint = match begun.or(near.first()) {
        Some(near) => format!("did you mean `{near}`?"),
        None => format!("known are `{}`", names.join("`, `")),
    };
    Err(item.error_with(format!("unknown {what} `{text}`"), hint))
}

fn checked_name(item: &Item<'_>) -> Result<String, KernelError> {
    let text = item.text()?;
    if super::valid_name(text) {
        Ok(text.to_owned())
    } else {
        Err(item.error(format!(
            "`{text}` cannot be a kernel's name: letters, digits, `.`, `_` and `-`, at most 80"
        )))
    }
}

/// The name of an argument: an identifier, or `p.size.x` for a member of a structure `p` that the
/// kernel takes by value.
fn arg_name(item: &Item<'_>) -> Result<String, KernelError> {
    let text = item.text()?;
    let mut parts = text.split('.');
    let is_member = |part: &str| part.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    let is_name = parts.next().is_some_and(super::is_identifier)
        && parts.all(|part| !part.is_empty() && is_member(part));
    if is_name { Ok(text.to_owned()) } else { identifier(item) }
}

pub(super) fn identifier(item: &Item<'_>) -> Result<String, KernelError> {
    let text = item.text()?;
    if super::is_identifier(text) {
        Ok(text.to_owned())
    } else {
        Err(item.error(format!("`{text}` is not an identifier")))
    }
}

/// The name of a kernel: an identifier, with namespaces and with template arguments if it has any.
fn kernel_name(item: &Item<'_>) -> Result<String, KernelError> {
    let text = item.text()?;
    let head = text.split('<').next().unwrap_or_default();
    let is_name = head.trim().split("::").all(super::is_identifier);
    let closes = !text.contains('<') || text.trim_end().ends_with('>');
    // Arguments become part of a line of C++.
    let is_plain = text.len() <= 255 && !text.contains([';', '{', '}', '"', '\\', '\n', '#']);
    if is_name && closes && is_plain {
        Ok(text.trim().to_owned())
    } else {
        Err(item.error(format!("`{text}` is not an identifier")))
    }
}

fn language(item: &Item<'_>) -> Result<&'static str, KernelError> {
    let text = item.text()?;
    let names: Vec<&'static str> = LANGUAGES.iter().map(|language| language.name()).collect();
    one_of(item, "language", &names)?;
    // `one_of` accepts only members of the list.
    Ok(names.into_iter().find(|name| *name == text).unwrap_or_default())
}

fn mode(item: &Item<'_>) -> Result<ProfileMode, KernelError> {
    let names: Vec<&str> = MODES.iter().map(|info| info.name).collect();
    let text = one_of(item, "mode", &names)?;
    text.parse().map_err(|error: super::mode::UnknownMode| item.error(error.to_string()))
}

pub(super) fn existing_file(
    item: &Item<'_>,
    folder: &Path,
    key: &'static str,
) -> Result<std::path::PathBuf, KernelError> {
    file_of(item, item.text()?, folder, key)
}

/// The file that `text`, a part of an item's text, names.
pub(super) fn file_of(
    item: &Item<'_>,
    text: &str,
    folder: &Path,
    key: &'static str,
) -> Result<std::path::PathBuf, KernelError> {
    let path = folder.join(text);
    match std::fs::metadata(&path) {
        Ok(found) if found.is_file() => Ok(path),
        Ok(_) => Err(item.error(format!("`{}` is not a file", path.display()))),
        Err(error) => Err(KernelError::unreadable(&path, Some(key))(error)),
    }
}

fn entry(item: &Item<'_>, language: &str) -> Result<EntryPoint, KernelError> {
    if language == "python" {
        return python::entry(item).map(EntryPoint::Python);
    }
    let table = item.table(&["device", "host", "python"])?;
    let (device, host) = (table.optional("device"), table.optional("host"));
    let python = table.optional("python");
    match (device, host, python) {
        (Some(device), None, None) => kernel_name(&device).map(EntryPoint::Device),
        (None, Some(host), None) => match host.integer()? {
            1 => Ok(EntryPoint::Host),
            other => Err(host.error(format!("host-entry ABI {other} is unknown; 1 is supported"))),
        },
        (None, None, Some(python)) => {
            Err(python.error("a Python entry needs `language = \"python\"`"))
        }
        _ => Err(item.error("`entry` takes one of `device`, `host`")),
    }
}

pub(super) fn strings<T>(
    item: Option<Item<'_>>,
    read: impl Fn(&Item<'_>) -> Result<T, KernelError>,
) -> Result<Vec<T>, KernelError> {
    match item {
        Some(item) => item.list()?.iter().map(read).collect(),
        None => Ok(Vec::new()),
    }
}

fn architecture(item: &Item<'_>) -> Result<String, KernelError> {
    let text = item.text()?;
    if super::is_architecture(text) {
        Ok(text.to_owned())
    } else {
        Err(item.error(format!(
            "`{text}` is not an architecture; there are {}",
            super::list_architectures()
        )))
    }
}

fn expr(item: &Item<'_>, grammar: Grammar, vars: &[String]) -> Result<Expr, KernelError> {
    if let Some(number) = item.as_integer()? {
        return Ok(Expr::number(number));
    }
    let text = match grammar {
        Grammar::Work if item.is_float() => item.float()?.to_string(),
        _ => item.text()?.to_owned(),
    };
    Expr::parse(&text, grammar, vars).map_err(|error| {
        let super::expr::ExprError::UnknownVariable { name, .. } = &error else {
            return item.error(error.to_string());
        };
        let near = rgpu_model::error::nearest(name, vars.iter().map(String::as_str));
        match (near.first(), vars) {
            (Some(near), _) => {
                item.error_with(error.to_string(), format!("did you mean `{near}`?"))
            }
            (None, []) => item.error(error.to_string()),
            (None, vars) => item.error_with(
                error.to_string(),
                format!("variables of `[sizes]`: `{}`", vars.join("`, `")),
            ),
        }
    })
}

fn exprs(item: &Item<'_>, vars: &[String]) -> Result<Vec<Expr>, KernelError> {
    item.list()?.iter().map(|item| expr(item, Grammar::Size, vars)).collect()
}

fn args(item: &Item<'_>, vars: &[String]) -> Result<Vec<ArgSpec>, KernelError> {
    let mut args: Vec<ArgSpec> = Vec::new();
    for item in item.list()? {
        let arg = arg(&item, vars)?;
        if args.iter().any(|other| other.name == arg.name) {
            return Err(item.error(format!("the argument `{}` is given twice", arg.name)));
        }
        let is_of_same = |other: &&ArgSpec| structure_of(&other.name) == structure_of(&arg.name);
        if arg.name.contains('.')
            && args.iter().any(|other| is_of_same(&other))
            && args.last().is_some_and(|last| !is_of_same(&last))
        {
            let structure = structure_of(&arg.name);
            return Err(item.error(format!("the members of `{structure}` are not side by side")));
        }
        args.push(arg);
    }
    Ok(args)
}

/// The parameter that an argument is, or belongs to.
fn structure_of(name: &str) -> &str {
    name.split('.').next().unwrap_or(name)
}

fn arg(item: &Item<'_>, vars: &[String]) -> Result<ArgSpec, KernelError> {
    let table = item.table(&["name", "dtype", "shape", "init", "role", "value"])?;
    let name = arg_name(&table.required("name")?)?;
    let dtype = table.required("dtype")?;
    let dtype: Dtype = one_of(&dtype, "dtype", &Dtype::ALL.map(Dtype::name))?
        .parse()
        .map_err(|error: rgpu_case::UnknownDtype| dtype.error(error.to_string()))?;
    let role = table.required("role")?;
    let role = match one_of(&role, "role", &["in", "out", "inout", "scalar"])? {
        "in" => Role::In,
        "out" => Role::Out,
        "inout" => Role::InOut,
        _ => Role::Scalar,
    };
    let (shape, init, value) =
        (table.optional("shape"), table.optional("init"), table.optional("value"));

    if role == Role::Scalar {
        if let Some(item) = shape.or(init) {
            return Err(item.error(format!("a scalar takes no `{}`, but `value`", item.key)));
        }
        let value = value.ok_or_else(|| item.error(format!("scalar `{name}` needs a `value`")))?;
        let value = Some(scalar(&value, dtype, vars)?);
        return Ok(ArgSpec { name, dtype, role, shape: Vec::new(), init: None, value });
    }
    if let Some(item) = value {
        return Err(item.error("only a scalar takes `value`"));
    }
    let shape = shape.ok_or_else(|| item.error(format!("`{name}` needs a `shape`")))?;
    let shape_exprs = exprs(&shape, vars)?;
    if shape_exprs.is_empty() {
        return Err(shape.error("a shape has at least one extent; a single value is a scalar"));
    }
    let init = match init {
        Some(item) if role == Role::Out => {
            return Err(item.error(
                "an `out` is filled with a marker value before the launch: it \
                                   takes no `init`",
            ));
        }
        Some(item) => Some(fill(&item)?),
        None => None,
    };
    Ok(ArgSpec { name, dtype, role, shape: shape_exprs, init, value: None })
}

fn scalar(item: &Item<'_>, dtype: Dtype, vars: &[String]) -> Result<ScalarValue, KernelError> {
    if item.is_float() {
        if !dtype.is_float() {
            return Err(item.error(format!("`{dtype}` takes a whole number")));
        }
        return Ok(ScalarValue::Number(Number::Float(item.float()?)));
    }
    match item.as_integer()? {
        Some(number) => Ok(ScalarValue::Number(Number::Int(number))),
        None => expr(item, Grammar::Size, vars).map(ScalarValue::Expr),
    }
}

fn fill(item: &Item<'_>) -> Result<Init, KernelError> {
    let table = item.table(&["uniform", "normal", "ints", "bits", "const", "file"])?;
    let uniform = table.optional("uniform");
    let normal = table.optional("normal");
    let ints = table.optional("ints");
    let bits = table.optional("bits");
    let constant = table.optional("const");
    let file = table.optional("file");
    match (uniform, normal, ints, bits, constant, file) {
        (Some(item), None, None, None, None, None) => {
            let [lo, hi] = pair(&item, |item| item.float())?;
            if lo <= hi {
                Ok(Init::Uniform { lo, hi })
            } else {
                Err(item.error(format!("{lo} to {hi} is an empty range")))
            }
        }
        (None, Some(item), None, None, None, None) => {
            let [mean, sd] = pair(&item, |item| item.float())?;
            if sd >= 0.0 {
                Ok(Init::Normal { mean, sd })
            } else {
                Err(item.error(format!("a deviation of {sd} is below 0")))
            }
        }
        (None, None, Some(item), None, None, None) => {
            let [lo, hi] = pair(&item, |item| item.integer())?;
            if lo <= hi {
                Ok(Init::Ints { lo, hi })
            } else {
                Err(item.error(format!("{lo} to {hi} is an empty range")))
            }
        }
        (None, None, None, Some(item), None, None) => match u64::try_from(item.integer()?) {
            Ok(mask) => Ok(Init::Bits { mask }),
            Err(_) => Err(item.error("a mask is not below 0")),
        },
        (None, None, None, None, Some(item), None) => {
            let value = match item.as_integer()? {
                Some(number) => Number::Int(number),
                None => Number::Float(item.float()?),
            };
            Ok(Init::Const { value })
        }
        (None, None, None, None, None, Some(item)) => {
            let path = item.text()?;
            let found = item.origin.file.parent().unwrap_or(Path::new("")).join(path);
            match std::fs::metadata(&found) {
                Ok(_) => Ok(Init::File { path: path.to_owned() }),
                Err(error) => Err(KernelError::unreadable(&found, Some("init"))(error)),
            }
        }
        _ => {
            Err(item
                .error("`init` takes one of `uniform`, `normal`, `ints`, `bits`, `const`, `file`"))
        }
    }
}

fn pair<T>(
    item: &Item<'_>,
    read: impl Fn(&Item<'_>) -> Result<T, KernelError>,
) -> Result<[T; 2], KernelError> {
    let values: Vec<T> = item.list()?.iter().map(read).collect::<Result<_, _>>()?;
    values.try_into().map_err(|_| item.error(format!("`{}` takes two numbers", item.key)))
}

fn launch(item: &Item<'_>, vars: &[String]) -> Result<LaunchSpec, KernelError> {
    launch_of(&item.table(&["grid", "block", "cluster", "shared"])?, vars)
}

pub(super) fn launch_of(table: &Table<'_>, vars: &[String]) -> Result<LaunchSpec, KernelError> {
    let axes = |item: &Item<'_>| -> Result<Vec<Expr>, KernelError> {
        let axes = exprs(item, vars)?;
        match axes.len() {
            1..=3 => Ok(axes),
            n => Err(item.error(format!("`{}` has 1 to 3 values, not {n}", item.key))),
        }
    };
    let shared = table.optional("shared");
    Ok(LaunchSpec {
        grid: axes(&table.required("grid")?)?,
        block: axes(&table.required("block")?)?,
        cluster: table.optional("cluster").map(|item| axes(&item)).transpose()?,
        shared: shared.map(|item| expr(&item, Grammar::Size, vars)).transpose()?,
    })
}

fn sizes(item: &Item<'_>) -> Result<Sizes, KernelError> {
    let table = item.table(&["vars", "groups", "cases", "default"])?;
    let list = table.required("vars")?;
    let mut vars: Vec<String> = Vec::new();
    for item in list.list()? {
        let var = identifier(&item)?;
        if vars.contains(&var) {
            return Err(item.error(format!("the variable `{var}` is given twice")));
        }
        vars.push(var);
    }
    let groups = table.optional("groups").map(|item| item.boolean()).transpose()?.unwrap_or(false);
    let mut cases = Vec::new();
    if let Some(item) = table.optional("cases") {
        for (name, item) in item.entries()? {
            if !super::valid_name(name) {
                return Err(item.error(format!(
                    "`{name}` cannot be a case's name: letters, digits, `.`, `_` and `-`"
                )));
            }
            let rows = if groups {
                item.list()?.iter().map(|item| row(item, &vars)).collect::<Result<_, _>>()?
            } else {
                vec![row(&item, &vars)?]
            };
            if rows.is_empty() {
                return Err(item.error(format!("the case `{name}` has no group")));
            }
            cases.push(NamedCase { name: name.to_owned(), groups: rows, ..NamedCase::default() });
        }
    }
    let names: Vec<&str> = cases.iter().map(|case| case.name.as_str()).collect();
    let default = match table.optional("default") {
        Some(item) => Some(one_of(&item, "case", &names)?.to_owned()),
        None if cases.len() == 1 => Some(cases[0].name.clone()),
        None if vars.is_empty() => None,
        None => return Err(table.error("`sizes.default` is missing: the name of one of the cases")),
    };
    Ok(Sizes { vars, groups, cases, default })
}

fn row(item: &Item<'_>, vars: &[String]) -> Result<Vec<i64>, KernelError> {
    let entries = item.entries()?;
    if let Some((name, item)) = entries.iter().find(|(name, _)| !vars.iter().any(|v| v == name)) {
        return Err(item.error(format!("`{name}` is none of `sizes.vars`")));
    }
    vars.iter()
        .map(|var| match entries.iter().find(|(name, _)| name == var) {
            Some((_, item)) => item.integer(),
            None => Err(item.error(format!("`{var}` is not given"))),
        })
        .collect()
}

fn work(item: &Item<'_>, vars: &[String]) -> Result<DeclaredWork, KernelError> {
    let table = item.table(&["flops", "bytes", "regions"])?;
    let expr_at = |key| match table.optional(key) {
        Some(item) => expr(&item, Grammar::Work, vars).map(Some),
        None => Ok(None),
    };
    let mut regions = Vec::new();
    if let Some(item) = table.optional("regions") {
        for (name, item) in item.entries()? {
            regions.push((name.to_owned(), expr(&item, Grammar::Work, vars)?));
        }
    }
    Ok(DeclaredWork { flops: expr_at("flops")?, bytes: expr_at("bytes")?, regions })
}
