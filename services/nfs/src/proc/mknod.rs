//! MKNOD (RFC 1813 §3.3.11): pipes and sockets. Device nodes never exist here, whoever asks.

use nas_types::fs::{FsError, Special};

use super::{Context, put_made};
use crate::wire::args::{MkNodArgs, NodeKind};
use crate::wire::status::{Procedure, Status};
use crate::wire::xdr::{Malformed, Reader, Writer};

pub(super) fn run(context: &Context<'_>, args: Reader<'_>, out: &mut Writer<'_>) -> Result<(), Malformed> {
    let args = MkNodArgs::parse(args)?;
    let result = context.open(args.place.dir).and_then(|dir| {
        let (special, new) = match &args.kind {
            NodeKind::Fifo(new) => (Special::Fifo, new),
            NodeKind::Socket(new) => (Special::Socket, new),
            NodeKind::Device => return Err(FsError::NotPermitted.into()),
            NodeKind::Other => return Err(Status::BadType),
        };
        let made = dir.mount.mknod(dir.node, args.place.name, special, dir.settable(new)?)?;
        Ok((dir, made))
    });
    put_made(out, Procedure::MkNod, result);
    Ok(())
}
