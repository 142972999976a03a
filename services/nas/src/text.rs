//! Small pieces of text: foreign words made safe to print, times, sizes.

use std::fmt::Write as _;
use std::io::Write as _;

use jiff::tz::TimeZone;
use nas_types::path::is_invisible;
use nas_types::time::Timestamp;

/// Text from elsewhere on one line: control, bidirectional and zero-width characters are spelled out,
/// so that they can neither move the cursor nor make one text look like another.
pub(crate) fn visible(text: &str) -> String {
    spell_out(text, |_| false)
}

/// As [`visible`], but newlines and tabs stay: for a diff.
pub(crate) fn visible_lines(text: &str) -> String {
    spell_out(text, |c| c == '\n' || c == '\t')
}

fn spell_out(text: &str, keep: impl Fn(char) -> bool) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if keep(c) || !(c.is_control() || is_invisible(c)) {
            out.push(c);
        } else {
            let _ = write!(out, "\\u{{{:04x}}}", u32::from(c));
        }
    }
    out
}

/// Foreign text as a block that cannot be taken for ours: each line behind a bar.
pub(crate) fn quoted(text: &str) -> String {
    text.lines().fold(String::new(), |mut out, line| {
        let _ = writeln!(out, "  | {}", visible(line));
        out
    })
}

/// Where and when the reader is.
#[derive(Debug, Clone)]
pub(crate) struct Here {
    /// Now.
    pub(crate) now: Timestamp,
    /// The reader's time zone.
    pub(crate) zone: TimeZone,
}

impl Here {
    /// This machine's clock and zone.
    pub(crate) fn system() -> Self {
        Self { now: Timestamp(jiff::Timestamp::now().as_millisecond()), zone: TimeZone::system() }
    }

    /// `16:00` today, `2026-12-01 16:00` on another day.
    pub(crate) fn time(&self, time: Timestamp) -> String {
        let local =
            |t: Timestamp| jiff::Timestamp::from_millisecond(t.0).map(|t| t.to_zoned_datetime(self.zone.clone()));
        match (local(time), local(self.now)) {
            (Ok(time), Ok(now)) if time.date() == now.date() => {
                format!("{:02}:{:02}", time.hour(), time.minute())
            }
            (Ok(time), _) => format!("{} {:02}:{:02}", time.date(), time.hour(), time.minute()),
            (Err(_), _) => time.to_string(),
        }
    }
}

/// `1 file`, `2 files`.
pub(crate) fn count(n: u64, one: &str, many: &str) -> String {
    format!("{n} {}", if n == 1 { one } else { many })
}

/// `17 B`, `1.5 MiB`.
pub(crate) fn size(bytes: u64) -> String {
    const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let (mut tenths, mut unit) = (u128::from(bytes) * 10 / 1024, 0);
    while tenths >= 10_240 && unit + 1 < UNITS.len() {
        tenths /= 1024;
        unit += 1;
    }
    format!("{}.{} {}", tenths / 10, tenths % 10, UNITS[unit])
}

/// Writes to standard output. A reader that went away (`| head`) is no error.
pub(crate) fn print(text: &str) {
    let _ = std::io::stdout().lock().write_all(text.as_bytes());
}
