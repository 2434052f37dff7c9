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

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, TcpListener};
    use std::sync::mpsc::channel;

    use super::*;

    /// `[D-4]`
    #[test]
    fn a_connection_takes_any_path_again_when_its_measurement_ends() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let stream = TcpStream::connect(listener.local_addr().expect("bound")).expect("it listens");
        let (asks, asked) = channel();
        let asker = Asker::new(asks, || {});
        drop(Confined::new(&asker, &stream, None).expect("two ends"));
        assert!(asked.try_recv().is_err(), "nothing is confined");
        drop(Confined::new(&asker, &stream, Some(3)).expect("two ends"));
        let paths = asked.try_iter().map(|ask| match ask {
            Ask::Confine { session, path } => {
                assert_eq!(session.source.port, stream.local_addr().expect("bound").port());
                path
            }
            other => panic!("{other:?}"),
        });
        assert_eq!(paths.collect::<Vec<_>>(), [Some(3), None]);
    }
}
