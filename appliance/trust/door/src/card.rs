//! What a Gate Card says (SPEC GATE-1): facts computed from the changes themselves, and the true diff.

use std::fmt::Write as _;

use nas_history::{DiffLimits, FileDiff, History, HistoryError, is_text};
use nas_types::object::{Change, EntryKind};
use nas_types::path::{TreePath, is_invisible, write_escaped};
use nas_types::verb::GateRisk;

use crate::DoorError;

/// Largest file whose text is looked into for invisible characters.
const INSPECTED_BYTES_MAX: u64 = 4 << 20;

/// Longest text of one diff; files beyond it are named, with their sizes and content ids.
const DIFF_BYTES_MAX: usize = 8 << 20;

/// Facts that matter for a decision.
pub(crate) fn risk(history: &History, changes: &[Change], not_kept: Vec<TreePath>) -> Result<GateRisk, DoorError> {
    let mut risk = GateRisk {
        session_taint: "unknown".to_owned(),
        deletions: Vec::new(),
        mode_changes: Vec::new(),
        symlinks: Vec::new(),
        binaries: Vec::new(),
        invisible: Vec::new(),
        runs_by_itself: Vec::new(),
        not_kept,
    };
    for change in changes {
        let path = &change.path;
        let Some(new) = change.new else {
            risk.deletions.push(path.clone());
            continue;
        };
        if mode_matters(change) {
            risk.mode_changes.push(path.clone());
        }
        if new.kind == EntryKind::Symlink {
            risk.symlinks.push(path.clone());
        }
        if runs_by_itself(path) {
            risk.runs_by_itself.push(path.clone());
        }
        let mut invisible =
            String::from_utf8(path.as_bytes().to_vec()).is_ok_and(|text| text.chars().any(is_invisible));
        if let (EntryKind::File, Some(oid)) = (new.kind, new.oid) {
            if new.size > INSPECTED_BYTES_MAX {
                risk.binaries.push(path.clone());
            } else {
                let bytes = history.read_blob(oid, INSPECTED_BYTES_MAX).map_err(history_error("reading a change"))?;
                if !is_text(&bytes) {
                    risk.binaries.push(path.clone());
                } else {
                    invisible |= bytes.utf8_chunks().any(|chunk| chunk.valid().chars().any(is_invisible));
                }
            }
        }
        if invisible {
            risk.invisible.push(path.clone());
        }
    }
    Ok(risk)
}

/// A new file that can be executed, or an old one with other permissions.
fn mode_matters(change: &Change) -> bool {
    match (change.old, change.new) {
        (Some(old), Some(new)) => old.mode != new.mode && new.kind != EntryKind::Symlink,
        (None, Some(new)) => new.kind == EntryKind::File && new.mode & 0o111 != 0,
        (_, None) => false,
    }
}

/// Files that some program runs without being asked: hooks, CI, editors' tasks, shell environments.
fn runs_by_itself(path: &TreePath) -> bool {
    const NAMES: [&[u8]; 8] = [
        b".envrc",
        b".gitmodules",
        b".gitattributes",
        b".gitlab-ci.yml",
        b"Jenkinsfile",
        b"build.rs",
        b".pre-commit-config.yaml",
        b"sitecustomize.py",
    ];
    const DIRS: [&[u8]; 7] = [b".git", b".github", b".githooks", b".husky", b".circleci", b".vscode", b".cargo"];
    let named = path.split_last().is_some_and(|(_, name)| NAMES.contains(&name.as_bytes()));
    named || path.components().any(|part| DIRS.contains(&part.to_ascii_lowercase().as_slice()))
}

/// The whole diff as text. A file that is not shown line by line is named with its size and content id: nothing is left
/// out in silence.
pub(crate) fn diff_text(history: &History, changes: &[Change]) -> Result<String, DoorError> {
    let mut text = String::new();
    for change in changes {
        if text.len() > DIFF_BYTES_MAX {
            not_by_line(&mut text, change, "the diff is too long to show this file line by line");
            continue;
        }
        let diff = match history.unified_diff(change, DiffLimits::default()) {
            // A proposal that was not merged is not kept for ever; its card still names what it was about.
            Err(HistoryError::Missing(_)) => {
                not_by_line(&mut text, change, "its content is no longer kept");
                continue;
            }
            other => other.map_err(history_error("computing a diff"))?,
        };
        match diff {
            FileDiff::Text { text: lines, .. } => text.push_str(&lines),
            FileDiff::Binary => not_by_line(&mut text, change, "not text"),
            FileDiff::TooLarge { what, found, max } => {
                not_by_line(&mut text, change, &format!("{found} {what}, more than {max} are not shown line by line"));
            }
        }
        if !text.ends_with('\n') {
            text.push('\n');
        }
    }
    Ok(text)
}

fn not_by_line(text: &mut String, change: &Change, why: &str) {
    let mut path = String::from("/");
    write_escaped(change.path.as_bytes(), &mut path).expect("because writing to a String cannot fail");
    let side = |entry: Option<nas_types::object::Entry>| {
        entry.map_or_else(
            || "absent".to_owned(),
            |entry| format!("{} bytes, {}", entry.size, entry.oid.map_or_else(String::new, |oid| oid.to_string())),
        )
    };
    writeln!(text, "*** {path} ({why})\n  before: {}\n  after:  {}", side(change.old), side(change.new))
        .expect("because writing to a String cannot fail");
}

pub(crate) fn history_error(doing: &'static str) -> impl Fn(nas_history::HistoryError) -> DoorError {
    move |source| DoorError::Store { doing, source: Box::new(source) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_runs_by_itself() {
        let p = |text: &str| TreePath::parse(text).unwrap();
        assert!(runs_by_itself(&p("/a/.github/workflows/x.yml")) && runs_by_itself(&p("/a/build.rs")));
        assert!(runs_by_itself(&p("/a/.GIT/hooks/post-checkout")));
        assert!(!runs_by_itself(&p("/a/src/lib.rs")) && !runs_by_itself(&p("/a/github/x")));
    }
}
