//! A compiled program of this machine: an ELF executable, as after `--` of `rgpu profile`.

use std::io::Read;
use std::path::Path;

use super::{Found, FoundProgram, KernelSource, UsualArguments};
use crate::kernel::{ProfileMode, name_of};
use rgpu_model::agent_files;

/// A compiled program.
pub(super) static EXECUTABLE: KernelSource = KernelSource {
    name: "a compiled program",
    read: |path| is_program(path).then(|| Ok(Found::Program(program(path)))),
};

fn program(path: &Path) -> FoundProgram {
    let typed = path.display().to_string();
    // Without a folder it would be a command of the host.
    let command = if typed.contains('/') { typed } else { format!("./{typed}") };
    FoundProgram {
        format: EXECUTABLE.name,
        name: name_of(path),
        path: path.to_owned(),
        command: vec![command],
        build: None,
        files: Vec::new(),
        cwd: String::new(),
        kernels: Vec::new(),
        kernel_filter: None,
        driver: None,
        is_rank: false,
        usual_arguments: UsualArguments::default(),
        mode: ProfileMode::Nsys,
        assumptions: Vec::new(),
    }
}

/// Whether a file is an ELF executable for a CPU: a cubin is one for a GPU, and a shared library
/// has no interpreter.
fn is_program(path: &Path) -> bool {
    const MACHINES: [u16; 2] = [62, 183];
    const EXECUTABLE: u16 = 2;
    const SHARED: u16 = 3;
    let mut head = [0_u8; 20];
    let read = agent_files::open(path).and_then(|mut file| file.read_exact(&mut head));
    if read.is_err() || !head.starts_with(b"\x7fELF\x02\x01") {
        return false;
    }
    let half = |at: usize| u16::from_le_bytes([head[at], head[at + 1]]);
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let is_library = name.contains(".so");
    MACHINES.contains(&half(18)) && matches!(half(16), EXECUTABLE | SHARED) && !is_library
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn executables_of_cpus_are_programs_and_cubins_are_not() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str, kind: u8, machine: u8| {
            let mut bytes = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0".to_vec();
            bytes.extend([kind, 0, machine, 0]);
            let path = folder.path().join(name);
            std::fs::write(&path, bytes).unwrap();
            path
        };
        assert!(is_program(&file("app", 3, 62)) && is_program(&file("arm", 2, 183)));
        assert!(!is_program(&file("k.cubin", 2, 190)) && !is_program(&file("libx.so.1", 3, 62)));
        assert!(!is_program(folder.path()) && !is_program(Path::new("/dev/null")));
        assert_eq!(program(Path::new("app")).command, ["./app"]);
    }
}
