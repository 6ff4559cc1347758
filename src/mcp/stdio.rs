//! Messages as lines of JSON, on standard input and output.
//!
//! rmcp's own transport drops a line that is not JSON, and one that is too long. Here each of them
//! is answered, and the connection goes on.

use std::collections::BTreeSet;
use std::fmt;
use std::io;
use std::sync::Arc;

use bytes::{Buf, Bytes, BytesMut};
use rmcp::RoleServer;
use rmcp::model::{ClientRequest, JsonRpcMessage};
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::Mutex;
use tokio_util::codec::{AnyDelimiterCodec, AnyDelimiterCodecError, Decoder};

/// The most bytes of a line, as for rmcp's other transports.
const MAX_LINE_BYTES: usize = 16 << 20;

/// How many bytes are read at once, at least.
const READ_BYTES: usize = 8 << 10;

pub(super) const PARSE_ERROR: i32 = -32700;
pub(super) const INVALID_REQUEST: i32 = -32600;
const METHOD_NOT_FOUND: i32 = -32601;
const INVALID_PARAMS: i32 = -32602;

/// The methods that the server answers. A request of one of them that rmcp cannot read has wrong
/// params; rmcp itself would say that there is no such method.
const METHODS: &[&str] = &[
    "initialize",
    "ping",
    "server/discover",
    "tools/list",
    "tools/call",
    "resources/list",
    "resources/templates/list",
    "resources/read",
    "prompts/list",
    "prompts/get",
    "tasks/get",
    "tasks/cancel",
];

/// The connection with one client. `receive` may be dropped while it waits, so what it has read and
/// what it still has to say are kept here.
pub(super) struct LineTransport<R, W> {
    input: R,
    lines: AnyDelimiterCodec,
    /// What was read after the last line.
    unread: BytesMut,
    /// An error that is still to be sent, as a line; empty once the writer has it.
    reply: Vec<u8>,
    is_replying: bool,
    /// `None` once the connection is closed.
    writer: Arc<Mutex<Option<LineWriter<W>>>>,
}

struct LineWriter<W> {
    output: W,
    unwritten: BytesMut,
}

/// Why a line is no message.
#[derive(Debug, PartialEq)]
pub(super) struct LineError {
    /// The request that waits for an answer, else null.
    id: Value,
    pub(super) code: i32,
    message: String,
}

impl LineError {
    /// The error as a message of JSON-RPC.
    pub(super) fn response(&self) -> Value {
        let error = json!({"code": self.code, "message": self.message});
        json!({"jsonrpc": "2.0", "id": self.id, "error": error})
    }
}

impl<R: AsyncRead + Unpin, W: AsyncWrite + Unpin> LineTransport<R, W> {
    pub(super) fn new(input: R, output: W) -> Self {
        let writer = LineWriter { output, unwritten: BytesMut::new() };
        Self {
            input,
            lines: line_codec(MAX_LINE_BYTES),
            unread: BytesMut::new(),
            reply: Vec::new(),
            is_replying: false,
            writer: Arc::new(Mutex::new(Some(writer))),
        }
    }

    /// The next line; `None` at the end of the input. Input that ends without a line break is a
    /// line, too.
    async fn read_line(&mut self) -> Option<Result<Bytes, AnyDelimiterCodecError>> {
        loop {
            if let Some(line) = self.lines.decode(&mut self.unread).transpose() {
                return Some(line);
            }
            self.unread.reserve(READ_BYTES);
            if self.input.read_buf(&mut self.unread).await.ok()? == 0 {
                return self.lines.decode_eof(&mut self.unread).transpose();
            }
        }
    }

    /// Sends the error that is waiting, if there is one. `None` if the client is gone.
    async fn send_reply(&mut self) -> Option<()> {
        if self.is_replying {
            let mut writer = self.writer.lock().await;
            let writer = writer.as_mut()?;
            writer.unwritten.extend_from_slice(&self.reply);
            self.reply.clear();
            writer.flush().await.ok()?;
            self.is_replying = false;
        }
        Some(())
    }
}

impl<W: AsyncWrite + Unpin> LineWriter<W> {
    /// Writes all that waits. A call that is dropped loses nothing: the next one goes on.
    async fn flush(&mut self) -> io::Result<()> {
        while self.unwritten.has_remaining() {
            if self.output.write_buf(&mut self.unwritten).await? == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
        }
        self.output.flush().await
    }
}

impl<R, W> Transport<RoleServer> for LineTransport<R, W>
where
    R: AsyncRead + Send + Unpin,
    W: AsyncWrite + Send + Unpin + 'static,
{
    type Error = io::Error;

    fn send(
        &mut self,
        message: TxJsonRpcMessage<RoleServer>,
    ) -> impl Future<Output = io::Result<()>> + Send + 'static {
        let writer = Arc::clone(&self.writer);
        async move {
            let mut line = serde_json::to_vec(&message)?;
            line.push(b'\n');
            let mut writer = writer.lock().await;
            let Some(writer) = writer.as_mut() else {
                return Err(io::ErrorKind::NotConnected.into());
            };
            writer.unwritten.extend_from_slice(&line);
            writer.flush().await
        }
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleServer>> {
        loop {
            self.send_reply().await?;
            let read = match self.read_line().await? {
                Ok(line) => read_message(&line),
                Err(AnyDelimiterCodecError::MaxChunkLengthExceeded) => Err(LineError {
                    id: Value::Null,
                    code: INVALID_REQUEST,
                    message: format!(
                        "the line is too long: a message has at most {} bytes",
                        self.lines.max_length()
                    ),
                }),
                Err(AnyDelimiterCodecError::Io(_)) => return None,
            };
            match read {
                Ok(Some(message)) => return Some(message),
                Ok(None) => {}
                Err(error) => {
                    self.reply = format!("{}\n", error.response()).into_bytes();
                    self.is_replying = true;
                }
            }
        }
    }

    async fn close(&mut self) -> io::Result<()> {
        self.writer.lock().await.take();
        Ok(())
    }
}

/// Splits input into lines. The rest of a line that is too long is skipped.
fn line_codec(max_line_bytes: usize) -> AnyDelimiterCodec {
    AnyDelimiterCodec::new_with_max_length(b"\n".to_vec(), b"\n".to_vec(), max_line_bytes)
}

/// The message of a line; `None` for an empty line, and for a notification or a response that the
/// protocol does not know: neither is ever answered.
pub(super) fn read_message(line: &[u8]) -> Result<Option<RxJsonRpcMessage<RoleServer>>, LineError> {
    let line = line.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(line).trim_ascii();
    if line.is_empty() {
        return Ok(None);
    }
    let no_message = |id, code, message| Err(LineError { id, code, message });
    if serde_json::from_slice::<HasKeyTwice>(line).is_ok_and(|HasKeyTwice(twice)| twice) {
        let message = "the message has a key twice".to_owned();
        return no_message(Value::Null, INVALID_REQUEST, message);
    }
    if let Ok(message) = serde_json::from_slice(line)
        && !has_wrong_params(&message)
    {
        return Ok(Some(message));
    }
    let fields = match serde_json::from_slice(line) {
        Ok(Value::Object(fields)) => fields,
        Ok(Value::Array(_)) => {
            let message = "batches are not supported: send each message as a line of its own";
            return no_message(Value::Null, INVALID_REQUEST, message.to_owned());
        }
        Ok(_) => {
            let message = "the line is not a message: a message is a JSON object";
            return no_message(Value::Null, INVALID_REQUEST, message.to_owned());
        }
        Err(error) => {
            let message =
                format!("the line is not JSON ({error}): each message is one line of JSON");
            return no_message(Value::Null, PARSE_ERROR, message);
        }
    };
    let is_response = fields.contains_key("result") || fields.contains_key("error");
    let method = fields.get("method").and_then(Value::as_str);
    let Some(id) = fields.get("id").filter(|_| !is_response) else {
        // A request without a method cannot be told from a response without a result.
        return match method {
            None if !is_response => {
                no_message(Value::Null, INVALID_REQUEST, "the message has no `method`".to_owned())
            }
            _ => Ok(None),
        };
    };
    if !(id.is_string() || id.is_i64() || id.is_u64()) {
        let message = "`id` is neither a string nor an integer".to_owned();
        return no_message(Value::Null, INVALID_REQUEST, message);
    }
    match method {
        _ if fields.get("jsonrpc").is_none_or(|version| version != "2.0") => {
            no_message(id.clone(), INVALID_REQUEST, "`jsonrpc` is not \"2.0\"".to_owned())
        }
        None => no_message(id.clone(), INVALID_REQUEST, "the message has no `method`".to_owned()),
        Some(method) if !METHODS.contains(&method) => {
            no_message(id.clone(), METHOD_NOT_FOUND, format!("there is no method `{method}`"))
        }
        Some(method) => {
            no_message(id.clone(), INVALID_PARAMS, format!("the `params` do not fit `{method}`"))
        }
    }
}

/// The keys of a message.
const KEYS: &[&str] = &["jsonrpc", "id", "method", "params"];

/// Whether an object has a key of a message twice: nobody can tell which of the values counts.
struct HasKeyTwice(bool);

impl<'de> Deserialize<'de> for HasKeyTwice {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(KeyVisitor)
    }
}

struct KeyVisitor;

impl<'de> Visitor<'de> for KeyVisitor {
    type Value = HasKeyTwice;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<HasKeyTwice, M::Error> {
        let (mut keys, mut twice) = (BTreeSet::new(), false);
        while let Some(key) = map.next_key::<String>()? {
            map.next_value::<IgnoredAny>()?;
            twice |= KEYS.contains(&key.as_str()) && !keys.insert(key);
        }
        Ok(HasKeyTwice(twice))
    }
}

/// Whether a request has params that its method does not take: rmcp takes it for a method of
/// others.
fn has_wrong_params(message: &RxJsonRpcMessage<RoleServer>) -> bool {
    let JsonRpcMessage::Request(request) = message else { return false };
    match &request.request {
        ClientRequest::CustomRequest(custom) => METHODS.contains(&custom.method.as_str()),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::duplex;

    use super::*;

    #[test]
    fn a_line_is_a_message_or_says_why_not() {
        for (line, id, code, said) in [
            ("hello", json!(null), -32700, "not JSON (expected value at line 1 column 1)"),
            ("{\"jsonrpc\": \"2.0\"", json!(null), -32700, "not JSON (EOF"),
            ("{\"a\": \"\u{1}\"}", json!(null), -32700, "not JSON"),
            ("[]", json!(null), -32600, "batches are not supported"),
            (r#"[{"jsonrpc":"2.0","id":1,"method":"ping"}]"#, json!(null), -32600, "batches"),
            ("42", json!(null), -32600, "not a message"),
            (r#"{"jsonrpc":"2.0","id":1,"id":2,"method":"ping"}"#, json!(null), -32600, "twice"),
            ("{}", json!(null), -32600, "has no `method`"),
            (r#"{"jsonrpc":"2.0","id":"q"}"#, json!("q"), -32600, "has no `method`"),
            (r#"{"id":3,"method":"tools/call","params":3}"#, json!(3), -32600, "`jsonrpc`"),
            (
                r#"{"jsonrpc":"2.0","id":1.5,"method":"tools/list"}"#,
                json!(null),
                -32600,
                "neither a string nor an integer",
            ),
            (
                r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":3}"#,
                json!(7),
                -32602,
                "do not fit `tools/call`",
            ),
            (
                r#"{"jsonrpc":"2.0","id":8,"method":"tools/call","params":{"name":5}}"#,
                json!(8),
                -32602,
                "do not fit `tools/call`",
            ),
            (
                r#"{"jsonrpc":"2.0","id":9,"method":"resources/read"}"#,
                json!(9),
                -32602,
                "do not fit `resources/read`",
            ),
            (
                r#"{"jsonrpc":"2.0","id":10,"method":"none","params":3}"#,
                json!(10),
                -32601,
                "there is no method `none`",
            ),
        ] {
            let error = read_message(line.as_bytes()).err().unwrap_or_else(|| panic!("{line}"));
            assert_eq!((&error.id, error.code), (&id, code), "{line}");
            assert!(error.message.contains(said), "{line}: {}", error.message);
        }
        let deep = "[".repeat(100_000);
        assert_eq!(read_message(deep.as_bytes()).err().unwrap().code, PARSE_ERROR);
        assert_eq!(read_message(b"\xff\xfe").err().unwrap().code, PARSE_ERROR);
        for unanswered in [
            "",
            " \r\n",
            r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":3}"#,
            r#"{"jsonrpc":"2.0","id":{},"error":"echo"}"#,
            r#"{"jsonrpc":"2.0","id":null,"error":{"code":"x"}}"#,
        ] {
            assert_eq!(read_message(unanswered.as_bytes()).map(|m| m.is_none()), Ok(true));
        }
        let ping = "\u{feff}{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\r\n";
        assert!(read_message(ping.as_bytes()).unwrap().is_some());
    }

    #[tokio::test]
    async fn what_is_no_message_is_answered_and_the_next_line_is_read() {
        let (mut client, input) = duplex(1 << 10);
        let (output, mut answers) = duplex(64);
        let mut transport = LineTransport::new(input, output);
        transport.lines = line_codec(100);
        let ping = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
        let lines = format!("hello\n{}\n{}\n{ping}\n{ping}", "x".repeat(99), "y".repeat(300));
        client.write_all(lines.as_bytes()).await.unwrap();
        drop(client);
        // The output holds less than the answers: they are read while they are written.
        let answers = tokio::spawn(async move {
            let mut text = String::new();
            answers.read_to_string(&mut text).await.unwrap();
            text
        });
        let mut received = 0;
        while transport.receive().await.is_some() {
            received += 1;
        }
        assert_eq!(received, 2, "the last line has no end");
        transport.close().await.unwrap();
        drop(transport);
        let answers = answers.await.unwrap();
        let codes: Vec<Value> = (answers.lines())
            .map(|line| serde_json::from_str::<Value>(line).unwrap()["error"]["code"].take())
            .collect();
        assert_eq!(codes, [PARSE_ERROR, PARSE_ERROR, INVALID_REQUEST], "{answers}");
        assert!(answers.contains("at most 100 bytes"), "{answers}");
    }

    #[tokio::test]
    async fn a_receive_that_is_dropped_loses_nothing() {
        let (mut client, input) = duplex(1 << 10);
        let (output, mut answers) = duplex(16);
        let mut transport = LineTransport::new(input, output);
        // Neither a part of a line …
        client.write_all(b"hel").await.unwrap();
        drop_when_it_waits(&mut transport).await;
        client.write_all(b"lo\n").await.unwrap();
        // … nor a part of an answer, which the full output stops.
        drop_when_it_waits(&mut transport).await;
        client.shutdown().await.unwrap();
        let receiving = tokio::spawn(async move {
            assert!(transport.receive().await.is_none());
        });
        let mut answer = String::new();
        answers.read_to_string(&mut answer).await.unwrap();
        receiving.await.unwrap();
        let error: Value = serde_json::from_str(&answer).unwrap();
        assert_eq!(error["error"]["code"], PARSE_ERROR, "{answer}");
        assert_eq!(error["id"], Value::Null);
        assert!(error.as_object().unwrap().contains_key("id"), "{answer}");
    }

    async fn drop_when_it_waits<R, W>(transport: &mut LineTransport<R, W>)
    where
        R: AsyncRead + Send + Unpin,
        W: AsyncWrite + Send + Unpin + 'static,
    {
        let limit = std::time::Duration::from_millis(50);
        assert!(tokio::time::timeout(limit, transport.receive()).await.is_err());
    }
}
