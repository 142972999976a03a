//! A directory of real files that nobody wrote for a test: the source of a package that this workspace is built with.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Packages of our lock file whose source is a few hundred files, the preferred one first.
const CANDIDATES: [&str; 4] = ["rustix", "gix", "tokio", "clap"];

/// Fewer files than this is no real tree.
pub const REAL_TREE_FILES_MIN: usize = 100;

/// Why no tree was found.
#[derive(Debug, thiserror::Error)]
pub enum NoTree {
    /// `cargo metadata` could not be run.
    #[error("`cargo metadata` could not be started")]
    Cargo(#[source] std::io::Error),
    /// `cargo metadata` failed or said something unexpected.
    #[error("`cargo metadata` failed: {0}")]
    Metadata(String),
    /// None of the candidates is part of the workspace's dependencies.
    #[error("none of {CANDIDATES:?} with at least {REAL_TREE_FILES_MIN} files is among the dependencies")]
    NoCandidate,
}

/// The source directory of a registry package in our lock file with some hundreds of files. Read it, do not write to it:
/// cargo owns it. [`copy_tree`] makes a private copy.
///
/// # Errors
/// [`NoTree`] if cargo cannot be asked or none of the known packages is there.
pub fn real_tree() -> Result<PathBuf, NoTree> {
    let metadata = cargo_metadata(&["--offline"]).or_else(|_| cargo_metadata(&[]))?;
    let packages = metadata["packages"].as_array().map(Vec::as_slice).unwrap_or_default();
    let found = CANDIDATES.iter().find_map(|name| {
        packages
            .iter()
            .filter(|p| p["name"].as_str() == Some(name))
            .filter_map(|p| Path::new(p["manifest_path"].as_str()?).parent().map(Path::to_owned))
            .find(|dir| files_below(dir) >= REAL_TREE_FILES_MIN)
    });
    found.ok_or(NoTree::NoCandidate)
}

/// What `cargo metadata` says about the workspace this crate belongs to.
///
/// # Errors
/// [`NoTree`] if cargo cannot be run or answers with something other than JSON.
pub fn cargo_metadata(arguments: &[&str]) -> Result<serde_json::Value, NoTree> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["metadata", "--format-version=1"])
        .args(arguments)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .map_err(NoTree::Cargo)?;
    if !output.status.success() {
        return Err(NoTree::Metadata(String::from_utf8_lossy(&output.stderr).into_owned()));
    }
    serde_json::from_slice(&output.stdout).map_err(|e| NoTree::Metadata(e.to_string()))
}

/// How many regular files are below `dir`; unreadable directories count as empty.
pub fn files_below(dir: &Path) -> usize {
    let Ok(entries) = std::fs::read_dir(dir) else { return 0 };
    entries
        .flatten()
        .map(|entry| match entry.file_type() {
            Ok(kind) if kind.is_dir() => files_below(&entry.path()),
            Ok(kind) if kind.is_file() => 1,
            _ => 0,
        })
        .sum()
}

/// Copies `from` into the new directory `to`: directories, regular files with their mode, symlinks as they are.
///
/// # Errors
/// The first thing that could not be read or written.
pub fn copy_tree(from: &Path, to: &Path) -> std::io::Result<()> {
    std::fs::create_dir_all(to)?;
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let (source, target) = (entry.path(), to.join(entry.file_name()));
        let kind = entry.file_type()?;
        if kind.is_dir() {
            copy_tree(&source, &target)?;
        } else if kind.is_symlink() {
            std::os::unix::fs::symlink(std::fs::read_link(&source)?, &target)?;
        } else if kind.is_file() {
            std::fs::copy(&source, &target)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Scratch;

    /// Goal: the tree is real and large enough, and a copy has every file of it.
    #[test]
    fn has_hundreds_of_files() {
        let tree = real_tree().unwrap();
        let count = files_below(&tree);
        assert!(count >= REAL_TREE_FILES_MIN, "{} has {count} files", tree.display());
        let scratch = Scratch::new("tree");
        let copy = scratch.join("copy");
        copy_tree(&tree, &copy).unwrap();
        assert_eq!(files_below(&copy), count);
        assert_eq!(std::fs::read(copy.join("Cargo.toml")).unwrap(), std::fs::read(tree.join("Cargo.toml")).unwrap());
    }
}
