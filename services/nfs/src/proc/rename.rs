//! RENAME (RFC 1813 §3.3.14).

use super::Context;
use crate::wire::args::RenameArgs;
use crate::wire::status::{Procedure, Status};
use crate::wire::xdr::{Malformed, Reader, Writer};

pub(super) fn run(context: &Context<'_>, args: Reader<'_>, out: &mut Writer<'_>) -> Result<(), Malformed> {
    let args = RenameArgs::parse(args)?;
    let result = context.open_two(args.from.dir, args.to.dir).and_then(|(from, to)| {
        let (from_wcc, to_wcc) = from.mount.rename(from.node, args.from.name, to, args.to.name)?;
        Ok((from_wcc, to_wcc, from.look()))
    });
    match result {
        Ok((from_wcc, to_wcc, look)) => {
            out.status(Status::Ok);
            out.wcc(&from_wcc, look);
            out.wcc(&to_wcc, look);
        }
        Err(status) => {
            out.status(status.fit(Procedure::Rename));
            out.no_wcc();
            out.no_wcc();
        }
    }
    Ok(())
}
