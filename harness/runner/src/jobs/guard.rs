//! `guard`: launches with canaries around buffers and poisoned outputs. The last rung of the
//! sanitizer.
//!
//! It makes three launches on the same inputs: the first and third with one set of canaries and
//! poison, the second with another. A changed canary is a write out of bounds. An output that
//! depends on the poison or the canaries is a read of memory that is not the kernel's. A difference
//! between the first and third launch beyond the tolerance is a race. The absence of findings
//! proves nothing.

use super::Session;
use super::session::{DeviceCase, LaunchTarget, PreparedTarget};
use crate::compare::OutputPair;
use crate::cuda::ExpectedFailures;
use crate::fault::{Fault, Result};
use crate::host_memory::HostBuffer;
use crate::poison::Poison;
use crate::report_writer::print_progress;
use rgpu_case::{Case, ErrorClass, GuardFinding, GuardKind, GuardReport, Phase};

/// Bytes of canary on each side of a buffer.
const GUARD_BYTES: usize = 64 * 1024;

pub(crate) fn run(session: &Session<'_>) -> Result<()> {
    let target = session.load_own_target()?;
    let mut first = None;
    for case in &session.input.spec.cases {
        let report = guard(session, &target, case)?;
        for finding in &report.findings {
            let text = describe_finding(finding);
            print_progress!("guard {}: {text}", case.name);
            if first.is_none() {
                let mut fault = Fault::new(ErrorClass::GuardFound, text);
                fault.0.case = Some(case.name.clone());
                first = Some(fault);
            }
        }
        if report.findings.is_empty() {
            print_progress!("guard {}: no findings, which does not mean clean", case.name);
        }
        session.report.update_case(&case.name, |entry| entry.guard = Some(report));
    }
    first.map_or(Ok(()), Err)
}

fn guard(session: &Session<'_>, target: &LaunchTarget<'_>, case: &Case) -> Result<GuardReport> {
    let setup = session.report.enter_phase(Phase::Setup, Some(case))?;
    let host = session.generate_case(case)?;
    let device = DeviceCase::new(&session.gpu, &host, GUARD_BYTES)?;
    device.fill_and_poison(Poison::First)?;
    let (prepared, prepare_ns) =
        target.prepare(&session.gpu, &device, ExpectedFailures::Forbidden)?;
    session.report.update_case(&case.name, |report| report.prepare_ns = prepare_ns);
    drop(setup);
    let _ranges = session.report.enter_phase(Phase::Verify, Some(case))?;
    let mut findings = Vec::new();
    let mut runs = Vec::new();
    for poison in [Poison::First, Poison::Second, Poison::First] {
        runs.push(guarded_launch(session, &device, &prepared, poison, &mut findings)?);
    }
    for (i, arg) in host.args.iter().enumerate() {
        let [Some(first), Some(second), Some(third)] = [&runs[0][i], &runs[1][i], &runs[2][i]]
        else {
            continue;
        };
        let between = |second: &'_ HostBuffer| {
            let results = OutputPair {
                arg: arg.spec,
                group: arg.group,
                left: first.bytes(),
                right: second.bytes(),
            };
            (results.unwritten_elements(), results.differing(&session.input.spec.tolerance))
        };
        let ((_, _), repeated) = between(third);
        let (unwritten, stray) = between(second);
        let stray = if repeated.0 > 0 { (0, None) } else { stray };
        for (kind, (count, index)) in [
            (GuardKind::Unwritten, unwritten),
            (GuardKind::NotRepeatable, repeated),
            (GuardKind::ReadsStray, stray),
        ] {
            if let Some(index) = index {
                let offset = (index * arg.spec.dtype.bits() as usize / 8) as i64;
                push(&mut findings, (kind, arg.spec.name.clone(), arg.group, offset, count));
            }
        }
    }
    Ok(GuardReport { launches: 3, findings })
}

fn guarded_launch(
    session: &Session<'_>,
    device: &DeviceCase<'_>,
    prepared: &PreparedTarget<'_>,
    poison: Poison,
    findings: &mut Vec<GuardFinding>,
) -> Result<Vec<Option<HostBuffer>>> {
    let canary = canary(poison);
    device.fill_and_poison(poison)?;
    for (_, buffer) in device.tensors() {
        buffer.write_guards(&canary)?;
    }
    prepared.launch()?;
    session.gpu.synchronize()?;
    for (i, buffer) in device.tensors() {
        let arg = &device.host.args[i];
        let [before, after] = buffer.read_guards()?;
        let mut add = |kind, offset: i64, count| {
            push(findings, (kind, arg.spec.name.clone(), arg.group, offset, count));
        };
        if let Some((offset, count)) = difference(&before, &canary) {
            add(GuardKind::WriteBefore, offset as i64 - GUARD_BYTES as i64, count);
        }
        if let Some((offset, count)) = difference(&after, &canary) {
            add(GuardKind::WriteAfter, (buffer.size() + offset) as i64, count);
        }
    }
    for (i, offset, count) in device.changed_inputs()? {
        let arg = &device.host.args[i];
        let name = arg.spec.name.clone();
        push(findings, (GuardKind::InputWritten, name, arg.group, offset as i64, count as u64));
    }
    device.download_outputs()
}

/// Adds a finding, unless an earlier launch reported the same kind for this argument.
fn push(
    findings: &mut Vec<GuardFinding>,
    (kind, arg, group, offset, count): (GuardKind, String, usize, i64, u64),
) {
    let known = findings.iter().any(|f| f.kind == kind && f.arg == arg && f.group == group);
    if !known {
        findings.push(GuardFinding { kind, arg, group, offset, count });
    }
}

/// The index of the first differing byte, and the number of differing bytes.
fn difference(left: &[u8], right: &[u8]) -> Option<(usize, u64)> {
    let mut differing = left.iter().zip(right).enumerate().filter(|(_, (l, r))| l != r);
    let (first, _) = differing.next()?;
    Some((first, 1 + differing.count() as u64))
}

/// A pattern whose bytes differ from their neighbours, and everywhere between the two poisons.
fn canary(poison: Poison) -> Vec<u8> {
    let base = match poison {
        Poison::First => 0xc5u8,
        Poison::Second => 0x3a,
    };
    (0..GUARD_BYTES).map(|i| base ^ (i as u8).wrapping_mul(31)).collect()
}

fn describe_finding(finding: &GuardFinding) -> String {
    let GuardFinding { kind, arg, group, offset, count } = finding;
    let place = if *group > 0 { format!("`{arg}` of group {group}") } else { format!("`{arg}`") };
    let elements = if *count == 1 { "element" } else { "elements" };
    // The ending of a verb about these elements.
    let s = if *count == 1 { "s" } else { "" };
    match kind {
        GuardKind::WriteBefore => {
            format!("write before {place}: {count} bytes, the first at byte {offset}")
        }
        GuardKind::WriteAfter => {
            format!("write after {place}: {count} bytes, the first at byte {offset}")
        }
        GuardKind::Unwritten => {
            let were = if *count == 1 { "was" } else { "were" };
            format!("{count} {elements} of {place} {were} never written")
        }
        GuardKind::InputWritten => {
            format!("input {place} was written: {count} bytes, the first at byte {offset}")
        }
        GuardKind::NotRepeatable => format!(
            "{count} {elements} of {place} differ{s} between two launches on the same memory, the first \
             at byte {offset} (a race, most often)"
        ),
        GuardKind::ReadsStray => format!(
            "{count} {elements} of {place} depend{s} on memory that the kernel may not read \
             (uninitialised, or outside an argument), the first at byte {offset}"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_two_canaries_differ_in_every_byte() {
        let (first, second) = (canary(Poison::First), canary(Poison::Second));
        assert_eq!(difference(&first, &second), Some((0, GUARD_BYTES as u64)));
    }

    #[test]
    fn differences_give_the_first_byte_and_the_count() {
        assert_eq!(difference(&[1, 2, 3, 4], &[1, 0, 3, 0]), Some((1, 2)));
        assert_eq!(difference(&[1], &[1]), None);
    }
}
