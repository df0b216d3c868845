//! What no model can be solved for, in words for whoever gave it.
//!
//! Decides: how a refusal reads. Leaves to others: which values are refused (each model's own check).

/// A parameter that cannot be: the caller's mistake.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{what} is {}; it must be {rule}", shown(*value))]
pub struct Invalid {
    /// The parameter.
    pub what: &'static str,
    /// What was given.
    pub value: f64,
    /// What it must be.
    pub rule: &'static str,
}

impl Invalid {
    /// The refusal with the flags from which the quantity comes; `flags` has them by its name here.
    #[must_use]
    pub fn in_flags(&self, flags: &[(&str, &str)]) -> String {
        match flags.iter().find(|(what, _)| *what == self.what) {
            Some((_, flags)) => format!("{self} (from {flags})"),
            None => self.to_string(),
        }
    }
}

/// A number as people write it; those with many zeros by their exponent.
fn shown(value: f64) -> String {
    let many = value.is_finite() && value != 0.0 && !(1e-5..1e9).contains(&value.abs());
    if many { format!("{value:e}") } else { value.to_string() }
}

/// A finite number above zero.
///
/// # Errors
/// It is none.
pub fn positive(what: &'static str, value: f64) -> Result<f64, Invalid> {
    if value > 0.0 && value.is_finite() { Ok(value) } else { Err(Invalid { what, value, rule: "a finite number above zero" }) }
}

/// A finite number, zero or more.
///
/// # Errors
/// It is none.
pub fn not_negative(what: &'static str, value: f64) -> Result<f64, Invalid> {
    if value >= 0.0 && value.is_finite() { Ok(value) } else { Err(Invalid { what, value, rule: "a finite number, zero or more" }) }
}

/// A number between 0 and 1, neither of them.
///
/// # Errors
/// It is none.
pub fn fraction(what: &'static str, value: f64) -> Result<f64, Invalid> {
    if value > 0.0 && value < 1.0 { Ok(value) } else { Err(Invalid { what, value, rule: "above 0 and below 1" }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_one_short_line() {
        for (value, text) in
            [(0.0, "τ is 0; it must be long"), (1e300, "τ is 1e300; it must be long"), (-2.5, "τ is -2.5; it must be long")]
        {
            assert_eq!(Invalid { what: "τ", value, rule: "long" }.to_string(), text);
        }
    }
}
