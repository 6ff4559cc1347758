//! A host whose key is not known, and a workspace that costs money: the user is asked, where the
//! client can ask.

use std::fs;

use serde_json::{Value, json};

use super::client::Client;
use crate::fake_host::FakeHost;
use crate::laptop::Laptop;
use crate::over_ssh::add_remote_to_config;
use crate::over_wafer::service::Service;
use crate::sshd::Sshd;

/// A laptop with the remote `box`, a server whose key it does not know.
fn laptop_with_server() -> (Laptop, Sshd) {
    let laptop = Laptop::new();
    FakeHost::new(&laptop);
    let sshd = Sshd::start();
    add_remote_to_config(&laptop, &sshd, sshd.port);
    (laptop, sshd)
}

fn exec() -> Value {
    json!({"argv": ["echo", "hello"], "remote": "box", "wait_s": 30})
}

/// A client that declares elicitation.
fn asking(laptop: &Laptop) -> Client {
    let mut client = Client::silent(laptop);
    let about = json!({
        "protocolVersion": "2025-06-18",
        "capabilities": {"elicitation": {}},
        "clientInfo": {"name": "test", "version": "1"},
    });
    client.request("initialize", about);
    client.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
    client
}

/// Calls `exec` and answers what is asked; the question, and the result of the call.
fn call_and_answer(client: &mut Client, arguments: Value, word: &Value) -> (String, Value) {
    let call = client.begin("exec", arguments);
    let asked = client.wait_for(|message| message["method"] == "elicitation/create");
    let form = &asked["params"]["requestedSchema"];
    assert_eq!(form["properties"]["accept"]["type"], "boolean", "{asked}");
    client.send(&json!({"jsonrpc": "2.0", "id": asked["id"], "result": word}));
    let question = asked["params"]["message"].as_str().unwrap().to_owned();
    (question, client.answer(call)["result"].clone())
}

#[test]
fn a_new_host_key_is_asked_of_the_user_and_the_call_goes_on_after_a_yes() {
    let (laptop, sshd) = laptop_with_server();
    let known = sshd.path("known_hosts");
    let mut client = asking(&laptop);
    for no in [
        json!({"action": "decline"}),
        json!({"action": "cancel"}),
        json!({"action": "accept", "content": {"accept": false}}),
    ] {
        let (question, result) = call_and_answer(&mut client, exec(), &no);
        assert!(question.contains("ssh-ed25519 SHA256:"), "{question}");
        // The key that is accepted is the one that was shown.
        let command = "Run `rgpu remote check box --host-key SHA256:";
        assert!(question.contains(command) && question.ends_with("`?"), "{question}");
        assert_eq!(result["isError"], true, "{result}");
        let hints = result["structuredContent"]["error"]["hints"].to_string();
        assert!(hints.contains("rgpu remote check box --accept-new"), "{hints}");
        assert!(!known.exists(), "{no} was taken for a yes");
    }
    let yes = json!({"action": "accept", "content": {"accept": true}});
    let (_, result) = call_and_answer(&mut client, exec(), &yes);
    assert_ne!(result["isError"], true, "{result}");
    assert_eq!(result["structuredContent"]["program_exit"], 0, "{result}");
    assert_eq!(fs::read_to_string(&known).unwrap().lines().count(), 1);
    // Nobody is asked again.
    assert_eq!(client.call("exec", exec())["program_exit"], 0);
    drop(client);
    laptop.wait_until_quiet();
}

#[test]
fn a_yes_to_one_key_accepts_no_other() {
    let (laptop, sshd) = laptop_with_server();
    let output = laptop.run("remote check box --host-key SHA256:AAAA");
    assert!(!output.status.success());
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(told.contains("was not confirmed"), "{told}");
    assert!(!sshd.path("known_hosts").exists());
    laptop.wait_until_quiet();
}

#[test]
fn a_yes_after_the_call_was_cancelled_is_none() {
    let (laptop, sshd) = laptop_with_server();
    let mut client = asking(&laptop);
    let call = client.begin("exec", exec());
    let asked = client.wait_for(|message| message["method"] == "elicitation/create");
    let cancel = json!({"requestId": call});
    client.send(&json!({
        "jsonrpc": "2.0", "method": "notifications/cancelled", "params": cancel,
    }));
    let yes = json!({"action": "accept", "content": {"accept": true}});
    client.send(&json!({"jsonrpc": "2.0", "id": asked["id"], "result": yes}));
    // The server has read both when it answers this.
    client.request("tools/list", json!({}));
    std::thread::sleep(std::time::Duration::from_secs(2));
    assert!(!sshd.path("known_hosts").exists());
    drop(client);
    laptop.wait_until_quiet();
}

#[test]
fn a_workspace_that_costs_money_starts_only_after_a_yes() {
    let laptop = Laptop::new();
    let stopped = json!({"workspaces": [
        {"name": "b200-dev", "gpu_type": "B200", "environment": "modal", "status": "creating"}
    ]});
    let _service = Service::with(&laptop, stopped).having_the_agent(&laptop);
    let arguments = || json!({"argv": ["echo", "hello"], "remote": "w200", "wait_s": 30});
    let starts = || {
        let log = fs::read_to_string(laptop.path("wafer/requests")).unwrap();
        log.lines().filter(|line| line.ends_with("/provision-stream")).count()
    };
    let mut client = asking(&laptop);
    let no = json!({"action": "decline"});
    let (question, result) = call_and_answer(&mut client, arguments(), &no);
    assert!(question.ends_with("It may cost money. Run `rgpu remote up w200`?"), "{question}");
    let error = &result["structuredContent"]["error"];
    assert_eq!(error["code"], "workspace_not_running", "{result}");
    assert!(error["hints"].to_string().contains("rgpu remote up w200"), "{result}");
    assert_eq!(starts(), 0);
    let yes = json!({"action": "accept", "content": {"accept": true}});
    let (_, result) = call_and_answer(&mut client, arguments(), &yes);
    assert_eq!(result["structuredContent"]["program_exit"], 0, "{result}");
    assert_eq!(starts(), 1);
}

#[test]
fn without_elicitation_the_call_stays_refused() {
    let (laptop, sshd) = laptop_with_server();
    let mut client = Client::start(&laptop);
    let error = client.refused("exec", exec());
    assert_eq!(error["code"], "host_key_unknown", "{error}");
    assert!(error["hints"].to_string().contains("rgpu remote check box --accept-new"), "{error}");
    assert!(!sshd.path("known_hosts").exists());
    drop(client);
    laptop.wait_until_quiet();
}

#[test]
fn in_the_newest_revision_the_client_sends_the_call_again_with_the_word() {
    let (laptop, sshd) = laptop_with_server();
    let mut client = Client::silent(&laptop);
    let about = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {"elicitation": {}},
    });
    let mut call = |with: Value| {
        let mut params = json!({"name": "exec", "arguments": exec(), "_meta": about});
        params.as_object_mut().unwrap().extend(with.as_object().unwrap().clone());
        client.request("tools/call", params)["result"].clone()
    };
    let asked = call(json!({}));
    assert_eq!(asked["resultType"], "input_required", "{asked}");
    let question = &asked["inputRequests"]["accept"]["params"]["message"];
    assert!(question.as_str().unwrap().contains("SHA256:"), "{asked}");
    let yes = json!({"accept": {"action": "accept", "content": {"accept": true}}});
    // A word to another question, or to one that was never asked, is none to this one.
    for state in ["remote up cloud", "remote check box --accept-new", ""] {
        let other = call(json!({"inputResponses": yes, "requestState": state}));
        assert_eq!(other["isError"], true, "{other}");
    }
    // A no closes the question.
    let no = json!({"accept": {"action": "decline"}});
    let closed = call(json!({"inputResponses": no, "requestState": asked["requestState"]}));
    assert_eq!(closed["isError"], true, "{closed}");
    let late = call(json!({"inputResponses": yes, "requestState": asked["requestState"]}));
    assert_eq!(late["isError"], true, "{late}");
    let asked = call(json!({}));
    assert!(!sshd.path("known_hosts").exists());
    let done = call(json!({"inputResponses": yes, "requestState": asked["requestState"]}));
    assert_eq!(done["structuredContent"]["program_exit"], 0, "{done}");
    drop(client);
    laptop.wait_until_quiet();
}
