//! What each address of the page answers.

use std::convert::Infallible;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http_body_util::channel::{Channel, Sender};
use http_body_util::{BodyExt, Either, Full, Limited};
use hyper::body::{Body, Bytes};
use hyper::header::{self, HeaderMap, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};
use serde::Deserialize;
use serde_json::json;
use tokio::sync::broadcast::error::RecvError;

use super::guard::{self, Refusal};
use super::live::{Feed, Viewer};
use super::login::{Login, Logins, Password};
use super::page::ASSETS;
use crate::metrics;

/// Longest body of a request, in bytes.
const BODY: usize = 4 << 10;

/// Longest time for the body of a request, and for a message to an open page.
const TIMEOUT: Duration = Duration::from_secs(20);

/// The name of the cookie. Browsers send it to every port of a host, so it has the program's name.
const COOKIE: &str = "mpip-login";

/// The header in which the page sends its token.
const TOKEN: &str = "x-mpip-token";

/// Headers of every answer: only this page's own files, in no frame, and nothing is kept.
const HEADERS: [(header::HeaderName, &str); 6] = [
    (
        header::CONTENT_SECURITY_POLICY,
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
         connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::X_FRAME_OPTIONS, "DENY"),
    (header::REFERRER_POLICY, "no-referrer"),
    (header::CACHE_CONTROL, "no-store"),
    (header::HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
];

pub(super) type Answer = Response<Either<Full<Bytes>, Channel<Bytes, Infallible>>>;

/// The body of a request.
pub(super) trait Content:
    Body<Error: Into<Box<dyn std::error::Error + Send + Sync>>>
{
}

impl<B: Body<Error: Into<Box<dyn std::error::Error + Send + Sync>>>> Content for B {}

/// Everything that the page is made of.
#[derive(Debug)]
pub(super) struct Site {
    socket: PathBuf,
    /// Names that are ours.
    names: Vec<String>,
    password: Option<Password>,
    logins: Mutex<Logins>,
    feed: Arc<Feed>,
}

impl Site {
    pub(super) fn new(socket: &Path, names: Vec<String>, password: Option<Password>) -> Arc<Self> {
        Arc::new(Self {
            socket: socket.to_owned(),
            names,
            password,
            logins: Mutex::new(Logins::new(Instant::now())),
            feed: Feed::new(socket.to_owned()),
        })
    }

    /// Answers a request. Never fails: what is wrong is an answer, too.
    pub(super) async fn answer<B: Content>(&self, request: Request<B>) -> Answer {
        let mut answer = match guard::host(request.headers(), &self.names) {
            Ok(_) => self.route(request).await,
            Err(refusal) => refused(refusal),
        };
        for (name, value) in HEADERS {
            answer.headers_mut().insert(name, HeaderValue::from_static(value));
        }
        answer
    }

    async fn route<B: Content>(&self, request: Request<B>) -> Answer {
        let path = request.uri().path();
        if request.method() == Method::POST {
            return match path {
                "/login" => self.log_in(request).await,
                "/logout" => self.log_out(&request),
                "/path" => self.set_path(request).await,
                _ => text(StatusCode::NOT_FOUND, "there is nothing to change here"),
            };
        }
        if request.method() != Method::GET {
            return text(StatusCode::METHOD_NOT_ALLOWED, "expected GET or POST");
        }
        if let Some(asset) = ASSETS.iter().find(|asset| asset.path == path) {
            let mut answer = full(StatusCode::OK, asset.text);
            let kind = HeaderValue::from_static(asset.content_type);
            answer.headers_mut().insert(header::CONTENT_TYPE, kind);
            return answer;
        }
        if let Err(refusal) = guard::reads(request.headers()) {
            return refused(refusal);
        }
        match path {
            "/session" => self.session(request.headers()),
            "/live" if self.may_read(request.headers()) => self.live(),
            "/metrics" if self.may_read(request.headers()) || self.is_basic(request.headers()) => {
                self.metrics().await
            }
            "/live" => text(StatusCode::UNAUTHORIZED, "expected a login"),
            "/metrics" => {
                let mut answer = text(StatusCode::UNAUTHORIZED, "expected the password");
                let scheme = HeaderValue::from_static("Basic realm=\"mpip\"");
                answer.headers_mut().insert(header::WWW_AUTHENTICATE, scheme);
                answer
            }
            _ => text(StatusCode::NOT_FOUND, "there is no such page"),
        }
    }

    fn logins(&self) -> MutexGuard<'_, Logins> {
        self.logins.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The login that a request has.
    fn login(&self, headers: &HeaderMap) -> Option<Login> {
        let cookie = cookie(headers)?;
        self.logins().find(Instant::now(), cookie).cloned()
    }

    fn may_read(&self, headers: &HeaderMap) -> bool {
        self.password.is_none() || self.login(headers).is_some()
    }

    /// Whether a request has the password by HTTP's basic authentication, as Prometheus sends it.
    /// It may read only.
    fn is_basic(&self, headers: &HeaderMap) -> bool {
        let given = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
        let Some(given) = given.and_then(|given| given.strip_prefix("Basic ")) else {
            return false;
        };
        let Ok(decoded) = STANDARD.decode(given.trim()) else { return false };
        let decoded = String::from_utf8_lossy(&decoded);
        let Some((_, password)) = decoded.split_once(':') else { return false };
        self.try_password(password) == Ok(true)
    }

    /// Whether `given` is the password; an error if there are too many tries.
    fn try_password(&self, given: &str) -> Result<bool, ()> {
        let Some(password) = &self.password else { return Ok(false) };
        if !self.logins().attempt(Instant::now()) {
            return Err(());
        }
        Ok(password.matches(given))
    }

    fn session(&self, headers: &HeaderMap) -> Answer {
        let login = self.login(headers);
        as_json(&json!({
            "password": self.password.is_some(),
            "may_read": self.password.is_none() || login.is_some(),
            "token": login.map(|login| login.token),
        }))
    }

    fn live(&self) -> Answer {
        let Some(viewer) = self.feed.view() else {
            return text(StatusCode::SERVICE_UNAVAILABLE, "no thread could be started");
        };
        let (sender, body) = Channel::new(1);
        tokio::spawn(forward(viewer, sender));
        let mut answer = Response::new(Either::Right(body));
        let kind = HeaderValue::from_static("text/event-stream");
        answer.headers_mut().insert(header::CONTENT_TYPE, kind);
        answer
    }

    async fn metrics(&self) -> Answer {
        let socket = self.socket.clone();
        let asked = tokio::task::spawn_blocking(move || mpip_api::status(&socket, false)).await;
        let page = match asked {
            Ok(Ok(status)) => metrics::render(&status),
            _ => metrics::down(),
        };
        let mut answer = full(StatusCode::OK, page);
        let kind = HeaderValue::from_static(metrics::CONTENT_TYPE);
        answer.headers_mut().insert(header::CONTENT_TYPE, kind);
        answer
    }

    async fn log_in<B: Content>(&self, request: Request<B>) -> Answer {
        #[derive(Deserialize)]
        struct Given {
            password: String,
        }
        if let Err(refusal) = self.may_change(request.headers()) {
            return refused(refusal);
        }
        let Some(Given { password }) = body(request).await else {
            return text(StatusCode::BAD_REQUEST, "expected a password");
        };
        match self.try_password(&password) {
            Err(()) => text(StatusCode::TOO_MANY_REQUESTS, "too many tries: wait two seconds"),
            Ok(false) => text(StatusCode::FORBIDDEN, "this is not the password"),
            Ok(true) => match self.logins().begin(Instant::now()) {
                Ok(login) => {
                    let cookie =
                        format!("{COOKIE}={}; Path=/; HttpOnly; SameSite=Strict", login.cookie);
                    with_cookie(as_json(&json!({ "token": login.token })), &cookie)
                }
                Err(failure) => text(StatusCode::INTERNAL_SERVER_ERROR, failure.to_string()),
            },
        }
    }

    fn log_out<B>(&self, request: &Request<B>) -> Answer {
        if let Err(refusal) = self.may_change(request.headers()) {
            return refused(refusal);
        }
        if let Some(cookie) = cookie(request.headers()) {
            self.logins().end(cookie);
        }
        let gone = format!("{COOKIE}=; Path=/; HttpOnly; SameSite=Strict; Max-Age=0");
        with_cookie(as_json(&json!({})), &gone)
    }

    /// Whether our own page asks.
    fn may_change(&self, headers: &HeaderMap) -> Result<(), Refusal> {
        guard::changes(headers, guard::host(headers, &self.names)?)
    }

    /// Puts the paths of an interface on standby, or uses them again.
    async fn set_path<B: Content>(&self, request: Request<B>) -> Answer {
        #[derive(Deserialize)]
        struct Wanted {
            interface: String,
            state: String,
            /// Seconds for which the state holds; `None`: until the daemon ends or reloads.
            #[serde(default)]
            for_s: Option<u64>,
        }
        if let Err(refusal) = self.may_change(request.headers()) {
            return refused(refusal);
        }
        if self.password.is_none() {
            return text(StatusCode::FORBIDDEN, "read-only: no password is set");
        }
        let token = request.headers().get(TOKEN).and_then(|value| value.to_str().ok());
        let login = self.login(request.headers());
        if !login.is_some_and(|login| token.is_some_and(|token| login.permits(token))) {
            return text(StatusCode::UNAUTHORIZED, "expected a login");
        }
        let Some(Wanted { interface, state, for_s }) = body(request).await else {
            let expected = "expected an interface, a state and possibly for_s in seconds";
            return text(StatusCode::BAD_REQUEST, expected);
        };
        // `off` would also need a way back from a page that may be reached by that very interface.
        if !matches!(state.as_str(), "active" | "standby") {
            return text(StatusCode::BAD_REQUEST, "state: expected active or standby");
        }
        let socket = self.socket.clone();
        let (state, settings) = (Some(state), [].into());
        let change = mpip_api::Request::SetPath { interface, state, settings, for_s };
        let asked = tokio::task::spawn_blocking(move || mpip_api::request(&socket, &change)).await;
        match asked {
            Ok(Ok(_)) => as_json(&json!({})),
            Ok(Err(error)) => text(StatusCode::CONFLICT, error.to_string()),
            Err(_) => text(StatusCode::INTERNAL_SERVER_ERROR, "the change broke off"),
        }
    }
}

/// Sends what the page is told until it is closed.
async fn forward(mut viewer: Viewer, mut sender: Sender<Bytes, Infallible>) {
    for message in std::mem::take(&mut viewer.first) {
        if sender.send_data(message).await.is_err() {
            return;
        }
    }
    loop {
        let message = match viewer.messages.recv().await {
            Ok(message) => message,
            Err(RecvError::Lagged(_)) => continue,
            Err(RecvError::Closed) => return,
        };
        // Who reads nothing for so long does not look.
        let sent = tokio::time::timeout(TIMEOUT, sender.send_data(message)).await;
        if !matches!(sent, Ok(Ok(()))) {
            return;
        }
    }
}

/// The body of a request as JSON of type `T`; none if it is not, too long or too slow.
async fn body<B: Content, T: serde::de::DeserializeOwned>(request: Request<B>) -> Option<T> {
    let collected = Limited::new(request.into_body(), BODY).collect();
    let collected = tokio::time::timeout(TIMEOUT, collected).await.ok()?.ok()?;
    serde_json::from_slice(&collected.to_bytes()).ok()
}

/// The value of our cookie.
fn cookie(headers: &HeaderMap) -> Option<&str> {
    let lines = headers.get_all(header::COOKIE).iter();
    let pairs = lines.filter_map(|value| value.to_str().ok()).flat_map(|line| line.split(';'));
    let mut pairs = pairs.filter_map(|pair| pair.trim().split_once('='));
    pairs.find(|(name, _)| *name == COOKIE).map(|(_, value)| value)
}

fn full(status: StatusCode, content: impl Into<Bytes>) -> Answer {
    let mut answer = Response::new(Either::Left(Full::new(content.into())));
    *answer.status_mut() = status;
    answer
}

fn text(status: StatusCode, words: impl Into<Bytes>) -> Answer {
    let mut answer = full(status, words);
    let kind = HeaderValue::from_static("text/plain; charset=utf-8");
    answer.headers_mut().insert(header::CONTENT_TYPE, kind);
    answer
}

fn refused(refusal: Refusal) -> Answer {
    let status = match refusal {
        Refusal::Host => StatusCode::MISDIRECTED_REQUEST,
        Refusal::CrossSite => StatusCode::FORBIDDEN,
        Refusal::ContentType => StatusCode::UNSUPPORTED_MEDIA_TYPE,
    };
    text(status, refusal.words())
}

fn as_json(value: &serde_json::Value) -> Answer {
    let mut answer = full(StatusCode::OK, value.to_string());
    let kind = HeaderValue::from_static("application/json");
    answer.headers_mut().insert(header::CONTENT_TYPE, kind);
    answer
}

fn with_cookie(mut answer: Answer, cookie: &str) -> Answer {
    if let Ok(value) = HeaderValue::from_str(cookie) {
        answer.headers_mut().insert(header::SET_COOKIE, value);
    }
    answer
}
