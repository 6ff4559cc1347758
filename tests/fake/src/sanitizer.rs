//! Imitates Compute Sanitizer 2025.3.1.

use std::fs;

use crate::ImitationError;
use crate::host::Host;
use crate::misbehaviour;
use crate::options::Options;
use crate::program;
use crate::recording::{Recording, host_text};
use crate::runner;

const RECORDED: &str = "sanitizer/2025.3.1";

pub(crate) fn play(host: &Host, words: &[String]) -> Result<u8, ImitationError> {
    let options = Options::read(words, &["--xml", "--version", "--help"]);
    if options.has(&["--version"]) {
        print!("{}", host_text("compute-sanitizer-version.txt")?);
        return Ok(0);
    }
    let tool = options.value(&["--tool"]).unwrap_or("memcheck");
    let kernel = program::kernel(options.program)?;
    let is = |word| misbehaviour::is(host, "compute-sanitizer", words, word);
    if is("no-summary") {
        // The tool ended before it printed anything else.
        println!("========= COMPUTE-SANITIZER");
        return Ok(program::run(options.program, &[]).unwrap_or(1));
    }
    if is("program-crashes") {
        println!("========= COMPUTE-SANITIZER");
        std::process::abort();
    }
    if is("device-not-supported") {
        let aborted = Recording::open("sanitizer", "synthetic/aborted")?;
        print!("{}", aborted.text("device.log.txt"));
        return Ok(1);
    }
    let found = Recording::find(RECORDED, &format!("{tool}-{kernel}-xml"))?;
    let recorded = match found {
        Some(recorded) => recorded,
        None => Recording::open(RECORDED, &format!("{tool}-clean-xml"))?,
    };
    // A kernel that crashes under the tool ends its program as well.
    let fault: &[(&str, &str)] =
        if recorded.exit == 0 { &[] } else { &[(runner::FAULT, "illegal-access")] };
    let own = |line: &str| line.starts_with("=========");
    let text = recorded.text("stdout.txt");
    let status = match options.value(&["--log-file"]) {
        Some(log) => {
            let lines: Vec<&str> = text.lines().filter(|line| own(line)).collect();
            fs::write(log, lines.join("\n") + "\n")?;
            program::run(options.program, fault)
        }
        None => program::replay(&text, own, || program::run(options.program, fault))?,
    };
    if let (Some(save), Some(xml)) = (options.value(&["--save"]), recorded.bytes("findings.xml")) {
        fs::write(save, xml)?;
    }
    Ok(status.unwrap_or(1))
}
