//! MOUNT version 3 (RFC 1813 §5), on the same port as NFS. There is nothing to browse: DUMP and EXPORT are empty.

mod mnt;
mod umnt;

use crate::proc::Context;
use crate::wire::xdr::{Malformed, Reader, Writer};

/// The procedures of MOUNT, by their numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MountProcedure {
    Null,
    Mnt,
    Dump,
    Umnt,
    UmntAll,
    Export,
}

impl MountProcedure {
    /// The procedure with this number.
    pub(crate) fn from_number(number: u32) -> Option<Self> {
        Some(match number {
            0 => Self::Null,
            1 => Self::Mnt,
            2 => Self::Dump,
            3 => Self::Umnt,
            4 => Self::UmntAll,
            5 => Self::Export,
            _ => return None,
        })
    }
}

/// Runs a procedure: decodes `args`, acts, and appends its results to `out`.
pub(crate) fn run(
    context: &Context<'_>,
    procedure: MountProcedure,
    args: Reader<'_>,
    out: &mut Writer<'_>,
) -> Result<(), Malformed> {
    match procedure {
        MountProcedure::Null => Ok(()),
        MountProcedure::Mnt => mnt::run(context, args, out),
        MountProcedure::Umnt => umnt::run(context, args),
        // UMNTALL would take every mount of an address away on the word of any process there; mounts end with their
        // lease instead.
        MountProcedure::UmntAll => args.end(),
        MountProcedure::Dump | MountProcedure::Export => {
            args.end()?;
            out.bool(false);
            Ok(())
        }
    }
}

/// An export path: `/<ticket>[+<uid>+<gid>]/<path in the tree>`.
#[derive(Debug, PartialEq, Eq)]
struct Export<'a> {
    ticket: &'a str,
    /// Whose files they shall be. Only root may say: it mounts for another user of its machine.
    owner: Option<(u32, u32)>,
    /// With its leading `/`; may be empty.
    path: &'a [u8],
}

impl<'a> Export<'a> {
    fn parse(path: &'a [u8]) -> Option<Self> {
        let path = path.strip_prefix(b"/")?;
        let end = path.iter().position(|byte| *byte == b'/').unwrap_or(path.len());
        let (first, path) = path.split_at(end);
        let first = std::str::from_utf8(first).ok()?;
        let (ticket, owner) = match first.split_once('+') {
            None => (first, None),
            Some((ticket, owner)) => {
                let (uid, gid) = owner.split_once('+')?;
                (ticket, Some((uid.parse().ok()?, gid.parse().ok()?)))
            }
        };
        (!ticket.is_empty()).then_some(Self { ticket, owner, path })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Goal: ticket, owner and path come apart, and what is no export path is none.
    #[test]
    fn export_paths() {
        let parse = |path: &'static str| Export::parse(path.as_bytes());
        let export = |ticket, owner, path: &'static str| Some(Export { ticket, owner, path: path.as_bytes() });
        assert_eq!(parse("/abc/agents/cleo"), export("abc", None, "/agents/cleo"));
        assert_eq!(parse("/abc+1000+100/agents"), export("abc", Some((1000, 100)), "/agents"));
        assert_eq!(parse("/abc"), export("abc", None, ""));
        assert_eq!(parse("/abc/"), export("abc", None, "/"));
        for bad in ["", "/", "abc/agents", "//agents", "/abc+1000/agents", "/abc+x+1/a", "/abc+1+2+3/a", "/+1+1"] {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }

    proptest! {
        /// Goal: no bytes panic.
        #[test]
        fn any_path(path in proptest::collection::vec(any::<u8>(), 0..100)) {
            let _ = Export::parse(&path);
        }
    }
}
