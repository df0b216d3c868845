//! The members of etcd, and calls to them by etcd's client.
//!
//! Decides: which member is asked first (that which answered last), when a second one is asked the same (identical transactions are
//! harmless), and which errors are definite. A channel to each member: a client's own choice would ask a dead one every third time.
//! Leaves to others: what is asked (`sequencer`), how often (`engine`).

use crate::record::end_of;
use crate::target::Target;
use crate::txn::{Answer, Compare, Entry, Header, Op, Outcome, Txn};
use bytes::Bytes;
use etcd_client as etcd;
use etcd_client::{Certificate, Client, CompactionOptions, CompareOp, ConnectOptions, Error, GetOptions, Identity, TlsOptions};
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::OnceCell;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

/// After this time without an answer a second member is asked the same.
const SECOND_AFTER: Duration = Duration::from_millis(50);
/// Time that a member is given for an answer at first; twice as much each time, up to the longest.
const LIMIT: Duration = Duration::from_millis(200);
const LIMIT_MAX: Duration = Duration::from_millis(3_200);
/// Between two signs of life of an idle connection: etcd ends connections on which they come more often than every 5 s.
const KEEP_ALIVE: Duration = Duration::from_secs(6);
/// Most bytes of an answer.
const ANSWER_MAX: usize = 64 << 20;

/// What etcd says of a token that is older than its users and their rights; of it and of a wrong password by the status of what is malformed.
const OLD_TOKEN: &str = "revision of auth store is old";
const WRONG_PASSWORD: &str = "authentication failed";

// gRPC's status codes.
const INVALID_ARGUMENT: i32 = 3;
const RESOURCE_EXHAUSTED: i32 = 8;

/// A key and its value, without prefix.
pub(super) type Pair = (Vec<u8>, Bytes);

struct Member {
    url: String,
    options: ConnectOptions,
    client: OnceCell<Client>,
}

impl Member {
    /// Asks it by the connection, which is made when it is first needed. A token that was made before users or their rights have changed is
    /// no longer taken, and the client asks for another one by itself only when it is told that its token is unknown.
    async fn ask<T, F: Future<Output = Result<T, Error>>>(&self, call: impl FnOnce(Client) -> F) -> Result<T, Error> {
        let connect = || Client::connect([self.url.clone()], Some(self.options.clone()));
        let client = self.client.get_or_try_init(connect).await?;
        let answer = call(client.clone()).await;
        if answer.as_ref().is_err_and(|e| words(e).contains(OLD_TOKEN)) {
            client.refresh_token().await?;
        }
        answer
    }
}

/// All members.
pub(super) struct Members {
    members: Vec<Arc<Member>>,
    /// The one that answered last.
    first: AtomicUsize,
    /// What the last error was, for the log.
    trouble: Mutex<String>,
}

impl Members {
    /// Of a store; connections are made when they are needed.
    ///
    /// # Errors
    /// A file of the credentials cannot be read.
    pub(super) fn new(target: &Target) -> Result<Self, String> {
        let (credentials, read) = (&target.credentials, |path: &Path| fs::read(path).map_err(|e| format!("{}: {e}", path.display())));
        let mut options = ConnectOptions::new()
            .with_connect_timeout(LIMIT_MAX)
            .with_keep_alive(KEEP_ALIVE, LIMIT_MAX)
            .with_keep_alive_while_idle(true)
            .with_auto_token_refresh(true);
        if let Some(ca) = &credentials.ca {
            let mut tls = TlsOptions::new().ca_certificate(Certificate::from_pem(read(ca)?));
            if let Some((certificate, key)) = &credentials.pair {
                tls = tls.identity(Identity::from_pem(read(certificate)?, read(key)?));
            }
            options = options.with_tls(tls);
        }
        if let Some((user, password)) = &credentials.user {
            let password = String::from_utf8_lossy(&read(password)?).trim_end().to_owned();
            options = options.with_user(user, password);
        }
        let scheme = if credentials.ca.is_some() { "https" } else { "http" };
        let member =
            |member: &String| Arc::new(Member { url: format!("{scheme}://{member}"), options: options.clone(), client: OnceCell::new() });
        Ok(Self { members: target.members.iter().map(member).collect(), first: AtomicUsize::new(0), trouble: Mutex::default() })
    }

    /// The last error.
    pub(super) fn trouble(&self) -> String {
        self.trouble.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Asks one member, and another one if it does not answer soon. `tries`: how often the same was asked before.
    async fn ask<T, F>(&self, tries: u32, call: impl FnOnce(Client) -> F + Clone + Send + 'static) -> Result<T, Error>
    where
        F: Future<Output = Result<T, Error>> + Send,
        T: Send + 'static,
    {
        let limit = LIMIT.saturating_mul(1 << tries.min(4)).min(LIMIT_MAX);
        let count = self.members.len();
        // Each member in turn, as tries go by; two at a time.
        let start = self.first.load(Ordering::Relaxed) + usize::try_from(tries).unwrap_or(0);
        let mut next = (0..count.min(2)).map(|n| (start + n) % count);
        let mut running = JoinSet::new();
        let mut last = None;
        loop {
            if let Some(at) = next.next() {
                let (member, call) = (Arc::clone(&self.members[at]), call.clone());
                running.spawn(async move { (at, timeout(limit, member.ask(call)).await.unwrap_or_else(|_| Err(late(&member.url)))) });
            }
            let answered = tokio::select! {
                answered = running.join_next() => answered,
                () = sleep(SECOND_AFTER), if next.len() > 0 => continue,
            };
            match answered {
                Some(Ok((at, Ok(answer)))) => {
                    self.first.store(at, Ordering::Relaxed);
                    return Ok(answer);
                }
                Some(Ok((_, Err(e)))) if is_definite(&e) => return Err(e),
                Some(Ok((_, Err(e)))) => last = Some(e),
                // A task that panicked has no answer.
                Some(Err(_)) => {}
                None => break,
            }
        }
        let e = last.unwrap_or_else(|| late("etcd"));
        *self.trouble.lock().unwrap_or_else(PoisonError::into_inner) = words(&e);
        Err(e)
    }

    /// Asks a transaction once, of up to two members.
    pub(super) async fn execute(&self, txn: &Txn, tries: u32) -> Outcome {
        let request = request(txn);
        let asked =
            self.ask(tries, move |client| async move { client.kv_client().max_decoding_message_size(ANSWER_MAX).txn(request).await });
        match asked.await {
            Ok(response) => answer(&response).map_or(Outcome::Unknown, Outcome::Answered),
            Err(e) if is_malformed(&e) => Outcome::Refused(words(&e)),
            Err(e) if is_no_space(&e) => Outcome::NoSpace,
            Err(_) => Outcome::Unknown,
        }
    }

    /// The values of keys in `from..to`, at most `limit`, and whether there are no more. Of the revision `at`; 0: of the newest.
    ///
    /// # Errors
    /// In words; asking again may help.
    pub(super) async fn range(
        &self,
        from: &[u8],
        to: &[u8],
        limit: usize,
        at: u64,
        tries: u32,
    ) -> Result<(Vec<Pair>, bool, Header), String> {
        let (limit, at) = (i64::try_from(limit).unwrap_or(i64::MAX), i64::try_from(at).unwrap_or(0));
        let options = GetOptions::new().with_range(to).with_limit(limit).with_revision(at);
        self.get(from, options, tries).await
    }

    /// The value of a key.
    ///
    /// # Errors
    /// In words; asking again may help.
    pub(super) async fn value(&self, key: &[u8], tries: u32) -> Result<(Option<Bytes>, Header), String> {
        let (mut found, _, header) = self.get(key, GetOptions::new(), tries).await?;
        Ok((found.pop().map(|found| found.1), header))
    }

    async fn get(&self, from: &[u8], options: GetOptions, tries: u32) -> Result<(Vec<Pair>, bool, Header), String> {
        let from = from.to_vec();
        let asked = self.ask(tries, move |client| async move {
            client.kv_client().max_decoding_message_size(ANSWER_MAX).get(from, Some(options)).await
        });
        let mut response = asked.await.map_err(|e| words(&e))?;
        let header = header(response.header()).ok_or("an answer without a header")?;
        let is_end = !response.more();
        let pair = |kv: etcd::KeyValue| {
            let (key, value) = kv.into_key_value();
            (key, Bytes::from(value))
        };
        Ok((response.take_kvs().into_iter().map(pair).collect(), is_end, header))
    }

    /// Bytes of etcd's database, at the member that answers.
    ///
    /// # Errors
    /// In words.
    pub(super) async fn size(&self) -> Result<u64, String> {
        let asked = self.ask(0, |client| async move { client.maintenance_client().status().await });
        let status = asked.await.map_err(|e| words(&e))?;
        Ok(u64::try_from(status.db_size()).unwrap_or(0))
    }

    /// Removes what is older than a revision.
    ///
    /// # Errors
    /// In words.
    pub(super) async fn compact(&self, revision: u64) -> Result<(), String> {
        let revision = i64::try_from(revision).unwrap_or(i64::MAX);
        let asked = self.ask(0, move |client| async move { client.kv_client().compact(revision, Some(CompactionOptions::new())).await });
        asked.await.map(drop).map_err(|e| words(&e))
    }
}

fn late(who: &str) -> Error {
    Error::EndpointError(format!("{who}: no answer in time"))
}

fn code(error: &Error) -> Option<i32> {
    if let Error::GRpcStatus(status) = error { Some(status.code() as i32) } else { None }
}

fn is_no_space(error: &Error) -> bool {
    code(error) == Some(RESOURCE_EXHAUSTED) && words(error).contains("database space exceeded")
}

/// Whether it can never be executed, whoever asks.
fn is_malformed(error: &Error) -> bool {
    code(error) == Some(INVALID_ARGUMENT) && [OLD_TOKEN, WRONG_PASSWORD].iter().all(|of_whom| !words(error).contains(of_whom))
}

/// Whether no other member says anything else.
fn is_definite(error: &Error) -> bool {
    is_malformed(error) || is_no_space(error)
}

fn words(error: &Error) -> String {
    match error {
        Error::GRpcStatus(status) => status.message().to_owned(),
        e => e.to_string(),
    }
}

fn request(txn: &Txn) -> etcd::Txn {
    let compare = |compare: &Compare| match compare {
        Compare::Revision(key, revision) => {
            etcd::Compare::mod_revision(&key[..], CompareOp::Equal, i64::try_from(*revision).unwrap_or(i64::MAX))
        }
        Compare::Value(key, Some(value)) => etcd::Compare::value(&key[..], CompareOp::Equal, &value[..]),
        Compare::Value(key, None) => etcd::Compare::version(&key[..], CompareOp::Equal, 0),
    };
    let op = |op: &Op| match op {
        Op::Put(key, value) => etcd::TxnOp::put(&key[..], &value[..], None),
        Op::Delete(key) => etcd::TxnOp::delete(&key[..], None),
        Op::Clear(from, to) => etcd::TxnOp::delete(&from[..], Some(etcd::DeleteOptions::new().with_range(&to[..]))),
        Op::Get(key) => etcd::TxnOp::get(&key[..], None),
        Op::Any(prefix) => {
            let options = GetOptions::new().with_range(&end_of(prefix)[..]).with_limit(1).with_keys_only();
            etcd::TxnOp::get(&prefix[..], Some(options))
        }
    };
    let ops = |ops: &[Op]| ops.iter().map(op).collect::<Vec<_>>();
    etcd::Txn::new().when(txn.compares.iter().map(compare).collect::<Vec<_>>()).and_then(ops(&txn.then)).or_else(ops(&txn.otherwise))
}

fn answer(response: &etcd::TxnResponse) -> Option<Answer> {
    let found = response.op_responses().into_iter().filter_map(|of_op| match of_op {
        etcd::TxnOpResponse::Get(mut got) => Some(got.take_kvs().into_iter().next().map(|kv| {
            let revision = u64::try_from(kv.mod_revision()).unwrap_or(0);
            Entry { value: kv.into_key_value().1.into(), revision }
        })),
        _ => None,
    });
    Some(Answer { header: header(response.header())?, succeeded: response.succeeded(), found: found.collect() })
}

fn header(header: Option<&etcd::ResponseHeader>) -> Option<Header> {
    let header = header?;
    Some(Header { cluster: header.cluster_id(), revision: u64::try_from(header.revision()).ok()? })
}
