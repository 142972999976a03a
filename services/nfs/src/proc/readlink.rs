//! READLINK (RFC 1813 §3.3.5). The target is bytes to us; we never follow it.

use super::Context;
use crate::wire::args::OneHandle;
use crate::wire::status::{Procedure, Status};
use crate::wire::xdr::{Malformed, Reader, Writer};

pub(super) fn run(context: &Context<'_>, args: Reader<'_>, out: &mut Writer<'_>) -> Result<(), Malformed> {
    let args = OneHandle::parse(args)?;
    let result = context.open(args.object).and_then(|link| {
        let (target, attr) = link.mount.readlink(link.node)?;
        Ok((target, attr, link.look()))
    });
    match result {
        Ok((target, attr, look)) => {
            out.status(Status::Ok);
            out.attr(&attr, look);
            out.opaque(&target);
        }
        Err(status) => {
            out.status(status.fit(Procedure::ReadLink));
            out.no_attr();
        }
    }
    Ok(())
}
