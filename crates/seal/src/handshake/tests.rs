//! Both patterns against the vectors of `cacophony`, a Noise library in Haskell.

use snow::types::Cipher as _;

use super::{Entropy, HandshakeState, Initiator, Psk, Responder, split};
use crate::crypto::ChaChaPoly;
use crate::key::{PublicKey, SecretKey};

/// What differs between the two: the hash at the end; the two messages of the handshake, and four that are sealed with its keys.
struct Vector {
    hash: &'static str,
    messages: [&'static str; 6],
}

const PROLOGUE: &[u8] = b"John Galt";
const PSK: &[u8; 32] = b"This is my Austrian perspective!";
const PAYLOADS: [&[u8]; 6] =
    [b"Ludwig von Mises", b"Murray Rothbard", b"F. A. Hayek", b"Carl Menger", b"Jean-Baptiste Say", b"Eugen B\xf6hm von Bawerk"];
const AGENT: &str = "e61ef9919cde45dd5f82166404bd08e38bceb5dfdfded0a34c8df7ed542214d1";
const AGENT_EPHEMERAL: &str = "893e28b9dc6ca8d611ab664754b8ceb7bac5117349a4439a6b0569da977c464a";
const SERVER: &str = "4a3acbfdb163dec651dfa3194dece676d437029c62a408b4c5ea9114246e4893";
const SERVER_PUBLIC: &str = "31e0303fd6418d2f8c0e78b91f22e8caed0fbe48656dcf4767e4834f701b8f62";
const SERVER_EPHEMERAL: &str = "bbdb4cdbd309f1a1f2e1456967fe288cadd6f712d65dc7b7793d5e63da6b375b";

const IKPSK2: Vector = Vector {
    hash: "f5191b875290abcd41347ac3622d9679688a7e980229cb937ef748336cfde0e5",
    messages: [
        "ca35def5ae56cec33dc2036731ab14896bc4c75dbb07a61f879f8e3afa4c7944001e21de9f98ddd8e2ad57527207feb56253c9c94a9e496782ecfcb2\
         a75fbcaf1b52948cc48daefe660c62119ab5000980c84831215f2441eba616548e832985464cf17e51ee93109008399a21f7e13f",
        "95ebc60d2b1fa672c1f46a8aa265ef51bfe38e7ccb39ec5be34069f144808843cb765f2caef0751b8f007572dab0322217755c0632f365717edbf34d\
         33e87a",
        "8153ca9833bc3c1b91a7e66e5f4d4f5b59bf9e64c2f20d15f0bba7",
        "07af0c9c86e1b4e80f36b04ff7688d51141af3debd0332f0a705ef",
        "6ab1467c0448cc78394494abaaf23afce0e234315d6e2624dcbfa8a21c1c4d073d",
        "dfc346c0d2296ae6cf1acf6f12b8456a1dba228cf8d8b774aacf1c47fc53aa80ebc7a4c292",
    ],
};

const NNPSK0: Vector = Vector {
    hash: "b3e9c846d264120a4211e18307da91157a21e92e69b639c50f027f101db3e1a6",
    messages: [
        "ca35def5ae56cec33dc2036731ab14896bc4c75dbb07a61f879f8e3afa4c7944fda936bec35a8adfdff198386f7d5475880897edaaf7495314c99095\
         a2e4d66a",
        "95ebc60d2b1fa672c1f46a8aa265ef51bfe38e7ccb39ec5be34069f1448088434cd2a371993ba41ea11448024fca32766b169183c9e691a7a433279d\
         a7e729",
        "bc44da303ae0beb08075fc4eb4e58235c67c2d1f53a4f2fff0bca7",
        "416d1af83e9fa6966ce4e871156b131aa9bd7e9a1d6f8794f4872a",
        "8a7d81b77bcc6c072f2b807da066efba6b5fab9edf71a7faceb2c8454b0cfef608",
        "1e2ee010f72894824a25a867664ff298f2548a145dc4e9d27b1cad83f32fa7c54d69dc3279",
    ],
};

fn unhex(text: &str) -> Vec<u8> {
    (0..text.len() / 2).map(|at| u8::from_str_radix(&text[2 * at..2 * at + 2], 16).expect("hex")).collect()
}

fn key(text: &str) -> [u8; 32] {
    unhex(text).try_into().expect("32 bytes")
}

fn entropy(text: &str) -> Entropy {
    Entropy::from_bytes(key(text))
}

/// Goes on with the handshake that was begun, and holds what both sides come to against the vector.
fn check(vector: &Vector, (mut agent, first): (Initiator, Vec<u8>), read: impl FnOnce(&[u8]) -> Responder) {
    let message = |at: usize| unhex(vector.messages[at]);
    assert_eq!(first, message(0));
    let mut server = read(&first).state;
    let mut buf = [0; 128];
    let len = server.write_message(PAYLOADS[1], &mut buf).expect("it can be written");
    assert_eq!(buf[..len], message(1));
    let len = agent.state.read_message(&message(1), &mut buf).expect("it can be read");
    assert_eq!(&buf[..len], PAYLOADS[1]);
    let agreed = |mut state: HandshakeState| {
        let (from_agent, from_server, hash) = split(&mut state);
        (*from_agent, *from_server, hash)
    };
    let (from_agent, from_server, hash) = agreed(agent.state);
    assert_eq!(agreed(server), (from_agent, from_server, hash));
    assert_eq!(hash, key(vector.hash));
    for (at, payload) in PAYLOADS.iter().enumerate().skip(2) {
        let mut cipher = ChaChaPoly::default();
        cipher.set(if at % 2 == 0 { &from_agent } else { &from_server });
        let len = cipher.encrypt(at as u64 / 2 - 1, b"", payload, &mut buf);
        assert_eq!(buf[..len], message(at));
    }
}

#[test]
fn opening_is_ikpsk2_as_published() {
    let (agent, server, psk) = (SecretKey::from_bytes(key(AGENT)), SecretKey::from_bytes(key(SERVER)), Psk::from_bytes(*PSK));
    assert_eq!(server.public(), PublicKey::from_bytes(key(SERVER_PUBLIC)));
    let begun = Initiator::open(&agent, &server.public(), &psk, entropy(AGENT_EPHEMERAL), PROLOGUE, PAYLOADS[0]).expect("it opens");
    check(&IKPSK2, begun, |first| {
        let (mut responder, payload) = Responder::open(&server, entropy(SERVER_EPHEMERAL), PROLOGUE, first).expect("it is read");
        assert_eq!((payload.as_slice(), responder.peer()), (PAYLOADS[0], Some(agent.public())));
        responder.state.set_psk(2, PSK).expect("it takes a psk");
        responder
    });
}

#[test]
fn resumption_is_nnpsk0_as_published() {
    let psk = Psk::from_bytes(*PSK);
    let begun = Initiator::resume(&psk, entropy(AGENT_EPHEMERAL), PROLOGUE, PAYLOADS[0]).expect("it resumes");
    check(&NNPSK0, begun, |first| {
        let (responder, payload) = Responder::resume(&psk, entropy(SERVER_EPHEMERAL), PROLOGUE, first).expect("it is read");
        assert_eq!(payload, PAYLOADS[0]);
        responder
    });
}
