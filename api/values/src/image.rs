//! The properties of image names on which pull policies depend: whether a name is well formed, and its
//! tag.
//!
//! ```text
//! reference  [domain "/"] component *("/" component) [":" tag] ["@" digest]
//! domain     host [":" port]; the first component is a domain only if it is `localhost`,
//!            has a dot or a colon, or is not in lower case
//! component  lower-case letters and digits, separated by one of `.` `_` `__` and any number of `-`
//! digest     sha256, sha384 or sha512, a colon, and the lower-case hexadecimal digits
//! ```
//!
//! Source: github.com/distribution/reference, `ParseNormalizedNamed`.

/// Domain of image names that contain no domain.
const DEFAULT_DOMAIN: &str = "docker.io";
/// Maximum length of a path, in bytes.
const PATH_BYTES_MAX: usize = 255;
/// Maximum length of a tag, in bytes.
const TAG_BYTES_MAX: usize = 128;
/// Digest algorithms, each with the number of its hexadecimal digits.
const DIGESTS: [(&str, usize); 3] = [("sha256", 64), ("sha384", 96), ("sha512", 128)];

/// Returns whether `image` is well formed and its tag is `latest`. A name with neither tag nor digest has the
/// tag `latest` by default.
pub fn is_latest(image: &str) -> bool {
    parse(image).is_some_and(|(tag, has_digest)| tag.map_or(!has_digest, |tag| tag == "latest"))
}

/// Returns the tag of a well-formed image name, and whether it has a digest.
fn parse(image: &str) -> Option<(Option<&str>, bool)> {
    if is_lower_hex(image, 64) {
        return None;
    }
    let (name, digest) = match image.split_once('@') {
        Some((name, digest)) => (name, Some(digest)),
        None => (image, None),
    };
    if digest.is_some_and(|digest| !is_digest(digest)) {
        return None;
    }
    let (domain, path) = split_domain(name);
    let (path, tag) = match path.split_once(':') {
        Some((path, tag)) => (path, Some(tag)),
        None => (path, None),
    };
    if tag.is_some_and(|tag| !is_tag(tag)) || !path.split('/').all(is_component) {
        return None;
    }
    let is_official = domain == DEFAULT_DOMAIN && !path.contains('/');
    let path_bytes = path.len() + if is_official { "library/".len() } else { 0 };
    // A first component that is not a domain belongs to the path.
    let is_well_formed = if is_domain(domain) {
        path_bytes <= PATH_BYTES_MAX
    } else {
        is_component(domain) && domain.len() + 1 + path_bytes <= PATH_BYTES_MAX
    };
    is_well_formed.then_some((tag, digest.is_some()))
}

fn split_domain(name: &str) -> (&str, &str) {
    match name.split_once('/') {
        Some(("index.docker.io", rest)) => (DEFAULT_DOMAIN, rest),
        Some((first, rest))
            if first == "localhost" || first.contains(['.', ':']) || first.to_lowercase() != first =>
        {
            (first, rest)
        }
        _ => (DEFAULT_DOMAIN, name),
    }
}

fn is_domain(domain: &str) -> bool {
    let (host, port) = match domain.rfind(':').filter(|_| !domain.ends_with(']')) {
        Some(colon) => (&domain[..colon], Some(&domain[colon + 1..])),
        None => (domain, None),
    };
    if port.is_some_and(|port| port.is_empty() || !port.bytes().all(|byte| byte.is_ascii_digit())) {
        return false;
    }
    match host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
        Some(address) => {
            !address.is_empty() && address.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b':')
        }
        None => host.split('.').all(|label| {
            !label.is_empty()
                && !label.starts_with('-')
                && !label.ends_with('-')
                && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
        }),
    }
}

fn is_component(component: &str) -> bool {
    let is_word = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let bytes = component.as_bytes();
    let ends = [bytes.first(), bytes.last()];
    if !ends.iter().all(|end| end.is_some_and(|&byte| is_word(byte))) {
        return false;
    }
    let mut separators = bytes.split(|&byte| is_word(byte)).filter(|separator| !separator.is_empty());
    separators.all(|separator| {
        matches!(separator, b"." | b"_" | b"__") || separator.iter().all(|&byte| byte == b'-')
    })
}

fn is_tag(tag: &str) -> bool {
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    tag.len() <= TAG_BYTES_MAX
        && tag.bytes().next().is_some_and(is_word)
        && tag.bytes().all(|byte| is_word(byte) || matches!(byte, b'.' | b'-'))
}

fn is_digest(digest: &str) -> bool {
    digest.split_once(':').is_some_and(|(algorithm, digits)| {
        DIGESTS.iter().any(|&(known, count)| algorithm == known && is_lower_hex(digits, count))
    })
}

fn is_lower_hex(text: &str, count: usize) -> bool {
    text.len() == count && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

#[cfg(test)]
mod tests {
    use super::is_latest;

    #[test]
    fn is_latest_accepts_only_well_formed_image_names_without_another_tag() {
        let digest = format!("sha256:{}", "0a".repeat(32));
        let hex = "0a".repeat(32);
        let long = |count: usize| "a".repeat(count);
        for (image, want) in [
            ("b", true),
            ("b:latest", true),
            ("b:1", false),
            ("a/b", true),
            ("a/b:latest", true),
            ("a:5000/b", true),
            ("a:5000/b:1", false),
            ("a:5000/b:latest", true),
            ("localhost/b", true),
            ("Registry/b", true),
            ("quay.io/a/b/c", true),
            ("index.docker.io/b", true),
            ("[::1]:5000/b", true),
            ("[2001:db8::1]/b", true),
            ("a__b/c-----d/e.f_g", true),
            (&format!("b@{digest}"), false),
            (&format!("b:latest@{digest}"), true),
            (&format!("b:1@{digest}"), false),
            (&format!("b@sha512:{}", "0".repeat(128)), false),
            (&format!("b:latest@sha512:{}", "0".repeat(128)), true),
            (&format!("b:latest@sha256:{}", "0A".repeat(32)), false),
            ("b:latest@md5:00000000000000000000000000000000", false),
            ("b:latest@", false),
            (&hex, false),
            (&format!("a/{hex}"), true),
            (&long(247), true),
            (&long(248), false),
            (&format!("quay.io/{}", long(255)), true),
            (&format!("quay.io/{}", long(256)), false),
            ("", false),
            (" b", false),
            ("b ", false),
            ("b\n", false),
            ("b:", false),
            ("b:la test", false),
            ("b:-latest", false),
            ("ko://github.com/a/b", false),
            ("docker://x", false),
            ("${IMAGE}", false),
            ("{{img}}", false),
            ("REPLACE_ME", false),
            ("Upper", false),
            ("a/Upper", false),
            ("a//b", false),
            ("/b", false),
            ("a/", false),
            ("-a/b", false),
            ("a..b", false),
            ("a___b", false),
            ("a._b", false),
            ("_a", false),
            ("a-", false),
            ("::1/b", false),
            ("a:x/b", false),
            ("a:/b", false),
            ("[]/b", false),
            ("bücher", false),
        ] {
            assert_eq!(is_latest(image), want, "{image:?}");
        }
    }
}
