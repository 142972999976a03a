//! The demo's box: nasd in a folder, and the CLI on it.

use std::fs::File;
use std::io::Write as _;
use std::net::TcpListener;
use std::os::unix::fs::OpenOptionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};

use crate::program::{cargo, run, target_dir};

/// How long nasd may take to get ready, and to stop.
const PATIENCE: Duration = Duration::from_secs(60);

/// A running box.
pub(crate) struct Device {
    data: PathBuf,
    nas: PathBuf,
    nasd: Child,
    http: String,
    nfs: String,
}

impl Device {
    /// Builds, starts nasd on `data` and signs the owner in.
    pub(crate) fn start(data: &Path) -> anyhow::Result<Self> {
        run(&mut cargo(["build", "--locked", "--package", "nasd", "--package", "nas"]))?;
        std::fs::create_dir_all(data).with_context(|| format!("making {}", data.display()))?;
        let data = data.canonicalize()?;
        let bin = target_dir().join("debug");
        let (http, nfs) = (free_or_any(8480)?, free_or_any(2049)?);
        let out = data.join("nasd.out");
        println!("\n$ nasd --data {} --http {http} --nfs {nfs} &", data.display());
        let mut command = Command::new(bin.join("nasd"));
        command.arg("--data").arg(&data).args(["--http", &http, "--nfs", &nfs]).stdin(Stdio::null());
        // A group of its own: Ctrl-C ends the demo, not the box it leaves running.
        let own = |path: &Path| File::options().write(true).create(true).truncate(true).mode(0o600).open(path);
        command.stdout(own(&out)?).stderr(own(&data.join("nasd.log"))?).process_group(0);
        // A smaller image and reserve than an appliance has: this is a demo on a developer's disk.
        command.args(["--image-mib", "8192", "--reserve-mib", "256"]);
        let nasd = command.spawn().context("starting nasd")?;
        let mut device = Self { nas: bin.join("nas"), data, nasd, http: String::new(), nfs: String::new() };
        device.wait_ready(&out)?;
        device.sign_in()?;
        Ok(device)
    }

    fn wait_ready(&mut self, out: &Path) -> anyhow::Result<()> {
        let started = Instant::now();
        loop {
            let said = std::fs::read_to_string(out)?;
            if said.starts_with("nasd ready") && said.ends_with('\n') {
                print!("{said}");
                let field = |name: &str| {
                    let value = said.split_whitespace().find_map(|word| word.strip_prefix(name));
                    value.map(str::to_owned).with_context(|| format!("nasd did not say {name}"))
                };
                (self.http, self.nfs) = (field("http=")?, field("nfs=")?);
                return Ok(());
            }
            if let Some(status) = self.nasd.try_wait()? {
                bail!("nasd ended with {status}: {}", std::fs::read_to_string(self.data.join("nasd.log"))?);
            }
            ensure!(started.elapsed() < PATIENCE, "nasd did not get ready in {} s", PATIENCE.as_secs());
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// The first time with the bootstrap token, later with the passphrase of the first time.
    fn sign_in(&self) -> anyhow::Result<()> {
        let file = self.passphrase_file().display().to_string();
        if self.passphrase_file().exists() && !self.data.join("owner.bootstrap").exists() {
            return self.show(&["owner", "login", "--passphrase-file", &file]).map(drop);
        }
        let mut raw = [0u8; 16];
        std::io::Read::read_exact(&mut File::open("/dev/urandom")?, &mut raw)?;
        let passphrase: String = raw.iter().map(|byte| format!("{byte:02x}")).collect();
        let options = File::options().write(true).create(true).truncate(true).mode(0o600).open(self.passphrase_file());
        writeln!(options?, "{passphrase}")?;
        let bootstrap = self.data.join("owner.bootstrap").display().to_string();
        self.show(&["owner", "init", "--bootstrap-file", &bootstrap, "--passphrase-file", &file]).map(drop)
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.http)
    }

    pub(crate) fn nfs(&self) -> &str {
        &self.nfs
    }

    pub(crate) fn nas(&self) -> &Path {
        &self.nas
    }

    pub(crate) fn state_dir(&self) -> PathBuf {
        self.data.join("demo-state")
    }

    /// The owner's token, as the CLI keeps it for its one box.
    pub(crate) fn owner_token(&self) -> anyhow::Result<String> {
        let boxes = self.state_dir().join("boxes");
        let state = std::fs::read_dir(&boxes)?.next().context("the CLI knows no box")??;
        Ok(std::fs::read_to_string(state.path().join("owner.token"))?)
    }

    pub(crate) fn data(&self) -> &Path {
        &self.data
    }

    pub(crate) fn passphrase_file(&self) -> PathBuf {
        self.data.join("demo.passphrase")
    }

    /// A file with the owner's token.
    pub(crate) fn token_file(&self) -> anyhow::Result<PathBuf> {
        let file = self.data.join("demo.token");
        let passphrase = self.passphrase_file().display().to_string();
        let said = self.show_quietly(&["owner", "login", "--passphrase-file", &passphrase, "--print-token"])?;
        let token = said.lines().last().context("'nas owner login' printed no token")?;
        let mut options = File::options();
        options.write(true).create(true).truncate(true).mode(0o600).open(&file)?.write_all(token.as_bytes())?;
        Ok(file)
    }

    /// How to stop nasd, which goes on.
    pub(crate) fn leave_running(&self) -> String {
        let pool = self.data.join("pool");
        let kill = format!("kill {}", self.nasd.id());
        if self.pool_is_mounted() { format!("{kill}; sleep 2; umount {}", pool.display()) } else { kill }
    }

    fn pool_is_mounted(&self) -> bool {
        let pool = format!(" {} ", self.data.join("pool").display());
        std::fs::read_to_string("/proc/self/mounts").is_ok_and(|mounts| mounts.contains(&pool))
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.nas);
        command
            .args(arguments)
            .env("NAS_URL", self.url())
            .env("NAS_STATE_DIR", self.state_dir())
            .env_remove("NAS_TOKEN");
        command.stdin(Stdio::null());
        command
    }

    /// Runs the CLI as a person would, shows what it says, and returns it.
    pub(crate) fn show(&self, arguments: &[&str]) -> anyhow::Result<String> {
        let quoted =
            arguments.iter().map(|a| if a.contains([' ', '*']) { format!("\"{a}\"") } else { (*a).to_owned() });
        println!("$ nas {}", quoted.collect::<Vec<_>>().join(" "));
        let output = self.command(arguments).output().context("starting nas")?;
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        // What was said before and beside the answer comes before it here too.
        print!("{}{said}", String::from_utf8_lossy(&output.stderr));
        ensure!(output.status.success(), "'nas {}' failed: {}", arguments.first().unwrap_or(&""), output.status);
        Ok(said)
    }

    /// Runs the CLI and returns what it says, which may be a secret.
    fn show_quietly(&self, arguments: &[&str]) -> anyhow::Result<String> {
        let output = self.command(arguments).output().context("starting nas")?;
        ensure!(output.status.success(), "'nas {}' failed: {}", arguments.first().unwrap_or(&""), output.status);
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Runs the CLI for its JSON.
    pub(crate) fn json(&self, arguments: &[&str]) -> anyhow::Result<serde_json::Value> {
        let output = self.command(&[&["--json"], arguments].concat()).output().context("starting nas")?;
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        ensure!(output.status.success(), "'nas {}' failed: {}", arguments.join(" "), json_text(&said));
        serde_json::from_str(&said).with_context(|| format!("'nas --json' said no JSON: {}", json_text(&said)))
    }

    /// A directory below `/shared` that main does not have yet.
    pub(crate) fn free_directory(&self) -> anyhow::Result<String> {
        let listing = self.json(&["tree", "list", "/shared"])?;
        let taken: Vec<_> =
            listing["entries"].as_array().into_iter().flatten().filter_map(|e| e["path"].as_str()).collect();
        let names = std::iter::once("/shared/launch".to_owned()).chain((2..).map(|n| format!("/shared/launch-{n}")));
        names.into_iter().find(|name| !taken.contains(&name.as_str())).context("no free name")
    }

    /// Ends nasd and takes its pool off the mount table.
    pub(crate) fn stop(&mut self) -> anyhow::Result<()> {
        let pid = rustix::process::Pid::from_child(&self.nasd);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).context("stopping nasd")?;
        let started = Instant::now();
        let status = loop {
            if let Some(status) = self.nasd.try_wait()? {
                break status;
            }
            ensure!(started.elapsed() < PATIENCE, "nasd did not stop in {} s", PATIENCE.as_secs());
            std::thread::sleep(Duration::from_millis(50));
        };
        ensure!(status.success(), "nasd ended with {status}");
        // nasd has no right to unmount what it was started with as root.
        if self.pool_is_mounted() {
            run(Command::new("umount").arg(self.data.join("pool")))?;
        }
        Ok(())
    }
}

/// The port of the defaults, or any where it is taken.
fn free_or_any(port: u16) -> anyhow::Result<String> {
    let address = format!("127.0.0.1:{port}");
    if TcpListener::bind(&address).is_ok() { Ok(address) } else { Ok("127.0.0.1:0".to_owned()) }
}

/// The beginning of a program's output, for an error message.
pub(crate) fn json_text(text: &str) -> String {
    text.trim().chars().take(500).collect()
}
