//! The results of ncu's own rules.

use std::borrow::Cow;

use super::notes::Notes;
use super::wire::Message;

/// `RuleResult`: 1 identifier, 2 name, 3 body of items, 4 section, 5 source markers.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Rule {
    /// NVIDIA's identifier, such as `SOLBottleneck`.
    pub identifier: String,
    /// The name that ncu shows.
    pub name: String,
    /// The section it belongs to.
    pub section: String,
    /// What the rule reports, in the order of the report.
    pub messages: Vec<RuleMessage>,
    /// The metrics that the rule evaluated.
    pub focus: Vec<FocusMetric>,
    /// The estimated gain; `None` if the rule gives none.
    pub speedup: Option<Speedup>,
    /// The code positions that the rule refers to.
    pub markers: Vec<SourceMarker>,
}

/// One message of a rule, as ncu shows it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RuleMessage {
    /// The text, with the link markup (`@section:…@`, `@url:…@`) reduced to its label.
    pub text: String,
    /// Whether it informs, warns or suggests an optimisation.
    pub kind: MessageKind,
    /// Title; may be empty.
    pub title: String,
}

/// How ncu rates a message of a rule.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum MessageKind {
    /// Number 0: information, no judgement.
    #[default]
    None,
    /// The rule found no problem.
    Ok,
    /// Number 2: a warning.
    Warning,
    /// The rule could not be applied.
    Error,
    /// Number 4: a possible optimisation.
    Optimization,
    /// A kind that this reader does not know.
    Other(u64),
}

impl MessageKind {
    fn new(number: u64) -> Self {
        match number {
            0 => MessageKind::None,
            1 => MessageKind::Ok,
            2 => MessageKind::Warning,
            3 => MessageKind::Error,
            4 => MessageKind::Optimization,
            other => MessageKind::Other(other),
        }
    }
}

/// A metric that a rule evaluated: 1 the message's number, 2 name, 3 value, 4 severity, 5 text.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct FocusMetric {
    /// The metric's name, as the rule gives it.
    pub name: String,
    /// The value that the rule used.
    pub value: f64,
    /// 0 default, 1 low, 2 high.
    pub severity: u64,
    /// Why the metric matters, or its target value.
    pub info: String,
}

/// The gain that NVIDIA's rule estimates.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Speedup {
    /// The scope of the gain.
    pub scope: SpeedupScope,
    /// The gain in percent.
    pub percent: f64,
}

/// The scope of an estimated gain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpeedupScope {
    /// The part of the kernel that the rule evaluates.
    Local,
    /// The whole kernel, with the parts that the rule does not evaluate.
    Global,
    /// The file does not state it, or has a scope that this reader does not know.
    Unknown,
}

/// A code position: 1 kind, 2 line, 3 address (absolute, as in the source counters), 4 text, 5
/// type, 6 file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SourceMarker {
    /// 0: an instruction, 1: a source line.
    pub kind: u64,
    /// The line number; for source lines.
    pub line: u64,
    /// The address; for instructions.
    pub address: u64,
    /// The rule's message for this position.
    pub text: String,
    /// The file; for source lines.
    pub file: String,
}

impl Rule {
    pub(super) fn read(message: Message<'_>, notes: &mut Notes) -> Self {
        let mut rule = Rule::default();
        notes.walk(message, "rule result", |notes, field| match field.number {
            1 => field.text().map(|text| rule.identifier = text.into_owned()),
            2 => field.text().map(|text| rule.name = text.into_owned()),
            3 => field.message().map(|body| {
                notes.walk(body, "rule body", |notes, field| match field.number {
                    1 => field.message().map(|item| rule.add_item(item, notes)),
                    _ => None,
                });
            }),
            4 => field.text().map(|text| rule.section = text.into_owned()),
            5 => field.message().map(|marker| rule.markers.push(SourceMarker::read(marker, notes))),
            _ => None,
        });
        rule
    }

    /// Items: 1 message, 2 to 6 tables and charts, 7 and 9 not identified, 8 focus metrics, 10
    /// speedup, 11 and 12 source markers and tables.
    fn add_item(&mut self, item: Message<'_>, notes: &mut Notes) {
        notes.walk(item, "rule item", |notes, field| match field.number {
            1 => {
                field.message().map(|message| self.messages.push(RuleMessage::read(message, notes)))
            }
            8 => field.message().map(|metric| self.focus.push(FocusMetric::read(metric, notes))),
            10 => field.message().map(|message| self.speedup = Some(Speedup::read(message, notes))),
            2..=12 => field.message().map(|_| ()),
            _ => None,
        });
    }
}

impl RuleMessage {
    fn read(message: Message<'_>, notes: &mut Notes) -> Self {
        let mut read = RuleMessage::default();
        notes.walk(message, "rule message", |_, field| match field.number {
            1 => field.text().map(|text| read.text = plain_text(&text)),
            2 => field.varint().map(|kind| read.kind = MessageKind::new(kind)),
            3 => field.varint().map(|_| ()),
            4 => field.text().map(|text| read.title = text.into_owned()),
            _ => None,
        });
        read
    }
}

impl FocusMetric {
    fn read(message: Message<'_>, notes: &mut Notes) -> Self {
        let mut metric = FocusMetric::default();
        notes.walk(message, "focus metric", |_, field| match field.number {
            1 => field.varint().map(|_| ()),
            2 => field.text().map(|text| metric.name = text.into_owned()),
            3 => field.double().map(|value| metric.value = value),
            4 => field.varint().map(|severity| metric.severity = severity),
            5 => field.text().map(|text| metric.info = text.into_owned()),
            _ => None,
        });
        metric
    }
}

impl Speedup {
    fn read(message: Message<'_>, notes: &mut Notes) -> Self {
        let mut speedup = Speedup { scope: SpeedupScope::Unknown, percent: 0.0 };
        notes.walk(message, "rule speedup", |_, field| match field.number {
            1 => field.varint().map(|scope| {
                speedup.scope = match scope {
                    1 => SpeedupScope::Local,
                    2 => SpeedupScope::Global,
                    _ => SpeedupScope::Unknown,
                };
            }),
            2 => field.double().or(field.float().map(f64::from)).map(|v| speedup.percent = v),
            _ => None,
        });
        speedup
    }
}

impl SourceMarker {
    fn read(message: Message<'_>, notes: &mut Notes) -> Self {
        let mut marker = SourceMarker::default();
        notes.walk(message, "source marker", |_, field| match field.number {
            1 => field.varint().map(|kind| marker.kind = kind),
            2 => field.varint().map(|line| marker.line = line),
            3 => field.varint().map(|address| marker.address = address),
            4 => field.text().map(|text| marker.text = plain_text(&text)),
            5 => field.varint().map(|_| ()),
            6 => field.text().map(|text| marker.file = text.into_owned()),
            _ => None,
        });
        marker
    }
}

/// Replaces `@section:SchedulerStats:Scheduler Statistics@` and `@url:label:https://…@` by their
/// labels; any other `@` stays.
fn plain_text(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('@') {
        let (before, marked) = rest.split_at(at);
        plain.push_str(before);
        match link(marked) {
            Some((label, after)) => {
                plain.push_str(&label);
                rest = after;
            }
            None => {
                plain.push('@');
                rest = marked.strip_prefix('@').unwrap_or_default();
            }
        }
    }
    plain.push_str(rest);
    plain
}

/// The label of the markup at the start of `text`, and the text after it.
fn link(text: &str) -> Option<(Cow<'_, str>, &str)> {
    let (inside, after) = text.strip_prefix('@')?.split_once('@')?;
    let label = if let Some(rest) = inside.strip_prefix("section:") {
        rest.split_once(':')?.1
    } else {
        inside.strip_prefix("url:")?.split_once(':')?.0
    };
    Some((Cow::Borrowed(label), after))
}

#[cfg(test)]
mod tests {
    use super::plain_text;

    #[test]
    fn link_markup_becomes_its_label_and_other_signs_stay() {
        let text = "See @section:SchedulerStats:Scheduler Statistics@ and the \
                    @url:guide:https://docs.example/a:b@, mail a@b, @unknown:x@ @";
        assert_eq!(
            plain_text(text),
            "See Scheduler Statistics and the guide, mail a@b, @unknown:x@ @"
        );
    }
}
