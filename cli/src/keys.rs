//! `mpip genkey`, `genpsk` and `pubkey`: keys as text.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

use mpip_crypto::{PresharedKey, PrivateKey, Rng};
use zeroize::{Zeroize, Zeroizing};

use crate::failure::Failure;
use crate::output::print;

/// Longest input read as a key, in bytes; a key has 44 characters.
const INPUT_MAX: usize = 4_096;

/// Files made in a directory with this bit are of the directory's group (inode(7)).
const SETGID: u32 = 0o2000;

/// A generator seeded by the kernel. After boot it blocks until the kernel has enough entropy.
pub(crate) fn rng() -> Result<Rng, Failure> {
    let mut seed = [0; 32];
    File::open("/dev/random")
        .and_then(|mut file| file.read_exact(&mut seed))
        .map_err(|error| Failure(format!("cannot read /dev/random: {error}")))?;
    let rng = Rng::new(seed);
    seed.zeroize();
    Ok(rng)
}

/// Makes a private key: prints it, or writes it to `out` and prints its public key.
pub(crate) fn generate_private(out: Option<&Path>) -> Result<(), Failure> {
    let key = PrivateKey::generate(&mut rng()?);
    match out {
        None => print(&Zeroizing::new(format!("{}\n", *key.secret_base64()))),
        Some(file) => {
            write_new(file, &key.secret_base64())?;
            print(&format!("{}\n", key.public_key()))
        }
    }
}

/// Makes a preshared key: prints it, or writes it to `out`.
pub(crate) fn generate_preshared(out: Option<&Path>) -> Result<(), Failure> {
    let key = PresharedKey::generate(&mut rng()?);
    match out {
        None => print(&Zeroizing::new(format!("{}\n", *key.secret_base64()))),
        Some(file) => write_new(file, &key.secret_base64()),
    }
}

/// Reads a private key from standard input and prints its public key.
pub(crate) fn public() -> Result<(), Failure> {
    // With room for all, so that no copy is left where it was.
    let mut text = Zeroizing::new(String::with_capacity(2 * INPUT_MAX));
    io::stdin()
        .take(INPUT_MAX as u64)
        .read_to_string(&mut text)
        .map_err(|error| Failure(format!("standard input: expected a private key: {error}")))?;
    let key: PrivateKey =
        text.parse().map_err(|error| Failure(format!("standard input: {error}")))?;
    print(&format!("{}\n", key.public_key()))
}

/// Writes `key` to a new file that only its owner can read and write. In a directory that root
/// shares with a group (setgid), the group can read it, too: the daemon's user is in it. If that
/// fails halfway, no file is left.
pub(crate) fn write_new(file: &Path, key: &str) -> Result<(), Failure> {
    let failed = |error: io::Error| match error.kind() {
        io::ErrorKind::AlreadyExists => Failure(format!(
            "cannot write the new file `{}`: it exists already, and is not overwritten; name \
             another file, or remove it if nobody needs it",
            file.display()
        )),
        _ => Failure(format!("cannot write the new file `{}`: {error}", file.display())),
    };
    let mut open =
        OpenOptions::new().write(true).create_new(true).mode(0o600).open(file).map_err(failed)?;
    let line = Zeroizing::new(format!("{key}\n"));
    let directory = file.parent().filter(|path| !path.as_os_str().is_empty());
    let directory = fs::metadata(directory.unwrap_or(Path::new(".")));
    let shared = directory.is_ok_and(|it| it.uid() == 0 && it.mode() & SETGID != 0);
    let written = open.write_all(line.as_bytes()).and_then(|()| match shared {
        true => open.set_permissions(fs::Permissions::from_mode(0o640)),
        false => Ok(()),
    });
    let written = written.and_then(|()| open.sync_all());
    written.map_err(|error| {
        let _ = fs::remove_file(file);
        failed(error)
    })
}
