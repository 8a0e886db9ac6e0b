//! A quantity: a decimal number and the family of suffixes it is written with.
//!
//! The value is `mantissa × 10^scale`. The reference keeps short numbers in 64 bits and all others in an arbitrary
//! precision decimal, and `asInteger` works on the former only; [`Number::compact`] remembers which one it is.
//! Mantissas here have 128 bits, enough for 28 digits before the point besides the nine behind it; a sum or a number
//! beyond that is an error, so that the work stays proportional to the length of the text.

use std::cmp::Ordering;
use std::sync::Arc;

/// The format of the text.
const FORMAT: &str =
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";
const SUFFIX: &str = "unable to parse quantity's suffix";
/// The number does not fit 128 bits.
const RANGE: &str = "quantity out of range";

/// Digits that always fit 64 bits.
const COMPACT_DIGITS: i64 = 18;
/// The smallest scale: nano.
const NANO: i64 = -9;

/// The suffixes a quantity is written with.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Family {
    /// `Ki`, `Mi`, …
    Binary,
    /// `n`, `u`, `m`, none, `k`, `M`, …
    Decimal,
    /// `e3`, `E-6`.
    Exponent,
}

/// A quantity. Two are equal when their values are, whatever their texts.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct Quantity {
    number: Number,
    written: Written,
}

/// The text that a quantity was read from, when that is what it is written as. It takes no part in comparisons.
#[derive(Clone, Debug)]
struct Written(Option<Arc<str>>);

/// A number with its way of writing.
#[derive(Clone, Copy, Debug)]
struct Number {
    mantissa: i128,
    scale: i64,
    family: Family,
    compact: bool,
}

/// The parts of a text.
struct Parts<'t> {
    negative: bool,
    whole: &'t str,
    fraction: &'t str,
    suffix: &'t str,
}

impl Quantity {
    /// Reads `text`.
    ///
    /// # Errors
    /// The reference's sentence for text that is no quantity.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        let parts = Parts::of(text)?;
        let (family, exponent) = suffix_meaning(parts.suffix).ok_or(SUFFIX)?;
        let (magnitude, is_canonical) = match parts.compact(family, exponent) {
            Some(number) => (number, parts.is_canonical(number)),
            None => (parts.rounded(family, exponent)?, false),
        };
        let mantissa = if parts.negative { -magnitude.mantissa } else { magnitude.mantissa };
        Ok(Self {
            number: Number { mantissa, ..magnitude },
            written: Written(is_canonical.then(|| text.into())),
        })
    }

    /// The whole number `value`, with decimal suffixes.
    pub fn whole(value: i64) -> Self {
        Number::whole(value).into()
    }

    /// −1, 0 or 1.
    pub fn signum(&self) -> i64 {
        self.number.mantissa.signum() as i64
    }

    /// The value as a 64-bit integer, when the number has the short form without decimals.
    pub fn to_integer(&self) -> Option<i64> {
        let Number { mantissa, scale, compact, .. } = self.number;
        if !compact || scale < 0 {
            return None;
        }
        if mantissa == 0 {
            return Some(0);
        }
        let factor = 10i128.checked_pow(u32::try_from(scale).ok()?)?;
        i64::try_from(mantissa.checked_mul(factor)?).ok()
    }

    /// The nearest double; of large numbers, near it.
    pub fn to_double(&self) -> f64 {
        let base = self.number.mantissa as f64;
        if self.number.scale == 0 {
            return base;
        }
        let power: f64 = format!("1e{}", self.number.scale).parse().unwrap_or(f64::INFINITY);
        base * power
    }

    /// Sum. A zero on the left takes over the suffixes of the right.
    ///
    /// # Errors
    /// The sum does not fit.
    pub fn plus(&self, other: &Self) -> Result<Self, &'static str> {
        self.number.plus(other.number).map(Self::from)
    }

    /// Difference, by the rules of [`plus`](Self::plus).
    ///
    /// # Errors
    /// The difference does not fit.
    pub fn minus(&self, other: &Self) -> Result<Self, &'static str> {
        let mantissa = other.number.mantissa.checked_neg().ok_or(RANGE)?;
        self.number.plus(Number { mantissa, ..other.number }).map(Self::from)
    }

    /// The text as it was read if the reference keeps it, else the canonical one.
    pub fn to_text(&self) -> String {
        match &self.written {
            Written(Some(text)) => text.to_string(),
            Written(None) => self.number.to_text(),
        }
    }
}

impl From<Number> for Quantity {
    fn from(number: Number) -> Self {
        Self { number, written: Written(None) }
    }
}

impl Ord for Written {
    fn cmp(&self, _: &Self) -> Ordering {
        Ordering::Equal
    }
}

impl PartialOrd for Written {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Written {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Written {}

impl Number {
    fn whole(value: i64) -> Self {
        Self { mantissa: value.into(), scale: 0, family: Family::Decimal, compact: true }
    }

    fn plus(self, other: Self) -> Result<Self, &'static str> {
        let family = if self.mantissa == 0 { other.family } else { self.family };
        if other.mantissa == 0 {
            return Ok(Self { family, compact: self.compact && other.compact, ..self });
        }
        if self.mantissa == 0 {
            return Ok(Self { family, compact: self.compact && other.compact, ..other });
        }
        let (left, right, scale) = aligned(self, other).ok_or(RANGE)?;
        let mantissa = left.checked_add(right).ok_or(RANGE)?;
        let compact = self.compact && other.compact && i64::try_from(mantissa).is_ok();
        Ok(Self { mantissa, scale, family, compact })
    }

    /// The canonical text: at most three zeros at the end turn into a larger suffix.
    fn to_text(self) -> String {
        if self.mantissa == 0 {
            return "0".to_owned();
        }
        if self.family == Family::Binary
            && let Some((mantissa, power)) = self.in_powers_of_1024()
        {
            const SUFFIXES: [&str; 7] = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
            return format!("{mantissa}{}", SUFFIXES[power]);
        }
        let (mut mantissa, mut scale) = without_trailing_zeros(self.mantissa, self.scale);
        let lift = scale.rem_euclid(3);
        match mantissa.checked_mul([1, 10, 100][lift as usize]) {
            Some(lifted) => (mantissa, scale) = (lifted, scale - lift),
            // No room for the step to a multiple of three: the exponent form takes any scale.
            None => return format!("{mantissa}e{scale}"),
        }
        const SUFFIXES: [&str; 10] = ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"];
        let suffix = usize::try_from(scale / 3 + 3).ok().and_then(|at| SUFFIXES.get(at));
        match (self.family, suffix) {
            (_, Some(&"")) => mantissa.to_string(),
            (Family::Exponent, _) | (_, None) => format!("{mantissa}e{scale}"),
            (_, Some(suffix)) => format!("{mantissa}{suffix}"),
        }
    }

    /// Mantissa and power of 1024; `None` between −1024 and 1024 and for numbers with decimals, where decimal suffixes
    /// lose nothing.
    fn in_powers_of_1024(self) -> Option<(i128, usize)> {
        let (mantissa, scale) = without_trailing_zeros(self.mantissa, self.scale);
        let factor = 10i128.checked_pow(u32::try_from(scale).ok()?)?;
        let mut whole = mantissa.checked_mul(factor)?;
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

impl Ord for Number {
    /// Order by value, whatever the way of writing.
    fn cmp(&self, other: &Self) -> Ordering {
        match aligned(*self, *other) {
            Some((left, right, _)) => left.cmp(&right),
            // The one with the larger scale does not fit at the smaller one, so its magnitude is the larger.
            None if self.scale > other.scale => self.mantissa.cmp(&0),
            None => 0.cmp(&other.mantissa),
        }
    }
}

impl PartialOrd for Number {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Number {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Number {}

impl<'t> Parts<'t> {
    /// Splits `[sign] digits [. digits] [letters [sign] digits]`. A sign or a point without digits counts as 0.
    fn of(text: &'t str) -> Result<Self, &'static str> {
        if text.is_empty() {
            return Err(FORMAT);
        }
        let negative = text.starts_with('-');
        let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
        let (whole, rest) = split_digits(unsigned);
        let (fraction, suffix) = rest.strip_prefix('.').map_or(("", rest), split_digits);
        let letters = suffix.trim_start_matches(|c: char| "eEinumkKMGTP".contains(c));
        let exponent = letters.strip_prefix(['-', '+']).unwrap_or(letters);
        if !split_digits(exponent).1.is_empty() {
            return Err(FORMAT);
        }
        Ok(Self { negative, whole: whole.trim_start_matches('0'), fraction, suffix })
    }

    /// Whether the reference takes the text for canonical and keeps it. It looks at the digits only, so that `+1` and
    /// `5.` are kept.
    fn is_canonical(&self, number: Number) -> bool {
        if number.family == Family::Binary {
            let last = self.digits().fold(0u8, |sum, digit| (sum.wrapping_mul(10)).wrapping_add(digit));
            return last % 8 != 0;
        }
        number.scale % 3 == 0 && !self.whole.is_empty() && !self.digits().rev().take(3).eq([0, 0, 0])
    }

    fn digits(&self) -> impl DoubleEndedIterator<Item = u8> {
        self.whole.bytes().chain(self.fraction.bytes()).map(|digit| digit - b'0')
    }

    /// The number in the short form, when the reference keeps it so.
    fn compact(&self, family: Family, exponent: i64) -> Option<Number> {
        let whole_len = self.whole.len().max(1) as i64;
        let fraction_len = self.fraction.len() as i64;
        let (room, factor) = match family {
            Family::Binary if fraction_len > 0 => return None,
            // A power of two takes about three decimal digits for each ten bits.
            Family::Binary => (15 - whole_len - exponent * 3 / 10 - 1, 1i128 << exponent),
            Family::Decimal | Family::Exponent => (COMPACT_DIGITS - whole_len - fraction_len, 1),
        };
        let scale = if family == Family::Binary { 0 } else { exponent - fraction_len };
        if room < 0 || scale < NANO {
            return None;
        }
        // At most 18 digits, times 2^60 at most, which 15 digits and the room above keep below 64 bits.
        let mantissa = self.digits().fold(0i128, |sum, digit| sum * 10 + i128::from(digit)) * factor;
        i64::try_from(mantissa).ok()?;
        Some(Number { mantissa, scale, family, compact: true })
    }

    /// The number rounded away from zero to a whole number of nanos; with binary suffixes at most 2^63−1.
    fn rounded(&self, family: Family, exponent: i64) -> Result<Number, &'static str> {
        let digits = match family {
            Family::Binary => times_power_of_two(self.digits(), exponent),
            Family::Decimal | Family::Exponent => self.digits().collect(),
        };
        let exponent = if family == Family::Binary { 0 } else { exponent };
        let scale = exponent - self.fraction.len() as i64;
        let zeros = digits.iter().take_while(|&&digit| digit == 0).count();
        let digits = &digits[zeros..];
        let zero = Number { mantissa: 0, scale: 0, family, compact: false };
        if digits.is_empty() {
            return Ok(zero);
        }
        let kept = usize::try_from(digits.len() as i64 + (scale - NANO).min(0)).unwrap_or(0);
        let scale = scale.max(NANO);
        let mut mantissa = 0i128;
        for digit in &digits[..kept] {
            let next = mantissa.checked_mul(10).and_then(|lifted| lifted.checked_add(i128::from(*digit)));
            match next {
                Some(next) => mantissa = next,
                None if family == Family::Binary => {
                    return Ok(Number { mantissa: i64::MAX.into(), ..zero });
                }
                None => return Err(RANGE),
            }
        }
        let cut_off = digits[kept..].iter().any(|&digit| digit != 0);
        let quantity = Number { mantissa: mantissa + i128::from(cut_off), scale, ..zero };
        if family == Family::Binary {
            let limit = Number { mantissa: i64::MAX.into(), ..zero };
            if quantity > limit {
                return Ok(limit);
            }
            if quantity < Number::whole(1) {
                return Ok(Number { family: Family::Decimal, ..quantity });
            }
        }
        Ok(quantity)
    }
}

fn split_digits(text: &str) -> (&str, &str) {
    text.split_at(text.bytes().take_while(u8::is_ascii_digit).count())
}

/// Both mantissas at the smaller of the scales, when 128 bits hold them.
fn aligned(left: Number, right: Number) -> Option<(i128, i128, i64)> {
    let scale = left.scale.min(right.scale);
    let lift = |quantity: Number| {
        if quantity.mantissa == 0 {
            return Some(0);
        }
        let steps = u32::try_from(quantity.scale - scale).ok()?;
        quantity.mantissa.checked_mul(10i128.checked_pow(steps)?)
    };
    Some((lift(left)?, lift(right)?, scale))
}

fn without_trailing_zeros(mut mantissa: i128, mut scale: i64) -> (i128, i64) {
    while mantissa != 0 && mantissa % 10 == 0 {
        mantissa /= 10;
        scale += 1;
    }
    (mantissa, scale)
}

/// Family and exponent of a suffix: of ten, or of two for binary suffixes.
fn suffix_meaning(suffix: &str) -> Option<(Family, i64)> {
    Some(match suffix {
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
        _ => {
            let exponent: i64 = suffix.strip_prefix(['e', 'E'])?.parse().ok()?;
            // The reference keeps the low 32 bits.
            (Family::Exponent, i64::from(exponent as i32))
        }
    })
}

/// Decimal digits of `number × 2^exponent`, most significant first.
fn times_power_of_two(number: impl DoubleEndedIterator<Item = u8>, exponent: i64) -> Vec<u8> {
    let mut carry: u128 = 0;
    let mut product = Vec::new();
    for digit in number.rev() {
        carry += u128::from(digit) << exponent;
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

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Quantity {
        Quantity::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    #[test]
    fn quantities_have_one_canonical_text() {
        for (text, want) in [
            ("0", "0"),
            ("007", "007"),
            ("-", "0"),
            ("+1", "+1"),
            ("5.", "5."),
            ("1.5", "1500m"),
            ("1.001", "1.001"),
            ("1000", "1k"),
            ("1001", "1001"),
            ("8Ki", "8Ki"),
            ("9Ki", "9Ki"),
            (".5", "500m"),
            ("0.5", "500m"),
            ("-1.5m", "-1500u"),
            ("1000m", "1"),
            ("1.0001", "1000100u"),
            ("0.0000000001", "1n"),
            ("1024Ki", "1Mi"),
            ("1.5Gi", "1536Mi"),
            ("0.5Ki", "512"),
            ("8191Pi", "8191Pi"),
            ("8Ei", "9223372036854775807"),
            ("99999999999999999999999999999999999999Ei", "9223372036854775807"),
            ("1e3", "1e3"),
            ("1E3", "1E3"),
            ("10E2", "1e3"),
            ("12e6", "12e6"),
            ("1e-3", "1e-3"),
            ("1e30", "1e30"),
            ("1e-10", "1e-9"),
            ("9223372036854775807", "9223372036854775807"),
            ("-9223372036854775808", "-9223372036854775808"),
            ("1e99999999999", "10e1215752190"),
        ] {
            assert_eq!(parsed(text).to_text(), want, "{text}");
        }
    }

    #[test]
    fn text_that_is_no_quantity_is_refused() {
        for (text, error) in [
            ("", FORMAT),
            (" 1", FORMAT),
            ("1 ", FORMAT),
            ("abc", FORMAT),
            ("NaN", FORMAT),
            ("1X", FORMAT),
            ("0x10", FORMAT),
            ("1_000", FORMAT),
            ("1,5", FORMAT),
            ("1K", SUFFIX),
            ("1e", SUFFIX),
            ("1Ke", SUFFIX),
            ("1kk", SUFFIX),
            ("--1", SUFFIX),
            ("1e99999999999999999999", SUFFIX),
            (&"9".repeat(60), RANGE),
        ] {
            assert_eq!(Quantity::parse(text).map(|quantity| quantity.to_text()), Err(error), "{text}");
        }
    }

    #[test]
    fn only_short_numbers_without_decimals_are_integers() {
        for (text, want) in [
            ("1", Some(1)),
            ("1k", Some(1000)),
            ("1Ti", Some(1 << 40)),
            ("1E", Some(1_000_000_000_000_000_000)),
            ("10E", None),
            ("1Pi", None),
            ("1000m", None),
            ("1.0", None),
            ("9223372036854775807", None),
            ("1e30", None),
            ("0e30", Some(0)),
        ] {
            assert_eq!(parsed(text).to_integer(), want, "{text}");
        }
    }

    #[test]
    fn sums_keep_the_suffixes_of_the_left_operand() {
        for (left, right, sum) in [
            ("1Gi", "1G", "2073741824"),
            ("1k", "1Ki", "2024"),
            ("1e-3", "1", "1001e-3"),
            ("12e6", "1Ki", "12001024"),
            ("0", "1Ki", "1Ki"),
            ("9223372036854775807", "1Ki", "9223372036854776831"),
            ("0.0000000001", "1Ki", "1024000000001n"),
        ] {
            assert_eq!(
                parsed(left).plus(&parsed(right)).map(|sum| sum.to_text()).as_deref(),
                Ok(sum),
                "{left} + {right}"
            );
        }
        assert_eq!(
            parsed("1m").minus(&Quantity::whole(1)).map(|left| left.to_text()).as_deref(),
            Ok("-999m")
        );
        assert_eq!(parsed("1e40").plus(&Quantity::whole(1)), Err(RANGE));
    }

    #[test]
    fn order_is_by_value() {
        for (left, right, order) in [
            ("1", "1000m", Ordering::Equal),
            ("1Ki", "1024", Ordering::Equal),
            ("1Ki", "1k", Ordering::Greater),
            ("-1e300", "1", Ordering::Less),
            ("1", "1e300", Ordering::Less),
            ("1e301", "1e300", Ordering::Greater),
            ("0", "1e300", Ordering::Less),
            ("0e300", "1n", Ordering::Less),
        ] {
            assert_eq!(parsed(left).cmp(&parsed(right)), order, "{left} {right}");
            assert_eq!(parsed(right).cmp(&parsed(left)), order.reverse(), "{right} {left}");
        }
    }

    #[test]
    fn doubles_are_near() {
        for (text, want) in
            [("1u", 1e-6), ("0.5", 0.5), ("1Gi", 1073741824.0), ("9223372036854775807", 9.223372036854776e18)]
        {
            assert_eq!(parsed(text).to_double(), want, "{text}");
        }
    }
}
