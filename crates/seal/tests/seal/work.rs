use cistern_seal::key::KeyId;
use cistern_seal::work::{Beginning, Handshaker, JobId, KeyHolder, Opening, SealDone, SealWork, Worker};
use cistern_seal::{Chain, Entropy, Psk, PublicKey, SecretKey};
use cistern_wire::sealed::{OpenPayload, PROLOGUE_LEN, WelcomePayload};
use cistern_wire::{open_payload_sample, welcome_payload_sample};

const PROLOGUE: [u8; PROLOGUE_LEN] = [1; PROLOGUE_LEN];

fn agent() -> impl Handshaker {
    let mut drawn = 0;
    KeyHolder::new(SecretKey::from_bytes([1; 32]), move || {
        drawn += 1;
        Entropy::from_bytes([drawn; 32])
    })
}

fn server() -> (Worker, [PublicKey; 2]) {
    let keys = [SecretKey::from_bytes([2; 32]), SecretKey::from_bytes([3; 32])];
    let public = [keys[0].public(), keys[1].public()];
    (Worker::new(keys), public)
}

fn entropy() -> Entropy {
    Entropy::from_bytes([9; 32])
}

fn payload() -> [u8; OpenPayload::OPEN_LEN] {
    open_payload_sample().padded()
}

fn read(job: u64, opening: Opening, message: &[u8]) -> SealWork {
    SealWork::Read { job: JobId(job), opening, prologue: PROLOGUE, message: message.to_vec() }
}

fn write(job: u64, psk: Psk) -> SealWork {
    SealWork::Write { job: JobId(job), psk, payload: welcome_payload_sample().padded() }
}

/// Message 2 and the server's chain.
fn written(done: Option<SealDone>) -> (Vec<u8>, Chain) {
    match done {
        Some(SealDone::Written { message, chain, .. }) => (message, chain),
        _ => panic!("it is not answered"),
    }
}

fn failed(done: Option<SealDone>) -> bool {
    matches!(done, Some(SealDone::Failed { job: JobId(7) }))
}

#[test]
fn agent_and_worker_come_to_one_chain_by_either_of_the_servers_keys() {
    let (mut worker, public) = server();
    for key in &public {
        let (mut agent, psk) = (agent(), Psk::from_bytes([5; 32]));
        let first = agent.begin(&Beginning::Open(key, &psk), &PROLOGUE, &payload()).unwrap();
        let Some(SealDone::Read { job: JobId(7), peer, payload: said }) =
            worker.work(read(7, Opening::Open(KeyId::of(key)), &first), entropy())
        else {
            panic!("it is not read")
        };
        assert_eq!((peer, said.as_slice()), (Some(SecretKey::from_bytes([1; 32]).public()), &payload()[..]));
        assert_eq!(worker.pending(), 1);
        let (second, chain) = written(worker.work(write(7, psk), entropy()));
        let (said, same) = agent.finish(&second).unwrap();
        assert_eq!(WelcomePayload::of(&said), Ok(welcome_payload_sample()));
        assert_eq!(same.expose(), chain.expose());
        assert_eq!(worker.pending(), 0);
        assert!(agent.finish(&second).is_err(), "it is over");
    }
}

#[test]
fn a_session_is_resumed_without_any_key() {
    let (mut worker, mut agent, secret) = (Worker::new([]), agent(), || Psk::from_bytes([5; 32]));
    let first = agent.begin(&Beginning::Resume(&secret()), &PROLOGUE, &payload()).unwrap();
    let done = worker.work(read(7, Opening::Resume(secret()), &first), entropy());
    assert!(matches!(done, Some(SealDone::Read { job: JobId(7), peer: None, .. })));
    let (second, chain) = written(worker.work(write(7, Psk::none()), entropy()));
    assert_eq!(agent.finish(&second).unwrap().1.expose(), chain.expose());
}

#[test]
fn what_fails_leaves_nothing_behind() {
    let ((mut worker, [public, _]), mut agent) = (server(), agent());
    let first = agent.begin(&Beginning::Open(&public, &Psk::none()), &PROLOGUE, &payload()).unwrap();
    let id = KeyId::of(&public);
    let mut changed = first.clone();
    changed[50] ^= 1;
    assert!(failed(worker.work(read(7, Opening::Open(id), &changed), entropy())));
    assert!(failed(worker.work(read(7, Opening::Open(KeyId([0; 8])), &first), entropy())), "a key that the server does not have");
    assert!(failed(worker.work(read(7, Opening::Open(id), &first[..60]), entropy())));
    assert!(failed(worker.work(read(7, Opening::Resume(Psk::none()), &first), entropy())));
    assert!(failed(worker.work(write(7, Psk::none()), entropy())), "nothing was read");
    assert_eq!(worker.pending(), 0);

    assert!(worker.work(read(7, Opening::Open(id), &first), entropy()).is_some());
    assert!(worker.work(SealWork::Drop { job: JobId(7) }, entropy()).is_none());
    assert_eq!(worker.pending(), 0);
}

//= wire-spec.md#11-8-security
//= type=test
//# Keys MUST rest on something fresh from either side, be different for each direction, protect the header too, and be renewable without a new
//# session.
#[test]
fn a_handshake_that_is_begun_anew_has_another_ephemeral_key_and_forgets_the_first() {
    let ((mut worker, [public, _]), mut agent) = (server(), agent());
    let open = Beginning::Open(&public, &Psk::none());
    let mut answer = |job, first: &[u8]| {
        let opening = Opening::Open(KeyId::of(&public));
        assert!(worker.work(read(job, opening, first), entropy()).is_some());
        written(worker.work(write(job, Psk::none()), entropy())).0
    };
    let first = agent.begin(&open, &PROLOGUE, &payload()).unwrap();
    let again = agent.begin(&open, &PROLOGUE, &payload()).unwrap();
    assert_ne!(first[..32], again[..32]);
    let (to_first, to_again) = (answer(1, &first), answer(2, &again));
    assert!(agent.finish(&to_first).is_err());
    assert!(agent.finish(&to_again).is_ok(), "what was not for it has changed nothing");
    assert!(agent.begin(&Beginning::Open(&PublicKey::from_bytes([0; 32]), &Psk::none()), &PROLOGUE, &payload()).is_err());
}
