//! What no model can be solved for, in words for whoever gave it.
//!
//! Decides: how a refusal reads. Leaves to others: which values are refused (each model's own check).

/// A parameter that cannot be: the caller's mistake.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{what} is {value}; it must be {rule}")]
pub struct Invalid {
    /// The parameter.
    pub what: &'static str,
    /// What was given.
    pub value: f64,
    /// What it must be.
    pub rule: &'static str,
}

/// A finite number above zero.
pub(crate) fn positive(what: &'static str, value: f64) -> Result<f64, Invalid> {
    if value > 0.0 && value.is_finite() { Ok(value) } else { Err(Invalid { what, value, rule: "a finite number above zero" }) }
}

/// A finite number, zero or more.
pub(crate) fn not_negative(what: &'static str, value: f64) -> Result<f64, Invalid> {
    if value >= 0.0 && value.is_finite() { Ok(value) } else { Err(Invalid { what, value, rule: "a finite number, zero or more" }) }
}

/// A number between 0 and 1, neither of them.
pub(crate) fn fraction(what: &'static str, value: f64) -> Result<f64, Invalid> {
    if value > 0.0 && value < 1.0 { Ok(value) } else { Err(Invalid { what, value, rule: "above 0 and below 1" }) }
}
