//! SYMLINK (RFC 1813 §3.3.10).

use super::{Context, put_made};
use crate::wire::args::SymLinkArgs;
use crate::wire::status::Procedure;
use crate::wire::xdr::{Malformed, Reader, Writer};

pub(super) fn run(context: &Context<'_>, args: Reader<'_>, out: &mut Writer<'_>) -> Result<(), Malformed> {
    let args = SymLinkArgs::parse(args)?;
    let result = context.open(args.place.dir).and_then(|dir| {
        let made = dir.mount.symlink(dir.node, args.place.name, args.target, dir.settable(&args.new)?)?;
        Ok((dir, made))
    });
    put_made(out, Procedure::SymLink, result);
    Ok(())
}
