//! SETATTR (RFC 1813 §3.3.2), also what clients do for truncate, chmod, utimes.

use super::{Context, put_wcc};
use crate::wire::args::SetAttrArgs;
use crate::wire::status::Procedure;
use crate::wire::xdr::{Malformed, Reader, Writer};

pub(super) fn run(context: &Context<'_>, args: Reader<'_>, out: &mut Writer<'_>) -> Result<(), Malformed> {
    let args = SetAttrArgs::parse(args)?;
    let result = context.open(args.object).and_then(|file| {
        let set = file.settable(&args.new)?;
        let wcc = file.mount.setattr(file.node, set, args.guard)?;
        Ok((file, wcc))
    });
    put_wcc(out, Procedure::SetAttr, result);
    Ok(())
}
