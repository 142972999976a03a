//! A directory that is gone when the test is.

use std::path::{Path, PathBuf};

/// A temporary directory, removed on drop.
#[derive(Debug)]
pub struct Scratch(tempfile::TempDir);

impl Scratch {
    /// Makes a new directory under the system's temporary directory; `tag` shows up in its name.
    ///
    /// # Panics
    /// If the directory cannot be made: no test can go on then.
    pub fn new(tag: &str) -> Self {
        let made = tempfile::Builder::new().prefix(&format!("nas-{tag}-")).tempdir();
        Self(made.expect("because a test needs a temporary directory"))
    }

    /// The directory.
    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// A path inside it.
    pub fn join(&self, name: impl AsRef<Path>) -> PathBuf {
        self.0.path().join(name)
    }

    /// Writes a file and the directories above it; returns its path.
    ///
    /// # Panics
    /// If it cannot be written.
    pub fn write(&self, name: impl AsRef<Path>, bytes: impl AsRef<[u8]>) -> PathBuf {
        let path = self.join(name);
        let parent = path.parent().expect("because a path inside the directory has a parent");
        std::fs::create_dir_all(parent).expect("because a test writes into its own directory");
        std::fs::write(&path, bytes).expect("because a test writes into its own directory");
        path
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: nothing is left behind.
    #[test]
    fn is_removed_on_drop() {
        let scratch = Scratch::new("gone");
        let file = scratch.write("a/b/c", b"x");
        assert_eq!(std::fs::read(&file).unwrap(), b"x");
        let dir = scratch.path().to_owned();
        drop(scratch);
        assert!(!dir.exists());
    }
}
