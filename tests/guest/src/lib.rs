//! A small virtual machine with a real Linux kernel, for tests whose client must be the kernel's own NFSv3 client.
//!
//! A test boots a [`Guest`], sends it shell commands one by one and does things on the host in between: restart the
//! server, let a lease expire, read what really arrived. The mount in the guest lives on through all of it.
//!
//! ```no_run
//! # fn main() -> Result<(), nas_guest::Error> {
//! let guest = nas_guest::Guest::builder().file("payload.bin").boot()?;
//! guest.mount_nfs(22049, 22048, "/ticket", "/mnt", "")?;
//! guest.run_ok("cp /job/payload.bin /mnt/ && sync")?;
//! let writing = guest.start("dd if=/dev/zero of=/mnt/big bs=1M count=64 conv=fsync")?;
//! // … restart the server here …
//! assert_eq!(writing.wait()?.status, 0);
//! # Ok(()) }
//! ```
//!
//! Read in this order: [`guest`] (what a test sees), `control` (commands and replies over a virtio-serial port),
//! `init.sh` (the agent inside), [`kernel`] and `initramfs` (what is booted, and where it is cached), `job` (what is
//! shipped along). FINDINGS §2 and §4 tell why it is built this way: no acceleration needed, 256 MiB, no disk image.
//!
//! Not here: starting a server, or knowing what an export means.

mod control;
mod cpio;
mod error;
pub mod guest;
mod initramfs;
mod job;
pub mod kernel;

pub use control::{Output, Pending};
pub use error::Error;
pub use guest::{Builder, Guest, Outcome};

/// The address under which a guest reaches the host's loopback interface.
pub const HOST_FROM_GUEST: &str = "10.0.2.2";

/// Downloads the kernel and builds the initramfs unless both are cached. `cargo xtask setup` calls it so that no test
/// waits for a download.
///
/// # Errors
/// When a tool, the package or the disk is missing; the message says which.
pub fn prepare() -> Result<kernel::Kernel, Error> {
    let kernel = kernel::Kernel::ensure()?;
    initramfs::ensure(&kernel)?;
    Ok(kernel)
}

/// Wraps `text` for a POSIX shell so that it arrives as exactly one word.
pub fn shell_quote(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: nothing inside a quoted word is seen by the shell.
    #[test]
    fn quoting_survives_a_shell() {
        for text in ["", "plain", "a b", "it's", "$HOME `id` \"x\" \\", "line\nline", "'''"] {
            let script = format!("printf %s {}", shell_quote(text));
            let output = std::process::Command::new("sh").arg("-c").arg(script).output().unwrap();
            assert_eq!(String::from_utf8(output.stdout).unwrap(), text);
        }
    }
}
