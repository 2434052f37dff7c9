//! Key and configuration of a node: files that only their owner can read.

use std::fs::{self, DirBuilder};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use mpip_crypto::{PrivateKey, PublicKey, Rng};

use crate::failure::Failure;
use crate::keys::{rng, write_new};

/// The configuration that is meant where none is named.
pub(crate) const DEFAULT_FILE: &str = "/etc/mpip/mpip0.toml";

/// Longest name of a Linux interface, in bytes.
const INTERFACE_MAX: usize = 15;

/// The files of a node.
#[derive(Debug)]
pub(crate) struct Files {
    /// The configuration.
    pub(crate) config: PathBuf,
    /// The private key beside it.
    pub(crate) key: PathBuf,
    /// The preshared key beside it.
    pub(crate) preshared: PathBuf,
    /// The TUN device, called like the configuration.
    pub(crate) interface: String,
}

impl Files {
    /// The files beside `config`, which is not to exist yet.
    pub(crate) fn new(config: &Path) -> Result<Self, Failure> {
        let interface = config.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
        let usable = (1..=INTERFACE_MAX).contains(&interface.len())
            && interface.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte));
        if !usable || config.extension().is_none_or(|extension| extension != "toml") {
            return Err(Failure(format!(
                "expected a file like `{DEFAULT_FILE}`, whose name is that of the interface (1 to \
                 {INTERFACE_MAX} letters, digits, `-` and `_`) and `.toml`, found `{}`",
                config.display()
            )));
        }
        if config.exists() {
            return Err(Failure(format!(
                "`{}` exists already, and is not overwritten: this host is set up; name another \
                 file like `/etc/mpip/mpip1.toml` for a second daemon",
                config.display()
            )));
        }
        Ok(Self {
            key: config.with_extension("key"),
            preshared: config.with_extension("psk"),
            interface: interface.to_owned(),
            config: config.to_owned(),
        })
    }

    /// Makes the directory, which only its owner can read, if there is none.
    pub(crate) fn make_directory(&self) -> Result<(), Failure> {
        let Some(directory) = self.config.parent().filter(|path| !path.as_os_str().is_empty())
        else {
            return Ok(());
        };
        DirBuilder::new().recursive(true).mode(0o700).create(directory).map_err(|error| {
            Failure(format!(
                "cannot make the directory `{}`: {error}; run this as root",
                directory.display()
            ))
        })
    }

    /// The public half of the private key, which is made if there is none.
    pub(crate) fn own_key(&self) -> Result<PublicKey, Failure> {
        self.make_directory()?;
        match fs::read_to_string(&self.key).map(zeroize::Zeroizing::new) {
            Ok(text) => {
                let key: Result<PrivateKey, _> = text.parse();
                let key = key.map_err(|error| {
                    Failure(format!("the key file `{}`: {error}", self.key.display()))
                })?;
                Ok(*key.public_key())
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                let key = PrivateKey::generate(&mut rng()?);
                write_new(&self.key, &key.secret_base64())?;
                Ok(*key.public_key())
            }
            Err(error) => {
                Err(Failure(format!("cannot read the key file `{}`: {error}", self.key.display())))
            }
        }
    }

    /// The name of a file beside the configuration, as the configuration has it.
    pub(crate) fn name(file: &Path) -> String {
        file.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }
}

/// Makes key and configuration of a gateway.
pub(crate) fn init(file: &Path, forward: bool) -> Result<(), Failure> {
    let files = Files::new(file)?;
    if files.key.exists() {
        return Err(Failure(format!(
            "`{}` exists already, and is not overwritten: name another file, or remove it if \
             nobody needs it",
            files.key.display()
        )));
    }
    let public_key = files.own_key()?;
    let text = configuration(&files, &mut rng()?, forward);
    write_new(&files.config, text.trim_end())?;
    crate::output::print(&format!(
        "wrote `{}` and `{}`\npublic key: {public_key}\n\
         Next: `mpip invite NAME` prints a token, with which another host joins this one\n",
        files.config.display(),
        files.key.display()
    ))
}

/// A configuration with inner networks drawn at random, so that two gateways seldom have the same.
fn configuration(files: &Files, rng: &mut Rng, forward: bool) -> String {
    let [a, b, c, d, e, f, g]: [u8; 7] = rng.bytes();
    let v4 = format!("10.{}.{}.1/24", a.clamp(1, 254), b);
    let v6 = format!("fd{c:02x}:{d:02x}{e:02x}:{f:02x}{g:02x}::1/64");
    format!(
        "# Made by `mpip init`. Every key: docs/configuration.md\n\n\
         [node]\nprivate_key_file = \"{}\"\n\n\
         [interface]\nname = \"{}\"\n\
         # Inner networks, drawn at random. Peers that join get addresses from them.\n\
         addresses = [\"{v4}\", \"{v6}\"]\n\n\
         # `mpip invite NAME` invites a peer; who joined is in `{}`.\n\
         [gateway]\n\
         # true: peers may reach the Internet through this host (`mpip join --default-route`)\n\
         forward = {forward}\n\
         # true: they do so with an address of this host\n\
         masquerade = {forward}\n",
        Files::name(&files.key),
        files.interface,
        Files::name(&files.config.with_extension("peers")),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_whose_name_is_no_interface_is_refused() {
        for name in ["mpip0", "a b.toml", "a-very-long-name-x.toml", ".toml", "x.json"] {
            let refused = Files::new(Path::new(name)).expect_err(name);
            assert!(refused.to_string().starts_with("expected a file like"), "{refused}");
        }
        let files = Files::new(Path::new("/nowhere/mpip1.toml")).expect("usable");
        assert_eq!(files.interface, "mpip1");
        assert_eq!(files.key, Path::new("/nowhere/mpip1.key"));
    }
}
