//! The store on an etcd that asks who its clients are: by certificates, made here with `openssl`, and by passwords. Skipped, with a printed
//! reason, where etcd or `openssl` is not installed.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on says where")]

use bytes::Bytes;
use cistern_server::store::{Batch, Key, StoreEvent, StoreWork};
use cistern_store::OpenError;
use cistern_store_etcd::{EtcdStore, StoppedEtcd, Target, create};
use cistern_testkit::{Etcds, said};
use cistern_wire::{ObjectId, StoreId};
use std::fs;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::Command;
use std::thread;
use std::time::Duration;
use tempfile::TempDir;

const LONG: Duration = Duration::from_secs(30);
const PASSWORD: &str = "as secret as a test has it";

/// An authority, and what it has signed.
struct Authority(TempDir);

impl Authority {
    /// A new one; nothing where there is no `openssl`.
    fn new() -> Option<Self> {
        if Command::new("openssl").arg("version").output().is_err() {
            // Not captured as the output of passed tests is.
            let _ = std::io::stderr().write_all(b"skipped: tests with certificates need the program openssl: apt-get install openssl\n");
            return None;
        }
        let this = Self(tempfile::tempdir().unwrap());
        this.openssl(
            "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout ca.key -out ca.pem -days 2 -subj /CN=authority",
        );
        Some(this)
    }

    fn openssl(&self, words: &str) {
        let output = Command::new("openssl").args(words.split(' ')).current_dir(self.0.path()).output().unwrap();
        assert!(output.status.success(), "openssl {words}: {}", said(&output));
    }

    /// Makes a certificate of this name for loopback, and its key.
    fn sign(&self, name: &str) {
        fs::write(self.0.path().join("names"), "subjectAltName=IP:127.0.0.1\nextendedKeyUsage=serverAuth,clientAuth\n").unwrap();
        self.openssl(&format!(
            "req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout {name}.key -out {name}.csr -subj /CN={name}"
        ));
        self.openssl(&format!("x509 -req -in {name}.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -extfile names -out {name}.pem"));
    }

    fn file(&self, name: &str) -> String {
        self.0.path().join(name).to_str().unwrap().to_owned()
    }

    /// An etcd that speaks with those alone whom this authority has signed.
    fn etcd(&self) -> Option<Etcds> {
        self.sign("member");
        let [cert, key, ca] = ["member.pem", "member.key", "ca.pem"].map(|name| self.file(name));
        Etcds::start(1, &["--cert-file", &cert, "--key-file", &key, "--trusted-ca-file", &ca, "--client-cert-auth"])
    }

    /// The options of a client with this certificate.
    fn options(&self, ca: &str, name: &str) -> String {
        format!("ca={ca}&cert={}&key={}", self.file(&format!("{name}.pem")), self.file(&format!("{name}.key")))
    }
}

fn target(etcds: &Etcds, options: &str) -> Target {
    format!("{}?{options}", etcds.store("test")).parse().unwrap()
}

fn made(target: &Target) -> Result<(), OpenError> {
    create(target, StoreId([7; 16]), [])
}

fn persist(store: &mut EtcdStore, id: u64) {
    store.take(StoreWork::Persist(Batch { id, writes: vec![(Key::Object(ObjectId(id)), Some(Bytes::from_static(b"v")))] }));
}

fn is_durable(store: &mut EtcdStore, id: u64) {
    assert_eq!(store.event_within(LONG), Some(StoreEvent::Durable(id)));
}

#[test]
fn by_tls_whom_the_authority_has_signed_is_served_and_nobody_else() {
    let (Some(authority), Some(other)) = (Authority::new(), Authority::new()) else { return };
    let Some(etcds) = authority.etcd() else { return };
    authority.sign("server");
    other.sign("server");
    let ca = authority.file("ca.pem");
    let good = target(&etcds, &authority.options(&ca, "server"));
    made(&good).unwrap();
    let mut store = EtcdStore::open(&good, "one", || {}).unwrap();
    persist(&mut store, 1);
    is_durable(&mut store, 1);
    assert_eq!(StoppedEtcd::open(&good).unwrap().iter().count(), 1);
    for (who, options) in [
        ("in clear", String::new()),
        ("without a certificate", format!("ca={ca}")),
        ("signed by another authority", other.options(&ca, "server")),
        ("who trusts another authority", authority.options(&other.file("ca.pem"), "server")),
    ] {
        assert!(StoppedEtcd::open(&target(&etcds, &options)).is_err(), "{who}");
    }
    let missing = made(&target(&etcds, &format!("ca={}", authority.file("nowhere.pem")))).unwrap_err();
    assert!(missing.what.contains("nowhere.pem"), "{missing}");
}

/// An etcd where a user may write the store's prefix, and the options of that user.
fn with_password(flags: &[&str]) -> Option<(Etcds, String, TempDir)> {
    let etcds = Etcds::start(1, flags)?;
    etcds.require_passwords("server", PASSWORD, "/test/");
    let dir = tempfile::tempdir().unwrap();
    let options = format!("user=server&password-file={}", password_file(&dir, "right", PASSWORD).display());
    Some((etcds, options, dir))
}

/// As an editor leaves it: with an end of line.
fn password_file(dir: &TempDir, name: &str, password: &str) -> PathBuf {
    let file = dir.path().join(name);
    fs::write(&file, format!("{password}\n")).unwrap();
    file
}

#[test]
fn a_user_with_a_password_needs_rights_on_the_prefix_alone() {
    let Some((etcds, options, dir)) = with_password(&[]) else { return };
    let good = target(&etcds, &options);
    made(&good).unwrap();
    let mut store = EtcdStore::open(&good, "one", || {}).unwrap();
    persist(&mut store, 1);
    is_durable(&mut store, 1);
    let elsewhere: Target = format!("{}?{options}", etcds.store("other")).parse().unwrap();
    let refused = made(&elsewhere).unwrap_err();
    assert!(refused.what.contains("permission denied"), "{refused}");
    let wrong = password_file(&dir, "wrong", "a guess");
    for options in ["", &format!("user=server&password-file={}", wrong.display())] {
        let refused = StoppedEtcd::open(&target(&etcds, options)).map(drop).unwrap_err();
        assert!(refused.what.contains("user name") || refused.what.contains("authentication failed"), "{options}: {refused}");
    }
}

#[test]
fn a_server_whose_password_is_refused_waits_until_it_is_right() {
    let Some((etcds, options, dir)) = with_password(&[]) else { return };
    made(&target(&etcds, &options)).unwrap();
    let wrong = password_file(&dir, "wrong", "mended soon");
    let early = target(&etcds, &format!("user=server&password-file={}", wrong.display()));
    let opening = thread::spawn(move || EtcdStore::open(&early, "one", || {}));
    thread::sleep(Duration::from_secs(1));
    assert!(!opening.is_finished(), "{:?}", opening.join());
    etcds.change_password("server", "mended soon", PASSWORD);
    let mut store = opening.join().unwrap().unwrap();
    persist(&mut store, 1);
    is_durable(&mut store, 1);
}

#[test]
fn tokens_may_become_invalid_while_the_server_runs() {
    let Some((mut etcds, options, _dir)) = with_password(&[]) else { return };
    let target = target(&etcds, &options);
    made(&target).unwrap();
    let mut store = EtcdStore::open(&target, "one", || {}).unwrap();
    persist(&mut store, 1);
    is_durable(&mut store, 1);
    // It knows no token of before.
    etcds.kill(0);
    etcds.run(0);
    etcds.leader();
    persist(&mut store, 2);
    is_durable(&mut store, 2);
}

#[test]
fn users_may_change_while_the_server_runs_with_a_token_that_says_of_when_it_is() {
    let Some(authority) = Authority::new() else { return };
    authority.openssl("genrsa -out token.key 2048");
    authority.openssl("rsa -in token.key -pubout -out token.pub");
    let [public, private] = ["token.pub", "token.key"].map(|name| authority.file(name));
    let tokens = format!("jwt,pub-key={public},priv-key={private},sign-method=RS256,ttl=1h");
    let Some((etcds, options, _dir)) = with_password(&["--auth-token", &tokens]) else { return };
    let target = target(&etcds, &options);
    made(&target).unwrap();
    let mut store = EtcdStore::open(&target, "one", || {}).unwrap();
    persist(&mut store, 1);
    is_durable(&mut store, 1);
    etcds.add_user("somebody", PASSWORD);
    persist(&mut store, 2);
    is_durable(&mut store, 2);
}
