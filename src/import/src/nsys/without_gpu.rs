//! What a trace without GPU work has, and why it may have none.

use std::collections::BTreeMap;

use super::rows::TraceRows;
use super::trace::Trace;
use crate::sound_times::LeftOut;
use rgpu_model::number_form::by_number;

/// The calls of a trace, as far as they explain it.
#[derive(Default)]
struct SeenCalls {
    all: u64,
    launches: u64,
    graph_launches: u64,
    /// Number of calls that returned each error.
    errors: BTreeMap<i64, u64>,
}

/// A sentence with what the trace has, and one with the likely reason.
pub(super) fn describe<R: TraceRows>(
    file: &R,
    trace: &Trace,
    left_out: &LeftOut,
) -> Result<String, R::Error> {
    let mut calls = SeenCalls::default();
    file.api_calls(|call| {
        calls.all += 1;
        let name = call.name.and_then(|id| trace.strings.get(id)).unwrap_or_default();
        calls.graph_launches += u64::from(name.contains("GraphLaunch"));
        calls.launches += u64::from(name.contains("LaunchKernel") || name.contains("LaunchGrid"));
        if let Some(error) = call.return_value.filter(|error| is_error(*error)) {
            *calls.errors.entry(error).or_default() += 1;
        }
    })?;
    let ranges = trace.ranges.len() as u64;
    let mut contents = Vec::new();
    let mut add = |count: u64, one: &'static str, many: &'static str| {
        if count > 0 {
            contents.push(format!("{} {}", grouped(count), by_number(count, one, many)));
        }
    };
    add(calls.all, "CUDA call", "CUDA calls");
    add(ranges, "NVTX range", "NVTX ranges");
    for (what, count) in file.other_rows() {
        add(count, what, what);
    }
    let contents = match contents.split_last() {
        None => "nothing else".to_owned(),
        Some((only, [])) => only.clone(),
        Some((last, others)) => format!("{} and {last}", others.join(", ")),
    };
    Ok(format!("it has {contents}. {}", reason(&calls, left_out)))
}

/// Whether a call's result is an error. 600 (`cudaErrorNotReady`) only says that work still runs.
fn is_error(code: i64) -> bool {
    const NOT_READY: i64 = 600;
    code != 0 && code != NOT_READY
}

/// Codes of CUDA after which a context and its records are lost.
fn device_fault(code: i64) -> Option<&'static str> {
    Some(match code {
        700 => "an illegal address",
        702 => "a kernel that ran too long",
        710 => "a failed assertion",
        714 => "a hardware stack error",
        715 => "an illegal instruction",
        716 => "a misaligned address",
        717 => "an invalid address space",
        718 => "an invalid program counter",
        719 => "a failed launch",
        _ => return None,
    })
}

fn reason(calls: &SeenCalls, left_out: &LeftOut) -> String {
    let lost = left_out.gpu_work();
    if lost > 0 {
        return format!(
            "None of its {} {} of GPU work has times that can be",
            grouped(lost),
            by_number(lost, "piece", "pieces")
        );
    }
    let fault = calls.errors.keys().find_map(|code| Some((code, device_fault(*code)?)));
    if let Some((code, fault)) = fault {
        return format!(
            "A call returned error {code}, {fault}: after a fault on the GPU, the records of its \
             work are lost; compute-sanitizer finds the fault"
        );
    }
    if let Some((code, count)) = calls.errors.iter().max_by_key(|(_, count)| **count) {
        return format!(
            "{} {} returned error {code}, so the program may have used no GPU",
            grouped(*count),
            by_number(*count, "call", "calls")
        );
    }
    if calls.graph_launches > 0 && calls.launches == 0 {
        return "Its work is launched by CUDA graphs, whose nodes were not traced: \
                `--cuda-graph-trace=node` traces them"
            .to_owned();
    }
    if calls.launches > 0 {
        return format!(
            "{} {} a kernel and none has a record: the program may have ended by a signal or \
             `_exit` before CUPTI wrote its buffers, another profiler may have used CUPTI, or \
             the user may not be permitted to trace the GPU",
            grouped(calls.launches),
            by_number(calls.launches, "call launches", "calls launch")
        );
    }
    if calls.all > 0 {
        return "No call launches a kernel: the recording may have ended before, or a child \
                process launches them (`--trace-fork-before-exec=true` follows it)"
            .to_owned();
    }
    "No CUDA call was traced: `--trace=cuda` may be missing, the program may not use CUDA, or a \
     process that nsys did not follow does (a fork, or a server that ran before)"
        .to_owned()
}

/// A number with commas between thousands.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_commas() {
        let texts = [0, 999, 1000, 33_482, 1_234_567].map(grouped);
        assert_eq!(texts, ["0", "999", "1,000", "33,482", "1,234,567"]);
    }

    #[test]
    fn the_likely_reason_is_the_most_telling_one() {
        let none = LeftOut::default();
        let with = |launches, graph_launches, errors: &[(i64, u64)]| {
            let errors = errors.iter().copied().collect();
            reason(&SeenCalls { all: 9, launches, graph_launches, errors }, &none)
        };
        assert!(with(3, 0, &[(100, 5), (700, 1)]).contains("error 700, an illegal address"));
        assert!(with(0, 0, &[(100, 5)]).contains("5 calls returned error 100"));
        assert!(with(0, 4, &[]).contains("--cuda-graph-trace=node"));
        assert!(with(1, 0, &[]).contains("1 call launches a kernel"));
        assert!(with(0, 0, &[]).contains("No call launches"));
        assert!(reason(&SeenCalls::default(), &none).contains("--trace=cuda"));
    }
}
