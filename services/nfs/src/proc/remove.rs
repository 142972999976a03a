//! REMOVE (RFC 1813 §3.3.12).

use super::{Context, put_wcc};
use crate::wire::args::parse_dir_op;
use crate::wire::status::Procedure;
use crate::wire::xdr::{Malformed, Reader, Writer};

pub(super) fn run(context: &Context<'_>, args: Reader<'_>, out: &mut Writer<'_>) -> Result<(), Malformed> {
    let op = parse_dir_op(args)?;
    let result = context.open(op.dir).and_then(|dir| {
        let wcc = dir.mount.remove(dir.node, op.name)?;
        Ok((dir, wcc))
    });
    put_wcc(out, Procedure::Remove, result);
    Ok(())
}
