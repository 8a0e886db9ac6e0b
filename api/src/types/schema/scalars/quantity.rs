//! Quantities: numbers with a suffix, kept in canonical form (`1000m` → `1`, `1024Ki` → `1Mi`, `0.5` → `500m`).
//!
//! A quantity is `mantissa × 10^scale` with the family of suffixes it was written in. Numbers too long for the
//! exact form are rounded up to nano and capped at 2^63−1, as the reference server does, so that hostile text
//! costs no more than its length.

use std::borrow::Cow;
use std::cmp::Ordering;

/// Said of what is no quantity.
pub const FORMAT: &str =
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";
/// Said of a quantity with another suffix.
const SUFFIX: &str = "unable to parse quantity's suffix";

/// Digits that always fit 64 bits.
const EXACT_DIGITS: usize = 18;

/// The family of suffixes that a quantity is written with.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Family {
    /// `Ki`, `Mi`, …
    Binary,
    /// `n`, `u`, `m`, none, `k`, `M`, …
    Decimal,
    /// `e3`, `E-6`.
    Exponent,
}

/// An exact number and how it is written.
#[derive(Clone, Copy, Debug)]
pub struct Quantity {
    mantissa: i128,
    scale: i32,
    family: Family,
}

/// The canonical form of `text`.
///
/// # Errors
/// The sentence for text that is no quantity.
pub fn canonical(text: &str) -> Result<Cow<'_, str>, &'static str> {
    let trimmed = text.trim();
    if let Some(kept) = already_canonical(trimmed) {
        return Ok(Cow::Borrowed(kept));
    }
    let kept = Quantity::parse(trimmed)?.to_text();
    Ok(if kept == text { Cow::Borrowed(text) } else { Cow::Owned(kept) })
}

/// Short whole numbers of a thousand or less with a plain suffix are canonical as they stand: no suffix or
/// `m`, `Ki`, `Mi`, `Gi`. They are nearly all quantities there are.
fn already_canonical(text: &str) -> Option<&str> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let leading_zero = text.starts_with('0') && text != "0";
    let fits = (1..=3).contains(&digits) && !leading_zero;
    (fits && matches!(&text[digits..], "" | "m" | "Ki" | "Mi" | "Gi")).then_some(text)
}

impl Quantity {
    /// Nothing at all, written `0`.
    pub const ZERO: Quantity = Quantity { mantissa: 0, scale: 0, family: Family::Decimal };

    /// Reads a quantity.
    ///
    /// # Errors
    /// The sentence for text that is no quantity.
    pub fn parse(text: &str) -> Result<Quantity, &'static str> {
        let (negative, unsigned) = match text.as_bytes().first() {
            None => return Err(FORMAT),
            Some(b'-') => (true, &text[1..]),
            Some(b'+') => (false, &text[1..]),
            Some(_) => (false, text),
        };
        let whole_len = unsigned.bytes().take_while(u8::is_ascii_digit).count();
        let (whole, rest) = unsigned.split_at(whole_len);
        let (fraction, suffix) = match rest.strip_prefix('.') {
            Some(after) => after.split_at(after.bytes().take_while(u8::is_ascii_digit).count()),
            None => ("", rest),
        };
        let letters = suffix.bytes().take_while(|byte| b"eEinumkKMGTP".contains(byte)).count();
        let exponent = &suffix[letters..];
        let digits = exponent.strip_prefix(['-', '+']).unwrap_or(exponent);
        if !digits.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(FORMAT);
        }
        if unsigned.is_empty() || (whole.is_empty() && fraction.is_empty() && suffix.is_empty()) {
            return Err(FORMAT);
        }
        let (family, exponent) = suffix_meaning(suffix).ok_or(SUFFIX)?;
        let whole = whole.trim_start_matches('0');
        let magnitude = Quantity::from_digits(whole, fraction, family, exponent);
        let mantissa = if negative { -magnitude.mantissa } else { magnitude.mantissa };
        Ok(Quantity { mantissa, ..magnitude })
    }

    fn from_digits(whole: &str, fraction: &str, family: Family, exponent: i32) -> Quantity {
        let number = |text: &str| text.bytes().fold(0i128, |sum, digit| sum * 10 + i128::from(digit - b'0'));
        let len = whole.len() + fraction.len();
        if family == Family::Binary {
            if fraction.is_empty() && len <= EXACT_DIGITS {
                // At most 10^18 × 2^60, which leaves room in 128 bits; above 64 bits the cap applies.
                let mantissa = (number(whole) << exponent).min(i128::from(i64::MAX));
                return Quantity { mantissa, scale: 0, family };
            }
            let digits = times_power_of_two(whole.bytes().chain(fraction.bytes()), exponent);
            return Quantity { family, ..rounded(&digits, -scale_of(fraction.len())) };
        }
        let scale = exponent.saturating_sub(scale_of(fraction.len()));
        if len <= EXACT_DIGITS && scale >= -9 {
            let mantissa = number(whole) * 10i128.pow(fraction.len() as u32) + number(fraction);
            if len <= EXACT_DIGITS - 2 || digits_written(mantissa, scale) <= EXACT_DIGITS {
                return Quantity { mantissa, scale, family };
            }
            // What is written with more digits would be rounded and capped when it is read again: better now.
        }
        let digits: Vec<u8> = whole.bytes().chain(fraction.bytes()).map(|digit| digit - b'0').collect();
        Quantity { family, ..rounded(&digits, scale) }
    }

    /// Whether this is nothing.
    pub fn is_zero(self) -> bool {
        self.mantissa == 0
    }

    /// Whether this is less than nothing.
    pub fn is_negative(self) -> bool {
        self.mantissa < 0
    }

    /// Whether this is a whole number.
    pub fn is_whole(self) -> bool {
        let (mantissa, scale) = without_factors(self.mantissa, self.scale);
        mantissa == 0 || scale >= 0
    }

    /// Whether this is a whole number of times `unit`, which must be more than nothing.
    pub fn is_multiple_of(self, unit: Quantity) -> bool {
        let (mantissa, unit, _) = aligned(self, unit);
        unit > 0 && mantissa % unit == 0
    }

    /// The smallest quantity not below this one that is a whole number of thousandths.
    pub fn rounded_up_to_milli(self) -> Quantity {
        if self.scale >= -3 {
            return self;
        }
        let divisor = 10i128.pow((-3 - self.scale).unsigned_abs().min(30));
        let quotient = self.mantissa.div_euclid(divisor);
        // "Up" is away from zero, so that a little of a resource never becomes none of it.
        let inexact = self.mantissa.rem_euclid(divisor) != 0;
        let mantissa = if inexact && self.mantissa > 0 { quotient + 1 } else { quotient };
        Quantity { mantissa, scale: -3, ..self }
    }

    /// The sum, in the family of whichever operand is not nothing first.
    pub fn plus(self, other: Quantity) -> Quantity {
        if self.is_zero() {
            return other;
        }
        if other.is_zero() {
            return self;
        }
        let (a, b, scale) = aligned(self, other);
        Quantity { mantissa: a.saturating_add(b), scale, family: self.family }
    }

    /// A whole number, written without suffix.
    pub fn whole(number: i64) -> Quantity {
        Quantity { mantissa: number.into(), scale: 0, family: Family::Decimal }
    }

    /// The same below nothing.
    pub fn negated(self) -> Quantity {
        Quantity { mantissa: self.mantissa.saturating_neg(), ..self }
    }

    /// The difference, in the family of whichever operand is not nothing first.
    pub fn minus(self, other: Quantity) -> Quantity {
        self.plus(other.negated())
    }

    /// Order by value.
    pub fn order(self, other: Quantity) -> Ordering {
        let (a, b, _) = aligned(self, other);
        a.cmp(&b)
    }

    /// The nearest double.
    pub fn to_f64(self) -> f64 {
        self.mantissa as f64 * 10f64.powi(self.scale)
    }

    /// The canonical text.
    pub fn to_text(self) -> String {
        if self.mantissa == 0 {
            return "0".to_owned();
        }
        if self.family == Family::Binary
            && let Some((mantissa, power)) = self.in_powers_of_1024()
        {
            const SUFFIXES: [&str; 7] = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
            return format!("{mantissa}{}", SUFFIXES[power]);
        }
        let (mut mantissa, mut scale) = without_factors(self.mantissa, self.scale);
        while scale % 3 != 0 {
            // Only sums of numbers hundreds of digits apart reach the end of 128 bits, and those are capped already.
            mantissa = mantissa.saturating_mul(10);
            scale -= 1;
        }
        const SUFFIXES: [&str; 10] = ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"];
        let plain = usize::try_from(scale / 3 + 3).ok().and_then(|at| SUFFIXES.get(at));
        match (self.family, plain) {
            (_, Some(&"")) => mantissa.to_string(),
            (Family::Exponent, _) | (_, None) => format!("{mantissa}e{scale}"),
            (_, Some(suffix)) => format!("{mantissa}{suffix}"),
        }
    }

    /// Mantissa and power of 1024, if the value is whole and not within ±1024 (where decimals read better).
    fn in_powers_of_1024(self) -> Option<(i128, usize)> {
        let (mantissa, scale) = without_factors(self.mantissa, self.scale);
        if !(0..=20).contains(&scale) {
            return None;
        }
        let mut whole = mantissa.checked_mul(10i128.pow(scale as u32))?;
        if whole.unsigned_abs() < 1024 {
            return None;
        }
        let mut power = 0;
        while power < 6 && whole % 1024 == 0 {
            whole /= 1024;
            power += 1;
        }
        Some((whole, power))
    }
}

fn scale_of(decimals: usize) -> i32 {
    i32::try_from(decimals).unwrap_or(i32::MAX)
}

/// Both mantissas at one scale. Scales so far apart that 128 bits cannot hold both saturate.
fn aligned(a: Quantity, b: Quantity) -> (i128, i128, i32) {
    let scale = a.scale.min(b.scale);
    let lift = |quantity: Quantity| {
        let steps = quantity.scale.abs_diff(scale);
        let limit = if quantity.mantissa < 0 { i128::MIN } else { i128::MAX };
        if quantity.mantissa == 0 {
            return 0;
        }
        10i128.checked_pow(steps).and_then(|factor| quantity.mantissa.checked_mul(factor)).unwrap_or(limit)
    };
    (lift(a), lift(b), scale)
}

fn without_factors(mut mantissa: i128, mut scale: i32) -> (i128, i32) {
    while mantissa != 0 && mantissa % 10 == 0 && scale < i32::MAX {
        mantissa /= 10;
        scale += 1;
    }
    (mantissa, scale)
}

/// How many digits the text of a number has: zeros at its end go, until the scale is a multiple of three.
fn digits_written(mantissa: i128, scale: i32) -> usize {
    let (mantissa, scale) = without_factors(mantissa, scale);
    let count = mantissa.checked_ilog10().map_or(1, |log| log as usize + 1);
    count + scale.rem_euclid(3) as usize
}

fn suffix_meaning(suffix: &str) -> Option<(Family, i32)> {
    let found = match suffix {
        "" => (Family::Decimal, 0),
        "n" => (Family::Decimal, -9),
        "u" => (Family::Decimal, -6),
        "m" => (Family::Decimal, -3),
        "k" => (Family::Decimal, 3),
        "M" => (Family::Decimal, 6),
        "G" => (Family::Decimal, 9),
        "T" => (Family::Decimal, 12),
        "P" => (Family::Decimal, 15),
        "E" => (Family::Decimal, 18),
        "Ki" => (Family::Binary, 10),
        "Mi" => (Family::Binary, 20),
        "Gi" => (Family::Binary, 30),
        "Ti" => (Family::Binary, 40),
        "Pi" => (Family::Binary, 50),
        "Ei" => (Family::Binary, 60),
        other => (Family::Exponent, other.strip_prefix(['e', 'E'])?.parse::<i32>().ok()?),
    };
    // Two more than the range guards the steps to the next multiple of three.
    (found.1.unsigned_abs() < i32::MAX.unsigned_abs() - 64).then_some(found)
}

/// Decimal digits of `number × 2^exponent`, most significant first.
fn times_power_of_two(number: impl DoubleEndedIterator<Item = u8>, exponent: i32) -> Vec<u8> {
    let mut carry: u128 = 0;
    let mut product: Vec<u8> = Vec::new();
    for digit in number.rev() {
        carry += u128::from(digit - b'0') << exponent;
        product.push((carry % 10) as u8);
        carry /= 10;
    }
    while carry > 0 {
        product.push((carry % 10) as u8);
        carry /= 10;
    }
    product.reverse();
    product
}

/// `digits × 10^scale` rounded up to a whole number of nanos and capped at 2^63−1.
fn rounded(digits: &[u8], scale: i32) -> Quantity {
    const CAP: i128 = i64::MAX as i128 * 1_000_000_000;
    let digits = match digits.iter().position(|&digit| digit != 0) {
        Some(first) => &digits[first..],
        None => return Quantity::ZERO,
    };
    // Digits in front of the nano place; may be negative or huge.
    let kept = digits.len() as i64 + i64::from(scale) + 9;
    let mantissa = if kept > 28 {
        CAP
    } else {
        let take = usize::try_from(kept).unwrap_or(0);
        let known = digits.iter().take(take).fold(0i128, |sum, &digit| sum * 10 + i128::from(digit));
        let missing = take.saturating_sub(digits.len()) as u32;
        let inexact = digits.iter().skip(take).any(|&digit| digit != 0);
        (known * 10i128.pow(missing) + i128::from(inexact)).min(CAP)
    };
    Quantity { mantissa, scale: -9, family: Family::Decimal }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_have_one_canonical_form() {
        for (text, want) in [
            ("0", "0"),
            ("00", "0"),
            ("0Mi", "0"),
            ("-0", "0"),
            ("100m", "100m"),
            ("1000m", "1"),
            ("1500m", "1500m"),
            ("0.5", "500m"),
            (".5", "500m"),
            ("1.", "1"),
            ("1.0", "1"),
            ("+2", "2"),
            ("-1.5", "-1500m"),
            ("1000", "1k"),
            ("1024", "1024"),
            ("1024Ki", "1Mi"),
            ("1Ki", "1Ki"),
            ("1.5Gi", "1536Mi"),
            ("0.5Ki", "512"),
            ("0.1Mi", "104857600m"),
            ("512Ki", "512Ki"),
            ("1048576Ki", "1Gi"),
            ("123456Mi", "123456Mi"),
            ("1e3", "1e3"),
            ("1E3", "1e3"),
            ("12e5", "1200e3"),
            ("1e0", "1"),
            ("1E", "1E"),
            ("1000M", "1G"),
            ("1.1n", "2n"),
            ("0.0000000001", "1n"),
            ("-0.0000000001", "-1n"),
            ("100000000000000000000", "9223372036854775807"),
            ("9Ei", "9223372036854775807"),
            ("1000E", "1e21"),
            ("123456789012345678e2", "9223372036854775807"),
            ("12345678901234567e2", "1234567890123456700"),
            ("100000000000000000e2", "10e18"),
            ("500m ", "500m"),
            ("1e-3", "1e-3"),
        ] {
            assert_eq!(canonical(text).as_deref(), Ok(want), "{text}");
            assert_eq!(canonical(want).as_deref(), Ok(want), "{want} is canonical");
        }
    }

    #[test]
    fn what_is_no_quantity_is_refused_with_upstream_sentences() {
        for (text, want) in [
            ("", FORMAT),
            ("-", FORMAT),
            ("a", FORMAT),
            ("1 Gi", FORMAT),
            ("1Gb", FORMAT),
            ("1ki", SUFFIX),
            ("1KiB", FORMAT),
            ("1mm", SUFFIX),
            ("1e99999999999", SUFFIX),
            ("1.2.3", FORMAT),
            (".", FORMAT),
            ("0x10", FORMAT),
        ] {
            assert_eq!(canonical(text).map(Cow::into_owned), Err(want), "{text}");
        }
    }

    #[test]
    fn long_numbers_cost_their_length_and_round_up() {
        let long = format!("0.{}1", "0".repeat(100_000));
        assert_eq!(canonical(&long).as_deref(), Ok("1n"));
        assert_eq!(canonical(&"9".repeat(100_000)).as_deref(), Ok("9223372036854775807"));
        assert_eq!(canonical(&format!("1.{}Ki", "0".repeat(50_000))).as_deref(), Ok("1Ki"));
    }

    #[test]
    fn sums_comparisons_and_rounding_are_exact() {
        let q = |text| Quantity::parse(text).unwrap();
        assert_eq!(q("100m").plus(q("1.9")).to_text(), "2");
        assert_eq!(q("1Gi").plus(q("512Mi")).to_text(), "1536Mi");
        assert_eq!(q("1").order(q("1000m")), Ordering::Equal);
        assert_eq!(q("1Gi").order(q("1G")), Ordering::Greater);
        assert_eq!(q("-1").order(q("1e100")), Ordering::Less);
        assert_eq!(q("1100u").rounded_up_to_milli().to_text(), "2m");
        assert_eq!(q("5n").rounded_up_to_milli().to_text(), "1m");
        assert_eq!(q("250m").rounded_up_to_milli().to_text(), "250m");
        assert!(q("1.0").is_whole() && !q("1.5").is_whole());
    }
}
