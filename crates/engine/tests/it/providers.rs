//! The key of a known provider is enough to begin.

use crate::common::{Lab, text};
use serde_json::json;
use testkit::{ModelServer, Reply};

#[tokio::test]
async fn a_known_provider_has_a_model_for_prompts_that_name_none() {
    let model = ModelServer::start().await;
    model.list_models(&["a/first", "openai/gpt-5", "z/last"]);
    let options = json!({"baseURL": model.base_url(), "apiKey": "sk-or"});
    let lab = Lab::with(json!({"provider": {"openrouter": {"options": options}}}));
    let session = lab.session().await;
    model.enqueue(Reply::text("hello"));
    assert_eq!(text(&lab.say(&session, "hi").await), "hello", "and it is not the offline demo");
    let asked = model.requests().remove(0);
    assert_eq!((asked.body["model"].as_str(), asked.header("authorization")), (Some("openai/gpt-5"), "Bearer sk-or"));
    assert_eq!(asked.body["usage"], json!({"include": true}));
}
