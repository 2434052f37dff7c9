use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::sync::Arc;

use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::{Request, Response, StatusCode};

use super::*;

const HOST: &str = "127.0.0.1:6183";
const PASSWORD: &str = "correct horse";

fn site(password: Option<&str>) -> Arc<Site> {
    let socket = PathBuf::from("/nonexistent/mpip0.sock");
    Site::new(&socket, Vec::new(), password.map(Password::new))
}

/// Status, headers and text of what `site` answers.
fn ask(
    site: &Site,
    request: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> (u16, Response<String>) {
    let (method, path) = request.split_once(' ').expect("method and path");
    let mut builder = Request::builder().method(method).uri(path);
    if !headers.iter().any(|(name, _)| *name == "host") {
        builder = builder.header("host", HOST);
    }
    for (name, value) in headers {
        builder = builder.header(*name, *value);
    }
    let request = builder.body(Full::new(Bytes::from(body.to_owned()))).expect("a request");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(async {
        let (head, body) = site.answer(request).await.into_parts();
        let body = body.collect().await.expect("whole").to_bytes();
        let text = String::from_utf8(body.to_vec()).expect("text");
        (head.status.as_u16(), Response::from_parts(head, text))
    })
}

/// The headers with which our page sends changes.
const OURS: [(&str, &str); 2] =
    [("origin", "http://127.0.0.1:6183"), ("content-type", "application/json")];

fn log_in(site: &Site, password: &str) -> (u16, Response<String>) {
    let body = serde_json::json!({ "password": password }).to_string();
    ask(site, "POST /login", &OURS, &body)
}

#[test]
fn the_page_is_served_with_a_policy_that_permits_only_its_own_files() {
    for asset in &page::ASSETS {
        let (status, answer) = ask(&site(None), &format!("GET {}", asset.path), &[], "");
        assert_eq!(status, 200);
        assert_eq!(answer.headers()["content-type"], asset.content_type);
        let policy = answer.headers()["content-security-policy"].to_str().expect("text");
        assert!(policy.starts_with("default-src 'none'; script-src 'self';"), "{policy}");
        assert!(!policy.contains("unsafe"), "{policy}");
        assert_eq!(answer.headers()["x-content-type-options"], "nosniff");
        assert_eq!(answer.body(), asset.text);
    }
}

#[test]
fn nothing_is_answered_for_a_name_that_is_not_ours() {
    for path in ["/", "/session", "/live", "/metrics"] {
        let (status, answer) =
            ask(&site(None), &format!("GET {path}"), &[("host", "evil.example:6183")], "");
        assert_eq!(status, StatusCode::MISDIRECTED_REQUEST, "{path}");
        assert!(answer.body().starts_with("expected an address, localhost or "), "{path}");
    }
}

#[test]
fn another_page_gets_no_data_and_changes_nothing() {
    let site = site(Some(PASSWORD));
    for path in ["/session", "/live", "/metrics"] {
        let foreign = [("sec-fetch-site", "cross-site")];
        assert_eq!(ask(&site, &format!("GET {path}"), &foreign, "").0, 403, "{path}");
    }
    let body = serde_json::json!({ "password": PASSWORD }).to_string();
    let foreign = [("origin", "http://evil.example"), ("content-type", "application/json")];
    for path in ["/login", "/logout"] {
        assert_eq!(ask(&site, &format!("POST {path}"), &foreign, &body).0, 403, "{path}");
        let form = [OURS[0], ("content-type", "text/plain")];
        assert_eq!(ask(&site, &format!("POST {path}"), &form, &body).0, 415, "{path}");
        assert_eq!(ask(&site, &format!("POST {path}"), &[OURS[1]], &body).0, 403, "{path}");
    }
}

#[test]
fn without_a_password_everybody_on_this_host_reads() {
    let site = site(None);
    let (status, answer) = ask(&site, "GET /session", &[], "");
    assert_eq!(status, 200);
    let expected = r#"{"may_read":true,"password":false,"token":null}"#;
    assert_eq!(answer.body(), expected);
    let (status, answer) = ask(&site, "GET /metrics", &[], "");
    assert_eq!((status, answer.body().lines().last()), (200, Some("mpip_up 0")));
    let kind = &answer.headers()["content-type"];
    assert_eq!(kind, "text/plain; version=0.0.4; charset=utf-8");
    assert_eq!(log_in(&site, "").0, 403, "no password is not an empty one");
}

#[test]
fn with_a_password_only_who_gives_it_reads() {
    let site = site(Some(PASSWORD));
    assert_eq!(ask(&site, "GET /", &[], "").0, 200, "the question for the password");
    for path in ["/live", "/metrics"] {
        assert_eq!(ask(&site, &format!("GET {path}"), &[], "").0, 401, "{path}");
        let guessed = [("cookie", "mpip-login=0000")];
        assert_eq!(ask(&site, &format!("GET {path}"), &guessed, "").0, 401, "{path}");
    }
    assert_eq!(log_in(&site, "wrong horse").0, 403);
    let (status, answer) = log_in(&site, PASSWORD);
    assert_eq!(status, 200);
    let cookie = answer.headers()["set-cookie"].to_str().expect("text");
    assert!(cookie.ends_with("; Path=/; HttpOnly; SameSite=Strict"), "{cookie}");
    let ours = cookie.split(';').next().expect("a pair");
    let several = format!("other=1; {ours}; more=2");
    let (_, session) = ask(&site, "GET /session", &[("cookie", &several)], "");
    let token = serde_json::from_str::<serde_json::Value>(answer.body()).expect("JSON");
    let token = token["token"].as_str().expect("a token");
    assert!(session.body().contains(&format!("\"token\":\"{token}\"")), "{session:?}");
    assert_eq!(ask(&site, "GET /metrics", &[("cookie", ours)], "").0, 200);
    let leave = [OURS[0], OURS[1], ("cookie", ours)];
    assert_eq!(ask(&site, "POST /logout", &leave, "{}").0, 200);
    assert_eq!(ask(&site, "GET /metrics", &[("cookie", ours)], "").0, 401, "logged out");
}

#[test]
fn a_change_needs_password_cookie_and_token() {
    let change = r#"{"interface":"wwan0","state":"standby"}"#;
    let (status, answer) = ask(&site(None), "POST /path", &OURS, change);
    assert_eq!((status, answer.body().as_str()), (403, "read-only: no password is set"));
    let site = site(Some(PASSWORD));
    assert_eq!(ask(&site, "POST /path", &OURS, change).0, 401);
    let (_, answer) = log_in(&site, PASSWORD);
    let cookie = answer.headers()["set-cookie"].to_str().expect("text").to_owned();
    let cookie = cookie.split(';').next().expect("a pair");
    let json: serde_json::Value = serde_json::from_str(answer.body()).expect("JSON");
    let token = json["token"].as_str().expect("a token");
    let with = |headers: &[(&str, &str)], body: &str| {
        let all = [&OURS[..], headers].concat();
        ask(&site, "POST /path", &all, body)
    };
    let (both, no_daemon) = ([("cookie", cookie), ("x-mpip-token", token)], 409);
    assert_eq!(with(&[both[0]], change).0, 401, "a page of others cannot know the token");
    assert_eq!(with(&[both[1]], change).0, 401);
    assert_eq!(with(&[both[0], ("x-mpip-token", cookie)], change).0, 401);
    let basic = [("authorization", "Basic cHJvbWV0aGV1czpjb3JyZWN0IGhvcnNl"), both[1]];
    assert_eq!(with(&basic, change).0, 401, "a browser would send it for other pages too");
    let (status, answer) = with(&both, change);
    assert_eq!(status, no_daemon);
    assert!(answer.body().starts_with("no daemon runs: "), "{answer:?}");
    for wrong in [
        "{}",
        r#"{"interface":"wwan0","state":"off"}"#,
        r#"{"interface":"wwan0","state":"standby","for_s":"long"}"#,
        r#"{"interface":"wwan0","state":"standby","for_s":-1}"#,
    ] {
        assert_eq!(with(&both, wrong).0, 400, "{wrong}");
    }
}

#[test]
fn a_change_reaches_the_daemon_with_the_time_for_which_it_holds() {
    let directory = mpip_testing::Directory::new();
    let socket = directory.join("mpip0.sock");
    let listener = UnixListener::bind(&socket).expect("the temporary directory is writable");
    let site = Site::new(&socket, Vec::new(), Some(Password::new(PASSWORD)));
    let (_, answer) = log_in(&site, PASSWORD);
    let cookie = answer.headers()["set-cookie"].to_str().expect("text").to_owned();
    let json: serde_json::Value = serde_json::from_str(answer.body()).expect("JSON");
    let token = json["token"].as_str().expect("a token").to_owned();
    for (more, for_s) in [("", None), (r#","for_s":3600"#, Some(3_600))] {
        let body = format!(r#"{{"interface":"wwan0","state":"standby"{more}}}"#);
        let headers = [OURS[0], OURS[1], ("cookie", &*cookie), ("x-mpip-token", &*token)];
        let heard = std::thread::scope(|threads| {
            let daemon = threads.spawn(|| {
                let (mut stream, _) = listener.accept().expect("a client");
                let mut line = String::new();
                let mut reader = BufReader::new(stream.try_clone().expect("clones"));
                reader.read_line(&mut line).expect("a line");
                let answer = mpip_api::Response::Done.to_line();
                stream.write_all(answer.as_bytes()).expect("it reads");
                mpip_api::Request::parse(line.trim_end().as_bytes()).expect("a request")
            });
            assert_eq!(ask(&site, "POST /path", &headers, &body).0, 200);
            daemon.join().expect("it heard it")
        });
        let (interface, state) = ("wwan0".to_owned(), Some("standby".to_owned()));
        let settings = [].into();
        assert_eq!(heard, mpip_api::Request::SetPath { interface, state, settings, for_s });
    }
}

#[test]
fn a_scraper_gives_the_password_by_basic_authentication_and_reads_metrics_only() {
    let site = site(Some(PASSWORD));
    // prometheus:correct horse, and prometheus:wrong
    let right = [("authorization", "Basic cHJvbWV0aGV1czpjb3JyZWN0IGhvcnNl")];
    let wrong = [("authorization", "Basic cHJvbWV0aGV1czp3cm9uZw==")];
    assert_eq!(ask(&site, "GET /metrics", &right, "").0, 200);
    let (status, answer) = ask(&site, "GET /metrics", &wrong, "");
    assert_eq!(status, 401);
    assert_eq!(answer.headers()["www-authenticate"], "Basic realm=\"mpip\"");
    assert_eq!(ask(&site, "GET /live", &right, "").0, 401);
}

#[test]
fn who_guesses_has_to_wait() {
    let site = site(Some(PASSWORD));
    let answers: Vec<u16> = (0..6).map(|_| log_in(&site, "wrong horse").0).collect();
    assert_eq!(answers[..5], [403; 5]);
    // On a machine that pauses, a try may have been added meanwhile.
    let refused = (0..50).any(|_| log_in(&site, "wrong horse").0 == 429);
    assert!(refused || answers[5] == 429, "{answers:?}");
}

#[test]
fn what_is_too_long_or_no_json_is_refused() {
    let site = site(Some(PASSWORD));
    let long = serde_json::json!({ "password": "x".repeat(5_000) }).to_string();
    for body in ["", "[]", "{\"password\":3}", long.as_str()] {
        let (status, answer) = ask(&site, "POST /login", &OURS, body);
        assert_eq!((status, answer.body().as_str()), (400, "expected a password"));
    }
    assert_eq!(ask(&site, "PUT /", &[], "").0, 405);
    assert_eq!(ask(&site, "GET /../etc/passwd", &[], "").0, 404);
    assert_eq!(ask(&site, "POST /else", &OURS, "{}").0, 404);
}

#[test]
fn others_reach_the_page_only_with_a_password() {
    let listen: SocketAddr = "198.18.0.1:6183".parse().expect("valid");
    let options = Options { listen, password_file: None, names: Vec::new() };
    let words = serve(Path::new("/nonexistent"), &options).expect_err("refused").to_string();
    assert!(words.starts_with("expected --password-file, because 198.18.0.1 "), "{words}");
}
