//! Values that two independent implementations computed alike.

use cistern_seal::key::KeyId;
use cistern_seal::mac::FirstCheck;
use cistern_seal::{Aead as _, ChaCha, Chain, PublicKey};
use cistern_wire::Direction;

fn unhex(text: &str) -> Vec<u8> {
    text.as_bytes().chunks(2).map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn count_up(from: u8) -> [u8; 32] {
    std::array::from_fn(|place| from + u8::try_from(place).unwrap())
}

fn first_chain() -> Chain {
    Chain::begin(&count_up(0x00), &count_up(0x20), &[0xaa; 32])
}

#[test]
fn checks_of_a_server_key() {
    let server = PublicKey::from_bytes([7; 32]);
    assert_eq!(hex(&KeyId::of(&server).0), "f34f57554eb91c4d");
    let check = FirstCheck::of(&server);
    assert_eq!(hex(&check.over(&[0; 80])), "54ec2402a065f2fd9819e19e95320a53");
}

#[test]
fn chains_and_keys() {
    let chain = first_chain();
    assert_eq!(hex(chain.expose()), "3defbaea3afad588b06bc62dba7beb435da3ea89d563fb3de3710f26bb91c48e");
    assert_eq!(hex(chain.key(Direction::Agent).as_bytes()), "d2d13245412c02f7cd328be99136b9aa9623d2d3a88a55cdeb2f966caeaca3ee");
    assert_eq!(hex(chain.key(Direction::Server).as_bytes()), "be506e2d8c68f9fac6f6a0ddb7b95b83a531e6292d930644e9b086e172599c69");
    assert_eq!(hex(chain.next().expose()), "bc7a2315552949acdb64ccbb2c3bd5f6f3a3b98550b2f5baf94e91eaa6fdcc95");
}

#[test]
fn a_record() {
    let record = unhex(
        "c5010100112233445566778800000000000000052467\
         7c94a3a7f7ba427542c03e76be1adf352468f1e88d949b2c75294b420dfffadd7b6f",
    );
    let (header, sealed) = record.split_at(20);
    let (sealed_text, tag) = sealed.split_last_chunk::<16>().unwrap();
    let mut text = vec![0; sealed_text.len()];
    let key = first_chain().key(Direction::Agent);
    ChaCha.open(&key, 5, header, sealed_text, tag, &mut text).unwrap();
    // KEEPALIVE { serial 1, clock_us 1000000 }.
    assert_eq!(hex(&text), "10000010000000000000000100000000000f4240");
    let again = ChaCha.seal(&key, 5, header, &mut text);
    assert_eq!((text.as_slice(), again.as_slice()), sealed.split_at(sealed.len() - 16));
}
