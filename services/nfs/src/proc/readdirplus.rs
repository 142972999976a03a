//! READDIRPLUS (RFC 1813 §3.3.17): names with handles and attributes.

use super::{Context, listing};
use crate::wire::args::ReadDirArgs;
use crate::wire::xdr::{Malformed, Reader, Writer};

pub(super) fn run(context: &Context<'_>, args: Reader<'_>, out: &mut Writer<'_>) -> Result<(), Malformed> {
    let args = ReadDirArgs::parse(args, true)?;
    listing::run(context, &args, true, out);
    Ok(())
}
