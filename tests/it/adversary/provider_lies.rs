//! What a hostile Modal app and a hostile Wafer service need beyond a hostile worker: how a laptop
//! comes to know them, and false answers that only Wafer's clients read.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use serde_json::{Value, json};

use super::http::{Answer, whole};
use super::invalid_messages::ESCAPES;
use crate::laptop::Laptop;

/// Good until the year 2100.
const TOKEN: &str = "e30.eyJleHAiOjQxMDI0NDQ4MDB9.x";

/// Makes an app on Modal at `port` known to the laptop as `box`.
pub(super) fn know_modal(laptop: &Laptop, port: u16) {
    let file = laptop.path("modal.env");
    write_secret(&file, "MODAL_KEY=wk-key\nMODAL_SECRET=ws-secret\n");
    let settings = format!(
        "[remote.box]\nurl = \"modal+http://127.0.0.1:{port}\"\noptions = {{ env_file = {file:?} }}\n"
    );
    fs::write(laptop.path("config/config.toml"), settings).unwrap();
}

/// Makes a workspace of Wafer's service at `port` known to the laptop as `box`.
pub(super) fn know_wafer(laptop: &Laptop, port: u16) {
    let folder = laptop.path("home/.wafer");
    fs::create_dir_all(&folder).unwrap();
    let config = format!(
        "[api]\nenvironment = \"local\"\n[api.environments.local]\n\
         url = \"http://127.0.0.1:{port}\"\nsupabase_url = \"http://127.0.0.1:{port}\"\n\
         supabase_anon_key = \"public\"\n"
    );
    fs::write(folder.join("config.toml"), config).unwrap();
    let login = json!({"access_token": TOKEN, "refresh_token": "refresh-1"});
    write_secret(&folder.join("credentials.json"), &login.to_string());
    let settings = "[remote.box]\nurl = \"wafer://b200-dev\"\n";
    fs::write(laptop.path("config/config.toml"), settings).unwrap();
}

fn write_secret(path: &std::path::Path, text: &str) {
    fs::write(path, text).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
}

/// A running workspace without ssh access, with these fields in place of its own.
pub(super) fn workspace(fields: Value) -> Vec<u8> {
    let mut workspace =
        json!({"id": "b200-dev", "name": "b200-dev", "status": "running", "gpu_type": "B200"});
    for (name, value) in fields.as_object().unwrap() {
        workspace[name] = value.clone();
    }
    workspace.to_string().into_bytes()
}

/// False workspaces, and false streams of a command.
pub(super) fn of_wafer() -> Vec<(String, Answer)> {
    let mut all = Vec::new();
    for (name, fields) in [
        ("a workspace with terminal commands", json!({"status": ESCAPES, "name": ESCAPES})),
        ("a workspace outside its path", json!({"id": "../../v1/usage?x=\r\nX-Y: z#"})),
        ("a workspace without an id", json!({"id": ""})),
        ("a workspace of other types", json!({"id": 7, "status": ["running"]})),
        ("ssh options for a host", json!({"ssh_host": "-oProxyCommand=touch x", "ssh_port": 22})),
        (
            "an ssh host with a shell's text",
            json!({"ssh_host": "h;touch x`y`$(z)", "ssh_port": 22}),
        ),
        ("an ssh user with a shell's text", ssh("127.0.0.1", 9, "-l $(touch x)@elsewhere/")),
        ("ssh port 0", ssh("127.0.0.1", 0, "root")),
        ("ssh port 99999", json!({"ssh_host": "127.0.0.1", "ssh_port": 99999})),
        ("an ssh host with terminal commands", ssh(ESCAPES, 22, ESCAPES)),
    ] {
        let answer = Answer::Bytes(whole("200 OK", "", &workspace(fields)));
        all.push((name.to_owned(), answer));
    }
    let stream = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n";
    for (name, line) in [
        ("status", format!("[STATUS:{ESCAPES}]")),
        ("queue", format!("[QUEUE_POSITION:{ESCAPES}:99999999999999999999]")),
        ("bill", format!("[BILLING:$1e308 {ESCAPES}]")),
        ("error", format!("[ERROR] {ESCAPES}")),
        ("exit", "[EXIT:99999999999999999999]".to_owned()),
        ("a failed exit", "[EXIT:-1]".to_owned()),
        ("done", "[DONE]".to_owned()),
        ("report", "[REPORT_READY:../../../../etc/passwd]".to_owned()),
        ("ssh", "[SSH:-oProxyCommand=x:0:root]".to_owned()),
        ("text", ESCAPES.to_owned()),
        ("nothing", String::new()),
    ] {
        let line = format!("data: {line}\n\n").into_bytes();
        let once = [stream.as_slice(), &line].concat();
        all.push((format!("stream: {name}"), Answer::Bytes(once)));
        // Some of these end the command, so only what comes after the first line is endless.
        let answer = Answer::Endless(stream.to_vec(), line.repeat(1000));
        all.push((format!("stream: {name} without end"), answer));
    }
    all
}

fn ssh(host: &str, port: u16, user: &str) -> Value {
    json!({"ssh_host": host, "ssh_port": port, "ssh_user": user})
}
