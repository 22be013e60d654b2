//! The `OpenAPI` fragment and the documentation page describe the problems and the keys correctly.

use idem::http::Problem;
use idem_test_servers::web::Request;
use proptest::strategy::{Strategy as _, ValueTree as _};
use proptest::test_runner::TestRunner;
use serde_json::Value;

use crate::cases::with;

fn components() -> Value {
    let fragment: Value = serde_json::from_str(include_str!("../../docs/idempotency.openapi.json")).unwrap();
    fragment["components"].clone()
}

#[tokio::test]
async fn the_openapi_fragment_and_the_page_say_what_is_answered() {
    let components = components();
    assert_eq!(components["parameters"]["IdempotencyKey"]["name"], "Idempotency-Key");
    let schema = &components["schemas"]["IdempotencyProblem"];
    let names: Vec<&str> = Problem::ALL.iter().map(|problem| problem.name()).collect();
    assert_eq!(schema["properties"]["type"]["pattern"], format!("({})$", names.join("|")));
    let page = include_str!("../../docs/http.md");
    for name in names {
        assert!(page.contains(&format!("`{name}`")), "{name}");
        assert!(components["responses"].to_string().contains(&format!("`{name}`")), "{name}");
    }
    let (server, _) = with(|builder| builder).await;
    let problem = server.ask(Request::new("POST", "/pay")).await;
    for required in schema["required"].as_array().unwrap() {
        assert!(problem.json().get(required.as_str().unwrap()).is_some(), "{required}");
    }
}

#[tokio::test]
async fn every_key_that_the_openapi_fragment_describes_is_taken_and_the_longest_is_described() {
    let components = components();
    let schema = &components["parameters"]["IdempotencyKey"]["schema"];
    let pattern = schema["pattern"].as_str().unwrap();
    let whole = pattern.strip_prefix('^').and_then(|pattern| pattern.strip_suffix('$')).unwrap();
    let values = proptest::string::string_regex(whole).unwrap();
    let mut runner = TestRunner::deterministic();
    let longest = format!("\"{}\"", "\\\\".repeat(255));
    assert_eq!(schema["maxLength"], longest.len());
    let (server, _) = with(|builder| builder).await;
    let described = (0..100).map(|_| values.new_tree(&mut runner).unwrap().current());
    for value in described.chain([longest]) {
        let request = Request::new("POST", "/pay").header("Idempotency-Key", &value);
        assert_eq!(server.ask(request).await.status, 201, "{value}");
    }
    assert!(pattern.contains("{1,255}"), "{pattern}");
}
