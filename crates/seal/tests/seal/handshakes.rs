use cistern_seal::handshake::{HandshakeFailed, Psk};
use cistern_seal::key::{KeyTextError, Role};
use cistern_seal::mac::FirstCheck;
use cistern_seal::{Chain, Entropy, Initiator, PublicKey, Responder, SecretKey};
use cistern_wire::Direction;

const PROLOGUE: &[u8] = b"Cistern sealed 1 and what steers";

struct Cast {
    agent: SecretKey,
    server: SecretKey,
}

fn cast() -> Cast {
    Cast { agent: SecretKey::from_bytes([1; 32]), server: SecretKey::from_bytes([2; 32]) }
}

fn entropy(byte: u8) -> Entropy {
    Entropy::from_bytes([byte; 32])
}

fn opening(cast: &Cast, psk: &Psk) -> (Initiator, Vec<u8>) {
    Initiator::open(&cast.agent, &cast.server.public(), psk, entropy(3), PROLOGUE, b"who I am").unwrap()
}

fn same(one: &Chain, other: &Chain) -> bool {
    one.expose() == other.expose()
}

#[test]
fn opening_gives_both_the_same_chain_and_names_the_agent() {
    let cast = cast();
    let (mut agent, first) = opening(&cast, &Psk::none());
    let (server, said) = Responder::open(&cast.server, entropy(4), PROLOGUE, &first).unwrap();
    assert_eq!(said, b"who I am");
    assert_eq!(server.peer(), Some(cast.agent.public()));
    let (second, chain_at_server) = server.answer(&Psk::none(), b"welcome").unwrap();
    let (said, chain_at_agent) = agent.finish(&second).unwrap();
    assert_eq!(said, b"welcome");
    assert!(same(&chain_at_agent, &chain_at_server));
    assert_ne!(chain_at_agent.key(Direction::Agent).as_bytes(), chain_at_agent.key(Direction::Server).as_bytes());
}

#[test]
fn every_changed_byte_of_either_message_fails() {
    let cast = cast();
    let (mut agent, first) = opening(&cast, &Psk::none());
    for place in 0..first.len() {
        let mut changed = first.clone();
        changed[place] ^= 0x40;
        assert!(Responder::open(&cast.server, entropy(4), PROLOGUE, &changed).is_err(), "byte {place} of message 1");
    }
    let (server, _) = Responder::open(&cast.server, entropy(4), PROLOGUE, &first).unwrap();
    let (second, _) = server.answer(&Psk::none(), b"welcome").unwrap();
    for place in 0..second.len() {
        let mut changed = second.clone();
        changed[place] ^= 0x40;
        assert_eq!(agent.finish(&changed).err(), Some(HandshakeFailed), "byte {place} of message 2");
    }
    assert!(agent.finish(&second).is_ok(), "forged answers leave the handshake as it was");
}

#[test]
fn prologue_secret_and_server_must_agree() {
    let cast = cast();
    let psk = Psk::from_bytes([9; 32]);
    let (mut agent, first) = opening(&cast, &psk);
    assert!(Responder::open(&cast.server, entropy(4), b"another prologue", &first).is_err());
    assert!(Responder::open(&SecretKey::from_bytes([5; 32]), entropy(4), PROLOGUE, &first).is_err());
    let (server, _) = Responder::open(&cast.server, entropy(4), PROLOGUE, &first).unwrap();
    let (second, _) = server.answer(&Psk::none(), b"welcome").unwrap();
    assert!(agent.finish(&second).is_err(), "the server did not have the agent's secret");
}

#[test]
fn resumption_needs_the_secret() {
    let psk = Psk::from_bytes([9; 32]);
    let (mut agent, first) = Initiator::resume(&psk, entropy(3), PROLOGUE, b"again").unwrap();
    assert!(Responder::resume(&Psk::from_bytes([8; 32]), entropy(4), PROLOGUE, &first).is_err());
    let (server, said) = Responder::resume(&psk, entropy(4), PROLOGUE, &first).unwrap();
    assert_eq!((said.as_slice(), server.peer()), (b"again".as_slice(), None));
    let (second, chain_at_server) = server.answer(&Psk::none(), b"welcome").unwrap();
    let (_, chain_at_agent) = agent.finish(&second).unwrap();
    assert!(same(&chain_at_agent, &chain_at_server));
}

#[test]
fn useless_keys_of_the_peer_are_refused() {
    let cast = cast();
    let zero = PublicKey::from_bytes([0; 32]);
    assert!(Initiator::open(&cast.agent, &zero, &Psk::none(), entropy(3), PROLOGUE, b"").is_err());
    let (_, mut first) = Initiator::resume(&Psk::none(), entropy(3), PROLOGUE, b"").unwrap();
    first[..32].fill(0);
    assert!(Responder::resume(&Psk::none(), entropy(4), PROLOGUE, &first).is_err());
}

#[test]
fn the_first_check_holds_for_this_server_and_these_bytes() {
    let check = FirstCheck::of(&cast().server.public());
    let mut datagram = b"all of the datagram".to_vec();
    datagram.extend(check.over(&datagram));
    assert!(check.holds(&datagram));
    assert!(!FirstCheck::of(&cast().agent.public()).holds(&datagram));
    for place in 0..datagram.len() {
        let mut changed = datagram.clone();
        changed[place] ^= 1;
        assert!(!check.holds(&changed), "byte {place}");
    }
    assert!(!check.holds(&datagram[..15]));
}

#[test]
fn keys_are_read_as_they_are_written_and_slips_are_noticed() {
    let key = cast().agent.public();
    let text = key.to_text(Role::Agent);
    assert!(text.starts_with("cistern-agent-1."));
    assert_eq!(PublicKey::from_text(&format!(" {text}\n"), Role::Agent), Ok(key));
    assert_eq!(PublicKey::from_text(&text, Role::Server), Err(KeyTextError::Prefix("cistern-server-1.")));
    let secret = cast().agent.to_text(Role::Agent);
    assert_eq!(PublicKey::from_text(&secret, Role::Agent), Err(KeyTextError::Prefix("cistern-agent-1.")));
    assert_eq!(SecretKey::from_text(&secret, Role::Agent).unwrap().expose(), cast().agent.expose());
    assert_eq!(PublicKey::from_text(&text[..text.len() - 1], Role::Agent), Err(KeyTextError::Form));
    assert_eq!(PublicKey::from_text(&format!("{text}A"), Role::Agent), Err(KeyTextError::Form));
    let body = "cistern-agent-1.".len();
    for place in body..text.len() {
        let mut changed = text.clone().into_bytes();
        changed[place] = if changed[place] == b'A' { b'B' } else { b'A' };
        let changed = String::from_utf8(changed).unwrap();
        assert!(PublicKey::from_text(&changed, Role::Agent).is_err(), "{changed}");
    }
    assert_eq!(format!("{:?}", cast().agent), "SecretKey(..)");
}
