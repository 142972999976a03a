//! The box under test, as its HTTP API and its NFS mount show it.

use std::fmt;
use std::time::{Duration, Instant};

use nas_nfsclient::{Client, Credential};
use serde_json::{Value, json};

use crate::report::{Miss, Verdict, require};

/// How long one waits for anything that must happen.
const PATIENCE: Duration = Duration::from_secs(30);
/// Largest answer that is read.
const ANSWER_BYTES_MAX: u64 = 64 << 20;
/// Who the client says it is over NFS.
pub(crate) const CREDENTIAL: Credential = Credential::Sys { uid: 1000, gid: 1000 };
/// Every action of a lease.
pub(crate) const ALL: [&str; 4] = ["list", "read", "write", "propose"];

/// Where the box is and who decides there.
#[derive(Clone)]
pub struct Address {
    /// `http://host:port`.
    pub url: String,
    /// `host:port` of NFS and MOUNT.
    pub nfs: String,
    /// The owner's token.
    pub token: String,
    /// The owner's passphrase.
    pub passphrase: String,
}

/// The box under test and the place in it that belongs to this run.
pub struct Subject {
    at: Address,
    agent: ureq::Agent,
    place: String,
}

/// A refusal as the API sends it.
#[derive(Debug)]
pub(crate) struct Refused {
    pub(crate) status: u16,
    pub(crate) code: String,
    pub(crate) message: String,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HTTP {} {}: {}", self.status, self.code, self.message)
    }
}

impl From<Refused> for Miss {
    fn from(refused: Refused) -> Self {
        Self::Failed(refused.to_string())
    }
}

/// A lease as its bearer holds it.
pub(crate) struct Lease {
    pub(crate) token: String,
    pub(crate) info: Value,
}

impl Lease {
    pub(crate) fn id(&self) -> &str {
        self.info["lease"].as_str().unwrap_or_default()
    }

    pub(crate) fn run(&self) -> &str {
        self.info["run"].as_str().unwrap_or_default()
    }
}

impl Subject {
    /// A box, with a place of its own for this run.
    ///
    /// # Errors
    /// The operating system has no random bytes.
    pub fn new(at: Address) -> Result<Self, String> {
        let mut random = [0; 8];
        getrandom::fill(&mut random).map_err(|error| format!("no random bytes: {error}"))?;
        let agent = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .proxy(None)
            .timeout_global(Some(Duration::from_secs(120)))
            .build();
        let place = format!("/shared/conformance-{:016x}", u64::from_le_bytes(random));
        Ok(Self { at, agent: agent.into(), place })
    }

    /// The directory of main that this run writes to, and leaves.
    #[must_use]
    pub fn place(&self) -> &str {
        &self.place
    }

    /// A directory for one test.
    pub(crate) fn dir(&self, test: &str) -> String {
        format!("{}/{test}", self.place)
    }

    /// What the box calls itself in its catalog.
    pub(crate) fn implementation(&self) -> String {
        let unknown = || "unknown".to_owned();
        let Ok((200, text)) = self.get("/.well-known/ai-catalog.json") else { return unknown() };
        let catalog: Value = serde_json::from_str(&text).unwrap_or_default();
        catalog["host"]["displayName"].as_str().map_or_else(unknown, str::to_owned)
    }

    /// GET: status and body.
    pub(crate) fn get(&self, path: &str) -> Result<(u16, String), String> {
        let mut answer = self.agent.get(format!("{}{path}", self.at.url)).call().map_err(|error| error.to_string())?;
        let text = answer.body_mut().read_to_string().map_err(|error| error.to_string())?;
        Ok((answer.status().as_u16(), text))
    }

    /// One verb.
    pub(crate) fn call(&self, verb: &str, token: Option<&str>, body: &Value) -> Result<Value, Refused> {
        self.post(verb, "application/json", token, body.to_string().as_bytes())
    }

    /// One verb as the owner.
    pub(crate) fn owner(&self, verb: &str, body: &Value) -> Result<Value, Refused> {
        self.call(verb, Some(&self.at.token), body)
    }

    /// One verb as the owner with the passphrase: a decision.
    pub(crate) fn decide(&self, verb: &str, mut body: Value) -> Result<Value, Refused> {
        body["passphrase"] = self.at.passphrase.clone().into();
        self.owner(verb, &body)
    }

    fn post(&self, verb: &str, kind: &str, token: Option<&str>, body: &[u8]) -> Result<Value, Refused> {
        let broken = |message: String| Refused {
            status: 0,
            code: "transport".to_owned(),
            message: format!("{verb}: {message}"),
        };
        let mut request = self.agent.post(format!("{}/v1/{verb}", self.at.url)).header("content-type", kind);
        if let Some(token) = token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        let mut answer = request.send(body).map_err(|error| broken(error.to_string()))?;
        let status = answer.status();
        let text = answer.body_mut().with_config().limit(ANSWER_BYTES_MAX).read_to_string();
        let text = text.map_err(|error| broken(error.to_string()))?;
        let value: Value = serde_json::from_str(&text).map_err(|error| broken(format!("no JSON: {error}")))?;
        if status.is_success() {
            return Ok(value);
        }
        let word = |name: &str| value["error"][name].as_str().unwrap_or_default().to_owned();
        Err(Refused { status: status.as_u16(), code: word("code"), message: word("message") })
    }

    /// `not_implemented` when the box does not know the verb: HTTP 404 with `unknown_verb`, or 501.
    pub(crate) fn offers(&self, verb: &str) -> Verdict {
        match self.owner(verb, &json!({})) {
            Err(Refused { status: 501, .. }) => {}
            Err(Refused { status: 404, code, .. }) if code == "unknown_verb" => {}
            Err(refused) if refused.status == 0 => return Err(refused.into()),
            Ok(_) | Err(_) => return Ok(()),
        }
        Err(Miss::NotImplemented(format!("there is no POST /v1/{verb}")))
    }

    /// Puts text files into main, as the owner.
    pub(crate) fn import(&self, dir: &str, files: &[(&str, &str)]) -> Result<Value, Miss> {
        let failed = |error: std::io::Error| Miss::Failed(format!("making an archive: {error}"));
        let mut archive = tar::Builder::new(Vec::new());
        for (name, content) in files {
            let mut header = tar::Header::new_gnu();
            header.set_size(content.len() as u64);
            header.set_mode(0o644);
            archive.append_data(&mut header, name, content.as_bytes()).map_err(failed)?;
        }
        let head = json!({ "into": dir, "why": "conformance", "passphrase": self.at.passphrase });
        let mut body = format!("{head}\n").into_bytes();
        body.extend(archive.into_inner().map_err(failed)?);
        Ok(self.post("tree/import", "application/octet-stream", Some(&self.at.token), &body)?)
    }

    /// Starts a run with a lease.
    pub(crate) fn lease(&self, paths: &[&str], actions: &[&str], ttl: u64) -> Result<Lease, Refused> {
        let body = json!({ "role": "conformance", "paths": paths, "actions": actions, "ttl_seconds": ttl,
            "purpose": "conformance" });
        self.owner("lease/create", &body).map(made)
    }

    /// A run for everything below `dir`, for ten minutes.
    pub(crate) fn run_in(&self, dir: &str) -> Result<Lease, Refused> {
        self.lease(&[&format!("{dir}/**")], &ALL, 600)
    }

    /// Asks for a child of `parent`.
    pub(crate) fn child(&self, parent: &Lease, paths: &[&str], actions: &[&str], ttl: u64) -> Result<Lease, Refused> {
        let body = json!({ "paths": paths, "actions": actions, "ttl_seconds": ttl });
        self.call("lease/create", Some(&parent.token), &body).map(made)
    }

    /// A fresh export path.
    pub(crate) fn export(&self, lease: &Lease, dir: &str, view: &str) -> Result<String, Miss> {
        let body = json!({ "view": view, "read_only": false });
        let answer = self.call("mount/ticket", Some(&lease.token), &body)?;
        let ticket = answer["ticket"].as_str().ok_or_else(|| Miss::Failed("mount/ticket gave no ticket".to_owned()))?;
        Ok(format!("/{ticket}{dir}"))
    }

    /// Mounts an export path.
    pub(crate) fn mount_export(&self, export: &str) -> nas_nfsclient::Result<Client> {
        Client::mount(self.at.nfs.as_str(), export, CREDENTIAL)
    }

    /// Mounts `dir` of the run's branch, or of main.
    pub(crate) fn mount(&self, lease: &Lease, dir: &str, view: &str) -> Result<Client, Miss> {
        Ok(self.mount_export(&self.export(lease, dir, view)?)?)
    }

    /// Proposes the branch: the gate's id.
    pub(crate) fn propose(&self, lease: &Lease) -> Result<String, Miss> {
        let answer = self.call("gate/propose", Some(&lease.token), &json!({ "into": "main", "why": "conformance" }))?;
        let gate = answer["gate"].as_str().ok_or_else(|| Miss::Failed("gate/propose gave no gate".to_owned()))?;
        Ok(gate.to_owned())
    }

    /// The Gate Card.
    pub(crate) fn card(&self, gate: &str) -> Result<Value, Refused> {
        self.owner("gate/show", &json!({ "gate": gate }))
    }

    /// Approves a digest.
    pub(crate) fn approve(&self, gate: &str, digest: &str) -> Result<Value, Refused> {
        self.decide("gate/approve", json!({ "gate": gate, "digest": digest }))
    }

    /// Proposes the branch and approves what the card shows: the commit on main.
    pub(crate) fn merge(&self, lease: &Lease) -> Result<String, Miss> {
        let gate = self.propose(lease)?;
        let card = self.card(&gate)?;
        let decided = self.approve(&gate, card["action"]["digest"].as_str().unwrap_or_default())?;
        let commit = decided["commit"].as_str();
        commit.map(str::to_owned).ok_or_else(|| Miss::Failed(format!("the approval made no commit: {decided}")))
    }

    /// Number of the newest record.
    pub(crate) fn head(&self) -> Result<u64, Miss> {
        let head = self.owner("record/head", &json!({}))?;
        head["seq"].as_u64().ok_or_else(|| Miss::Failed("record/head has no seq".to_owned()))
    }

    /// Records from number `from` on, oldest first, as far as the list holds them.
    pub(crate) fn records_from(&self, from: u64) -> Result<Vec<Value>, Miss> {
        let (mut all, mut cursor) = (Vec::new(), Value::Null);
        loop {
            let page = self.owner("record/list", &json!({ "limit": 1000, "cursor": cursor }))?;
            let records = page["records"].as_array().cloned().unwrap_or_default();
            let past = records.iter().any(|record| record["seq"].as_u64().is_none_or(|seq| seq <= from));
            all.extend(records);
            cursor = page["cursor"].clone();
            if past || cursor.is_null() {
                break;
            }
        }
        all.retain(|record| record["seq"].as_u64().is_some_and(|seq| seq >= from));
        all.sort_by_key(|record| record["seq"].as_u64());
        Ok(all)
    }

    /// The newest records, at most 1000.
    pub(crate) fn newest_records(&self) -> Result<Vec<Value>, Miss> {
        let page = self.owner("record/list", &json!({ "limit": 1000 }))?;
        Ok(page["records"].as_array().cloned().unwrap_or_default())
    }

    /// A refusal after record `mark` that `fits` is in the records, waited for.
    pub(crate) fn refusal_recorded(&self, mark: u64, what: &str, fits: impl Fn(&Value) -> bool) -> Verdict {
        let found = eventually(|| {
            let records = self.records_from(mark + 1)?;
            Ok(records.iter().any(|record| record["effect"] == "deny" && fits(record)))
        })?;
        require(found, || format!("the refusal of {what} is in the records (SPEC L1.1, MOUNT-5); it is not"))
    }
}

fn made(mut answer: Value) -> Lease {
    Lease { token: answer["token"].as_str().unwrap_or_default().to_owned(), info: answer["lease"].take() }
}

/// Asks again and again until it holds; false when it does not in time.
pub(crate) fn eventually(mut holds: impl FnMut() -> Result<bool, Miss>) -> Result<bool, Miss> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if holds()? {
            return Ok(true);
        }
        if Instant::now() >= deadline {
            return Ok(false);
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}
