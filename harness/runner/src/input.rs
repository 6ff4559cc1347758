//! Reads and validates the runner input before anything is allocated.

use crate::fault::{Fault, Result, bad_case};
use rgpu_case::{Arg, CASE_ABI, Case, EntryPoint, ErrorClass, Reference, Role, RunnerInput};
use std::path::{Path, PathBuf};

/// The runner input and the folder that its paths are relative to.
#[derive(Debug)]
pub(crate) struct Input {
    pub(crate) spec: RunnerInput,
    pub(crate) folder: PathBuf,
}

/// The field that is read first: an input of another version may differ in everything else.
#[derive(serde::Deserialize)]
struct Version {
    abi: u32,
}

/// Reads and validates the file.
pub(crate) fn read(path: &Path) -> Result<Input> {
    let shown = path.display();
    let bytes = std::fs::read(path).map_err(|e| {
        Fault::new(ErrorClass::MissingFile, format!("cannot read the runner input `{shown}`: {e}"))
    })?;
    let malformed =
        |e: serde_json::Error| bad_case(format!("`{shown}` is not a valid runner input: {e}"));
    let version: Version = serde_json::from_slice(&bytes).map_err(malformed)?;
    if version.abi != CASE_ABI {
        let found = version.abi;
        return Err(bad_case(format!(
            "`{shown}` has version {found}, but this runner supports {CASE_ABI}: use \
             rgpu and rgpu-runner of one release"
        )));
    }
    let spec: RunnerInput = serde_json::from_slice(&bytes).map_err(malformed)?;
    check(&spec)?;
    // Paths are made absolute, because the loader of shared libraries searches the system's folders
    // for a name without a slash.
    let folder = std::path::absolute(path).ok().and_then(|p| p.parent().map(Path::to_path_buf));
    Ok(Input { spec, folder: folder.unwrap_or_else(|| PathBuf::from("/")) })
}

fn check(spec: &RunnerInput) -> Result<()> {
    if spec.cases.is_empty() {
        return Err(bad_case("the runner input has no case"));
    }
    if matches!(spec.entry, EntryPoint::Python(_))
        || matches!(spec.reference, Some(Reference::Python { .. }))
    {
        return Err(bad_case(
            "the runner cannot run a Python entry or reference; use `harness.py`",
        ));
    }
    let device_entry = matches!(spec.entry, EntryPoint::Device { .. });
    for (i, case) in spec.cases.iter().enumerate() {
        if spec.cases[..i].iter().any(|other| other.name == case.name) {
            return Err(bad_case(format!("two cases are called `{}`", case.name)));
        }
        let within = |fault: Fault| fault.while_doing(format_args!("case `{}`", case.name));
        check_case(case).map_err(within)?;
        if device_entry && case.launch.is_none() {
            return Err(within(bad_case("a device entry needs a launch shape")));
        }
        if device_entry && case.groups.len() != 1 {
            return Err(within(bad_case(
                "a device entry takes one group; groups need a host entry",
            )));
        }
    }
    if let Some(Reference::DeviceKernel { small, .. } | Reference::DeviceFunction { small, .. }) =
        &spec.reference
    {
        for case in small {
            let within = |f: Fault| f.while_doing(format_args!("small case `{}`", case.name));
            check_case(case).map_err(within)?;
        }
    }
    if let Some(Reference::DeviceKernel { small, .. }) = &spec.reference {
        for case in spec.cases.iter().chain(small) {
            if case.reference_launch.is_none() || case.groups.len() != 1 {
                return Err(bad_case(format!(
                    "case `{}`: a reference kernel needs a launch shape and one group",
                    case.name
                )));
            }
        }
    }
    Ok(())
}

fn check_case(case: &Case) -> Result<()> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-.=+,".contains(c);
    if case.name.is_empty() || !case.name.chars().all(plain) {
        return Err(bad_case("the name may only contain letters, digits and `_-.=+,`"));
    }
    let first = case.groups.first().ok_or_else(|| bad_case("no group is given"))?;
    for (g, group) in case.groups.iter().enumerate() {
        if group.sizes.len() != case.vars.len() {
            let (sizes, vars) = (group.sizes.len(), case.vars.len());
            return Err(bad_case(format!("group {g} has {sizes} sizes for {vars} variables")));
        }
        let kind = |arg: &Arg| (arg.name.clone(), arg.dtype, arg.role, arg.dims.len());
        if group.args.iter().map(kind).ne(first.args.iter().map(kind)) {
            return Err(bad_case(format!(
                "group {g} differs from group 0: names, types, roles and dimensions must match"
            )));
        }
        for arg in &group.args {
            check_arg(arg)?;
        }
    }
    Ok(())
}

fn check_arg(arg: &Arg) -> Result<()> {
    let name = &arg.name;
    match arg.role {
        Role::Scalar if !arg.dims.is_empty() => {
            Err(bad_case(format!("scalar `{name}` has dimensions")))
        }
        Role::Scalar if arg.value.is_none() => {
            Err(bad_case(format!("scalar `{name}` has no value")))
        }
        Role::Scalar if arg.dtype.bits() < 8 => {
            Err(bad_case(format!("scalar `{name}`: a kernel takes no `{}` by value", arg.dtype)))
        }
        Role::Scalar => Ok(()),
        Role::Out if arg.init.is_some() => {
            Err(bad_case(format!("output `{name}` has an init; is it `inout`?")))
        }
        _ if arg.bytes().is_none_or(|bytes| isize::try_from(bytes).is_err()) => {
            Err(bad_case(format!("argument `{name}` is too large")))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// The input for `c[n] = a[n] + b[n]`.
    pub(crate) fn vecadd(n: u64) -> RunnerInput {
        let text = format!(
            r#"{{"abi":1,"kernel":"vecadd","entry":{{"device":{{"module":"k.cubin","function":"vecadd"}}}},
            "cases":[{{"name":"n={n}","vars":["n"],"groups":[{{"sizes":[{n}],"args":[
              {{"name":"a","dtype":"f32","dims":[{n}],"role":"in","init":{{"uniform":{{"lo":-1,"hi":1}}}}}},
              {{"name":"b","dtype":"f32","dims":[{n}],"role":"in","init":{{"normal":{{"mean":0,"sd":1}}}}}},
              {{"name":"c","dtype":"f32","dims":[{n}],"role":"out"}},
              {{"name":"n","dtype":"i32","role":"scalar","value":{n}}}]}}],
              "launch":{{"grid":[1,1,1],"block":[256,1,1]}}}}],
            "reference":{{"host_library":{{"library":"r.so"}}}}}}"#
        );
        serde_json::from_str(&text).unwrap()
    }

    fn refusal(change: impl FnOnce(&mut RunnerInput)) -> String {
        let mut spec = vecadd(4);
        change(&mut spec);
        check(&spec).unwrap_err().0.text
    }

    #[test]
    fn a_plain_case_is_accepted() {
        check(&vecadd(4)).unwrap();
    }

    #[test]
    fn contradictions_are_refused_with_the_place() {
        assert!(refusal(|c| c.cases.clear()).contains("no case"));
        assert!(refusal(|c| c.cases[0].launch = None).contains("`n=4`"));
        assert!(refusal(|c| c.cases[0].name = "a/b".into()).contains("letters"));
        assert!(refusal(|c| c.cases.push(c.cases[0].clone())).contains("two cases"));
        assert!(refusal(|c| c.cases[0].groups[0].sizes.clear()).contains("0 sizes for 1"));
        assert!(refusal(|c| c.cases[0].groups[0].args[3].value = None).contains("no value"));
        assert!(
            refusal(|c| c.cases[0].groups[0].args[0].dims = vec![u64::MAX; 2])
                .contains("`a` is too large")
        );
        let twice = |c: &mut RunnerInput| {
            let group = c.cases[0].groups[0].clone();
            c.cases[0].groups.push(group);
        };
        assert!(refusal(twice).contains("host entry"));
    }

    #[test]
    fn another_version_is_named_even_when_nothing_else_can_be_read() {
        let file = std::env::temp_dir().join(format!("rgpu-runner-v9-{}", std::process::id()));
        std::fs::write(&file, r#"{"abi":9,"new":true}"#).unwrap();
        let fault = read(&file).unwrap_err();
        std::fs::remove_file(&file).unwrap();
        assert!(fault.0.text.contains("has version 9"), "{}", fault.0.text);
    }
}
