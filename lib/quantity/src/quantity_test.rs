//! Tests of quantities: how texts are parsed, stored, compared and added.

use super::*;

fn parsed(text: &str) -> Quantity {
    Quantity::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

#[test]
fn quantities_have_one_canonical_text() {
    for (text, want) in [
        ("0", "0"),
        ("00", "0"),
        ("0Mi", "0"),
        ("-0", "0"),
        ("007", "007"),
        ("-", "0"),
        (".", "0"),
        ("m", "0"),
        (" 500m ", "500m"),
        ("1.0", "1"),
        ("1.500", "1.500"),
        ("1.1n", "2n"),
        ("-0.0000000001", "-1n"),
        ("12e5", "1200e3"),
        ("1000E", "1e21"),
        ("100000000000000000000", "100E"),
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
        assert_eq!(canonical(text).as_deref(), Ok(want), "{text}");
        assert_eq!(canonical(want).as_deref(), Ok(want), "{want} is canonical");
    }
}

#[test]
fn text_that_is_not_a_quantity_is_refused() {
    for (text, error) in [
        ("", FORMAT),
        (" 1", FORMAT),
        ("1 ", FORMAT),
        ("1 Gi", FORMAT),
        ("1.2.3", FORMAT),
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
        ("1000e2147483647", RANGE),
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
        assert_eq!(parsed(left).plus(parsed(right)).to_text(), sum, "{left} + {right}");
    }
    assert_eq!(parsed("1m").minus(Quantity::whole(1)).to_text(), "-999m");
    assert_eq!(parsed("1e40").checked_plus(Quantity::whole(1)), None);
    assert_eq!(parsed("1").plus(parsed("-1e40")), parsed("-1e40"));
}

#[test]
fn quantities_are_ordered_by_value() {
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
fn quantities_convert_to_doubles() {
    for (text, want) in
        [("1u", 1e-6), ("0.5", 0.5), ("1Gi", 1073741824.0), ("9223372036854775807", 9.223372036854776e18)]
    {
        assert_eq!(parsed(text).to_f64(), want, "{text}");
    }
}

#[test]
fn long_quantities_are_parsed_in_linear_time() {
    let long = format!("0.{}1", "0".repeat(100_000));
    assert_eq!(canonical(&long).as_deref(), Ok("1n"));
    assert_eq!(canonical(&"9".repeat(100_000)), Err(RANGE));
    assert_eq!(canonical(&i128::MAX.to_string()).as_deref(), Ok(i128::MAX.to_string().as_str()));
    assert_eq!(canonical(&format!("{}Ki", "9".repeat(100_000))).as_deref(), Ok("9223372036854775807"));
    assert_eq!(canonical(&format!("1.{}Ki", "0".repeat(50_000))).as_deref(), Ok("1Ki"));
}

#[test]
fn rounding_up_to_thousandths_rounds_away_from_zero() {
    for (text, want) in [
        ("1100u", "2m"),
        ("5n", "1m"),
        ("-5n", "-1m"),
        ("-1100u", "-2m"),
        ("2000u", "2m"),
        ("1.000001", "1001m"),
        ("250m", "250m"),
        ("1Gi", "1Gi"),
    ] {
        assert_eq!(parsed(text).rounded_up_to_milli().to_text(), want, "{text}");
    }
}

#[test]
fn rounded_up_returns_whole_numbers_away_from_zero() {
    for (text, want) in [
        ("0", 0),
        ("0e300", 0),
        ("1n", 1),
        ("-1n", -1),
        ("1500m", 2),
        ("-1500m", -2),
        ("2k", 2000),
        ("1Gi", 1 << 30),
        ("1e30", i64::MAX),
        ("-1e300", i64::MIN),
    ] {
        assert_eq!(parsed(text).rounded_up(), want, "{text}");
    }
}

#[test]
fn is_whole_and_is_multiple_of_recognize_whole_numbers_and_multiples() {
    for (text, is_whole, is_even) in [
        ("1.0", true, false),
        ("1.5", false, false),
        ("2k", true, true),
        ("-4", true, true),
        ("0", true, true),
    ] {
        let quantity = parsed(text);
        let found = (quantity.is_whole(), quantity.is_multiple_of(Quantity::whole(2)));
        assert_eq!(found, (is_whole, is_even), "{text}");
    }
}
