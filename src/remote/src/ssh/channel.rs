//! Turns an ssh channel into the pipes of a program.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use russh::client::Msg;
use russh::{Channel, ChannelMsg};
use tokio::io::{AsyncRead, ReadBuf};
use tokio::sync::mpsc;

use crate::stream::{AgentStream, FrameReader, StreamEnd};

pub(super) type OpenChannel = Channel<Msg>;

/// Packets that may wait for the reader.
const MAX_QUEUED_PACKETS: usize = 64;

/// The stream of a channel on which a command was started. It is read until the channel closes,
/// because the end of file often comes before the exit status.
pub(super) fn wire(channel: OpenChannel) -> AgentStream {
    let ending = StreamEnd::default();
    let (mut reader, writer) = channel.split();
    let to_program = writer.make_writer();
    let (queue, packets) = mpsc::channel(MAX_QUEUED_PACKETS);
    let ending_writer = ending.clone();
    tokio::spawn(async move {
        let mut closed = false;
        while let Some(message) = reader.wait().await {
            match message {
                ChannelMsg::Data { data } => {
                    let sent = queue.send(data).await;
                    if sent.is_err() {
                        // The session was dropped; closing may fail if the peer is gone.
                        let _ = writer.close().await;
                        return;
                    }
                }
                ChannelMsg::ExtendedData { data, .. } => ending_writer.record_stderr(&data),
                ChannelMsg::ExitStatus { exit_status } => {
                    ending_writer.record_exit(exit_status as i32)
                }
                ChannelMsg::ExitSignal { signal_name, .. } => {
                    ending_writer.record_end(format!("it was ended by the signal {signal_name:?}"));
                }
                ChannelMsg::Close => {
                    closed = true;
                    break;
                }
                _ => {}
            }
        }
        if closed {
            ending_writer.record_end("the host closed it")
        } else {
            ending_writer.record_lost_connection()
        }
    });
    AgentStream {
        reader: FrameReader::new(Box::new(ChannelReader { queue: packets, current: None })),
        writer: Box::new(to_program),
        ending,
    }
}

/// Reads packets as a byte stream.
struct ChannelReader<B> {
    queue: mpsc::Receiver<B>,
    current: Option<(B, usize)>,
}

impl<B: AsRef<[u8]> + Unpin> AsyncRead for ChannelReader<B> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            if let Some((packet, used)) = &mut self.current {
                let left = &packet.as_ref()[*used..];
                if !left.is_empty() {
                    let n = left.len().min(buffer.remaining());
                    buffer.put_slice(&left[..n]);
                    *used += n;
                    return Poll::Ready(Ok(()));
                }
            }
            match self.queue.poll_recv(context) {
                Poll::Ready(Some(packet)) => self.current = Some((packet, 0)),
                Poll::Ready(None) => return Poll::Ready(Ok(())),
                Poll::Pending => return Poll::Pending,
            }
        }
    }
}
