//! Values on the command line that are not plain texts or ids.

use nas_types::lease::View;
use nas_types::verb::Head;

/// `4h`, `90m`, `1d`, `1h30m`, `45s`: in seconds. The box says what is too long.
pub(crate) fn duration(text: &str) -> Result<u64, String> {
    let wrong = || format!("'{text}' is no duration: write it like 4h, 90m, 1h30m or 1d");
    let mut rest = text;
    let mut total: u64 = 0;
    while !rest.is_empty() {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let number: u64 = rest[..digits].parse().map_err(|_| wrong())?;
        let unit = match rest.as_bytes().get(digits) {
            Some(b's') => 1,
            Some(b'm') => 60,
            Some(b'h') => 3600,
            Some(b'd') => 86_400,
            _ => return Err(wrong()),
        };
        total = number.checked_mul(unit).and_then(|n| total.checked_add(n)).ok_or_else(wrong)?;
        rest = &rest[digits + 1..];
    }
    if total == 0 { Err(wrong()) } else { Ok(total) }
}

/// `500M`, `10G`, or bytes; K, M, G, T are powers of 1024.
pub(crate) fn bytes(text: &str) -> Result<u64, String> {
    let wrong = || format!("'{text}' is no size: write it like 500M or 10G");
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let number: u64 = text[..digits].parse().map_err(|_| wrong())?;
    let shift = match &text[digits..] {
        "" => 0,
        "K" => 10,
        "M" => 20,
        "G" => 30,
        "T" => 40,
        _ => return Err(wrong()),
    };
    number.checked_mul(1 << shift).ok_or_else(wrong)
}

/// `branch` or `main`.
pub(crate) fn view(text: &str) -> Result<View, String> {
    match text {
        "branch" => Ok(View::Branch),
        "main" => Ok(View::Main),
        _ => Err("choose 'branch' or 'main'".to_owned()),
    }
}

/// `seq:hash`, as `nas record head` prints it.
pub(crate) fn head(text: &str) -> Result<Head, String> {
    let wrong = || "an anchor is <number>:<hash>, as 'nas record head' prints it".to_owned();
    let (seq, hash) = text.split_once(':').ok_or_else(wrong)?;
    if hash.is_empty() || !hash.bytes().all(|b| b.is_ascii_hexdigit()) {
        return Err(wrong());
    }
    Ok(Head { seq: seq.parse().map_err(|_| wrong())?, hash: hash.to_ascii_lowercase() })
}
