//! UMNT (RFC 1813 §5.2.3): a courtesy of the client; it has no result.

use super::Export;
use crate::proc::Context;
use crate::wire::args::parse_export_path;
use crate::wire::xdr::{Malformed, Reader};

pub(super) fn run(context: &Context<'_>, args: Reader<'_>) -> Result<(), Malformed> {
    if let Some(export) = Export::parse(parse_export_path(args)?) {
        context.door.unmount(export.ticket, context.peer);
    }
    Ok(())
}
