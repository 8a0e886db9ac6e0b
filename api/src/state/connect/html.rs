//! Rewrites the links in HTML pages, so that the links lead through the proxy (docs/api/nodes.md#links).
//!
//! Only the values of link attributes change. All other bytes are forwarded unchanged and without delay. At most
//! one tag is buffered. Styles and scripts are not examined.

/// Maximum length of a tag whose links are rewritten; a longer tag passes unchanged.
const TAG_BYTES_MAX: usize = 64 * 1024;

/// Elements with link attributes.
const LINKS: &[(&str, &[&str])] = &[
    ("a", &["href"]),
    ("applet", &["codebase"]),
    ("area", &["href"]),
    ("audio", &["src"]),
    ("base", &["href"]),
    ("blockquote", &["cite"]),
    ("body", &["background"]),
    ("button", &["formaction"]),
    ("command", &["icon"]),
    ("del", &["cite"]),
    ("embed", &["src"]),
    ("form", &["action"]),
    ("frame", &["longdesc", "src"]),
    ("head", &["profile"]),
    ("html", &["manifest"]),
    ("iframe", &["longdesc", "src"]),
    ("img", &["longdesc", "src", "usemap"]),
    ("input", &["src", "usemap", "formaction"]),
    ("ins", &["cite"]),
    ("link", &["href"]),
    ("object", &["classid", "codebase", "data", "usemap"]),
    ("q", &["cite"]),
    ("script", &["src"]),
    ("source", &["src"]),
    ("video", &["poster", "src"]),
];

/// Elements whose content is not markup.
const RAW: [&str; 10] =
    ["iframe", "noembed", "noframes", "noscript", "plaintext", "script", "style", "textarea", "title", "xmp"];

/// Rewrites the links of one page.
pub(super) struct Rewriter<F> {
    rewrite: F,
    /// Received bytes that cannot be forwarded yet.
    held: Vec<u8>,
    within: Within,
}

/// The position in the page at which the buffered bytes begin.
#[derive(Clone, Copy)]
enum Within {
    Text,
    Comment,
    /// The content of an element whose name is in [`RAW`].
    Raw(&'static str),
}

impl<F: FnMut(&str) -> Option<String>> Rewriter<F> {
    /// Returns a rewriter. `rewrite` returns the new link, or `None` if the link does not change.
    pub(super) fn new(rewrite: F) -> Rewriter<F> {
        Rewriter { rewrite, held: Vec::new(), within: Within::Text }
    }

    /// Takes a part of the page and returns the bytes that can be forwarded.
    pub(super) fn feed(&mut self, part: &[u8]) -> Vec<u8> {
        self.held.extend_from_slice(part);
        let held = std::mem::take(&mut self.held);
        let mut out = Vec::with_capacity(held.len());
        let mut rest = &held[..];
        while let Some(passed) = self.step(rest, &mut out) {
            rest = &rest[passed..];
        }
        self.held = rest.to_vec();
        out
    }

    /// Returns the bytes that remain at the end of the page.
    pub(super) fn finish(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.held)
    }

    /// Forwards the first bytes of `rest` and returns their number; `None` if more bytes are needed.
    fn step(&mut self, rest: &[u8], out: &mut Vec<u8>) -> Option<usize> {
        if rest.is_empty() {
            return None;
        }
        match self.within {
            Within::Comment => self.until(rest, b"-->", 3, out),
            Within::Raw(name) => {
                let end = [b"</", name.as_bytes()].concat();
                self.until(rest, &end, 0, out)
            }
            Within::Text => match memchr::memchr(b'<', rest) {
                Some(0) => self.markup(rest, out),
                at => {
                    let len = at.unwrap_or(rest.len());
                    out.extend_from_slice(&rest[..len]);
                    Some(len)
                }
            },
        }
    }

    /// Forwards all bytes before `end`, and the first `with` bytes of `end`. If `end` is missing, forwards all
    /// bytes that cannot belong to `end`.
    fn until(&mut self, rest: &[u8], end: &[u8], with: usize, out: &mut Vec<u8>) -> Option<usize> {
        let found = rest.windows(end.len()).position(|window| window.eq_ignore_ascii_case(end));
        let len = match found {
            Some(at) => {
                self.within = Within::Text;
                if at + with == 0 {
                    // Markup follows the end tag, and the parser must not interpret the end tag as the
                    // beginning of an element.
                    out.extend_from_slice(&rest[..end.len()]);
                    return Some(end.len());
                }
                at + with
            }
            None => (rest.len() + 1).checked_sub(end.len()).filter(|len| *len > 0)?,
        };
        out.extend_from_slice(&rest[..len]);
        Some(len)
    }

    /// Handles markup, which begins with `<`.
    fn markup(&mut self, rest: &[u8], out: &mut Vec<u8>) -> Option<usize> {
        const COMMENT: &[u8] = b"<!--";
        let next = *rest.get(1)?;
        if rest.starts_with(COMMENT) {
            self.within = Within::Comment;
            out.extend_from_slice(COMMENT);
            return Some(COMMENT.len());
        }
        if next == b'!' && rest.len() < COMMENT.len() && COMMENT.starts_with(rest) {
            return None;
        }
        if !next.is_ascii_alphabetic() {
            out.push(b'<');
            return Some(1);
        }
        let Some(len) = tag_len(rest) else {
            if rest.len() <= TAG_BYTES_MAX {
                return None;
            }
            out.extend_from_slice(rest);
            return Some(rest.len());
        };
        let tag = &rest[..len];
        let name = &tag[1..];
        let name = &name[..name.iter().position(|byte| is_end_of_name(*byte)).unwrap_or(name.len())];
        let links = LINKS.iter().find(|(element, _)| name.eq_ignore_ascii_case(element.as_bytes()));
        match links {
            Some((_, attributes)) => self.rewrite_tag(tag, 1 + name.len(), attributes, out),
            None => out.extend_from_slice(tag),
        }
        if let Some(raw) = RAW.iter().find(|raw| name.eq_ignore_ascii_case(raw.as_bytes())) {
            self.within = Within::Raw(raw);
        }
        Some(len)
    }

    fn rewrite_tag(&mut self, tag: &[u8], from: usize, links: &[&str], out: &mut Vec<u8>) {
        let mut passed = 0;
        for Attribute { name, value } in (Attributes { tag, at: from }) {
            let is_link = links.iter().any(|link| tag[name.clone()].eq_ignore_ascii_case(link.as_bytes()));
            let Some(text) = std::str::from_utf8(&tag[value.clone()]).ok().filter(|_| is_link) else {
                continue;
            };
            let Some(new) = (self.rewrite)(text.trim()) else { continue };
            out.extend_from_slice(&tag[passed..value.start]);
            out.extend_from_slice(new.as_bytes());
            passed = value.end;
        }
        out.extend_from_slice(&tag[passed..]);
    }
}

fn is_end_of_name(byte: u8) -> bool {
    byte.is_ascii_whitespace() || matches!(byte, b'/' | b'>')
}

/// Returns the length of the tag at the start of `rest`, if `rest` contains the end of the tag. The end is a
/// `>` outside quoted values.
fn tag_len(rest: &[u8]) -> Option<usize> {
    let mut quote = None;
    let mut after_equals = false;
    for (at, &byte) in rest.iter().enumerate().skip(1) {
        match quote {
            Some(open) if byte == open => quote = None,
            Some(_) => {}
            None if byte == b'>' => return Some(at + 1),
            None if after_equals && matches!(byte, b'"' | b'\'') => quote = Some(byte),
            None => {}
        }
        after_equals = byte == b'=' || after_equals && byte.is_ascii_whitespace();
    }
    None
}

/// An attribute: the positions of its name and its value in the tag.
struct Attribute {
    name: std::ops::Range<usize>,
    value: std::ops::Range<usize>,
}

/// The attributes of a tag that have a value.
struct Attributes<'t> {
    tag: &'t [u8],
    at: usize,
}

impl Attributes<'_> {
    /// Skips the bytes for which `is` returns true, and returns their range.
    fn skip(&mut self, is: impl Fn(u8) -> bool) -> std::ops::Range<usize> {
        let start = self.at;
        let len = self.tag[start..].iter().take_while(|byte| is(**byte)).count();
        self.at += len;
        start..self.at
    }
}

impl Iterator for Attributes<'_> {
    type Item = Attribute;

    fn next(&mut self) -> Option<Attribute> {
        loop {
            self.skip(|byte| byte.is_ascii_whitespace() || byte == b'/');
            let name = self.skip(|byte| !is_end_of_name(byte) && byte != b'=');
            self.skip(|byte| byte.is_ascii_whitespace());
            if self.tag.get(self.at) != Some(&b'=') {
                if name.is_empty() {
                    return None; // the end of the tag
                }
                continue; // an attribute without a value
            }
            self.at += 1;
            self.skip(|byte| byte.is_ascii_whitespace());
            let value = match self.tag.get(self.at) {
                Some(&quote @ (b'"' | b'\'')) => {
                    self.at += 1;
                    let value = self.skip(|byte| byte != quote);
                    self.at = (self.at + 1).min(self.tag.len());
                    value
                }
                _ => self.skip(|byte| !byte.is_ascii_whitespace() && byte != b'>'),
            };
            return Some(Attribute { name, value });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_html_rewriter_changes_links_and_nothing_else() {
        for (page, want) in [
            ("<a href=\"/x\">/x</a>", "<a href=\"P/x\">/x</a>"),
            ("<A class=b HREF='/x' id=c>", "<A class=b HREF='P/x' id=c>"),
            ("<a href=/x>", "<a href=P/x>"),
            ("<a href = \"/x\" >", "<a href = \"P/x\" >"),
            ("<a title=\"a > b\" href=\"/x\">", "<a title=\"a > b\" href=\"P/x\">"),
            (
                "<img src=\"/x\" longdesc=\"/y\" alt=\"/z\"/>",
                "<img src=\"P/x\" longdesc=\"P/y\" alt=\"/z\"/>",
            ),
            ("<a href=\"x\">", "<a href=\"x\">"),
            ("<p href=\"/x\">", "<p href=\"/x\">"),
            ("<!-- <a href=\"/x\"> --><a href=\"/x\">", "<!-- <a href=\"/x\"> --><a href=\"P/x\">"),
            ("<!DOCTYPE html><a href=\"/x\">", "<!DOCTYPE html><a href=\"P/x\">"),
            (
                "<script src=\"/x\">\"<a href='/x'>\" 1<2</SCRIPT><a href=\"/x\">",
                "<script src=\"P/x\">\"<a href='/x'>\" 1<2</SCRIPT><a href=\"P/x\">",
            ),
            ("<title></title><a href=\"/x\">", "<title></title><a href=\"P/x\">"),
            ("1 < 2 <3 <a disabled href=\"/x\">", "1 < 2 <3 <a disabled href=\"P/x\">"),
            ("<a href=\"/x", "<a href=\"/x"),
            ("<a =\"/x\" href=\"/y\">", "<a =\"/x\" href=\"P/y\">"),
            ("<", "<"),
            ("", ""),
        ] {
            for step in [1, 2, 5, 1000] {
                let rewrite = |link: &str| link.starts_with('/').then(|| format!("P{link}"));
                let mut rewriter = Rewriter::new(rewrite);
                let mut out = Vec::new();
                for part in page.as_bytes().chunks(step) {
                    out.extend(rewriter.feed(part));
                }
                out.extend(rewriter.finish());
                assert_eq!(String::from_utf8(out).unwrap(), want, "by {step}: {page}");
            }
        }
    }

    #[test]
    fn the_html_rewriter_does_not_buffer_an_endless_tag() {
        let mut rewriter = Rewriter::new(|_: &str| None);
        let mut out = rewriter.feed(b"<a href=\"");
        for _ in 0..100 {
            out.extend(rewriter.feed(&[b'x'; 10_000]));
            assert!(rewriter.held.len() <= TAG_BYTES_MAX);
        }
        out.extend(rewriter.finish());
        assert_eq!(out.len(), 9 + 1_000_000);
    }
}
