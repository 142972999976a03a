//! COMMIT (RFC 1813 §3.3.21). The whole file is made durable, whatever range was asked for.

use super::Context;
use crate::wire::args::RangeArgs;
use crate::wire::status::{Procedure, Status};
use crate::wire::xdr::{Malformed, Reader, Writer};

pub(super) fn run(context: &Context<'_>, args: Reader<'_>, out: &mut Writer<'_>) -> Result<(), Malformed> {
    let args = RangeArgs::parse(args)?;
    let result = context.open(args.file).and_then(|file| {
        let wcc = file.mount.commit(file.node)?;
        // Taken after the commit: had a sync failed before, this verifier would differ from the one of the WRITEs.
        Ok((wcc, file.mount.write_verifier(), file.look()))
    });
    match result {
        Ok((wcc, verifier, look)) => {
            out.status(Status::Ok);
            out.wcc(&wcc, look);
            out.raw(&verifier);
        }
        Err(status) => {
            out.status(status.fit(Procedure::Commit));
            out.no_wcc();
        }
    }
    Ok(())
}
