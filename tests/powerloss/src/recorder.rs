//! A btrfs on a recorded disk, for as long as a test works on it.

use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use nas_testkit::disk::{LoopDevice, Mounted, run};
use nas_testkit::{Process, Scratch, Unavailable, is_root, wait_until};

use crate::replay::{Log, copy_sparse};
use crate::server::{DISK, MARK};
use crate::{Error, sweep::MOUNT_OPTIONS};

/// How long the parts may take to come and go on a loaded machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// Overrides where the server program is.
pub const SERVER_VARIABLE: &str = "NAS_POWERLOSS_SERVER";

/// Records while it lives. Dropping it throws the recording away and undoes every mount.
#[derive(Debug)]
pub struct Recorder {
    // In the order in which they have to go.
    volume: Mounted,
    device: LoopDevice,
    disk: Mounted,
    server: Process,
    scratch: Scratch,
}

impl Recorder {
    /// Makes a disk of `bytes` (sparse, at least what btrfs wants) with a fresh btrfs, and mounts it as the appliance does.
    /// Recording starts after mkfs.
    ///
    /// # Errors
    /// [`Error::Unavailable`] where root, FUSE, loop devices or btrfs-progs are missing.
    pub fn start(bytes: u64) -> Result<Self, Error> {
        if !is_root() {
            return Err(Unavailable::NotRoot.into());
        }
        let program = server_program()?;
        let scratch = Scratch::new("powerloss");
        let (backing, base, log) = (scratch.join("backing"), scratch.join("base"), scratch.join("log"));
        let bytes = bytes.max(nas_testkit::disk::BTRFS_BYTES_MIN);
        File::create(&backing).and_then(|f| f.set_len(bytes)).map_err(Error::file("cannot create", &backing))?;
        let mkfs = ["--quiet", "--force", "--nodiscard", "--metadata", "single"];
        run(Command::new("mkfs.btrfs").args(mkfs).arg(&backing))?;
        copy_sparse(&backing, &base)?;
        let (disk_dir, volume_dir) = (scratch.join("disk"), scratch.join("mnt"));
        for dir in [&disk_dir, &volume_dir] {
            fs::create_dir(dir).map_err(Error::file("cannot create", dir))?;
        }
        let (server, disk) = start_server(&program, [&disk_dir, &backing, &log, &volume_dir])?;
        let device = LoopDevice::attach(&disk_dir.join(DISK), true)?;
        let volume = Mounted::mount(device.device(), &volume_dir, "btrfs", MOUNT_OPTIONS)?;
        Ok(Self { volume, device, disk, server, scratch })
    }

    /// The root of the recorded file system.
    pub fn mount_dir(&self) -> &Path {
        self.volume.dir()
    }

    /// Puts an event of the test into the log: from here on, `text` has been promised. Call it *after* the promise was
    /// made (the answer arrived), never before.
    ///
    /// # Errors
    /// When the server is gone.
    pub fn marker(&self, text: &str) -> Result<(), Error> {
        let path = self.marker_path();
        let file = OpenOptions::new().write(true).open(&path);
        file.and_then(|mut file| file.write_all(text.as_bytes())).map_err(Error::file("cannot write to", path))
    }

    /// The file whose every single write becomes a marker, for programs other than the test.
    pub fn marker_path(&self) -> PathBuf {
        self.disk.dir().join(MARK)
    }

    /// Ends the recording: unmounts, detaches, waits for the server. The unmount's own writes and flushes are recorded too.
    ///
    /// # Errors
    /// [`Error::Busy`] while a program still uses the file system: end it first.
    pub fn stop(self) -> Result<Log, Error> {
        // Locals drop in reverse: on an early return the parts go in the same order as on drop.
        let Self { scratch, mut server, disk, device, volume } = self;
        volume.unmount().map_err(Error::Busy)?;
        drop(device);
        // The kernel frees a loop device when its last opener (a device scanner, say) has closed it.
        let dir = disk.dir().to_owned();
        let gone = wait_until(PATIENCE, || run(Command::new("umount").arg(&dir)).is_ok());
        if !gone {
            return Err(Error::Server("its mount stays busy".to_owned()));
        }
        disk.release();
        let status = server.wait(PATIENCE).map_err(|error| Error::Server(error.to_string()))?;
        if !status.success() {
            return Err(Error::Server(format!("it ended with {status}")));
        }
        Log::open(scratch)
    }
}

/// `arguments`: where the disk shall be, its backing file, its log, where the file system will be.
fn start_server(program: &Path, arguments: [&Path; 4]) -> Result<(Process, Mounted), Error> {
    let mut command = Command::new(program);
    // The pipe to its input stays open as long as this process lives, which is how it learns of our death.
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut server =
        Process::spawn(&mut command).map_err(|error| Error::Server(format!("cannot start it: {error}")))?;
    let stdout = server.child().stdout.take().expect("because it was asked for");
    let mut line = String::new();
    BufReader::new(stdout).read_line(&mut line).map_err(|error| Error::Server(error.to_string()))?;
    if line.trim() != "ready" {
        return Err(Error::Server("it ended before the disk was there; is /dev/fuse usable?".to_owned()));
    }
    Ok((server, Mounted::adopt(arguments[0])))
}

/// The server's program: named by the environment, beside this test program, or built now.
fn server_program() -> Result<PathBuf, Error> {
    if let Some(path) = std::env::var_os(SERVER_VARIABLE) {
        return Ok(path.into());
    }
    const NAME: &str = "nas-powerloss-server";
    let executable = std::env::current_exe().map_err(|error| Error::Server(error.to_string()))?;
    let beside = executable.ancestors().skip(1).take(2).map(|dir| dir.join(NAME)).find(|path| path.is_file());
    if let Some(path) = beside {
        return Ok(path);
    }
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(["build", "--quiet", "--package", "nas-powerloss", "--bin", NAME]);
    run(command.current_dir(env!("CARGO_MANIFEST_DIR")))?;
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| PathBuf::from("target"), PathBuf::from);
    Ok(workspace.join(target).join("debug").join(NAME))
}
