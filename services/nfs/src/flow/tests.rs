//! The flow with a service that is not NFS: what must hold whatever a record means.
//!
//! A record of this service is one word: `echo:<text>` is answered at once by a worker, `hold:<text>` when the test opens
//! the gate, `now:<bytes>` on the reactor with that many bytes, `panic` by a panic; `close` is no protocol.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use parking_lot::{Condvar, Mutex};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};
use tokio::sync::watch;

use super::buffers::Buffers;
use super::connection::{self, ConnectionError, Shared};
use super::pool::Pool;
use super::{Admission, Lane, Request, Service};
use crate::limits::{IN_FLIGHT_BYTES_MAX, RECORD_BYTES_MAX};

const PEER: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const REPLY_BYTES: usize = 1 << 20;

#[derive(Default)]
struct Words {
    gate: Mutex<bool>,
    opened: Condvar,
    started: Mutex<usize>,
}

impl Words {
    fn open(&self) {
        *self.gate.lock() = true;
        self.opened.notify_all();
    }
}

fn marked(bytes: &[u8]) -> Vec<u8> {
    let mark = (1_u32 << 31) | u32::try_from(bytes.len()).unwrap();
    [&mark.to_be_bytes()[..], bytes].concat()
}

impl Service for Words {
    fn admit(&self, record: &[u8], peer: IpAddr) -> Admission {
        let word = String::from_utf8_lossy(record);
        match word.split_once(':') {
            Some(("now", bytes)) => Admission::Answer(marked(&vec![b'n'; bytes.parse().unwrap()])),
            _ if word == "close" => Admission::Close,
            _ => Admission::Queue { lane: Lane::Peer(peer), reply_bytes_max: REPLY_BYTES },
        }
    }

    fn serve(&self, request: Request) {
        *self.started.lock() += 1;
        assert_ne!(request.record, b"panic", "this record asks for a panic");
        if request.record.starts_with(b"hold:") {
            let mut open = self.gate.lock();
            while !*open {
                self.opened.wait(&mut open);
            }
        }
        request.reply_to.send(marked(&request.record));
    }
}

struct Running {
    client: DuplexStream,
    ended: tokio::task::JoinHandle<Result<(), ConnectionError>>,
    stop: watch::Sender<bool>,
}

fn shared(workers: usize) -> (Arc<Words>, Arc<Shared<Words>>) {
    let service = Arc::new(Words::default());
    let pool = Pool::start(&service, workers).unwrap();
    (Arc::clone(&service), Arc::new(Shared { service, pool, buffers: Arc::new(Buffers::default()) }))
}

fn connect(shared: &Arc<Shared<Words>>, pipe_bytes: usize) -> Running {
    let (client, server) = duplex(pipe_bytes);
    let (stop, stopped) = watch::channel(false);
    let shared = Arc::clone(shared);
    let ended = tokio::spawn(async move {
        let (reader, writer) = tokio::io::split(server);
        connection::run(&shared, reader, writer, PEER, stopped).await
    });
    Running { client, ended, stop }
}

async fn read_reply(client: &mut DuplexStream) -> Vec<u8> {
    let mark = client.read_u32().await.unwrap();
    let mut reply = vec![0; usize::try_from(mark & !(1 << 31)).unwrap()];
    client.read_exact(&mut reply).await.unwrap();
    reply
}

/// Goal: many records in one burst are all answered, through a pipe that cuts every write into pieces.
#[tokio::test]
async fn all_are_answered() {
    let (_, shared) = shared(4);
    let mut running = connect(&shared, 7);
    let burst: Vec<u8> = (0..500).flat_map(|number| marked(format!("echo:{number}").as_bytes())).collect();
    let (mut from, mut to) = tokio::io::split(running.client);
    let send = tokio::spawn(async move {
        to.write_all(&burst).await.unwrap();
        to
    });
    let mut seen = Vec::new();
    for _ in 0..500 {
        let mark = from.read_u32().await.unwrap();
        let mut reply = vec![0; usize::try_from(mark & !(1 << 31)).unwrap()];
        from.read_exact(&mut reply).await.unwrap();
        seen.push(String::from_utf8(reply).unwrap());
    }
    running.client = from.unsplit(send.await.unwrap());
    seen.sort();
    seen.dedup();
    assert_eq!(seen.len(), 500);
    drop(running.client);
    running.ended.await.unwrap().unwrap();
}

/// Goal: a connection whose budget is spent is not read any more, another one is served meanwhile, and all of the first
/// one's requests are answered in the end.
#[tokio::test]
async fn a_spent_budget_stops_reading_only_its_connection() {
    let (service, shared) = shared(16);
    let mut blocked = connect(&shared, 64);
    let fits = IN_FLIGHT_BYTES_MAX / REPLY_BYTES - 1;
    for number in 0..fits {
        blocked.client.write_all(&marked(format!("hold:{number}").as_bytes())).await.unwrap();
    }
    // More than budget and pipe take: this write cannot end before the gate is opened.
    let more: Vec<u8> = (fits..fits + 20).flat_map(|number| marked(format!("hold:{number}").as_bytes())).collect();
    let (mut from, mut to) = tokio::io::split(blocked.client);
    let mut sending = tokio::spawn(async move {
        to.write_all(&more).await.unwrap();
        to
    });
    let mut other = connect(&shared, 1 << 16);
    for _ in 0..100 {
        other.client.write_all(&marked(b"echo:hello")).await.unwrap();
        assert_eq!(read_reply(&mut other.client).await, b"echo:hello");
    }
    assert!(futures_pending(&mut sending).await, "the server reads on without budget");
    assert!(*service.started.lock() <= 100 + IN_FLIGHT_BYTES_MAX / REPLY_BYTES);
    service.open();
    for _ in 0..fits + 20 {
        let mark = from.read_u32().await.unwrap();
        let mut reply = vec![0; usize::try_from(mark & !(1 << 31)).unwrap()];
        from.read_exact(&mut reply).await.unwrap();
        assert!(reply.starts_with(b"hold:"));
    }
    sending.await.unwrap();
}

/// Polls once.
async fn futures_pending<T>(task: &mut tokio::task::JoinHandle<T>) -> bool {
    tokio::task::yield_now().await;
    !task.is_finished()
}

/// Goal: what is no record stream or no protocol ends the connection and says why.
#[tokio::test]
async fn misbehaviour_closes() {
    let (_, shared) = shared(1);
    let mut running = connect(&shared, 1 << 16);
    running.client.write_all(&(u32::try_from(RECORD_BYTES_MAX).unwrap() + 1).to_be_bytes()).await.unwrap();
    let ended = running.ended.await.unwrap();
    assert!(matches!(ended, Err(ConnectionError::Record(_))), "{ended:?}");
    let mut running = connect(&shared, 1 << 16);
    running.client.write_all(&marked(b"close")).await.unwrap();
    let ended = running.ended.await.unwrap();
    assert!(matches!(ended, Err(ConnectionError::NotRpc)), "{ended:?}");
}

/// Goal: a panic in one request costs its answer only, not a worker and not the budget.
#[tokio::test]
async fn a_panic_costs_one_answer() {
    let (_, shared) = shared(1);
    let mut running = connect(&shared, 1 << 16);
    for _ in 0..20 {
        running.client.write_all(&marked(b"panic")).await.unwrap();
    }
    running.client.write_all(&marked(b"echo:after")).await.unwrap();
    assert_eq!(read_reply(&mut running.client).await, b"echo:after");
}

/// Goal: a shutdown answers what was accepted, then ends the stream.
#[tokio::test]
async fn shutdown_answers_what_was_accepted() {
    let (service, shared) = shared(2);
    let mut running = connect(&shared, 1 << 16);
    running.client.write_all(&marked(b"hold:last")).await.unwrap();
    while *service.started.lock() == 0 {
        tokio::task::yield_now().await;
    }
    running.stop.send(true).unwrap();
    service.open();
    assert_eq!(read_reply(&mut running.client).await, b"hold:last");
    assert_eq!(running.client.read(&mut [0]).await.unwrap(), 0);
    running.ended.await.unwrap().unwrap();
}

/// Goal: a client that does not take its replies, one that says nothing, and one that stops inside a record are let go.
/// The clock is tokio's and moves by itself while nothing else can.
#[tokio::test(start_paused = true)]
async fn slow_clients_are_let_go() {
    let (_, shared) = shared(1);
    let mut running = connect(&shared, 100);
    running.client.write_all(&marked(b"now:5000")).await.unwrap();
    let ended = running.ended.await.unwrap();
    assert!(matches!(ended, Err(ConnectionError::SlowReader(_))), "{ended:?}");

    let silent = connect(&shared, 100);
    let ended = silent.ended.await.unwrap();
    assert!(matches!(ended, Err(ConnectionError::Idle(_))), "{ended:?}");

    let mut cut = connect(&shared, 100);
    cut.client.write_all(&marked(b"now:5000")[..6]).await.unwrap();
    let ended = cut.ended.await.unwrap();
    assert!(matches!(ended, Err(ConnectionError::SlowRecord(_))), "{ended:?}");
}
