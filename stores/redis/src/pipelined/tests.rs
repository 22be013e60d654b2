//! Tests of the pipelines on a real server.

use std::pin::Pin;

use futures_util::FutureExt as _;
use futures_util::future::join_all;
use idem_test_servers::{Redis, until};
use redis::{AsyncConnectionConfig, Client, cmd};
use tokio::runtime::Builder;

use super::*;

type Answer = RedisResult<Value>;

async fn connected(redis: &Redis) -> Arc<Pipelined> {
    let client = Client::open(redis.url()).unwrap();
    // Like the connections of the calling runtimes, this connection has no response timeout.
    let config = AsyncConnectionConfig::new().set_response_timeout(None);
    Arc::new(Pipelined::new(client.get_multiplexed_async_connection_with_config(&config).await.unwrap()))
}

fn request(words: &[&str]) -> Request {
    let mut command = cmd(words[0]);
    for word in &words[1..] {
        command.arg(word);
    }
    Request::plain(command)
}

/// The futures of these requests, each polled once, so that each request is sent or waits to be sent.
fn asked<'a>(
    pipelined: &'a Arc<Pipelined>,
    requests: &'a [Request],
) -> Vec<Pin<Box<dyn Future<Output = Answer> + Send + 'a>>> {
    let asked = requests.iter().map(|request| {
        let mut answer: Pin<Box<dyn Future<Output = Answer> + Send + 'a>> = Box::pin(pipelined.ask(request));
        assert!(answer.as_mut().now_or_never().is_none());
        answer
    });
    asked.collect()
}

/// How many requests wait to be sent, and how many were sent and have no answer.
fn counts(pipelined: &Pipelined) -> (usize, usize) {
    let queue = pipelined.queue();
    (queue.waiting.len(), queue.unanswered)
}

fn nothing_is_left(pipelined: &Pipelined) {
    assert_eq!((counts(pipelined), pipelined.queue().served_since), ((0, 0), None));
}

#[tokio::test]
async fn when_the_connection_is_given_up_all_that_is_under_way_fails() {
    let redis = Redis::start();
    let pipelined = connected(&redis).await;
    pipelined.ask(&request(&["CLIENT", "PAUSE", "60000", "ALL"])).await.unwrap();
    let requests = vec![request(&["INCR", "count"]); FEW + 6];
    let asked = asked(&pipelined, &requests);
    tokio::task::yield_now().await;
    pipelined.break_off();
    for answer in join_all(asked).await {
        assert!(answer.unwrap_err().is_io_error());
    }
    // The task that sent the requests notices the broken connection by itself.
    tokio::task::yield_now().await;
    nothing_is_left(&pipelined);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_that_holds_up_its_thread_holds_up_no_requests_of_others() {
    let redis = Redis::start();
    let pipelined = connected(&redis).await;
    let (begun, begins) = oneshot::channel();
    let (end, ends) = std::sync::mpsc::channel::<()>();
    let holding_up = tokio::spawn({
        let pipelined = pipelined.clone();
        async move {
            let requests = vec![request(&["INCR", "count"]); FEW + 6];
            let mut answers = Box::pin(join_all(requests.iter().map(|request| pipelined.ask(request))));
            assert!(answers.as_mut().now_or_never().is_none());
            begun.send(()).unwrap();
            // The task's thread now neither sends nor yields.
            ends.recv().unwrap();
            answers.await.into_iter().all(|answer| answer.is_ok())
        }
    });
    begins.await.unwrap();
    let mut others = Vec::new();
    for _ in 0..20 {
        let pipelined = pipelined.clone();
        others.push(tokio::spawn(async move { pipelined.ask(&request(&["PING"])).await }));
        tokio::time::sleep(HELD_UP).await;
    }
    for other in others {
        let answer = tokio::time::timeout(Duration::from_secs(60), other).await;
        assert!(answer.expect("held up").unwrap().is_ok());
    }
    end.send(()).unwrap();
    assert!(holding_up.await.unwrap());
    // The other thread may still be about to count the answers.
    until("nothing is left", || counts(&pipelined) == (0, 0));
    nothing_is_left(&pipelined);
}

#[test]
fn what_waits_when_its_runtime_ends_fails() {
    let redis = Redis::start();
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let pipelined = runtime.block_on(connected(&redis));
    let requests = vec![request(&["INCR", "count"]); FEW + 6];
    let mut asked = runtime.block_on(async { asked(&pipelined, &requests) });
    drop(runtime);
    let together = asked.split_off(FEW);
    drop(asked);
    for answer in Builder::new_current_thread().build().unwrap().block_on(join_all(together)) {
        assert!(answer.unwrap_err().is_io_error());
    }
    nothing_is_left(&pipelined);
}
