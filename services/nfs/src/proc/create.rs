//! CREATE (RFC 1813 §3.3.8).

use nas_types::fs::CreateHow;

use super::{Context, put_made};
use crate::wire::args::{CreateArgs, CreateMode};
use crate::wire::status::Procedure;
use crate::wire::xdr::{Malformed, Reader, Writer};

pub(super) fn run(context: &Context<'_>, args: Reader<'_>, out: &mut Writer<'_>) -> Result<(), Malformed> {
    let args = CreateArgs::parse(args)?;
    let result = context.open(args.place.dir).and_then(|dir| {
        let how = match &args.mode {
            CreateMode::Unchecked(new) => CreateHow::Unchecked(dir.settable(new)?),
            CreateMode::Guarded(new) => CreateHow::Guarded(dir.settable(new)?),
            CreateMode::Exclusive(verifier) => CreateHow::Exclusive(*verifier),
        };
        let made = dir.mount.create(dir.node, args.place.name, how)?;
        Ok((dir, made))
    });
    put_made(out, Procedure::Create, result);
    Ok(())
}
