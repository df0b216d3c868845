//! Settings that cannot be used: how they are refused, in the same words on both sides.
//!
//! Decides: the form of a refusal: which setting, its value, what it must be. Place in the walk: before it; a machine is made only
//! from a configuration that was checked. Implements `wire-spec.md` section 8.2.
//! Leaves to others: which settings there are and what they must keep (the configurations of agent and server).

use alloc::borrow::Cow;
use alloc::format;
use alloc::string::String;
use core::fmt;
use core::time::Duration;

/// A setting that cannot be used; the text says which, its value, and what is allowed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    /// The setting, as it is written in files and on command lines.
    pub setting: &'static str,
    /// Its value.
    pub value: String,
    /// What it must be.
    pub rule: Cow<'static, str>,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is {}; it must be {}", self.setting, self.value, self.rule)
    }
}

impl core::error::Error for ConfigError {}

/// Checks a span of time; `rule` says in words what `least` and `most` say in numbers.
///
/// # Errors
/// It is outside; whoever wrote the configuration is at fault.
pub fn spans(setting: &'static str, value: Duration, least: Duration, most: Duration, rule: &'static str) -> Result<(), ConfigError> {
    if least <= value && value <= most { Ok(()) } else { Err(ConfigError { setting, value: format!("{value:?}"), rule: rule.into() }) }
}

/// Checks a number.
///
/// # Errors
/// As [`spans`].
pub fn counts(setting: &'static str, value: impl Into<u64>, least: u64, most: u64, rule: &'static str) -> Result<(), ConfigError> {
    let value = value.into();
    if least <= value && value <= most { Ok(()) } else { Err(ConfigError { setting, value: format!("{value}"), rule: rule.into() }) }
}

/// Checks the bound of a table.
///
/// # Errors
/// As [`spans`].
pub fn table(setting: &'static str, value: usize, least: usize, most: usize, rule: &'static str) -> Result<(), ConfigError> {
    counts(setting, value as u64, least as u64, most as u64, rule)
}
