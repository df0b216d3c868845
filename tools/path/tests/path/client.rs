//! The client's calls, as an application makes them: through the lock of the agent, with its clocks.

use crate::driver::Served;
use allocation_counter::measure;
use cistern_client::Client;

#[test]
fn open_file_is_read_from_cache_without_allocation_and_a_path_is_copied_once() {
    let served = Served::new();
    let client = Client::builder().insecure().server(served.address.to_string()).connect().unwrap();
    client.write("/file", "contents").wait().unwrap();
    let file = client.open("/file").wait().unwrap();
    // Contents can be shared with whoever reads them from their second reading on.
    for _ in 0..2 {
        file.read().wait().unwrap();
    }
    let mut from_cache = 0;
    for _ in 0..100 {
        let hits = client.lease().unwrap().cache_hits;
        let (mut attr, mut contents) = (None, None);
        let counted = measure(|| {
            attr = file.metadata().wait().ok();
            contents = file.read().wait().ok();
        });
        assert_eq!((attr.unwrap().len(), &contents.unwrap().bytes[..]), (8, &b"contents"[..]));
        let by_path = measure(|| drop(client.metadata("/file").wait()));
        // On a machine that stood still for so long that the lease was over, the server was asked.
        if client.lease().unwrap().cache_hits == hits + 3 {
            from_cache += 1;
            assert_eq!((counted.count_total, by_path.count_total), (0, 1), "a path is copied once");
        }
    }
    assert!(from_cache > 0, "nothing came from the cache");
}
