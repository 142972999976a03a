//! PATHCONF (RFC 1813 §3.3.20).

use nas_types::path::NAME_BYTES_MAX;

use super::Context;
use crate::wire::args::OneHandle;
use crate::wire::status::{Procedure, Status};
use crate::wire::xdr::{Malformed, Reader, Writer};

/// Names of one file that btrfs holds, the lowest of our engines' limits.
const LINKS_MAX: u32 = 65_535;

pub(super) fn run(context: &Context<'_>, args: Reader<'_>, out: &mut Writer<'_>) -> Result<(), Malformed> {
    let args = OneHandle::parse(args)?;
    let result = context.open(args.object).and_then(|file| Ok((file.mount.getattr(file.node)?, file.look())));
    match result {
        Ok((attr, look)) => {
            out.status(Status::Ok);
            out.attr(&attr, look);
            out.u32(LINKS_MAX);
            out.u32(NAME_BYTES_MAX as u32);
            out.bool(true); // no_trunc: a long name is an error
            out.bool(true); // chown_restricted
            out.bool(false); // case_insensitive
            out.bool(true); // case_preserving
        }
        Err(status) => {
            out.status(status.fit(Procedure::PathConf));
            out.no_attr();
        }
    }
    Ok(())
}
