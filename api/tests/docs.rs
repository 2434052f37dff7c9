//! The messages in docs/control.md are messages of this protocol, and it names every request.

use std::fs;
use std::path::Path;

use mpip_api::{MAX_REQUEST, REQUESTS, Request, Response, VERSION};

fn document() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/control.md");
    fs::read_to_string(path).expect("the document exists")
}

#[test]
fn every_message_in_the_document_is_understood() {
    let document = document();
    let blocks = document.split("```json\n").skip(1);
    let blocks = blocks.map(|rest| rest.split_once("```").expect("the fence is closed").0);
    let (mut requests, mut responses) = (0, 0);
    for line in blocks.flat_map(str::lines) {
        if line.contains("\"request\"") {
            let request = Request::parse(line.as_bytes()).expect(line);
            assert_eq!(Request::parse(request.to_line().trim_end().as_bytes()), Ok(request));
            requests += 1;
        } else {
            let response = Response::parse(line.as_bytes()).expect(line);
            // No field is one that the protocol does not have.
            let found: serde_json::Value = serde_json::from_str(line).expect(line);
            let sent: serde_json::Value = serde_json::from_str(&response.to_line()).expect(line);
            assert_eq!(found, sent);
            if let Response::Hello { versions, requests, .. } = response {
                assert_eq!(
                    (versions, requests),
                    (vec![VERSION], REQUESTS.map(str::to_owned).to_vec())
                );
            }
            responses += 1;
        }
    }
    assert!(requests >= 4 && responses >= 5, "{requests} requests, {responses} responses");
}

#[test]
fn every_request_and_the_bound_are_described() {
    let document = document();
    for request in REQUESTS {
        assert!(document.contains(&format!("\n| `{request}` |")), "{request}");
    }
    assert!(document.contains(&format!("at most {MAX_REQUEST} bytes")));
    assert!(document.contains(&format!("`\"version\"`, at present `{VERSION}`")));
}
