//! Which requests may be answered at all: those that a browser makes for our own page.
//!
//! A page of somebody else may make the user's browser send requests here. Three checks keep it
//! from reading or changing anything:
//!
//! - **Host**: a name that an attacker makes point here (DNS rebinding) is not ours. An address
//!   literal cannot be made to point elsewhere, so it is accepted.
//! - **Origin** and **Sec-Fetch-Site**: which page the browser makes the request for.
//! - **Content type**: a form of another page cannot send JSON without asking first (CORS).

use std::net::{IpAddr, Ipv6Addr};

use hyper::header::{CONTENT_TYPE, HOST, HeaderMap, HeaderName, HeaderValue, ORIGIN};
use hyper::http::uri::Authority;

/// Why a request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// It is for a host that this program is not.
    Host,
    /// Another page asks.
    CrossSite,
    /// A change that is not JSON.
    ContentType,
}

impl Refusal {
    pub(super) fn words(self) -> &'static str {
        match self {
            Self::Host => {
                "expected an address, localhost or a name given with --name as the host of the \
                 request"
            }
            Self::CrossSite => "another page made this request",
            Self::ContentType => "expected content of type application/json",
        }
    }
}

/// The only value of a header; none if there is no or several.
fn only<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    let mut values = headers.get_all(name).iter();
    let value = values.next()?.to_str().ok()?;
    values.next().is_none().then_some(value)
}

/// Checks the host that a request is for, and returns it. `names`: those that are ours beside
/// addresses and `localhost`.
pub(super) fn host<'a>(headers: &'a HeaderMap, names: &[String]) -> Result<&'a str, Refusal> {
    let value = only(headers, &HOST).ok_or(Refusal::Host)?;
    let authority: Authority = value.parse().map_err(|_| Refusal::Host)?;
    if value.contains('@') {
        return Err(Refusal::Host);
    }
    let host = authority.host();
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    let is_address = match bare {
        Some(bare) => bare.parse::<Ipv6Addr>().is_ok(),
        None => host.parse::<IpAddr>().is_ok(),
    };
    let known = || {
        let name = host.strip_suffix('.').unwrap_or(host);
        name.eq_ignore_ascii_case("localhost")
            || names.iter().any(|ours| ours.eq_ignore_ascii_case(name))
    };
    if is_address || known() { Ok(value) } else { Err(Refusal::Host) }
}

/// Checks that no other page reads. Programs that are no browsers do not say for whom they ask.
pub(super) fn reads(headers: &HeaderMap) -> Result<(), Refusal> {
    match headers.get("sec-fetch-site").map(HeaderValue::as_bytes) {
        None | Some(b"same-origin" | b"none") => Ok(()),
        Some(_) => Err(Refusal::CrossSite),
    }
}

/// Checks that our own page changes something; `host` is that of the request.
pub(super) fn changes(headers: &HeaderMap, host: &str) -> Result<(), Refusal> {
    reads(headers)?;
    let origin = only(headers, &ORIGIN).ok_or(Refusal::CrossSite)?;
    // A proxy in front of us may speak TLS.
    let from = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
    if !from.is_some_and(|from| from.eq_ignore_ascii_case(host)) {
        return Err(Refusal::CrossSite);
    }
    match only(headers, &CONTENT_TYPE) {
        Some("application/json") => Ok(()),
        _ => Err(Refusal::ContentType),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(list: &[(&'static str, &str)]) -> HeaderMap {
        let mut map = HeaderMap::new();
        for (name, value) in list {
            map.append(*name, value.parse().expect("a value"));
        }
        map
    }

    #[test]
    fn a_name_that_is_not_ours_is_refused_whatever_it_points_to() {
        let names = ["gw.example".to_owned()];
        for ours in [
            "127.0.0.1:6183",
            "[::1]:6183",
            "198.18.0.1",
            "localhost:6183",
            "LOCALHOST.",
            "GW.example:80",
        ] {
            let map = headers(&[("host", ours)]);
            assert_eq!(host(&map, &names), Ok(ours));
        }
        for other in [
            "evil.example:6183",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "x@127.0.0.1",
            "[evil.example]",
            "gw.example.evil",
            "",
        ] {
            let map = headers(&[("host", other)]);
            assert_eq!(host(&map, &names), Err(Refusal::Host), "{other}");
        }
        assert_eq!(host(&headers(&[]), &names), Err(Refusal::Host));
        let two = headers(&[("host", "127.0.0.1"), ("host", "127.0.0.1")]);
        assert_eq!(host(&two, &names), Err(Refusal::Host));
    }

    #[test]
    fn another_page_reads_nothing() {
        assert_eq!(reads(&headers(&[])), Ok(()), "curl, Prometheus");
        for (site, expected) in [
            ("same-origin", Ok(())),
            ("none", Ok(())),
            ("same-site", Err(Refusal::CrossSite)),
            ("cross-site", Err(Refusal::CrossSite)),
        ] {
            assert_eq!(reads(&headers(&[("sec-fetch-site", site)])), expected);
        }
    }

    #[test]
    fn only_our_own_page_changes_something() {
        let json = ("content-type", "application/json");
        let host = "127.0.0.1:6183";
        let ask = |list: &[(&'static str, &str)]| changes(&headers(list), host);
        assert_eq!(ask(&[json, ("origin", "http://127.0.0.1:6183")]), Ok(()));
        assert_eq!(ask(&[json, ("origin", "https://127.0.0.1:6183")]), Ok(()), "behind TLS");
        for origin in ["http://127.0.0.1", "http://evil.example", "null", "127.0.0.1:6183"] {
            assert_eq!(ask(&[json, ("origin", origin)]), Err(Refusal::CrossSite), "{origin}");
        }
        assert_eq!(ask(&[json]), Err(Refusal::CrossSite), "no origin");
        let twice =
            [json, ("origin", "http://127.0.0.1:6183"), ("origin", "http://127.0.0.1:6183")];
        assert_eq!(ask(&twice), Err(Refusal::CrossSite));
        let site = ("sec-fetch-site", "cross-site");
        let claimed = [json, ("origin", "http://127.0.0.1:6183"), site];
        assert_eq!(ask(&claimed), Err(Refusal::CrossSite));
        let form = ("content-type", "application/x-www-form-urlencoded");
        let posted = [form, ("origin", "http://127.0.0.1:6183")];
        assert_eq!(ask(&posted), Err(Refusal::ContentType));
    }
}
