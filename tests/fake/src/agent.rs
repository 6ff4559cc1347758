//! A hostile agent: it runs the real one behind pipes and renames a file of the job in its
//! messages.

use std::io::{self, Read, Write};
use std::process::{Command, Stdio};

use rgpu_protocol::frame::{self, FrameKind, HEADER, MAGIC};

use crate::ImitationError;
use crate::host::Host;

/// `rgpu-agent FROM TO AGENT [ARG]…`: starts AGENT and replaces FROM by TO in every message that
/// AGENT sends.
pub(crate) fn play(_: &Host, args: &[String]) -> Result<u8, ImitationError> {
    let [from, to, agent, args @ ..] = args else {
        return Err("names and an agent, please".into());
    };
    let mut child = Command::new(agent).args(args).stdout(Stdio::piped()).spawn()?;
    let mut sent = child.stdout.take().ok_or("no pipe")?;
    let mut out = io::stdout();
    io::copy(&mut (&mut sent).take(MAGIC.len() as u64), &mut out)?;
    let (from, to) = (format!("\"{from}\""), format!("\"{to}\""));
    let mut header = [0; HEADER];
    while sent.read_exact(&mut header).is_ok() {
        let len = u32::from_le_bytes([header[0], header[1], header[2], header[3]]);
        let mut body = vec![0; len as usize];
        sent.read_exact(&mut body)?;
        if header[4] == FrameKind::Message as u8 {
            body = String::from_utf8(body)?.replace(&from, &to).into_bytes();
            header = frame::header(FrameKind::Message, body.len());
        }
        out.write_all(&[&header[..], &body].concat())?;
        out.flush()?;
    }
    Ok(child.wait()?.code().unwrap_or(1).try_into()?)
}
