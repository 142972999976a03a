//! What a test sees: a builder, a running machine, commands.

use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::control::{Control, Output, Pending, console_tail};
use crate::job::Job;
use crate::{Error, HOST_FROM_GUEST, kernel, shell_quote};

/// Memory of a guest unless said otherwise, in MiB.
pub const MEMORY_MIB: u32 = 256;

/// How long booting may take: emulation on a loaded machine is slow.
pub const BOOT_PATIENCE: Duration = Duration::from_secs(180);

/// How long one command may take unless said otherwise.
pub const COMMAND_PATIENCE: Duration = Duration::from_secs(120);

/// How a guest shall be.
#[derive(Debug)]
pub struct Builder {
    job: Job,
    script: Option<String>,
    disks: Vec<PathBuf>,
    forwards: Vec<(u16, u16)>,
    memory_mib: u32,
    timeout: Duration,
}

/// The result of a guest that ran one script and ended.
#[derive(Debug)]
pub struct Outcome {
    /// The script's exit status.
    pub status: i32,
    /// What it printed.
    pub output: String,
    /// What the kernel said meanwhile.
    pub console: String,
    /// From the start of the emulator to the agent's first word.
    pub boot: Duration,
    /// From the start of the emulator to the script's end.
    pub total: Duration,
}

impl Builder {
    /// A script for [`Builder::run`].
    pub fn job(mut self, script: impl Into<String>) -> Self {
        self.script = Some(script.into());
        self
    }

    /// Ships a file or directory to `/job/<its name>`.
    pub fn file(mut self, path: impl Into<PathBuf>) -> Self {
        self.job.files.push(path.into());
        self
    }

    /// Ships a program to `/usr/bin/<its name>` together with the shared libraries that `ldd` names.
    pub fn program(mut self, path: impl Into<PathBuf>) -> Self {
        self.job.programs.push(path.into());
        self
    }

    /// Adds a writable disk from a raw image: `/dev/vdb`, then `/dev/vdc`, …
    pub fn disk(mut self, image: impl Into<PathBuf>) -> Self {
        self.disks.push(image.into());
        self
    }

    /// Lets the host reach a TCP port of the guest through a port of the host's loopback address. (The guest reaches
    /// every port of the host's loopback address at [`HOST_FROM_GUEST`] without this.)
    pub fn forward(mut self, host_port: u16, guest_port: u16) -> Self {
        self.forwards.push((host_port, guest_port));
        self
    }

    /// Memory in MiB; [`MEMORY_MIB`] by default.
    pub fn mem(mut self, mib: u32) -> Self {
        self.memory_mib = mib;
        self
    }

    /// How long one command may take; [`COMMAND_PATIENCE`] by default.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Boots, runs the script given to [`Builder::job`] and powers off.
    ///
    /// # Errors
    /// When it cannot boot or the script does not end in time. A failing script is an [`Outcome`], not an error.
    pub fn run(self) -> Result<Outcome, Error> {
        let script = self.script.clone().unwrap_or_default();
        let started = Instant::now();
        let guest = self.boot()?;
        let output = guest.run(&script)?;
        let console = guest.console();
        Ok(Outcome {
            status: output.status,
            output: output.text(),
            console,
            boot: guest.boot_time,
            total: started.elapsed(),
        })
    }

    /// Boots and waits until the guest takes commands.
    ///
    /// # Errors
    /// Without the emulator or a kernel, or when the guest dies or hangs; the console's end is in the message.
    pub fn boot(self) -> Result<Guest, Error> {
        let kernel = crate::prepare()?;
        let initramfs = crate::initramfs::ensure(&kernel)?;
        let dir = tempfile::Builder::new().prefix("nas-guest-").tempdir();
        let dir = dir.map_err(Error::file("cannot create a directory in", std::env::temp_dir()))?;
        let started = Instant::now();
        let job = dir.path().join("job.tar");
        self.job.write(&job)?;
        let socket = dir.path().join("control");
        let listener = UnixListener::bind(&socket).map_err(Error::file("cannot listen on", &socket))?;
        let console = dir.path().join("console");
        let mut command = self.emulator(&kernel, &initramfs, &job, &socket, &console);
        let child = command.spawn().map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => Error::NoProgram { program: EMULATOR.to_owned() },
            _ => Error::Command { command: format!("{command:?}"), stderr: error.to_string() },
        })?;
        let machine = Machine { child };
        let not_ready = || Error::NotReady { patience: BOOT_PATIENCE, console: console_tail(&console) };
        let mut machine = machine;
        let stream = accept(&listener, &mut machine, started).ok_or_else(not_ready)?;
        let remaining = BOOT_PATIENCE.saturating_sub(started.elapsed()).max(Duration::from_secs(1));
        let (control, greeting) =
            Control::handshake(stream, remaining, console.clone()).map_err(|error| match error.kind() {
                std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut => not_ready(),
                _ => Error::Gone { console: console_tail(&console) },
            })?;
        Ok(Guest { control, machine, console, greeting, timeout: self.timeout, boot_time: started.elapsed(), dir })
    }

    fn emulator(
        &self,
        kernel: &kernel::Kernel,
        initramfs: &Path,
        job: &Path,
        socket: &Path,
        console: &Path,
    ) -> Command {
        let mut command = Command::new(EMULATOR);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command.args(["-machine", "pc", "-cpu", "max", "-smp", "1", "-m", &self.memory_mib.to_string()]);
        command.args(["-accel", &accelerator()]);
        command.args(["-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"]);
        command.arg("-kernel").arg(kernel.image()).arg("-initrd").arg(initramfs);
        command.args(["-append", "console=ttyS0 quiet panic=-1 mitigations=off random.trust_cpu=on"]);
        command.arg("-serial").arg(option("file:", console, ""));
        command.arg("-drive").arg(option("if=virtio,format=raw,readonly=on,file=", job, ""));
        for disk in &self.disks {
            command.arg("-drive").arg(option("if=virtio,format=raw,cache=unsafe,file=", disk, ""));
        }
        let forwards: String =
            self.forwards.iter().map(|(host, guest)| format!(",hostfwd=tcp:127.0.0.1:{host}-:{guest}")).collect();
        command.args(["-netdev", &format!("user,id=net{forwards}")]);
        command.args(["-device", "virtio-net-pci,netdev=net,romfile=", "-device", "virtio-rng-pci"]);
        command.arg("-chardev").arg(option("socket,id=control,path=", socket, ""));
        command.args(["-device", "virtio-serial-pci", "-device", "virtserialport,chardev=control,name=control"]);
        command
    }
}

const EMULATOR: &str = "qemu-system-x86_64";

/// Emulation, unless `NAS_GUEST_ACCEL` names an accelerator (`kvm`). Emulation is the default because a machine may well
/// have a /dev/kvm that can be opened and then never runs a single instruction.
fn accelerator() -> String {
    match std::env::var("NAS_GUEST_ACCEL") {
        Ok(name) if !name.is_empty() => name,
        _ => "tcg,thread=multi".to_owned(),
    }
}

/// A path inside an option string: the emulator reads `,,` as one comma.
fn option(before: &str, path: &Path, after: &str) -> String {
    format!("{before}{}{after}", path.to_string_lossy().replace(',', ",,"))
}

/// The emulator's connection, unless it dies first or never comes.
fn accept(listener: &UnixListener, machine: &mut Machine, started: Instant) -> Option<UnixStream> {
    listener.set_nonblocking(true).ok()?;
    while started.elapsed() < BOOT_PATIENCE {
        if let Ok((stream, _)) = listener.accept() {
            stream.set_nonblocking(false).ok()?;
            return Some(stream);
        }
        if !machine.is_running() {
            return None;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    None
}

/// The emulator's process, killed and reaped on drop.
struct Machine {
    child: Child,
}

impl Machine {
    fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        // Both fail only when it is already gone.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A running guest. Dropping it pulls the plug: nothing in the guest is flushed first.
pub struct Guest {
    control: Control,
    machine: Machine,
    console: PathBuf,
    greeting: String,
    timeout: Duration,
    boot_time: Duration,
    // Last: the machine must be gone before its files are.
    dir: tempfile::TempDir,
}

impl Guest {
    /// A guest with 256 MiB and nothing but busybox in it.
    pub fn builder() -> Builder {
        Builder {
            job: Job::default(),
            script: None,
            disks: Vec::new(),
            forwards: Vec::new(),
            memory_mib: MEMORY_MIB,
            timeout: COMMAND_PATIENCE,
        }
    }

    /// Runs a shell script (its own shell, working directory `/job`) and waits for its end.
    ///
    /// # Errors
    /// [`Error::TimedOut`] or [`Error::Gone`]. A script that fails is no error: see [`Output::status`].
    pub fn run(&self, script: &str) -> Result<Output, Error> {
        self.start(script)?.wait()
    }

    /// Runs a script that has to succeed; what it printed, without the last line's end.
    ///
    /// # Errors
    /// Like [`Guest::run`], and [`Error::Status`] with the output when its status is not 0.
    pub fn run_ok(&self, script: &str) -> Result<String, Error> {
        let output = self.run(script)?;
        let text = output.text();
        if output.status == 0 {
            return Ok(text.trim_end_matches('\n').to_owned());
        }
        Err(Error::Status { command: script.to_owned(), status: output.status, output: text })
    }

    /// Starts a script and returns at once; commands run side by side.
    ///
    /// # Errors
    /// [`Error::Gone`] if the machine is no more.
    pub fn start(&self, script: &str) -> Result<Pending, Error> {
        self.control.start(script, self.timeout)
    }

    /// Mounts an export of the host's NFSv3 server with the kernel's client. `port` and `mount_port` are those of NFS and
    /// MOUNT on the host's loopback address; `options` is a comma-separated list, or empty.
    ///
    /// # Errors
    /// [`Error::Status`] with mount's message when the server refuses.
    pub fn mount_nfs(&self, port: u16, mount_port: u16, export: &str, dir: &str, options: &str) -> Result<(), Error> {
        self.run_ok(&mount_nfs_script(port, mount_port, export, dir, options)).map(drop)
    }

    /// Unmounts; `-f` aborts what a dead server left hanging.
    ///
    /// # Errors
    /// [`Error::Status`] when it is busy.
    pub fn unmount(&self, dir: &str) -> Result<(), Error> {
        self.run_ok(&format!("umount {}", shell_quote(dir))).map(drop)
    }

    /// Makes the guest forget every cached page, name and attribute that it need not keep.
    ///
    /// # Errors
    /// As [`Guest::run_ok`].
    pub fn drop_caches(&self) -> Result<(), Error> {
        self.run_ok("sync; echo 3 > /proc/sys/vm/drop_caches").map(drop)
    }

    /// What the kernel printed since boot.
    pub fn console(&self) -> String {
        let bytes = std::fs::read(&self.console).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// The agent's first words: seconds since the kernel's start, and its version.
    pub fn greeting(&self) -> &str {
        &self.greeting
    }

    /// From the start of the emulator to the agent's first word.
    pub fn boot_time(&self) -> Duration {
        self.boot_time
    }

    /// A directory of this guest on the host, removed with it.
    pub fn scratch(&self) -> &Path {
        self.dir.path()
    }

    /// Pulls the plug now.
    pub fn kill(mut self) {
        let _ = self.machine.child.kill();
    }
}

fn mount_nfs_script(port: u16, mount_port: u16, export: &str, dir: &str, options: &str) -> String {
    let mut all = format!(
        "vers=3,proto=tcp,mountproto=tcp,nolock,addr={HOST_FROM_GUEST},port={port},mountport={mount_port},\
         mountaddr={HOST_FROM_GUEST}"
    );
    if !options.is_empty() {
        all = format!("{all},{options}");
    }
    let source = shell_quote(&format!("{HOST_FROM_GUEST}:{export}"));
    let (dir, all) = (shell_quote(dir), shell_quote(&all));
    // -i: no mount helper, the kernel speaks the MOUNT protocol itself.
    format!("need nfsv3 && mkdir -p {dir} && mount -i -t nfs -o {all} {source} {dir}")
}
