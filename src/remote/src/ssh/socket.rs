//! The TCP socket under an ssh connection.
//!
//! sshd keeps Nagle's algorithm on until a session starts, so an acknowledgement that the kernel
//! delays costs 43 ms on each fresh connection. Quick acknowledgements turn themselves off, so they
//! are turned on again each time a read has to wait.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// A TCP stream with Nagle's algorithm off and quick acknowledgements on.
pub(super) struct NodelayStream(TcpStream);

impl NodelayStream {
    /// Wraps a connected socket.
    pub(super) fn new(socket: TcpStream) -> Self {
        // The options only save time; a socket that refuses them still works.
        let _ = socket.set_nodelay(true);
        Self(socket)
    }
}

#[cfg(target_os = "linux")]
fn quick_ack(socket: &TcpStream) {
    let _ = rustix::net::sockopt::set_tcp_quickack(socket, true);
}

#[cfg(not(target_os = "linux"))]
fn quick_ack(_: &TcpStream) {}

impl AsyncRead for NodelayStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.0).poll_read(context, buffer);
        if polled.is_pending() {
            quick_ack(&self.0);
        }
        polled
    }
}

impl AsyncWrite for NodelayStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write_vectored(context, bytes)
    }

    fn is_write_vectored(&self) -> bool {
        self.0.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}
