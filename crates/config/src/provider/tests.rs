use super::*;
use serde_json::json;

fn build(config: Json, env: &[(&str, &str)]) -> (Vec<ProviderEntry>, Vec<Problem>) {
    build_with(config, env, &[])
}

fn build_with(config: Json, env: &[(&str, &str)], keys: &[(&str, &str)]) -> (Vec<ProviderEntry>, Vec<Problem>) {
    let Json::Object(map) = config else { panic!("not an object") };
    let owned = |pairs: &[(&str, &str)]| pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
    let mut problems = Vec::new();
    let config = crate::schema::typed::read(map, &mut problems);
    let entries = providers(&config, &owned(env), &owned(keys), &mut problems).usable;
    (entries, problems)
}

/// Why a provider cannot be used, and whether the user meant to use it.
fn refusal(config: Json, env: &[(&str, &str)], id: &str) -> (String, bool) {
    let Json::Object(map) = config else { panic!("not an object") };
    let env = env.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    let config = crate::schema::typed::read(map, &mut Vec::new());
    let all = providers(&config, &env, &BTreeMap::new(), &mut Vec::new());
    let unusable = all.unusable.get(id).unwrap_or_else(|| panic!("{id} can be used, or is not known"));
    assert!(all.usable.iter().all(|entry| entry.provider.id != id), "{id} is both");
    (unusable.why.clone(), unusable.meant)
}

#[test]
fn every_vendor_without_a_key_says_which_variable_to_set_and_that_variable_connects_it() {
    let variables = VENDORS.iter().flat_map(|vendor| vendor.env.iter().map(move |variable| (vendor, *variable)));
    for (vendor, variable) in variables {
        let id = vendor.id;
        for (config, meant) in [(json!({}), false), (json!({"provider": {id: {"models": {"m": {}}}}}), true)] {
            let (why, wanted) = refusal(config.clone(), &[], id);
            assert!(why.contains(vendor.env[0]) && why.contains(&format!("trefoil auth login {id}")), "{why}");
            assert_eq!(wanted, meant, "{id}");
            let (entries, problems) = build(config, &[(variable, "sk-1")]);
            assert_eq!(problems, []);
            assert_eq!((entries[0].provider.id.as_str(), entries[0].api_key.as_deref()), (id, Some("sk-1")));
        }
    }
}

#[test]
fn unusable_providers_say_what_to_change() {
    let named = |id: &str| json!({"provider": {id: {"options": {"baseURL": "http://h/v1"}, "models": {"m": {}}}}});
    let off = |key: &str, ids: Json| {
        let mut config = named("mine");
        config[key] = ids;
        config
    };
    for (config, env, id, part, meant) in [
        (off("disabled_providers", json!(["mine"])), &[][..], "mine", "disabled_providers", true),
        (off("enabled_providers", json!(["other"])), &[], "mine", "enabled_providers", true),
        (json!({"disabled_providers": ["openai"]}), &[("OPENAI_API_KEY", "k")], "openai", "disabled_providers", true),
        (json!({}), &[], "anthropic", "Anthropic Messages", false),
        (json!({}), &[("ANTHROPIC_API_KEY", "k")], "anthropic", "Anthropic Messages", true),
        (json!({}), &[("GEMINI_API_KEY", "k")], "google", "Gemini", true),
        (json!({"provider": {"x": {"models": {"m": {}}}}}), &[], "x", "options.baseURL", true),
        (json!({}), &[], "ollama", "OPENAI_BASE_URL=http://127.0.0.1:11434/v1", false),
    ] {
        let (why, wanted) = refusal(config.clone(), env, id);
        assert!(why.contains(part), "{config}: {why}");
        assert_eq!(wanted, meant, "{config}");
    }
}

#[test]
fn a_stored_key_connects_a_vendor_and_wins_over_the_environment() {
    let key = |entries: &[ProviderEntry]| entries[0].api_key.clone().unwrap();
    let (entries, _) = build_with(json!({}), &[], &[("openai", "sk-stored"), ("nobody", "x")]);
    assert_eq!(entries.len(), 1);
    assert_eq!((key(&entries).as_str(), entries[0].provider.source), ("sk-stored", ProviderSource::Api));
    assert!(connectable(&Config::default(), &entries).is_empty());
    let (entries, _) = build_with(json!({}), &[("OPENAI_API_KEY", "sk-env")], &[("openai", "sk-stored")]);
    assert_eq!(key(&entries), "sk-stored");
    let written = json!({"provider": {"openai": {"options": {"apiKey": "sk-file"}}}});
    let (entries, _) = build_with(written, &[], &[("openai", "sk-stored")]);
    assert_eq!(key(&entries), "sk-file");
    let (entries, _) = build_with(json!({"disabled_providers": ["openai"]}), &[], &[("openai", "sk-stored")]);
    assert!(entries.is_empty());
    let offered = connectable(&Config::default(), &[]);
    assert_eq!(offered[0].id, "openai");
    assert!(!offered[0].models.is_empty());
}

#[test]
fn presentable_providers_contain_no_secret() {
    let config = json!({"provider": {"p": {
        "options": {"baseURL": "http://u:sk-1@h/v1", "apiKey": "sk-2", "secretAccessKey": "sk-3", "x": "y"},
        "models": {"m": {"headers": {"Authorization": "sk-4"}, "options": {"token": "sk-5"}, "variants": {"v": {"apiKey": "sk-6"}}}},
    }}});
    let (entries, _) = build(config, &[]);
    let shown = serde_json::to_string(&presentable(&entries[0].provider, &Redactor::default())).unwrap();
    assert!(!shown.contains("sk-"), "{shown}");
    assert!(shown.contains("\"x\":\"y\""), "{shown}");
}

#[test]
fn a_configured_provider() {
    let config = json!({"provider": {"fake": {
        "name": "Fake", "npm": "@ai-sdk/openai-compatible",
        "options": {"apiKey": "sk-fake", "baseURL": "http://127.0.0.1:1/v1/", "headers": {"x-a": "b"}, "chunkTimeout": 5, "timeout": false, "x": 1},
        "models": {
            "m": {
                "id": "real", "name": "M", "attachment": true, "reasoning": true, "tool_call": false,
                "cost": {"input": 1, "output": 2, "cache_read": 0.1}, "limit": {"context": 1000, "output": 10},
                "modalities": {"input": ["text", "pdf"], "output": ["text"]}, "headers": {"h": "v"},
                "variants": {"low": {"reasoningEffort": "low"}, "off": {"disabled": true}}, "interleaved": {"field": "r"},
            },
            "plain": {"attachment": true}, "black": {}, "other": {"provider": {"api": "http://x/"}},
        },
        "blacklist": ["black"],
    }}});
    let (entries, problems) = build(config, &[]);
    assert_eq!(problems, []);
    let entry = &entries[0];
    assert_eq!(entry.base_url, "http://127.0.0.1:1/v1");
    assert_eq!(entry.api_key.as_deref(), Some("sk-fake"));
    assert_eq!(entry.headers, [("x-a".to_owned(), "b".to_owned())]);
    assert_eq!(entry.timeouts.total, Some(MAX_TIMEOUT));
    assert_eq!(entry.timeouts.chunk, Some(Duration::from_millis(5)));
    assert_eq!(entry.timeouts.header, None);
    let shown = serde_json::to_value(&entry.provider).unwrap();
    assert!(!shown.to_string().contains("sk-fake"), "{shown}");
    assert_eq!(shown["options"]["x"], 1);
    let want = json!({
        "id": "m", "providerID": "fake", "name": "M", "status": "active", "options": {}, "headers": {"h": "v"},
        "api": {"id": "real", "url": "http://127.0.0.1:1/v1", "npm": "@ai-sdk/openai-compatible"},
        "capabilities": {
            "temperature": false, "reasoning": true, "attachment": true, "toolcall": false,
            "input": {"text": true, "audio": false, "image": false, "video": false, "pdf": true},
            "output": {"text": true, "audio": false, "image": false, "video": false, "pdf": false},
            "interleaved": {"field": "r"},
        },
        "cost": {"input": 1, "output": 2, "cache": {"read": 0.1, "write": 0}},
        "limit": {"context": 1000, "output": 10}, "release_date": "", "variants": {"low": {"reasoningEffort": "low"}},
    });
    assert_eq!(shown["models"]["m"], want);
    assert!(entry.provider.models["plain"].capabilities.input.image);
    assert!(entry.provider.models["plain"].capabilities.toolcall);
    assert_eq!(entry.provider.models["other"].api.url, "http://x");
    assert_eq!(entry.provider.models.len(), 3);
    assert!(!format!("{entry:?}").contains("sk-"));
}

#[test]
fn openai_from_the_environment() {
    assert_eq!(build(json!({}), &[]).0, []);
    let (entries, problems) = build(json!({}), &[("OPENAI_API_KEY", "sk")]);
    assert_eq!(problems, []);
    assert_eq!(entries[0].base_url, "https://api.openai.com/v1");
    assert_eq!(entries[0].provider.source, ProviderSource::Env);
    let model = &entries[0].provider.models["gpt-5"];
    assert_eq!((model.limit.context, model.provider_id.as_str()), (400_000, "openai"));

    let local = [("OPENAI_BASE_URL", "http://localhost:8080/v1"), ("OPENAI_MODEL", "qwen")];
    let (entries, problems) = build(json!({}), &local);
    assert_eq!(problems, []);
    assert_eq!(entries[0].api_key, None);
    assert_eq!(entries[0].provider.models.keys().collect::<Vec<_>>(), ["qwen"]);

    // Its server is asked for its models.
    let (entries, problems) = build(json!({}), &local[..1]);
    assert_eq!(problems, []);
    assert!(entries[0].lists_models());
    let model = entries[0].listed_model("qwen");
    assert_eq!((model.provider_id.as_str(), model.api.id.as_str()), ("openai", "qwen"));
    assert_eq!(model.api.url, "http://localhost:8080/v1");
}

#[test]
fn configuration_and_environment_are_combined() {
    let config = json!({"provider": {"openai": {"models": {"gpt-5": {"name": "Mine"}, "new": {}}, "whitelist": ["gpt-5", "new"]}}});
    let (entries, problems) = build(config.clone(), &[("OPENAI_API_KEY", "sk")]);
    assert_eq!(problems, []);
    let models = &entries[0].provider.models;
    assert_eq!(models.keys().collect::<Vec<_>>(), ["gpt-5", "new"]);
    assert_eq!((models["gpt-5"].name.as_str(), models["gpt-5"].limit.output), ("Mine", 128_000));
    let (entries, problems) = build(config, &[]);
    assert_eq!(entries, []);
    assert!(problems[0].message.contains("set OPENAI_API_KEY"), "{problems:?}");
}

#[test]
fn unusable_providers_are_reported() {
    for (config, part) in [
        (json!({"provider": {"anthropic": {"options": {"apiKey": "k"}}}}), "Anthropic Messages"),
        (json!({"provider": {"g": {"npm": "@ai-sdk/google"}}}), "Gemini"),
        (json!({"provider": {"b": {"npm": "@ai-sdk/amazon-bedrock"}}}), "@ai-sdk/amazon-bedrock"),
        (json!({"provider": {"x": {"models": {"m": {}}}}}), "options.baseURL"),
        (json!({"provider": {"x": {"api": "ftp://x"}}}), "http://"),
    ] {
        let (entries, problems) = build(config.clone(), &[]);
        assert_eq!(entries, [], "{config}");
        assert!(problems[0].message.contains(part), "{problems:?}");
    }
}

#[test]
fn providers_are_filtered_and_local_ones_need_no_key() {
    let mut config = json!({"provider": {"ollama": {"models": {"q": {}}}, "lmstudio": {"models": {"q": {}}}}});
    assert_eq!(build(config.clone(), &[]).0.len(), 2);
    config["disabled_providers"] = json!(["ollama"]);
    assert_eq!(build(config.clone(), &[]).0[0].provider.id, "lmstudio");
    config["enabled_providers"] = json!(["ollama"]);
    assert_eq!(build(config, &[]).0, []);
}
