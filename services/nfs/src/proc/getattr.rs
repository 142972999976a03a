//! GETATTR (RFC 1813 §3.3.1).

use super::Context;
use crate::wire::args::OneHandle;
use crate::wire::status::{Procedure, Status};
use crate::wire::xdr::{Malformed, Reader, Writer};

pub(super) fn run(context: &Context<'_>, args: Reader<'_>, out: &mut Writer<'_>) -> Result<(), Malformed> {
    let args = OneHandle::parse(args)?;
    let result = context.open(args.object).and_then(|file| Ok((file.mount.getattr(file.node)?, file.look())));
    match result {
        Ok((attr, look)) => {
            out.status(Status::Ok);
            out.fattr(&attr, look);
        }
        Err(status) => out.status(status.fit(Procedure::GetAttr)),
    }
    Ok(())
}
