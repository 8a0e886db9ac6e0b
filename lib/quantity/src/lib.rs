//! Quantities: decimal numbers with a suffix, such as `100m`, `1.5Gi` or `1e3`
//! (<https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity/>).
//!
//! A quantity is `mantissa × 10^scale`, with the family of suffixes of its text. The reference server keeps
//! short numbers in 64 bits (the short form) and all others in a decimal of arbitrary precision.
//! [`Quantity::to_integer`] supports only the short form, so a quantity records whether it has this form. In
//! this crate, mantissas have 128 bits. This size is enough for 28 digits before the point and nine digits
//! after the point. A longer number is refused, so that the work stays proportional to the length of the
//! text.
//!
//! A text whose digits are canonical is kept unchanged (`1E3`, `+1`, `1.001`). Any other text is replaced by
//! the canonical text of its value (`1000m` → `1`, `1024Ki` → `1Mi`, `0.5` → `500m`).

use std::borrow::Cow;
use std::cmp::Ordering;

/// Error about text that is not a quantity.
pub const FORMAT: &str =
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";
/// Error about an unknown suffix.
const SUFFIX: &str = "unable to parse quantity's suffix";
/// Error about a number that does not fit in 128 bits.
pub const RANGE: &str = "quantity out of range";

/// Number of digits that always fit in 64 bits.
const COMPACT_DIGITS: i64 = 18;
/// Minimum scale of a mantissa.
const NANO: i64 = -9;
const MILLI: i64 = -3;
/// Maximum scale of a parsed number. The limit is low enough that its canonical text can be parsed again,
/// even if trailing zeros of the mantissa move into the exponent.
const SCALE_MAX: i64 = i32::MAX as i64 - 64;

/// The family of suffixes in the text of a quantity.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Family {
    /// Binary suffixes: `Ki`, `Mi`, …
    Binary,
    /// Decimal suffixes: `n`, `u`, `m`, no suffix, `k`, `M`, …
    Decimal,
    /// Exponents: `e3`, `E-6`.
    Exponent,
}

/// A number with its notation. Two quantities are equal if their values are equal.
#[derive(Clone, Copy, Debug)]
pub struct Quantity {
    /// Greater than `i128::MIN`, so that the negated value also fits.
    mantissa: i128,
    scale: i64,
    family: Family,
    /// Whether the reference server keeps the number in 64 bits.
    compact: bool,
}

/// The components of a text.
struct Parts<'t> {
    negative: bool,
    /// Integral digits without leading zeros.
    whole: &'t str,
    fraction: &'t str,
    suffix: &'t str,
}

/// Returns the text that is stored for a quantity written as `text`. White space around `text` is ignored.
///
/// # Errors
/// The error text, if `text` is not a quantity.
pub fn canonical(text: &str) -> Result<Cow<'_, str>, &'static str> {
    let text = text.trim();
    if is_plainly_canonical(text) {
        return Ok(Cow::Borrowed(text));
    }
    let (quantity, is_kept) = Quantity::read(text)?;
    Ok(if is_kept { Cow::Borrowed(text) } else { Cow::Owned(quantity.to_text()) })
}

/// Returns whether the text is an integer below a thousand without suffix or with `m`, `Ki`, `Mi` or `Gi`.
/// Nearly all quantities have this form.
fn is_plainly_canonical(text: &str) -> bool {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let leading_zero = text.starts_with('0') && text != "0";
    (1..=3).contains(&digits) && !leading_zero && matches!(&text[digits..], "" | "m" | "Ki" | "Mi" | "Gi")
}

impl Quantity {
    /// The quantity zero, written `0`.
    pub const ZERO: Self = Self::whole(0);

    /// Parses a quantity.
    ///
    /// # Errors
    /// The error text, if `text` is not a quantity.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        Self::read(text).map(|(quantity, _)| quantity)
    }

    /// Parses a quantity, and returns whether its text is kept unchanged.
    ///
    /// # Errors
    /// The error text, if `text` is not a quantity.
    pub fn read(text: &str) -> Result<(Self, bool), &'static str> {
        let parts = Parts::split(text)?;
        let (family, exponent) = suffix_meaning(parts.suffix).ok_or(SUFFIX)?;
        let (magnitude, is_kept) = match parts.compact(family, exponent) {
            Some(number) => (number, parts.is_canonical(number)),
            None => (parts.rounded(family, exponent)?, false),
        };
        if magnitude.scale > SCALE_MAX {
            return Err(RANGE);
        }
        Ok((if parts.negative { magnitude.negated() } else { magnitude }, is_kept))
    }

    /// Creates an integer quantity with decimal suffixes.
    pub const fn whole(value: i64) -> Self {
        Self { mantissa: value as i128, scale: 0, family: Family::Decimal, compact: true }
    }

    /// Returns whether the value is zero.
    pub fn is_zero(self) -> bool {
        self.mantissa == 0
    }

    /// Returns whether the value is below zero.
    pub fn is_negative(self) -> bool {
        self.mantissa < 0
    }

    /// Returns the sign of the value: −1, 0 or 1.
    pub fn signum(self) -> i64 {
        self.mantissa.signum() as i64
    }

    /// Returns whether the value is an integer.
    pub fn is_whole(self) -> bool {
        let (mantissa, scale) = without_trailing_zeros(self.mantissa, self.scale);
        mantissa == 0 || scale >= 0
    }

    /// Returns whether the value is an integral multiple of `unit`, which must be greater than zero.
    pub fn is_multiple_of(self, unit: Self) -> bool {
        aligned(self, unit).is_some_and(|(mantissa, unit, _)| unit > 0 && mantissa % unit == 0)
    }

    /// Returns the value in thousandths, rounded away from zero, so that a small value never becomes zero.
    #[must_use]
    pub fn rounded_up_to_milli(self) -> Self {
        if self.scale >= MILLI {
            return self;
        }
        // At most 10^6, because the smallest scale is nano.
        let divisor = 10i128.pow((MILLI - self.scale.max(NANO)) as u32);
        let is_cut = self.mantissa % divisor != 0;
        let mantissa = self.mantissa / divisor + if is_cut { self.mantissa.signum() } else { 0 };
        Self { mantissa, scale: MILLI, ..self }
    }

    /// Returns the value as a 64-bit integer, rounded away from zero. A value out of range gives the nearest
    /// limit.
    pub fn rounded_up(self) -> i64 {
        if self.mantissa == 0 {
            return 0;
        }
        let limit = if self.is_negative() { i128::MIN } else { i128::MAX };
        let power = u32::try_from(self.scale.unsigned_abs()).ok().and_then(|steps| 10i128.checked_pow(steps));
        let whole = match power {
            Some(factor) if self.scale >= 0 => self.mantissa.checked_mul(factor).unwrap_or(limit),
            Some(divisor) => {
                let is_cut = self.mantissa % divisor != 0;
                self.mantissa / divisor + if is_cut { self.mantissa.signum() } else { 0 }
            }
            None if self.scale >= 0 => limit,
            None => self.mantissa.signum(),
        };
        whole.clamp(i64::MIN.into(), i64::MAX.into()) as i64
    }

    /// Returns the negated value.
    #[must_use]
    pub fn negated(self) -> Self {
        Self { mantissa: -self.mantissa, ..self }
    }

    /// Returns the sum. The sum has the suffix family of the left operand, or of the right operand if the
    /// left operand is zero. If the sum does not fit, the operand with the larger magnitude is returned.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        self.checked_plus(other).unwrap_or_else(|| {
            let magnitude =
                |quantity: Self| if quantity.is_negative() { quantity.negated() } else { quantity };
            if magnitude(self) < magnitude(other) { other } else { self }
        })
    }

    /// Returns the difference, with the rules of [`plus`](Self::plus).
    #[must_use]
    pub fn minus(self, other: Self) -> Self {
        self.plus(other.negated())
    }

    /// Returns the sum, with the suffix family as in [`plus`](Self::plus); `None` if the sum does not fit.
    pub fn checked_plus(self, other: Self) -> Option<Self> {
        let family = if self.mantissa == 0 { other.family } else { self.family };
        let compact = self.compact && other.compact;
        if other.mantissa == 0 {
            return Some(Self { family, compact, ..self });
        }
        if self.mantissa == 0 {
            return Some(Self { family, compact, ..other });
        }
        let (left, right, scale) = aligned(self, other)?;
        let mantissa = left.checked_add(right).filter(|&sum| sum != i128::MIN)?;
        let compact = compact && i64::try_from(mantissa).is_ok();
        Some(Self { mantissa, scale, family, compact })
    }

    /// Returns the value as a 64-bit integer, if the number has the short form without decimals.
    pub fn to_integer(self) -> Option<i64> {
        if !self.compact || self.scale < 0 {
            return None;
        }
        if self.mantissa == 0 {
            return Some(0);
        }
        let factor = 10i128.checked_pow(u32::try_from(self.scale).ok()?)?;
        i64::try_from(self.mantissa.checked_mul(factor)?).ok()
    }

    /// Returns a double near the value: the product of the mantissa and a power of ten, both as doubles.
    pub fn to_f64(self) -> f64 {
        let base = self.mantissa as f64;
        if self.scale == 0 {
            return base;
        }
        let power: f64 = format!("1e{}", self.scale).parse().unwrap_or(f64::INFINITY);
        base * power
    }

    /// Formats the canonical text: the suffix is the largest with which the number is an integer.
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
        let (mut mantissa, mut scale) = without_trailing_zeros(self.mantissa, self.scale);
        let lift = scale.rem_euclid(3);
        match mantissa.checked_mul([1, 10, 100][lift as usize]) {
            Some(lifted) => (mantissa, scale) = (lifted, scale - lift),
            // The mantissa is too long for a scale that is a multiple of three, but the exponent form allows
            // any scale.
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

    /// Returns the mantissa and the power of 1024. `None` for numbers between −1024 and 1024 and for numbers
    /// with a fraction, because these are written with decimal suffixes.
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

impl Ord for Quantity {
    /// Orders by value, regardless of the notation.
    fn cmp(&self, other: &Self) -> Ordering {
        match aligned(*self, *other) {
            Some((left, right, _)) => left.cmp(&right),
            // The operand with the larger scale does not fit at the smaller scale, so its magnitude is
            // larger.
            None if self.scale > other.scale => self.mantissa.cmp(&0),
            None => 0.cmp(&other.mantissa),
        }
    }
}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Quantity {}

impl<'t> Parts<'t> {
    /// Splits `[sign] digits [. digits] [letters [sign] digits]`. A sign or a point without digits counts as
    /// 0.
    fn split(text: &'t str) -> Result<Self, &'static str> {
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

    /// Returns whether the reference considers the text canonical and keeps it. This function examines only
    /// the digits, so `+1` and `5.` are kept.
    fn is_canonical(&self, number: Quantity) -> bool {
        if number.family == Family::Binary {
            let last = self.digits().fold(0u8, |sum, digit| (sum.wrapping_mul(10)).wrapping_add(digit));
            return last % 8 != 0;
        }
        number.scale % 3 == 0 && !self.whole.is_empty() && !self.digits().rev().take(3).eq([0, 0, 0])
    }

    fn digits(&self) -> impl DoubleEndedIterator<Item = u8> {
        self.whole.bytes().chain(self.fraction.bytes()).map(|digit| digit - b'0')
    }

    /// Returns the number in the short form, if the reference uses that form for it.
    fn compact(&self, family: Family, exponent: i64) -> Option<Quantity> {
        let whole_len = self.whole.len().max(1) as i64;
        let fraction_len = self.fraction.len() as i64;
        let (room, factor) = match family {
            Family::Binary if fraction_len > 0 => return None,
            // A power of two takes about three decimal digits per ten bits.
            Family::Binary => (15 - whole_len - exponent * 3 / 10 - 1, 1i128 << exponent),
            Family::Decimal | Family::Exponent => (COMPACT_DIGITS - whole_len - fraction_len, 1),
        };
        let scale = if family == Family::Binary { 0 } else { exponent - fraction_len };
        if room < 0 || scale < NANO {
            return None;
        }
        // There are at most 18 digits. For binary suffixes, the check of `room` limits the digits of the
        // number and of the factor together to about 15. The product therefore fits in 64 bits.
        let mantissa = self.digits().fold(0i128, |sum, digit| sum * 10 + i128::from(digit)) * factor;
        i64::try_from(mantissa).ok()?;
        Some(Quantity { mantissa, scale, family, compact: true })
    }

    /// Returns the number rounded away from zero to a whole number of nanos; with binary suffixes at most
    /// 2^63−1.
    fn rounded(&self, family: Family, exponent: i64) -> Result<Quantity, &'static str> {
        let digits = match family {
            Family::Binary => times_power_of_two(self.digits(), exponent),
            Family::Decimal | Family::Exponent => self.digits().collect(),
        };
        let exponent = if family == Family::Binary { 0 } else { exponent };
        let scale = exponent - self.fraction.len() as i64;
        let zeros = digits.iter().take_while(|&&digit| digit == 0).count();
        let digits = &digits[zeros..];
        let zero = Quantity { mantissa: 0, scale: 0, family, compact: false };
        if digits.is_empty() {
            return Ok(zero);
        }
        let retained = usize::try_from(digits.len() as i64 + (scale - NANO).min(0)).unwrap_or(0);
        let scale = scale.max(NANO);
        let mut mantissa = 0i128;
        for digit in &digits[..retained] {
            let next = mantissa.checked_mul(10).and_then(|lifted| lifted.checked_add(i128::from(*digit)));
            match next {
                Some(next) => mantissa = next,
                None if family == Family::Binary => {
                    return Ok(Quantity { mantissa: i64::MAX.into(), ..zero });
                }
                None => return Err(RANGE),
            }
        }
        let cut_off = digits[retained..].iter().any(|&digit| digit != 0);
        let mantissa = mantissa.checked_add(cut_off.into()).ok_or(RANGE)?;
        let quantity = Quantity { mantissa, scale, ..zero };
        if family == Family::Binary {
            let limit = Quantity { mantissa: i64::MAX.into(), ..zero };
            if quantity > limit {
                return Ok(limit);
            }
            if quantity < Quantity::whole(1) {
                return Ok(Quantity { family: Family::Decimal, ..quantity });
            }
        }
        Ok(quantity)
    }
}

fn split_digits(text: &str) -> (&str, &str) {
    text.split_at(text.bytes().take_while(u8::is_ascii_digit).count())
}

/// Returns both mantissas at the smaller of the two scales, if they fit in 128 bits.
fn aligned(left: Quantity, right: Quantity) -> Option<(i128, i128, i64)> {
    let scale = left.scale.min(right.scale);
    let lift = |quantity: Quantity| {
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

/// Returns the family and exponent of a suffix: an exponent of two for binary suffixes, otherwise of ten.
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
            // The reference keeps only the low 32 bits.
            (Family::Exponent, i64::from(exponent as i32))
        }
    })
}

/// Returns the decimal digits of `number × 2^exponent`, most significant first.
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
#[path = "quantity_test.rs"]
mod tests;
