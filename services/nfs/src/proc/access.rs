//! ACCESS (RFC 1813 §3.3.4).

use super::Context;
use crate::wire::args::AccessArgs;
use crate::wire::status::{Procedure, Status};
use crate::wire::xdr::{Malformed, Reader, Writer};

pub(super) fn run(context: &Context<'_>, args: Reader<'_>, out: &mut Writer<'_>) -> Result<(), Malformed> {
    let args = AccessArgs::parse(args)?;
    let result = context.open(args.object).and_then(|file| {
        let (allowed, attr) = file.mount.access(file.node, args.wanted)?;
        Ok((allowed & args.wanted, attr, file.look()))
    });
    match result {
        Ok((allowed, attr, look)) => {
            out.status(Status::Ok);
            out.attr(&attr, look);
            out.u32(allowed);
        }
        Err(status) => {
            out.status(status.fit(Procedure::Access));
            out.no_attr();
        }
    }
    Ok(())
}
