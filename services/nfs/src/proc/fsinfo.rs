//! FSINFO (RFC 1813 §3.3.19): sizes we take and prefer.

use super::Context;
use crate::limits::{READ_BYTES_MAX, READDIR_BYTES_PREFERRED, TRANSFER_BYTES_PREFERRED, WRITE_BYTES_MAX};
use crate::wire::args::OneHandle;
use crate::wire::status::{Procedure, Status};
use crate::wire::xdr::{Malformed, Reader, Writer};

/// Suggested multiple of READ and WRITE sizes: a page.
const TRANSFER_MULTIPLE_BYTES: u32 = 4096;
/// Largest file offset of the systems we run on.
const FILE_BYTES_MAX: u64 = i64::MAX as u64;
const FSF_LINK: u32 = 1;
const FSF_SYMLINK: u32 = 2;
const FSF_HOMOGENEOUS: u32 = 8;
const FSF_CANSETTIME: u32 = 16;

pub(super) fn run(context: &Context<'_>, args: Reader<'_>, out: &mut Writer<'_>) -> Result<(), Malformed> {
    let args = OneHandle::parse(args)?;
    let result = context.open(args.object).and_then(|root| Ok((root.mount.getattr(root.node)?, root.look())));
    match result {
        Ok((attr, look)) => {
            out.status(Status::Ok);
            out.attr(&attr, look);
            out.u32(READ_BYTES_MAX);
            out.u32(TRANSFER_BYTES_PREFERRED);
            out.u32(TRANSFER_MULTIPLE_BYTES);
            out.u32(WRITE_BYTES_MAX);
            out.u32(TRANSFER_BYTES_PREFERRED);
            out.u32(TRANSFER_MULTIPLE_BYTES);
            out.u32(READDIR_BYTES_PREFERRED);
            out.u64(FILE_BYTES_MAX);
            out.u32(0); // time_delta: one nanosecond
            out.u32(1);
            out.u32(FSF_LINK | FSF_SYMLINK | FSF_HOMOGENEOUS | FSF_CANSETTIME);
        }
        Err(status) => {
            out.status(status.fit(Procedure::FsInfo));
            out.no_attr();
        }
    }
    Ok(())
}
