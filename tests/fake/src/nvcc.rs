//! Imitates nvcc 13.0. Its cubins come from recorded reports; PTX and libraries are synthetic.

use std::fs;
use std::path::Path;

use rgpu_format::ncu_rep::{NcuReadLimits, NcuReport};

use crate::ImitationError;
use crate::host::Host;
use crate::recording::{Recording, fixtures, host_text};

/// Test sources contain a line with this word to say how their kernel behaves:
/// `// rgpu-fake: time 0.8` has 0.8 times the usual time, `wrong` computes wrong results.
/// `once`: only in the host's first comparison; `noise 0.01`: speed-ups vary by so much.
pub(crate) const MARK: &str = "rgpu-fake:";

pub(crate) fn play(_: &Host, words: &[String]) -> Result<u8, ImitationError> {
    if words.iter().any(|word| word == "--version" || word == "-V") {
        print!("{}", host_text("nvcc-version.txt")?);
        return Ok(0);
    }
    let after = |names: &[&str]| {
        let at = words.iter().position(|word| names.contains(&word.as_str()))?;
        words.get(at + 1)
    };
    let output = after(&["-o", "--output-file"]).ok_or("no output is named")?;
    let is_source = |word: &&String| word.ends_with(".cu") || word.ends_with(".c");
    let source = words.iter().find(is_source).ok_or("no source is named")?;
    let Ok(text) = fs::read_to_string(source) else {
        eprintln!("nvcc fatal   : Could not open input file '{source}'");
        return Ok(1);
    };
    // Test sources contain this word to mark code that must not compile.
    if let Some(line) = text.lines().position(|line| line.contains("does_not_compile")) {
        eprintln!(
            "{source}({}): error: identifier \"does_not_compile\" is undefined\n\n1 error detected in the compilation of \"{source}\".",
            line + 1
        );
        return Ok(2);
    }
    // The same for an architecture that this nvcc does not know.
    if text.contains("unknown_arch") {
        let arch = words.iter().find_map(|word| word.strip_prefix("-arch=")).unwrap_or_default();
        eprintln!("nvcc fatal   : Unsupported gpu architecture '{arch}'");
        return Ok(1);
    }
    let stem = Path::new(source).file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let kept = |extension: &str| Path::new(output).with_file_name(format!("{stem}.{extension}"));
    let has_kernels = has_kernels(&text);
    if words.iter().any(|word| word == "-ptx") {
        fs::write(output, ptx(&stem, has_kernels))?;
        return Ok(0);
    }
    let mut code = if has_kernels { cubin(&stem)? } else { cubin_without_kernels() };
    // The played runner reads the line from there.
    if let Some(line) = text.lines().find(|line| line.contains(MARK)) {
        code.extend_from_slice(format!("\n{line}\n").as_bytes());
    }
    fs::write(kept("cubin"), code)?;
    if words.iter().any(|word| word == "--keep") {
        fs::write(kept("ptx"), ptx(&stem, has_kernels))?;
    }
    if words.iter().any(|word| word == "-shared") {
        fs::write(output, b"synthetic: never loaded")?;
    }
    Ok(0)
}

fn ptx(stem: &str, has_kernels: bool) -> String {
    let head = "// synthetic\n.version 9.0\n.target sm_90a\n.address_size 64\n";
    if has_kernels {
        format!("{head}.visible .entry {stem}()\n{{\n\tret;\n}}\n")
    } else {
        head.to_owned()
    }
}

/// Whether code comes of the source. nvcc compiles a template only where something instantiates it.
fn has_kernels(text: &str) -> bool {
    let mut kernels = text.lines().filter(|line| line.contains("__global__")).peekable();
    let is_uninstantiated = |line: &str| line.trim_start().starts_with("template <");
    kernels.peek().is_none() || !kernels.all(is_uninstantiated)
}

/// A synthetic cubin for sm_90 without any section but the table of names.
fn cubin_without_kernels() -> Vec<u8> {
    let half = u16::to_le_bytes;
    let (word, long) = (u32::to_le_bytes, u64::to_le_bytes);
    let names = b"\0.shstrtab\0";
    let table = 64 + names.len() as u64;
    let mut bytes = b"\x7fELF\x02\x01\x01\x33\x07\0\0\0\0\0\0\0".to_vec();
    // Type, machine, version, entry, program headers, section headers, flags (for sm_90a).
    bytes.extend([half(2), half(190)].concat());
    bytes.extend(word(1));
    bytes.extend([long(0), long(0), long(table)].concat());
    bytes.extend(word(0x005a_0d5a));
    bytes.extend([half(64), half(0), half(0), half(64), half(2), half(1)].concat());
    bytes.extend(names);
    bytes.extend([0; 64]);
    bytes.extend([word(1), word(3)].concat());
    bytes.extend([long(0), long(0), long(64), long(names.len() as u64)].concat());
    bytes.extend([word(0), word(0)].concat());
    bytes.extend([long(1), long(0)].concat());
    bytes
}

/// The cubin of a kernel from its recorded report; kernels without one get some other cubin.
fn cubin(stem: &str) -> Result<Vec<u8>, ImitationError> {
    let name = match stem {
        "nested_regions" => "regions".to_owned(),
        _ => format!("full-{}", stem.replace('_', "-")),
    };
    let Some(recorded) = Recording::find("ncu/2025.3.1", &name)? else {
        return Ok(fs::read(fixtures().join("cubin/13.5/facts/sm_90a.cubin"))?);
    };
    let bytes = recorded.ncu_report()?.ok_or("the recording has no report")?;
    let (report, _) = NcuReport::read(&bytes, &NcuReadLimits::default())?;
    let cubin = report.sources().iter().map(|source| source.cubin.to_vec()).find(|c| !c.is_empty());
    Ok(cubin.ok_or("the report holds no cubin")?)
}
