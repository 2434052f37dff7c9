//! `mpip web`: the state of a daemon as a page in the browser, and `/metrics` for Prometheus.
//!
//! It needs no privilege but the use of the control socket. Without a password it listens on
//! loopback addresses only, and nothing can be changed. With one, the page asks for it before it
//! shows anything.
//!
//! - [`server`]: connections and their bounds; [`site`]: what each address of the page answers
//! - [`guard`]: which requests are refused because another page made them
//! - [`login`]: the password, cookies and tokens
//! - [`live`]: samples of the daemon's state while somebody looks; [`view`]: what they hold
//! - [`page`]: the files of the page

mod guard;
mod live;
mod login;
mod page;
mod server;
mod site;
mod view;

use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};

use crate::failure::Failure;
use crate::output::print;
use login::Password;
use site::Site;

/// Where and for whom the page is served.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// The address and port to listen on
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:6183")]
    listen: SocketAddr,
    /// A file whose first line is the password; with it, paths can be changed in the page
    #[arg(long, value_name = "FILE")]
    password_file: Option<PathBuf>,
    /// A name by which browsers reach the page, beside localhost and addresses; may be repeated
    #[arg(long = "name", value_name = "NAME")]
    names: Vec<String>,
}

/// Serves the page for the daemon that listens on `socket` until the program is ended.
pub(crate) fn serve(socket: &Path, options: &Options) -> Result<(), Failure> {
    let Options { listen, password_file, names } = options;
    let password = password_file.as_deref().map(Password::read).transpose()?;
    if password.is_none() && !listen.ip().is_loopback() {
        return Err(Failure(format!(
            "expected --password-file, because {} can be reached by others; or listen on 127.0.0.1",
            listen.ip()
        )));
    }
    let cannot = |error| Failure(format!("cannot listen on {listen}: {error}"));
    let listener = TcpListener::bind(listen).map_err(cannot)?;
    listener.set_nonblocking(true).map_err(cannot)?;
    let address = listener.local_addr().map_err(cannot)?;
    let mode = if password.is_some() { "with password" } else { "read-only" };
    print(&format!("http://{address}/ ({mode}, metrics in /metrics)\n"))?;
    if !listen.ip().is_loopback() {
        eprintln!(
            "mpip: the password and the page are not encrypted: use a proxy with TLS, or ssh"
        );
    }
    server::run(listener, Site::new(socket, names.clone(), password))
}

#[cfg(test)]
mod tests;
