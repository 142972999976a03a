//! `cargo xtask setup`: the system packages, and the kernel for the test guest.
//!
//! As root they are installed with apt; anybody else gets the exact line to run. The guest's kernel is downloaded and
//! unpacked in the target directory, never installed.

use std::fs;
use std::process::Command;

use anyhow::{Context as _, bail};

use crate::program::{self, succeeds};

/// What the demo needs, and what for.
const FOR_DEMO: [&str; 4] = ["gcc", "libc6-dev", "mount", "btrfs-progs"];

/// What building and testing need, and what for.
const PACKAGES: [(&str, &str); 15] = [
    ("gcc", "compiles the bundled SQLite"),
    ("libc6-dev", "its headers"),
    ("git", "the Git interface and the benchmarks' yardstick"),
    ("mount", "losetup and mount: tests on real file systems"),
    ("btrfs-progs", "makes the btrfs pools of the demo and the tests"),
    ("e2fsprogs", "makes the small disks that tests fill"),
    ("fuse3", "the recorded disk of the power-loss tests"),
    ("attr", "looks at extended attributes"),
    ("libnfs-utils", "a user-space NFS client"),
    ("qemu-system-x86", "the guest with the kernel's NFS client"),
    ("busybox-static", "everything else inside that guest"),
    ("xz-utils", "unpacks its kernel modules"),
    ("zstd", "unpacks its kernel modules"),
    ("strace", "shows what a test's server asks the kernel for"),
    ("python3-venv", "installs schemathesis, which tests the HTTP API"),
];

/// `cargo xtask setup`.
pub(crate) fn run() -> anyhow::Result<()> {
    packages(&PACKAGES)?;
    let kernel = nas_guest::prepare().or_else(|error| match error {
        // apt knows no kernel, or a version that the mirror no longer has: its lists are missing or old.
        nas_guest::Error::NoKernelPackage { .. } | nas_guest::Error::Command { .. } if is_root() => {
            update()?;
            Ok(nas_guest::prepare()?)
        }
        nas_guest::Error::NoKernelPackage { .. } => {
            Err(anyhow::Error::from(error).context("run `sudo apt-get update`, then try again"))
        }
        error => Err(error.into()),
    });
    let kernel = kernel.context("preparing the kernel of the test guest")?;
    println!("the test guest's kernel is {}", kernel.version());
    Ok(())
}

/// The part of it that the demo needs: no emulator, and so no kernel for it.
pub(crate) fn run_for_demo() -> anyhow::Result<()> {
    let wanted: Vec<_> = PACKAGES.into_iter().filter(|(name, _)| FOR_DEMO.contains(name)).collect();
    packages(&wanted)
}

/// Installs what is missing of `wanted`, or says how.
fn packages(wanted: &[(&str, &str)]) -> anyhow::Result<()> {
    if !succeeds(Command::new("dpkg-query").arg("--version")) {
        let names = wanted.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(" ");
        bail!(
            "this is no Debian or Ubuntu; install what your system calls these packages, then run the tests: {names}"
        );
    }
    let missing: Vec<_> = wanted.iter().filter(|(name, _)| !is_installed(name)).collect();
    if missing.is_empty() {
        println!("all {} system packages are installed", wanted.len());
        return Ok(());
    }
    for (name, purpose) in &missing {
        println!("missing: {name} ({purpose})");
    }
    let names: Vec<&str> = missing.iter().map(|(name, _)| *name).collect();
    if !is_root() {
        bail!(
            "{} system packages are missing. Run this, then try again:\n\n    sudo apt-get update && sudo apt-get install \
             --yes --no-install-recommends {}\n",
            names.len(),
            names.join(" ")
        );
    }
    if !has_package_lists() {
        update()?;
    }
    // Lists that are there may be old, and then name versions that the mirror no longer has.
    install(&names).or_else(|_| update().and_then(|()| install(&names)))
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

fn is_installed(package: &str) -> bool {
    let output = Command::new("dpkg-query").args(["--show", "--showformat=${db:Status-Status}", package]).output();
    output.is_ok_and(|output| output.stdout == b"installed")
}

fn has_package_lists() -> bool {
    let Ok(entries) = fs::read_dir("/var/lib/apt/lists") else { return false };
    entries.flatten().any(|entry| entry.file_name().to_string_lossy().contains("_Packages"))
}

fn update() -> anyhow::Result<()> {
    program::run(apt_get().args(["--quiet", "update"])).context("fetching the package lists")
}

fn install(names: &[&str]) -> anyhow::Result<()> {
    program::run(apt_get().args(["--quiet", "--yes", "--no-install-recommends", "install"]).args(names))
        .context("installing system packages")
}

fn apt_get() -> Command {
    let mut command = Command::new("apt-get");
    command.env("DEBIAN_FRONTEND", "noninteractive");
    command
}
