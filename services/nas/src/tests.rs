//! Tests of the parts; `tests/cli.rs` runs the whole program.

mod command_tree;
mod output;
mod pack;
mod state;

use crate::client::host_of;
use crate::text::{size, visible, visible_lines};
use crate::value;

#[test]
fn durations() {
    for (text, seconds) in [("4h", 14_400), ("90m", 5400), ("1h30m", 5400), ("1d", 86_400), ("45s", 45)] {
        assert_eq!(value::duration(text), Ok(seconds), "{text}");
    }
    for bad in ["", "4", "h", "4 h", "-1h", "0s", "4h3", "99999999999999999999d", "4H"] {
        assert!(value::duration(bad).is_err(), "{bad}");
    }
}

#[test]
fn sizes_in_and_out() {
    assert_eq!(value::bytes("10G"), Ok(10 << 30));
    assert_eq!(value::bytes("17"), Ok(17));
    assert!(value::bytes("10 G").is_err() && value::bytes("99999999999999T").is_err() && value::bytes("G").is_err());
    for (bytes, text) in
        [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (10 << 30, "10.0 GiB"), (u64::MAX, "16777215.9 TiB")]
    {
        assert_eq!(size(bytes), text);
    }
}

#[test]
fn anchors() {
    let head = value::head("12:AB0f").unwrap();
    assert_eq!((head.seq, head.hash.as_str()), (12, "ab0f"));
    assert!(["12", "12:", ":ab", "x:ab", "12:xy"].iter().all(|bad| value::head(bad).is_err()));
}

/// Goal: nothing that a run wrote can move the cursor, recolour the terminal or swap the order of letters.
#[test]
fn foreign_text_is_spelled_out() {
    assert_eq!(visible("a\x1b[31mb\r\n\u{202e}c\u{200b}"), "a\\u{001b}[31mb\\u{000d}\\u{000a}\\u{202e}c\\u{200b}");
    assert_eq!(visible_lines("+a\n\tb\r\n"), "+a\n\tb\\u{000d}\n");
    assert_eq!(visible("100 % café"), "100 % café");
}

#[test]
fn hosts() {
    let host = |url| host_of(url).ok();
    assert_eq!(host("http://127.0.0.1:8480"), Some("127.0.0.1"));
    assert_eq!(host("http://nas.local/"), Some("nas.local"));
    assert_eq!(host("http://[::1]:8480"), Some("[::1]"));
    for bad in ["https://x", "127.0.0.1:8480", "http://", "http://a/b", "http://user@host", "http://[::1", "http://:80"]
    {
        assert_eq!(host(bad), None, "{bad}");
    }
}
