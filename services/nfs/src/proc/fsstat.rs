//! FSSTAT (RFC 1813 §3.3.18): space as this run may use it.

use super::Context;
use crate::wire::args::OneHandle;
use crate::wire::status::{Procedure, Status};
use crate::wire::xdr::{Malformed, Reader, Writer};

pub(super) fn run(context: &Context<'_>, args: Reader<'_>, out: &mut Writer<'_>) -> Result<(), Malformed> {
    let args = OneHandle::parse(args)?;
    let result = context.open(args.object).and_then(|root| {
        let space = root.mount.space(root.node)?;
        Ok((space, root.mount.getattr(root.node)?, root.look()))
    });
    match result {
        Ok((space, attr, look)) => {
            out.status(Status::Ok);
            out.attr(&attr, look);
            out.u64(space.total_bytes);
            out.u64(space.free_bytes);
            out.u64(space.free_bytes);
            out.u64(space.total_files);
            out.u64(space.free_files);
            out.u64(space.free_files);
            out.u32(0); // invarsec: these may change at any time
        }
        Err(status) => {
            out.status(status.fit(Procedure::FsStat));
            out.no_attr();
        }
    }
    Ok(())
}
