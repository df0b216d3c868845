//! Where a store on etcd is, as one line: `etcd://HOST:PORT,HOST:PORT/PREFIX?OPTION=VALUE&...`.
//!
//! Decides the grammar, and that a store has one name in every command.

use crate::record::Keyspace;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// What the name of a store on etcd begins with.
pub const SCHEME: &str = "etcd://";

/// etcd's own default of `--quota-backend-bytes`.
const QUOTA: u64 = 2 << 30;

/// How members are spoken with.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Credentials {
    /// The certificate authority of the members; with it they are spoken with by TLS.
    pub ca: Option<PathBuf>,
    /// This client's certificate and key.
    pub pair: Option<(PathBuf, PathBuf)>,
    /// Name of a user, and the file that has its password.
    pub user: Option<(String, PathBuf)>,
}

/// A store on etcd.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// The members, as host and port.
    pub members: Vec<String>,
    /// Where in etcd it is.
    pub keys: Keyspace,
    /// How members are spoken with.
    pub credentials: Credentials,
    /// Bytes that etcd's database may have (`--quota-backend-bytes`), history included.
    pub quota: u64,
    /// Whether this etcd is the store's alone, so that the server removes old revisions.
    pub compacts: bool,
}

impl FromStr for Target {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let rest = text.strip_prefix(SCHEME).ok_or_else(|| format!("{text}: it begins with {SCHEME}"))?;
        let (place, options) = rest.split_once('?').unwrap_or((rest, ""));
        let (members, prefix) = place.split_once('/').unwrap_or((place, ""));
        let members: Vec<String> = members.split(',').map(str::to_owned).collect();
        let is_member = |member: &String| {
            let port = member.rsplit_once(':').map(|(host, port)| (!host.is_empty(), port.parse::<u16>()));
            matches!(port, Some((true, Ok(1..))))
        };
        if let Some(wrong) = members.iter().find(|member| !is_member(member)) {
            return Err(format!("{text}: {wrong:?} is no HOST:PORT of a member"));
        }
        let prefix = if prefix.is_empty() { "cistern" } else { prefix };
        let keys = Keyspace::new(&format!("/{prefix}"));
        let mut this = Self { members, keys, credentials: Credentials::default(), quota: QUOTA, compacts: false };
        let (mut certificate, mut key, mut user, mut password) = (None, None, None, None);
        for option in options.split('&').filter(|option| !option.is_empty()) {
            let (name, value) = option.split_once('=').ok_or_else(|| format!("{text}: {option:?} is no OPTION=VALUE"))?;
            let file = || Some(PathBuf::from(value));
            match (name, value) {
                ("ca", _) => this.credentials.ca = file(),
                ("cert", _) => certificate = file(),
                ("key", _) => key = file(),
                ("user", _) => user = Some(value.to_owned()),
                ("password-file", _) => password = file(),
                ("quota", _) => this.quota = cistern_text::size(value).map_err(|e| format!("{text}: quota: {e}"))?,
                ("compact", "own") => this.compacts = true,
                _ => return Err(format!("{text}: {option:?}: there are ca, cert, key, user, password-file, quota and compact=own")),
            }
        }
        this.credentials.pair = match (certificate, key) {
            (None, None) => None,
            (Some(certificate), Some(key)) if this.credentials.ca.is_some() => Some((certificate, key)),
            _ => return Err(format!("{text}: cert and key go together, and with ca")),
        };
        this.credentials.user = match (user, password) {
            (None, None) => None,
            (Some(user), Some(password)) => Some((user, password)),
            _ => return Err(format!("{text}: user and password-file go together")),
        };
        Ok(this)
    }
}

/// Members and place, without what is said of credentials.
impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{SCHEME}{}{}", self.members.join(","), self.keys.to_string().trim_end_matches('/'))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Target, String> {
        text.parse()
    }

    #[test]
    fn a_name_says_members_prefix_and_options() {
        let target = parse("etcd://a:2379,[::1]:2380/meta/one?ca=/c.pem&cert=/a.pem&key=/k.pem&quota=8G&compact=own").unwrap();
        assert_eq!(
            (target.members.as_slice(), target.quota, target.compacts),
            (&["a:2379".to_owned(), "[::1]:2380".to_owned()][..], 8 << 30, true)
        );
        assert_eq!(target.credentials.pair, Some(("/a.pem".into(), "/k.pem".into())));
        assert_eq!(target.to_string(), "etcd://a:2379,[::1]:2380/meta/one");
        let least = parse("etcd://a:2379").unwrap();
        assert_eq!((least.keys.to_string(), least.quota, least.compacts), ("/cistern/".to_owned(), 2 << 30, false));
    }

    #[test]
    fn what_is_wrong_is_told() {
        for (text, part) in [
            ("etcd://", "no HOST:PORT"),
            ("etcd://a", "no HOST:PORT"),
            ("etcd://a:0/x", "no HOST:PORT"),
            ("etcd://a:1,:2", "no HOST:PORT"),
            ("etcd://a:1/x?cert=/c", "go together"),
            ("etcd://a:1/x?user=u", "go together"),
            ("etcd://a:1/x?compact=yes", "compact=own"),
            ("etcd://a:1/x?quota=much", "quota"),
            ("etcd://a:1/x?own", "OPTION=VALUE"),
        ] {
            let told = parse(text).unwrap_err();
            assert!(told.contains(part), "{text}: {told}");
        }
    }
}
