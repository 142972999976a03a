//! Text: is it text, three-way merge by line, unified diff for people.

use std::fmt::Write as _;
use std::ops::Range;

use gix::diff::blob::{Algorithm, Diff, InternedInput, sources::byte_lines};
use nas_types::object::{Change, Entry, EntryKind};
use nas_types::path::{TreePath, is_invisible};

use crate::error::Result;
use crate::object::{Kind, Objects};
use crate::repo::History;

/// Largest file that is merged by line, in bytes. A larger one that both sides changed is a conflict.
pub const MERGE_TEXT_BYTES_MAX: u64 = 8 << 20;
/// Unchanged lines shown around a change.
const CONTEXT_LINES: u32 = 3;

/// Text has no NUL byte. Git looks at the first 8,000 bytes only; we look at all of them.
#[must_use]
pub fn is_text(bytes: &[u8]) -> bool {
    !bytes.contains(&0)
}

fn hunks(before: &[u8], after: &[u8]) -> Vec<(Range<u32>, Range<u32>)> {
    let input = InternedInput::new(byte_lines(before), byte_lines(after));
    let diff = Diff::compute(Algorithm::Myers, &input);
    diff.hunks().map(|hunk| (hunk.before, hunk.after)).collect()
}

/// Merges by line; `None` when both sides touched the same or neighbouring lines, unless the changes are equal.
pub(crate) fn merge(base: &[u8], ours: &[u8], theirs: &[u8]) -> Option<Vec<u8>> {
    if !neighbours_apart(base, ours, theirs) {
        return None;
    }
    let mut input = InternedInput::default();
    let mut out = Vec::new();
    let resolution = gix::merge::plumbing::blob::builtin_driver::text(
        &mut out,
        &mut input,
        Default::default(),
        ours,
        base,
        theirs,
        Default::default(),
    );
    matches!(resolution, gix::merge::plumbing::blob::Resolution::Complete).then_some(out)
}

/// Stricter than any driver: changes of the two sides must have an untouched line of the base between them,
/// unless they are the same change.
fn neighbours_apart(base: &[u8], ours: &[u8], theirs: &[u8]) -> bool {
    let (our_hunks, their_hunks) = (hunks(base, ours), hunks(base, theirs));
    let (our_lines, their_lines): (Vec<_>, Vec<_>) = (byte_lines(ours).collect(), byte_lines(theirs).collect());
    let mut at = 0;
    for (before, after) in &our_hunks {
        while at < their_hunks.len() && their_hunks[at].0.end < before.start {
            at += 1;
        }
        for (their_before, their_after) in their_hunks[at..].iter().take_while(|(range, _)| range.start <= before.end) {
            let same = before == their_before && our_lines[as_usize(after)] == their_lines[as_usize(their_after)];
            if !same {
                return false;
            }
        }
    }
    true
}

fn as_usize(range: &Range<u32>) -> Range<usize> {
    range.start as usize..range.end as usize
}

/// What a diff may cost and how long it may become. Beyond a limit the answer says so; nothing is cut.
#[derive(Debug, Clone, Copy)]
pub struct DiffLimits {
    /// Largest file on either side, in bytes.
    pub file_bytes_max: u64,
    /// Longest text, in bytes.
    pub text_bytes_max: u64,
}

impl Default for DiffLimits {
    fn default() -> Self {
        Self { file_bytes_max: 4 << 20, text_bytes_max: 1 << 20 }
    }
}

/// The difference of one path for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FileDiff {
    /// Every changed line, in unified form. Control, invisible and undecodable bytes are shown as `⟦…⟧`.
    Text {
        /// The text, without a header; empty when only the mode changed.
        text: String,
        /// Lines added.
        added: u64,
        /// Lines removed.
        removed: u64,
    },
    /// One side holds a NUL byte.
    Binary,
    /// Not shown because it is too large.
    TooLarge {
        /// What was measured.
        what: &'static str,
        /// Its size in bytes.
        found: u64,
        /// The limit in bytes.
        max: u64,
    },
}

impl History {
    /// The difference of one change. A summary of kinds and modes comes first, then the lines.
    pub fn unified_diff(&self, change: &Change, limits: DiffLimits) -> Result<FileDiff> {
        let reader = self.reader();
        let sides = [change.old, change.new];
        let largest = sides.iter().flatten().map(|entry| entry.size).max().unwrap_or(0);
        if largest > limits.file_bytes_max {
            return Ok(FileDiff::TooLarge { what: "bytes of the file", found: largest, max: limits.file_bytes_max });
        }
        let load = |entry: Option<Entry>| match entry.and_then(|entry| entry.oid) {
            Some(oid) => reader.load_kind(oid, Kind::Blob),
            None => Ok(Vec::new()),
        };
        let (old, new) = (load(change.old)?, load(change.new)?);
        if !is_text(&old) || !is_text(&new) {
            return Ok(FileDiff::Binary);
        }
        let (lines, added, removed) = unified(&old, &new);
        let text = header(&change.path, change.old, change.new) + &lines;
        if text.len() as u64 > limits.text_bytes_max {
            let (found, max) = (text.len() as u64, limits.text_bytes_max);
            return Ok(FileDiff::TooLarge { what: "bytes of the diff", found, max });
        }
        Ok(FileDiff::Text { text, added, removed })
    }
}

fn header(path: &TreePath, old: Option<Entry>, new: Option<Entry>) -> String {
    let kind = |entry: Entry| match entry.kind {
        EntryKind::File => "file",
        EntryKind::Symlink => "symlink",
        EntryKind::Dir => "directory",
    };
    let mut out = String::new();
    let show = |entry: Option<Entry>| entry.map_or("/dev/null".to_owned(), |_| path.to_string());
    let summary = match (old, new) {
        (None, Some(new)) => format!("new {} mode {:04o}\n", kind(new), new.mode),
        (Some(old), None) => format!("deleted {} mode {:04o}\n", kind(old), old.mode),
        (Some(old), Some(new)) if old.kind != new.kind => format!("{} becomes {}\n", kind(old), kind(new)),
        (Some(old), Some(new)) if old.mode != new.mode => format!("mode {:04o} becomes {:04o}\n", old.mode, new.mode),
        _ => String::new(),
    };
    out.push_str(&summary);
    if old.and_then(|entry| entry.oid) != new.and_then(|entry| entry.oid) {
        let _ = write!(out, "--- {}\n+++ {}\n", show(old), show(new));
    }
    out
}

fn unified(old: &[u8], new: &[u8]) -> (String, u64, u64) {
    let (old_lines, new_lines): (Vec<_>, Vec<_>) = (byte_lines(old).collect(), byte_lines(new).collect());
    let hunks = hunks(old, new);
    let old_len = u32::try_from(old_lines.len()).unwrap_or(u32::MAX);
    let (mut out, mut added, mut removed) = (String::new(), 0, 0);
    let mut first = 0;
    while first < hunks.len() {
        // Hunks whose contexts touch are shown together.
        let mut last = first;
        while last + 1 < hunks.len() && hunks[last + 1].0.start <= hunks[last].0.end.saturating_add(2 * CONTEXT_LINES) {
            last += 1;
        }
        let group = &hunks[first..=last];
        let before = group[0].0.start.saturating_sub(CONTEXT_LINES)
            ..group[group.len() - 1].0.end.saturating_add(CONTEXT_LINES).min(old_len);
        let lead = group[0].0.start - before.start;
        let after_start = group[0].1.start - lead;
        let after_end = group[group.len() - 1].1.end + (before.end - group[group.len() - 1].0.end);
        let _ = writeln!(out, "@@ -{} +{} @@", span(&before), span(&(after_start..after_end)));
        let mut at = before.start;
        for (from, to) in group {
            push_lines(&mut out, ' ', &old_lines[as_usize(&(at..from.start))]);
            push_lines(&mut out, '-', &old_lines[as_usize(from)]);
            push_lines(&mut out, '+', &new_lines[as_usize(to)]);
            removed += u64::from(from.end - from.start);
            added += u64::from(to.end - to.start);
            at = from.end;
        }
        push_lines(&mut out, ' ', &old_lines[as_usize(&(at..before.end))]);
        first = last + 1;
    }
    (out, added, removed)
}

/// `first,count`, counting from 1; an empty span names the line before it.
fn span(range: &Range<u32>) -> String {
    let count = range.end - range.start;
    format!("{},{count}", if count == 0 { range.start } else { range.start + 1 })
}

fn push_lines(out: &mut String, sign: char, lines: &[&[u8]]) {
    for line in lines {
        out.push(sign);
        let body = line.strip_suffix(b"\n");
        push_visible(out, body.unwrap_or(line));
        out.push('\n');
        if body.is_none() {
            out.push_str("\\ No newline at end of file\n");
        }
    }
}

/// Text in which nothing can hide: what a terminal or a browser would swallow or reorder is spelled out.
fn push_visible(out: &mut String, bytes: &[u8]) {
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            if (c.is_control() && c != '\t') || is_invisible(c) {
                let _ = write!(out, "\u{27e6}U+{:04X}\u{27e7}", u32::from(c));
            } else {
                out.push(c);
            }
        }
        for byte in chunk.invalid() {
            let _ = write!(out, "\u{27e6}{byte:02X}\u{27e7}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: separate changes merge, neighbouring ones do not, equal ones do.
    #[test]
    fn line_merge() {
        let base = b"1\n2\n3\n4\n5\n";
        assert_eq!(merge(base, b"a\n2\n3\n4\n5\n", b"1\n2\n3\n4\nz\n").unwrap(), b"a\n2\n3\n4\nz\n");
        assert_eq!(merge(base, b"1\na\n3\n4\n5\n", b"1\n2\nz\n4\n5\n"), None);
        assert_eq!(merge(base, b"1\na\n3\n4\n5\n", b"1\na\n3\n4\n5\n6\n").unwrap(), b"1\na\n3\n4\n5\n6\n");
        assert_eq!(merge(base, b"1\na\n3\n4\n5\n", b"1\nb\n3\n4\n5\n"), None);
        assert_eq!(merge(b"", b"a\n", b"b\n"), None);
    }

    /// Goal: the shape git prints, with what could deceive made visible.
    #[test]
    fn unified_shape() {
        let old: String = (1..=20).map(|n| format!("{n}\n")).collect();
        let new = old.replace("\n2\n", "\ntwo\u{202e}\n").replace("\n19\n20\n", "\n19\n20");
        let (text, added, removed) = unified(old.as_bytes(), new.as_bytes());
        assert_eq!((added, removed), (2, 2));
        assert_eq!(
            text,
            "@@ -1,5 +1,5 @@\n 1\n-2\n+two\u{27e6}U+202E\u{27e7}\n 3\n 4\n 5\n@@ -17,4 +17,4 @@\n 17\n 18\n 19\n-20\n+20\n\\ No newline at end of file\n"
        );
        assert_eq!(unified(b"", b"a\n").0, "@@ -0,0 +1,1 @@\n+a\n");
        assert_eq!(unified(b"a\n", b"").0, "@@ -1,1 +0,0 @@\n-a\n");
    }
}
