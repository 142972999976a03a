//! Space set aside beside the ledger. On a full disk it is given up, so that denying, revoking and recovery can still be recorded.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use crate::LedgerError;

/// Default size: about a day of decisions.
pub const BALLAST_BYTES_DEFAULT: u64 = 16 << 20;

/// The ballast file.
#[derive(Debug)]
pub struct Ballast {
    path: PathBuf,
    bytes: u64,
}

impl Ballast {
    /// The ballast of `bytes` at `path`; nothing is done yet.
    #[must_use]
    pub fn new(path: PathBuf, bytes: u64) -> Self {
        Self { path, bytes }
    }

    /// Is it in place, whole?
    #[must_use]
    pub fn is_held(&self) -> bool {
        std::fs::metadata(&self.path).is_ok_and(|meta| meta.len() >= self.bytes)
    }

    /// Puts it in place. `Ok(false)`: there is no space for it now.
    pub fn hold(&self) -> Result<bool, LedgerError> {
        if self.bytes == 0 || self.is_held() {
            return Ok(true);
        }
        match self.fill() {
            Ok(()) => Ok(true),
            Err(error) if no_space(&error) => {
                self.release()?;
                Ok(false)
            }
            Err(source) => Err(LedgerError::File { doing: "setting space aside in", path: self.path.clone(), source }),
        }
    }

    /// Gives the space up and makes sure the file system has it back. Returns whether there was any.
    pub fn release(&self) -> Result<bool, LedgerError> {
        let fail = |source| LedgerError::File { doing: "giving up", path: self.path.clone(), source };
        match std::fs::remove_file(&self.path) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            // A copy-on-write file system can be too full to unlink; truncating needs less.
            Err(_) => {
                let file = OpenOptions::new().write(true).truncate(true).open(&self.path).map_err(fail)?;
                file.sync_all().map_err(fail)?;
            }
        }
        sync_file_system(&self.path).map_err(fail)?;
        Ok(true)
    }

    fn fill(&self) -> io::Result<()> {
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).open(&self.path)?;
        // Bytes that do not compress and are not shared, so that they really take the space.
        let mut noise = blake3::Hasher::new_derive_key("agent-nas ledger ballast").finalize_xof();
        let mut chunk = vec![0; 1 << 16];
        let mut left = self.bytes;
        while left > 0 {
            let take = usize::try_from(left).unwrap_or(usize::MAX).min(chunk.len());
            noise.fill(&mut chunk[..take]);
            file.write_all(&chunk[..take])?;
            left -= take as u64;
        }
        file.sync_all()
    }
}

fn no_space(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// btrfs gives deleted space back only with the next transaction.
fn sync_file_system(path: &Path) -> io::Result<()> {
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    Ok(rustix::fs::syncfs(File::open(dir)?)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: ballast is really there, is given up once, and comes back whole.
    #[test]
    fn hold_and_release() {
        let dir = tempfile::tempdir().unwrap();
        let ballast = Ballast::new(dir.path().join("ballast"), 100_000);
        assert!(!ballast.is_held());
        assert!(ballast.hold().unwrap() && ballast.hold().unwrap() && ballast.is_held());
        assert!(ballast.release().unwrap());
        assert!(!ballast.release().unwrap() && !ballast.is_held());
        assert!(ballast.hold().unwrap());
        // A file cut short is not ballast.
        OpenOptions::new().write(true).open(dir.path().join("ballast")).unwrap().set_len(10).unwrap();
        assert!(!ballast.is_held());
    }
}
