//! READDIR (RFC 1813 §3.3.16).

use super::{Context, listing};
use crate::wire::args::ReadDirArgs;
use crate::wire::xdr::{Malformed, Reader, Writer};

pub(super) fn run(context: &Context<'_>, args: Reader<'_>, out: &mut Writer<'_>) -> Result<(), Malformed> {
    let args = ReadDirArgs::parse(args, false)?;
    listing::run(context, &args, false, out);
    Ok(())
}
