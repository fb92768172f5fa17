//! Who is kept out: pages of other sites, names that lead here by a trick, other users of this machine.

use testkit::{TempProject, WAIT};

use super::rig::{Served, finish};

fn status(served: &Served, headers: &[(&str, &str)]) -> u16 {
    served.raw("GET", "/session", headers, None).0
}

#[test]
fn pages_of_other_sites_cannot_call() {
    let served = Served::start();
    for headers in [
        &[("origin", "https://evil.example")][..],
        &[("origin", "null")],
        &[("sec-fetch-site", "cross-site")],
        &[("origin", "http://localhost.evil.example")],
    ] {
        assert_eq!(status(&served, headers), 403, "{headers:?}");
        let (created, _) = served.raw("POST", "/session", headers, None);
        assert_eq!(created, 403, "{headers:?}");
    }
    assert_eq!(served.send("GET", "/session", None).1, serde_json::json!([]), "nothing was made");
    assert_eq!(status(&served, &[("origin", "http://localhost:3000")]), 200);
}

#[test]
fn a_name_that_was_bound_anew_leads_nowhere() {
    let served = Served::start();
    let port = served.address().port();
    for host in [format!("evil.example:{port}"), format!("localhost.evil.example:{port}"), "10.0.0.1".into()] {
        assert_eq!(status(&served, &[("host", &host)]), 403, "{host}");
    }
    assert_eq!(status(&served, &[("host", &format!("localhost:{port}"))]), 200);
}

#[test]
fn other_users_of_this_machine_need_the_password() {
    if !rustix::process::getuid().is_root() {
        // Only root can become somebody else.
        return;
    }
    let curl = |served: &Served, credentials: Option<&str>| {
        let mut command = std::process::Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups", "curl", "--silent", "--max-time", "50"]);
        command.args(["--output", "/dev/null", "--write-out", "%{http_code}", &format!("{}/session", served.url)]);
        if let Some(credentials) = credentials {
            command.args(["--user", credentials]);
        }
        String::from_utf8(finish(command, WAIT).stdout).unwrap()
    };
    let served = Served::start();
    assert_eq!(curl(&served, None), "403");
    assert_eq!(status(&served, &[]), 200);
    let shut = Served::with(TempProject::new(), |command| {
        command.env("OPENCODE_SERVER_PASSWORD", "secret");
    });
    assert_eq!(curl(&shut, None), "401");
    assert_eq!(curl(&shut, Some("opencode:wrong")), "401");
    assert_eq!(curl(&shut, Some("opencode:secret")), "200");
    assert_eq!(status(&shut, &[]), 401, "the password counts for us too");
}
