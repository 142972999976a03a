//! `nfsstat3` and `mountstat3`, and how each failure of the Door becomes one.

use nas_types::fs::FsError;

/// The 22 procedures of NFSv3 (RFC 1813 §3.3), by their numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u32)]
pub(crate) enum Procedure {
    Null = 0,
    GetAttr = 1,
    SetAttr = 2,
    Lookup = 3,
    Access = 4,
    ReadLink = 5,
    Read = 6,
    Write = 7,
    Create = 8,
    MkDir = 9,
    SymLink = 10,
    MkNod = 11,
    Remove = 12,
    RmDir = 13,
    Rename = 14,
    Link = 15,
    ReadDir = 16,
    ReadDirPlus = 17,
    FsStat = 18,
    FsInfo = 19,
    PathConf = 20,
    Commit = 21,
}

impl Procedure {
    /// All, in the order of their numbers.
    pub(crate) const ALL: [Self; 22] = [
        Self::Null,
        Self::GetAttr,
        Self::SetAttr,
        Self::Lookup,
        Self::Access,
        Self::ReadLink,
        Self::Read,
        Self::Write,
        Self::Create,
        Self::MkDir,
        Self::SymLink,
        Self::MkNod,
        Self::Remove,
        Self::RmDir,
        Self::Rename,
        Self::Link,
        Self::ReadDir,
        Self::ReadDirPlus,
        Self::FsStat,
        Self::FsInfo,
        Self::PathConf,
        Self::Commit,
    ];

    /// The procedure with this number.
    pub(crate) fn from_number(number: u32) -> Option<Self> {
        Self::ALL.get(usize::try_from(number).ok()?).copied()
    }

    /// Would running it twice differ from running it once? A late duplicate of WRITE can undo a newer one.
    pub(crate) fn needs_replay(self) -> bool {
        match self {
            Self::SetAttr
            | Self::Write
            | Self::Create
            | Self::MkDir
            | Self::SymLink
            | Self::MkNod
            | Self::Remove
            | Self::RmDir
            | Self::Rename
            | Self::Link => true,
            Self::Null
            | Self::GetAttr
            | Self::Lookup
            | Self::Access
            | Self::ReadLink
            | Self::Read
            | Self::ReadDir
            | Self::ReadDirPlus
            | Self::FsStat
            | Self::FsInfo
            | Self::PathConf
            | Self::Commit => false,
        }
    }

    /// Statuses RFC 1813 §3.3 lists for it beside IO, ACCES, STALE, BADHANDLE, NOTSUPP, SERVERFAULT and JUKEBOX.
    fn own_statuses(self) -> &'static [Status] {
        use Status::*;
        match self {
            Self::Null | Self::GetAttr | Self::Access | Self::FsStat | Self::FsInfo | Self::PathConf | Self::Commit => {
                &[]
            }
            Self::SetAttr => &[Perm, Inval, NoSpc, Rofs, Dquot, NotSync, FBig],
            Self::Lookup => &[NoEnt, NotDir, NameTooLong],
            Self::ReadLink | Self::Read => &[Inval],
            Self::Write => &[FBig, Dquot, NoSpc, Rofs, Inval],
            Self::Create | Self::MkDir | Self::SymLink | Self::MkNod => {
                &[Exist, NotDir, NoSpc, Rofs, NameTooLong, Dquot, Perm, NoEnt, Inval]
            }
            Self::Remove => &[NoEnt, NotDir, NameTooLong, Rofs, IsDir, Perm, Inval, NoSpc, Dquot],
            Self::RmDir => &[NoEnt, Inval, Exist, NotDir, NameTooLong, Rofs, NotEmpty, Perm, NoSpc, Dquot],
            Self::Rename => {
                &[NoEnt, Exist, XDev, NotDir, IsDir, Inval, NoSpc, Rofs, MLink, NameTooLong, NotEmpty, Dquot, Perm]
            }
            Self::Link => &[Exist, XDev, NotDir, Inval, NoSpc, Rofs, MLink, NameTooLong, Dquot, NoEnt, IsDir, Perm],
            Self::ReadDir | Self::ReadDirPlus => &[NotDir, BadCookie, TooSmall],
        }
    }
}

/// `nfsstat3` (RFC 1813 §2.6).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Status {
    Ok = 0,
    Perm = 1,
    NoEnt = 2,
    Io = 5,
    Acces = 13,
    Exist = 17,
    XDev = 18,
    NotDir = 20,
    IsDir = 21,
    Inval = 22,
    FBig = 27,
    NoSpc = 28,
    Rofs = 30,
    MLink = 31,
    NameTooLong = 63,
    NotEmpty = 66,
    Dquot = 69,
    Stale = 70,
    BadHandle = 10001,
    NotSync = 10002,
    BadCookie = 10003,
    NotSupp = 10004,
    TooSmall = 10005,
    BadType = 10007,
    Jukebox = 10008,
}

impl From<FsError> for Status {
    fn from(error: FsError) -> Self {
        match error {
            FsError::NotFound => Self::NoEnt,
            FsError::Exists => Self::Exist,
            FsError::NotDir => Self::NotDir,
            FsError::IsDir => Self::IsDir,
            FsError::NotEmpty => Self::NotEmpty,
            FsError::NameTooLong => Self::NameTooLong,
            FsError::Invalid => Self::Inval,
            FsError::Access => Self::Acces,
            FsError::NotPermitted => Self::Perm,
            FsError::ReadOnly => Self::Rofs,
            FsError::Stale => Self::Stale,
            FsError::BadRef => Self::BadHandle,
            FsError::Quota => Self::Dquot,
            FsError::NoSpace => Self::NoSpc,
            FsError::TooLarge => Self::FBig,
            FsError::TooManyLinks => Self::MLink,
            FsError::CrossBranch => Self::XDev,
            FsError::NotSupported => Self::NotSupp,
            FsError::BadCookie => Self::BadCookie,
            FsError::NotSync => Self::NotSync,
            FsError::Later => Self::Jukebox,
            FsError::Io => Self::Io,
        }
    }
}

impl Status {
    /// This status, or the nearest one that `procedure` may answer.
    ///
    /// Clients turn a status that is not listed for a procedure into EIO or worse, so what the Door says is fitted
    /// here rather than passed on.
    pub(crate) fn fit(self, procedure: Procedure) -> Self {
        let listed = |status: Self| procedure.own_statuses().contains(&status);
        if listed(self) {
            return self;
        }
        match self {
            Self::Ok
            | Self::Io
            | Self::Acces
            | Self::Stale
            | Self::BadHandle
            | Self::NotSupp
            | Self::Jukebox
            // Each said by one procedure itself: MKNOD and READDIR.
            | Self::BadType
            | Self::TooSmall => self,
            // The object of the call itself is gone.
            Self::NoEnt => Self::Stale,
            // SPEC MOUNT-5 promises these whatever the procedure: they name the cause, and Linux passes them on.
            Self::Dquot | Self::NoSpc | Self::Rofs => self,
            Self::Perm => Self::Acces,
            Self::Exist if listed(Self::NotEmpty) => Self::NotEmpty,
            Self::Exist
            | Self::XDev
            | Self::NotDir
            | Self::IsDir
            | Self::Inval
            | Self::FBig
            | Self::MLink
            | Self::NameTooLong
            | Self::NotEmpty
            | Self::NotSync
            | Self::BadCookie => {
                if listed(Self::Inval) {
                    Self::Inval
                } else {
                    Self::Io
                }
            }
        }
    }
}

/// `mountstat3` (RFC 1813 §5.1.5).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum MountStatus {
    Ok = 0,
    Perm = 1,
    NoEnt = 2,
    Io = 5,
    Acces = 13,
    NotDir = 20,
    Inval = 22,
    NameTooLong = 63,
    NotSupp = 10004,
    ServerFault = 10006,
}

impl From<FsError> for MountStatus {
    fn from(error: FsError) -> Self {
        match error {
            // A ticket that is unknown, used or late looks like a directory that is not there: nothing to probe for.
            FsError::NotFound | FsError::Stale | FsError::BadRef => Self::NoEnt,
            FsError::NotDir => Self::NotDir,
            FsError::NameTooLong => Self::NameTooLong,
            FsError::Invalid => Self::Inval,
            FsError::Access | FsError::ReadOnly => Self::Acces,
            FsError::NotPermitted => Self::Perm,
            FsError::NotSupported => Self::NotSupp,
            FsError::Io | FsError::Quota | FsError::NoSpace => Self::Io,
            // MOUNT has no "later": the client tries again by itself after a server fault.
            FsError::Later => Self::ServerFault,
            FsError::Exists
            | FsError::IsDir
            | FsError::NotEmpty
            | FsError::TooLarge
            | FsError::TooManyLinks
            | FsError::CrossBranch
            | FsError::BadCookie
            | FsError::NotSync => Self::ServerFault,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the promises of SPEC MOUNT-5 reach the client whatever it was doing.
    #[test]
    fn mount_5_statuses_survive_fitting() {
        for procedure in Procedure::ALL {
            for error in [
                FsError::Quota,
                FsError::NoSpace,
                FsError::Stale,
                FsError::ReadOnly,
                FsError::Access,
                FsError::Later,
                FsError::BadRef,
            ] {
                assert_eq!(Status::from(error).fit(procedure), Status::from(error), "{procedure:?} {error:?}");
            }
        }
    }

    /// Goal: a status is only changed where RFC 1813 does not list it.
    #[test]
    fn unlisted_statuses_are_fitted() {
        assert_eq!(Status::NoEnt.fit(Procedure::Lookup), Status::NoEnt);
        assert_eq!(Status::NoEnt.fit(Procedure::GetAttr), Status::Stale);
        assert_eq!(Status::IsDir.fit(Procedure::Read), Status::Inval);
        assert_eq!(Status::NotDir.fit(Procedure::ReadDir), Status::NotDir);
        assert_eq!(Status::BadCookie.fit(Procedure::ReadDirPlus), Status::BadCookie);
        assert_eq!(Status::NotSync.fit(Procedure::SetAttr), Status::NotSync);
        assert_eq!(Status::XDev.fit(Procedure::Rename), Status::XDev);
        assert_eq!(Status::Perm.fit(Procedure::Write), Status::Acces);
        assert_eq!(Status::BadCookie.fit(Procedure::GetAttr), Status::Io);
    }

    /// Goal: numbers and names agree.
    #[test]
    fn procedures_by_number() {
        for (number, procedure) in (0..).zip(Procedure::ALL) {
            assert_eq!(procedure as u32, number);
            assert_eq!(Procedure::from_number(number), Some(procedure));
        }
        assert_eq!(Procedure::from_number(22), None);
    }
}
