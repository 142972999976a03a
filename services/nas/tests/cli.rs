//! The whole program against a small HTTP responder: what goes over the wire, what is printed, kept and exited with.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests fail the test by panicking")]

use std::collections::HashMap;
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use tempfile::TempDir;

/// One request as it arrived. `whole` is false when the body was cut.
#[derive(Debug, Clone)]
struct Request {
    path: String,
    headers: HashMap<String, String>,
    body: Vec<u8>,
    whole: bool,
}

impl Request {
    fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }
}

type Answer = dyn Fn(&Request) -> (u16, Value) + Send + Sync;

/// A responder and a state directory of its own.
struct Setup {
    address: SocketAddr,
    seen: Arc<Mutex<Vec<Request>>>,
    home: TempDir,
}

impl Setup {
    fn new(answer: impl Fn(&Request) -> (u16, Value) + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let (answer, notes): (Arc<Answer>, _) = (Arc::new(answer), seen.clone());
        std::thread::spawn(move || {
            // One client at a time, one request per connection.
            for stream in listener.incoming() {
                respond(stream.unwrap(), &*answer, &notes);
            }
        });
        Self { address, seen, home: tempfile::tempdir().unwrap() }
    }

    fn nas(&self, args: &[&str]) -> Output {
        self.command(args).output().unwrap()
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_nas"));
        command
            .args(args)
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .env("NAS_STATE_DIR", self.home.path().join("state"))
            .env("NAS_URL", format!("http://{}", self.address))
            .current_dir(self.home.path());
        command
    }

    fn secret_file(&self, name: &str, text: &str) -> String {
        let path = self.home.path().join(name);
        let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path).unwrap();
        file.write_all(text.as_bytes()).unwrap();
        path.to_str().unwrap().to_owned()
    }

    fn last(&self) -> Request {
        self.seen.lock().unwrap().last().unwrap().clone()
    }
}

fn respond(stream: TcpStream, answer: &Answer, seen: &Mutex<Vec<Request>>) {
    let mut reader = BufReader::new(stream);
    let Some(request) = read_request(&mut reader) else { return };
    let (status, body) = answer(&request);
    let whole = request.whole;
    seen.lock().unwrap().push(request);
    if whole {
        let body = body.to_string();
        let head = format!("HTTP/1.1 {status} x\r\ncontent-type: application/json\r\nconnection: close\r\n");
        let _ = write!(reader.get_mut(), "{head}content-length: {}\r\n\r\n{body}", body.len());
    }
}

fn read_request(reader: &mut BufReader<TcpStream>) -> Option<Request> {
    let mut line = String::new();
    reader.read_line(&mut line).ok()?;
    let path = line.strip_prefix("POST ")?.split(' ').next()?.to_owned();
    let mut headers = HashMap::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let Some((name, value)) = line.trim_end().split_once(": ") else { break };
        headers.insert(name.to_lowercase(), value.to_owned());
    }
    let mut body = Vec::new();
    let whole = match headers.get("content-length") {
        Some(len) => {
            body.resize(len.parse().unwrap(), 0);
            reader.read_exact(&mut body).is_ok()
        }
        None => read_chunks(reader, &mut body).is_some(),
    };
    Some(Request { path, headers, body, whole })
}

fn read_chunks(reader: &mut BufReader<TcpStream>, body: &mut Vec<u8>) -> Option<()> {
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let len = usize::from_str_radix(line.trim_end(), 16).ok()?;
        let mut chunk = vec![0; len + 2];
        reader.read_exact(&mut chunk).ok()?;
        if len == 0 {
            return Some(());
        }
        body.extend_from_slice(&chunk[..len]);
    }
}

fn error(status: u16, code: &str) -> (u16, Value) {
    let error = json!({ "code": code, "message": "what to do", "retryable": status == 429, "request_id": "req_x", "details": null });
    (status, json!({ "error": error }))
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

#[track_caller]
fn check_exit(output: &Output, code: i32) {
    assert_eq!(output.status.code(), Some(code), "stdout: {}\nstderr: {}", stdout(output), stderr(output));
}

const LEASE: &str = "lse_23456789abcd";
const GATE: &str = "gt_23456789abcd";
const TIME: &str = "2026-11-30T12:00:00Z";

fn lease_created() -> Value {
    json!({ "token": "nas_lease_secret", "lease": {
        "lease": LEASE, "run": "run_23456789abcd", "tree": "nas", "branch": "cleo/run_23456789abcd", "principal": "agent:cleo",
        "on_behalf_of": null, "parent": null, "purpose": null, "paths": ["/a/**"], "actions": ["read"],
        "state": "active", "created_at": TIME, "expires_at": TIME, "remaining_seconds": 1
    }})
}

fn proposed() -> Value {
    json!({ "gate": GATE, "branch": "cleo/run_23456789abcd", "into": "main", "files_changed": 4,
        "commit": "91ce3a7000000000000000000000000000000001", "already_there": false, "expires_at": TIME })
}

/// Goal: the owner logs in, a lease is made, its token is kept apart and used for `propose`; no token is printed.
#[test]
fn tokens_find_their_way() {
    let setup = Setup::new(|request| match request.path.as_str() {
        "/v1/owner/init" | "/v1/owner/login" => (200, json!({ "token": "nas_owner_secret", "expires_at": TIME })),
        "/v1/lease/create" => (200, lease_created()),
        "/v1/gate/propose" => (200, proposed()),
        other => panic!("{other}"),
    });
    let bootstrap = setup.secret_file("owner.bootstrap", "boot\n");
    let passphrase = setup.secret_file("pass", "correct horse battery\n");
    let init = setup.nas(&["owner", "init", "--bootstrap-file", &bootstrap, "--passphrase-file", &passphrase]);
    check_exit(&init, 0);
    assert_eq!(setup.last().json(), json!({ "bootstrap": "boot", "passphrase": "correct horse battery" }));
    assert!(!setup.last().headers.contains_key("authorization"));
    assert!(!stdout(&init).contains("secret"));

    let out = setup.home.path().join("for-the-sandbox");
    let created = setup.nas(&[
        "lease",
        "create",
        "--role",
        "cleo",
        "--paths",
        "/a/**,/b",
        "--actions",
        "read,write",
        "--ttl",
        "4h",
        "--token-out",
        out.to_str().unwrap(),
    ]);
    check_exit(&created, 0);
    assert!(stdout(&created).starts_with(&format!("lease {LEASE} · run ")), "{}", stdout(&created));
    assert!(!stdout(&created).contains("secret"));
    assert_eq!(setup.last().headers["authorization"], "Bearer nas_owner_secret");
    let sent = setup.last().json();
    assert_eq!((&sent["ttl_seconds"], &sent["paths"]), (&json!(14400), &json!(["/a/**", "/b"])));
    assert_eq!(fs::metadata(&out).unwrap().mode() & 0o777, 0o600);
    assert_eq!(fs::read_to_string(&out).unwrap(), "nas_lease_secret\n");

    for args in [&["propose", "--why", "x"][..], &["gate", "propose"], &["propose", "--lease", LEASE]] {
        let output = setup.nas(args);
        check_exit(&output, 0);
        assert!(stdout(&output).ends_with("into main (4 files)\n"));
        assert_eq!(setup.last().headers["authorization"], "Bearer nas_lease_secret", "{args:?}");
    }
    let output = setup.command(&["propose"]).env("NAS_TOKEN", "from_env").output().unwrap();
    check_exit(&output, 0);
    assert_eq!(setup.last().headers["authorization"], "Bearer from_env");
    let output = setup.nas(&["propose", "--json"]);
    assert_eq!(serde_json::from_str::<Value>(&stdout(&output)).unwrap(), proposed());
}

fn card() -> Value {
    json!({
        "gate": GATE, "state": "pending", "run": "run_23456789abcd", "lease": LEASE, "principal": "agent:cleo",
        "on_behalf_of": null, "why": "because", "read": [], "read_more": 0, "changes": [], "diff": "", "options": [],
        "default": "deny", "created_at": TIME, "expires_at": TIME, "decision": null, "successor": null,
        "action": { "op": "merge", "from": "cleo/run_23456789abcd", "into": "main", "files_changed": 4,
            "commit": "91ce3a7000000000000000000000000000000001", "digest": "d1d2" },
        "risk": { "session_taint": "unknown", "deletions": [], "mode_changes": [], "symlinks": [], "binaries": [],
            "invisible": [], "runs_by_itself": [], "not_kept": [] },
        "head": { "seq": 41, "hash": "abcd" }
    })
}

/// Goal: an approval carries the digest that was shown; a void gate exits with 6 and names the fresh card.
#[test]
fn approving() {
    let setup = Setup::new(|request| match request.path.as_str() {
        "/v1/gate/show" => (200, card()),
        "/v1/gate/approve" => {
            let void = request.json()["digest"] != "d1d2";
            let (state, commit) =
                if void { ("void", None) } else { ("approved", Some("91ce3a7000000000000000000000000000000001")) };
            (
                200,
                json!({ "gate": GATE, "state": state, "commit": commit, "record": 18211, "because": "main changed",
                "successor": void.then_some("gt_bcdefghjkmnp"), "conflicts": [], "already_there": false }),
            )
        }
        "/v1/record/verify" => (
            200,
            json!({ "ok": true, "head": { "seq": 40, "hash": "ff" }, "days": 1,
            "first_bad": null, "because": null, "anchor": null }),
        ),
        other => panic!("{other}"),
    });
    let passphrase = setup.secret_file("pass", "correct horse battery");
    let token = setup.secret_file("token", "t");
    let approve = ["gate", "approve", GATE, "--passphrase-file", &passphrase, "--token-file", &token];
    let output = setup.nas(&approve);
    check_exit(&output, 0);
    assert_eq!(stdout(&output), "merged · commit 91ce3a7 · record 18211\n");
    assert!(stderr(&output).contains("digest d1d2"), "{}", stderr(&output));
    assert_eq!(setup.last().json()["digest"], "d1d2");

    let output = setup.nas(&[&approve[..], &["--digest", "0000"]].concat());
    check_exit(&output, 6);
    assert!(stderr(&output).contains("nas gate show gt_bcdefghjkmnp"), "{}", stderr(&output));
    let output = setup.nas(&[&approve[..], &["--digest", "0000", "--json"]].concat());
    check_exit(&output, 6);
    assert_eq!(serde_json::from_str::<Value>(&stdout(&output)).unwrap()["state"], "void");

    // The card's head was 41: a chain of 40 has lost its end, whatever the box says.
    let output = setup.nas(&["record", "verify", "--token-file", &token]);
    check_exit(&output, 9);
    assert_eq!(setup.last().json(), json!({ "anchor": { "seq": 41, "hash": "abcd" } }));
    assert!(stderr(&output).contains("cut off"), "{}", stderr(&output));
    let output = setup.nas(&["record", "verify", "--token-file", &token, "--anchor", "3:ab"]);
    check_exit(&output, 0);
    assert_eq!(setup.last().json(), json!({ "anchor": { "seq": 3, "hash": "ab" } }));
}

/// Goal: every kind of failure has its exit code, and `--json` gives it as JSON.
#[test]
fn failures() {
    let setup = Setup::new(|request| match request.path.as_str() {
        "/v1/gate/list" => error(403, "denied"),
        "/v1/run/list" => error(429, "busy"),
        "/v1/record/list" => (200, json!({ "nonsense": 1 })),
        other => panic!("{other}"),
    });
    let token = setup.secret_file("token", "t");
    check_exit(&setup.nas(&["gate", "list", "--token-file", &token]), 4);
    check_exit(&setup.nas(&["run", "list", "--token-file", &token]), 7);
    check_exit(&setup.nas(&["record", "list", "--token-file", &token]), 1);
    check_exit(&setup.nas(&["gate", "list"]), 3);
    check_exit(&setup.nas(&["gate"]), 2);
    check_exit(&setup.nas(&["gate", "list", "--url", "ftp://x"]), 2);
    let output = setup.nas(&["gate", "list", "--token-file", &token, "--json"]);
    check_exit(&output, 4);
    assert_eq!(serde_json::from_str::<Value>(&stdout(&output)).unwrap()["error"]["code"], "denied");
    // Bound, but nobody listens there.
    use rustix::net::{AddressFamily, SocketType, bind, getsockname, socket};
    let taken = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    bind(&taken, &SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
    let port = SocketAddr::try_from(getsockname(&taken).unwrap()).unwrap().port();
    let output = setup.nas(&["status", "--url", &format!("http://127.0.0.1:{port}")]);
    check_exit(&output, 8);
    assert!(stderr(&output).contains("cannot reach the box"), "{}", stderr(&output));
}

/// Goal: without a token the state of the box can be asked for; an old token does not hide it.
#[test]
fn status() {
    let setup = Setup::new(|request| match request.headers.get("authorization") {
        Some(_) => error(401, "unauthenticated"),
        None => (200, json!({ "version": "0.1.0", "level": "none", "causes": [], "details": null })),
    });
    check_exit(&setup.nas(&["status"]), 0);
    let output = setup.command(&["status"]).env("NAS_TOKEN", "old").output().unwrap();
    check_exit(&output, 0);
    assert!(stdout(&output).starts_with("nasd 0.1.0"), "{}", stdout(&output));
}

fn import_dir(setup: &Setup) -> PathBuf {
    let dir = setup.home.path().join("project");
    fs::create_dir(&dir).unwrap();
    fs::write(dir.join("a"), "content of a").unwrap();
    dir
}

fn import(setup: &Setup, dir: &Path) -> Output {
    let passphrase = setup.home.path().join("pass");
    let token = setup.home.path().join("token");
    let args = ["tree", "import", dir.to_str().unwrap(), "--into", "/shared/x", "--passphrase-file"];
    setup.nas(&[&args[..], &[passphrase.to_str().unwrap(), "--token-file", token.to_str().unwrap()]].concat())
}

#[test]
fn importing() {
    let setup = Setup::new(|_| {
        (
            200,
            json!({ "commit": "91ce3a7000000000000000000000000000000001", "record": 7, "entries": 1, "bytes": 12,
            "skipped": [] }),
        )
    });
    setup.secret_file("pass", "correct horse battery");
    setup.secret_file("token", "t");
    let dir = import_dir(&setup);
    let output = import(&setup, &dir);
    check_exit(&output, 0);
    assert_eq!(stdout(&output), "imported 1 entry, 12 B · commit 91ce3a7 · record 7\n");
    let request = setup.last();
    assert_eq!(request.path, "/v1/tree/import");
    let newline = request.body.iter().position(|b| *b == b'\n').unwrap();
    let line: Value = serde_json::from_slice(&request.body[..newline]).unwrap();
    assert_eq!(line, json!({ "into": "/shared/x", "why": null, "passphrase": "correct horse battery" }));
    let mut archive = tar::Archive::new(&request.body[newline + 1..]);
    let mut entry = archive.entries().unwrap().next().unwrap().unwrap();
    let mut content = String::new();
    entry.read_to_string(&mut content).unwrap();
    assert_eq!((&*entry.path_bytes(), content.as_str()), (&b"a"[..], "content of a"));
}

/// Goal: a directory that cannot be read whole is never taken for complete by the box.
#[test]
fn a_failed_import_is_cut() {
    let setup = Setup::new(|_| (200, json!({})));
    let passphrase = setup.secret_file("pass", "correct horse battery");
    let token = setup.secret_file("token", "t");
    let dir = import_dir(&setup);
    // Deeper than there are descriptors for: fails for every user, root too, and after some of it was sent.
    let deep: PathBuf = std::iter::once(dir.clone()).chain((0..60).map(|_| "d".into())).collect();
    fs::create_dir_all(deep).unwrap();
    let output = Command::new("sh")
        .args(["-c", "ulimit -n 40 && exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_nas")])
        .args(["tree", "import", dir.to_str().unwrap(), "--into", "/shared/x"])
        .args(["--passphrase-file", &passphrase, "--token-file", &token])
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .env("NAS_STATE_DIR", setup.home.path().join("state"))
        .env("NAS_URL", format!("http://{}", setup.address))
        .output()
        .unwrap();
    check_exit(&output, 1);
    assert!(!setup.last().whole, "the box saw a complete body");
    assert!(stderr(&output).contains("Too many open files"), "{}", stderr(&output));
}

/// A terminal of its own for the program, which is driven from `keyboard`.
struct Terminal {
    keyboard: fs::File,
    slave: fs::File,
}

impl Terminal {
    fn new() -> Self {
        use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
        let keyboard = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&keyboard).unwrap();
        unlockpt(&keyboard).unwrap();
        let name = ptsname(&keyboard, Vec::new()).unwrap();
        let flags = rustix::fs::OFlags::RDWR | rustix::fs::OFlags::NOCTTY;
        let slave = rustix::fs::open(name.as_c_str(), flags, rustix::fs::Mode::empty()).unwrap();
        Self { keyboard: keyboard.into(), slave: slave.into() }
    }

    /// Reads what is on the screen until `text` is there.
    fn wait_for(&mut self, screen: &mut String, text: &str) {
        while !screen.contains(text) {
            let mut buffer = [0; 256];
            let len = self.keyboard.read(&mut buffer).unwrap();
            screen.push_str(std::str::from_utf8(&buffer[..len]).unwrap());
        }
    }

    fn echoes(&self) -> bool {
        let modes = rustix::termios::tcgetattr(&self.slave).unwrap().local_modes;
        modes.contains(rustix::termios::LocalModes::ECHO | rustix::termios::LocalModes::ICANON)
    }

    /// Answers `questions` in turn with `keys`; gives the exit code and the screen.
    fn run(&mut self, setup: &Setup, args: &[&str], answers: &[(&str, &[u8])]) -> (Option<i32>, String) {
        let plain = setup.command(args);
        let mut command = Command::new("setsid");
        command.args(["--ctty", "--wait"]).arg(plain.get_program()).args(plain.get_args()).env_clear();
        command.envs(plain.get_envs().filter_map(|(name, value)| Some((name, value?))));
        command.stdin(self.slave.try_clone().unwrap()).stdout(std::process::Stdio::null());
        let mut child = command.stderr(std::process::Stdio::null()).spawn().unwrap();
        let mut screen = String::new();
        for (question, keys) in answers {
            self.wait_for(&mut screen, question);
            self.keyboard.write_all(keys).unwrap();
        }
        (child.wait().unwrap().code(), screen)
    }
}

/// Goal: a passphrase is typed unseen and can be corrected, and the terminal is as before, also after Ctrl-C.
#[test]
fn typing_a_passphrase() {
    let setup = Setup::new(|_| (200, json!({ "token": "nas_owner_secret", "expires_at": TIME })));
    let mut terminal = Terminal::new();
    let typed = b"x\x15correct horsf\x7fe battery\xc3\xa9\x7f\r";
    let (code, screen) = terminal.run(&setup, &["owner", "login"], &[("passphrase: ", typed)]);
    assert_eq!(code, Some(0), "{screen}");
    assert_eq!(setup.last().json(), json!({ "passphrase": "correct horse battery" }));
    assert!(!screen.contains("horse") && terminal.echoes(), "{screen}");

    let calls = setup.seen.lock().unwrap().len();
    let (code, _) = terminal.run(&setup, &["owner", "login"], &[("passphrase: ", b"corr\x03")]);
    assert_eq!(code, Some(1));
    assert!(terminal.echoes());
    let bootstrap = setup.secret_file("owner.bootstrap", "boot");
    let init = ["owner", "init", "--bootstrap-file", &bootstrap];
    let answers: [(&str, &[u8]); 2] = [("at least): ", b"correct horse\r"), ("Once more: ", b"correct house\r")];
    assert_eq!(terminal.run(&setup, &init, &answers).0, Some(2));
    assert_eq!(setup.seen.lock().unwrap().len(), calls, "nothing may have been sent");
    let answers: [(&str, &[u8]); 2] = [("at least): ", b"correct horse\r"), ("Once more: ", b"correct horse\r")];
    assert_eq!(terminal.run(&setup, &init, &answers).0, Some(0));
    assert_eq!(setup.last().json()["passphrase"], "correct horse");
}
