//! Parsers of numbers that several commands take as flags.

/// Parses `1%` or `0.01` as a fraction.
pub(in crate::cli) fn fraction(text: &str) -> Result<f64, String> {
    let (number, scale) = match text.strip_suffix('%') {
        Some(number) => (number.trim(), 0.01),
        None => (text, 1.0),
    };
    let value = number.parse::<f64>().map_err(|_| "write 1% or 0.01".to_owned())? * scale;
    if value > 0.0 && value < 1.0 {
        Ok(value)
    } else {
        Err("it must lie above 0 and below 100 %; write 1% or 0.01".to_owned())
    }
}

/// Parses a positive number.
pub(in crate::cli) fn factor(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(x) if x > 0.0 && x.is_finite() => Ok(x),
        _ => Err("write a factor such as 1.05".to_owned()),
    }
}
