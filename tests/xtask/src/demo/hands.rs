//! The agent's side: the same work through the kernel's NFS client, or a user-space one where the kernel has none.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::Command;

use anyhow::Context as _;
use nas_nfsclient::{Client, Credential};

use super::device::Device;
use crate::program::succeeds;

/// How the branch is mounted.
pub(super) enum Hands {
    /// On a directory, by the kernel.
    Kernel(PathBuf),
    /// In this process.
    UserSpace(Box<Client>),
}

impl Hands {
    pub(super) fn mount(device: &Device, lease: &str, root: &str) -> anyhow::Result<Self> {
        if nas_testkit::is_root() && kernel_has_nfs() {
            let dir = device.data().join("work");
            std::fs::create_dir_all(&dir)?;
            device.show(&["--lease", lease, "mount", &dir.display().to_string()])?;
            return Ok(Self::Kernel(dir));
        }
        println!("(no root or no NFS client in this kernel: the demo's own user-space NFS client takes its place)");
        let client = client(device, lease, "branch", root)?;
        println!("mounted {root} of the branch from {}", device.nfs());
        Ok(Self::UserSpace(Box::new(client)))
    }

    /// Names at the root of the mount.
    pub(super) fn list(&mut self) -> anyhow::Result<Vec<String>> {
        let mut names: Vec<String> = match self {
            Self::Kernel(dir) => std::fs::read_dir(dir)?
                .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
                .collect::<std::io::Result<_>>()?,
            Self::UserSpace(client) => {
                client.list("")?.into_iter().map(|name| String::from_utf8_lossy(&name).into_owned()).collect()
            }
        };
        names.sort();
        Ok(names)
    }

    pub(super) fn read(&mut self, name: &str) -> anyhow::Result<String> {
        let bytes = match self {
            Self::Kernel(dir) => std::fs::read(dir.join(name))?,
            Self::UserSpace(client) => client.read_file(name)?,
        };
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Reads, adds, writes and syncs.
    pub(super) fn append(&mut self, name: &str, text: &str) -> anyhow::Result<()> {
        match self {
            Self::Kernel(dir) => {
                let mut file = std::fs::File::options().append(true).open(dir.join(name))?;
                file.write_all(text.as_bytes())?;
                file.sync_all()?;
            }
            Self::UserSpace(client) => {
                let mut content = client.read_file(name)?;
                content.extend_from_slice(text.as_bytes());
                client.write_file(name, &content)?;
            }
        }
        Ok(())
    }

    pub(super) fn write(&mut self, name: &str, text: &str) -> anyhow::Result<()> {
        match self {
            Self::Kernel(dir) => std::fs::write(dir.join(name), text)?,
            Self::UserSpace(client) => drop(client.write_file(name, text.as_bytes())?),
        }
        Ok(())
    }

    pub(super) fn rename(&mut self, from: &str, to: &str) -> anyhow::Result<()> {
        match self {
            Self::Kernel(dir) => std::fs::rename(dir.join(from), dir.join(to))?,
            Self::UserSpace(client) => client.rename_path(from, to)?,
        }
        Ok(())
    }

    pub(super) fn remove(&mut self, name: &str) -> anyhow::Result<()> {
        match self {
            Self::Kernel(dir) => std::fs::remove_file(dir.join(name))?,
            Self::UserSpace(client) => client.remove_path(name)?,
        }
        Ok(())
    }

    /// Does the file `name` of main end with `text`? Looked at through a mount of main of its own.
    pub(super) fn main_has(&self, device: &Device, lease: &str, name: &str, text: &str) -> anyhow::Result<bool> {
        let root = device.json(&["--lease", lease, "lease", "show"])?;
        let root = root["paths"][0]
            .as_str()
            .and_then(|glob| glob.strip_suffix("/**"))
            .context("the lease has no directory")?;
        let mut main = client(device, lease, "main", root)?;
        Ok(main.read_file(name)?.ends_with(text.as_bytes()))
    }

    pub(super) fn unmount(self, device: &Device) -> anyhow::Result<()> {
        match self {
            Self::Kernel(dir) => device.show(&["unmount", &dir.display().to_string()]).map(drop),
            Self::UserSpace(_) => Ok(()),
        }
    }
}

/// The user-space client, with a ticket of its own.
fn client(device: &Device, lease: &str, view: &str, root: &str) -> anyhow::Result<Client> {
    let ticket = device.json(&["--lease", lease, "mount", "ticket", "--view", view])?;
    let ticket = ticket["ticket"].as_str().context("no ticket in the answer")?;
    let who = Credential::Sys { uid: rustix::process::getuid().as_raw(), gid: rustix::process::getgid().as_raw() };
    Ok(Client::mount(device.nfs(), &format!("/{ticket}{root}"), who)?)
}

fn kernel_has_nfs() -> bool {
    let known =
        || std::fs::read_to_string("/proc/filesystems").is_ok_and(|list| list.lines().any(|l| l.ends_with("\tnfs")));
    known() || (succeeds(Command::new("modprobe").args(["-q", "nfs"])) && known())
}
