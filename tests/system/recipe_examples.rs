//! The examples in Rust of docs/recipes.md, as they stand there, each in a module of its recipe, and run against a server.

#![allow(clippy::print_stdout, reason = "the examples print")]

use cistern_client::Client;
use cistern_testkit::{Server, eventually};
use std::fs;
use std::path::Path;
use std::sync::Mutex;
use std::thread;
use std::time::Duration;

mod leader_election {
    pub(super) fn lead(client: &cistern_client::Client, work: impl Fn(u64)) -> Result<(), cistern_client::Error> {
        let lead = client.election("/election").campaign("10.0.0.7:8080").wait()?;
        while lead.guard().is_valid() {
            work(lead.guard().token().0);
        }
        Ok(())
    }
}

mod semaphore {
    pub(super) fn encode(client: &cistern_client::Client, work: impl Fn(u32)) -> Result<(), cistern_client::Error> {
        let slot = client.semaphore("/jobs-encode", 3).acquire().wait()?;
        work(slot.number());
        Ok(())
    }
}

mod shared_and_exclusive_lock {
    pub(super) fn read_and_write(client: &cistern_client::Client) -> Result<(), cistern_client::Error> {
        let reader = client.lock("/site-lock").create().shared().wait()?;
        drop(reader);
        let writer = client.lock("/site-lock").wait()?;
        println!("alone, under token {}", writer.token());
        Ok(())
    }
}

mod queue {
    pub(super) fn encode(client: &cistern_client::Client, work: impl Fn(&[u8])) -> Result<(), cistern_client::Error> {
        let queue = client.queue("/encode");
        queue.put("video-7").wait()?;
        let item = queue.take().wait()?;
        work(item.data());
        item.done().wait()?;
        Ok(())
    }
}

mod counter {
    pub(super) fn count(client: &cistern_client::Client) -> Result<(), cistern_client::Error> {
        let builds = client.counter("/builds");
        println!("{}", builds.add(1).wait()?);
        println!("{}", builds.compare_and_set(8, 0).wait()?);
        Ok(())
    }
}

mod barriers {
    pub(super) fn step(client: &cistern_client::Client, work: impl Fn()) -> Result<(), cistern_client::Error> {
        let entered = client.barrier("/start", 3).enter().wait()?;
        work();
        entered.leave().wait()?;
        Ok(())
    }
}

mod services {
    pub(super) fn serve(client: &cistern_client::Client) -> Result<(), cistern_client::Error> {
        client.create_new("/services/web-1").ephemeral().contents("10.0.0.7:8080").wait()?;
        for (name, data) in client.members("/services").wait()? {
            println!("{} at {}", name.display(), data.escape_ascii());
        }
        Ok(())
    }
}

mod configuration {
    pub(super) fn follow(client: &cistern_client::Client, apply: impl Fn(&[u8])) -> Result<(), cistern_client::Error> {
        use cistern_client::WatchEvent;

        for event in client.watch("/site/index.html").wait()?.events() {
            if let WatchEvent::Current(_) | WatchEvent::Changed(_) = event {
                apply(&client.read("/site/index.html").wait()?.bytes);
            }
        }
        Ok(())
    }
}

mod once_in_each_period {
    pub(super) fn daily(client: &cistern_client::Client, work: impl Fn(u64)) -> Result<(), cistern_client::Error> {
        if let Some(run) = client.once("/jobs-daily").begin("2026-11-28").wait()? {
            work(run.guard().token().0);
            run.ended(0).wait()?;
        }
        Ok(())
    }
}

fn file(path: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap()
}

/// Lines without what indents them.
fn lines(text: &str) -> String {
    text.lines().map(|line| format!("{}\n", line.trim())).collect()
}

#[test]
fn what_is_run_is_what_the_page_says() {
    let here = lines(&file("tests/system/recipe_examples.rs")).replace("pub(super) fn", "fn");
    let page = file("docs/recipes.md");
    let examples: Vec<&str> = page.split("```rust\n").skip(1).map(|rest| rest.split("```").next().unwrap()).collect();
    assert_eq!(examples.len(), here.matches("cistern_client::Error> {\n").count(), "each example is run");
    for example in examples {
        assert!(here.contains(&lines(example)), "not run as it stands in docs/recipes.md:\n{example}");
    }
}

/// A client with an agent of its own.
fn client(server: &Server, label: &str) -> Client {
    Client::builder().insecure().server(server.address.to_string()).label(label).connect().unwrap()
}

#[test]
fn a_leader_leads_until_it_is_lost() {
    let server = Server::start();
    let (client, tokens) = (client(&server, "leader"), Mutex::new(Vec::new()));
    thread::scope(|scope| {
        let leading = scope.spawn(|| {
            leader_election::lead(&client, |token| {
                tokens.lock().unwrap().push(token);
                thread::sleep(Duration::from_millis(5));
            })
        });
        eventually("it leads", || (server.ok(&["leader", "/election"]) == "10.0.0.7:8080\n").then_some(()));
        eventually("it works", || (tokens.lock().unwrap().len() > 2).then_some(()));
        server.ok(&["admin", "evict", "leader", "--control", server.control().to_str().unwrap()]);
        leading.join().unwrap().unwrap();
    });
    assert!(tokens.lock().unwrap().iter().all(|token| *token > 0));
}

#[test]
fn locks_items_and_numbers_are_used_and_given_back() {
    let server = Server::start();
    let client = client(&server, "one");
    let slots = Mutex::new(Vec::new());
    for _ in 0..2 {
        semaphore::encode(&client, |slot| slots.lock().unwrap().push(slot)).unwrap();
    }
    assert_eq!(*slots.lock().unwrap(), [0, 0]);
    shared_and_exclusive_lock::read_and_write(&client).unwrap();
    let items = Mutex::new(Vec::new());
    queue::encode(&client, |item| items.lock().unwrap().push(item.to_owned())).unwrap();
    assert_eq!(*items.lock().unwrap(), [b"video-7"]);
    assert_eq!(server.cistern(&["queue", "take", "--try", "/encode"]).status.code(), Some(75), "it is done");
    counter::count(&client).unwrap();
    assert_eq!(server.ok(&["counter", "get", "/builds"]), "1\n");
    assert_eq!(server.ok(&["lock", "--wait", "20", "/site-lock", "--", "echo", "free"]), "free\n");
}

#[test]
fn three_enter_together() {
    let server = Server::start();
    let entered = Mutex::new(0);
    thread::scope(|scope| {
        for label in ["one", "two", "three"] {
            let (server, entered) = (&server, &entered);
            scope.spawn(move || {
                barriers::step(&client(server, label), || {
                    *entered.lock().unwrap() += 1;
                    // Nobody is alone in it.
                    eventually("all are in it", || (*entered.lock().unwrap() == 3).then_some(()));
                })
                .unwrap();
            });
        }
    });
    assert_eq!(*entered.lock().unwrap(), 3);
}

#[test]
fn a_service_is_listed_as_long_as_its_client_is_there_and_its_configuration_followed() {
    let server = Server::start();
    server.ok(&["mkdir", "/services"]);
    let service = client(&server, "service");
    services::serve(&service).unwrap();
    assert!(server.ok(&["member", "ls", "/services"]).contains("10.0.0.7:8080"));
    server.ok(&["mkdir", "/site"]);
    let write = |text: &str| {
        service.write("/site/index.html", text.to_owned()).wait().unwrap();
    };
    write("one");
    let applied = Mutex::new(Vec::new());
    let last_is =
        |text: &str| eventually(text, || (applied.lock().unwrap().last().map(Vec::as_slice) == Some(text.as_bytes())).then_some(()));
    thread::scope(|scope| {
        let follower = client(&server, "follower");
        let (applied, follower) = (&applied, follower);
        let following = scope.spawn(move || configuration::follow(&follower, |text| applied.lock().unwrap().push(text.to_owned())));
        last_is("one");
        write("two");
        last_is("two");
        server.ok(&["rm", "/site/index.html"]);
        following.join().unwrap().unwrap();
    });
    drop(service);
    eventually("it is listed no more", || server.ok(&["member", "ls", "/services"]).is_empty().then_some(()));
}

#[test]
fn a_period_is_run_once() {
    let server = Server::start();
    let runs = Mutex::new(0);
    thread::scope(|scope| {
        for label in ["one", "two", "three"] {
            let (server, runs) = (&server, &runs);
            scope.spawn(move || once_in_each_period::daily(&client(server, label), |_| *runs.lock().unwrap() += 1).unwrap());
        }
    });
    assert_eq!(*runs.lock().unwrap(), 1);
    let record: serde_json::Value = serde_json::from_str(&server.ok(&["cat", "/jobs-daily"])).unwrap();
    assert_eq!((&record["period"], &record["status"]), (&"2026-11-28".into(), &0.into()));
}
