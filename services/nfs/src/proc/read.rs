//! READ (RFC 1813 §3.3.6). The Door reads straight into the reply.

use super::Context;
use crate::limits::READ_BYTES_MAX;
use crate::wire::args::RangeArgs;
use crate::wire::attr::FATTR_BYTES;
use crate::wire::status::{Procedure, Status};
use crate::wire::xdr::{Malformed, Reader, Writer};

/// Status, attributes with their flag, count, eof, length: what comes before the bytes of a successful READ.
const HEAD_BYTES: usize = 4 + (4 + FATTR_BYTES) + 4 + 4 + 4;

pub(super) fn run(context: &Context<'_>, args: Reader<'_>, out: &mut Writer<'_>) -> Result<(), Malformed> {
    let args = RangeArgs::parse(args)?;
    let start = out.len();
    let result = context.open(args.file).and_then(|file| {
        let wanted = args.count.min(READ_BYTES_MAX);
        let space = out.space(HEAD_BYTES + wanted as usize);
        let read = file.mount.read(file.node, args.offset, &mut space[HEAD_BYTES..])?;
        Ok((read, read.count.min(wanted), file.look()))
    });
    match result {
        Ok((read, count, look)) => {
            let mut head = Vec::with_capacity(HEAD_BYTES);
            let mut write = Writer::new(&mut head);
            write.status(Status::Ok);
            write.attr(&read.attr, look);
            write.u32(count);
            write.bool(read.eof);
            write.u32(count);
            out.truncate(start + HEAD_BYTES + count as usize);
            out.patch(start, &head);
            out.pad(count as usize);
        }
        Err(status) => {
            out.truncate(start);
            out.status(status.fit(Procedure::Read));
            out.no_attr();
        }
    }
    Ok(())
}
