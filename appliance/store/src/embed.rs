//! A store in a folder, for a developer's machine (DESIGN §2): where its pool is.
//!
//! - The folder is on btrfs: `DIR/pool` is used directly.
//! - It is not, and we are root: `DIR/pool.img`, a sparse image with btrfs on it, is mounted at `DIR/pool` through a loop device.
//! - Otherwise `DIR/pool` is used with the copy engine.
//!
//! Once made, the choice stays: an image that exists is used again, and a mount left by a killed process is taken over.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::mount::UnmountFlags;

use crate::engine::btrfs::is_btrfs;
use crate::error::StoreError;

/// Default size of the sparse image, in bytes: the most that the store can grow to.
pub const IMAGE_BYTES: u64 = 64 << 30;
/// Options of every mount of a pool (DESIGN §2): the owner may delete its subvolumes, nothing in it gains privileges.
pub const MOUNT_OPTIONS: &str = "loop,user_subvol_rm_allowed,nosuid,nodev,noatime";

/// The pool of an embedded store.
#[derive(Debug)]
pub struct Pool {
    /// Its directory.
    pub path: PathBuf,
    mounted: bool,
}

/// How to make a pool that does not exist yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PoolOptions {
    /// Make a loop image when the folder is not on btrfs and we may mount.
    pub loop_image: bool,
    /// Size of the image, in bytes.
    pub image_bytes: u64,
}

impl Default for PoolOptions {
    fn default() -> Self {
        Self { loop_image: true, image_bytes: IMAGE_BYTES }
    }
}

impl Pool {
    /// Opens the pool in folder `dir`, making it when there is none.
    pub fn open(dir: &Path, options: PoolOptions) -> Result<Self, StoreError> {
        let path = dir.join("pool");
        fs::create_dir_all(&path).map_err(StoreError::io("making", &path))?;
        let image = dir.join("pool.img");
        let has_image = image.exists();
        let direct = is_btrfs(dir).map_err(StoreError::io("reading", dir))?;
        if !has_image && (direct || !options.loop_image || !rustix::process::geteuid().is_root() || in_use(&path)?) {
            return Ok(Self { path, mounted: false });
        }
        // Left mounted by a process that was killed: take it over.
        if is_mount_point(dir, &path)? {
            return Ok(Self { path, mounted: true });
        }
        if !has_image {
            make_image(&image, options.image_bytes)?;
        }
        run(
            "mount",
            &[
                "-t".as_ref(),
                "btrfs".as_ref(),
                "-o".as_ref(),
                MOUNT_OPTIONS.as_ref(),
                image.as_os_str(),
                path.as_os_str(),
            ],
        )?;
        Ok(Self { path, mounted: true })
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        if self.mounted {
            // Detached lazily: files still open in it stay usable, the loop device goes with the last one.
            if let Err(e) = rustix::mount::unmount(&self.path, UnmountFlags::DETACH) {
                // The daemon gave up the right to do this when it started.
                tracing::info!(path = %self.path.display(), error = %e, "the pool stays mounted for the next start; root can umount it");
            }
        }
    }
}

/// A plain pool directory that already holds a store.
fn in_use(path: &Path) -> Result<bool, StoreError> {
    Ok(fs::read_dir(path).map_err(StoreError::io("reading", path))?.next().is_some())
}

fn is_mount_point(dir: &Path, path: &Path) -> Result<bool, StoreError> {
    use std::os::unix::fs::MetadataExt as _;
    let outside = fs::metadata(dir).map_err(StoreError::io("reading", dir))?.dev();
    let inside = fs::metadata(path).map_err(StoreError::io("reading", path))?.dev();
    Ok(outside != inside && is_btrfs(path).map_err(StoreError::io("reading", path))?)
}

/// Made under another name first: an image without a file system is never found later.
fn make_image(image: &Path, bytes: u64) -> Result<(), StoreError> {
    let part = image.with_extension("img.part");
    let file = fs::File::create(&part).map_err(StoreError::io("making", &part))?;
    file.set_len(bytes).map_err(StoreError::io("making", &part))?;
    run("mkfs.btrfs", &["-q".as_ref(), "-f".as_ref(), part.as_os_str()])?;
    file.sync_all().map_err(StoreError::io("syncing", &part))?;
    fs::rename(&part, image).map_err(StoreError::io("making", image))
}

fn run(program: &'static str, args: &[&std::ffi::OsStr]) -> Result<(), StoreError> {
    let failed = |why: String| StoreError::Program { program, why };
    let out = Command::new(program).args(args).env("LC_ALL", "C").output().map_err(|e| failed(e.to_string()))?;
    if out.status.success() { Ok(()) } else { Err(failed(String::from_utf8_lossy(&out.stderr).trim().to_owned())) }
}
