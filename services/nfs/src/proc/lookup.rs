//! LOOKUP (RFC 1813 §3.3.3).

use nas_types::fs::Node;

use super::Context;
use crate::wire::args::parse_dir_op;
use crate::wire::status::{Procedure, Status};
use crate::wire::xdr::{Malformed, Reader, Writer};

pub(super) fn run(context: &Context<'_>, args: Reader<'_>, out: &mut Writer<'_>) -> Result<(), Malformed> {
    let op = parse_dir_op(args)?;
    let result = context.open(op.dir).and_then(|dir| {
        let node = if op.name == b"." {
            Node { node: dir.node, attr: dir.mount.getattr(dir.node)? }
        } else {
            dir.mount.lookup(dir.node, op.name)?
        };
        Ok((dir, node))
    });
    match result {
        Ok((dir, node)) => {
            out.status(Status::Ok);
            out.opaque(&dir.seal(&node));
            out.attr(&node.attr, dir.look());
            out.no_attr();
        }
        Err(status) => {
            out.status(status.fit(Procedure::Lookup));
            out.no_attr();
        }
    }
    Ok(())
}
