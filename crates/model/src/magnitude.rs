//! Numbers of any size: an overhead of 10⁻⁴³⁵ has digits, too, which `f64` cannot hold.
//!
//! Decides: that a result is a mantissa and a binary exponent until somebody needs an `f64`, and that whoever does is told when there
//! is none. Only sums, products and quotients of numbers that are zero or more exist here, so no digit is lost by cancellation.
//! Leaves to others: what the numbers mean.

use serde::ser::Error as _;
use serde::{Serialize, Serializer};
use std::fmt;
use std::ops::{Add, Div, Mul};

/// A number that is zero or more: `mantissa`·2^`exponent`.
///
/// As JSON it is a number with its digits also where those are beyond the range of `f64`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Magnitude {
    /// 0, or in [1, 2).
    mantissa: f64,
    exponent: i64,
}

impl Magnitude {
    /// Nothing.
    pub const ZERO: Self = Self { mantissa: 0.0, exponent: 0 };

    /// A finite number that is zero or more.
    ///
    /// # Panics
    /// The number is negative, infinite or not a number: whoever computes with it must have refused that before.
    #[must_use]
    pub fn new(number: f64) -> Self {
        assert!(number >= 0.0 && number.is_finite(), "{number} is not a magnitude");
        if number == 0.0 {
            return Self::ZERO;
        }
        let (half, exponent) = libm::frexp(number);
        Self { mantissa: half * 2.0, exponent: i64::from(exponent) - 1 }
    }

    /// e^(−z) for z ≥ 0: z = n·ln 2 + r, and 2^(−n) is exact. ln 2 is given in two parts, so that r keeps its digits.
    #[must_use]
    pub fn exp_of_minus(z: f64) -> Self {
        const LN_2_LOW: f64 = 2.319_046_813_846_3e-17;
        let n = (z / std::f64::consts::LN_2).round();
        let rest = (-n).mul_add(LN_2_LOW, (-n).mul_add(std::f64::consts::LN_2, z));
        #[expect(clippy::cast_possible_truncation, reason = "z is at most 10¹⁵")]
        let shift = n as i64;
        let part = Self::new((-rest).exp());
        Self { exponent: part.exponent - shift, ..part }
    }

    /// As `f64`, if it is zero or in the range in which `f64` keeps all its digits.
    #[must_use]
    pub fn value(self) -> Option<f64> {
        let exponent = i32::try_from(self.exponent).ok().filter(|e| (-1_022..1_024).contains(e))?;
        Some(libm::ldexp(self.mantissa, exponent))
    }

    /// As `f64`; what is too small for its full digits is zero, what is too large infinite. For pictures.
    #[must_use]
    pub fn rounded(self) -> f64 {
        self.value().unwrap_or(if self.exponent < 0 { 0.0 } else { f64::INFINITY })
    }

    /// The logarithm to base 10; −∞ of zero.
    #[must_use]
    pub fn log10(self) -> f64 {
        if self.mantissa == 0.0 {
            return f64::NEG_INFINITY;
        }
        self.mantissa.log10() + exponent_as_f64(self.exponent) * std::f64::consts::LOG10_2
    }

    /// Whether it is zero.
    #[must_use]
    pub fn is_zero(self) -> bool {
        self.mantissa == 0.0
    }

    /// Its decimal digits, as JSON and people write numbers: as many as it has that are right.
    fn decimal(self) -> String {
        if let Some(value) = self.value() {
            return format!("{value:e}");
        }
        let log10 = self.log10();
        let exponent = log10.floor();
        // The logarithm's own rounding is what digits are lost to.
        let digits = (14.0 - log10.abs().log10().ceil()).max(0.0);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 to 14")]
        let digits = digits as usize;
        format!("{:.digits$}e{exponent:.0}", 10f64.powf(log10 - exponent))
    }
}

#[expect(clippy::cast_precision_loss, reason = "exponents are below 2^53, since arguments of exponentials are at most 10¹⁵")]
fn exponent_as_f64(exponent: i64) -> f64 {
    exponent as f64
}

impl Add for Magnitude {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        let (large, small) =
            if self.is_zero() || (!other.is_zero() && other.exponent > self.exponent) { (other, self) } else { (self, other) };
        // What is 2^64 times smaller does not reach the last digit.
        let Some(shift) = i32::try_from(small.exponent - large.exponent).ok().filter(|s| *s > -64 && !small.is_zero()) else {
            return large;
        };
        let sum = Self::new(large.mantissa + libm::ldexp(small.mantissa, shift));
        Self { exponent: sum.exponent + large.exponent, ..sum }
    }
}

impl Mul for Magnitude {
    type Output = Self;

    fn mul(self, other: Self) -> Self {
        let product = Self::new(self.mantissa * other.mantissa);
        if product.is_zero() { product } else { Self { exponent: product.exponent + self.exponent + other.exponent, ..product } }
    }
}

impl Mul<f64> for Magnitude {
    type Output = Self;

    fn mul(self, factor: f64) -> Self {
        self * Self::new(factor)
    }
}

impl Div for Magnitude {
    type Output = Self;

    /// # Panics
    /// The divisor is zero.
    fn div(self, other: Self) -> Self {
        let quotient = Self::new(self.mantissa / other.mantissa);
        if quotient.is_zero() { quotient } else { Self { exponent: quotient.exponent + self.exponent - other.exponent, ..quotient } }
    }
}

impl Div<f64> for Magnitude {
    type Output = Self;

    fn div(self, divisor: f64) -> Self {
        self / Self::new(divisor)
    }
}

impl PartialOrd for Magnitude {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        match (self.is_zero(), other.is_zero()) {
            (true, true) => Some(std::cmp::Ordering::Equal),
            (true, false) => Some(std::cmp::Ordering::Less),
            (false, true) => Some(std::cmp::Ordering::Greater),
            (false, false) => (self.exponent, self.mantissa).partial_cmp(&(other.exponent, other.mantissa)),
        }
    }
}

/// For people: four digits.
impl fmt::Display for Magnitude {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.value() {
            Some(0.0) => write!(f, "0"),
            Some(value) if (0.000_1..1e6).contains(&value) => {
                #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 to 7")]
                let digits = (3.0 - value.log10().floor()).clamp(0.0, 7.0) as usize;
                write!(f, "{value:.digits$}")
            }
            Some(value) => write!(f, "{value:.3e}"),
            None => {
                let text = self.decimal();
                let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
                write!(f, "{}e{exponent}", &mantissa[..mantissa.len().min(5)])
            }
        }
    }
}

impl Serialize for Magnitude {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.value() {
            Some(value) => serializer.serialize_f64(value),
            None => serde_json::value::RawValue::from_string(self.decimal()).map_err(S::Error::custom)?.serialize(serializer),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_f64_can_hold_comes_back_as_it_was() {
        for number in [0.0, 1.0, 0.1, 1e-300, 1.7e308, 3.0, f64::MIN_POSITIVE] {
            assert_eq!(Magnitude::new(number).value(), Some(number));
        }
        assert_eq!((Magnitude::new(3.5) + Magnitude::new(0.25)).value(), Some(3.75));
        assert_eq!((Magnitude::ZERO + Magnitude::new(1e-9)).value(), Some(1e-9));
        assert_eq!((Magnitude::new(6.0) / 4.0 * 8.0).value(), Some(12.0));
        assert!(Magnitude::ZERO < Magnitude::exp_of_minus(1e4) && Magnitude::exp_of_minus(1e4) < Magnitude::new(1e-300));
    }

    /// The values are from mpmath with 50 digits.
    #[test]
    fn what_f64_cannot_hold_keeps_its_digits() {
        let tiny = Magnitude::exp_of_minus(1_000.0);
        assert_eq!((tiny.value(), tiny.rounded()), (None, 0.0));
        assert!((tiny.log10() + 434.294_481_903_251_83).abs() < 1e-12);
        assert_eq!(tiny.to_string(), "5.075e-435");
        assert!(serde_json::to_string(&tiny).unwrap().starts_with("5.0759588975"), "{}", serde_json::to_string(&tiny).unwrap());
        // Back in range by another such number, nothing is lost.
        let back = tiny / Magnitude::exp_of_minus(999.0);
        assert!((back.value().unwrap() / (-1.0f64).exp() - 1.0).abs() < 1e-15);
    }

    #[test]
    fn people_see_four_digits() {
        for (number, text) in [(0.0, "0"), (0.1, "0.1000"), (4.54e-5, "4.540e-5"), (12.345_6, "12.35"), (664.0, "664.0"), (1e9, "1.000e9")]
        {
            assert_eq!(Magnitude::new(number).to_string(), text);
        }
    }
}
