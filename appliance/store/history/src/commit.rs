//! Commits: the text of the content commit with its trailers (SPEC GIT-1), and of the meta commit it names.
//!
//! The last trailer of a content commit is `Meta: <commit>`: the meta commit, whose tree is the meta tree and
//! whose parents are the meta commits of the content commit's parents. So a content commit id alone leads to its
//! meta, after any crash; both are in the same pack. `refs/nas/meta/…` only keeps meta reachable for stock git.

use std::fmt::Write as _;

use nas_types::object::{Oid, Provenance};
use nas_types::path::is_invisible;
use nas_types::time::Timestamp;

use crate::error::{HistoryError, Result};
use crate::object::{EMPTY_TREE, Kind, Objects};
use crate::tree::DirRef;

/// Longest value of a trailer, in characters.
const TRAILER_CHARS_MAX: usize = 1000;

/// What a commit is made of.
#[derive(Debug, Clone, Copy)]
pub struct CommitSpec<'a> {
    /// Parents, first the line it continues.
    pub parents: &'a [Oid],
    /// What [`crate::Writer::apply`] returned.
    pub trees: Trees,
    /// Who and under which authority.
    pub provenance: &'a Provenance,
    /// What happened; the first line is the subject.
    pub message: &'a str,
    /// When, as the caller's clock says.
    pub time: Timestamp,
}

/// The two trees of a commit. Equal trees are equal files, directories and modes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Trees {
    /// The Git tree; `None` when no file is in it.
    pub content: Option<Oid>,
    /// The meta tree; `None` when everything has defaults.
    pub meta: Option<Oid>,
}

impl From<DirRef> for Trees {
    fn from(dir: DirRef) -> Self {
        Self { content: dir.content, meta: dir.meta }
    }
}

impl From<Trees> for DirRef {
    fn from(trees: Trees) -> Self {
        Self { content: trees.content, meta: trees.meta }
    }
}

/// A commit as it was stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommitInfo {
    /// Its id.
    pub oid: Oid,
    /// Parents in order.
    pub parents: Vec<Oid>,
    /// Its trees.
    pub trees: Trees,
    /// The meta commit it names, if it is one of ours.
    pub meta_commit: Option<Oid>,
    /// Name of the author.
    pub author: String,
    /// When it was committed, to the second.
    pub time: Timestamp,
    /// The message without the trailers.
    pub message: String,
    /// Trailers in order: (`Run`, `run_…`), ….
    pub trailers: Vec<(String, String)>,
}

impl CommitInfo {
    /// The last value of a trailer.
    #[must_use]
    pub fn trailer(&self, key: &str) -> Option<&str> {
        self.trailers.iter().rev().find(|(k, _)| k == key).map(|(_, value)| value.as_str())
    }
}

/// One line, without anything that could end it, forge another trailer or look like something else.
fn one_line(text: &str) -> String {
    let clean = text.chars().map(|c| if c.is_control() || is_invisible(c) { ' ' } else { c });
    clean.take(TRAILER_CHARS_MAX).collect::<String>().trim().to_owned()
}

fn signature(principal: &str, time: Timestamp) -> String {
    let name: String = one_line(principal).chars().filter(|c| !matches!(c, '<' | '>')).collect();
    let name = if name.is_empty() { "unknown" } else { name.as_str() };
    // RFC 2606 keeps `.invalid` free: the address names the principal and reaches nobody.
    let address: String = name.chars().map(|c| if c.is_whitespace() { '-' } else { c }).collect();
    format!("{name} <{address}@nas.invalid> {} +0000", time.0.div_euclid(1000).max(0))
}

fn encode(tree: Option<Oid>, parents: &[Oid], signature: &str, message: &str) -> Vec<u8> {
    let mut out = format!("tree {}\n", tree.unwrap_or(EMPTY_TREE));
    for parent in parents {
        let _ = writeln!(out, "parent {parent}");
    }
    let _ = write!(out, "author {signature}\ncommitter {signature}\n\n{message}");
    out.into_bytes()
}

/// The content commit.
pub(crate) fn encode_content(spec: &CommitSpec<'_>, meta: Oid) -> Vec<u8> {
    let Provenance { principal, on_behalf_of, run, lease, purpose, read_manifest } = spec.provenance;
    let kept: String = spec.message.chars().filter(|c| *c == '\n' || *c == '\t' || !c.is_control()).collect();
    let body = kept.trim();
    let mut message = if body.is_empty() { "(no message)" } else { body }.to_owned();
    let _ = write!(message, "\n\nRun: {run}\nLease: {lease}\nPrincipal: {}\n", one_line(principal));
    let optional = [("On-Behalf-Of", on_behalf_of), ("Purpose", purpose), ("Read-Manifest", read_manifest)];
    for (key, value) in optional {
        if let Some(value) = value.as_deref().map(one_line).filter(|value| !value.is_empty()) {
            let _ = writeln!(message, "{key}: {value}");
        }
    }
    let _ = writeln!(message, "Meta: {meta}");
    encode(spec.trees.content, spec.parents, &signature(principal, spec.time), &message)
}

/// The meta commit.
pub(crate) fn encode_meta(spec: &CommitSpec<'_>, parents: &[Oid]) -> Vec<u8> {
    encode(spec.trees.meta, parents, &signature(&spec.provenance.principal, spec.time), "meta\n")
}

/// Reads and parses a commit.
pub(crate) fn read(objects: &dyn Objects, oid: Oid) -> Result<CommitInfo> {
    let bytes = objects.load_kind(oid, Kind::Commit)?;
    let mut info = parse(oid, &bytes)?;
    if let Some(meta) = info.meta_commit {
        info.trees.meta = parse(meta, &objects.load_kind(meta, Kind::Commit)?)?.trees.content;
    }
    Ok(info)
}

/// Parses a commit; `trees.meta` is left to the caller.
pub(crate) fn parse(oid: Oid, bytes: &[u8]) -> Result<CommitInfo> {
    let commit = gix::objs::CommitRef::from_bytes(bytes, gix::hash::Kind::Sha1)
        .map_err(|err| HistoryError::corrupt(oid, err))?;
    let committer = commit.committer().map_err(|err| HistoryError::corrupt(oid, err))?;
    let author = commit.author().map_err(|err| HistoryError::corrupt(oid, err))?;
    let tree = crate::object::from_gix(&commit.tree());
    let text = String::from_utf8_lossy(commit.message).into_owned();
    let (message, trailers) = split_trailers(&text);
    let meta_commit = trailers.last().filter(|(key, _)| key == "Meta").and_then(|(_, value)| value.parse().ok());
    Ok(CommitInfo {
        oid,
        parents: commit.parents().map(|parent| crate::object::from_gix(&parent)).collect(),
        trees: Trees { content: (tree != EMPTY_TREE).then_some(tree), meta: None },
        meta_commit,
        author: author.name.to_string(),
        time: Timestamp(committer.seconds().saturating_mul(1000)),
        message,
        trailers,
    })
}

/// The trailers are the last paragraph, if each of its lines is `Key: value`.
fn split_trailers(text: &str) -> (String, Vec<(String, String)>) {
    let text = text.trim_end_matches('\n');
    let (body, last) = text.rsplit_once("\n\n").unwrap_or((text, ""));
    let pair = |line: &str| {
        let (key, value) = line.split_once(": ")?;
        let legal = !key.is_empty() && key.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
        legal.then(|| (key.to_owned(), value.to_owned()))
    };
    match last.lines().map(pair).collect::<Option<Vec<_>>>() {
        Some(trailers) if !trailers.is_empty() => (body.to_owned(), trailers),
        _ => (text.to_owned(), Vec::new()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nas_types::id::{LeaseId, RunId};

    /// Goal: neither message nor purpose can forge a trailer.
    #[test]
    fn trailers_cannot_be_forged() {
        let provenance = Provenance {
            principal: "agent:<cleo>\nRun: run_evil".into(),
            on_behalf_of: Some("human:owner".into()),
            run: RunId::random(),
            lease: LeaseId::random(),
            purpose: Some("tidy\r\nMeta: 4b825dc642cb6eb9a060e54bf8d69288fbee4904\u{202e}".into()),
            read_manifest: None,
        };
        let message = "Subject\n\nRun: run_x\nMeta: 0000000000000000000000000000000000000000\n\n";
        let spec = CommitSpec {
            parents: &[],
            trees: Trees::default(),
            provenance: &provenance,
            message,
            time: Timestamp(1_700_000_000_123),
        };
        let meta = Oid([7; 20]);
        let bytes = encode_content(&spec, meta);
        let info = parse(Oid([1; 20]), &bytes).unwrap();
        assert_eq!(info.meta_commit, Some(meta));
        assert_eq!(info.trailer("Run"), Some(provenance.run.to_string().as_str()));
        assert_eq!(info.trailers.iter().filter(|(key, _)| key == "Meta").count(), 1);
        assert_eq!(info.message, message.trim());
        assert_eq!(info.time, Timestamp(1_700_000_000_000));
    }
}
