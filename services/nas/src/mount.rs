//! `nas mount`: a ticket, then the kernel's NFS client.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};
use std::process::Command;

use nas_types::verb::MountTicketAnswer;

use crate::failure::Failure;

/// Directory as the kernel names it, so that mounts are found again; it must exist.
pub(crate) fn directory(dir: &Path) -> Result<PathBuf, Failure> {
    let full = dir.canonicalize().map_err(Failure::io(format!("looking at {}", dir.display())))?;
    if full.is_dir() { Ok(full) } else { Err(Failure::Usage(format!("{} is no directory", dir.display()))) }
}

/// Whose files the mounted ones shall be: those of the owner of the directory they are mounted on.
pub(crate) fn owner_of(dir: &Path) -> Result<(u32, u32), Failure> {
    use std::os::unix::fs::MetadataExt as _;
    let found = dir.metadata().map_err(Failure::io(format!("looking at {}", dir.display())))?;
    Ok((found.uid(), found.gid()))
}

/// What keeps this machine from mounting, if anything.
pub(crate) fn obstacle() -> Option<&'static str> {
    if !rustix::process::geteuid().is_root() {
        return Some("only root can mount");
    }
    if !has_nfs_client() {
        // The module may only not be loaded yet; when that fails there is nothing to tell beyond the obstacle.
        let _ = Command::new("modprobe").arg("nfs").output();
        if !has_nfs_client() {
            return Some("this kernel has no NFS client");
        }
    }
    let helper = ["/sbin/mount.nfs", "/usr/sbin/mount.nfs"].iter().any(|p| Path::new(p).exists());
    if helper {
        None
    } else {
        Some("the program mount.nfs is missing: install nfs-common (Debian, Ubuntu) or nfs-utils")
    }
}

fn has_nfs_client() -> bool {
    std::fs::read_to_string("/proc/filesystems").is_ok_and(|text| text.lines().any(|l| l.ends_with("\tnfs")))
}

/// Arguments of `mount`. The ticket is in the export path: it is good once and for a minute. `owner` is whose files
/// they shall be, user and group: root mounts, and the agent that works there is somebody else.
pub(crate) fn arguments(
    host: &str,
    answer: &MountTicketAnswer,
    read_only: bool,
    dir: &Path,
    owner: (u32, u32),
) -> Vec<OsString> {
    let port = answer.port;
    let mut options = format!("vers=3,tcp,mountvers=3,mountproto=tcp,nolock,nosuid,nodev,port={port},mountport={port}");
    if read_only {
        options.push_str(",ro");
    }
    let mut export = format!("{host}:/{}", answer.ticket.reveal()).into_bytes();
    if owner != (0, 0) {
        export.extend_from_slice(format!("+{}+{}", owner.0, owner.1).as_bytes());
    }
    if !answer.root.is_root() {
        export.push(b'/');
        export.extend_from_slice(answer.root.as_bytes());
    }
    vec!["-t".into(), "nfs".into(), "-o".into(), options.into(), OsString::from_vec(export), dir.into()]
}

/// The command line for a person's shell.
pub(crate) fn command_line(arguments: &[OsString]) -> String {
    arguments.iter().fold("sudo mount".to_owned(), |line, argument| line + " " + &shell_word(argument))
}

fn shell_word(word: &OsStr) -> String {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"-_=,./:@%+[]".contains(&b);
    let text = word.to_string_lossy();
    if !text.is_empty() && word.as_bytes().iter().all(|b| plain(*b)) {
        return text.into_owned();
    }
    // $'…' keeps any byte in bash and zsh.
    let quoted = word.as_bytes().iter().fold(String::from("$'"), |mut out, byte| {
        match byte {
            b'\'' | b'\\' => {
                out.push('\\');
                out.push(char::from(*byte));
            }
            0x20..=0x7E => out.push(char::from(*byte)),
            other => out.push_str(&format!("\\x{other:02x}")),
        }
        out
    });
    quoted + "'"
}

/// Runs `mount` or `umount`.
pub(crate) fn run(program: &str, arguments: &[OsString]) -> Result<(), Failure> {
    let status = Command::new(program).args(arguments).status().map_err(Failure::io(format!("running {program}")))?;
    if status.success() { Ok(()) } else { Err(Failure::Local(format!("{program} failed ({status}); see above"))) }
}
