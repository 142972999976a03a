//! Arguments of the procedures (RFC 1813 §3.3, §5.2), borrowed from the record. Every `parse` reads to the end: bytes
//! after the last argument are garbage.

use nas_types::fs::{SetAttr, SetTime, Stability};
use nas_types::time::FileTime;

use super::xdr::{Malformed, Reader};
use crate::limits::WRITE_BYTES_MAX;

/// Longest handle (RFC 1813 §2.4, NFS3_FHSIZE).
pub(crate) const HANDLE_BYTES_MAX: usize = 64;
/// Longest export path (RFC 1813 §5.1.1, MNTPATHLEN).
pub(crate) const EXPORT_PATH_BYTES_MAX: usize = 1024;
/// Longest name we decode. Over what a name may be, so that the answer is NAMETOOLONG and not garbage.
const NAME_BYTES_DECODED: usize = 1024;
/// Longest symlink target we decode, for the same reason.
const TARGET_BYTES_DECODED: usize = 4200;

fn handle<'a>(args: &mut Reader<'a>) -> Result<&'a [u8], Malformed> {
    args.opaque(HANDLE_BYTES_MAX)
}

/// `diropargs3`: a name in a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DirOp<'a> {
    pub(crate) dir: &'a [u8],
    pub(crate) name: &'a [u8],
}

impl<'a> DirOp<'a> {
    fn read(args: &mut Reader<'a>) -> Result<Self, Malformed> {
        Ok(Self { dir: handle(args)?, name: args.opaque(NAME_BYTES_DECODED)? })
    }
}

/// `sattr3`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct NewAttr {
    pub(crate) set: SetAttr,
    pub(crate) uid: Option<u32>,
    pub(crate) gid: Option<u32>,
}

fn optional<'a, T>(
    args: &mut Reader<'a>,
    value: impl FnOnce(&mut Reader<'a>) -> Result<T, Malformed>,
) -> Result<Option<T>, Malformed> {
    args.bool()?.then(|| value(args)).transpose()
}

fn time(args: &mut Reader<'_>) -> Result<FileTime, Malformed> {
    let (secs, nanos) = (args.u32()?, args.u32()?);
    // Some clients send nonsense nanoseconds; a time stamp is not worth refusing a call.
    Ok(FileTime { secs: i64::from(secs), nanos: nanos.min(999_999_999) })
}

fn set_time(args: &mut Reader<'_>) -> Result<SetTime, Malformed> {
    match args.u32()? {
        0 => Ok(SetTime::Keep),
        1 => Ok(SetTime::Now),
        2 => Ok(SetTime::To(time(args)?)),
        _ => Err(Malformed::Discriminant),
    }
}

impl NewAttr {
    fn read(args: &mut Reader<'_>) -> Result<Self, Malformed> {
        let mode = optional(args, Reader::u32)?;
        let uid = optional(args, Reader::u32)?;
        let gid = optional(args, Reader::u32)?;
        let size = optional(args, Reader::u64)?;
        Ok(Self { set: SetAttr { mode, size, atime: set_time(args)?, mtime: set_time(args)? }, uid, gid })
    }
}

/// Arguments that are one handle: GETATTR, READLINK, FSSTAT, FSINFO, PATHCONF.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct OneHandle<'a> {
    pub(crate) object: &'a [u8],
}

impl<'a> OneHandle<'a> {
    pub(crate) fn parse(mut args: Reader<'a>) -> Result<Self, Malformed> {
        let object = handle(&mut args)?;
        args.end()?;
        Ok(Self { object })
    }
}

/// Arguments that are one name in a directory: LOOKUP, REMOVE, RMDIR.
pub(crate) fn parse_dir_op(mut args: Reader<'_>) -> Result<DirOp<'_>, Malformed> {
    let op = DirOp::read(&mut args)?;
    args.end()?;
    Ok(op)
}

/// SETATTR.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SetAttrArgs<'a> {
    pub(crate) object: &'a [u8],
    pub(crate) new: NewAttr,
    pub(crate) guard: Option<FileTime>,
}

impl<'a> SetAttrArgs<'a> {
    pub(crate) fn parse(mut args: Reader<'a>) -> Result<Self, Malformed> {
        let object = handle(&mut args)?;
        let new = NewAttr::read(&mut args)?;
        let guard = optional(&mut args, time)?;
        args.end()?;
        Ok(Self { object, new, guard })
    }
}

/// ACCESS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct AccessArgs<'a> {
    pub(crate) object: &'a [u8],
    pub(crate) wanted: u32,
}

impl<'a> AccessArgs<'a> {
    pub(crate) fn parse(mut args: Reader<'a>) -> Result<Self, Malformed> {
        let parsed = Self { object: handle(&mut args)?, wanted: args.u32()? };
        args.end()?;
        Ok(parsed)
    }
}

/// A range of a file: READ, COMMIT.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RangeArgs<'a> {
    pub(crate) file: &'a [u8],
    pub(crate) offset: u64,
    pub(crate) count: u32,
}

impl<'a> RangeArgs<'a> {
    pub(crate) fn parse(mut args: Reader<'a>) -> Result<Self, Malformed> {
        let parsed = Self { file: handle(&mut args)?, offset: args.u64()?, count: args.u32()? };
        args.end()?;
        Ok(parsed)
    }
}

/// WRITE.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct WriteArgs<'a> {
    pub(crate) file: &'a [u8],
    pub(crate) offset: u64,
    pub(crate) count: u32,
    pub(crate) stability: Stability,
    pub(crate) data: &'a [u8],
}

impl<'a> WriteArgs<'a> {
    pub(crate) fn parse(mut args: Reader<'a>) -> Result<Self, Malformed> {
        let (file, offset, count) = (handle(&mut args)?, args.u64()?, args.u32()?);
        let stability = match args.u32()? {
            0 => Stability::Unstable,
            1 => Stability::DataSync,
            2 => Stability::FileSync,
            _ => return Err(Malformed::Discriminant),
        };
        let data = args.opaque(WRITE_BYTES_MAX as usize)?;
        args.end()?;
        Ok(Self { file, offset, count, stability, data })
    }
}

/// `createhow3`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CreateMode {
    Unchecked(NewAttr),
    Guarded(NewAttr),
    Exclusive([u8; 8]),
}

/// CREATE.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CreateArgs<'a> {
    pub(crate) place: DirOp<'a>,
    pub(crate) mode: CreateMode,
}

impl<'a> CreateArgs<'a> {
    pub(crate) fn parse(mut args: Reader<'a>) -> Result<Self, Malformed> {
        let place = DirOp::read(&mut args)?;
        let mode = match args.u32()? {
            0 => CreateMode::Unchecked(NewAttr::read(&mut args)?),
            1 => CreateMode::Guarded(NewAttr::read(&mut args)?),
            2 => CreateMode::Exclusive(args.fixed()?),
            _ => return Err(Malformed::Discriminant),
        };
        args.end()?;
        Ok(Self { place, mode })
    }
}

/// MKDIR.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MkDirArgs<'a> {
    pub(crate) place: DirOp<'a>,
    pub(crate) new: NewAttr,
}

impl<'a> MkDirArgs<'a> {
    pub(crate) fn parse(mut args: Reader<'a>) -> Result<Self, Malformed> {
        let parsed = Self { place: DirOp::read(&mut args)?, new: NewAttr::read(&mut args)? };
        args.end()?;
        Ok(parsed)
    }
}

/// SYMLINK.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SymLinkArgs<'a> {
    pub(crate) place: DirOp<'a>,
    pub(crate) new: NewAttr,
    pub(crate) target: &'a [u8],
}

impl<'a> SymLinkArgs<'a> {
    pub(crate) fn parse(mut args: Reader<'a>) -> Result<Self, Malformed> {
        let place = DirOp::read(&mut args)?;
        let new = NewAttr::read(&mut args)?;
        let target = args.opaque(TARGET_BYTES_DECODED)?;
        args.end()?;
        Ok(Self { place, new, target })
    }
}

/// `mknoddata3`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NodeKind {
    Fifo(NewAttr),
    Socket(NewAttr),
    /// A character or block device.
    Device,
    /// A type that MKNOD does not make.
    Other,
}

/// MKNOD.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MkNodArgs<'a> {
    pub(crate) place: DirOp<'a>,
    pub(crate) kind: NodeKind,
}

impl<'a> MkNodArgs<'a> {
    pub(crate) fn parse(mut args: Reader<'a>) -> Result<Self, Malformed> {
        let place = DirOp::read(&mut args)?;
        let kind = match args.u32()? {
            1 | 2 | 5 => NodeKind::Other,
            3 | 4 => {
                NewAttr::read(&mut args)?;
                args.u64()?;
                NodeKind::Device
            }
            6 => NodeKind::Socket(NewAttr::read(&mut args)?),
            7 => NodeKind::Fifo(NewAttr::read(&mut args)?),
            _ => return Err(Malformed::Discriminant),
        };
        args.end()?;
        Ok(Self { place, kind })
    }
}

/// RENAME.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RenameArgs<'a> {
    pub(crate) from: DirOp<'a>,
    pub(crate) to: DirOp<'a>,
}

impl<'a> RenameArgs<'a> {
    pub(crate) fn parse(mut args: Reader<'a>) -> Result<Self, Malformed> {
        let parsed = Self { from: DirOp::read(&mut args)?, to: DirOp::read(&mut args)? };
        args.end()?;
        Ok(parsed)
    }
}

/// LINK.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LinkArgs<'a> {
    pub(crate) file: &'a [u8],
    pub(crate) place: DirOp<'a>,
}

impl<'a> LinkArgs<'a> {
    pub(crate) fn parse(mut args: Reader<'a>) -> Result<Self, Malformed> {
        let parsed = Self { file: handle(&mut args)?, place: DirOp::read(&mut args)? };
        args.end()?;
        Ok(parsed)
    }
}

/// READDIR (`dircount` is `maxcount` then) and READDIRPLUS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ReadDirArgs<'a> {
    pub(crate) dir: &'a [u8],
    pub(crate) cookie: u64,
    /// Bytes of names, cookies and file ids.
    pub(crate) dircount: u32,
    /// Bytes of the whole result.
    pub(crate) maxcount: u32,
}

impl<'a> ReadDirArgs<'a> {
    pub(crate) fn parse(mut args: Reader<'a>, plus: bool) -> Result<Self, Malformed> {
        let dir = handle(&mut args)?;
        let cookie = args.u64()?;
        // The verifier is not looked at: the Door's cookies stay good when the directory changes.
        args.fixed::<8>()?;
        let dircount = args.u32()?;
        let maxcount = if plus { args.u32()? } else { dircount };
        args.end()?;
        Ok(Self { dir, cookie, dircount, maxcount })
    }
}

/// MNT, UMNT: an export path.
pub(crate) fn parse_export_path(mut args: Reader<'_>) -> Result<&[u8], Malformed> {
    let path = args.opaque(EXPORT_PATH_BYTES_MAX)?;
    args.end()?;
    Ok(path)
}
