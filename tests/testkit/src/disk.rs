//! Real file systems in a file: loop device, mkfs, mount, and all of it undone on drop.

use std::fs::{File, create_dir};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::{Scratch, Unavailable, is_root};

/// One mebibyte.
pub const MIB: u64 = 1 << 20;

/// The smallest btrfs that [`LoopBtrfs::new`] makes without mixed block groups.
pub const BTRFS_BYTES_MIN: u64 = 114 * MIB;

/// Runs a program to its end; its standard output, or why not.
///
/// # Errors
/// [`Unavailable::NoProgram`] if it is not installed, [`Unavailable::Failed`] with what it said otherwise.
pub fn run(command: &mut Command) -> Result<String, Unavailable> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command.output().map_err(|source| match source.kind() {
        std::io::ErrorKind::NotFound => Unavailable::NoProgram(program.clone()),
        _ => Unavailable::Io { what: format!("starting `{program}`"), source },
    })?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).trim_end().to_owned());
    }
    Err(Unavailable::Failed {
        command: format!("{command:?}"),
        status: output.status,
        stderr: String::from_utf8_lossy(&output.stderr).trim_end().to_owned(),
    })
}

fn io(what: &'static str) -> impl FnOnce(std::io::Error) -> Unavailable {
    move |source| Unavailable::Io { what: what.to_owned(), source }
}

/// A loop device on a file, detached on drop.
#[derive(Debug)]
pub struct LoopDevice {
    device: PathBuf,
}

impl LoopDevice {
    /// Attaches the next free loop device to `image`. With `direct`, writes bypass the page cache of the image's file
    /// system, so what the block layer flushed has really been handed on.
    ///
    /// # Errors
    /// Without root or `losetup`, or when the kernel refuses.
    pub fn attach(image: &Path, direct: bool) -> Result<Self, Unavailable> {
        if !is_root() {
            return Err(Unavailable::NotRoot);
        }
        let direct = if direct { "--direct-io=on" } else { "--direct-io=off" };
        let device = run(Command::new("losetup").args(["--find", "--show", direct]).arg(image))?;
        Ok(Self { device: PathBuf::from(device) })
    }

    /// The device node.
    pub fn device(&self) -> &Path {
        &self.device
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        // A device that is still mounted is only marked: the kernel frees it with the last user.
        if let Err(error) = run(Command::new("losetup").arg("--detach").arg(&self.device)) {
            eprintln!("a loop device stays behind: {error}");
        }
    }
}

/// A mounted file system, unmounted on drop (lazily if somebody still holds a file of it).
#[derive(Debug)]
pub struct Mounted {
    dir: PathBuf,
    mounted: bool,
}

impl Mounted {
    /// Mounts `device` on the existing directory `dir`.
    ///
    /// # Errors
    /// Without root, or when mount(8) fails; its message is kept.
    pub fn mount(device: &Path, dir: &Path, fs_type: &str, options: &str) -> Result<Self, Unavailable> {
        if !is_root() {
            return Err(Unavailable::NotRoot);
        }
        run(Command::new("mount").args(["-t", fs_type, "-o", options]).arg(device).arg(dir))?;
        Ok(Self { dir: dir.to_owned(), mounted: true })
    }

    /// Takes over a mount that another program made; it is unmounted on drop.
    pub fn adopt(dir: &Path) -> Self {
        Self { dir: dir.to_owned(), mounted: true }
    }

    /// Gives the mount up: nothing is unmounted on drop.
    pub fn release(mut self) {
        self.mounted = false;
    }

    /// Where it is mounted.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Unmounts now and says whether that worked; nothing is forced.
    ///
    /// # Errors
    /// When it is busy. The guard then still tries on drop.
    pub fn unmount(mut self) -> Result<(), Unavailable> {
        run(Command::new("umount").arg(&self.dir))?;
        self.mounted = false;
        Ok(())
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if !self.mounted || run(Command::new("umount").arg(&self.dir)).is_ok() {
            return;
        }
        if let Err(error) = run(Command::new("umount").arg("--lazy").arg(&self.dir)) {
            eprintln!("a mount stays behind: {error}");
        }
    }
}

/// A file system of its own on a sparse image. Fields drop in this order: unmount, detach, remove.
#[derive(Debug)]
struct Volume {
    mounted: Mounted,
    device: LoopDevice,
    scratch: Scratch,
}

impl Volume {
    fn make(bytes: u64, mkfs: &[&str], fs_type: &str, options: &str) -> Result<Self, Unavailable> {
        if !is_root() {
            return Err(Unavailable::NotRoot);
        }
        let scratch = Scratch::new("disk");
        let image = scratch.join("disk.img");
        File::create(&image).and_then(|file| file.set_len(bytes)).map_err(io("making a sparse image"))?;
        run(Command::new(mkfs[0]).args(&mkfs[1..]).arg(&image))?;
        let device = LoopDevice::attach(&image, false)?;
        let dir = scratch.join("mnt");
        create_dir(&dir).map_err(io("making a mount point"))?;
        let mounted = Mounted::mount(device.device(), &dir, fs_type, options)?;
        Ok(Self { mounted, device, scratch })
    }
}

/// A btrfs mounted the way the appliance mounts its pool: `user_subvol_rm_allowed,nosuid,nodev` (DESIGN §2).
#[derive(Debug)]
pub struct LoopBtrfs(Volume);

impl LoopBtrfs {
    /// Makes and mounts a file system of `bytes` (sparse; at least [`BTRFS_BYTES_MIN`]).
    ///
    /// # Errors
    /// Without root, without btrfs-progs, or when the kernel has no btrfs.
    pub fn new(bytes: u64) -> Result<Self, Unavailable> {
        let mkfs = ["mkfs.btrfs", "--quiet", "--force", "--nodiscard"];
        Volume::make(bytes.max(BTRFS_BYTES_MIN), &mkfs, "btrfs", "user_subvol_rm_allowed,nosuid,nodev").map(Self)
    }

    /// The root of the file system.
    pub fn path(&self) -> &Path {
        self.0.mounted.dir()
    }

    /// A path inside it.
    pub fn join(&self, name: impl AsRef<Path>) -> PathBuf {
        self.path().join(name)
    }

    /// The loop device it lives on.
    pub fn device(&self) -> &Path {
        self.0.device.device()
    }

    /// A directory beside the file system, removed with it.
    pub fn beside(&self) -> &Path {
        self.0.scratch.path()
    }
}

/// A disk small enough to be filled to the last byte in a moment.
#[derive(Debug)]
pub struct SmallDisk(Volume);

impl SmallDisk {
    /// ext4 of `bytes`, with no blocks reserved for root (a test runs as root and wants to meet the end).
    ///
    /// # Errors
    /// Without root or e2fsprogs.
    pub fn ext4(bytes: u64) -> Result<Self, Unavailable> {
        Volume::make(bytes, &["mkfs.ext4", "-q", "-F", "-m", "0"], "ext4", "nosuid,nodev").map(Self)
    }

    /// btrfs of `bytes` with mixed block groups, which may be as small as 16 MiB. Snapshots and reflinks work as on a large one.
    ///
    /// # Errors
    /// Without root or btrfs-progs.
    pub fn btrfs(bytes: u64) -> Result<Self, Unavailable> {
        let mkfs =
            ["mkfs.btrfs", "--quiet", "--force", "--nodiscard", "--mixed", "--metadata", "single", "--data", "single"];
        Volume::make(bytes, &mkfs, "btrfs", "user_subvol_rm_allowed,nosuid,nodev").map(Self)
    }

    /// The root of the file system.
    pub fn path(&self) -> &Path {
        self.0.mounted.dir()
    }

    /// A path inside it.
    pub fn join(&self, name: impl AsRef<Path>) -> PathBuf {
        self.path().join(name)
    }

    /// Bytes that an unprivileged writer could still allocate, as statvfs says.
    ///
    /// # Panics
    /// If the file system cannot be asked.
    pub fn available(&self) -> u64 {
        let answer = rustix::fs::statvfs(self.path()).expect("because the file system is mounted");
        answer.f_bavail * answer.f_frsize
    }

    /// Writes `name` until not one byte more fits, and syncs; returns the bytes written. Deleting the file makes room again.
    ///
    /// # Errors
    /// Any error that is not "no space left".
    pub fn fill(&self, name: &str) -> std::io::Result<u64> {
        use std::io::Write;
        let mut file = File::create(self.join(name))?;
        let block = vec![0x5a_u8; 256 << 10];
        let (mut size, mut written) = (block.len(), 0);
        loop {
            match file.write(&block[..size]) {
                Ok(n) => written += n as u64,
                Err(error) if error.kind() != std::io::ErrorKind::StorageFull => return Err(error),
                // Smaller and smaller, down to single bytes. A full disk may also show only at the sync.
                Err(_) if size > 1 => size /= 2,
                Err(_) => break,
            }
        }
        match file.sync_all() {
            Err(error) if error.kind() != std::io::ErrorKind::StorageFull => Err(error),
            _ => Ok(written),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::or_skip;

    /// Goal: the file system is a btrfs with the appliance's mount options, and nothing stays behind.
    #[test]
    fn btrfs_comes_and_goes() {
        let Some(disk) = or_skip(LoopBtrfs::new(256 * MIB)) else { return };
        let (dir, device) = (disk.path().to_owned(), disk.device().to_owned());
        run(Command::new("btrfs").args(["subvolume", "create"]).arg(disk.join("sub"))).unwrap();
        let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
        let line = mounts.lines().find(|l| l.contains(dir.to_str().unwrap())).unwrap();
        for option in ["btrfs", "nosuid", "nodev", "user_subvol_rm_allowed"] {
            assert!(line.contains(option), "{option} is missing in {line}");
        }
        drop(disk);
        assert!(!std::fs::read_to_string("/proc/self/mounts").unwrap().contains(dir.to_str().unwrap()));
        // The kernel detaches asynchronously when something (udev, blkid) still looks at the device.
        let backing = PathBuf::from("/sys/block").join(device.file_name().unwrap()).join("loop/backing_file");
        let ours =
            || std::fs::read_to_string(&backing).is_ok_and(|f| f.contains(dir.parent().unwrap().to_str().unwrap()));
        assert!(crate::wait_until(std::time::Duration::from_secs(30), || !ours()));
    }

    /// Goal: "full" means that not one more byte can be written, and deleting makes room.
    #[test]
    fn small_disks_fill_and_empty() {
        for make in [SmallDisk::ext4, SmallDisk::btrfs] {
            let Some(disk) = or_skip(make(32 * MIB)) else { return };
            let written = disk.fill("ballast").unwrap();
            assert!(written > 8 * MIB, "only {written} bytes fitted");
            let more = std::fs::write(disk.join("more"), vec![1; 1 << 20]);
            assert_eq!(more.unwrap_err().kind(), std::io::ErrorKind::StorageFull);
            let before = disk.available();
            std::fs::remove_file(disk.join("ballast")).unwrap();
            rustix::fs::syncfs(File::open(disk.path()).unwrap()).unwrap();
            assert!(disk.available() > before + 8 * MIB);
        }
    }
}
