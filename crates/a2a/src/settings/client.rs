//! The settings of the client. They are read from the environment alone, since some of them are secrets.

use web::AddressGuard;

use super::SettingError;
use super::value::{flag, line, list, number, seconds};
use crate::client::{ClientCredentials, ClientOptions, HostList};
use crate::wire::Transport;

/// A setting of the client.
pub struct ClientSetting {
    /// Its variable.
    pub variable: &'static str,
    /// What it means.
    pub meaning: &'static str,
    /// Its default, for people.
    pub default: &'static str,
    set: fn(&mut ClientOptions, &str) -> Result<(), String>,
}

/// All settings of the client.
pub const CLIENT_SETTINGS: &[ClientSetting] = &[
    ClientSetting {
        variable: "A2A_CLIENT_TIMEOUT_SECONDS",
        meaning: "how long a request may take; of a stream, its beginning",
        default: "30",
        set: |options, text| seconds(text).map(|time| options.timeout = time),
    },
    ClientSetting {
        variable: "A2A_CLIENT_CARD_FETCH_TIMEOUT_SECONDS",
        meaning: "how long fetching a card may take",
        default: "5",
        set: |options, text| seconds(text).map(|time| options.card_timeout = time),
    },
    ClientSetting {
        variable: "A2A_CLIENT_USE_CLIENT_PREFERENCE",
        meaning: "whether the order of A2A_CLIENT_SUPPORTED_TRANSPORTS decides, and not the order of the agent's card",
        default: "false",
        set: |options, text| flag(text).map(|own| options.use_client_preference = own),
    },
    ClientSetting {
        variable: "A2A_CLIENT_SUPPORTED_TRANSPORTS",
        meaning: "the transports that are used, the preferred one first",
        default: "`JSONRPC,HTTP+JSON`",
        set: |options, text| transports(text).map(|transports| options.transports = transports),
    },
    ClientSetting {
        variable: "A2A_CLIENT_PROTOCOL_VERSION",
        meaning: "the only version that is spoken, 0.3 or 1.0",
        default: "the newest that the agent speaks",
        set: |options, text| line(text).map(|line| options.line = Some(line)),
    },
    ClientSetting {
        variable: "A2A_CLIENT_BASIC_AUTH",
        meaning: "`user:password`, or its base64, for other agents",
        default: "none",
        set: |options, text| {
            let credentials = ClientCredentials::basic(text).ok_or("is neither user:password nor its base64")?;
            options.credentials = Some(credentials);
            Ok(())
        },
    },
    // After the basic credentials: a token wins.
    ClientSetting {
        variable: "A2A_CLIENT_BEARER_TOKEN",
        meaning: "the bearer token for other agents",
        default: "none",
        set: |options, text| {
            options.credentials = Some(ClientCredentials::Bearer(text.to_owned()));
            Ok(())
        },
    },
    ClientSetting {
        variable: "A2A_CLIENT_ALLOWED_HOSTS",
        meaning: "the hosts that a model may call with `a2a_call`, and that get the credentials then; `*.example.org` means its \
                  subdomains. Without it there is no such tool",
        default: "none",
        set: |options, text| {
            options.allowed_hosts = HostList::new(list(text));
            Ok(())
        },
    },
    ClientSetting {
        variable: "A2A_CLIENT_ALLOW_PRIVATE_HOSTS",
        meaning: "whether hosts that a model or a card chose may be on this machine or in private networks",
        default: "false",
        set: |options, text| {
            if flag(text)? {
                options.guard = AddressGuard::new(|_| true);
            }
            Ok(())
        },
    },
    ClientSetting {
        variable: "A2A_CLIENT_CACHE_TTL_SECONDS",
        meaning: "how long a card is used before it is fetched again",
        default: "900",
        set: |options, text| seconds(text).map(|time| options.card_ttl = time),
    },
    ClientSetting {
        variable: "A2A_CLIENT_CACHE_MAXSIZE",
        meaning: "the most cards that are kept",
        default: "256",
        set: |options, text| number(text).map(|size| options.max_cards = size),
    },
    ClientSetting {
        variable: "A2A_CLIENT_POLLING_FALLBACK_ENABLED",
        meaning: "whether a task that still runs when its stream ends is read again and again",
        default: "false",
        set: |options, text| flag(text).map(|enabled| options.polling.enabled = enabled),
    },
    ClientSetting {
        variable: "A2A_CLIENT_POLLING_FALLBACK_INITIAL_INTERVAL_SECONDS",
        meaning: "the wait before the first of these reads",
        default: "0.5",
        set: |options, text| seconds(text).map(|time| options.polling.initial_interval = time),
    },
    ClientSetting {
        variable: "A2A_CLIENT_POLLING_FALLBACK_MAX_INTERVAL_SECONDS",
        meaning: "the longest wait between two of them",
        default: "2",
        set: |options, text| seconds(text).map(|time| options.polling.max_interval = time),
    },
    ClientSetting {
        variable: "A2A_CLIENT_POLLING_FALLBACK_BACKOFF_MULTIPLIER",
        meaning: "how many times longer each wait is than the last one",
        default: "2",
        set: |options, text| {
            let factor: f64 = text.parse().map_err(|_| format!("is not a number: {text:?}"))?;
            if !factor.is_finite() || factor < 1.0 {
                return Err(format!("must be at least 1: {text:?}"));
            }
            options.polling.multiplier = factor;
            Ok(())
        },
    },
    ClientSetting {
        variable: "A2A_CLIENT_POLLING_FALLBACK_TIMEOUT_SECONDS",
        meaning: "how long to go on",
        default: "10",
        set: |options, text| seconds(text).map(|time| options.polling.timeout = time),
    },
];

impl ClientOptions {
    /// Reads the options. `env` looks a variable up; an empty one counts as missing.
    pub fn read(env: impl Fn(&str) -> Option<String>) -> Result<Self, SettingError> {
        let mut options = Self::default();
        for setting in CLIENT_SETTINGS {
            if let Some(value) = env(setting.variable).filter(|value| !value.trim().is_empty()) {
                let refused = |problem| SettingError { name: setting.variable.to_owned(), problem };
                (setting.set)(&mut options, value.trim()).map_err(refused)?;
            }
        }
        Ok(options)
    }
}

fn transports(text: &str) -> Result<Vec<Transport>, String> {
    let mut found = Vec::new();
    for name in list(text) {
        let transport = match name.to_ascii_lowercase().replace(['-', '_'], "").as_str() {
            "jsonrpc" => Transport::JsonRpc,
            "http+json" | "httpjson" => Transport::Rest,
            _ => return Err(format!("has a transport that is neither JSONRPC nor HTTP+JSON: {name:?}")),
        };
        if !found.contains(&transport) {
            found.push(transport);
        }
    }
    if found.is_empty() { Err("names no transport".to_owned()) } else { Ok(found) }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn read(values: &[(&str, &str)]) -> Result<ClientOptions, String> {
        let find = |name: &str| {
            values.iter().find(|(known, _)| format!("A2A_CLIENT_{known}") == name).map(|(_, value)| (*value).to_owned())
        };
        ClientOptions::read(find).map_err(|error| error.to_string())
    }

    #[test]
    fn variables_become_options() {
        let options = read(&[
            ("TIMEOUT_SECONDS", "2.5"),
            ("SUPPORTED_TRANSPORTS", "http-json, JSONRPC"),
            ("USE_CLIENT_PREFERENCE", "yes"),
            ("BASIC_AUTH", "u:p"),
            ("BEARER_TOKEN", "token"),
            ("ALLOWED_HOSTS", "a.example,*.b.example"),
            ("CACHE_MAXSIZE", "3"),
            ("POLLING_FALLBACK_ENABLED", "1"),
            ("POLLING_FALLBACK_BACKOFF_MULTIPLIER", " 3 "),
            ("CARD_FETCH_TIMEOUT_SECONDS", " "),
        ])
        .unwrap();
        assert_eq!(options.timeout, Duration::from_millis(2500));
        assert_eq!(options.card_timeout, Duration::from_secs(5), "an empty variable counts as missing");
        assert_eq!(options.transports, [Transport::Rest, Transport::JsonRpc]);
        assert_eq!(options.credentials, Some(ClientCredentials::Bearer("token".into())), "a token wins");
        assert!(options.use_client_preference && options.polling.enabled && !options.allowed_hosts.is_empty());
        assert_eq!((options.max_cards, options.polling.multiplier), (3, 3.0));
    }

    #[test]
    fn wrong_values_are_refused_by_name() {
        for (name, value, problem) in [
            ("TIMEOUT_SECONDS", "soon", "number of seconds"),
            ("SUPPORTED_TRANSPORTS", "GRPC", "neither JSONRPC nor HTTP+JSON"),
            ("SUPPORTED_TRANSPORTS", ",", "names no transport"),
            ("PROTOCOL_VERSION", "2.0", "neither 0.3 nor 1.0"),
            ("BASIC_AUTH", "secret", "user:password"),
            ("ALLOW_PRIVATE_HOSTS", "perhaps", "true nor false"),
            ("POLLING_FALLBACK_BACKOFF_MULTIPLIER", "0.5", "at least 1"),
            ("POLLING_FALLBACK_BACKOFF_MULTIPLIER", "NaN", "at least 1"),
        ] {
            let error = read(&[(name, value)]).unwrap_err();
            assert!(error.starts_with(&format!("A2A_CLIENT_{name} ")) && error.contains(problem), "{error}");
            assert!(!error.contains("secret"), "{error}");
        }
    }

    #[test]
    fn the_table_says_the_defaults() {
        let options = ClientOptions::default();
        let default = |name: &str| {
            let setting = CLIENT_SETTINGS.iter().find(|setting| setting.variable == format!("A2A_CLIENT_{name}"));
            setting.unwrap().default.to_owned()
        };
        let shown = |time: Duration| time.as_secs_f64().to_string();
        assert_eq!(default("TIMEOUT_SECONDS"), shown(options.timeout));
        assert_eq!(default("CARD_FETCH_TIMEOUT_SECONDS"), shown(options.card_timeout));
        assert_eq!(default("CACHE_TTL_SECONDS"), shown(options.card_ttl));
        assert_eq!(default("CACHE_MAXSIZE"), options.max_cards.to_string());
        assert_eq!(default("POLLING_FALLBACK_ENABLED"), options.polling.enabled.to_string());
        assert_eq!(default("POLLING_FALLBACK_INITIAL_INTERVAL_SECONDS"), shown(options.polling.initial_interval));
        assert_eq!(default("POLLING_FALLBACK_MAX_INTERVAL_SECONDS"), shown(options.polling.max_interval));
        assert_eq!(default("POLLING_FALLBACK_BACKOFF_MULTIPLIER"), options.polling.multiplier.to_string());
        assert_eq!(default("POLLING_FALLBACK_TIMEOUT_SECONDS"), shown(options.polling.timeout));
    }
}
