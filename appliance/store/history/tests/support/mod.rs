//! What the tests share: stock git beside our repository, short ways to write edits.
#![allow(dead_code, clippy::unwrap_used, reason = "each test binary uses its part; a failure here is a failed test")]

use std::path::Path;
use std::process::{Command, Output};

use nas_history::{CommitSpec, Edit, Expect, History, Put, Source, Trees, Writer};
use nas_types::id::{LeaseId, RunId};
use nas_types::object::{Oid, Provenance};
use nas_types::path::TreePath;
use nas_types::time::Timestamp;

pub(crate) const MAIN: &str = nas_history::refs::MAIN;

pub(crate) fn path(bytes: impl AsRef<[u8]>) -> TreePath {
    TreePath::from_relative(bytes.as_ref()).unwrap()
}

pub(crate) fn file(at: impl AsRef<[u8]>, content: impl AsRef<[u8]>) -> Edit {
    file_mode(at, content, 0o644)
}

pub(crate) fn file_mode(at: impl AsRef<[u8]>, content: impl AsRef<[u8]>, mode: u32) -> Edit {
    Edit::Put { path: path(at), put: Put::File { mode, mtime: None, source: Source::Bytes(content.as_ref().to_vec()) } }
}

pub(crate) fn symlink(at: impl AsRef<[u8]>, target: impl AsRef<[u8]>) -> Edit {
    Edit::Put { path: path(at), put: Put::Symlink { mtime: None, source: Source::Bytes(target.as_ref().to_vec()) } }
}

pub(crate) fn dir(at: impl AsRef<[u8]>, mode: u32) -> Edit {
    Edit::Put { path: path(at), put: Put::Dir { mode } }
}

pub(crate) fn remove(at: impl AsRef<[u8]>) -> Edit {
    Edit::Remove { path: path(at) }
}

pub(crate) fn rename(from: impl AsRef<[u8]>, to: impl AsRef<[u8]>) -> Edit {
    Edit::Move { from: path(from), to: path(to) }
}

pub(crate) fn provenance() -> Provenance {
    Provenance {
        principal: "agent:cleo".into(),
        on_behalf_of: Some("human:owner".into()),
        run: RunId::random(),
        lease: LeaseId::random(),
        purpose: Some("test".into()),
        read_manifest: None,
    }
}

pub(crate) fn commit_trees(writer: &mut Writer<'_>, parents: &[Oid], trees: Trees) -> Oid {
    let provenance = provenance();
    let spec =
        CommitSpec { parents, trees, provenance: &provenance, message: "test", time: Timestamp(1_800_000_000_000) };
    writer.commit(&spec).unwrap()
}

/// Applies edits on `base` and makes them durable, without a ref.
pub(crate) fn commit(history: &History, base: Option<Oid>, edits: Vec<Edit>) -> Oid {
    let mut writer = history.writer().unwrap();
    let trees = writer.apply(base, edits).unwrap();
    let oid = commit_trees(&mut writer, base.as_slice(), trees);
    drop(writer.finish().unwrap());
    oid
}

/// Like [`commit`], and main moves to it.
pub(crate) fn commit_main(history: &History, edits: Vec<Edit>) -> Oid {
    let base = history.get_ref(MAIN).unwrap();
    let oid = commit(history, base, edits);
    history.set_ref(MAIN, Some(oid), base.map_or(Expect::Absent, Expect::At)).unwrap();
    oid
}

pub(crate) fn git_output(repo: &Path, args: &[&str]) -> Output {
    let mut command = Command::new("git");
    command
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap())
        .env("HOME", repo)
        .env("GIT_CONFIG_NOSYSTEM", "1");
    command.args(["-c", "safe.directory=*", "-c", "core.quotePath=false", "--git-dir"]).arg(repo).args(args);
    command.output().unwrap()
}

/// Standard output of a git command that must succeed.
pub(crate) fn git(repo: &Path, args: &[&str]) -> Vec<u8> {
    let output = git_output(repo, args);
    assert!(output.status.success(), "git {args:?}: {}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

/// Stock git finds nothing to complain about: objects, connectivity, packs.
pub(crate) fn fsck(history: &History) {
    let output = git_output(history.dir(), &["fsck", "--strict", "--full", "--no-dangling", "--no-progress"]);
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    // A main that does not exist yet is no damage; nor is a `.gitmodules` with other content than git expects.
    let harmless = |line: &&str| line.starts_with("notice:") || line.contains("gitmodulesParse");
    let lines: Vec<_> = text.lines().filter(|line| !harmless(line)).collect();
    assert!(output.status.success() && lines.is_empty(), "{lines:?}");
    for entry in std::fs::read_dir(history.dir().join("objects/pack")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|ext| ext == "idx") {
            git(history.dir(), &["verify-pack", path.to_str().unwrap()]);
        }
    }
}
