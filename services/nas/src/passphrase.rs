//! Asking for a passphrase: from a file, or at the terminal without showing it.

use std::fs::{File, OpenOptions};
use std::io::{BufReader, Read as _, Write as _};
use std::path::Path;

use nas_types::secret::Secret;
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};

use crate::failure::Failure;
use crate::state::read_secret;

/// Longest passphrase the box takes.
const PASSPHRASE_BYTES_MAX: usize = 1024;

/// The owner's passphrase.
pub(crate) fn ask(file: Option<&Path>) -> Result<Secret, Failure> {
    match file {
        Some(file) => read_secret(file),
        None => prompt("Owner's passphrase: "),
    }
}

/// A passphrase to set: asked for twice.
pub(crate) fn ask_new(file: Option<&Path>) -> Result<Secret, Failure> {
    if let Some(file) = file {
        return read_secret(file);
    }
    let first = prompt("New passphrase (12 bytes at least): ")?;
    let second = prompt("Once more: ")?;
    if first.reveal() == second.reveal() {
        Ok(first)
    } else {
        Err(Failure::Usage("the two passphrases differ; nothing was set".to_owned()))
    }
}

/// Asks at the terminal.
pub(crate) fn prompt(question: &str) -> Result<Secret, Failure> {
    let no_terminal = |_| {
        Failure::Usage(
            "there is no terminal to ask at: give --passphrase-file (or --bootstrap-file) with a file of mode 0600"
                .to_owned(),
        )
    };
    let mut tty = OpenOptions::new().read(true).write(true).open("/dev/tty").map_err(no_terminal)?;
    let io = |e| Failure::io("asking at the terminal")(e);
    let line = {
        // Quiet first: what is typed as soon as the question shows must neither be seen nor flushed away.
        let quiet = Quiet::new(&tty).map_err(io)?;
        let mut screen = quiet.tty;
        screen.write_all(question.as_bytes()).map_err(io)?;
        read_line(quiet.tty)
    };
    tty.write_all(b"\n").map_err(io)?;
    line.map_err(io)?.ok_or_else(|| Failure::Local("given up; nothing was done".to_owned()))
}

/// The terminal without echo, until dropped. Ctrl-C arrives as a byte like any other, so that no signal can
/// end the program with the terminal still quiet.
struct Quiet<'a> {
    tty: &'a File,
    before: Termios,
}

impl<'a> Quiet<'a> {
    fn new(tty: &'a File) -> std::io::Result<Self> {
        let before = tcgetattr(tty)?;
        let mut quiet = before.clone();
        quiet.local_modes -= LocalModes::ECHO | LocalModes::ECHONL | LocalModes::ICANON | LocalModes::ISIG;
        tcsetattr(tty, OptionalActions::Flush, &quiet)?;
        Ok(Self { tty, before })
    }
}

impl Drop for Quiet<'_> {
    fn drop(&mut self) {
        // Nothing better can be done when the terminal is gone.
        let _ = tcsetattr(self.tty, OptionalActions::Flush, &self.before);
    }
}

/// One line, with the keys a person expects; `None` when given up.
fn read_line(tty: &File) -> std::io::Result<Option<Secret>> {
    let mut line = Vec::new();
    for byte in BufReader::new(tty).bytes() {
        match Key::of(byte?) {
            Key::Done => {
                let text = String::from_utf8(line)
                    .map_err(|_| std::io::Error::new(std::io::ErrorKind::InvalidData, "the passphrase is not UTF-8"))?;
                return Ok(Some(Secret::new(text)));
            }
            Key::GiveUp => return Ok(None),
            Key::EraseLine => line.clear(),
            Key::Erase => while line.pop().is_some_and(|b| b & 0xC0 == 0x80) {},
            Key::Ignored => {}
            Key::Text(b) if line.len() < PASSPHRASE_BYTES_MAX => line.push(b),
            Key::Text(_) => {}
        }
    }
    Ok(None)
}

enum Key {
    Done,
    GiveUp,
    Erase,
    EraseLine,
    Ignored,
    Text(u8),
}

impl Key {
    fn of(byte: u8) -> Self {
        match byte {
            b'\n' | b'\r' => Self::Done,
            0x03 | 0x04 | 0x1C => Self::GiveUp,
            0x08 | 0x7F => Self::Erase,
            0x15 => Self::EraseLine,
            0x00..=0x1F => Self::Ignored,
            other => Self::Text(other),
        }
    }
}
