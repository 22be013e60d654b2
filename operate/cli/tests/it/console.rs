//! `idem console`: the console of `idem-console` on a socket. A client signs in with the token that the
//! command prints or reads.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::ChildStdout;

use idem::protocol::State;
use idem_test_servers::program::Process;

use crate::idem_command::*;

const TOKEN: &str = "0123456789abcdef0123456789abcdef";

/// A console that runs until it is dropped.
struct Console {
    _process: Process,
    out: BufReader<ChildStdout>,
    host: String,
}

impl Console {
    fn start(shop: &Shop, more: &[&str]) -> Self {
        let words = [&["console", "--listen"][..], more].concat();
        let mut process = Process::start(&mut shop.idem.command(&words));
        let mut out = BufReader::new(process.stdout());
        let mut line = String::new();
        out.read_line(&mut line).unwrap();
        let host = line.trim().trim_end_matches('/').rsplit('/').next().unwrap();
        Self { host: host.replace("0.0.0.0", "127.0.0.1"), _process: process, out }
    }

    /// The head and the body of the answer.
    fn ask(&self, method: &str, path: &str, headers: &str, body: &str) -> (String, String) {
        let mut stream = TcpStream::connect(&self.host).unwrap();
        let host = &self.host;
        let own = format!("Host: {host}\r\nOrigin: http://{host}\r\nContent-Length: {}\r\n", body.len());
        let kind = "Content-Type: application/x-www-form-urlencoded\r\nConnection: close\r\n";
        let request = format!("{method} {path} HTTP/1.1\r\n{own}{kind}{headers}\r\n{body}");
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head.to_owned(), body.to_owned())
    }

    /// Signs in with this token, and shows the first page.
    fn home(&self, token: &str) -> String {
        let (head, _) = self.ask("POST", "/login", "", &format!("name=mara&token={token}"));
        let cookie = head.lines().find_map(|line| line.strip_prefix("set-cookie: ")).unwrap();
        self.ask("GET", "/", &format!("Cookie: {}\r\n", cookie.split(';').next().unwrap()), "").1
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_console_shows_nothing_without_the_token_that_it_prints_or_reads() {
    let shop = Shop::new();
    bring(&shop.store, &key("order-1"), State::InDoubt).await;
    let digest = key("order-1").digest().to_string();
    let mut console = Console::start(&shop, &["127.0.0.1:0", "--read-only"]);
    let mut line = String::new();
    console.out.read_line(&mut line).unwrap();
    let home = console.home(line.trim().rsplit(' ').next().unwrap());
    assert!(home.contains(&digest) && home.contains("read-only"), "{home}");
    assert!(console.ask("GET", "/", "", "").0.contains("location: login"));
    assert!(console.ask("GET", "/login", "X-Forwarded-For: 203.0.113.7\r\n", "").0.contains(" 403 "));

    // Other machines can reach this address, so the command needs a token file.
    shop.idem.run(&["console", "--listen", "0.0.0.0:0"]).ended(2);
    let file = shop.folder().join("token");
    std::fs::write(&file, "hunter2").unwrap();
    let words = ["0.0.0.0:0", "--token-file", file.to_str().unwrap()];
    shop.idem.run(&[&["console", "--listen"][..], &words].concat()).ended(2);
    std::fs::write(&file, format!("{TOKEN}\n")).unwrap();
    let console = Console::start(&shop, &words);
    assert!(console.home(TOKEN).contains(&digest));
    let proxied = ["--public-url", "https://idem.example"];
    let console = Console::start(&shop, &[&words[..], &proxied].concat());
    assert!(console.ask("POST", "/login", "", &format!("name=mara&token={TOKEN}")).0.contains(" 403 "));
}
