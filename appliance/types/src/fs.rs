//! Live files as a gateway sees them: what they are, how they are named, how an operation on them fails.

use crate::time::FileTime;

/// Identity of a file within one live directory (a branch or a generation).
///
/// `ino` is the inode number; `generation` tells two files apart that had the same number one after the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct NodeId {
    /// Inode number.
    pub ino: u64,
    /// Inode generation (the engine says what it is made of).
    pub generation: u64,
}

/// A [`NodeId`] as a client holds it: with the inode of the directory it was last seen in, which lets a
/// restarted server find the file again without walking the branch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct NodeRef {
    /// Which file.
    pub id: NodeId,
    /// Inode of a directory that held it when the reference was made. Only a hint.
    pub parent_hint: u64,
}

/// What kind of file. Device nodes never exist in a tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FileKind {
    /// Regular file.
    File,
    /// Directory.
    Dir,
    /// Symbolic link: stored, never followed by the server.
    Symlink,
    /// Named pipe: lives on a branch only, not kept in history.
    Fifo,
    /// Socket: lives on a branch only, not kept in history.
    Socket,
}

/// Attributes of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attr {
    /// Kind.
    pub kind: FileKind,
    /// Permission bits a client set, `0o7777` masked to `0o1777` (setuid and setgid do not exist here).
    pub mode: u32,
    /// Number of names.
    pub nlink: u32,
    /// Length in bytes.
    pub size: u64,
    /// Bytes used on disk.
    pub used: u64,
    /// Inode number shown to clients.
    pub fileid: u64,
    /// Last access.
    pub atime: FileTime,
    /// Last change of content.
    pub mtime: FileTime,
    /// Last change of content or attributes.
    pub ctime: FileTime,
}

/// A file found by name: its reference and its attributes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Node {
    /// Reference to hand out.
    pub node: NodeRef,
    /// Attributes at the time of the call.
    pub attr: Attr,
}

/// Attributes before an operation, for weak cache consistency (RFC 1813 §2.6, `wcc_attr`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Before {
    /// Length in bytes.
    pub size: u64,
    /// Last change of content.
    pub mtime: FileTime,
    /// Last change of content or attributes.
    pub ctime: FileTime,
}

impl From<&Attr> for Before {
    fn from(attr: &Attr) -> Self {
        Self { size: attr.size, mtime: attr.mtime, ctime: attr.ctime }
    }
}

/// A file or directory before and after an operation on it (RFC 1813 §2.6, `wcc_data`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wcc {
    /// Before.
    pub before: Before,
    /// After.
    pub after: Attr,
}

/// A node that was made, and what that did to its directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Made {
    /// The new node.
    pub node: Node,
    /// Its directory.
    pub dir: Wcc,
}

/// Bytes that were written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Written {
    /// How many.
    pub count: u32,
    /// The stability that was really reached.
    pub stability: Stability,
    /// The file.
    pub file: Wcc,
}

/// Bytes that were read into the caller's buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadOut {
    /// How many.
    pub count: u32,
    /// They reach the end of the file.
    pub eof: bool,
    /// The file after the read.
    pub attr: Attr,
}

/// How to set a time stamp (RFC 1813 §2.5, `time_how`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SetTime {
    /// Leave it.
    #[default]
    Keep,
    /// The server's clock.
    Now,
    /// The client's value.
    To(FileTime),
}

/// Attributes to change; `None` leaves one as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SetAttr {
    /// Permission bits.
    pub mode: Option<u32>,
    /// Length in bytes.
    pub size: Option<u64>,
    /// Last access.
    pub atime: SetTime,
    /// Last change of content.
    pub mtime: SetTime,
}

/// How durable written bytes are, in rising order (RFC 1813 §3.3.7, `stable_how`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stability {
    /// In the server's memory; COMMIT makes them durable.
    Unstable,
    /// Content is on stable storage.
    DataSync,
    /// Content and attributes are on stable storage.
    FileSync,
}

/// How CREATE treats a name that exists (RFC 1813 §3.3.8, `createmode3`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CreateHow {
    /// Open what is there.
    Unchecked(SetAttr),
    /// Fail when it exists.
    Guarded(SetAttr),
    /// Fail when it exists, unless it was made with the same verifier (a retransmission).
    Exclusive([u8; 8]),
}

/// A node to make other than a regular file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Special {
    /// Named pipe.
    Fifo,
    /// Socket.
    Socket,
}

/// One entry of a directory listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirEntry {
    /// Name, bytes.
    pub name: Vec<u8>,
    /// Inode number shown to clients.
    pub fileid: u64,
    /// Cookie that resumes after this entry. 0, 1 and 2 are never used (start, `.` and `..`).
    pub cookie: u64,
    /// Reference and attributes, when asked for and found.
    pub node: Option<Node>,
}

/// Part of a directory listing, in cookie order. It does not contain `.` and `..`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listing {
    /// The entries.
    pub entries: Vec<DirEntry>,
    /// Nothing comes after these.
    pub eof: bool,
}

/// Space and file counts of a view, as its run may use them (quota included).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Space {
    /// All bytes.
    pub total_bytes: u64,
    /// Bytes this run can still write.
    pub free_bytes: u64,
    /// All file slots.
    pub total_files: u64,
    /// File slots this run can still use.
    pub free_files: u64,
}

/// How an operation on files fails. Small and `Copy`: the data path allocates nothing to say no.
/// Every gateway maps it exhaustively.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum FsError {
    /// No such name, or it is outside the lease (SPEC MOUNT-5).
    #[error("no such file or directory")]
    NotFound,
    /// The name exists.
    #[error("the name exists already")]
    Exists,
    /// Not a directory.
    #[error("not a directory")]
    NotDir,
    /// Is a directory.
    #[error("is a directory")]
    IsDir,
    /// Directory is not empty.
    #[error("the directory is not empty")]
    NotEmpty,
    /// A name over 255 or a path over 4096 bytes.
    #[error("the name is too long")]
    NameTooLong,
    /// An argument makes no sense for this file (bad name, wrong kind, rename into itself).
    #[error("invalid argument")]
    Invalid,
    /// Visible, but the lease does not allow it (SPEC MOUNT-5). Recorded.
    #[error("not allowed by the lease")]
    Access,
    /// Nobody may do this here (setuid, device nodes, owner changes).
    #[error("not permitted on this NAS")]
    NotPermitted,
    /// The view is read-only: main, a commit, or a lease whose time is over.
    #[error("read-only")]
    ReadOnly,
    /// The reference names no file any more, or the lease is over (SPEC MOUNT-5).
    #[error("stale file reference")]
    Stale,
    /// Forged or malformed reference.
    #[error("not a file reference of this mount")]
    BadRef,
    /// Quota or budget is spent (SPEC MOUNT-5).
    #[error("quota or budget is spent")]
    Quota,
    /// The pool reached its reserve.
    #[error("no space left: the pool reached its reserve")]
    NoSpace,
    /// Beyond the largest file size.
    #[error("the file would be too large")]
    TooLarge,
    /// Too many names of one file.
    #[error("too many links")]
    TooManyLinks,
    /// Both ends are not on the same view.
    #[error("not on the same branch")]
    CrossBranch,
    /// This cannot be done here.
    #[error("not supported")]
    NotSupported,
    /// A directory listing cannot go on from this cookie.
    #[error("the directory cookie is not valid any more")]
    BadCookie,
    /// The guard of a SETATTR did not match (RFC 1813 §3.3.2).
    #[error("the file changed meanwhile")]
    NotSync,
    /// Full now, come back later; nothing was done.
    #[error("busy, try again later")]
    Later,
    /// The device failed. Logged with its cause.
    #[error("input/output error")]
    Io,
}
