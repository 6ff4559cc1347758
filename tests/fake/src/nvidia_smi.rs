//! Imitates nvidia-smi of driver 580.159.04.

use std::io::Write;

use crate::ImitationError;
use crate::host::Host;
use crate::misbehaviour;
use crate::options::Options;
use crate::recording::host_text;

const RECORDED_UUID: &str = "GPU-17e5a922-c253-121e-317d-f787dfc19245";

pub(crate) fn play(host: &Host, words: &[String]) -> Result<u8, ImitationError> {
    let options = Options::read(words, &["-L", "-q", "--version"]);
    if misbehaviour::is(host, "nvidia-smi", words, "no-devices") {
        println!("No devices were found");
        return Ok(6);
    }
    if options.has(&["--version"]) {
        let all = host_text("nvidia-smi-q.txt")?;
        let (driver, cuda) = (field(&all, "Driver Version"), field(&all, "CUDA Version"));
        println!(
            "NVIDIA-SMI version  : {driver}\nDRIVER version      : {driver}\nCUDA Version        : {cuda}"
        );
    } else if let Some(columns) = options.value(&["--query-gpu"]) {
        query(host, columns, options.value(&["--format"]).unwrap_or_default())?;
    } else if options.has(&["--query-compute-apps"]) {
        if misbehaviour::is(host, "nvidia-smi", words, "foreign-process") {
            println!("{}, 1, python3, 1024 MiB", host.uuid());
        }
    } else if let Some(change) = clock_change(words) {
        if misbehaviour::is(host, "nvidia-smi", words, "no-permission") {
            println!(
                "The current user does not have permission to change clocks for GPU 00000000:19:00.0.\n\
                 Terminating early due to previous errors."
            );
            return Ok(4);
        }
        let uuid = options.value(&["-i"]).unwrap_or_default();
        let path = host.folder.join("clocks");
        let mut log = std::fs::File::options().create(true).append(true).open(path)?;
        writeln!(log, "{change} {uuid}")?;
    } else if options.has(&["-L"]) {
        print!("{}", own_uuid(host, &host_text("nvidia-smi-L.txt")?));
    } else {
        print!("{}", own_uuid(host, &host_text("nvidia-smi-q.txt")?));
    }
    Ok(0)
}

/// The change of clocks that the arguments ask for. The file `clocks` of the host lists all.
fn clock_change(words: &[String]) -> Option<&str> {
    let is_change =
        |word: &&String| word.starts_with("--lock-gpu-clocks=") || *word == "--reset-gpu-clocks";
    words.iter().find(is_change).map(|word| word.trim_start_matches("--"))
}

/// Prints the requested columns of the recorded line.
fn query(host: &Host, columns: &str, format: &str) -> Result<(), ImitationError> {
    let recorded = host_text("nvidia-smi-query.csv")?;
    let mut lines = recorded.lines().map(|line| line.split(", ").collect::<Vec<_>>());
    let (Some(names), Some(values)) = (lines.next(), lines.next()) else {
        return Err("the recorded table is empty".into());
    };
    let all = host_text("nvidia-smi-q.txt")?;
    let memory_clock = all.split_once("Max Clocks").map(|(_, rest)| field(rest, "Memory"));
    if !format.contains("noheader") {
        println!("{}", columns.replace(',', ", "));
    }
    for index in 0..host.gpus() {
        line(host, index, columns, format, &names, &values, memory_clock)?;
    }
    Ok(())
}

/// The line of one GPU: the recorded one with this GPU's index and UUID.
fn line(
    host: &Host,
    index: u32,
    columns: &str,
    format: &str,
    names: &[&str],
    values: &[&str],
    memory_clock: Option<&str>,
) -> Result<(), ImitationError> {
    let index_text = index.to_string();
    let mut answer = Vec::new();
    for column in columns.split(',').map(str::trim) {
        let at = names.iter().position(|name| name.split(" [").next() == Some(column));
        let value = match (column, at) {
            ("index", _) => &index_text,
            ("clocks.max.mem" | "clocks.max.memory", _) => memory_clock.unwrap_or("[N/A]"),
            (_, Some(at)) => values.get(at).copied().unwrap_or("[N/A]"),
            (_, None) => return Err(format!("the column `{column}` was not recorded").into()),
        };
        let bare = format.contains("nounits");
        let value =
            if bare { value.trim_end_matches([' ', 'M', 'i', 'B', 'H', 'z', 'W']) } else { value };
        answer.push(value.to_owned());
    }
    println!("{}", answer.join(", ").replace(RECORDED_UUID, &host.uuid_of(index)));
    Ok(())
}

/// The value of the first line of the form `NAME : VALUE`.
fn field<'a>(text: &'a str, name: &str) -> &'a str {
    let line = text.lines().find(|line| line.trim_start().starts_with(name));
    line.and_then(|line| line.split_once(':')).map_or("", |(_, value)| value.trim())
}

fn own_uuid(host: &Host, text: &str) -> String {
    text.replace(RECORDED_UUID, &host.uuid())
}
