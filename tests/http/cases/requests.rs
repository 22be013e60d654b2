//! Bodies of requests: exact bytes, chunks, limits, clients that stop in the middle.

use idem_test_servers::web::{Answer, Request};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::{LIMIT, echo};
use crate::framework::Server;

#[tokio::test]
async fn the_handler_gets_exactly_the_bytes_that_the_client_sent_however_they_are_cut() {
    let (server, runs) = echo().await;
    let bytes: Vec<u8> = (0..LIMIT).map(|index| u8::try_from(index % 256).unwrap()).collect();
    let json = " {\"b\":1.0,\n\"a\":\"\\u00e9\"}\r\n";
    for (key, sent, request) in [
        ("bytes", &bytes[..], Request::post("/pay", "bytes").body(&bytes)),
        ("empty", b"", Request::post("/pay", "empty")),
        ("json", json.as_bytes(), Request::post("/pay", "json").json(json)),
    ] {
        let first = server.ask(request.clone().chunks(7)).await;
        assert_eq!((first.status, &first.body[..], first.is_replay()), (200, sent, false), "{key}");
        for again in [request.clone(), request.chunks(4)] {
            let again = server.ask(again).await;
            assert_eq!((again.lasting(), again.is_replay()), (first.lasting(), true), "{key}");
        }
    }
    assert_eq!(runs.count(), 3);
}

#[tokio::test]
async fn a_request_that_is_refused_takes_no_key_and_a_client_that_reads_only_when_it_has_sent_all_is_told_why()
 {
    let (server, runs) = echo().await;
    // `large` is more than the buffers of a connection can hold.
    let [larger, large] = [LIMIT + 1, 12 << 20].map(|size| vec![b'x'; size]);
    for (request, status, problem) in [
        (Request::post("/pay", "k").body(&larger), 413, "request-too-large"),
        (Request::post("/pay", "k").body(&larger).chunks(100), 413, "request-too-large"),
        (Request::post("/pay", "k").body(&large), 413, "request-too-large"),
        (Request::post("/pay", "k").body(&large).chunks(1 << 16), 413, "request-too-large"),
        (Request::new("POST", "/pay").body(&large), 400, "key-missing"),
        (Request::post("/pay", "\\").body(&large), 400, "key-malformed"),
    ] {
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        stream.write_all(&request.bytes()).await.unwrap();
        let refused = Answer::read(&mut stream).await;
        assert_eq!((refused.status, refused.problem()), (status, problem.into()));
    }
    assert_eq!(runs.count(), 0);
    let fitting = server.ask(Request::post("/pay", "k").body(&larger[1..])).await;
    assert_eq!((fitting.status, fitting.body.len()), (200, LIMIT));
}

#[tokio::test]
async fn a_client_that_was_told_to_send_its_body_can_send_all_of_it_and_is_told_why_it_was_refused() {
    let (server, runs) = echo().await;
    // The body is chunked, so the server learns its length only while it reads the body.
    let request = Request::post("/pay", "k").header("Expect", "100-continue");
    let bytes = request.body(vec![b'x'; 12 << 20]).chunks(1 << 16).bytes();
    let head = bytes.windows(4).position(|window| window == b"\r\n\r\n").unwrap() + 4;
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    stream.write_all(&bytes[..head]).await.unwrap();
    let mut told = [0; b"HTTP/1.1 100 Continue\r\n\r\n".len()];
    stream.read_exact(&mut told).await.unwrap();
    assert_eq!(&told, b"HTTP/1.1 100 Continue\r\n\r\n");
    stream.write_all(&bytes[head..]).await.unwrap();
    assert_eq!(Answer::read(&mut stream).await.status, 413);
    assert_eq!(runs.count(), 0);
}

/// Begins a chunked request.
async fn chunked(server: &Server) -> TcpStream {
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    let head =
        "POST /pay HTTP/1.1\r\nHost: x\r\nIdempotency-Key: \"k\"\r\nTransfer-Encoding: chunked\r\n\r\n";
    stream.write_all(head.as_bytes()).await.unwrap();
    stream
}

#[tokio::test]
async fn a_body_without_end_is_refused_at_the_limit() {
    let (server, runs) = echo().await;
    let mut stream = chunked(&server).await;
    // The body never ends, so an answer can come only when the limit is reached.
    for _ in 0..=LIMIT {
        if stream.write_all(b"1\r\nx\r\n").await.is_err() {
            break;
        }
    }
    assert_eq!(Answer::read(&mut stream).await.status, 413);
    assert_eq!(runs.count(), 0);
}

#[tokio::test]
async fn nothing_is_claimed_before_the_request_is_whole() {
    let (server, runs) = echo().await;
    let whole = Request::post("/pay", "k").body("abcdef").bytes();
    // Three clients stop in the middle of the body: one waits, one closes its connection, and one sends an
    // invalid chunk.
    let mut waiting = TcpStream::connect(server.address).await.unwrap();
    waiting.write_all(&whole[..whole.len() - 3]).await.unwrap();
    let mut gone = TcpStream::connect(server.address).await.unwrap();
    gone.write_all(&whole[..whole.len() - 3]).await.unwrap();
    drop(gone);
    let mut malformed = chunked(&server).await;
    malformed.write_all(b"3\r\nabc\r\nzz\r\n").await.unwrap();
    // The framework may answer the request or close the connection.
    let _ = malformed.read_to_end(&mut Vec::new()).await;
    let first = server.ask(Request::post("/pay", "k").body("abcdef")).await;
    assert_eq!((first.status, first.is_replay()), (200, false));
    waiting.write_all(&whole[whole.len() - 3..]).await.unwrap();
    assert!(Answer::read(&mut waiting).await.is_replay());
    assert_eq!(runs.count(), 1);
}
