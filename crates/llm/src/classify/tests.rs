use super::*;

fn http(status: u16, body: &str) -> LlmError {
    http_error(status, "Reason", [], body, SystemTime::UNIX_EPOCH)
}

#[test]
fn statuses_have_classes() {
    for (status, class) in [
        (301, ErrorClass::Invalid),
        (400, ErrorClass::Invalid),
        (401, ErrorClass::Auth),
        (403, ErrorClass::Auth),
        (404, ErrorClass::Invalid),
        (408, ErrorClass::Retryable),
        (409, ErrorClass::Retryable),
        (413, ErrorClass::ContextOverflow),
        (422, ErrorClass::Invalid),
        (429, ErrorClass::Retryable),
        (500, ErrorClass::Retryable),
        (503, ErrorClass::Retryable),
        (529, ErrorClass::Retryable),
    ] {
        assert_eq!(http(status, "").class, class, "{status}");
    }
}

#[test]
fn context_overflow_is_recognised_for_many_vendors() {
    for body in [
        r#"{"error":{"message":"This model's maximum context length is 10 tokens.","code":"context_length_exceeded"}}"#,
        r#"{"error":{"code":400,"message":"the request exceeds the available context size","type":"exceed_context_size_error"}}"#,
        r#"{"object":"error","message":"This model's maximum context length is 8 tokens","type":"BadRequestError","code":400}"#,
        r#"{"error":{"message":"Provider returned error","code":400,"metadata":{"raw":"prompt is too long: 9 tokens"}}}"#,
        r#"[{"error":{"code":400,"message":"The input token count (9) exceeds the maximum number","status":"INVALID_ARGUMENT"}}]"#,
        r#"{"error":"prompt is too long"}"#,
    ] {
        assert_eq!(http(400, body).class, ErrorClass::ContextOverflow, "{body}");
    }
    let per_minute = r#"{"error":{"message":"Request too large: tokens per minute, context window 9","code":"rate_limit_exceeded"}}"#;
    assert_eq!(http(429, per_minute).class, ErrorClass::Retryable);
}

#[test]
fn other_bodies() {
    let filtered = http(400, r#"{"error":{"message":"no","code":"content_filter"}}"#);
    assert_eq!(filtered.class, ErrorClass::ContentFilter);
    let busy = http(400, r#"{"error":{"message":"Overloaded, sorry"}}"#);
    assert_eq!(busy.class, ErrorClass::Retryable);
    let broke = http(429, r#"{"error":{"message":"pay first","code":"insufficient_quota"}}"#);
    assert_eq!(broke.class, ErrorClass::Invalid);
    assert_eq!(broke.message, "pay first");
    assert_eq!(http(422, r#"{"detail":[{"msg":"field required"}]}"#).message, "field required");
    assert_eq!(http(404, r#"{"error":"model 'x' not found"}"#).message, "model 'x' not found");
    assert_eq!(http(500, "").message, "HTTP 500 Reason");
    assert_eq!(http(502, "oops\n").message, "HTTP 502 Reason: oops");
    assert!(http(502, "<!DOCTYPE html><p>nginx").message.contains("web page"));
    assert!(http(500, &"x".repeat(1 << 20)).body.unwrap().len() <= MAX_BODY);
}

#[test]
fn errors_in_a_stream_are_retried_unless_they_say_otherwise() {
    let class = |json: Json| stream_error(&json).class;
    assert_eq!(class(serde_json::json!({"error": {"message": "boom", "type": "server_error"}})), ErrorClass::Retryable);
    assert_eq!(class(serde_json::json!({"error": {"message": "key", "code": 401}})), ErrorClass::Auth);
    assert_eq!(
        class(serde_json::json!({"error": {"message": "x", "code": "context_length_exceeded"}})),
        ErrorClass::ContextOverflow
    );
    assert_eq!(class(serde_json::json!({"error": {"message": "bad", "code": "400"}})), ErrorClass::Invalid);
    assert_eq!(class(serde_json::json!({"error": 5})), ErrorClass::Retryable);
}

#[test]
fn secrets_are_removed() {
    let headers = [("set-cookie", "s"), ("x-request-id", "key-123"), ("retry-after", "1")]
        .map(|(name, value)| (name.to_owned(), value.to_owned()));
    let mut error = http_error(401, "", headers, r#"{"error":"Incorrect key: key-123"}"#, SystemTime::now());
    redact(&mut error, &["key-123".to_owned()]);
    assert_eq!(error.message, "Incorrect key: ***");
    assert!(!format!("{error:?}").contains("key-123"));
    assert!(!error.headers.contains_key("set-cookie"));
    assert_eq!(error.retry_after, Some(std::time::Duration::from_secs(1)));
}

proptest::proptest! {
    #[test]
    fn any_body_gives_a_bounded_message(status in 300u16..600, body in ".{0,400}") {
        let error = http(status, &body);
        proptest::prop_assert!(error.message.len() <= MAX_MESSAGE);
    }
}
