//! Bytes in JSON: paths and names as strings where they are UTF-8, contents as base64.
//!
//! Decides: that a name of any bytes survives the way through JSON: `"name"`, or `{"b64": "…"}` when it is not UTF-8.
//! Leaves to others: everything else.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use cistern_wire::Escaped;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::unix::ffi::{OsStrExt, OsStringExt};

/// A path or name: any bytes, most often UTF-8.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Text(pub(crate) Vec<u8>);

/// Contents.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Blob(pub(crate) Vec<u8>);

#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Form<'a> {
    Plain(std::borrow::Cow<'a, str>),
    Coded { b64: std::borrow::Cow<'a, str> },
}

impl Text {
    pub(crate) fn as_os(&self) -> &OsStr {
        OsStr::from_bytes(&self.0)
    }

    /// This path and a name in it.
    pub(crate) fn join(&self, name: &[u8]) -> Self {
        let mut path = self.0.clone();
        if path.last() != Some(&b'/') {
            path.push(b'/');
        }
        path.extend_from_slice(name);
        Self(path)
    }
}

impl From<&OsStr> for Text {
    fn from(text: &OsStr) -> Self {
        Self(text.as_bytes().to_vec())
    }
}

impl From<OsString> for Text {
    fn from(text: OsString) -> Self {
        Self(text.into_vec())
    }
}

impl From<&str> for Text {
    fn from(text: &str) -> Self {
        Self(text.as_bytes().to_vec())
    }
}

/// For people: what is not printable is escaped, so that a name cannot write to the terminal.
impl fmt::Display for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Escaped(&self.0).fmt(f)
    }
}

impl fmt::Debug for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl fmt::Debug for Blob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.0.len())
    }
}

impl Serialize for Text {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        match std::str::from_utf8(&self.0) {
            Ok(text) => Form::Plain(text.into()),
            Err(_) => Form::Coded { b64: STANDARD.encode(&self.0).into() },
        }
        .serialize(s)
    }
}

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        match Form::deserialize(d)? {
            Form::Plain(text) => Ok(Self(text.into_owned().into_bytes())),
            Form::Coded { b64 } => STANDARD.decode(b64.as_bytes()).map(Self).map_err(D::Error::custom),
        }
    }
}

impl Serialize for Blob {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_str(&STANDARD.encode(&self.0))
    }
}

impl<'de> Deserialize<'de> for Blob {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let text = String::deserialize(d)?;
        STANDARD.decode(text.as_bytes()).map(Self).map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_any_bytes_survive_json() {
        for name in [&b"plain"[..], b"", "ä\n".as_bytes(), b"\xff\xfe", b"\"\\"] {
            let json = serde_json::to_string(&Text(name.to_vec())).unwrap();
            assert_eq!(serde_json::from_str::<Text>(&json).unwrap().0, name, "{json}");
        }
    }

    #[test]
    fn a_name_cannot_write_to_the_terminal() {
        assert_eq!(Text(b"a\x1b[31m\xff".to_vec()).to_string(), "a\\x1b[31m\\xff");
    }
}
