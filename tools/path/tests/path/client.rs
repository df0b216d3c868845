//! The client's calls, as an application makes them: through the lock of the agent, with its clocks.

use crate::driver::Served;
use allocation_counter::measure;
use cistern_client::{Client, Ownership};

const OWNER: Ownership = Ownership { mode: 0o644, uid: 0, gid: 0 };

#[test]
fn open_file_is_read_from_cache_without_allocation() {
    let served = Served::new();
    let client = Client::builder().server(served.address.to_string()).connect().unwrap();
    client.put("/file", "contents", OWNER).wait().unwrap();
    let file = client.open("/file").wait().unwrap();
    // Contents can be shared with whoever reads them from their second reading on.
    for _ in 0..2 {
        file.read(0, None).wait().unwrap();
    }
    let mut from_cache = 0;
    for _ in 0..100 {
        let hits = client.lease().unwrap().cache_hits;
        let (mut attr, mut contents) = (None, None);
        let counted = measure(|| {
            attr = file.stat().wait().ok();
            contents = file.read(0, None).wait().ok();
        });
        assert_eq!((attr.unwrap().size, &contents.unwrap().data[..]), (8, &b"contents"[..]));
        // On a machine that stood still for so long that the lease was over, the server was asked.
        if client.lease().unwrap().cache_hits == hits + 2 {
            from_cache += 1;
            assert_eq!(counted.count_total, 0);
        }
    }
    assert!(from_cache > 0, "nothing came from the cache");
}
