//! Proxies between the suite and a real box: HTTP by JSON answer, NFS by RPC record.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use nas_nfsclient::nfs3::*;
use nas_types::secret::Secret;
use serde_json::Value;

/// A verb on its way: what is asked, and what the box answered. The lie is made here.
pub(crate) struct Exchange<'a> {
    /// `noun/verb`.
    pub(crate) verb: &'a str,
    /// Its body; null for a streamed one.
    pub(crate) body: &'a Value,
    /// HTTP status of the answer.
    pub(crate) status: u16,
    /// The answer.
    pub(crate) answer: Value,
}

/// A rule that is broken over HTTP: before the box is asked (an answer of its own), and after.
pub(crate) struct HttpFault {
    /// Answers instead of the box.
    pub(crate) before: fn(&str, &Value) -> Option<Value>,
    /// Changes the answer.
    pub(crate) after: fn(&mut Exchange<'_>),
}

/// Starts a proxy to `box_at`.
pub(crate) fn http(box_at: SocketAddr, fault: &'static HttpFault) -> SocketAddr {
    serve(move |client| {
        // A connection that ends is the client's business.
        let _ = http_connection(client, box_at, fault);
    })
}

fn serve(handle: impl Fn(TcpStream) + Send + Sync + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("because loopback has a free port");
    let address = listener.local_addr().expect("because it is bound");
    let handle = Arc::new(handle);
    std::thread::spawn(move || {
        for client in listener.incoming().flatten() {
            let handle = Arc::clone(&handle);
            std::thread::spawn(move || handle(client));
        }
    });
    address
}

fn http_connection(client: TcpStream, box_at: SocketAddr, fault: &HttpFault) -> anyhow::Result<()> {
    let mut reader = BufReader::new(client.try_clone()?);
    let mut lines = Vec::new();
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 || line == "\r\n" {
            break;
        }
        lines.push(line.trim_end().to_owned());
    }
    let header = |name: &str| {
        let line =
            lines.iter().filter_map(|line| line.split_once(": ")).find(|(key, _)| key.eq_ignore_ascii_case(name));
        line.map(|(_, value)| value.to_owned())
    };
    let first = lines.first().cloned().unwrap_or_default();
    let mut words = first.split(' ');
    let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let mut body = vec![0; header("content-length").map_or(Ok(0), |len| len.parse())?];
    reader.read_exact(&mut body)?;

    let agent: ureq::Agent = ureq::Agent::config_builder().http_status_as_error(false).build().into();
    let url = format!("http://{box_at}{path}");
    let asked: Value = serde_json::from_slice(&body).unwrap_or_default();
    let verb = path.trim_start_matches("/v1/");
    let (status, text) = if let Some(answer) = (fault.before)(verb, &asked) {
        (200, answer.to_string())
    } else {
        let mut response = if method == "GET" {
            agent.get(url).call()?
        } else {
            let mut request = agent.post(url);
            for name in ["content-type", "authorization"] {
                if let Some(value) = header(name) {
                    request = request.header(name, value);
                }
            }
            request.send(&body[..])?
        };
        let text = response.body_mut().with_config().limit(64 << 20).read_to_string()?;
        let mut exchange = Exchange {
            verb,
            body: &asked,
            status: response.status().as_u16(),
            answer: serde_json::from_str(&text).unwrap_or_default(),
        };
        (fault.after)(&mut exchange);
        (exchange.status, if exchange.answer.is_null() { text } else { exchange.answer.to_string() })
    };
    let mut client = client;
    write!(
        client,
        "HTTP/1.1 {status} Answer\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{text}",
        text.len()
    )?;
    Ok(client.flush()?)
}

/// Changes the results of an NFS procedure (its number, its results as they are on the wire).
pub(crate) type NfsFault = fn(u32, Vec<u8>) -> Vec<u8>;

/// Bytes of an accepted reply before its results: xid, REPLY, accepted, an empty verifier, SUCCESS.
const REPLY_HEAD_BYTES: usize = 24;

/// Starts a proxy to `box_at`.
pub(crate) fn nfs(box_at: SocketAddr, fault: NfsFault) -> SocketAddr {
    serve(move |client| {
        let _ = nfs_connection(&client, box_at, fault);
        let _ = client.shutdown(std::net::Shutdown::Both);
    })
}

fn nfs_connection(mut client: &TcpStream, box_at: SocketAddr, fault: NfsFault) -> anyhow::Result<()> {
    let mut server = TcpStream::connect(box_at)?;
    let server_lock = Mutex::new(());
    // The suite's client has one call under way at a time.
    loop {
        let _one_at_a_time = server_lock.lock();
        let call = record(&mut client)?;
        send(&mut server, &call)?;
        let mut reply = record(&mut server)?;
        let word = |at: usize| call.get(at..at + 4).and_then(|word| word.try_into().ok()).map_or(0, u32::from_be_bytes);
        if word(12) == PROGRAM && reply.len() >= REPLY_HEAD_BYTES {
            let results = reply.split_off(REPLY_HEAD_BYTES);
            reply.extend(fault(word(20), results));
        }
        send(&mut client, &reply)?;
    }
}

fn record(from: &mut impl std::io::Read) -> anyhow::Result<Vec<u8>> {
    let mut whole = Vec::new();
    loop {
        let mut mark = [0; 4];
        from.read_exact(&mut mark)?;
        let mark = u32::from_be_bytes(mark);
        let start = whole.len();
        whole.resize(start + (mark & 0x7fff_ffff) as usize, 0);
        from.read_exact(&mut whole[start..])?;
        if mark >> 31 == 1 {
            return Ok(whole);
        }
    }
}

fn send(to: &mut impl std::io::Write, record: &[u8]) -> anyhow::Result<()> {
    let mut bytes = (u32::try_from(record.len())? | 1 << 31).to_be_bytes().to_vec();
    bytes.extend_from_slice(record);
    Ok(to.write_all(&bytes)?)
}

/// A box as the suite is told about it.
pub(crate) fn address(http: SocketAddr, nfs: SocketAddr, token: &Secret) -> nas_conformance::Address {
    nas_conformance::Address {
        url: format!("http://{http}"),
        nfs: nfs.to_string(),
        token: token.reveal().to_owned(),
        passphrase: nas_e2e::PASSPHRASE.to_owned(),
    }
}
