//! Bulk QUIC by quinn. `lab/quic-go` is the same in Go, with quic-go.
//!
//! The client opens a stream and says in which direction data is to flow and for how long
//! ([`Request`]). The sender sends until the receiver stops it. The receiver counts for the time
//! that was asked for, and the client has the result: its own, or what the server sends back on
//! the same stream.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use quinn::congestion::{BbrConfig, ControllerFactory, CubicConfig, NewRenoConfig};
use quinn::rustls;
use quinn::{
    ClientConfig, Connection, Endpoint, EndpointConfig, RecvStream, SendStream, ServerConfig,
    TokioRuntime, TransportConfig, VarInt,
};
use rustix::net::sockopt;
use serde::{Deserialize, Serialize};

use crate::clock;
use crate::flow::FlowResult;
use crate::stream::Reception;

/// Flow control windows of connection and stream in bytes, and the most that a sender keeps. 16 MiB
/// is what browsers and download clients offer, and does not limit any link of the scenarios.
const WINDOW: u32 = 16 << 20;
/// Socket buffers in bytes, as quic-go asks for them. The kernel's default loses bursts.
const SOCKET_BUFFER: usize = 7 << 20;
/// Longest time for the handshake, and for the last answer.
const PATIENCE: Duration = Duration::from_secs(8);
/// Bytes of a read or write.
const CHUNK: usize = 64 * 1024;
/// Most bytes of a result.
const RESULT: usize = 1 << 20;

/// The certificate of all servers of the lab, for the name [`SERVER`], and its key. Clients trust
/// nothing else. It protects nothing: all traffic is the lab's.
const CERTIFICATE: &[u8] = include_bytes!("../data/quic-certificate.der");
const KEY: &[u8] = include_bytes!("../data/quic-key.der");
const SERVER: &str = "mpip-lab";

/// What a sender counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Sent {
    /// Packets.
    pub(crate) packets: u64,
    /// Packets that were declared lost.
    pub(crate) lost: u64,
}

impl Sent {
    fn of(connection: &Connection) -> Self {
        let path = connection.stats().path;
        Self { packets: path.sent_packets, lost: path.lost_packets }
    }
}

/// What the client asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Request {
    download: bool,
    duration: Duration,
}

impl Request {
    /// The direction, and the duration in milliseconds.
    const LENGTH: usize = 9;

    fn emit(self) -> [u8; Self::LENGTH] {
        let mut bytes = [0; Self::LENGTH];
        bytes[0] = u8::from(self.download);
        bytes[1..].copy_from_slice(&(self.duration.as_millis() as u64).to_le_bytes());
        bytes
    }

    fn parse(bytes: [u8; Self::LENGTH]) -> Self {
        let [direction, duration @ ..] = bytes;
        let duration = Duration::from_millis(u64::from_le_bytes(duration));
        Self { download: direction == 1, duration }
    }
}

/// Serves one transfer, and returns what this side sent.
///
/// # Errors
/// The congestion control is unknown, the address cannot be used, or the client fails.
pub(crate) fn serve(at: SocketAddr, congestion_control: &str) -> io::Result<Sent> {
    let transport = transport(congestion_control)?;
    let socket = socket(at)?;
    runtime()?.block_on(serve_one(socket, transport))
}

async fn serve_one(socket: UdpSocket, transport: Arc<TransportConfig>) -> io::Result<Sent> {
    let certificate = rustls::pki_types::CertificateDer::from_slice(CERTIFICATE);
    let key = rustls::pki_types::PrivatePkcs8KeyDer::from(KEY);
    let mut config =
        ServerConfig::with_single_cert(vec![certificate], key.into()).map_err(io::Error::other)?;
    config.transport_config(transport);
    let endpoint = endpoint(socket, Some(config))?;
    let incoming = endpoint.accept().await.ok_or(io::ErrorKind::ConnectionAborted)?;
    let connection = incoming.await?;
    let (mut send, mut recv) = connection.accept_bi().await?;
    let mut head = [0; Request::LENGTH];
    recv.read_exact(&mut head).await.map_err(io::Error::other)?;
    let request = Request::parse(head);
    if request.download {
        send_until_stopped(&mut send).await?;
    } else {
        let result = receive(&mut recv, request.duration).await;
        let _ = recv.stop(VarInt::from_u32(0));
        send.write_all(&serde_json::to_vec(&result)?).await?;
        send.finish()?;
    }
    connection.closed().await;
    Ok(Sent::of(&connection))
}

/// Transfers from or to the server at `to` for `duration`, and returns the receiver's result. Of
/// an upload it has the number of packets lost.
///
/// # Errors
/// As [`serve`]. A connection that breaks later is a result with an error.
pub(crate) fn transfer(
    from: SocketAddr,
    to: SocketAddr,
    congestion_control: &str,
    download: bool,
    duration: Duration,
) -> io::Result<FlowResult> {
    let transport = transport(congestion_control)?;
    let socket = socket(from)?;
    runtime()?.block_on(transfer_one(socket, to, transport, Request { download, duration }))
}

async fn transfer_one(
    socket: UdpSocket,
    to: SocketAddr,
    transport: Arc<TransportConfig>,
    request: Request,
) -> io::Result<FlowResult> {
    let mut roots = rustls::RootCertStore::empty();
    let certificate = rustls::pki_types::CertificateDer::from_slice(CERTIFICATE);
    roots.add(certificate).map_err(io::Error::other)?;
    let mut config =
        ClientConfig::with_root_certificates(Arc::new(roots)).map_err(io::Error::other)?;
    config.transport_config(transport);
    let endpoint = endpoint(socket, None)?;
    let connecting = endpoint.connect_with(config, to, SERVER).map_err(io::Error::other)?;
    let connection = within(PATIENCE, connecting).await??;
    let (mut send, mut recv) = connection.open_bi().await?;
    send.write_all(&request.emit()).await?;
    let result = if request.download {
        receive(&mut recv, request.duration).await
    } else {
        within(request.duration + PATIENCE, send_until_stopped(&mut send)).await??;
        let answer = within(PATIENCE, recv.read_to_end(RESULT)).await?.map_err(io::Error::other)?;
        let result: FlowResult = serde_json::from_slice(&answer)?;
        FlowResult { retransmits: Sent::of(&connection).lost, ..result }
    };
    connection.close(VarInt::from_u32(0), b"done");
    // Until the server has been told.
    let _ = within(Duration::from_millis(500), endpoint.wait_idle()).await;
    Ok(result)
}

/// Sends until the receiver stops the stream, or closes the connection.
async fn send_until_stopped(send: &mut SendStream) -> io::Result<()> {
    let chunk = vec![0x55; CHUNK];
    loop {
        match send.write_all(&chunk).await {
            Ok(()) => {}
            Err(
                quinn::WriteError::Stopped(_)
                | quinn::WriteError::ConnectionLost(quinn::ConnectionError::ApplicationClosed(_)),
            ) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
    }
}

/// Receives for `duration`.
async fn receive(recv: &mut RecvStream, duration: Duration) -> FlowResult {
    let end = tokio::time::Instant::now() + duration;
    let mut reception = Reception::default();
    let mut chunk = vec![0; CHUNK];
    let error = loop {
        match tokio::time::timeout_at(end, recv.read(&mut chunk)).await {
            Err(_) => break None,
            Ok(Ok(Some(length))) => reception.note(clock::now(), length),
            Ok(Ok(None)) => break Some("the sender ended".to_owned()),
            Ok(Err(error)) => break Some(error.to_string()),
        }
    };
    FlowResult { error, ..reception.over(duration) }
}

async fn within<T>(time: Duration, what: impl Future<Output = T>) -> io::Result<T> {
    tokio::time::timeout(time, what).await.map_err(|_| io::ErrorKind::TimedOut.into())
}

fn runtime() -> io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()
}

fn socket(at: SocketAddr) -> io::Result<UdpSocket> {
    let socket = UdpSocket::bind(at)?;
    // Beyond the system's limit if that is permitted.
    if sockopt::set_socket_recv_buffer_size_force(&socket, SOCKET_BUFFER).is_err() {
        sockopt::set_socket_recv_buffer_size(&socket, SOCKET_BUFFER)?;
        sockopt::set_socket_send_buffer_size(&socket, SOCKET_BUFFER)?;
    }
    Ok(socket)
}

fn endpoint(socket: UdpSocket, config: Option<ServerConfig>) -> io::Result<Endpoint> {
    Endpoint::new(EndpointConfig::default(), config, socket, Arc::new(TokioRuntime))
}

fn transport(congestion_control: &str) -> io::Result<Arc<TransportConfig>> {
    let controller: Arc<dyn ControllerFactory + Send + Sync> = match congestion_control {
        "cubic" => Arc::new(CubicConfig::default()),
        "reno" => Arc::new(NewRenoConfig::default()),
        "bbr" => Arc::new(BbrConfig::default()),
        other => {
            let message = format!("expected cubic, reno or bbr for quinn, found {other:?}");
            return Err(io::Error::other(message));
        }
    };
    let mut transport = TransportConfig::default();
    transport
        .congestion_controller_factory(controller)
        .stream_receive_window(WINDOW.into())
        .receive_window(WINDOW.into())
        .send_window(WINDOW.into());
    Ok(Arc::new(transport))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_read_as_it_was_written() {
        for download in [false, true] {
            let request = Request { download, duration: Duration::from_millis(12_345) };
            assert_eq!(Request::parse(request.emit()), request);
        }
    }

    #[test]
    fn both_directions_have_the_receivers_figures() {
        // Unlike cubic, quinn's BBR overflows the buffers of a socket that is read more slowly than
        // it sends, and what stops it may then be lost for seconds.
        let congestion_control = "cubic";
        for download in [true, false] {
            let socket = socket("127.0.0.1:0".parse().expect("an address")).expect("a port");
            let at = socket.local_addr().expect("an address");
            let server = std::thread::spawn(move || {
                let transport = transport(congestion_control).expect("known");
                runtime().expect("a runtime").block_on(serve_one(socket, transport))
            });
            let from = "127.0.0.1:0".parse().expect("an address");
            // A busy machine delays packets and loses some: quinn's first timeouts take a second.
            let duration = Duration::from_secs(3);
            let result = transfer(from, at, congestion_control, download, duration);
            let result = result.expect("transferred");
            assert_eq!(result.error, None);
            assert_eq!(result.intervals_bps.len(), 30);
            assert!(result.goodput_bps > 0.0);
            let sent = server.join().expect("no panic").expect("served");
            assert!(!download || sent.packets as f64 * 1500.0 > result.goodput_bps / 8.0 * 0.5);
        }
        assert!(transport("bbr").is_ok() && transport("vegas").is_err());
    }
}
