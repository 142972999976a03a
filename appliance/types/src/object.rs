//! What history holds: object ids, tree entries, changes between two trees.

use std::fmt;
use std::str::FromStr;

use crate::path::TreePath;
use crate::time::FileTime;

/// A Git object id (SHA-1, collision-detecting when computed).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Oid(pub [u8; 20]);

impl Oid {
    /// The first seven hexadecimal digits, as people quote a commit.
    #[must_use]
    pub fn short(&self) -> String {
        self.to_string()[..7].to_owned()
    }
}

impl fmt::Display for Oid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Oid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A text that is not 40 hexadecimal digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not an object id: expected 40 hexadecimal digits")]
pub struct OidError;

impl FromStr for Oid {
    type Err = OidError;
    fn from_str(text: &str) -> Result<Self, OidError> {
        let text = text.as_bytes();
        if text.len() != 40 {
            return Err(OidError);
        }
        let mut out = [0; 20];
        for (byte, pair) in out.iter_mut().zip(text.chunks_exact(2)) {
            let digit = |d: u8| char::from(d).to_digit(16).ok_or(OidError);
            *byte = u8::try_from(digit(pair[0])? * 16 + digit(pair[1])?).map_err(|_| OidError)?;
        }
        Ok(Self(out))
    }
}

impl serde::Serialize for Oid {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

impl<'de> serde::Deserialize<'de> for Oid {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let text = <std::borrow::Cow<'de, str>>::deserialize(d)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// Kind of an entry that history keeps. Directories appear only when they are empty or carry a mode of
/// their own; others are implied by what is in them.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum EntryKind {
    /// Regular file.
    File,
    /// Symbolic link; its content is the target.
    Symlink,
    /// Directory.
    Dir,
}

/// Under which keys a content lies (SPEC FORGET, retention class `sensitive`). Part of every reference to a blob: the same
/// bytes in two domains are two contents, never shared and never merged as one.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Default,
    serde::Serialize,
    serde::Deserialize,
    schemars::JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum KeyDomain {
    /// The box's own: the domain of everything so far.
    #[default]
    Box,
}

impl KeyDomain {
    /// Is it the domain that need not be named?
    #[must_use]
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// One entry of a committed tree: content and meta together (DESIGN §3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
pub struct Entry {
    /// Kind.
    pub kind: EntryKind,
    /// Permission bits, `0o1777` at most. Git keeps the owner's x bit, meta keeps the rest.
    pub mode: u32,
    /// Content id; `None` for a directory.
    pub oid: Option<Oid>,
    /// Content length in bytes (0 for a directory).
    pub size: u64,
    /// When a program last changed the content. `None` where it is not known (commits not made here), and for directories.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mtime: Option<FileTime>,
    /// Key domain of the content.
    #[serde(default, skip_serializing_if = "KeyDomain::is_default")]
    pub key_domain: KeyDomain,
}

/// One changed path between two trees. `old` absent: added; `new` absent: deleted.
#[derive(Debug, Clone, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
pub struct Change {
    /// Where.
    pub path: TreePath,
    /// What was there.
    pub old: Option<Entry>,
    /// What is there now.
    pub new: Option<Entry>,
}

/// Why a merge stopped at a path (SPEC BRANCH-5).
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
pub struct Conflict {
    /// Where.
    pub path: TreePath,
    /// What clashed.
    pub kind: ConflictKind,
}

/// How two sides clashed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ConflictKind {
    /// Both changed the same lines, or a file that is not merged by line.
    Content,
    /// One changed it, the other deleted it.
    ChangedAndDeleted,
    /// Both added it, with different content.
    BothAdded,
    /// One has a file where the other has a directory, or the kinds differ.
    Kinds,
    /// Both changed its mode, differently.
    Mode,
    /// Two names differ only by case or by Unicode form.
    NameCollision,
}

impl ConflictKind {
    /// A sentence for people.
    #[must_use]
    pub fn as_sentence(self) -> &'static str {
        match self {
            Self::Content => "both sides changed the same part",
            Self::ChangedAndDeleted => "one side changed it, the other deleted or moved it",
            Self::BothAdded => "both sides added it, with different content",
            Self::Kinds => "the two sides made different kinds of file of it",
            Self::Mode => "both sides changed its permissions, differently",
            Self::NameCollision => "two names differ only in case or in Unicode form",
        }
    }
}

/// Who made a commit and under which authority: becomes the trailers of SPEC GIT-1.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Provenance {
    /// Principal that acted, e.g. `agent:cleo`.
    pub principal: String,
    /// Principal it acted for, e.g. `human:owner`.
    pub on_behalf_of: Option<String>,
    /// The run.
    pub run: crate::id::RunId,
    /// The lease.
    pub lease: crate::id::LeaseId,
    /// Purpose as stated, one line.
    pub purpose: Option<String>,
    /// Digest of the run's read manifest, hexadecimal.
    pub read_manifest: Option<String>,
}
