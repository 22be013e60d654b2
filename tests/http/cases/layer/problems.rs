//! The problems that clients get, and the `OpenAPI` fragment that describes problems and keys.

use idem::http::Problem;
use idem_test_servers::web::Request;
use proptest::strategy::{Strategy as _, ValueTree as _};
use proptest::test_runner::TestRunner;

use super::with;

#[tokio::test]
async fn the_type_of_a_problem_is_its_section_in_the_documentation() {
    for (documentation, section) in [
        ("https://api.example.com/docs", "https://api.example.com/docs#key-missing"),
        ("https://api.example.com/docs#", "https://api.example.com/docs#key-missing"),
        ("https://api.example.com/problems/", "https://api.example.com/problems/key-missing"),
    ] {
        let (server, _) = with(|builder| builder.documentation(documentation)).await;
        let missing = server.ask(Request::new("POST", "/pay")).await;
        assert_eq!(missing.json()["type"], section);
        assert!(missing.text("link").unwrap().contains(&format!("<{documentation}>")));
    }
}

#[tokio::test]
async fn the_openapi_fragment_says_what_is_answered() {
    let fragment: serde_json::Value =
        serde_json::from_str(include_str!("../../../../docs/idempotency.openapi.json")).unwrap();
    let components = &fragment["components"];
    assert_eq!(components["parameters"]["IdempotencyKey"]["name"], "Idempotency-Key");
    let types =
        components["schemas"]["IdempotencyProblem"]["properties"]["type"]["pattern"].as_str().unwrap();
    let names: Vec<&str> = Problem::ALL.iter().map(|problem| problem.name()).collect();
    assert_eq!(types, format!("({})$", names.join("|")));
    let page = include_str!("../../../../docs/http.md");
    for problem in Problem::ALL {
        let (name, status) = (problem.name(), problem.status().as_u16());
        assert!(
            page.contains(&format!("{status} `{name}`")) || page.contains(&format!("`{name}`")),
            "{name}"
        );
        assert!(types.contains(problem.name()), "{problem:?}");
        let described = components["responses"].to_string().contains(&format!("`{}`", problem.name()));
        assert!(described, "{problem:?}");
    }
    let (server, _) = with(|builder| builder).await;
    let problem = server.ask(Request::new("POST", "/pay")).await;
    for required in components["schemas"]["IdempotencyProblem"]["required"].as_array().unwrap() {
        assert!(problem.json().get(required.as_str().unwrap()).is_some(), "{required}");
    }
}

#[tokio::test]
async fn every_key_that_the_openapi_fragment_describes_is_taken_and_the_longest_is_described() {
    let fragment: serde_json::Value =
        serde_json::from_str(include_str!("../../../../docs/idempotency.openapi.json")).unwrap();
    let schema = &fragment["components"]["parameters"]["IdempotencyKey"]["schema"];
    let pattern = schema["pattern"].as_str().unwrap();
    let whole = pattern.strip_prefix('^').and_then(|pattern| pattern.strip_suffix('$')).unwrap();
    let values = proptest::string::string_regex(whole).unwrap();
    let mut runner = TestRunner::deterministic();
    let (server, _) = with(|builder| builder).await;
    let ask = async |value: &str| {
        server.ask(Request::new("POST", "/pay").header("Idempotency-Key", value)).await.status
    };
    for _ in 0..100 {
        let value = values.new_tree(&mut runner).unwrap().current();
        assert_eq!(ask(&value).await, 201, "{value}");
    }
    let longest = format!("\"{}\"", "\\\\".repeat(255));
    assert_eq!(ask(&longest).await, 201);
    assert_eq!(schema["maxLength"], longest.len());
    assert!(pattern.contains("{1,255}"), "{pattern}");
}
