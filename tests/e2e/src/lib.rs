//! A whole box under test: the real `nasd` binary on a real store, driven through its sockets only.
//!
//! - [`TestBox`]: starts, stops, kills and restarts nasd; signs the owner in; calls control verbs over HTTP.
//! - [`promise`]: what a client was told before a power cut, for the checker `nas-power-check`.
//! - [`Leased`]: a lease with its token; mounts over NFS with a user-space client.
//! - [`ops`]: every NFS procedure once.
//!
//! The tests (`tests/`) are grouped by what they show: `overnight` (SPEC L0, L1), `leases` (what they give and when it
//! ends), `records` (tampering), `morning` (gates and what happens meanwhile), `races` (the same, at the same moment), `crash`, `power`,
//! `full`, `attack`, `guest` (the kernel's client in an emulated machine).

pub mod attack;
pub mod ops;
pub mod promise;

use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use nas_nfsclient::{Client, Credential};
use nas_testkit::{Mounted, Process, Scratch};
use nas_types::lease::{Action, BranchName, View};
use nas_types::secret::Secret;
use nas_types::verb::{
    ErrorBody, ErrorInfo, GateApprove, GateCard, GateDecided, GateShow, LeaseCreate, LeaseCreated, LeaseInfo,
    MountTicket, OwnerInit, OwnerToken, Propose, Proposed, TreeImport, TreeImported, Verb,
};

/// The owner's passphrase in tests.
pub const PASSPHRASE: &str = "correct horse battery staple";
/// How long one waits for anything that must happen.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// What answers a control verb: the answer, or the error as the API sends it.
pub type Answer<T> = Result<T, ErrorInfo>;

/// A box.
pub struct TestBox {
    // Dropped in this order: the process, then the mount, then the folder.
    process: Option<Process>,
    _pool: Option<Mounted>,
    data: PathBuf,
    _scratch: Option<Scratch>,
    arguments: Vec<String>,
    http: Option<SocketAddr>,
    nfs: Option<SocketAddr>,
    owner: Option<Secret>,
}

/// A lease as its bearer holds it.
pub struct Leased {
    /// What it is.
    pub info: LeaseInfo,
    /// Its token.
    pub token: Secret,
}

impl Leased {
    /// The branch of its run.
    #[must_use]
    pub fn branch(&self) -> BranchName {
        self.info.branch.clone().expect("because the lease is on the protected tree")
    }
}

impl TestBox {
    /// A box in a folder of its own with a small btrfs image (as root; else the copy engine), short quiet time and a
    /// small reserve, and its owner signed in.
    pub fn start() -> Result<Self> {
        Self::start_with(&[])
    }

    /// The same, with more arguments for nasd; later ones win.
    pub fn start_with(more: &[&str]) -> Result<Self> {
        let scratch = Scratch::new("box");
        let data = scratch.join("data");
        let mut one = Self::in_folder(&data, more);
        one._scratch = Some(scratch);
        one.boot()?;
        one.init_owner()?;
        Ok(one)
    }

    /// A box in `data`, not started.
    #[must_use]
    pub fn in_folder(data: &Path, more: &[&str]) -> Self {
        let fixed = ["--image-mib", "2048", "--reserve-mib", "64", "--ballast-kib", "1024", "--quiet-ms", "300"];
        Self {
            process: None,
            _pool: nas_testkit::is_root().then(|| Mounted::adopt(&data.join("pool"))),
            data: data.to_owned(),
            _scratch: None,
            arguments: fixed.iter().chain(more).map(|argument| (*argument).to_owned()).collect(),
            http: None,
            nfs: None,
            owner: None,
        }
    }

    /// A box in `data`, a folder on btrfs: nasd uses it as it is. Not started.
    #[must_use]
    pub fn on_btrfs(data: &Path, more: &[&str]) -> Self {
        let mut one = Self::in_folder(data, more);
        if let Some(pool) = one._pool.take() {
            pool.release();
        }
        one
    }

    /// Starts nasd and waits until it is ready. After the first start it gets the same ports again.
    pub fn boot(&mut self) -> Result<()> {
        self.boot_with(&[])
    }

    /// The same with environment variables (failpoints). An error when nasd ends before it is ready.
    pub fn boot_with(&mut self, environment: &[(&str, &str)]) -> Result<()> {
        let address =
            |known: Option<SocketAddr>| known.map_or_else(|| "127.0.0.1:0".to_owned(), |known| known.to_string());
        let log = std::fs::File::options().create(true).append(true).open(self.data.with_extension("log"))?;
        let mut command = Command::new(binary("nasd")?);
        command
            .arg("--data")
            .arg(&self.data)
            .args(["--http", &address(self.http), "--nfs", &address(self.nfs)])
            .args(&self.arguments)
            .envs(environment.iter().copied())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log);
        let mut process = Process::spawn(&mut command).context("starting nasd")?;
        let stdout = process.child().stdout.take().context("nasd has no standard output")?;
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line)?;
        let words = line.split_whitespace().filter_map(|word| word.split_once('='));
        for (name, value) in words {
            match name {
                "http" => self.http = Some(value.parse()?),
                "nfs" => self.nfs = Some(value.parse()?),
                _ => {}
            }
        }
        self.process = Some(process);
        if !line.starts_with("nasd ready") {
            bail!("nasd did not get ready; its log:\n{}", self.log());
        }
        Ok(())
    }

    /// What nasd logged so far.
    #[must_use]
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.data.with_extension("log")).unwrap_or_default()
    }

    /// Consumes the bootstrap token.
    pub fn init_owner(&mut self) -> Result<()> {
        let bootstrap = std::fs::read_to_string(self.data.join("owner.bootstrap"))?.trim().to_owned();
        let init = OwnerInit { bootstrap: Secret::new(bootstrap), passphrase: passphrase() };
        let OwnerToken { token, .. } = self.call(None, &init).map_err(refused)?;
        self.owner = Some(token);
        Ok(())
    }

    /// Ends nasd as systemd would and waits for it.
    pub fn stop(&mut self) -> Result<()> {
        let Some(mut process) = self.process.take() else { return Ok(()) };
        let status = process.terminate(PATIENCE)?;
        if status.success() { Ok(()) } else { bail!("nasd ended with {status}; its log:\n{}", self.log()) }
    }

    /// `kill -9`.
    pub fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.kill();
        }
    }

    /// Stops and starts.
    pub fn restart(&mut self) -> Result<()> {
        self.stop()?;
        self.boot()
    }

    /// Process id of nasd.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.process.as_ref().map(Process::id).expect("because the box was started")
    }

    /// Is nasd there?
    pub fn is_running(&mut self) -> bool {
        self.process.as_mut().is_some_and(Process::is_running)
    }

    /// Waits until a failpoint killed nasd; an error when it goes on, or ends in any other way.
    pub fn wait_for_end(&mut self) -> Result<()> {
        use std::os::unix::process::ExitStatusExt as _;
        let mut process = self.process.take().context("nasd was not started")?;
        let status = process.wait(PATIENCE).context("nasd goes on")?;
        if status.signal() == Some(9) { Ok(()) } else { bail!("nasd ended with {status}; its log:\n{}", self.log()) }
    }

    /// The data folder.
    #[must_use]
    pub fn data(&self) -> &Path {
        &self.data
    }

    /// Where HTTP listens.
    #[must_use]
    pub fn http(&self) -> SocketAddr {
        self.http.expect("because the box was started")
    }

    /// Where NFS listens.
    #[must_use]
    pub fn nfs(&self) -> SocketAddr {
        self.nfs.expect("because the box was started")
    }

    /// The owner's token.
    #[must_use]
    pub fn owner(&self) -> &Secret {
        self.owner.as_ref().expect("because the owner was signed in")
    }

    /// Calls a control verb over HTTP.
    pub fn call<V: Verb>(&self, token: Option<&Secret>, verb: &V) -> Answer<V::Answer> {
        let body = serde_json::to_vec(verb).expect("because a verb is plain data");
        self.post(V::NAME, "application/json", token, &mut body.as_slice())
    }

    /// Calls a control verb as the owner.
    pub fn as_owner<V: Verb>(&self, verb: &V) -> Answer<V::Answer> {
        self.call(Some(self.owner()), verb)
    }

    /// Calls a verb with any JSON, also such as no verb has.
    pub fn call_json(&self, name: &str, token: Option<&Secret>, body: &serde_json::Value) -> Answer<serde_json::Value> {
        self.post(name, "application/json", token, &mut body.to_string().as_bytes())
    }

    fn post<T: serde::de::DeserializeOwned>(
        &self,
        name: &str,
        content_type: &str,
        token: Option<&Secret>,
        body: &mut dyn std::io::Read,
    ) -> Answer<T> {
        let broken = |message: String| ErrorInfo {
            code: "transport".to_owned(),
            message,
            retryable: true,
            request_id: String::new(),
            details: serde_json::Value::Null,
        };
        let agent: ureq::Agent = ureq::Agent::config_builder().http_status_as_error(false).build().into();
        let mut request = agent.post(format!("http://{}/v1/{name}", self.http())).header("content-type", content_type);
        if let Some(token) = token {
            request = request.header("authorization", format!("Bearer {}", token.reveal()));
        }
        let mut response =
            request.send(ureq::SendBody::from_reader(body)).map_err(|error| broken(error.to_string()))?;
        let ok = response.status().is_success();
        let text = response
            .body_mut()
            .with_config()
            .limit(256 << 20)
            .read_to_string()
            .map_err(|error| broken(error.to_string()))?;
        let unreadable = |error: serde_json::Error| broken(format!("{error} in: {text}"));
        if ok {
            return serde_json::from_str(&text).map_err(unreadable);
        }
        Err(serde_json::from_str::<ErrorBody>(&text).map_err(unreadable)?.error)
    }

    /// Imports a directory into main.
    pub fn import(&self, from: &Path, into: &str) -> Answer<TreeImported> {
        let mut archive = tar::Builder::new(Vec::new());
        archive.follow_symlinks(false);
        archive.append_dir_all(".", from).expect("because the test made the directory");
        self.import_tar(&archive.into_inner().expect("because writing to memory cannot fail"), into)
    }

    /// Imports a tar archive into main.
    pub fn import_tar(&self, archive: &[u8], into: &str) -> Answer<TreeImported> {
        let head = TreeImport { into: path(into), why: None, passphrase: passphrase() };
        self.import_as(Some(self.owner()), &head, archive)
    }

    /// The same as anyone, with any first line.
    pub fn import_as(&self, token: Option<&Secret>, head: &TreeImport, archive: &[u8]) -> Answer<TreeImported> {
        let mut body = serde_json::to_vec(head).expect("because it is plain data");
        body.push(b'\n');
        body.extend_from_slice(archive);
        self.post("tree/import", "application/octet-stream", token, &mut body.as_slice())
    }

    /// Starts a run of role `cleo` with its root lease.
    pub fn lease(&self, paths: &[&str], actions: &[Action], ttl_seconds: Option<u64>) -> Answer<Leased> {
        let create = LeaseCreate {
            role: Some("cleo".parse().expect("because it is a legal role")),
            paths: paths.iter().map(|path| (*path).to_owned()).collect(),
            actions: actions.to_vec(),
            ttl_seconds,
            purpose: Some("a test".to_owned()),
            quota_bytes: None,
            tree: None,
        };
        let LeaseCreated { lease, token } = self.as_owner(&create)?;
        Ok(Leased { info: lease, token })
    }

    /// A lease for everything below `dir`.
    pub fn full_lease(&self, dir: &str) -> Answer<Leased> {
        self.lease(&[&format!("{}/**", dir.trim_end_matches('/'))], &Action::ALL, None)
    }

    /// Mounts `dir` of the run's branch with the user-space client.
    pub fn mount(&self, leased: &Leased, dir: &str) -> Result<Client> {
        self.mount_view(leased, dir, View::Branch)
    }

    /// Mounts `dir` of a view.
    pub fn mount_view(&self, leased: &Leased, dir: &str, view: View) -> Result<Client> {
        let export = self.export(leased, dir, view)?;
        Ok(Client::mount(self.nfs(), &export, Credential::Sys { uid: 1000, gid: 1000 })?)
    }

    /// A fresh export path `/<ticket>/dir`.
    pub fn export(&self, leased: &Leased, dir: &str, view: View) -> Result<String> {
        let ticket =
            self.call(Some(&leased.token), &MountTicket { view, read_only: false, commit: None }).map_err(refused)?;
        Ok(format!("/{}{}", ticket.ticket.reveal(), dir))
    }

    /// Proposes what is on the branch.
    pub fn propose(&self, leased: &Leased) -> Answer<Proposed> {
        self.call(Some(&leased.token), &Propose { into: "main".to_owned(), why: Some("a test".to_owned()) })
    }

    /// Shows a card to the owner.
    pub fn card(&self, proposed: &Proposed) -> Answer<GateCard> {
        self.as_owner(&GateShow { gate: proposed.gate })
    }

    /// Approves what `card` shows.
    pub fn approve(&self, card: &GateCard) -> Answer<GateDecided> {
        self.as_owner(&GateApprove {
            gate: card.gate,
            digest: card.action.digest.clone(),
            passphrase: passphrase(),
            reason: None,
        })
    }
}

/// The owner's passphrase as a verb takes it.
#[must_use]
pub fn passphrase() -> Secret {
    Secret::new(PASSPHRASE.to_owned())
}

/// A path that the test knows to be legal.
#[must_use]
pub fn path(text: &str) -> nas_types::path::TreePath {
    nas_types::path::TreePath::parse(text).expect("because the test wrote it")
}

/// An error of the API as one of a test.
#[must_use]
pub fn refused(error: ErrorInfo) -> anyhow::Error {
    anyhow::anyhow!("{}: {}", error.code, error.message)
}

/// A binary of this workspace, built beside this test.
pub fn binary(name: &str) -> Result<PathBuf> {
    let test = std::env::current_exe()?;
    let dir = test.ancestors().find(|dir| dir.join(name).is_file());
    let dir = dir.with_context(|| format!("'{name}' is not built: run 'cargo build --workspace' first"))?;
    Ok(dir.join(name))
}
