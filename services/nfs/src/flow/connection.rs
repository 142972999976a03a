//! One connection: a reader that stops when the budget is spent, a writer that sends replies in batches.

use std::io::{self, IoSlice};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::time::timeout;

use super::buffers::{Buffers, SMALL_BYTES_MAX};
use super::pool::Pool;
use super::reply::{Reply, ReplyTo};
use super::{Admission, Request, Service};
use crate::limits::{
    BUDGET_UNIT_BYTES, FIRST_CALL_TIMEOUT, IDLE_TIMEOUT, IN_FLIGHT_BYTES_MAX, RECORD_TIMEOUT, REQUEST_BYTES_MIN,
    REQUESTS_IN_FLIGHT_MAX, WRITE_TIMEOUT,
};
use crate::wire::record::{RecordError, RecordReader};

/// Replies sent with one system call.
const BATCH_MAX: usize = 64;

/// What all connections share.
pub(crate) struct Shared<S> {
    pub(crate) service: Arc<S>,
    pub(crate) pool: Pool,
    pub(crate) buffers: Arc<Buffers>,
}

/// Why a connection ended, when not by its client's wish.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConnectionError {
    #[error("the stream is no record stream")]
    Record(#[from] RecordError),
    #[error("a record is no RPC call")]
    NotRpc,
    #[error("nothing came for {} s", .0.as_secs())]
    Idle(Duration),
    #[error("a record was not complete after {} s", .0.as_secs())]
    SlowRecord(Duration),
    #[error("the client took no reply for {} s", .0.as_secs())]
    SlowReader(Duration),
    #[error("writing failed")]
    Write(#[source] io::Error),
}

/// Serves one connection until its client ends it, it misbehaves, or `shutdown` says so. What was accepted before a
/// shutdown or an end of the stream is still answered.
pub(crate) async fn run<S: Service>(
    shared: &Shared<S>,
    reader: impl AsyncRead + Unpin,
    writer: impl AsyncWrite + Unpin,
    peer: IpAddr,
    shutdown: watch::Receiver<bool>,
) -> Result<(), ConnectionError> {
    let (replies, outgoing) = mpsc::channel(REQUESTS_IN_FLIGHT_MAX);
    // The sender moves into the reader: when it ends and every request is answered, the writer ends.
    let reading = read(shared, RecordReader::new(reader), peer, replies, shutdown);
    let writing = write(writer, outgoing, &shared.buffers);
    tokio::pin!(writing);
    tokio::select! {
        read = reading => {
            let written = writing.await;
            read.and(written)
        }
        written = &mut writing => written,
    }
}

async fn read<S: Service>(
    shared: &Shared<S>,
    mut records: RecordReader<impl AsyncRead + Unpin>,
    peer: IpAddr,
    replies: mpsc::Sender<Reply>,
    mut shutdown: watch::Receiver<bool>,
) -> Result<(), ConnectionError> {
    let budget = Arc::new(Semaphore::new(IN_FLIGHT_BYTES_MAX / BUDGET_UNIT_BYTES));
    let mut patience = FIRST_CALL_TIMEOUT;
    // Records are put together here. A small one is copied out, so that what waits in the queue is no larger than what
    // it counts; a large one leaves with its buffer.
    let mut assembly = Vec::new();
    loop {
        let ready = tokio::select! {
            biased;
            // An error means that the sender is gone: the server is being dropped.
            _ = shutdown.wait_for(|stop| *stop) => return Ok(()),
            ready = timeout(patience, records.ready()) => ready,
        };
        match ready {
            Ok(Ok(true)) => {}
            Ok(Ok(false)) => return Ok(()),
            Ok(Err(error)) => return Err(error.into()),
            Err(_) => return Err(ConnectionError::Idle(patience)),
        }
        timeout(RECORD_TIMEOUT, records.read(&mut assembly))
            .await
            .map_err(|_| ConnectionError::SlowRecord(RECORD_TIMEOUT))??;
        patience = IDLE_TIMEOUT;

        let (reply_bytes, lane) = match shared.service.admit(&assembly, peer) {
            Admission::Close => return Err(ConnectionError::NotRpc),
            Admission::Answer(reply) => (reply.len(), Err(reply)),
            Admission::Queue { lane, reply_bytes_max } => (reply_bytes_max, Ok(lane)),
        };
        let bytes = (assembly.len() + reply_bytes).clamp(REQUEST_BYTES_MIN, IN_FLIGHT_BYTES_MAX);
        let units = u32::try_from(bytes.div_ceil(BUDGET_UNIT_BYTES)).expect("because the budget is far below 4 TiB");
        // Here the connection stops being read until replies are out. The writer's time-out ends a wait without hope.
        let budget = Arc::clone(&budget);
        let budget = budget.acquire_many_owned(units).await.expect("because the budget is never closed");
        let reply_to = ReplyTo { replies: replies.clone(), budget };
        match lane {
            Ok(lane) => {
                let mut record = shared.buffers.take(assembly.len());
                if assembly.len() <= SMALL_BYTES_MAX {
                    record.extend_from_slice(&assembly);
                } else {
                    std::mem::swap(&mut record, &mut assembly);
                }
                shared.pool.submit(lane, Request { record, peer, reply_to });
            }
            Err(reply) => reply_to.send(reply),
        }
    }
}

async fn write(
    mut writer: impl AsyncWrite + Unpin,
    mut outgoing: mpsc::Receiver<Reply>,
    buffers: &Buffers,
) -> Result<(), ConnectionError> {
    let mut batch = Vec::with_capacity(BATCH_MAX);
    while outgoing.recv_many(&mut batch, BATCH_MAX).await > 0 {
        write_batch(&mut writer, &batch).await?;
        for reply in batch.drain(..) {
            buffers.give(reply.bytes);
        }
    }
    // The client has ended the stream itself, or learns it now; nothing is left to tell it.
    let _ = timeout(WRITE_TIMEOUT, writer.shutdown()).await;
    Ok(())
}

async fn write_batch(writer: &mut (impl AsyncWrite + Unpin), batch: &[Reply]) -> Result<(), ConnectionError> {
    let (mut first, mut offset) = (0, 0);
    while first < batch.len() {
        let mut slices = [IoSlice::new(&[]); BATCH_MAX];
        let rest = &batch[first..];
        for (slice, reply) in slices.iter_mut().zip(rest) {
            *slice = IoSlice::new(&reply.bytes);
        }
        slices[0] = IoSlice::new(&rest[0].bytes[offset..]);
        let slices = &slices[..rest.len()];
        let mut written = timeout(WRITE_TIMEOUT, writer.write_vectored(slices))
            .await
            .map_err(|_| ConnectionError::SlowReader(WRITE_TIMEOUT))?
            .map_err(ConnectionError::Write)?;
        if written == 0 {
            return Err(ConnectionError::Write(io::ErrorKind::WriteZero.into()));
        }
        while written > 0 {
            let left = batch[first].bytes.len() - offset;
            if written < left {
                offset += written;
                break;
            }
            written -= left;
            (first, offset) = (first + 1, 0);
        }
    }
    timeout(WRITE_TIMEOUT, writer.flush())
        .await
        .map_err(|_| ConnectionError::SlowReader(WRITE_TIMEOUT))?
        .map_err(ConnectionError::Write)
}
