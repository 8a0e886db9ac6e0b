//! Parsing of literal values.

/// Error text of a string literal with an invalid escape.
const NOT_ESCAPED: &str = "unable to unescape string";

/// Returns the bytes of a string or bytes literal, without its `b` prefix. For `bytes`, `\x` and octal
/// escapes are single bytes and Unicode escapes are refused; otherwise all escapes are code points.
pub(super) fn unescape(literal: &str, bytes: bool) -> Result<Vec<u8>, &'static str> {
    let normalized;
    let literal = if literal.contains('\r') {
        normalized = literal.replace("\r\n", "\n").replace('\r', "\n");
        &normalized
    } else {
        literal
    };
    let raw = literal.starts_with(['r', 'R']);
    let quoted = if raw { &literal[1..] } else { literal };
    let quotes = match quoted.as_bytes() {
        [a, b, c, .., _, _, _] if a == b && b == c => 3,
        [_, .., _] => 1,
        _ => return Err(NOT_ESCAPED),
    };
    let mut rest = &quoted[quotes..quoted.len() - quotes];
    if raw {
        return Ok(rest.as_bytes().to_vec());
    }
    let mut out = Vec::with_capacity(rest.len());
    while let Some(backslash) = rest.find('\\') {
        out.extend_from_slice(&rest.as_bytes()[..backslash]);
        rest = escape(&rest[backslash + 1..], bytes, &mut out)?;
    }
    out.extend_from_slice(rest.as_bytes());
    Ok(out)
}

/// Appends the value of the escape sequence after a backslash, and returns the text after it.
fn escape<'t>(text: &'t str, bytes: bool, out: &mut Vec<u8>) -> Result<&'t str, &'static str> {
    let first = *text.as_bytes().first().ok_or(NOT_ESCAPED)?;
    let single = match first {
        b'a' => 0x07,
        b'b' => 0x08,
        b'f' => 0x0c,
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        b'v' => 0x0b,
        b'\\' | b'\'' | b'"' | b'`' | b'?' => first,
        _ => 0,
    };
    if single != 0 {
        out.push(single);
        return Ok(&text[1..]);
    }
    let (from, count, radix) = match first {
        b'x' | b'X' => (1, 2, 16),
        b'u' if !bytes => (1, 4, 16),
        b'U' if !bytes => (1, 8, 16),
        b'0'..=b'3' => (0, 3, 8),
        _ => return Err(NOT_ESCAPED),
    };
    let digits = text.get(from..from + count).ok_or(NOT_ESCAPED)?;
    let value = u32::from_str_radix(digits, radix).map_err(|_| NOT_ESCAPED)?;
    if bytes {
        out.push(u8::try_from(value).map_err(|_| NOT_ESCAPED)?);
    } else {
        let c = char::from_u32(value).ok_or("invalid unicode code point")?;
        out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
    }
    Ok(&text[from + count..])
}

/// Returns the value of an `int` literal with its optional sign.
pub(super) fn int(digits: &str, negative: bool) -> Option<i64> {
    let magnitude = magnitude(digits)?;
    if negative { 0i64.checked_sub_unsigned(magnitude) } else { i64::try_from(magnitude).ok() }
}

/// Returns the value of a `uint` literal with its suffix.
pub(super) fn uint(text: &str) -> Option<u64> {
    magnitude(&text[..text.len() - 1])
}

fn magnitude(digits: &str) -> Option<u64> {
    match digits.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None => digits.parse().ok(),
    }
}

/// Returns the value of a `double` literal with its optional sign; `None` if it is out of range.
pub(super) fn double(text: &str, negative: bool) -> Option<f64> {
    let value: f64 = text.parse().ok()?;
    value.is_finite().then_some(if negative { -value } else { value })
}
