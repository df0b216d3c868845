//! Bytes in JSON: paths, names and contents as strings where they are UTF-8; and permission bits in octal.
//!
//! Decides: that any bytes survive the way through JSON: `"name"`, or `{"b64": "…"}` when they are not UTF-8.
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
        form(&self.0).serialize(s)
    }
}

fn form(bytes: &[u8]) -> Form<'_> {
    match std::str::from_utf8(bytes) {
        Ok(text) => Form::Plain(text.into()),
        Err(_) => Form::Coded { b64: STANDARD.encode(bytes).into() },
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
        form(&self.0).serialize(s)
    }
}

impl<'de> Deserialize<'de> for Blob {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        Text::deserialize(d).map(|text| Self(text.0))
    }
}

/// Permission bits as octal digits: `"0644"`.
pub(crate) mod octal {
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
    pub(crate) fn serialize<S: Serializer>(mode: &u16, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(&format_args!("{mode:04o}"))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<u16, D::Error> {
        let text = std::borrow::Cow::<str>::deserialize(d)?;
        cistern_text::octal(&text).map_err(D::Error::custom)
    }

    /// The same where there may be none.
    pub(crate) mod option {
        use serde::{Deserialize, Deserializer, Serialize, Serializer};

        #[derive(Serialize, Deserialize)]
        #[serde(transparent)]
        struct Mode(#[serde(with = "super")] u16);

        #[expect(clippy::trivially_copy_pass_by_ref, clippy::ref_option, reason = "serde's signature")]
        pub(crate) fn serialize<S: Serializer>(mode: &Option<u16>, s: S) -> Result<S::Ok, S::Error> {
            mode.map(Mode).serialize(s)
        }

        pub(crate) fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<Option<u16>, D::Error> {
            Ok(Option::<Mode>::deserialize(d)?.map(|Mode(mode)| mode))
        }
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
            assert_eq!(serde_json::from_str::<Blob>(&json).unwrap().0, name, "{json}");
            assert_eq!(serde_json::to_string(&Blob(name.to_vec())).unwrap(), json, "contents look as names do");
        }
    }

    #[test]
    fn a_name_cannot_write_to_the_terminal() {
        assert_eq!(Text(b"a\x1b[31m\xff".to_vec()).to_string(), "a\\x1b[31m\\xff");
        // Nor turn the order of what stands beside it, nor be another that looks the same.
        assert_eq!(Text("a\u{202e}b\u{200b}".as_bytes().to_vec()).to_string(), "a\\xe2\\x80\\xaeb\\xe2\\x80\\x8b");
    }
}
