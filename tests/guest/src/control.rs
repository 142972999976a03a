//! Commands to the agent and its answers, over one virtio-serial port that is a Unix socket on the host.
//!
//! A reader thread sorts answers to their askers, so commands may overlap. When the machine dies the socket ends and
//! every asker is told.

use std::cell::OnceCell;
use std::collections::HashMap;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::Error;

/// Longest answer that is taken: what the agent caps its output at.
const OUTPUT_BYTES_MAX: u64 = 8 << 20;

/// Longest script that is sent in one command; ship larger things as a file.
pub(crate) const SCRIPT_BYTES_MAX: usize = 64 << 10;

/// What a command printed (standard output and error together) and how it ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Output {
    /// Exit status as a shell sees it.
    pub status: i32,
    /// Bytes, since file names need not be text.
    pub bytes: Vec<u8>,
}

impl Output {
    /// What was printed, as text; bytes that are no UTF-8 are replaced.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.bytes).into_owned()
    }
}

#[derive(Default)]
struct Waiting {
    askers: HashMap<u64, Sender<Output>>,
    gone: bool,
}

/// The host's end of the port.
pub(crate) struct Control {
    writer: Mutex<UnixStream>,
    waiting: Arc<Mutex<Waiting>>,
    next: AtomicU64,
    console: PathBuf,
}

/// A command that is running inside the guest.
#[must_use = "a command whose answer nobody reads has proved nothing"]
pub struct Pending {
    answer: Receiver<Output>,
    known: OnceCell<Output>,
    command: String,
    patience: Duration,
    console: PathBuf,
}

impl Pending {
    /// Waits for its end, as long as the guest's time-out allows.
    ///
    /// # Errors
    /// [`Error::TimedOut`] or [`Error::Gone`].
    pub fn wait(&self) -> Result<Output, Error> {
        self.wait_for(self.patience)
    }

    /// Waits for its end, at most `patience`; may be called again, also after a time-out.
    ///
    /// # Errors
    /// [`Error::TimedOut`] or [`Error::Gone`].
    pub fn wait_for(&self, patience: Duration) -> Result<Output, Error> {
        if let Some(output) = self.known.get() {
            return Ok(output.clone());
        }
        let console = || console_tail(&self.console);
        let answer = self.answer.recv_timeout(patience).map_err(|error| match error {
            RecvTimeoutError::Timeout => {
                Error::TimedOut { patience, command: self.command.clone(), console: console() }
            }
            RecvTimeoutError::Disconnected => Error::Gone { console: console() },
        })?;
        Ok(self.known.get_or_init(|| answer).clone())
    }
}

impl Control {
    /// Waits on a fresh connection for the agent's READY line; returns what it said after the word.
    ///
    /// # Errors
    /// What the socket said; a time-out shows as `WouldBlock`.
    pub(crate) fn handshake(stream: UnixStream, patience: Duration, console: PathBuf) -> io::Result<(Self, String)> {
        stream.set_read_timeout(Some(patience))?;
        let mut reader = BufReader::new(stream.try_clone()?);
        let mut line = String::new();
        reader.read_line(&mut line)?;
        let Some(greeting) = line.strip_prefix("READY ") else {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the guest ended before it was ready"));
        };
        stream.set_read_timeout(None)?;
        let waiting = Arc::new(Mutex::new(Waiting::default()));
        let sorter = Arc::clone(&waiting);
        std::thread::spawn(move || {
            // Whatever ended the connection, the askers only need to know that it ended.
            let _ = sort_answers(reader, &sorter);
            let mut waiting = locked(&sorter);
            waiting.gone = true;
            waiting.askers.clear();
        });
        let control = Self { writer: Mutex::new(stream), waiting, next: AtomicU64::new(1), console };
        Ok((control, greeting.trim().to_owned()))
    }

    /// Sends a script; it starts at once.
    pub(crate) fn start(&self, script: &str, patience: Duration) -> Result<Pending, Error> {
        assert!(script.len() <= SCRIPT_BYTES_MAX, "a script of {} bytes: ship it as a file", script.len());
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let gone = || Error::Gone { console: console_tail(&self.console) };
        let (sender, answer) = channel();
        {
            let mut waiting = locked(&self.waiting);
            if waiting.gone {
                return Err(gone());
            }
            waiting.askers.insert(id, sender);
        }
        let line = format!("RUN {id} {}\n", base64(script.as_bytes()));
        locked(&self.writer).write_all(line.as_bytes()).map_err(|_| gone())?;
        Ok(Pending {
            answer,
            known: OnceCell::new(),
            command: script.to_owned(),
            patience,
            console: self.console.clone(),
        })
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        // Ends the reader thread, and tells the agent to power off.
        let _ = locked(&self.writer).shutdown(std::net::Shutdown::Both);
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A panicking test thread leaves nothing half-done under these locks.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn sort_answers(mut reader: BufReader<UnixStream>, waiting: &Mutex<Waiting>) -> io::Result<()> {
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 {
            return Ok(());
        }
        let (id, status, length) = parse_done(&line)
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, format!("not an answer: {line:?}")))?;
        let mut bytes = Vec::new();
        (&mut reader).take(length).read_to_end(&mut bytes)?;
        if let Some(asker) = locked(waiting).askers.remove(&id) {
            // Fails if the asker gave up.
            let _ = asker.send(Output { status, bytes });
        }
    }
}

/// `DONE <id> <status> <bytes>`.
fn parse_done(line: &str) -> Option<(u64, i32, u64)> {
    let mut words = line.strip_prefix("DONE ")?.split_whitespace();
    let answer = (words.next()?.parse().ok()?, words.next()?.parse().ok()?, words.next()?.parse().ok()?);
    (words.next().is_none() && answer.2 <= OUTPUT_BYTES_MAX).then_some(answer)
}

/// The end of the console, which is where a kernel says why it died.
pub(crate) fn console_tail(path: &std::path::Path) -> String {
    const LINES: usize = 30;
    let bytes = std::fs::read(path).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(LINES)..].join("\n")
}

/// RFC 4648 §4, with padding.
fn base64(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let group =
            u32::from_be_bytes([0, chunk[0], chunk.get(1).copied().unwrap_or(0), chunk.get(2).copied().unwrap_or(0)]);
        for place in 0..4 {
            if place > chunk.len() {
                text.push('=');
            } else {
                let index = (group >> (18 - 6 * place)) & 63;
                text.push(char::from(ALPHABET[index as usize]));
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the vectors of RFC 4648 §10.
    #[test]
    fn base64_vectors() {
        let vectors = [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("fooba", "Zm9vYmE="),
            ("foobar", "Zm9vYmFy"),
        ];
        for (plain, coded) in vectors {
            assert_eq!(base64(plain.as_bytes()), coded);
        }
    }

    /// Goal: overlapping commands get their own answers, and the end of the machine reaches whoever still waits.
    #[test]
    fn answers_find_their_askers() {
        let (host, mut agent) = UnixStream::pair().unwrap();
        agent.write_all(b"READY 1.5 6.1\n").unwrap();
        let (control, greeting) = Control::handshake(host, Duration::from_secs(30), PathBuf::new()).unwrap();
        assert_eq!(greeting, "1.5 6.1");
        let patience = Duration::from_secs(30);
        let (first, second, third) = (
            control.start("one", patience).unwrap(),
            control.start("two", patience).unwrap(),
            control.start("three", patience).unwrap(),
        );
        agent.write_all(b"DONE 2 7 3\na\nbDONE 1 0 0\n").unwrap();
        for _ in 0..2 {
            assert_eq!(second.wait().unwrap(), Output { status: 7, bytes: b"a\nb".to_vec() });
        }
        assert_eq!(first.wait().unwrap(), Output { status: 0, bytes: Vec::new() });
        assert!(matches!(third.wait_for(Duration::ZERO), Err(Error::TimedOut { .. })));
        drop(agent);
        assert!(matches!(third.wait(), Err(Error::Gone { .. })));
    }

    /// Goal: a guest that dies while booting is an error, not a hang.
    #[test]
    fn a_dead_guest_is_no_guest() {
        let (host, agent) = UnixStream::pair().unwrap();
        drop(agent);
        assert!(Control::handshake(host, Duration::from_secs(30), PathBuf::new()).is_err());
    }
}
