//! What a record means: the [`Service`] behind the flow.

use std::net::IpAddr;
use std::num::NonZeroUsize;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Instant;

use lru::LruCache;
use nas_door::Door;
use nas_types::id::{LeaseId, MountId};
use parking_lot::Mutex;

use crate::flow::buffers::Buffers;
use crate::flow::reply::ReplyTo;
use crate::flow::{Admission, Lane, Request, Service};
use crate::handle::HandleKey;
use crate::limits::{READ_BYTES_MAX, READDIR_BYTES_MAX, REPLAY_SOURCES_MAX, REPLY_OVERHEAD_BYTES};
use crate::mount::{self, MountProcedure};
use crate::proc::{self, Context};
use crate::replay::{Begin, CallKey, Replays, Running, Source};
use crate::wire::args::{HANDLE_BYTES_MAX, RangeArgs, ReadDirArgs};
use crate::wire::rpc::{self, Call, Credential, Refusal};
use crate::wire::status::{Procedure, Status};
use crate::wire::xdr::{Reader, Writer};

/// Where the status is in a reply: after record mark and RPC header.
const STATUS_AT: usize = 4 + 24;

/// A procedure of one of the two programs.
#[derive(Debug, Clone, Copy)]
enum Target {
    Nfs(Procedure),
    Mount(MountProcedure),
}

impl Target {
    fn find(call: &Call<'_>) -> Result<Self, Refusal> {
        if !call.speaks_our_rpc() {
            return Err(Refusal::RpcMismatch);
        }
        if !matches!(call.program, rpc::NFS_PROGRAM | rpc::MOUNT_PROGRAM) {
            return Err(Refusal::ProgramUnavailable);
        }
        if call.version != rpc::VERSION_3 {
            return Err(Refusal::ProgramMismatch);
        }
        let target = if call.program == rpc::NFS_PROGRAM {
            Procedure::from_number(call.procedure).map(Self::Nfs)
        } else {
            MountProcedure::from_number(call.procedure).map(Self::Mount)
        };
        target.ok_or(Refusal::ProcedureUnavailable)
    }

    fn is_null(self) -> bool {
        matches!(self, Self::Nfs(Procedure::Null) | Self::Mount(MountProcedure::Null))
    }
}

/// NFS and MOUNT over one Door.
pub(crate) struct Gateway {
    door: Arc<Door>,
    key: HandleKey,
    replays: Replays<ReplyTo>,
    buffers: Arc<Buffers>,
    /// Leases of mounts seen lately: only to find a lane without asking the Door, which may block.
    leases: Mutex<LruCache<MountId, LeaseId>>,
}

impl Gateway {
    pub(crate) fn new(door: Arc<Door>, buffers: Arc<Buffers>) -> Self {
        let key = HandleKey::new(door.handle_key());
        let max = const { NonZeroUsize::new(4 * REPLAY_SOURCES_MAX).expect("because the limit is not zero") };
        Self { door, key, replays: Replays::new(), buffers, leases: Mutex::new(LruCache::new(max)) }
    }

    fn refusal(&self, xid: u32, refusal: Refusal) -> Vec<u8> {
        let mut reply = self.buffers.take(0);
        rpc::refuse(&mut reply, xid, refusal);
        reply
    }

    /// Every NFS procedure but NULL begins with a handle.
    fn mount_of(&self, mut args: Reader<'_>) -> Option<MountId> {
        let (mount, _) = self.key.open(args.opaque(HANDLE_BYTES_MAX).ok()?).ok()?;
        Some(mount)
    }

    fn lane(&self, target: Target, call: &Call<'_>, peer: IpAddr) -> Lane {
        let mount = match target {
            Target::Nfs(_) => self.mount_of(call.args.clone()),
            Target::Mount(_) => None,
        };
        let Some(mount) = mount else { return Lane::Peer(peer) };
        self.leases.lock().get(&mount).map_or(Lane::Mount(mount), |lease| Lane::Lease(*lease))
    }

    /// A call whose reply must be remembered.
    fn replay_source(&self, target: Target, call: &Call<'_>, peer: IpAddr) -> Option<Source> {
        match target {
            Target::Nfs(procedure) if procedure.needs_replay() => self.mount_of(call.args.clone()).map(Source::Mount),
            // The ticket is spent by the first MNT: its duplicate must get the same handle.
            Target::Mount(MountProcedure::Mnt) => Some(Source::Peer(peer)),
            Target::Nfs(_) | Target::Mount(_) => None,
        }
    }

    /// Runs a call and returns its whole reply.
    fn run(&self, target: Target, call: &Call<'_>, peer: IpAddr) -> Vec<u8> {
        let context = Context { door: &self.door, key: &self.key, peer, credential: call.credential };
        let mut reply = self.buffers.take(reply_bytes_max(target, call));
        rpc::begin_reply(&mut reply, call.xid);
        let mut out = Writer::new(&mut reply);
        // A bug below must not leave a kernel client waiting for an answer for ever: it gets EIO.
        let done = catch_unwind(AssertUnwindSafe(|| match target {
            Target::Nfs(procedure) => proc::run(&context, procedure, call.args.clone(), &mut out),
            Target::Mount(procedure) => mount::run(&context, procedure, call.args.clone(), &mut out),
        }));
        match done {
            Ok(Ok(())) => rpc::finish_reply(&mut reply),
            Ok(Err(error)) => {
                tracing::debug!(%peer, ?target, %error, "arguments cannot be decoded");
                rpc::refuse(&mut reply, call.xid, Refusal::GarbageArgs);
            }
            Err(_) => {
                tracing::error!(%peer, ?target, "a call panicked");
                rpc::refuse(&mut reply, call.xid, Refusal::SystemError);
            }
        }
        reply
    }

    /// Learns the lease of the mount a call came through, off the reactor.
    fn learn_lease(&self, call: &Call<'_>, peer: IpAddr) {
        let Some(mount) = self.mount_of(call.args.clone()) else { return };
        if self.leases.lock().contains(&mount) {
            return;
        }
        if let Ok(mounted) = self.door.mounted(mount, peer) {
            self.leases.lock().put(mount, mounted.lease());
        }
    }
}

/// A call that did nothing because the box is busy is not remembered: the client sends it again.
fn is_memorable(reply: &[u8]) -> bool {
    reply.get(STATUS_AT..STATUS_AT + 4) != Some(&(Status::Jukebox as u32).to_be_bytes()[..])
}

/// The reply to this call will not be longer, in bytes.
fn reply_bytes_max(target: Target, call: &Call<'_>) -> usize {
    let args = call.args.clone();
    let body = match target {
        Target::Nfs(Procedure::Read) => RangeArgs::parse(args).map_or(0, |args| args.count.min(READ_BYTES_MAX)),
        Target::Nfs(procedure @ (Procedure::ReadDir | Procedure::ReadDirPlus)) => {
            ReadDirArgs::parse(args, procedure == Procedure::ReadDirPlus)
                .map_or(0, |args| args.maxcount.min(READDIR_BYTES_MAX))
        }
        Target::Nfs(_) | Target::Mount(_) => 0,
    };
    body as usize + REPLY_OVERHEAD_BYTES
}

impl Service for Gateway {
    fn admit(&self, record: &[u8], peer: IpAddr) -> Admission {
        let Ok(call) = Call::parse(record) else { return Admission::Close };
        let target = match Target::find(&call) {
            Ok(target) => target,
            Err(refusal) => return Admission::Answer(self.refusal(call.xid, refusal)),
        };
        if target.is_null() {
            let mut reply = self.buffers.take(0);
            rpc::begin_reply(&mut reply, call.xid);
            rpc::finish_reply(&mut reply);
            return Admission::Answer(reply);
        }
        match call.credential {
            Credential::None | Credential::Sys { .. } => {}
            Credential::Bad => return Admission::Answer(self.refusal(call.xid, Refusal::BadCredential)),
            Credential::Unknown => return Admission::Answer(self.refusal(call.xid, Refusal::RejectedCredential)),
        }
        let lane = self.lane(target, &call, peer);
        Admission::Queue { lane, reply_bytes_max: reply_bytes_max(target, &call) }
    }

    fn serve(&self, request: Request) {
        let Request { record, peer, reply_to } = request;
        let call = Call::parse(&record).expect("because only calls that parse are admitted");
        let target = Target::find(&call).expect("because only calls with a procedure are admitted");
        let Some(source) = self.replay_source(target, &call, peer) else {
            let reply = self.run(target, &call, peer);
            reply_to.send(reply);
            self.learn_lease(&call, peer);
            self.buffers.give(record);
            return;
        };
        let key = CallKey::new(call.xid, call.program, call.procedure, call.args.rest());
        match self.replays.begin(source, key, Instant::now(), reply_to) {
            Begin::Run(reply_to) => {
                let running: Running<'_, ReplyTo> = self.replays.running(source, key);
                let reply = self.run(target, &call, peer);
                let waited = running.end(Instant::now(), is_memorable(&reply).then_some(&reply[..]));
                for waiter in waited {
                    waiter.send(reply.clone());
                }
                reply_to.send(reply);
            }
            Begin::Replay(reply_to, reply) => reply_to.send(reply),
            Begin::Waiting => {}
        }
        self.buffers.give(record);
    }
}
