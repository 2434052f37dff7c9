//! Takes secrets out of text that is to be shown to others.
//!
//! Whatever is long enough to be a key goes, unless it is known to be public; so does the value of
//! every key that is named like a secret. Too much is taken out rather than too little.

/// What stands for what was taken out.
pub(crate) const REMOVED: &str = "[removed]";

/// Length from which a word may be a key: 32 bytes have 43 characters in base64 and 64 in
/// hexadecimal, and a token is longer.
const KEY_LEN: usize = 40;

/// Words in names of secrets.
const SECRETS: [&str; 8] =
    ["private", "preshared", "psk", "password", "passwd", "passphrase", "secret", "token"];

/// Endings of names whose values only tell where a secret is.
const PLACES: [&str; 4] = ["_file", "_path", "_dir", "-file"];

/// `text` without secrets. Words in `public` stay.
pub(crate) fn redact(text: &str, public: &[String]) -> String {
    let mut out = String::with_capacity(text.len());
    for line in text.split_inclusive('\n') {
        let (body, end) = line.strip_suffix('\n').map_or((line, ""), |body| (body, "\n"));
        out.push_str(&words(&values(&passwords_in_addresses(body)), public));
        out.push_str(end);
    }
    out
}

/// Takes out words that may be keys.
fn words(line: &str, public: &[String]) -> String {
    let is_of_key = |c: char| c.is_ascii_alphanumeric() || "+/=_-".contains(c);
    let mut out = String::with_capacity(line.len());
    let mut rest = line;
    while let Some(start) = rest.find(is_of_key) {
        let (before, from) = rest.split_at(start);
        let (word, after) = from.split_at(from.find(|c: char| !is_of_key(c)).unwrap_or(from.len()));
        out.push_str(before);
        // `key=VALUE` is one word here.
        let known = |public: &String| word == public || word.ends_with(&format!("={public}"));
        let harmless = word.len() < KEY_LEN || public.iter().any(known);
        out.push_str(if harmless { word } else { REMOVED });
        rest = after;
    }
    out + rest
}

/// Takes out the values of keys that are named like secrets: `key = value`, `"key": value`,
/// `key=value`, `--key value`.
fn values(line: &str) -> String {
    let is_of_name = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    let mut out = String::new();
    let mut rest = line;
    while let Some(start) = rest.find(is_of_name) {
        let (before, from) = rest.split_at(start);
        let (name, after) =
            from.split_at(from.find(|c: char| !is_of_name(c)).unwrap_or(from.len()));
        out.push_str(before);
        out.push_str(name);
        rest = after;
        if !is_secret(name) {
            continue;
        }
        let value = value_in(after, name.starts_with("--"));
        let Some((gap, len)) = value else { continue };
        out.push_str(&after[..gap]);
        out.push_str(REMOVED);
        rest = &after[gap + len..];
    }
    out + rest
}

fn is_secret(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    SECRETS.iter().any(|word| name.contains(word)) && !PLACES.iter().any(|end| name.ends_with(end))
}

/// Where the value begins behind a name, and its length; `None` if there is none. `option`: a
/// space is enough between them.
fn value_in(after: &str, option: bool) -> Option<(usize, usize)> {
    let quote = |c: char| c == '"' || c == '\'';
    // The name's own closing quote.
    let mut at = after.len() - after.trim_start_matches(quote).len();
    let spaces = |at: usize| after[at..].len() - after[at..].trim_start().len();
    at += spaces(at);
    let rest = &after[at..];
    match rest.chars().next()? {
        '=' | ':' => at += 1,
        _ if option => {}
        _ => return None,
    }
    at += spaces(at);
    let rest = &after[at..];
    let first = rest.chars().next()?;
    let len = match first {
        '"' | '\'' => closing(rest, first),
        // Whatever is in a list or table may be a secret.
        '[' | '{' => rest.len(),
        _ => rest.find([',', '}', ']', '"']).unwrap_or(rest.len()),
    };
    Some((at, len))
}

/// Length of the text in quotes at the beginning of `text`, both quotes included.
fn closing(text: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            '\\' if !escaped => escaped = true,
            c if c == quote && !escaped => return at + 1,
            _ => escaped = false,
        }
    }
    text.len()
}

/// Takes `USER:PASSWORD@` out of addresses.
fn passwords_in_addresses(line: &str) -> String {
    let mut out = String::new();
    let mut rest = line;
    while let Some((before, after)) = rest.split_once("://") {
        out.push_str(before);
        out.push_str("://");
        let host = after.find(|c: char| "/ \"'".contains(c)).unwrap_or(after.len());
        match after[..host].rfind('@') {
            Some(at) => {
                out.push_str(REMOVED);
                rest = &after[at..];
            }
            None => rest = after,
        }
    }
    out + rest
}

#[cfg(test)]
mod tests {
    use mpip_crypto::{PresharedKey, PrivateKey, Rng};

    use super::*;

    /// Everything that must never be seen, made anew for each seed.
    fn secrets(seed: u8) -> Vec<String> {
        let mut rng = Rng::new([seed; 32]);
        let private = PrivateKey::generate(&mut rng).secret_base64().to_string();
        let preshared = PresharedKey::generate(&mut rng).secret_base64().to_string();
        let url_safe = private.replace('+', "-").replace('/', "_").replace('=', "");
        let hexadecimal: String =
            private.bytes().take(32).map(|byte| format!("{byte:02x}")).collect();
        let token = format!("mpip1{}{}", url_safe, preshared.replace(['+', '/', '='], "x"));
        vec![private, preshared, url_safe, hexadecimal, token]
    }

    #[test]
    fn no_key_survives_in_a_configuration_a_status_or_a_log() {
        for seed in 0..50 {
            for secret in secrets(seed) {
                let texts = [
                    // Configuration, right and wrong.
                    format!("private_key = \"{secret}\""),
                    format!("preshared_key='{secret}'   # {secret}"),
                    format!("private_key_file = \"{secret}\""),
                    format!("# old key: {secret}\n[node]\nlisten_port = 6182 # {secret}"),
                    format!("whatever = [\"{secret}\", \"{secret}\"]"),
                    // Status and events.
                    format!("{{\"token\":\"{secret}\",\"name\":\"laptop\"}}"),
                    format!("{{\"events\":[{{\"message\":\"joined by {secret}\"}}]}}"),
                    // Log and command line.
                    format!("2026-11-25T02:00:00.000Z ERROR `{secret}` is no key"),
                    format!("ExecStart=/usr/bin/mpip join {secret} --default-route"),
                    format!("key={secret},psk={secret}"),
                    format!("({secret})"),
                ];
                for text in texts {
                    let shown = redact(&text, &[]);
                    assert!(!shown.contains(&secret), "{shown}");
                    // Nor a part that is long enough to help.
                    assert!(!shown.contains(&secret[..16]), "{shown}");
                }
            }
        }
    }

    #[test]
    fn short_secrets_are_known_by_their_names() {
        for (text, expected) in [
            ("password = \"hunter2\"", "password = [removed]"),
            ("password = 'a\"b'  # c", "password = [removed]  # c"),
            ("password = \"a\\\"b\" # c", "password = [removed] # c"),
            ("web_password=hunter2", "web_password=[removed]"),
            ("{\"api_token\": \"x y\", \"port\": 1}", "{\"api_token\": [removed], \"port\": 1}"),
            ("--password hunter2", "--password [removed]"),
            ("PSK: abc def", "PSK: [removed]"),
            ("secrets = [\"a\", \"b\"]", "secrets = [removed]"),
            ("see https://user:pass@198.18.0.1/x", "see https://[removed]@198.18.0.1/x"),
            ("private_key_file = \"mpip0.key\"", "private_key_file = \"mpip0.key\""),
            ("the token was used already", "the token was used already"),
            ("password =", "password ="),
        ] {
            assert_eq!(redact(text, &[]), expected);
        }
    }

    #[test]
    fn what_is_public_or_ordinary_stays() {
        let public = PrivateKey::generate(&mut Rng::new([1; 32])).public_key().to_string();
        let text = format!(
            "public_key = \"{public}\"\nendpoints = [\"198.51.100.2:6182\", \"[2001:db8::2]:6182\"]\n\
             node 2001:2f:2de5:e03d:132b:266d:c4fb:76ed, path 3 (eth1)\n"
        );
        assert_eq!(redact(&text, &[public]), text);
    }
}
