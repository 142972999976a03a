//! MKDIR (RFC 1813 §3.3.9).

use super::{Context, put_made};
use crate::wire::args::MkDirArgs;
use crate::wire::status::Procedure;
use crate::wire::xdr::{Malformed, Reader, Writer};

pub(super) fn run(context: &Context<'_>, args: Reader<'_>, out: &mut Writer<'_>) -> Result<(), Malformed> {
    let args = MkDirArgs::parse(args)?;
    let result = context.open(args.place.dir).and_then(|dir| {
        let made = dir.mount.mkdir(dir.node, args.place.name, dir.settable(&args.new)?)?;
        Ok((dir, made))
    });
    put_made(out, Procedure::MkDir, result);
    Ok(())
}
