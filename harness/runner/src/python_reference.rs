//! Calls a reference in Python, in a process of its own for each call. Arguments and results go
//! through files in a folder that is removed afterwards.

use crate::fault::{Fault, Result};
use crate::host_case::HostArg;
use crate::host_memory::HostBuffer;
use rgpu_case::{Case, ErrorClass, HostFunction, Role};
use serde_json::{Value, json};
use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The program that calls the function.
const CALLER: &str = include_str!("python_reference.py");

/// How much of what a failed call printed is searched for its reason.
const LOG_BYTES: u64 = 8 << 10;

/// A function of a Python file.
pub(crate) struct PythonReference {
    file: PathBuf,
    function: String,
    /// Where the folders of calls are made.
    folder: PathBuf,
}

impl PythonReference {
    pub(crate) fn new(function: &HostFunction, folder: &Path) -> PythonReference {
        PythonReference {
            file: folder.join(&function.library),
            function: function.function.clone(),
            folder: folder.to_owned(),
        }
    }

    /// Calls the function and puts its results into the outputs of `buffers`. Returns its time in
    /// nanoseconds, without the start of Python.
    pub(crate) fn run(
        &self,
        case: &Case,
        args: &[HostArg<'_>],
        buffers: &mut [Option<HostBuffer>],
    ) -> Result<f64> {
        let folder = self.folder.join(format!("reference-{}", std::process::id()));
        let unusable = |e: std::io::Error| {
            let text = format!("the reference needs the folder `{}`: {e}", folder.display());
            Fault::new(ErrorClass::Reference, text)
        };
        fs::create_dir_all(&folder).map_err(unusable)?;
        let result = self.run_in(&folder, case, args, buffers);
        let _ = fs::remove_dir_all(&folder);
        result.map_err(|e| match e {
            CallError::Files(e) => unusable(e),
            CallError::Failed(fault) => fault,
        })
    }

    fn run_in(
        &self,
        folder: &Path,
        case: &Case,
        args: &[HostArg<'_>],
        buffers: &mut [Option<HostBuffer>],
    ) -> std::result::Result<f64, CallError> {
        let mut groups: Vec<Value> =
            case.groups.iter().map(|g| json!({"sizes": g.sizes, "args": []})).collect();
        for (at, (arg, buffer)) in args.iter().zip(buffers.iter()).enumerate() {
            let (data, result) =
                (folder.join(format!("{at}.in")), folder.join(format!("{at}.out")));
            if let Some(buffer) = buffer {
                fs::write(&data, buffer.bytes())?;
            }
            let described = json!({
                "name": arg.spec.name, "dtype": arg.spec.dtype, "dims": arg.spec.dims,
                "role": arg.spec.role, "value": arg.spec.value, "data": data, "result": result,
            });
            if let Some(Value::Array(list)) = groups.get_mut(arg.group).map(|g| &mut g["args"]) {
                list.push(described);
            }
        }
        let (call, time) = (folder.join("call.json"), folder.join("time"));
        let text = json!({
            "file": self.file, "function": self.function, "vars": case.vars, "groups": groups,
            "time": time,
        });
        fs::write(&call, text.to_string())?;
        self.call(folder, &call)?;
        for (at, (arg, buffer)) in args.iter().zip(buffers.iter_mut()).enumerate() {
            if let (Role::Out | Role::InOut, Some(buffer)) = (arg.spec.role, buffer) {
                File::open(folder.join(format!("{at}.out")))?.read_exact(buffer.bytes_mut())?;
            }
        }
        Ok(fs::read_to_string(time)?.trim().parse().unwrap_or(0.0))
    }

    fn call(&self, folder: &Path, call: &Path) -> std::result::Result<(), CallError> {
        let mut log = File::options()
            .create(true)
            .truncate(true)
            .read(true)
            .write(true)
            .open(folder.join("log"))?;
        let status = Command::new("python3")
            .args(["-c", CALLER])
            .arg(call)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log.try_clone()?)
            .status();
        let failed = |text: String| {
            let shown = format!("the reference `{}`: {text}", self.function);
            Err(CallError::Failed(Fault::new(ErrorClass::Reference, shown)))
        };
        let status = match status {
            Ok(status) => status,
            Err(e) => return failed(format!("python3 does not start: {e}")),
        };
        if status.success() {
            return Ok(());
        }
        let end = log.seek(SeekFrom::End(0))?;
        log.seek(SeekFrom::Start(end.saturating_sub(LOG_BYTES)))?;
        let mut tail = Vec::new();
        log.read_to_end(&mut tail)?;
        let tail = String::from_utf8_lossy(&tail);
        eprintln!("{}", tail.trim_end());
        // The last line of a traceback is the exception.
        let last = tail.lines().rev().find(|line| !line.trim().is_empty());
        failed(last.map_or_else(|| status.to_string(), |line| line.trim().to_owned()))
    }
}

enum CallError {
    /// A file of the call cannot be written or read.
    Files(std::io::Error),
    Failed(Fault),
}

impl From<std::io::Error> for CallError {
    fn from(error: std::io::Error) -> CallError {
        CallError::Files(error)
    }
}
