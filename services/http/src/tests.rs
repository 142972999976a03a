//! The whole service on a real socket, with a Door made of a closure.

use std::collections::BTreeSet;
use std::io::Read;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};

use nas_door::{Answered, DoorError, DoorVerb, Once};
use nas_types::object::{Conflict, ConflictKind, Oid};
use nas_types::path::TreePath;
use nas_types::verb::{STREAMED, TreeImport, TreeImported, VERBS};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;

use crate::connection::serve_control;
use crate::control::{Control, Share};
use crate::discovery::DOCUMENTS;
use crate::error::ApiError;
use crate::limits::{IMPORT_LINE_BYTES_MAX, JSON_BYTES_MAX, Options, Rate};
use crate::{ROUTES, ROUTES_STREAMED};

type Answer = dyn Fn(&str, Option<&str>, Value) -> Result<Value, DoorError> + Send + Sync;

/// Answers verbs with a closure, and notes what imports read.
struct Fake {
    answer: Box<Answer>,
    imported: Mutex<Vec<Result<Vec<u8>, std::io::ErrorKind>>>,
    import_seen: tokio::sync::Notify,
}

impl Control for Fake {
    type Caller = Option<String>;

    fn authenticate(&self, bearer: Option<&str>, peer: IpAddr) -> Result<Self::Caller, DoorError> {
        assert!(peer.is_loopback());
        match bearer {
            Some("wrong") => Err(DoorError::Unauthenticated("this token is not known; log in again".into())),
            other => Ok(other.map(str::to_owned)),
        }
    }

    fn share(&self, caller: &Self::Caller) -> Share {
        match caller.as_deref() {
            None => Share::Nobody,
            Some(token) => token.parse().map_or(Share::Owner, Share::Run),
        }
    }

    fn call<V: DoorVerb>(&self, caller: &Self::Caller, verb: V) -> Result<V::Answer, DoorError> {
        let request = serde_json::to_value(&verb).unwrap();
        let answer = (self.answer)(V::NAME, caller.as_deref(), request)?;
        Ok(serde_json::from_value(answer).unwrap())
    }

    fn call_once<V: DoorVerb>(
        &self,
        caller: &Self::Caller,
        verb: V,
        _: &Once,
    ) -> Result<Answered<V::Answer>, DoorError> {
        self.call(caller, verb).map(|answer| Answered { answer, replayed: true })
    }

    fn tree_import(
        &self,
        _: &Self::Caller,
        request: TreeImport,
        body: &mut dyn Read,
    ) -> Result<TreeImported, DoorError> {
        if request.passphrase.reveal() != "correct horse battery" {
            return Err(DoorError::WrongPassphrase);
        }
        let mut all = Vec::new();
        let read = body.read_to_end(&mut all);
        let failed = read.is_err();
        let bytes = all.len() as u64;
        self.imported.lock().unwrap().push(read.map(|_| all).map_err(|e| e.kind()));
        self.import_seen.notify_one();
        if failed {
            return Err(DoorError::State("the upload was cut".to_owned()));
        }
        Ok(TreeImported { commit: Oid([7; 20]), record: 9, entries: 1, bytes, skipped: Vec::new() })
    }
}

/// A running server; dropping it stops it.
struct Server {
    address: SocketAddr,
    fake: Arc<Fake>,
    _stop: oneshot::Sender<()>,
}

async fn start(
    options: Options,
    answer: impl Fn(&str, Option<&str>, Value) -> Result<Value, DoorError> + Send + Sync + 'static,
) -> Server {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let fake = Arc::new(Fake {
        answer: Box::new(answer),
        imported: Mutex::default(),
        import_seen: tokio::sync::Notify::new(),
    });
    let (stop, stopped) = oneshot::channel::<()>();
    tokio::spawn(serve_control(listener, fake.clone(), options, async {
        let _ = stopped.await;
    }));
    Server { address, fake, _stop: stop }
}

fn status_answer(name: &str, _: Option<&str>, _: Value) -> Result<Value, DoorError> {
    assert_eq!(name, "box/status");
    Ok(json!({ "version": "1", "level": "none", "causes": [], "details": null }))
}

struct Reply {
    status: u16,
    head: String,
    body: String,
}

impl Reply {
    fn parse(text: &str) -> Self {
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no head in {text:?}"));
        Self { status: head[9..12].parse().unwrap(), head: head.to_lowercase(), body: body.to_owned() }
    }

    fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap()
    }

    /// The error code, after checking that the body has the one error shape.
    fn code(&self) -> String {
        let body = self.json();
        let id = body["error"]["request_id"].as_str().unwrap().to_owned();
        assert!(id.starts_with("req_") && self.head.contains(&format!("x-request-id: {id}")), "{}", self.head);
        assert!(!body["error"]["message"].as_str().unwrap().is_empty());
        assert!(body["error"]["retryable"].is_boolean());
        body["error"]["code"].as_str().unwrap().to_owned()
    }
}

/// Sends raw bytes, ends the sending side, reads to the end.
async fn raw(server: &Server, request: &[u8]) -> Reply {
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    stream.write_all(request).await.unwrap();
    let mut text = Vec::new();
    stream.read_to_end(&mut text).await.unwrap();
    Reply::parse(std::str::from_utf8(&text).unwrap())
}

async fn send(server: &Server, line: &str, headers: &str, body: &[u8]) -> Reply {
    let mut request = format!(
        "{line} HTTP/1.1\r\nhost: {}\r\nconnection: close\r\ncontent-length: {}\r\n{headers}\r\n",
        server.address,
        body.len()
    )
    .into_bytes();
    request.extend_from_slice(body);
    raw(server, &request).await
}

const JSON: &str = "content-type: application/json\r\n";
const STREAM: &str = "content-type: application/octet-stream\r\n";

/// Goal: the API and the verb list are one to one (issue: "HTTP API and CLI for these verbs, one to one").
#[test]
fn every_verb_has_a_route() {
    let verbs: BTreeSet<&str> = VERBS.iter().map(|v| v.0).collect();
    let streamed: BTreeSet<&str> = STREAMED.iter().map(|v| v.0).collect();
    assert_eq!(ROUTES.iter().copied().collect::<BTreeSet<_>>(), verbs);
    assert_eq!(ROUTES_STREAMED.iter().copied().collect::<BTreeSet<_>>(), streamed);
    assert_eq!(ROUTES.len(), verbs.len(), "a verb is in the table twice");
}

/// Goal: each route reaches the verb of its own name: none answers "unknown" and none another's name.
#[tokio::test]
async fn every_route_answers() {
    let server = start(Options::default(), |name, _, _| Err(DoorError::State(format!("reached {name}")))).await;
    for name in ROUTES {
        let reply = send(&server, &format!("POST /v1/{name}"), JSON, b"[]").await;
        assert!(matches!(reply.code().as_str(), "invalid" | "state"), "{name}: {}", reply.body);
        let reply = send(&server, &format!("GET /v1/{name}"), "", b"").await;
        assert_eq!((reply.status, reply.code().as_str()), (405, "wrong_method"), "{name}");
        assert!(reply.head.contains("allow: post"));
    }
    let reply = send(&server, "POST /v1/record/head", JSON, b"{}").await;
    assert!(reply.body.contains("reached record/head"), "{}", reply.body);
}

#[tokio::test]
async fn an_answer_has_its_headers_and_the_token_is_handed_on() {
    let server = start(Options::default(), |name, token, _| {
        assert_eq!(token, Some("nas_lease_abc"));
        status_answer(name, token, Value::Null)
    })
    .await;
    let headers = format!("{JSON}authorization: Bearer nas_lease_abc\r\n");
    let reply = send(&server, "POST /v1/box/status", &headers, b"{}").await;
    assert_eq!(reply.status, 200, "{}", reply.body);
    assert_eq!(reply.json()["level"], "none");
    for header in ["cache-control: no-store", "x-content-type-options: nosniff", "x-request-id: req_"] {
        assert!(reply.head.contains(header), "{header} is missing in {}", reply.head);
    }
    assert_eq!(send(&server, "GET /healthz", "", b"").await.status, 200);
}

/// Goal: who floods is told to wait; the owner at the same address is not, and everybody sees what is left.
#[tokio::test]
async fn rates() {
    let few = Rate { per_second: 1, burst: 2 };
    let options = Options { rate_per_run: few, rate_per_address: few, ..Options::default() };
    let server = start(options, status_answer).await;
    let headers = |token: &str| format!("{JSON}authorization: Bearer {token}\r\n");
    let (a, b, wrong, owner) =
        (headers("run_aaaaaaaaaaaa"), headers("run_bbbbbbbbbbbb"), headers("wrong"), headers("owner"));
    let call = |headers| send(&server, "POST /v1/box/status", headers, b"{}");
    // Time passes on a busy machine: a bucket that gets a call per second is empty after some, whenever that is.
    for (flood, status) in [(&a, 200), (&wrong, 401)] {
        let refused = loop {
            let reply = call(flood).await;
            if reply.status != status {
                break reply;
            }
        };
        assert_eq!((refused.status, refused.code().as_str()), (429, "busy"));
        assert!(refused.head.contains("retry-after: 1"), "{}", refused.head);
    }
    for other in [&b, &owner] {
        let reply = call(other).await;
        assert_eq!(reply.status, 200, "another's flood is paid by this one: {}", reply.body);
        assert!(reply.head.contains("ratelimit: \"calls\";r="), "{}", reply.head);
        assert!(reply.head.contains("ratelimit-policy: \"calls\";q="), "{}", reply.head);
    }
}

/// Goal: the owner sees what was asked and how it ended, series by series; nobody else sees anything.
#[tokio::test]
async fn metrics_are_the_owners() {
    let server = start(Options::default(), |name, token, request| match name {
        "record/head" => Err(DoorError::State("not now".into())),
        _ => status_answer(name, token, request),
    })
    .await;
    let bearer = |token: &str| format!("{JSON}authorization: Bearer {token}\r\n");
    for _ in 0..3 {
        send(&server, "POST /v1/box/status", &bearer("owner"), b"{}").await;
    }
    send(&server, "POST /v1/record/head", &bearer("owner"), b"{}").await;
    let seen = send(&server, "GET /metrics", &bearer("owner"), b"").await;
    assert_eq!(seen.status, 200, "{}", seen.body);
    let samples: std::collections::BTreeMap<&str, f64> = seen
        .body
        .lines()
        .filter(|line| !line.starts_with('#'))
        .map(|line| line.rsplit_once(' ').unwrap())
        .map(|(series, value)| (series, value.parse().unwrap()))
        .collect();
    for (series, value) in [
        ("nas_http_requests_total{verb=\"box/status\",class=\"2xx\"}", 3.0),
        ("nas_http_requests_total{verb=\"record/head\",class=\"4xx\"}", 1.0),
        ("nas_http_request_duration_seconds_count{verb=\"box/status\"}", 3.0),
        ("nas_http_request_duration_seconds_bucket{verb=\"box/status\",le=\"+Inf\"}", 3.0),
        ("nas_degradation_level", 0.0),
    ] {
        assert_eq!(samples.get(series), Some(&value), "{series} in {}", seen.body);
    }
    for (headers, status) in [(JSON.to_owned(), 401), (bearer("wrong"), 401), (bearer("run_aaaaaaaaaaaa"), 403)] {
        let reply = send(&server, "GET /metrics", &headers, b"").await;
        assert_eq!(reply.status, status);
        assert!(!reply.body.contains("nas_"), "{}", reply.body);
    }
}

/// Goal: a client finds its own id beside ours; what could break a log line or a header is not given back.
#[tokio::test]
async fn a_clients_request_id() {
    let server = start(Options::default(), status_answer).await;
    for (id, kept) in [("job-7.step_2", true), ("two words", false), ("\"x\"", false), (&"x".repeat(65), false)] {
        let reply = send(&server, "POST /v1/box/status", &format!("{JSON}x-request-id: {id}\r\n"), b"{}").await;
        assert_eq!(reply.status, 200);
        assert_eq!(reply.head.contains(&format!("x-client-request-id: {id}")), kept, "{}", reply.head);
        assert!(reply.head.contains("x-request-id: req_"), "{}", reply.head);
    }
}

/// Goal: a key goes beside the fields of a verb, never to the verb; a bad one and one without a token are said to be so.
#[tokio::test]
async fn idempotency_keys() {
    let server = start(Options::default(), |name, token, request| {
        assert_eq!(request, json!({}), "the key reached the verb");
        status_answer(name, token, request)
    })
    .await;
    let owner = format!("{JSON}authorization: Bearer owner\r\n");
    let call = |headers, body: &'static str| send(&server, "POST /v1/box/status", headers, body.as_bytes());
    let plain = call(&owner, "{}").await;
    assert!(plain.status == 200 && !plain.head.contains("idempotency-replayed"), "{}", plain.head);
    let keyed = call(&owner, "{\"idempotency_key\":\"k-1\"}").await;
    assert!(keyed.status == 200 && keyed.head.contains("idempotency-replayed: true"), "{}", keyed.head);
    let long = "{\"idempotency_key\":\"0123456789012345678901234567890123456789012345678901234567890123456789\"}";
    for (headers, body) in [
        (JSON, "{\"idempotency_key\":\"k-1\"}"),
        (&owner, "{\"idempotency_key\":\"\"}"),
        (&owner, "{\"idempotency_key\":\"a b\"}"),
        (&owner, "{\"idempotency_key\":7}"),
        (&owner, "{\"idempotency_key\":\"k-1\",\"x\":1}"),
        (&owner, "{\"idempotency_key\":\"k-1\",\"idempotency_key\":\"k-2\"}"),
        (&owner, long),
    ] {
        let reply = call(headers, body).await;
        assert_eq!((reply.status, reply.code().as_str()), (422, "invalid"), "{body}");
    }
}

/// Goal: who has only the address learns without a token what the box speaks; the documents name only what is served.
#[tokio::test]
async fn documents_are_for_everybody() {
    let server = start(Options::default(), |name, _, _| panic!("{name} was called")).await;
    for (path, media, text) in DOCUMENTS {
        let reply = send(&server, &format!("GET {path}"), "authorization: Bearer wrong\r\n", b"").await;
        assert_eq!((reply.status, reply.body.as_str()), (200, *text), "{path}");
        assert!(reply.head.contains(&format!("content-type: {media}")), "{path}: {}", reply.head);
        assert!(reply.head.contains("cache-control: public, max-age=3600"), "{path}: {}", reply.head);
        assert_eq!(send(&server, &format!("POST {path}"), JSON, b"{}").await.status, 405, "{path}");
    }
    let catalog: Value = send(&server, "GET /.well-known/ai-catalog.json", "", b"").await.json();
    let urls: Vec<&str> = catalog["entries"].as_array().unwrap().iter().map(|e| e["url"].as_str().unwrap()).collect();
    assert!(!urls.is_empty());
    let linked = DOCUMENTS[2].2.split("](").skip(1).map(|rest| rest.split_once(')').unwrap().0);
    for url in urls.into_iter().chain(linked) {
        assert_eq!(send(&server, &format!("GET {url}"), "", b"").await.status, 200, "{url} is named and not served");
    }
    let calls: Vec<&str> =
        DOCUMENTS[2].2.split("POST /v1/").skip(1).map(|rest| rest.split('`').next().unwrap()).collect();
    for call in calls.into_iter().filter(|call| !call.starts_with('<')) {
        assert!(ROUTES.contains(&call), "llms.txt names {call}");
    }
}

/// Goal: whatever is wrong with a request, the error has the same shape and says what to do.
#[tokio::test]
async fn bad_requests() {
    let server = start(Options::default(), status_answer).await;
    let big = vec![b' '; JSON_BYTES_MAX + 1];
    let cases: &[(&str, &str, &[u8], u16, &str)] = &[
        ("POST /v1/box/nothing", JSON, b"{}", 404, "unknown_verb"),
        ("GET /", "", b"", 404, "unknown_verb"),
        ("POST /healthz", "", b"", 405, "wrong_method"),
        ("POST /v1/box/status", "", b"{}", 415, "content_type"),
        ("POST /v1/box/status", "content-type: text/plain\r\n", b"{}", 415, "content_type"),
        ("POST /v1/box/status", JSON, b"", 400, "bad_json"),
        ("POST /v1/box/status", JSON, b"{", 400, "bad_json"),
        ("POST /v1/box/status", JSON, b"{\"x\":1}", 422, "invalid"),
        ("POST /v1/box/status", JSON, &big, 413, "too_large"),
        ("POST /v1/tree/import", JSON, b"{}\n", 415, "content_type"),
        ("POST /v1/tree/import", STREAM, b"{}", 400, "bad_json"),
        ("POST /v1/tree/import", STREAM, b"{}\n", 422, "invalid"),
        ("POST /v1/tree/import", STREAM, &big, 413, "too_large"),
    ];
    for (line, headers, body, status, code) in cases {
        let reply = send(&server, line, headers, body).await;
        assert_eq!((reply.status, reply.code().as_str()), (*status, *code), "{line} {headers:?}");
    }
    for authorization in ["Basic abc", "Bearer", "Bearer a b", "Bearer a\r\nauthorization: Bearer b", "Bearer wrong"] {
        let headers = format!("{JSON}authorization: {authorization}\r\n");
        let reply = send(&server, "POST /v1/box/status", &headers, b"{}").await;
        assert_eq!((reply.status, reply.code().as_str()), (401, "unauthenticated"), "{authorization}");
        assert!(reply.head.contains("www-authenticate: bearer"));
        assert!(!reply.body.contains("wrong"), "a token is in the answer: {}", reply.body);
    }
}

/// Goal: a browser that shows somebody else's page cannot be used against the box.
#[tokio::test]
async fn foreign_hosts_and_origins() {
    let options = Options { names: vec!["nas.local".to_owned()], ..Options::default() };
    let server = start(options, status_answer).await;
    let cases: &[(&str, u16)] = &[
        ("host: 127.0.0.1:8480", 200),
        ("host: [::1]:8480", 200),
        ("host: localhost", 200),
        ("host: NAS.local:8480", 200),
        ("host: nas.local.", 200),
        ("host: nas.local.evil.example", 421),
        ("host: evil.example:8480", 421),
        ("host: 127.0.0.1:80a", 421),
        ("host: [::1", 421),
        ("host: ", 421),
        ("host: 127.0.0.1\r\nhost: evil.example", 421),
        ("host: 127.0.0.1:1\r\norigin: http://127.0.0.1:1", 200),
        ("host: 127.0.0.1:1\r\norigin: http://127.0.0.1:2", 403),
        ("host: 127.0.0.1:1\r\norigin: http://evil.example", 403),
        ("host: 127.0.0.1:1\r\norigin: null", 403),
    ];
    for (headers, status) in cases {
        let request = format!(
            "POST /v1/box/status HTTP/1.1\r\n{headers}\r\nconnection: close\r\n{JSON}content-length: 2\r\n\r\n{{}}"
        );
        assert_eq!(raw(&server, request.as_bytes()).await.status, *status, "{headers:?}");
    }
}

/// Goal: full means later: 429 with Retry-After while every worker is at work, and 200 after.
#[tokio::test]
async fn busy() {
    let (entered, mut has_entered) = tokio::sync::mpsc::unbounded_channel();
    let (release, wait) = std::sync::mpsc::channel::<()>();
    let wait = Mutex::new(wait);
    let server = start(Options { calls_max: 1, ..Options::default() }, move |name, token, value| {
        if token == Some("slow") {
            entered.send(()).unwrap();
            let _ = wait.lock().unwrap().recv();
        }
        status_answer(name, token, value)
    })
    .await;
    let slow = format!("{JSON}authorization: Bearer slow\r\n");
    let first = send(&server, "POST /v1/box/status", &slow, b"{}");
    let second = async {
        has_entered.recv().await.unwrap();
        let reply = send(&server, "POST /v1/box/status", JSON, b"{}").await;
        release.send(()).unwrap();
        reply
    };
    let (first, second) = tokio::join!(first, second);
    assert_eq!(first.status, 200);
    assert_eq!((second.status, second.code().as_str()), (429, "busy"));
    assert!(second.head.contains("retry-after: 1"), "{}", second.head);
    assert_eq!(send(&server, "POST /v1/box/status", JSON, b"{}").await.status, 200);
}

/// Goal: one run has a cap, all runs together leave workers to the owner, and what was held is given back.
#[tokio::test]
async fn a_share_is_kept_for_the_owner() {
    let (entered, mut has_entered) = tokio::sync::mpsc::unbounded_channel();
    let (release, wait) = std::sync::mpsc::channel::<()>();
    let wait = Mutex::new(wait);
    let gate = Mutex::new(3);
    let options = Options { calls_max: 4, calls_owner_share: 1, calls_per_run_max: 2, ..Options::default() };
    let server = start(options, move |name, token, value| {
        // The first three calls of runs wait.
        let slow = token != Some("owner") && {
            let mut left = gate.lock().unwrap();
            let slow = *left > 0;
            *left -= i32::from(slow);
            slow
        };
        if slow {
            entered.send(()).unwrap();
            let _ = wait.lock().unwrap().recv();
        }
        status_answer(name, token, value)
    })
    .await;
    let [a, b, c] = ["run_aaaaaaaaaaaa", "run_bbbbbbbbbbbb", "run_cccccccccccc"]
        .map(|run| format!("{JSON}authorization: Bearer {run}\r\n"));
    let owner = format!("{JSON}authorization: Bearer owner\r\n");
    let call = |headers| send(&server, "POST /v1/box/status", headers, b"{}");
    let meanwhile = async {
        has_entered.recv().await.unwrap();
        has_entered.recv().await.unwrap();
        let over_its_cap = call(&a).await;
        let (slow, rest) = tokio::join!(call(&b), async {
            has_entered.recv().await.unwrap();
            let rest = (call(&c).await, call(JSON).await, call(&owner).await);
            (0..3).for_each(|_| release.send(()).unwrap());
            rest
        });
        (over_its_cap, slow, rest)
    };
    let (first, second, (over_its_cap, slow, (others, nobody, owners))) = tokio::join!(call(&a), call(&a), meanwhile);
    assert_eq!((first.status, second.status, slow.status), (200, 200, 200));
    for refused in [&over_its_cap, &others, &nobody] {
        assert_eq!((refused.status, refused.code().as_str()), (429, "busy"));
        assert!(refused.head.contains("retry-after: 1"), "{}", refused.head);
    }
    assert_eq!(owners.status, 200, "the owner was kept out: {}", owners.body);
    for headers in [&a, &c, &owner] {
        assert_eq!(call(headers).await.status, 200, "what was held was not given back");
    }
}

/// Goal: a panic behind the API is one failed request, and says nothing about its cause.
#[tokio::test]
async fn a_panic_is_one_failed_request() {
    let server = start(Options { calls_max: 1, ..Options::default() }, |_, _, _| panic!("inner secret")).await;
    for _ in 0..2 {
        let reply = send(&server, "POST /v1/box/status", JSON, b"{}").await;
        assert_eq!((reply.status, reply.code().as_str()), (500, "internal"));
        assert!(!reply.body.contains("inner secret"));
    }
}

const IMPORT_LINE: &str = "{\"into\":\"/shared/x\",\"passphrase\":\"correct horse battery\"}\n";

#[tokio::test]
async fn import_passes_every_byte_on() {
    let server = start(Options::default(), status_answer).await;
    let stream: Vec<u8> = (0..3_000_000u32).map(|n| u8::try_from(n % 251).unwrap()).collect();
    let mut body = IMPORT_LINE.as_bytes().to_vec();
    body.extend_from_slice(&stream);
    let reply = send(&server, "POST /v1/tree/import", STREAM, &body).await;
    assert_eq!(reply.status, 200, "{}", reply.body);
    assert_eq!(reply.json()["bytes"], 3_000_000);
    assert!(server.fake.imported.lock().unwrap()[0].as_ref().unwrap() == &stream);
}

/// Goal: a client that vanishes in the middle is an error for the reader, never a clean end.
#[tokio::test]
async fn a_cut_import_is_an_error() {
    let server = start(Options::default(), status_answer).await;
    for framing in ["content-length: 100000\r\n", "transfer-encoding: chunked\r\n"] {
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        let chunk = format!("{IMPORT_LINE}some of the stream");
        let body = if framing.starts_with("content") { chunk } else { format!("{:x}\r\n{chunk}\r\n", chunk.len()) };
        let head = format!("POST /v1/tree/import HTTP/1.1\r\nhost: localhost\r\n{STREAM}{framing}\r\n{body}");
        stream.write_all(head.as_bytes()).await.unwrap();
        drop(stream);
        server.fake.import_seen.notified().await;
        let read = server.fake.imported.lock().unwrap().pop().unwrap();
        assert_eq!(read, Err(std::io::ErrorKind::UnexpectedEof), "{framing}");
    }
}

/// Goal: who uploads much and is refused at once still gets to read why.
#[tokio::test]
async fn a_refused_import_is_answered() {
    let server = start(Options::default(), status_answer).await;
    let mut body = b"{\"into\":\"/shared/x\",\"passphrase\":\"wrong\"}\n".to_vec();
    body.resize(8_000_000, 0);
    let reply = send(&server, "POST /v1/tree/import", STREAM, &body).await;
    assert_eq!((reply.status, reply.code().as_str()), (403, "wrong_passphrase"));
    let reply = send(&server, "POST /v1/box/status", JSON, &body).await;
    assert_eq!((reply.status, reply.code().as_str()), (413, "too_large"));
    let line = vec![b'x'; IMPORT_LINE_BYTES_MAX + 1];
    assert_eq!(send(&server, "POST /v1/tree/import", STREAM, &line).await.status, 413);
}

/// Goal: the mapping of the Door's errors is part of the API and changes only on purpose.
#[test]
fn error_table() {
    let conflict = Conflict { path: TreePath::parse("/a").unwrap(), kind: ConflictKind::Content };
    let table = [
        (DoorError::Unauthenticated("who?".into()), 401, "unauthenticated", false),
        (DoorError::WrongPassphrase, 403, "wrong_passphrase", false),
        (DoorError::Denied { rule: "r1".into(), reason: "no".into() }, 403, "denied", false),
        (DoorError::LeaseOver("over"), 401, "lease_over", false),
        (DoorError::NotFound { what: "gate", name: "gt_x".into() }, 404, "not_found", false),
        (DoorError::Invalid { field: "paths", reason: "empty".into() }, 422, "invalid", false),
        (DoorError::State("not now".into()), 409, "state", false),
        (DoorError::Conflicts(vec![conflict]), 409, "conflicts", false),
        (DoorError::Degraded { level: "sealed", causes: "chain".into() }, 503, "degraded", true),
        (DoorError::Key("used"), 409, "idempotency_key", false),
        (DoorError::DoneBefore { answer: Value::Null }, 409, "done_before", false),
        (DoorError::Quota, 507, "quota", false),
        (DoorError::NoSpace, 507, "no_space", true),
        (DoorError::Busy { retry_after_seconds: 3 }, 429, "busy", true),
        (DoorError::Store { doing: "reading", source: "secret cause".into() }, 500, "store", false),
    ];
    for (error, status, code, retryable) in table {
        let api = ApiError::from_door(&error);
        assert_eq!((api.status.as_u16(), api.code, api.retryable), (status, code, retryable), "{error}");
        assert!(!api.message.contains("secret cause"), "causes stay in the log");
        assert_eq!(api.retry_after_seconds, (status == 429).then_some(3));
    }
}
