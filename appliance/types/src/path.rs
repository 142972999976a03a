//! Paths inside a tree. Names are bytes (RFC 1813 §2.5 leaves their encoding to the client), so
//! they need not be UTF-8; but a value of these types is always safe to hand to the file system.

use std::fmt;

/// Longest name of one entry, in bytes (the limit of every Linux file system we use).
pub const NAME_BYTES_MAX: usize = 255;
/// Longest path inside a tree, in bytes.
pub const PATH_BYTES_MAX: usize = 4096;

/// Why bytes are no legal name or path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PathError {
    /// A name is empty.
    #[error("a name is empty")]
    Empty,
    /// `.` or `..`: trees have no relative parts.
    #[error("'.' and '..' are not names")]
    Dots,
    /// A name contains `/` or NUL.
    #[error("a name contains '/' or a NUL byte")]
    Forbidden,
    /// A name is longer than [`NAME_BYTES_MAX`].
    #[error("a name is longer than 255 bytes")]
    NameTooLong,
    /// The path is longer than [`PATH_BYTES_MAX`].
    #[error("the path is longer than 4096 bytes")]
    PathTooLong,
    /// A path must start at the root of its tree.
    #[error("the path must start with '/'")]
    NotAbsolute,
    /// A text form has a malformed `%XX` escape.
    #[error("a '%' must be followed by two hexadecimal digits")]
    Escape,
}

/// One legal directory entry name, 1 to [`NAME_BYTES_MAX`] bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name<'a>(&'a [u8]);

impl<'a> Name<'a> {
    /// Checks `bytes`.
    pub fn new(bytes: &'a [u8]) -> Result<Self, PathError> {
        match bytes {
            b"" => Err(PathError::Empty),
            b"." | b".." => Err(PathError::Dots),
            _ if bytes.len() > NAME_BYTES_MAX => Err(PathError::NameTooLong),
            _ if bytes.iter().any(|b| *b == b'/' || *b == 0) => Err(PathError::Forbidden),
            _ => Ok(Self(bytes)),
        }
    }

    /// The bytes.
    #[must_use]
    pub fn as_bytes(self) -> &'a [u8] {
        self.0
    }
}

/// A path from the root of a tree. The root is the empty path; otherwise components joined by `/`,
/// without a leading or trailing one. Ordered by bytes.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct TreePath(Vec<u8>);

impl TreePath {
    /// The root of the tree.
    #[must_use]
    pub fn root() -> Self {
        Self::default()
    }

    /// From components joined by `/`, without a leading `/`; empty is the root.
    pub fn from_relative(bytes: &[u8]) -> Result<Self, PathError> {
        if bytes.is_empty() {
            return Ok(Self::root());
        }
        if bytes.len() > PATH_BYTES_MAX {
            return Err(PathError::PathTooLong);
        }
        for part in bytes.split(|b| *b == b'/') {
            Name::new(part)?;
        }
        Ok(Self(bytes.to_vec()))
    }

    /// From raw bytes that start with `/`, as a client names a path. One trailing `/` is forgiven.
    pub fn from_absolute(bytes: &[u8]) -> Result<Self, PathError> {
        let rest = bytes.strip_prefix(b"/").ok_or(PathError::NotAbsolute)?;
        match rest.strip_suffix(b"/") {
            Some(b"") => Err(PathError::Empty),
            trimmed => Self::from_relative(trimmed.unwrap_or(rest)),
        }
    }

    /// From the text form of [`Display`](fmt::Display): absolute, `%XX` for bytes.
    pub fn parse(text: &str) -> Result<Self, PathError> {
        Self::from_absolute(&unescape(text)?)
    }

    /// Components joined by `/`, without a leading `/`.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Is this the root?
    #[must_use]
    pub fn is_root(&self) -> bool {
        self.0.is_empty()
    }

    /// The components in order.
    pub fn components(&self) -> impl DoubleEndedIterator<Item = &[u8]> {
        self.0.split(|b| *b == b'/').filter(|part| !part.is_empty())
    }

    /// The child `name` of this path.
    pub fn join(&self, name: Name<'_>) -> Result<Self, PathError> {
        if self.0.len() + 1 + name.as_bytes().len() > PATH_BYTES_MAX {
            return Err(PathError::PathTooLong);
        }
        let mut bytes = Vec::with_capacity(self.0.len() + 1 + name.as_bytes().len());
        bytes.extend_from_slice(&self.0);
        if !bytes.is_empty() {
            bytes.push(b'/');
        }
        bytes.extend_from_slice(name.as_bytes());
        Ok(Self(bytes))
    }

    /// The parent and the last name; `None` for the root.
    #[must_use]
    pub fn split_last(&self) -> Option<(Self, Name<'_>)> {
        if self.0.is_empty() {
            return None;
        }
        Some(match self.0.iter().rposition(|b| *b == b'/') {
            Some(at) => (Self(self.0[..at].to_vec()), Name(&self.0[at + 1..])),
            None => (Self::root(), Name(&self.0)),
        })
    }

    /// Is `self` equal to `dir` or below it? Whole components only: `/x/dir-evil` is not in `/x/dir`.
    #[must_use]
    pub fn is_within(&self, dir: &Self) -> bool {
        self.below(dir).is_some()
    }

    /// The part of `self` below `dir` (empty when equal), or `None` when it is not within `dir`.
    #[must_use]
    pub fn below(&self, dir: &Self) -> Option<&[u8]> {
        if dir.0.is_empty() {
            return Some(&self.0);
        }
        let rest = self.0.strip_prefix(dir.0.as_slice())?;
        if rest.is_empty() { Some(rest) } else { rest.strip_prefix(b"/") }
    }

    /// This path with its leading `from` replaced by `to`; `None` when it is not within `from` or grows too long.
    #[must_use]
    pub fn rebase(&self, from: &Self, to: &Self) -> Option<Self> {
        let rest = self.below(from)?;
        if rest.is_empty() {
            return Some(to.clone());
        }
        let mut bytes = to.0.clone();
        if !bytes.is_empty() {
            bytes.push(b'/');
        }
        bytes.extend_from_slice(rest);
        (bytes.len() <= PATH_BYTES_MAX).then_some(Self(bytes))
    }
}

/// Absolute, with control characters, `%` and bytes that are not UTF-8 as `%XX`, so that it can be
/// printed on a terminal and parsed back by [`TreePath::parse`].
impl fmt::Display for TreePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("/")?;
        write_escaped(&self.0, f)
    }
}

impl fmt::Debug for TreePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl serde::Serialize for TreePath {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

impl<'de> serde::Deserialize<'de> for TreePath {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let text = <std::borrow::Cow<'de, str>>::deserialize(d)?;
        Self::parse(&text).map_err(serde::de::Error::custom)
    }
}

/// Writes bytes as printable text, escaping what a terminal or a reader could misread.
pub fn write_escaped(bytes: &[u8], f: &mut impl fmt::Write) -> fmt::Result {
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            if c == '%' || c.is_control() || is_invisible(c) {
                let mut utf8 = [0; 4];
                for byte in c.encode_utf8(&mut utf8).bytes() {
                    write!(f, "%{byte:02X}")?;
                }
            } else {
                f.write_char(c)?;
            }
        }
        for byte in chunk.invalid() {
            write!(f, "%{byte:02X}")?;
        }
    }
    Ok(())
}

/// Bidirectional controls and zero-width characters: they make one name or line look like another.
#[must_use]
pub fn is_invisible(c: char) -> bool {
    matches!(c, '\u{00AD}' | '\u{061C}' | '\u{180E}' | '\u{200B}'..='\u{200F}' | '\u{2028}'..='\u{202E}' | '\u{2060}'..='\u{206F}' | '\u{FEFF}' | '\u{E0000}'..='\u{E007F}')
}

fn unescape(text: &str) -> Result<Vec<u8>, PathError> {
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        if byte == b'%' {
            let mut digit = || bytes.next().and_then(|d| char::from(d).to_digit(16)).ok_or(PathError::Escape);
            let value = digit()? * 16 + digit()?;
            out.push(u8::try_from(value).map_err(|_| PathError::Escape)?);
        } else {
            out.push(byte);
        }
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn p(text: &str) -> TreePath {
        TreePath::parse(text).unwrap()
    }

    /// Goal: containment goes by whole components.
    #[test]
    fn prefix_look_alikes_are_outside() {
        assert!(p("/shared/launch/a").is_within(&p("/shared/launch")));
        assert!(p("/shared/launch").is_within(&p("/shared/launch")));
        assert!(!p("/shared/launch-evil/a").is_within(&p("/shared/launch")));
        assert!(p("/a").is_within(&TreePath::root()));
    }

    /// Goal: nothing that could leave the tree is a path.
    #[test]
    fn illegal_paths() {
        for bad in ["a", "/a/../b", "/.", "/a//b", "/a%00b", "/%2", "//"] {
            assert!(TreePath::parse(bad).is_err(), "{bad}");
        }
        assert!(Name::new(&[b'x'; 256]).is_err());
        assert!(Name::new(&[b'x'; 255]).is_ok());
    }

    /// Goal: any legal bytes survive printing and parsing, and nothing printed is a control character.
    #[test]
    fn display_round_trip() {
        let odd = TreePath::from_relative(b"a\xff\n%/caf\xc3\xa9/\xe2\x80\xae").unwrap();
        let text = odd.to_string();
        assert_eq!(text, "/a%FF%0A%25/caf\u{e9}/%E2%80%AE");
        assert_eq!(p(&text), odd);
    }

    #[test]
    fn rebase_moves_a_subtree() {
        assert_eq!(p("/a/b/c").rebase(&p("/a/b"), &p("/z")), Some(p("/z/c")));
        assert_eq!(p("/a/bc").rebase(&p("/a/b"), &p("/z")), None);
        assert_eq!(p("/a").rebase(&p("/a"), &p("/z")), Some(p("/z")));
    }
}
