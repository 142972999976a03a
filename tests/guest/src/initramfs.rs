//! The guest's whole root directory: busybox, an agent and the kernel modules a file-server test may want.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

use crate::Error;
use crate::cpio::Archive;
use crate::kernel::{Kernel, lock, output};

/// The agent. Its own bytes take part in the cache key.
const INIT: &str = include_str!("init.sh");

/// Loads a group of modules by the name of the last one: `need nfsv3`.
const NEED: &str = "#!/bin/sh
# Loads the named modules and what they depend on, unless they are there already.
for group in \"$@\"; do
  for module in $(cat \"/modules/$group.order\"); do
    grep -q \"^$module \" /proc/modules || insmod \"/modules/$module.ko\" || exit 1
  done
done
";

/// Module groups. The first ones are loaded at boot, the others when a test asks (`need btrfs`): loading btrfs costs
/// seconds of RAID benchmark under emulation.
const MODULES: [&str; 8] =
    ["virtio_pci", "virtio_blk", "virtio_net", "virtio_console", "virtio_rng", "nfsv3", "ext4", "btrfs"];

const DIRECTORIES: [&str; 15] =
    ["bin", "dev", "etc", "job", "lib", "lib64", "mnt", "modules", "proc", "root", "run", "sbin", "sys", "tmp", "usr"];

/// The initramfs for `kernel`: the cached one if it was made from the same busybox and agent, else a new one.
///
/// # Errors
/// Without a static busybox, or when the kernel lacks a module.
pub(crate) fn ensure(kernel: &Kernel) -> Result<PathBuf, Error> {
    let busybox = static_busybox()?;
    let path = kernel.dir().join(format!("initramfs-{:016x}.cpio", key(&busybox)));
    let _lock = lock(kernel.dir())?;
    if path.exists() {
        return Ok(path);
    }
    let bytes = build(kernel, &busybox)?;
    let partial = path.with_extension("partial");
    fs::write(&partial, bytes).map_err(Error::file("cannot write", &partial))?;
    fs::rename(&partial, &path).map_err(Error::file("cannot move the new initramfs to", &path))?;
    Ok(path)
}

fn build(kernel: &Kernel, busybox: &[u8]) -> Result<Vec<u8>, Error> {
    let index = kernel.module_index()?;
    let mut archive = Archive::new();
    for name in DIRECTORIES {
        archive.directory(name);
    }
    archive.directory("usr/bin");
    archive.directory("usr/sbin");
    archive.file("init", 0o755, INIT.as_bytes());
    archive.file("bin/busybox", 0o755, busybox);
    archive.symlink("bin/sh", "busybox");
    archive.file("bin/need", 0o755, NEED.as_bytes());
    archive.file("etc/passwd", 0o644, b"root:x:0:0:root:/root:/bin/sh\nagent:x:1000:1000:agent:/tmp:/bin/sh\n");
    archive.file("etc/group", 0o644, b"root:x:0:\nagent:x:1000:\n");
    archive.file("etc/hosts", 0o644, b"127.0.0.1 localhost\n10.0.2.2 box\n");
    let mut modules = BTreeMap::new();
    for group in MODULES {
        let order = index.resolve(group, &mut modules)?;
        archive.file(&format!("modules/{group}.order"), 0o644, (order.join("\n") + "\n").as_bytes());
    }
    for (name, bytes) in &modules {
        archive.file(&format!("modules/{name}.ko"), 0o644, bytes);
    }
    // Not compressed: unpacking under emulation costs more time than the few megabytes are worth.
    Ok(archive.finish())
}

/// A busybox that needs no libraries: the host's own one, else the one unpacked from its package.
fn static_busybox() -> Result<Vec<u8>, Error> {
    let found = output(Command::new("sh").args(["-c", "command -v busybox"]));
    let path = found.map_err(|_| Error::NoProgram { program: "busybox".to_owned() })?;
    let path = PathBuf::from(String::from_utf8_lossy(&path).trim());
    let bytes = fs::read(&path).map_err(Error::file("cannot read", &path))?;
    // A dynamically linked program names its loader; inside the guest there is none.
    if bytes.windows(9).any(|window| window == b"/ld-linux") {
        return Err(Error::NoProgram { program: "busybox (the static one, package busybox-static)".to_owned() });
    }
    Ok(bytes)
}

/// FNV-1a over everything that decides what is inside. It names a cache entry and protects nothing.
fn key(busybox: &[u8]) -> u64 {
    let parts = [INIT.as_bytes(), NEED.as_bytes(), busybox, env!("CARGO_PKG_VERSION").as_bytes()];
    let names = MODULES.join(",");
    parts
        .into_iter()
        .chain([names.as_bytes()])
        .flatten()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}
