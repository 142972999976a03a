//! One connection: calls out, replies in, and raw bytes for whoever wants to misbehave.

use std::io::{Cursor, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::time::Duration;

use nfs3_types::rpc::{RPC_VERSION_2, accept_stat_data};
use nfs3_types::rpc::{auth_unix, call_body, msg_body, opaque_auth, reply_body, rpc_msg};
use nfs3_types::xdr_codec::{Opaque, Pack, Unpack};

use crate::{Error, Result};

/// A server that takes longer is taken for dead.
const TIMEOUT: Duration = Duration::from_secs(60);
/// Replies larger than this are not the server's of these tests.
const REPLY_BYTES_MAX: u32 = 16 << 20;
const LAST_FRAGMENT: u32 = 1 << 31;

/// Who the client says it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Credential {
    /// AUTH_NONE.
    None,
    /// AUTH_SYS.
    Sys {
        /// User id.
        uid: u32,
        /// Group id.
        gid: u32,
    },
}

impl Credential {
    fn encode(self) -> opaque_auth<'static> {
        match self {
            Self::None => opaque_auth::default(),
            Self::Sys { uid, gid } => opaque_auth::auth_unix(&auth_unix {
                stamp: 0,
                machinename: Opaque::borrowed(b"nas-nfsclient"),
                uid,
                gid,
                gids: vec![gid],
            }),
        }
    }
}

/// A connection.
#[derive(Debug)]
pub struct Connection {
    stream: TcpStream,
    next_xid: u32,
}

impl Connection {
    /// Connects. Xids start at random, as they must when several clients share a mount.
    pub fn open(address: impl ToSocketAddrs) -> Result<Self> {
        Self::on(TcpStream::connect(address)?)
    }

    /// On a stream that is connected already, for example from a chosen address.
    pub fn on(stream: TcpStream) -> Result<Self> {
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        stream.set_write_timeout(Some(TIMEOUT))?;
        let mut xid = [0; 4];
        getrandom::fill(&mut xid).map_err(|error| Error::Io(std::io::Error::other(error.to_string())))?;
        Ok(Self { stream, next_xid: u32::from_be_bytes(xid) })
    }

    /// The server's address.
    pub fn peer(&self) -> Result<SocketAddr> {
        Ok(self.stream.peer_addr()?)
    }

    /// The xid of the next call.
    pub fn fresh_xid(&mut self) -> u32 {
        self.next_xid = self.next_xid.wrapping_add(1);
        self.next_xid
    }

    /// Builds a call, record mark included, without sending it.
    pub fn encode(
        xid: u32,
        program: u32,
        version: u32,
        procedure: u32,
        credential: Credential,
        args: &impl Pack,
    ) -> Result<Vec<u8>> {
        let body = call_body {
            rpcvers: RPC_VERSION_2,
            prog: program,
            vers: version,
            proc: procedure,
            cred: credential.encode(),
            verf: opaque_auth::default(),
        };
        let mut record = vec![0; 4];
        rpc_msg { xid, body: msg_body::CALL(body) }.pack(&mut record)?;
        args.pack(&mut record)?;
        let len = u32::try_from(record.len() - 4).map_err(|_| Error::Rpc("the call is too long".to_owned()))?;
        record[..4].copy_from_slice(&(LAST_FRAGMENT | len).to_be_bytes());
        Ok(record)
    }

    /// Sends bytes as they are.
    pub fn send_raw(&mut self, bytes: &[u8]) -> Result<()> {
        Ok(self.stream.write_all(bytes)?)
    }

    /// Reads one whole reply: RPC header and results, without record mark.
    pub fn receive_raw(&mut self) -> Result<Vec<u8>> {
        let mut record = Vec::new();
        loop {
            let mut mark = [0; 4];
            self.stream.read_exact(&mut mark)?;
            let mark = u32::from_be_bytes(mark);
            let len = mark & !LAST_FRAGMENT;
            if len > REPLY_BYTES_MAX {
                return Err(Error::Reply(format!("it announces {len} bytes")));
            }
            let start = record.len();
            record.resize(start + len as usize, 0);
            self.stream.read_exact(&mut record[start..])?;
            if mark & LAST_FRAGMENT != 0 {
                return Ok(record);
            }
        }
    }

    /// Splits a reply into its xid and its results; the server's refusal of the call is an error.
    pub fn decode<R: Unpack>(reply: &[u8]) -> Result<(u32, R)> {
        let mut cursor = Cursor::new(reply);
        let (message, _) = rpc_msg::unpack(&mut cursor)?;
        let accepted = match message.body {
            msg_body::REPLY(reply_body::MSG_ACCEPTED(accepted)) => accepted,
            msg_body::REPLY(reply_body::MSG_DENIED(denied)) => return Err(Error::Rpc(format!("{denied:?}"))),
            msg_body::CALL(_) => return Err(Error::Reply("it is a call".to_owned())),
        };
        if !matches!(accepted.reply_data, accept_stat_data::SUCCESS) {
            return Err(Error::Rpc(format!("{:?}", accepted.reply_data)));
        }
        let (results, _) = R::unpack(&mut cursor)?;
        let left = reply.len() as u64 - cursor.position();
        if left > 0 {
            return Err(Error::Reply(format!("{left} bytes are left after the results")));
        }
        Ok((message.xid, results))
    }

    /// Sends a call and reads its reply.
    pub fn call<R: Unpack>(
        &mut self,
        program: u32,
        procedure: u32,
        credential: Credential,
        args: &impl Pack,
    ) -> Result<R> {
        let xid = self.fresh_xid();
        self.call_with_xid(xid, program, procedure, credential, args)
    }

    /// Sends a call with a chosen xid (the same as before: a retransmission) and reads its reply.
    pub fn call_with_xid<R: Unpack>(
        &mut self,
        xid: u32,
        program: u32,
        procedure: u32,
        credential: Credential,
        args: &impl Pack,
    ) -> Result<R> {
        self.send_raw(&Self::encode(xid, program, 3, procedure, credential, args)?)?;
        let (answered, results) = Self::decode(&self.receive_raw()?)?;
        if answered == xid {
            Ok(results)
        } else {
            Err(Error::Reply(format!("it is for call {answered:#x}, not {xid:#x}")))
        }
    }
}
