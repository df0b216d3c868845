def sub(path, old, new, cnt=1):
    s=open(path).read()
    assert old in s, (path, old)
    s=s.replace(old,new,cnt); open(path,'w').write(s)
p='crates/seal/src/work.rs'
sub(p,'''    /// The same, which tells its sessions''','''    /// Takes other keys from now on; what was begun goes on.
    pub fn set_keys(&mut self, keys: impl IntoIterator<Item = SecretKey>) {
        self.keys = keys.into_iter().map(|key| (KeyId::of(&key.public()), key)).collect();
    }

    /// The same, which tells its sessions''')
p='crates/driver/src/seal_workers.rs'
sub(p,'''/// The threads.
#[derive(Debug)]
pub struct SealWorkers {
    to: Vec<Sender<SealWork>>,''','''/// What a thread is given.
enum Given {
    Work(SealWork),
    Keys(Vec<SecretKey>),
}

/// The threads.
#[derive(Debug)]
pub struct SealWorkers {
    to: Vec<Sender<Given>>,''')
sub(p,'''                for work in work {
                    let answered''','''                for given in work {
                    let work = match given {
                        Given::Work(work) => work,
                        Given::Keys(keys) => {
                            worker.set_keys(keys);
                            continue;
                        }
                    };
                    let answered''')
sub(p,'''    /// Takes a piece of work.''','''    /// Has the threads take other keys, behind what they were given before.
    pub fn set_keys(&self, keys: &[SecretKey]) {
        for to in &self.to {
            // One that has ended is told of where it is given work.
            let _ = to.send(Given::Keys(keys.to_vec()));
        }
    }

    /// Takes a piece of work.''')
sub(p,'to.send(work).is_err()','to.send(Given::Work(work)).is_err()')
p='crates/server/src/gate/mod.rs'
sub(p,'''    /// The check of the key that a datagram names''','''    /// Other keys from now on.
    pub(crate) fn set_keys(&mut self, keys: &[PublicKey]) {
        self.keys = keys.iter().map(|key| (KeyId::of(key), FirstCheck::of(key))).collect();
    }

    /// The check of the key that a datagram names''')
p='crates/server/src/server/sealed.rs'
sub(p,'''    /// The next work for a worker;''','''    /// Other keys from now on, of which the workers have the private halves: sessions and handshakes under the former ones go on.
    pub fn set_keys(&mut self, now: Instant, keys: &[PublicKey]) {
        self.step(now, |server| {
            if let Some(gate) = &mut server.gate {
                gate.set_keys(keys);
            }
        });
    }

    /// The next work for a worker;''')
p='crates/cli/src/commands/serve/sealing.rs'
sub(p,'''    /// Hands back what is done''','''    /// Takes up what was read again.
    pub(super) fn adopt(&mut self, server: &mut Server, now: Instant, keys: &ServerKeys) {
        // The threads first: what names a key that they do not have fails.
        self.workers.set_keys(&keys.keys);
        server.set_keys(now, &keys.keys.iter().map(SecretKey::public).collect::<Vec<_>>());
        server.set_roster(now, roster_of(&keys.pinned));
    }

    /// Hands back what is done''')
s=open(p).read()
s+='''
/// The keys and the roster of a running server, as SIGHUP has them read again.
#[derive(Debug)]
pub(super) struct KeysInForce {
    dir: PathBuf,
    state: Mutex<(Pinned, Option<ServerKeys>)>,
}

impl KeysInForce {
    pub(super) fn new(dir: &Path, keys: &ServerKeys) -> Arc<Self> {
        Arc::new(Self { dir: dir.to_owned(), state: Mutex::new((keys.pinned.clone(), None)) })
    }

    /// What is to be taken up now.
    pub(super) fn take(&self) -> Option<ServerKeys> {
        self.state().1.take()
    }

    /// Reads them again. What is not to be taken changes nothing.
    pub(super) fn reload(&self) {
        let stay = |what: &dyn Display| log::error!("server: SIGHUP: {what}; keys and roster stay as they were");
        let dir = self.dir.display();
        let keys = match ServerKeys::read(&self.dir) {
            Ok(Some(keys)) => keys,
            Ok(None) => return stay(&format_args!("{dir} has no keys any more")),
            Err(error) => return stay(&error),
        };
        let mut state = self.state();
        let (known, pending) = &mut *state;
        if keys.pinned.cluster() != known.cluster() {
            return stay(&format_args!("the roster in {dir} is that of another cluster"));
        }
        let (before, now) = (known.roster().version, keys.pinned.roster().version);
        match known.offer(keys.pinned.signed().as_bytes()) {
            Ok(Offered::Older) => return stay(&format_args!("the roster in {dir} has version {now}, and {before} is in force")),
            Ok(Offered::Taken) => log::info!("server: SIGHUP: roster {now} is in force from now on"),
            Ok(Offered::Known) => {}
            Err(error) => return stay(&error),
        }
        *pending = Some(keys);
    }

    fn state(&self) -> MutexGuard<'_, (Pinned, Option<ServerKeys>)> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
'''
s=s.replace('use std::path::Path;','use std::fmt::Display;\nuse std::path::{Path, PathBuf};\nuse std::sync::{Arc, Mutex, MutexGuard, PoisonError};',1).replace('use cistern_trust::Pinned;','use cistern_trust::{Offered, Pinned};',1)
open(p,'w').write(s)
p='crates/cli/src/commands/serve.rs'
sub(p,'use sealing::{Sealing, read_keys_of};','use sealing::{KeysInForce, Sealing, read_keys_of};')
sub(p,'''    event_loop.services_mut().in_force = Arc::clone(&in_force);
''','''    event_loop.services_mut().in_force = Arc::clone(&in_force);
    let keys_in_force = keys.as_ref().map(|keys| KeysInForce::new(state.path(), keys));
    event_loop.services_mut().keys_in_force.clone_from(&keys_in_force);
''')
sub(p,'''            in_force.reload();
''','''            in_force.reload();
            keys_in_force.iter().for_each(|keys| keys.reload());
''')
sub(p,'''    in_force: Arc<InForce>,
    clock: Clock,''','''    in_force: Arc<InForce>,
    keys_in_force: Option<Arc<KeysInForce>>,
    clock: Clock,''')
sub(p,'''        in_force: Arc::default(),
        clock:''','''        in_force: Arc::default(),
        keys_in_force: None,
        clock:''')
sub(p,'''        if let Some(sealing) = &mut self.sealing {
            sealing.serve(server, now);''','''        if let Some(sealing) = &mut self.sealing {
            if let Some(keys) = self.keys_in_force.as_ref().and_then(|keys| keys.take()) {
                sealing.adopt(server, now, &keys);
            }
            sealing.serve(server, now);''')
p='docs/operating.md'
sub(p,"Both need `cluster.key`, and a restart of the\n  server.","Both need `cluster.key`; `systemctl reload\n  cisternd` (SIGHUP) then has the server take up keys and roster. It refuses, with a line in its log, a roster that is older than the one in force or of another cluster.")
