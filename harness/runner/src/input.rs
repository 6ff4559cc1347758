//! Reads and validates a Case before anything is allocated.

use crate::fault::{Fault, Outcome, bad_case};
use rgpu_case::{Arg, CASE_ABI, Case, Entry, ErrorClass, Reference, Role, RunnerInput};
use std::path::{Path, PathBuf};

/// A Case and the folder that its paths are relative to.
#[derive(Debug)]
pub(crate) struct Input {
    pub(crate) case: RunnerInput,
    pub(crate) folder: PathBuf,
}

/// The field that is read first: a Case of another version may differ in everything else.
#[derive(serde::Deserialize)]
struct Version {
    abi: u32,
}

/// Reads and validates the file.
pub(crate) fn read(path: &Path) -> Outcome<Input> {
    let shown = path.display();
    let bytes = std::fs::read(path).map_err(|e| {
        Fault::new(ErrorClass::MissingFile, format!("cannot read the case `{shown}`: {e}"))
    })?;
    let malformed = |e: serde_json::Error| bad_case(format!("`{shown}` is not a valid case: {e}"));
    let version: Version = serde_json::from_slice(&bytes).map_err(malformed)?;
    if version.abi != CASE_ABI {
        let found = version.abi;
        return Err(bad_case(format!(
            "`{shown}` has case version {found}, but this runner supports {CASE_ABI}"
        )));
    }
    let case: RunnerInput = serde_json::from_slice(&bytes).map_err(malformed)?;
    check(&case)?;
    // Paths are made absolute, because the loader of shared libraries searches the system's folders
    // for a name without a slash.
    let folder = std::path::absolute(path).ok().and_then(|p| p.parent().map(Path::to_path_buf));
    Ok(Input { case, folder: folder.unwrap_or_else(|| PathBuf::from("/")) })
}

fn check(case: &RunnerInput) -> Outcome<()> {
    if case.data_sets.is_empty() {
        return Err(bad_case("the case has no data set"));
    }
    if matches!(case.entry, Entry::Python(_))
        || matches!(case.reference, Some(Reference::Python { .. }))
    {
        return Err(bad_case(
            "the runner cannot run a Python entry or reference; use `harness.py`",
        ));
    }
    let device_entry = matches!(case.entry, Entry::Device { .. });
    for (i, data) in case.data_sets.iter().enumerate() {
        if case.data_sets[..i].iter().any(|other| other.name == data.name) {
            return Err(bad_case(format!("two data sets are called `{}`", data.name)));
        }
        let within = |fault: Fault| fault.while_doing(format_args!("data set `{}`", data.name));
        check_data_set(data).map_err(within)?;
        if device_entry && data.launch.is_none() {
            return Err(within(bad_case("a device entry needs a launch shape")));
        }
        if device_entry && data.groups.len() != 1 {
            return Err(within(bad_case(
                "a device entry takes one group; groups need a host entry",
            )));
        }
    }
    if let Some(Reference::DeviceKernel { small, .. } | Reference::DeviceFunction { small, .. }) =
        &case.reference
    {
        for data in small {
            let within = |f: Fault| f.while_doing(format_args!("small data set `{}`", data.name));
            check_data_set(data).map_err(within)?;
        }
    }
    if let Some(Reference::DeviceKernel { small, .. }) = &case.reference {
        for data in case.data_sets.iter().chain(small) {
            if data.reference_launch.is_none() || data.groups.len() != 1 {
                return Err(bad_case(format!(
                    "data set `{}`: a reference kernel needs a launch shape and one group",
                    data.name
                )));
            }
        }
    }
    Ok(())
}

fn check_data_set(data: &Case) -> Outcome<()> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-.=+,".contains(c);
    if data.name.is_empty() || !data.name.chars().all(plain) {
        return Err(bad_case("the name may only contain letters, digits and `_-.=+,`"));
    }
    let first = data.groups.first().ok_or_else(|| bad_case("no group is given"))?;
    for (g, group) in data.groups.iter().enumerate() {
        if group.sizes.len() != data.vars.len() {
            let (sizes, vars) = (group.sizes.len(), data.vars.len());
            return Err(bad_case(format!("group {g} has {sizes} sizes for {vars} variables")));
        }
        let kind = |arg: &Arg| (arg.name.clone(), arg.dtype, arg.role, arg.dims.len());
        if group.args.iter().map(kind).ne(first.args.iter().map(kind)) {
            return Err(bad_case(format!("the arguments of group {g} are not those of group 0")));
        }
        for arg in &group.args {
            check_arg(arg)?;
        }
    }
    Ok(())
}

fn check_arg(arg: &Arg) -> Outcome<()> {
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

    /// `c[n] = a[n] + b[n]` as a Case.
    pub(crate) fn vecadd(n: u64) -> RunnerInput {
        let text = format!(
            r#"{{"abi":1,"kernel":"vecadd","entry":{{"device":{{"module":"k.cubin","function":"vecadd"}}}},
            "data_sets":[{{"name":"n={n}","vars":["n"],"groups":[{{"sizes":[{n}],"args":[
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
        let mut case = vecadd(4);
        change(&mut case);
        check(&case).unwrap_err().0.text
    }

    #[test]
    fn a_plain_case_is_accepted() {
        check(&vecadd(4)).unwrap();
    }

    #[test]
    fn contradictions_are_refused_with_the_place() {
        assert!(refusal(|c| c.data_sets.clear()).contains("no data set"));
        assert!(refusal(|c| c.data_sets[0].launch = None).contains("`n=4`"));
        assert!(refusal(|c| c.data_sets[0].name = "a/b".into()).contains("letters"));
        assert!(refusal(|c| c.data_sets.push(c.data_sets[0].clone())).contains("two data sets"));
        assert!(refusal(|c| c.data_sets[0].groups[0].sizes.clear()).contains("0 sizes for 1"));
        assert!(refusal(|c| c.data_sets[0].groups[0].args[3].value = None).contains("no value"));
        assert!(
            refusal(|c| c.data_sets[0].groups[0].args[0].dims = vec![u64::MAX; 2])
                .contains("`a` is too large")
        );
        let twice = |c: &mut RunnerInput| {
            let group = c.data_sets[0].groups[0].clone();
            c.data_sets[0].groups.push(group);
        };
        assert!(refusal(twice).contains("host entry"));
    }

    #[test]
    fn another_version_is_named_even_when_nothing_else_can_be_read() {
        let file = std::env::temp_dir().join(format!("rgpu-runner-v9-{}", std::process::id()));
        std::fs::write(&file, r#"{"abi":9,"new":true}"#).unwrap();
        let fault = read(&file).unwrap_err();
        std::fs::remove_file(&file).unwrap();
        assert!(fault.0.text.contains("case version 9"), "{}", fault.0.text);
    }
}
