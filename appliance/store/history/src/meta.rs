//! Meta: what a Git tree cannot hold, as a second tree that mirrors the directories needing it.
//!
//! One directory's meta is a Git tree with these entries, all of them absent when not needed:
//! - `meta`: a blob of canonical JSON lines. The first is the format, then one line per entry that differs from
//!   its default, sorted by name: `{"name":"a","kind":"dir","mode":"0700"}`. A line of kind `dir` makes the
//!   directory exist even where Git holds nothing of it (empty, or only empty directories inside).
//! - `d-<name>`: the meta of the subdirectory `<name>`.
//! - `f-<name>`: a *hidden* file or symlink, `t-<name>`: the content of a hidden directory: entries whose names
//!   stock git refuses (see [`is_hidden`]), which therefore must not stand in the content tree.
//!
//! Names are escaped to `[A-Za-z0-9 ._-]` with `%XX` for all other bytes. Behind a prefix no user's name can
//! collide with ours, and none is special to git.
//!
//! - `mtime` of files and symlinks, to the nanosecond. Times alone are no change (see [`crate::diff`]). A directory's
//!   time follows from what happens in it and is not kept.
//! - `key_domain` of content that does not lie under the box's own keys. A reader that does not know the domain refuses.
//!
//! A line has room for more (xattrs, link groups): readers refuse fields they do not know, so adding one means a new format
//! number. Format 1 had neither `mtime` nor `key_domain`; it is read, and written for what needs nothing of format 2.

use nas_types::object::{EntryKind, KeyDomain};
use nas_types::time::FileTime;

use crate::error::{HistoryError, Result};

/// Name of the blob of lines.
pub(crate) const LINES: &[u8] = b"meta";
/// The formats, in order. The first line of each blob is one of them.
const FORMAT_LINES: [&str; 2] = ["{\"format\":1}", "{\"format\":2}"];

/// One line.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Line {
    name: String,
    pub(crate) kind: EntryKind,
    /// Octal; absent when it is the default of what Git holds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    mode: Option<String>,
    /// When its content last changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) mtime: Option<FileTime>,
    /// Absent: the box's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    key_domain: Option<String>,
}

impl Line {
    pub(crate) fn new(name: &[u8], kind: EntryKind, mode: Option<u32>) -> Self {
        let mode = mode.map(|mode| format!("{mode:04o}"));
        Self { name: escape(name), kind, mode, mtime: None, key_domain: None }
    }

    /// With what it says about the content.
    pub(crate) fn of_content(self, key_domain: KeyDomain, mtime: Option<FileTime>) -> Self {
        // Only the default exists: it is the one that is not written.
        let KeyDomain::Box = key_domain;
        Self { mtime, ..self }
    }

    /// `None`: one that this version does not know.
    pub(crate) fn key_domain(&self) -> Option<KeyDomain> {
        self.key_domain.is_none().then(KeyDomain::default)
    }

    pub(crate) fn domain_text(&self) -> String {
        self.key_domain.clone().unwrap_or_default()
    }

    fn format(&self) -> usize {
        usize::from(self.mtime.is_some() || self.key_domain.is_some())
    }

    pub(crate) fn mode(&self) -> Option<u32> {
        self.mode.as_deref().and_then(|text| u32::from_str_radix(text, 8).ok()).map(|mode| mode & 0o1777)
    }

    pub(crate) fn name(&self) -> Option<Vec<u8>> {
        unescape(self.name.as_bytes())
    }
}

/// The blob of these lines.
pub(crate) fn encode(lines: &[Line]) -> Vec<u8> {
    let format = lines.iter().map(Line::format).max().unwrap_or(0);
    let mut out = format!("{}\n", FORMAT_LINES[format]).into_bytes();
    for line in lines {
        serde_json::to_writer(&mut out, line).expect("because a line holds plain text only");
        out.push(b'\n');
    }
    out
}

/// The lines of a blob.
pub(crate) fn decode(oid: nas_types::object::Oid, bytes: &[u8]) -> Result<Vec<Line>> {
    let mut lines = bytes.split(|b| *b == b'\n').filter(|line| !line.is_empty());
    if !lines.next().is_some_and(|first| FORMAT_LINES.iter().any(|known| known.as_bytes() == first)) {
        return Err(HistoryError::corrupt(oid, "this meta format is not known"));
    }
    lines.map(|line| serde_json::from_slice(line).map_err(|err| HistoryError::corrupt(oid, err))).collect()
}

/// Behind which prefix an entry of a meta tree stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    /// Meta of a subdirectory.
    Sub,
    /// Hidden file or symlink.
    Leaf,
    /// Content of a hidden directory.
    Tree,
}

impl Part {
    fn prefix(self) -> &'static [u8] {
        match self {
            Self::Sub => b"d-",
            Self::Leaf => b"f-",
            Self::Tree => b"t-",
        }
    }

    /// Name of the entry in the meta tree.
    pub(crate) fn entry_name(self, name: &[u8]) -> Vec<u8> {
        [self.prefix(), escape(name).as_bytes()].concat()
    }

    /// Part and user's name of an entry of a meta tree.
    pub(crate) fn parse(entry: &[u8]) -> Option<(Self, Vec<u8>)> {
        let (prefix, rest) = entry.split_at_checked(2)?;
        let part = [Self::Sub, Self::Leaf, Self::Tree].into_iter().find(|part| part.prefix() == prefix)?;
        Some((part, unescape(rest)?))
    }
}

fn escape(name: &[u8]) -> String {
    let mut out = String::with_capacity(name.len());
    for byte in name {
        if byte.is_ascii_alphanumeric() || b" ._-".contains(byte) {
            out.push(char::from(*byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}

fn unescape(text: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.iter();
    while let Some(byte) = bytes.next() {
        if *byte == b'%' {
            let mut digit = || bytes.next().and_then(|d| char::from(*d).to_digit(16));
            out.push(u8::try_from(digit()? * 16 + digit()?).ok()?);
        } else {
            out.push(*byte);
        }
    }
    Some(out)
}

/// Would stock git refuse this entry, or treat it as its own? `.git` in any case, with what HFS+ ignores and
/// NTFS drops, its short name `git~1`, also behind a backslash; and `.gitmodules`, `.gitattributes` that are no
/// plain files (git's fsck rejects them).
pub(crate) fn is_hidden(name: &[u8], kind: EntryKind) -> bool {
    let segments = || name.split(|b| *b == b'\\');
    if hfs_key(name) == b".git" || segments().any(is_ntfs_dotgit) {
        return true;
    }
    kind != EntryKind::File && segments().any(is_git_file)
}

fn is_ntfs_dotgit(segment: &[u8]) -> bool {
    let lower = segment.to_ascii_lowercase();
    let Some(rest) = lower.strip_prefix(b".git").or_else(|| lower.strip_prefix(b"git~1")) else { return false };
    let end = rest.iter().position(|b| *b == b':').unwrap_or(rest.len());
    rest[..end].iter().all(|b| matches!(b, b' ' | b'.'))
}

/// Wider than git's own test (any short name that could stand for one of the two): hiding more costs nothing.
fn is_git_file(segment: &[u8]) -> bool {
    let key = hfs_key(segment);
    let long =
        [&b".gitmodules"[..], b".gitattributes", b".gitignore", b".mailmap"].iter().any(|name| key.starts_with(name));
    let short = [&b"gitmod"[..], b"gitatt", b"gitign", b"mailma", b"gi7e", b"gi7d", b"gi25", b"maba"]
        .iter()
        .any(|name| key.starts_with(name));
    long || (short && key.contains(&b'~'))
}

/// Lower-cased without the code points HFS+ ignores, up to the first byte that is not UTF-8 (where git stops too).
fn hfs_key(name: &[u8]) -> Vec<u8> {
    let valid = name.utf8_chunks().next().map_or("", |chunk| chunk.valid());
    let kept = valid.chars().filter(
        |c| !matches!(c, '\u{200C}'..='\u{200F}' | '\u{202A}'..='\u{202E}' | '\u{206A}'..='\u{206F}' | '\u{FEFF}'),
    );
    kept.collect::<String>().to_ascii_lowercase().into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: every look-alike of `.git` is hidden, harmless neighbours are not.
    #[test]
    fn hidden_names() {
        let yes: [&[u8]; 12] = [
            b".git",
            b".GIT",
            b".Git ",
            b".git...",
            b"git~1",
            b"GIT~1.",
            b".git:stream",
            b"a\\.git",
            b"a\\git~1",
            ".g\u{200c}it".as_bytes(),
            "\u{feff}.git".as_bytes(),
            b".git\xff",
        ];
        for name in yes {
            assert!(is_hidden(name, EntryKind::File), "{:?}", String::from_utf8_lossy(name));
        }
        let no: [&[u8]; 7] = [b".gitignore", b".github", b"git", b"git~2", b".gitx", b"x.git", b".gitmodules"];
        for name in no {
            assert!(!is_hidden(name, EntryKind::File), "{:?}", String::from_utf8_lossy(name));
        }
        assert!(is_hidden(b".gitmodules", EntryKind::Symlink));
        assert!(is_hidden(b".gitattributes", EntryKind::Dir));
    }

    /// Goal: names of any bytes survive, and parts are told apart.
    #[test]
    fn names_round_trip() {
        for name in [&b"plain"[..], b"\xff\n%/\\", &[0xfe; 255], b"meta", b"d-x"] {
            for part in [Part::Sub, Part::Leaf, Part::Tree] {
                let entry = part.entry_name(name);
                assert!(entry.is_ascii());
                assert_eq!(Part::parse(&entry), Some((part, name.to_vec())));
            }
        }
        assert_eq!(Part::parse(LINES), None);
    }

    /// Goal: lines survive; an unknown format or field is refused, not guessed at.
    #[test]
    fn lines_round_trip() {
        let oid = nas_types::object::Oid([0; 20]);
        let lines = vec![Line::new(b"a\xff", EntryKind::Dir, Some(0o700)), Line::new(b"b", EntryKind::File, None)];
        let bytes = encode(&lines);
        assert_eq!(bytes, b"{\"format\":1}\n{\"name\":\"a%FF\",\"kind\":\"dir\",\"mode\":\"0700\"}\n{\"name\":\"b\",\"kind\":\"file\"}\n");
        assert_eq!(decode(oid, &bytes).unwrap(), lines);
        assert!(decode(oid, b"{\"format\":3}\n").is_err());
        let mtime = Some(FileTime { secs: -2, nanos: 7 });
        let timed = [Line::new(b"c", EntryKind::File, None).of_content(KeyDomain::Box, mtime)];
        let bytes = encode(&timed);
        assert_eq!(bytes, b"{\"format\":2}\n{\"name\":\"c\",\"kind\":\"file\",\"mtime\":\"-2.000000007\"}\n");
        assert_eq!(decode(oid, &bytes).unwrap(), timed);
        let sealed =
            decode(oid, b"{\"format\":2}\n{\"name\":\"d\",\"kind\":\"file\",\"key_domain\":\"k1\"}\n").unwrap();
        assert_eq!((sealed[0].key_domain(), sealed[0].domain_text()), (None, "k1".to_owned()));
        assert!(decode(oid, b"{\"format\":1}\n{\"name\":\"a\",\"kind\":\"dir\",\"owner\":1}\n").is_err());
    }
}
