//! LINK (RFC 1813 §3.3.15).

use super::Context;
use crate::wire::args::LinkArgs;
use crate::wire::status::{Procedure, Status};
use crate::wire::xdr::{Malformed, Reader, Writer};

pub(super) fn run(context: &Context<'_>, args: Reader<'_>, out: &mut Writer<'_>) -> Result<(), Malformed> {
    let args = LinkArgs::parse(args)?;
    let result = context.open_two(args.file, args.place.dir).and_then(|(file, dir)| {
        let (attr, wcc) = file.mount.link(file.node, dir, args.place.name)?;
        Ok((attr, wcc, file.look()))
    });
    match result {
        Ok((attr, wcc, look)) => {
            out.status(Status::Ok);
            out.attr(&attr, look);
            out.wcc(&wcc, look);
        }
        Err(status) => {
            out.status(status.fit(Procedure::Link));
            out.no_attr();
            out.no_wcc();
        }
    }
    Ok(())
}
