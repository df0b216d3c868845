//! Every block of commands in README.md, CONTRIBUTING.md, docs/ and the examples of `--help` does what it says when it is pasted.
//!
//! Decides: how a document is carried out: its blocks one after the other, in one shell, by a plain user with an empty home directory, in a
//! network of its own in which 10.0.0.1 is this machine. A program that stays goes on until another of its kind starts; whoever looks on
//! (`member watch`) is ended after a second. A block that cannot run says why in a comment before it, `<!-- not run: … -->`, which no reader sees.
//! The network is made by root, or by a user in a user namespace; where neither can, or without iproute2 and util-linux, nothing is run, and
//! the test says why.

use crate::first_hour::User;
use cistern_testkit::{CISTERN, command, program, said};
use nix::unistd::{getegid, geteuid};
use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Seconds for one document: far above what it takes.
const DOCUMENT_TIME: &str = "400";

/// Examples of help that cannot run as they are, and why.
const NOT_RUN: [(&str, &str); 15] = [
    ("--server meta-1", "is a host of somebody else's"),
    ("admin hand-over", "needs a group of servers"),
    ("-server d.example.net", "needs a group of servers"),
    ("--group a:7312", "needs three hosts"),
    ("--if-version 7", "names a version of a file of the reader's"),
    ("cistern demo", "has a test of its own"),
    ("rsync", "needs a second host"),
    ("plan --capture", "needs a capture of the reader's"),
    ("cistern serve", "is cisternd"),
    ("meta.example.net", "is a host of somebody else's"),
    ("join --grant", "an operator answers it"),
    ("cistern-invite-1.", "an operator prints it"),
    ("join - <", "an operator prints the line"),
    ("admin admit", "a host asks for it"),
    ("cluster.line", "an operator prints it"),
];

/// Programs that stay until they are ended, and serve others.
const DAEMONS: [&str; 3] = ["cisternd -", "cistern agent run", "cistern-netfault --server"];

/// Commands that stay until they are ended, and look on.
const WATCHERS: [&str; 6] =
    ["cistern member", "cistern agent top", "cistern leader --follow", "cistern watch", "cistern top", "cistern lease keepalive --secret"];

/// A line to be carried out, and where it stands.
struct Line {
    text: String,
    place: String,
}

#[test]
fn every_block_of_commands_in_the_documents_runs() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut lines = 0;
    for document in documents() {
        let name = document.strip_prefix(root).unwrap().display().to_string();
        // The manual's pages are about a server that runs.
        let server = ["cisternd init --new-cluster ./store", "cisternd --store ./store --http 9311"];
        let server = server.map(|text| Line { text: text.to_owned(), place: "before the document".to_owned() });
        let before = if ["README.md", "docs/start.md"].contains(&name.as_str()) { Vec::new() } else { Vec::from(server) };
        let block = lines_of(&fs::read_to_string(&document).unwrap(), &name);
        lines += block.len();
        if !block.is_empty() {
            run(&before.into_iter().chain(block).collect::<Vec<_>>(), &name);
        }
    }
    assert!(lines > 40, "only {lines} lines of commands were found");
}

/// The pages that people read.
fn documents() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let pages = ["README.md", "CONTRIBUTING.md", "ARCHITECTURE.md", "bindings/c/README.md", "bindings/python/README.md"];
    let mut documents: Vec<PathBuf> = pages.map(|name| root.join(name)).into();
    for dir in ["docs", "docs/lab-notes", "docs/decisions"] {
        let entries = fs::read_dir(root.join(dir)).unwrap().map(|entry| entry.unwrap().path());
        documents.extend(entries.filter(|path| path.extension().is_some_and(|end| end == "md")));
    }
    documents.sort();
    documents
}

#[test]
fn every_link_between_documents_leads_somewhere() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut wrong = Vec::new();
    for document in documents().into_iter().chain([root.join("wire-spec.md")]) {
        let text = fs::read_to_string(&document).unwrap();
        let links = text.split("](").skip(1).filter_map(|rest| rest.split_once(')').map(|(link, _)| link));
        for link in links.filter(|link| !link.contains("://") && !link.contains(' ')) {
            let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
            let target = if path.is_empty() { document.clone() } else { document.parent().unwrap().join(path) };
            let found = target.exists() && (anchor.is_empty() || anchors(&target).iter().any(|known| known == anchor));
            if !found {
                wrong.push(format!("{}: {link}", document.strip_prefix(root).unwrap().display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_readme_names_every_crate_and_tool() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let readme = fs::read_to_string(root.join("README.md")).unwrap();
    for dir in ["crates", "tools"] {
        for entry in fs::read_dir(root.join(dir)).unwrap() {
            let name = format!("{dir}/{}", entry.unwrap().file_name().display());
            assert!(readme.contains(&format!("[`{name}`]({name})")), "README.md does not name {name}");
        }
    }
}

/// The names of a page's headings, as they stand in links.
fn anchors(page: &Path) -> Vec<String> {
    let Ok(text) = fs::read_to_string(page) else { return Vec::new() };
    let headings = text.lines().filter(|line| line.starts_with('#'));
    let name = |heading: &str| {
        let kept = heading.trim_start_matches('#').trim().to_lowercase();
        kept.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_')).map(|c| if c == ' ' { '-' } else { c }).collect()
    };
    headings.map(name).collect()
}

#[test]
fn every_example_of_help_runs() {
    let server = ["cisternd init --new-cluster ./store", "cisternd --store ./store --listen 127.0.0.1:7311 --listen 10.0.0.1:7311"];
    let mut lines = Vec::from(server.map(|text| Line { text: text.to_owned(), place: "before the examples".to_owned() }));
    for command in
        ["mkdir -p /jobs /site /group", "put index.html /site/", "xattr set /site user.origin web-1", "put - /jobs/nightly < /dev/null"]
    {
        lines.push(Line { text: format!("cistern {command}"), place: "before the examples".to_owned() });
    }
    let mut pages = vec![("cistern", vec![])];
    for command in subcommands(CISTERN, &[]) {
        pages.push(("cistern", vec![command.clone()]));
        if matches!(command.as_str(), "xattr" | "admin" | "agent" | "key" | "lease" | "member") {
            pages.extend(subcommands(CISTERN, &[&command]).into_iter().map(|inner| ("cistern", vec![command.clone(), inner])));
        }
    }
    for (program, words) in pages {
        let help = help(program, &words);
        let page = format!("{program} {} --help", words.join(" "));
        let examples = help.split_once("Examples:\n").or_else(|| help.split_once("Example:\n")).map_or("", |(_, rest)| rest);
        for line in examples.lines().take_while(|line| !line.trim().is_empty()) {
            // What stands behind two spaces is a remark.
            let text = line.trim().split("   ").next().unwrap_or_default().to_owned();
            // A remark that was wrapped is no command.
            let is_command = ["cistern ", "date ", "printf "].iter().any(|first| text.starts_with(first));
            if is_command && !NOT_RUN.iter().any(|(part, _)| text.contains(part)) {
                lines.push(Line { text, place: page.clone() });
            }
        }
    }
    assert!(lines.len() > 25, "only {} examples were found", lines.len());
    run(&lines, "the examples of help");
}

fn help(program: &str, words: &[String]) -> String {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let output = command(program, &words).arg("--help").output().unwrap();
    assert!(output.status.success(), "{words:?}: {}", said(&output));
    String::from_utf8(output.stdout).unwrap()
}

fn subcommands(program: &str, words: &[&str]) -> Vec<String> {
    let output = command(program, words).arg("--help").output().unwrap();
    let help = String::from_utf8(output.stdout).unwrap();
    let commands = help.split_once("Commands:\n").map_or("", |(_, rest)| rest);
    let names = commands.lines().take_while(|line| !line.is_empty()).filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    names.filter_map(|line| line.split_whitespace().next()).filter(|name| *name != "help").map(str::to_owned).collect()
}

/// The lines of the blocks of a document that are to be run; continued lines are one.
fn lines_of(text: &str, name: &str) -> Vec<Line> {
    let (mut lines, mut inside, mut excused, mut open) = (Vec::<Line>::new(), false, false, String::new());
    for (line, number) in text.lines().zip(1..) {
        if let Some(reason) = line.trim().strip_prefix("<!-- not run:") {
            assert!(reason.trim_end_matches("-->").trim().len() > 5, "{name}:{number}: why is it not run?");
            excused = true;
        } else if let Some(info) = line.strip_prefix("```") {
            inside = !inside && info == "sh" && !excused;
            excused = excused && !info.is_empty();
        } else if inside {
            open.push_str(line);
            if !open.ends_with('\\') && !open.trim().is_empty() {
                lines.push(Line { text: std::mem::take(&mut open), place: format!("{name}:{number}") });
            } else {
                open = open.trim_end_matches('\\').to_owned();
            }
        }
    }
    lines
}

/// Carries out the lines of one document.
fn run(lines: &[Line], name: &str) {
    let user = User::new();
    let home = user.home.path();
    let network = match network() {
        Ok(network) => network,
        Err(why) => {
            eprintln!("skipped: {name}: {why}");
            return;
        }
    };
    prepare(home);
    let mut script = String::from(PRELUDE);
    for line in lines {
        write_line(&mut script, line, &home.display().to_string());
    }
    fs::write(home.join("script"), &script).unwrap();
    let path = format!("{}:{}", program(CISTERN).parent().unwrap().display(), std::env::var("PATH").unwrap());
    let inside = format!("{SET_UP} && exec {} timeout -k 5 \"$0\" sh script", network.become_user);
    let mut command = Command::new("unshare");
    command.args(network.unshare).args(["sh", "-c", &inside, DOCUMENT_TIME]).current_dir(home).env_clear();
    command.env("PATH", path).env("HOME", home).env("XDG_RUNTIME_DIR", home.join("run")).env("CISTERN_LOG", "error");
    let output = command.output().unwrap();
    assert!(output.status.success(), "{name}: {}", said(&output));
}

/// A network in which 10.0.0.1 is this machine.
const SET_UP: &str = "ip link set lo up && ip addr add 10.0.0.1/32 dev lo";

/// How a network of its own is made.
struct Network {
    /// What `unshare` is asked for.
    unshare: &'static [&'static str],
    /// The command by which a plain user goes on inside.
    become_user: String,
}

/// How this process can make a network; or why it cannot.
fn network() -> Result<Network, String> {
    let works = |command: &str| Command::new("sh").args(["-c", command]).output().is_ok_and(|output| output.status.success());
    if let Some(missing) = ["ip", "unshare", "setpriv"].iter().find(|program| !works(&format!("command -v {program}"))) {
        return Err(format!("{missing} is not installed (iproute2, util-linux)"));
    }
    if geteuid().is_root() {
        let become_user = "setpriv --reuid 65534 --regid 65534 --clear-groups".to_owned();
        return Ok(Network { unshare: &["--net"], become_user });
    }
    // Root of a user namespace makes the network, and the user of before goes on in one below it.
    let network = Network {
        unshare: &["--user", "--map-root-user", "--net"],
        become_user: format!("unshare --user --map-user={} --map-group={}", geteuid(), getegid()),
    };
    if works(&format!("unshare {} sh -c '{SET_UP} && {} true'", network.unshare.join(" "), network.become_user)) {
        return Ok(network);
    }
    Err("a network of its own takes root, or user namespaces, which this system does not give to its users".to_owned())
}

/// What the documents take for granted: a site, a job, captures.
fn prepare(home: &Path) {
    for dir in ["site", "var/backups", "run"] {
        fs::create_dir_all(home.join(dir)).unwrap();
    }
    for (file, text) in
        [("site/index.html", "<p>old</p>\n"), ("new.html", "<p>new</p>\n"), ("index.html", "<p>hello</p>\n"), ("logo.png", "\u{0}")]
    {
        fs::write(home.join(file), text).unwrap();
    }
    fs::write(home.join("release.script"), "write /site/released yes\n").unwrap();
    fs::write(home.join("backup.sh"), "#!/bin/sh\necho \"saved under token $CISTERN_TOKEN\"\n").unwrap();
    fs::set_permissions(home.join("backup.sh"), fs::Permissions::from_mode(0o755)).unwrap();
    if geteuid().is_root() {
        let own = Command::new("chown").args(["-R", "65534:65534"]).arg(home).status().unwrap();
        assert!(own.success());
    }
}

/// How programs are started and waited for in the script.
const PRELUDE: &str = "\
all=''; cisternd_is=''
trap 'kill $all 2> /dev/null; wait' EXIT
failed() { echo \"failed: $1: exit status $2\" >&2; exit 1; }
# Waits until a daemon answers: the server, an agent's socket, or whatever else after half a second.
await() {
  case $1 in
    server) n=0; until cistern $3 --server $2 ping -c 1 --timeout 300ms > /dev/null 2>&1; do n=$((n + 1)); [ $n -lt 200 ] || return 1; done;;
    agent) n=0; until [ -S $2 ]; do n=$((n + 1)); [ $n -lt 600 ] || return 1; sleep 0.1; done;;
    *) sleep 0.5;;
  esac
}
";

fn write_line(script: &mut String, line: &Line, home: &str) {
    let agent_socket = format!("{home}/run/cistern/agent.sock");
    let server_socket = format!("{home}/run/cistern/server.sock");
    let text = line
        .text
        .replace("/tmp/", &format!("{home}/"))
        .replace("/backup/", &format!("{home}/backup-"))
        .replace("/var/lib/cistern/agent/control.sock", &agent_socket);
    let text = text.replace("/var/lib/cistern/server/control.sock", &server_socket);
    let text = text.replace("/var/lib/cistern", &format!("{home}/var"));
    let text = text.trim();
    if text.starts_with('#') {
        return;
    }
    // For the shell, and for whoever looks for the line that takes long.
    let place = format!("'{}: {}'", line.place, text.replace('\'', "\u{2019}"));
    writeln!(script, "echo \"$(date +%T) \"{place}").unwrap();
    let command = text.split(" #").next().unwrap_or_default().trim().trim_end_matches('&').trim();
    if command == "cisternd" || DAEMONS.iter().any(|daemon| command.starts_with(daemon)) {
        let kind = if command.starts_with("cisternd") {
            "server"
        } else if command.starts_with("cistern agent run") {
            "agent"
        } else {
            "other"
        };
        let address = if command.contains("10.0.0.1") { "10.0.0.1" } else { "127.0.0.1" };
        let flag = if command.contains("--insecure") { "--insecure" } else { "" };
        let what = if kind == "agent" { agent_socket.as_str() } else { address };
        if kind == "server" {
            script.push_str("if [ -n \"$cisternd_is\" ]; then kill $cisternd_is; wait $cisternd_is; fi\n");
        }
        writeln!(script, "{command} &\nall=\"$all $!\"; started=$!").unwrap();
        if kind == "server" {
            script.push_str("cisternd_is=$!\n");
        }
        writeln!(script, "await {kind} {what} {flag} && kill -0 $started || failed {place} 'it does not stay'").unwrap();
    } else if WATCHERS.iter().any(|watcher| command.starts_with(watcher)) {
        writeln!(script, "timeout 1 {command}\nrc=$?; [ $rc = 124 ] || [ $rc = 0 ] || failed {place} $rc").unwrap();
    } else {
        assert!(!text.ends_with('&'), "{}: what stays is a line of its own: {text}", line.place);
        writeln!(script, "{text}\nrc=$?; [ $rc = 0 ] || failed {place} $rc").unwrap();
    }
}
