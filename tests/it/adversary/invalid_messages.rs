//! Invalid variants of each message, made from its fields. Both directions of the protocol use
//! them.

use rgpu_protocol::frame::{self, FrameKind, MAX_BODY};
use serde_json::{Value, json};

/// Stands in texts for the folder that a case runs in; the agent replaces it.
pub(crate) const SANDBOX: &str = "/SANDBOX";

/// A terminal's commands, a forged line of rgpu's own, and a cursor that goes up.
pub(crate) const ESCAPES: &str =
    "\u{1b}]0;owned\u{7}\u{1b}[2J\u{1b}[1Aa\r\nerror: forged\n\u{9b}2J\u{202e}";

/// An invalid message, or other invalid bytes of one side.
#[derive(Clone)]
pub(crate) struct InvalidMessage {
    /// The field and its value, or what else is wrong.
    pub(crate) name: String,
    /// The bytes to send.
    pub(crate) wire: WireContent,
    /// Whether the link is cut after it.
    pub(crate) cut: bool,
}

/// The bytes of an invalid message.
#[derive(Clone)]
pub(crate) enum WireContent {
    /// Frames with a message whose job, offsets and event number still have to be filled in.
    Frames(Vec<(FrameKind, Body)>),
    /// Bytes as they are.
    Raw(Vec<u8>),
}

/// The body of a frame.
#[derive(Clone)]
pub(crate) enum Body {
    Message(Value),
    Bytes(Vec<u8>),
}

impl WireContent {
    fn message(message: Value, bytes: &[(FrameKind, Vec<u8>)]) -> Self {
        let bytes = bytes.iter().map(|(kind, body)| (*kind, Body::Bytes(body.clone())));
        Self::Frames(
            std::iter::once((FrameKind::Message, Body::Message(message))).chain(bytes).collect(),
        )
    }

    /// The bytes to send, with each message changed by `fill`.
    pub(crate) fn bytes(&self, fill: &mut dyn FnMut(&mut Value)) -> Vec<u8> {
        let frames = match self {
            Self::Raw(bytes) => return bytes.clone(),
            Self::Frames(frames) => frames,
        };
        let mut out = Vec::new();
        for (kind, body) in frames {
            let body = match body {
                Body::Bytes(bytes) => bytes.clone(),
                Body::Message(message) => {
                    let mut message = message.clone();
                    fill(&mut message);
                    serde_json::to_vec(&message).unwrap()
                }
            };
            out.extend(framed(*kind, &body));
        }
        out
    }
}

/// A frame. Its header is written even if the body is over the limit.
pub(crate) fn framed(kind: FrameKind, body: &[u8]) -> Vec<u8> {
    let len = u32::try_from(body.len()).unwrap().to_le_bytes();
    [&[len[0], len[1], len[2], len[3], kind as u8], body].concat()
}

impl InvalidMessage {
    /// Every invalid variant of `message`, which the frames in `bytes` follow. The first one is the
    /// message itself: sent at the wrong time, or with false content.
    pub(crate) fn variants_of(
        message: &Value,
        bytes: &[(FrameKind, Vec<u8>)],
    ) -> Vec<InvalidMessage> {
        let lie = |name: &str, wire: WireContent| InvalidMessage {
            name: name.to_owned(),
            wire,
            cut: false,
        };
        let whole = WireContent::message(message.clone(), bytes);
        let mut lies = vec![lie("as it is", whole.clone())];
        let frames = |n: usize| match &whole {
            WireContent::Frames(frames) => {
                WireContent::Frames(frames.iter().cycle().take(n).cloned().collect())
            }
            WireContent::Raw(_) => whole.clone(),
        };
        let each = 1 + bytes.len();
        lies.push(lie("twice", frames(2 * each)));
        lies.push(lie("300 times", frames(300 * each)));
        let json = serde_json::to_vec(message).unwrap();
        let cut = framed(FrameKind::Message, &json);
        let cut = WireContent::Raw(cut[..frame::HEADER + json.len() / 2].to_vec());
        lies.push(InvalidMessage { cut: true, ..lie("cut in its middle", cut) });
        let mut text = json.clone();
        text.truncate(json.len() - 1);
        lies.push(lie("no JSON", WireContent::Raw(framed(FrameKind::Message, &text))));
        let padded = [json, vec![b' '; MAX_BODY]].concat();
        lies.push(lie(
            "a frame over the limit",
            WireContent::Raw(framed(FrameKind::Message, &padded)),
        ));
        for (kind, name) in [(FrameKind::Output, "output"), (FrameKind::Blob, "a blob")] {
            let more = bytes.iter().cloned().chain([(kind, b"more".to_vec())]).collect::<Vec<_>>();
            lies.push(lie(
                &format!("followed by {name} that nothing announced"),
                WireContent::message(message.clone(), &more),
            ));
        }
        if let Some((kind, body)) = bytes.first() {
            let other = if *kind == FrameKind::Blob { FrameKind::Output } else { FrameKind::Blob };
            let short = body[..body.len() - 1].to_vec();
            for (name, bytes) in [
                ("without its bytes", vec![]),
                ("with bytes of the other kind", vec![(other, body.clone())]),
                ("with a byte less", vec![(*kind, short)]),
                ("with empty frames before its bytes", {
                    let empty = std::iter::repeat_n((*kind, Vec::new()), 100);
                    empty.chain([(*kind, body.clone())]).collect()
                }),
            ] {
                lies.push(lie(name, WireContent::message(message.clone(), &bytes)));
            }
        }
        let mut leaves = Vec::new();
        collect_leaves(message, String::new(), &mut leaves);
        for (pointer, value) in leaves {
            // Deep inside facts, plans and lists, where no code of the connection looks, a few lies
            // stand for all.
            let deep = pointer.matches('/').count() > 2;
            let kept = |name: &str| !deep || DEEP.contains(&name);
            for (name, wrong) in wrong_values(&value).into_iter().filter(|(name, _)| kept(name)) {
                let mut message = message.clone();
                *message.pointer_mut(&pointer).unwrap() = wrong;
                lies.push(lie(&format!("{pointer}: {name}"), WireContent::message(message, bytes)));
            }
            let mut without = message.clone();
            let (parent, field) = pointer.rsplit_once('/').unwrap();
            if deep {
                continue;
            }
            if let Some(Value::Object(parent)) = without.pointer_mut(parent) {
                parent.remove(field);
                lies.push(lie(
                    &format!("{pointer}: missing"),
                    WireContent::message(without, bytes),
                ));
            }
        }
        lies
    }
}

/// Bytes that are no message at all.
pub(crate) fn garbage() -> Vec<InvalidMessage> {
    let raw = |name: &str, bytes: Vec<u8>, cut: bool| InvalidMessage {
        name: name.to_owned(),
        wire: WireContent::Raw(bytes),
        cut,
    };
    let message = |body: &[u8]| framed(FrameKind::Message, body);
    vec![
        raw("an output frame", framed(FrameKind::Output, b"x"), false),
        raw("a blob frame", framed(FrameKind::Blob, b"x"), false),
        raw("an empty output frame", framed(FrameKind::Output, b""), false),
        raw("a frame of an unknown kind", vec![0, 0, 0, 0, 9], false),
        raw("a frame of 4 GiB", vec![255, 255, 255, 255, 0], false),
        raw("a header cut off", vec![1, 0], true),
        raw("the end", vec![], true),
        raw("another protocol", b"HTTP/1.1 200 OK\r\n\r\n".to_vec(), false),
        raw("an empty message", message(b""), false),
        raw("a message that is null", message(b"null"), false),
        raw("a message that is a list", message(b"[]"), false),
        raw("a message without a type", message(b"{}"), false),
        raw("a message that is not UTF-8", message(b"{\"is\":\"\xff\"}"), false),
        raw("a message that nests deeply", message(&b"[".repeat(100_000)), false),
        raw(
            "a message of 1 MiB of text",
            message(&[b"\"", &*vec![b'x'; MAX_BODY - 2], b"\""].concat()),
            false,
        ),
        raw("terminal commands", ESCAPES.as_bytes().to_vec(), false),
    ]
}

/// The leaves of a message: values that are neither an object nor a list with elements.
fn collect_leaves(value: &Value, pointer: String, into: &mut Vec<(String, Value)>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                collect_leaves(value, format!("{pointer}/{name}"), into);
            }
        }
        Value::Array(items) if !items.is_empty() => {
            into.push((pointer.clone(), value.clone()));
            collect_leaves(&items[0], format!("{pointer}/0"), into);
        }
        leaf => into.push((pointer, leaf.clone())),
    }
}

/// The lies that are told of deep fields too.
const DEEP: [&str; 4] = ["2^64 - 1", "terminal commands", "null", "a number"];

/// Values that a field must not have, or that are false.
fn wrong_values(value: &Value) -> Vec<(&'static str, Value)> {
    match value {
        Value::Number(_) => vec![
            ("-1", json!(-1)),
            ("0", json!(0)),
            ("one and a half", json!(1.5)),
            ("2^32", json!(1_u64 << 32)),
            ("2^63 - 1", json!(i64::MAX)),
            ("2^64 - 1", json!(u64::MAX)),
            ("a text", json!("7")),
        ],
        Value::String(_) => vec![
            ("empty", json!("")),
            ("another name", json!("evil.1")),
            ("a path upwards", json!("../../../owned")),
            ("a path upwards below the work folder", json!("here/../../../../owned")),
            ("an absolute path", json!(format!("{SANDBOX}/owned"))),
            ("terminal commands", json!(ESCAPES)),
            ("a NUL", json!("here/a\0b")),
            ("64 KiB", json!("x".repeat(64 << 10))),
            ("null", Value::Null),
        ],
        Value::Bool(bit) => vec![("the opposite", json!(!bit)), ("a number", json!(1))],
        Value::Array(items) => {
            let one = items.first().cloned().unwrap_or(Value::Null);
            vec![
                ("empty", json!([])),
                ("5,000 of them", Value::Array(vec![one; 5000])),
                ("null", Value::Null),
            ]
        }
        Value::Null | Value::Object(_) => vec![("a number", json!(7))],
    }
}
