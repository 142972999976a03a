//! WRITE (RFC 1813 §3.3.7). The stability in the reply is the one the Door reached.

use super::Context;
use crate::wire::args::WriteArgs;
use crate::wire::status::{Procedure, Status};
use crate::wire::xdr::{Malformed, Reader, Writer};

pub(super) fn run(context: &Context<'_>, args: Reader<'_>, out: &mut Writer<'_>) -> Result<(), Malformed> {
    let args = WriteArgs::parse(args)?;
    let result = context.open(args.file).and_then(|file| {
        if usize::try_from(args.count) != Ok(args.data.len()) {
            return Err(Status::Inval);
        }
        // Taken before the write: should a sync fail meanwhile, these bytes may be lost, and the client has to see a
        // verifier that differs from the one COMMIT gives.
        let verifier = file.mount.write_verifier();
        let written = file.mount.write(file.node, args.offset, args.data, args.stability)?;
        Ok((written, verifier, file.look()))
    });
    match result {
        Ok((written, verifier, look)) => {
            out.status(Status::Ok);
            out.wcc(&written.file, look);
            out.u32(written.count);
            out.stability(written.stability);
            out.raw(&verifier);
        }
        Err(status) => {
            out.status(status.fit(Procedure::Write));
            out.no_wcc();
        }
    }
    Ok(())
}
