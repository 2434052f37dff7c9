//! A connection of this process that takes one path.

use std::io;
use std::net::TcpStream;

use mpip_core::packet::{Endpoint, SessionKey, protocol};

use super::ask::{Ask, Asker};

/// What this host sends in a TCP connection takes one path, for as long as this lives.
pub(crate) struct Confined<'a> {
    asker: &'a Asker,
    session: Option<SessionKey>,
}

impl<'a> Confined<'a> {
    /// Confines `stream` to `path`, or not at all.
    pub(crate) fn new(asker: &'a Asker, stream: &TcpStream, path: Option<u16>) -> io::Result<Self> {
        let end = |address: std::net::SocketAddr| Endpoint {
            address: address.ip().to_canonical(),
            port: address.port(),
        };
        let (source, destination) = (end(stream.local_addr()?), end(stream.peer_addr()?));
        let session = SessionKey { protocol: protocol::TCP, source, destination };
        let session = path.map(|_| session);
        if let Some(session) = session {
            asker.ask(Ask::Confine { session, path });
        }
        Ok(Self { asker, session })
    }
}

impl Drop for Confined<'_> {
    fn drop(&mut self) {
        if let Some(session) = self.session {
            self.asker.ask(Ask::Confine { session, path: None });
        }
    }
}
