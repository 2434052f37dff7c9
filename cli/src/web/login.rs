//! The password, and who has given it.
//!
//! Who knows the password gets a cookie for the browser and a token for the page. A change needs
//! both: another page may make the browser send the cookie, but cannot read the token.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};

use blake2::{Blake2s256, Digest};
use subtle::ConstantTimeEq;

use crate::failure::Failure;

/// Shortest password, in characters.
const SHORTEST: usize = 8;

/// Longest file with a password, in bytes.
const LONGEST: u64 = 1_024;

/// Logins at a time; a further one ends the one that was not used for longest.
const LOGINS: usize = 64;

/// A login ends when it was not used for so long.
const LIFETIME: Duration = Duration::from_secs(12 * 3_600);

/// Attempts at once, and the time after which there is one more.
const ATTEMPTS: (u32, Duration) = (5, Duration::from_secs(2));

/// A password, as a hash.
#[derive(Clone, Debug)]
pub(super) struct Password([u8; 32]);

impl Password {
    /// The first line of `file`, which others may not read.
    pub(super) fn read(file: &Path) -> Result<Self, Failure> {
        let shown = file.display();
        let cannot = |error| Failure(format!("cannot read the password file `{shown}`: {error}"));
        let open = File::open(file).map_err(cannot)?;
        let mode = open.metadata().map_err(cannot)?.mode() & 0o777;
        // A group may read: systemd gives a service its credentials by an access list, which shows
        // as the group's right.
        if mode & 0o027 != 0 {
            return Err(Failure(format!(
                "expected a password file that others cannot read, `{shown}` has mode {mode:03o}: \
                 chmod 600 it"
            )));
        }
        let mut text = String::new();
        open.take(LONGEST).read_to_string(&mut text).map_err(cannot)?;
        let password = text.lines().next().unwrap_or_default();
        let length = password.chars().count();
        if length < SHORTEST {
            return Err(Failure(format!(
                "expected a password of {SHORTEST} characters or more in the first line of \
                 `{shown}`, found {length}"
            )));
        }
        Ok(Self::new(password))
    }

    pub(super) fn new(password: &str) -> Self {
        Self(Blake2s256::digest(password.as_bytes()).into())
    }

    /// Whether `given` is the password. The time that it takes does not depend on how much of it is
    /// right.
    pub(super) fn matches(&self, given: &str) -> bool {
        self.0.ct_eq(Self::new(given).0.as_slice()).into()
    }
}

/// Random text that nobody guesses.
fn secret() -> Result<String, Failure> {
    let mut bytes = [0; 32];
    let read = File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut bytes));
    read.map_err(|error| Failure(format!("cannot read /dev/urandom: {error}")))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// One who has given the password.
#[derive(Clone, Debug)]
pub(super) struct Login {
    /// What the browser sends with each request.
    pub(super) cookie: String,
    /// What the page sends with each change.
    pub(super) token: String,
    used: Instant,
}

/// Who has given the password.
#[derive(Debug)]
pub(super) struct Logins {
    logins: Vec<Login>,
    attempts: u32,
    /// Since when that is all.
    since: Instant,
}

impl Logins {
    pub(super) fn new(now: Instant) -> Self {
        Self { logins: Vec::new(), attempts: ATTEMPTS.0, since: now }
    }

    /// Whether the password may be tried now. Right ones count too.
    pub(super) fn attempt(&mut self, now: Instant) -> bool {
        let (most, pause) = ATTEMPTS;
        let more = now.saturating_duration_since(self.since).as_millis() / pause.as_millis();
        if more > 0 {
            let more = u32::try_from(more).unwrap_or(most);
            (self.attempts, self.since) = (self.attempts.saturating_add(more).min(most), now);
        }
        let allowed = self.attempts > 0;
        self.attempts = self.attempts.saturating_sub(1);
        allowed
    }

    /// A new login.
    pub(super) fn begin(&mut self, now: Instant) -> Result<Login, Failure> {
        self.expire(now);
        if self.logins.len() >= LOGINS
            && let Some(oldest) =
                (0..self.logins.len()).min_by_key(|index| self.logins[*index].used)
        {
            self.logins.swap_remove(oldest);
        }
        let login = Login { cookie: secret()?, token: secret()?, used: now };
        self.logins.push(login.clone());
        Ok(login)
    }

    /// The login with this cookie.
    pub(super) fn find(&mut self, now: Instant, cookie: &str) -> Option<&Login> {
        self.expire(now);
        let same =
            |login: &&mut Login| bool::from(login.cookie.as_bytes().ct_eq(cookie.as_bytes()));
        let login = self.logins.iter_mut().find(same)?;
        login.used = now;
        Some(login)
    }

    /// Ends the login with this cookie.
    pub(super) fn end(&mut self, cookie: &str) {
        self.logins.retain(|login| !bool::from(login.cookie.as_bytes().ct_eq(cookie.as_bytes())));
    }

    fn expire(&mut self, now: Instant) {
        self.logins.retain(|login| now.saturating_duration_since(login.used) < LIFETIME);
    }
}

impl Login {
    /// Whether `given` is the token.
    pub(super) fn permits(&self, given: &str) -> bool {
        self.token.as_bytes().ct_eq(given.as_bytes()).into()
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn only_the_whole_password_matches() {
        let password = Password::new("correct horse");
        assert!(password.matches("correct horse"));
        for wrong in ["", "correct hors", "correct horse ", "Correct horse"] {
            assert!(!password.matches(wrong), "{wrong}");
        }
    }

    #[test]
    fn a_password_file_is_closed_to_others_and_long_enough() {
        let directory = mpip_testing::Directory::new();
        let file = directory.join("password");
        let read = |text: &str, mode| {
            fs::write(&file, text).expect("writable");
            fs::set_permissions(&file, fs::Permissions::from_mode(mode)).expect("ours");
            Password::read(&file).map_err(|failure| failure.to_string())
        };
        assert!(
            read("correct horse\nand a remark\n", 0o600)
                .is_ok_and(|it| it.matches("correct horse"))
        );
        assert!(read("correct horse", 0o440).is_ok());
        let words = read("correct horse", 0o644).expect_err("others can read it");
        assert!(words.contains("has mode 644: chmod 600 it"), "{words}");
        let words = read("short\n", 0o600).expect_err("too short");
        assert!(words.contains("8 characters or more") && words.ends_with("found 5"), "{words}");
        fs::remove_file(&file).expect("ours");
        let words = Password::read(&file).expect_err("gone").to_string();
        assert!(words.starts_with("cannot read the password file `"), "{words}");
    }

    #[test]
    fn passwords_are_tried_five_times_at_once_and_then_every_two_seconds() {
        let start = Instant::now();
        let mut logins = Logins::new(start);
        let tried = |logins: &mut Logins, now| (0..100).filter(|_| logins.attempt(now)).count();
        assert_eq!(tried(&mut logins, start), 5);
        assert_eq!(tried(&mut logins, start + Duration::from_millis(1_900)), 0);
        assert_eq!(tried(&mut logins, start + Duration::from_millis(2_100)), 1);
        assert_eq!(tried(&mut logins, start + Duration::from_secs(3_600)), 5);
    }

    #[test]
    fn a_login_is_found_by_its_cookie_until_it_ends() {
        let start = Instant::now();
        let mut logins = Logins::new(start);
        let one = logins.begin(start).expect("random numbers");
        let two = logins.begin(start).expect("random numbers");
        assert!(one.cookie != two.cookie && one.cookie != one.token && one.token != two.token);
        assert_eq!(one.cookie.len(), 64);
        let later = start + LIFETIME / 2;
        let found = logins.find(later, &one.cookie).expect("logged in");
        assert!(found.permits(&one.token) && !found.permits(&two.token) && !found.permits(""));
        assert!(logins.find(later, "").is_none());
        let last = start + LIFETIME + Duration::from_secs(1);
        assert!(logins.find(last, &two.cookie).is_none(), "not used for long");
        assert!(logins.find(last, &one.cookie).is_some(), "used since");
        logins.end(&one.cookie);
        assert!(logins.find(last, &one.cookie).is_none());
    }

    #[test]
    fn there_are_never_more_logins_than_the_limit() {
        let start = Instant::now();
        let mut logins = Logins::new(start);
        let first = logins.begin(start).expect("random numbers");
        for second in 1..=LOGINS as u64 {
            logins.begin(start + Duration::from_secs(second)).expect("random numbers");
        }
        assert_eq!(logins.logins.len(), LOGINS);
        assert!(logins.find(start, &first.cookie).is_none());
    }
}
