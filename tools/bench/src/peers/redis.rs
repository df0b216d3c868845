//! Redis, one server, by its blocking client: with no log, pipelined on one connection; and with an fsync for every write.
//!
//! Decides its command line and its operations: SET NX PX and a script that deletes what is still one's own (its documentation's lock for
//! one server, which a pause of the holder breaks), SET, GET. With the log and many in flight each has a connection of its own, all asked before
//! any is heard. Source: Redis' documentation of SET, of pipelining and of persistence. Place: a peer.

use super::failover::{self, FailoverService};
use super::idle::{self, Sessions, TTL};
use super::process::{Process, directory, free_port, program};
use super::{Ask, MANY, Service, ServiceRound, histogram};
use crate::slot::WRITTEN;
use crate::trouble::Trouble;
use redis::{Client, Cmd, Connection, RedisError, Value, cmd};
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

/// Redis without a log, as it is called in tables.
pub(crate) const PIPELINED: &str = "Redis, no log, pipelined";
/// Deletes a key if it has the value that is one's own.
const UNLOCK: &str = "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end";
/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// Redis and connections to it.
struct Redis {
    connections: Vec<Connection>,
    logs: bool,
    unlock: String,
    process: Process,
}

/// A running Redis, with an fsync for every write or without a log, and a client of it; the inner error says why it is skipped.
fn started(dir: &Path, logs: bool) -> Result<Result<(Process, Client), String>, Trouble> {
    let Some(program) = program("redis-server") else {
        let why = "Redis is not installed (Debian: apt-get install redis-server): skipped.";
        return Ok(Err(why.to_owned()));
    };
    let (dir, listens) = (directory(dir)?, free_port()?);
    let mut command = Command::new(program);
    command.args(["--bind", &listens.ip().to_string(), "--port", &listens.port().to_string(), "--save", ""]);
    command.args(["--appendonly", if logs { "yes" } else { "no" }, "--appendfsync", "always"]).arg("--dir").arg(dir.path());
    command.args(["--maxclients", "100000"]);
    let process = Process::start(command, dir, listens)?;
    let client = Client::open(format!("redis://{listens}/")).map_err(Trouble::starting("connecting to Redis"))?;
    Ok(Ok((process, client)))
}

/// Starts it, with an fsync for every write or without a log; the inner error says why it is skipped.
pub(crate) fn start(dir: &Path, logs: bool) -> Result<Result<Box<dyn Service>, String>, Trouble> {
    let (process, client) = match started(dir, logs)? {
        Ok(started) => started,
        Err(skipped) => return Ok(Err(skipped)),
    };
    let connected = || {
        let mut connections = Vec::with_capacity(MANY);
        for _ in 0..if logs { MANY } else { 1 } {
            let connection = client.get_connection()?;
            connection.set_read_timeout(Some(PATIENCE))?;
            connections.push(connection);
        }
        for key in 0..MANY {
            cmd("SET").arg(format!("key-{key}")).arg(&[0_u8; WRITTEN]).exec(&mut connections[0])?;
        }
        let unlock: String = cmd("SCRIPT").arg("LOAD").arg(UNLOCK).query(&mut connections[0])?;
        Ok::<_, RedisError>((connections, unlock))
    };
    let (connections, unlock) = connected().map_err(Trouble::starting("connecting to Redis"))?;
    Ok(Ok(Box::new(Redis { connections, logs, unlock, process })))
}

impl Redis {
    /// One after the other: what an operation is made of.
    fn steps(&self, ask: Ask, key: usize) -> Vec<Cmd> {
        let name = format!("{}-{key}", if ask == Ask::Lock { "lock" } else { "key" });
        match ask {
            Ask::Lock => {
                let take = cmd("SET").arg(&name).arg("token").arg("NX").arg("PX").arg(10_000).to_owned();
                vec![take, cmd("EVALSHA").arg(&self.unlock).arg(1).arg(&name).arg("token").to_owned()]
            }
            Ask::Write => vec![cmd("SET").arg(&name).arg(&[1_u8; WRITTEN]).to_owned()],
            Ask::Read => vec![cmd("GET").arg(&name).to_owned()],
        }
    }

    /// The same step of all that is in flight, sent together; then all answers.
    fn together(&mut self, ask: Ask, step: &[Vec<u8>]) -> Result<(), RedisError> {
        let connections = self.connections.len();
        for (key, packed) in step.iter().enumerate() {
            if connections > 1 {
                self.connections[key % connections].send_packed_command(packed)?;
            }
        }
        if connections == 1 {
            self.connections[0].send_packed_command(&step.concat())?;
        }
        for key in 0..step.len() {
            let answer = self.connections[key % connections].recv_response()?;
            // A lock that was not had, or not ours to give back.
            if ask == Ask::Lock && matches!(answer, Value::Nil | Value::Int(0)) {
                return Err((redis::ErrorKind::UnexpectedReturnType, "a lock that nobody else wants was refused").into());
            }
        }
        Ok(())
    }
}

impl Service for Redis {
    fn name(&self) -> String {
        if self.logs { "Redis, fsync always".to_owned() } else { PIPELINED.to_owned() }
    }

    fn takes(&self, ask: Ask, _in_flight: usize) -> bool {
        // Without a log no write is durable; with one a read is the same.
        match ask {
            Ask::Lock => true,
            Ask::Write => self.logs,
            Ask::Read => !self.logs,
        }
    }

    fn round(&mut self, ask: Ask, in_flight: usize, span: Duration) -> Result<ServiceRound, Trouble> {
        let wrong = |error: RedisError| Trouble::Answer { while_doing: "asking Redis", expected: "success", got: error.to_string() };
        let operations: Vec<Vec<Cmd>> = (0..in_flight).map(|key| self.steps(ask, key)).collect();
        let step = |at: usize| operations.iter().map(|steps| steps[at].get_packed_command()).collect::<Vec<_>>();
        let steps: Vec<Vec<Vec<u8>>> = (0..operations[0].len()).map(step).collect();
        let (before, begin, mut took_ns) = (self.process.cpu_ns()?, Instant::now(), histogram());
        while begin.elapsed() < span {
            let from = Instant::now();
            steps.iter().try_for_each(|step| self.together(ask, step)).map_err(wrong)?;
            took_ns.saturating_record_n(u64::try_from(from.elapsed().as_nanos()).unwrap_or(u64::MAX), in_flight as u64);
        }
        Ok(ServiceRound { operations: took_ns.len(), elapsed: begin.elapsed(), took_ns, cpu_ns: self.process.cpu_ns()? - before })
    }
}

/// Connections, each with a key that it sets anew.
struct RedisConnections {
    client: Client,
    connections: Vec<Connection>,
    /// The one that sets its key next.
    next: usize,
    process: Process,
}

/// Starts it for connections that only keep their keys; the inner error says why it is skipped.
pub(crate) fn sessions(dir: &Path) -> Result<idle::Started, Trouble> {
    let connections =
        |(process, client)| Box::new(RedisConnections { client, connections: Vec::new(), next: 0, process }) as Box<dyn Sessions>;
    Ok(started(dir, false)?.map(connections))
}

impl RedisConnections {
    fn set(&mut self, at: usize) -> Result<(), RedisError> {
        let (key, lives) = (format!("session-{at}"), u64::try_from(TTL.as_millis()).unwrap_or(u64::MAX));
        cmd("SET").arg(key).arg("here").arg("PX").arg(lives).exec(&mut self.connections[at])
    }
}

impl Sessions for RedisConnections {
    fn name(&self) -> String {
        "Redis".to_owned()
    }

    fn open(&mut self, wanted: usize, within: Duration) -> Result<usize, Trouble> {
        let begin = Instant::now();
        while self.connections.len() < wanted && begin.elapsed() < within {
            let at = self.connections.len();
            let opened = self.client.get_connection().and_then(|connection| {
                self.connections.push(connection);
                self.set(at)
            });
            match opened {
                Ok(()) => {}
                Err(error) if at == 0 => return Err(Trouble::starting("opening sessions of a peer")(error)),
                // As many as the system lets.
                Err(_) => {
                    self.connections.truncate(at);
                    break;
                }
            }
        }
        Ok(self.connections.len())
    }

    fn keep(&mut self, span: Duration) -> Result<(), Trouble> {
        let gap = TTL / 3 / u32::try_from(self.connections.len()).unwrap_or(u32::MAX);
        let (begin, mut due) = (Instant::now(), Instant::now());
        while begin.elapsed() < span {
            self.set(self.next).map_err(Trouble::starting("keeping a key of Redis"))?;
            self.next = (self.next + 1) % self.connections.len();
            due += gap;
            thread::sleep(due.saturating_duration_since(Instant::now()));
        }
        Ok(())
    }

    fn used(&self) -> Result<(u64, u64), Trouble> {
        self.process.used()
    }
}

/// A key that holds for 100 ms.
struct RedisExpiry {
    holder: Connection,
    waiter: Connection,
    // Ended last: both are connected to it.
    _process: Process,
}

/// How long the holder's key lives, in milliseconds, and how often the waiter asks.
const EXPIRY_MS: u64 = 100;
const ASKS: Duration = Duration::from_millis(1);

/// Starts it for failovers; the inner error says why it is skipped.
pub(crate) fn failover(dir: &Path) -> Result<failover::Started, Trouble> {
    let (process, client) = match started(dir, false)? {
        Ok(started) => started,
        Err(skipped) => return Ok(Err(skipped)),
    };
    let connected = || Ok::<_, RedisError>((client.get_connection()?, client.get_connection()?));
    let (holder, waiter) = connected().map_err(Trouble::starting("connecting to Redis"))?;
    Ok(Ok(Box::new(RedisExpiry { holder, waiter, _process: process })))
}

impl FailoverService for RedisExpiry {
    fn name(&self) -> String {
        format!("Redis, SET PX {EXPIRY_MS} (not safe)")
    }

    fn round(&mut self) -> Result<Duration, Trouble> {
        const LOCK: &str = "failover";
        let wrong = |error: RedisError| Trouble::starting("a failover of Redis")(error);
        let mut take = cmd("SET");
        take.arg(LOCK).arg("token").arg("NX").arg("PX").arg(EXPIRY_MS);
        take.exec(&mut self.holder).map_err(wrong)?;
        let begin = Instant::now();
        while take.query::<Option<String>>(&mut self.waiter).map_err(wrong)?.is_none() {
            if begin.elapsed() > PATIENCE {
                return Err(Trouble::Silence { while_doing: "waiting for a key of Redis", seconds: PATIENCE.as_secs() });
            }
            thread::sleep(ASKS);
        }
        let took = begin.elapsed();
        cmd("DEL").arg(LOCK).exec(&mut self.waiter).map_err(wrong)?;
        Ok(took)
    }
}
