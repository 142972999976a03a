//! ONC RPC version 2 (RFC 5531): call headers, credentials, reply headers, and the record mark in front of a reply.

use super::xdr::{Malformed, Reader, Writer};

/// Program number of NFS.
pub(crate) const NFS_PROGRAM: u32 = 100_003;
/// Program number of MOUNT.
pub(crate) const MOUNT_PROGRAM: u32 = 100_005;
/// The version of both that we speak.
pub(crate) const VERSION_3: u32 = 3;

const CALL: u32 = 0;
const REPLY: u32 = 1;
const RPC_VERSION: u32 = 2;
const MSG_ACCEPTED: u32 = 0;
const MSG_DENIED: u32 = 1;
/// RFC 5531 §8.2: the body of a credential has at most 400 bytes.
const AUTH_BYTES_MAX: usize = 400;
const AUTH_NONE: u32 = 0;
const AUTH_SYS: u32 = 1;
/// RFC 5531 appendix A.
const MACHINE_NAME_BYTES_MAX: usize = 255;
const GIDS_MAX: u32 = 16;
/// Last fragment bit of a record mark (RFC 5531 §11).
const LAST_FRAGMENT: u32 = 1 << 31;

/// Who calls, as far as the caller says so. It is a claim, not a proof: authority comes from the handle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Credential {
    /// AUTH_NONE.
    None,
    /// AUTH_SYS.
    Sys {
        /// User id.
        uid: u32,
        /// Group id.
        gid: u32,
    },
    /// AUTH_SYS whose body is malformed.
    Bad,
    /// A flavor we do not speak.
    Unknown,
}

impl Credential {
    fn parse(flavor: u32, body: &[u8]) -> Self {
        match flavor {
            AUTH_NONE => Self::None,
            AUTH_SYS => Self::parse_sys(body).unwrap_or(Self::Bad),
            _ => Self::Unknown,
        }
    }

    fn parse_sys(body: &[u8]) -> Result<Self, Malformed> {
        let mut body = Reader::new(body);
        body.u32()?;
        body.opaque(MACHINE_NAME_BYTES_MAX)?;
        let (uid, gid) = (body.u32()?, body.u32()?);
        let gids = body.u32()?;
        if gids > GIDS_MAX {
            return Err(Malformed::TooLong);
        }
        for _ in 0..gids {
            body.u32()?;
        }
        body.end()?;
        Ok(Self::Sys { uid, gid })
    }
}

/// Header of a call; `args` is what follows it.
#[derive(Debug, Clone)]
pub(crate) struct Call<'a> {
    pub(crate) xid: u32,
    pub(crate) rpc_version: u32,
    pub(crate) program: u32,
    pub(crate) version: u32,
    pub(crate) procedure: u32,
    pub(crate) credential: Credential,
    pub(crate) args: Reader<'a>,
}

impl<'a> Call<'a> {
    /// Parses a whole record. An error means that this is no RPC call and the stream cannot be trusted any more.
    pub(crate) fn parse(record: &'a [u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(record);
        let xid = reader.u32()?;
        if reader.u32()? != CALL {
            return Err(Malformed::Discriminant);
        }
        let rpc_version = reader.u32()?;
        if rpc_version != RPC_VERSION {
            // What follows has a form we do not know; only RPC_MISMATCH can be said.
            return Ok(Self {
                xid,
                rpc_version,
                program: 0,
                version: 0,
                procedure: 0,
                credential: Credential::None,
                args: reader,
            });
        }
        let (program, version, procedure) = (reader.u32()?, reader.u32()?, reader.u32()?);
        let flavor = reader.u32()?;
        let credential = Credential::parse(flavor, reader.opaque(AUTH_BYTES_MAX)?);
        reader.u32()?;
        reader.opaque(AUTH_BYTES_MAX)?;
        Ok(Self { xid, rpc_version, program, version, procedure, credential, args: reader })
    }

    /// Is the RPC version ours?
    pub(crate) fn speaks_our_rpc(&self) -> bool {
        self.rpc_version == RPC_VERSION
    }
}

/// What a reply says when it does not carry results (RFC 5531 §9).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// RPC version is not 2.
    RpcMismatch,
    /// The program is not here.
    ProgramUnavailable,
    /// The program is here, in version 3 only.
    ProgramMismatch,
    /// The program has no such procedure.
    ProcedureUnavailable,
    /// The arguments cannot be decoded.
    GarbageArgs,
    /// We failed in a way that should not exist.
    SystemError,
    /// The credential cannot be decoded.
    BadCredential,
    /// The credential's flavor is not accepted.
    RejectedCredential,
}

/// Starts an accepted, successful reply in an empty `buffer`, with room for its record mark.
pub(crate) fn begin_reply(buffer: &mut Vec<u8>, xid: u32) {
    buffer.clear();
    let mut out = Writer::new(buffer);
    out.u32(0);
    out.u32(xid);
    out.u32(REPLY);
    out.u32(MSG_ACCEPTED);
    out.u32(AUTH_NONE);
    out.u32(0);
    out.u32(0);
}

/// Writes a whole refusal to `buffer`, record mark included, whatever it held before.
pub(crate) fn refuse(buffer: &mut Vec<u8>, xid: u32, refusal: Refusal) {
    begin_reply(buffer, xid);
    let mut out = Writer::new(buffer);
    match refusal {
        Refusal::ProgramUnavailable => out.patch_u32(24, 1),
        Refusal::ProgramMismatch => {
            out.patch_u32(24, 2);
            out.u32(VERSION_3);
            out.u32(VERSION_3);
        }
        Refusal::ProcedureUnavailable => out.patch_u32(24, 3),
        Refusal::GarbageArgs => out.patch_u32(24, 4),
        Refusal::SystemError => out.patch_u32(24, 5),
        Refusal::RpcMismatch | Refusal::BadCredential | Refusal::RejectedCredential => {
            out.truncate(12);
            out.u32(MSG_DENIED);
            match refusal {
                Refusal::BadCredential => {
                    out.u32(1);
                    out.u32(1);
                }
                Refusal::RejectedCredential => {
                    out.u32(1);
                    out.u32(2);
                }
                _ => {
                    out.u32(0);
                    out.u32(RPC_VERSION);
                    out.u32(RPC_VERSION);
                }
            }
        }
    }
    finish_reply(buffer);
}

/// Fills in the record mark of a reply begun with [`begin_reply`].
pub(crate) fn finish_reply(buffer: &mut Vec<u8>) {
    let len = u32::try_from(buffer.len() - 4).expect("because replies are bounded far below 2 GiB");
    Writer::new(buffer).patch_u32(0, LAST_FRAGMENT | len);
}
