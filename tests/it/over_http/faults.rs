//! Servers that are no workers, or bad ones: each way has a name and says what to do.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::worker::{Worker, add_remote_to_config};
use crate::laptop::{Laptop, status, wait_for};
use crate::sshd::free_port;

/// A server that says the same to everybody; and how often it was asked.
fn server(answer: String) -> (u16, Arc<AtomicUsize>) {
    serve(move |mut stream| drop(stream.write_all(answer.as_bytes())))
}

fn serve(answer: impl Fn(TcpStream) + Send + Sync + 'static) -> (u16, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let asked = Arc::new(AtomicUsize::new(0));
    let count = asked.clone();
    let answer = Arc::new(answer);
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            count.fetch_add(1, Ordering::SeqCst);
            let answer = answer.clone();
            std::thread::spawn(move || {
                let (mut stream, mut head) = (stream, Vec::new());
                while !head.ends_with(b"\r\n\r\n") {
                    let mut byte = [0];
                    match stream.read(&mut byte) {
                        Ok(1) => head.push(byte[0]),
                        _ => return,
                    }
                }
                answer(stream);
            });
        }
    });
    (port, asked)
}

fn reply(status: &str, headers: &str, body: &str) -> String {
    let len = body.len();
    format!(
        "HTTP/1.1 {status}\r\nContent-Length: {len}\r\nConnection: close\r\n{headers}\r\n{body}"
    )
}

/// What `remote check` says of the server at a port.
fn check(laptop: &Laptop, port: u16) -> Value {
    add_remote_to_config(laptop, port);
    let output = laptop.run("remote check box --json");
    assert_eq!(status(&output), 4, "{}", laptop.shown("remote check box", &output));
    let mut document: Value = serde_json::from_slice(&output.stdout).unwrap();
    document["error"].take()
}

fn with_token() -> Laptop {
    let laptop = Laptop::new();
    let path = laptop.path("token");
    std::fs::write(&path, "a-token-that-must-not-be-told\n").unwrap();
    std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    laptop
}

#[test]
fn every_known_refusal_has_a_name_and_tells_no_token() {
    let laptop = with_token();
    for (status, body, code) in [
        (
            "401 Unauthorized",
            "modal-http: missing credentials for proxy authorization",
            "wrong_token",
        ),
        ("402 Payment Required", "{\"detail\": \"no credits\"}", "no_credit"),
        ("404 Not Found", "modal-http: invalid function call", "no_such_app"),
        ("404 Not Found", "<html>nginx</html>", "wrong_address"),
        (
            "408 Request Timeout",
            "Missing request, possibly due to expiry or cancellation",
            "request_lost",
        ),
        ("429 Too Many Requests", "", "too_many"),
        (
            "500 Internal Server Error",
            "modal-http: internal error: function execution timed out",
            "function_timeout",
        ),
        ("503 Service Unavailable", "<html>busy</html>", "busy"),
        ("200 OK", "<html>Welcome to nginx</html>", "not_a_worker"),
        ("200 OK", "{\"status\": \"ok\"}", "not_a_worker"),
        ("200 OK", "", "not_a_worker"),
    ] {
        let (port, _) = server(reply(status, "", body));
        let error = check(&laptop, port);
        assert_eq!(error["code"], code, "{status} {body}: {error}");
        assert!(!error.to_string().contains("a-token-that"), "{error}");
        assert!(!error["what"].as_str().unwrap().is_empty());
    }
}

#[test]
fn what_may_pass_is_tried_again_and_what_cannot_is_not() {
    let laptop = with_token();
    let (port, asked) = server(reply("503 Service Unavailable", "Retry-After: 0\r\n", ""));
    check(&laptop, port);
    assert_eq!(asked.load(Ordering::SeqCst), 4);
    let (port, asked) = server(reply("401 Unauthorized", "", ""));
    check(&laptop, port);
    assert_eq!(asked.load(Ordering::SeqCst), 1);
}

#[test]
fn redirects_are_not_followed_wherever_they_lead() {
    let laptop = with_token();
    let (elsewhere, asked) = server(reply("200 OK", "", "{}"));
    for status in ["301 Moved Permanently", "302 Found", "303 See Other", "307 Temporary Redirect"]
    {
        let to = format!("Location: http://127.0.0.1:{elsewhere}/v1/health\r\n");
        let (port, _) = server(reply(status, &to, ""));
        let error = check(&laptop, port);
        assert_eq!(error["code"], "redirected", "{error}");
        assert!(error["cause"].as_str().unwrap().contains(&elsewhere.to_string()), "{error}");
    }
    assert_eq!(asked.load(Ordering::SeqCst), 0);
    let (port, asked) = server(reply("302 Found", "Location: /v1/health\r\n", ""));
    assert_eq!(check(&laptop, port)["code"], "redirected");
    assert_eq!(asked.load(Ordering::SeqCst), 1);
}

#[test]
fn servers_that_hang_up_or_stop_in_the_middle_are_told_apart() {
    let laptop = with_token();
    let (port, _) = serve(drop);
    assert_eq!(check(&laptop, port)["code"], "link_cut");
    let (port, _) = server("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{\"rgpu\"".into());
    assert_eq!(check(&laptop, port)["code"], "link_cut");
    let (port, _) = server("SSH-2.0-OpenSSH_9.2\r\n".into());
    assert_eq!(check(&laptop, port)["code"], "link_cut");
    assert_eq!(check(&laptop, free_port())["code"], "unreachable");
}

/// What `remote check` says of this address.
fn check_at(laptop: &Laptop, url: &str) -> (Value, String) {
    let token = laptop.path("token");
    let line = format!("remote add at {url} --token-file {}", token.display());
    assert_eq!(status(&laptop.run(&line)), 0);
    let document: Value =
        serde_json::from_slice(&laptop.run("remote check at --json").stdout).unwrap();
    let error = &document["error"];
    (error["code"].clone(), error["hints"].to_string())
}

#[test]
fn an_address_of_tls_says_that_the_server_speaks_none() {
    let laptop = with_token();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let _ = stream.read(&mut [0; 512]);
            let _ = stream.write_all(reply("400 Bad Request", "", "").as_bytes());
        }
    });
    let (code, hints) = check_at(&laptop, &format!("https://127.0.0.1:{port}"));
    let again = format!("rgpu remote add at http://127.0.0.1:{port}");
    assert!(code == "no_tls" && hints.contains(&again), "{code} {hints}");
}

/// A server with TLS that ends when this does.
struct OpenSsl(std::process::Child);

impl Drop for OpenSsl {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn an_address_without_tls_says_that_the_server_wants_it() {
    let laptop = with_token();
    let openssl = |args: &[&str]| {
        let mut command = std::process::Command::new("openssl");
        command.args(args).current_dir(laptop.path("tmp"));
        command.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null());
        command
    };
    let make = ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=x"];
    let files = ["-keyout", "key.pem", "-out", "cert.pem"];
    if !openssl(&[&make[..], &files[..]].concat()).status().is_ok_and(|made| made.success()) {
        eprintln!("skipped: there is no openssl here");
        return;
    }
    let port = free_port();
    let accept = port.to_string();
    let serve = ["s_server", "-accept", &accept, "-key", "key.pem", "-cert", "cert.pem", "-www"];
    let server = OpenSsl(openssl(&serve).spawn().unwrap());
    wait_for("openssl to listen", || TcpStream::connect(("127.0.0.1", port)).ok());
    let (code, hints) = check_at(&laptop, &format!("http://127.0.0.1:{port}"));
    let again = format!("rgpu remote add at https://127.0.0.1:{port}");
    assert!(code == "wants_tls" && hints.contains(&again), "{code} {hints}");
    drop(server);
}

#[test]
fn servers_that_say_one_byte_a_second_are_left_within_their_time() {
    let begun = Instant::now();
    // From its first byte on, or from that of a body on.
    let heads = ["", "HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n"];
    std::thread::scope(|threads| {
        for head in heads {
            threads.spawn(move || {
                let laptop = with_token();
                let (port, _) = serve(move |mut stream| {
                    let _ = stream.write_all(head.as_bytes());
                    for byte in b"HTTP/1.1 200 OK\r\n".iter().cycle().take(300) {
                        if stream.write_all(&[*byte]).is_err() {
                            return;
                        }
                        std::thread::sleep(Duration::from_secs(1));
                    }
                });
                assert_eq!(check(&laptop, port)["code"], "no_answer", "{head}");
            });
        }
    });
    assert!(begun.elapsed() < Duration::from_secs(100));
}

#[test]
fn a_wrong_token_an_unset_one_and_one_in_the_clear_are_told_with_their_remedy() {
    let laptop = Laptop::new();
    let worker = Worker::start(&laptop);
    let port = worker.port;
    std::fs::write(laptop.path("token"), "not-the-right-token\n").unwrap();
    let error = check(&laptop, port);
    assert_eq!(error["code"], "wrong_token");
    assert!(error["hints"].to_string().contains("rgpu remote add box"), "{error}");
    let run = |line: &str| {
        let output = laptop.run(line);
        (status(&output), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (exit, _) = run(&format!("remote add env http://127.0.0.1:{port} --token-env NO_SUCH"));
    assert_eq!(exit, 0);
    let (exit, said) = run("remote check env");
    assert!(exit == 3 && said.contains("$NO_SUCH is not set"), "{exit} {said}");
    std::fs::write(laptop.path("token"), "\n").unwrap();
    let (exit, said) = run("remote check box");
    assert!(exit == 3 && said.contains("is empty"), "{exit} {said}");
    assert!(said.contains("put the token") && !said.contains("remote add"), "{said}");
    let (exit, said) = run("remote add clear http://gpu-box:8790 --token-env T");
    assert!(exit == 3 && said.contains("ssh -L") && said.contains("--allow-plain-http"), "{said}");
    let (exit, _) = run("remote add clear http://gpu-box:8790 --token-env T --allow-plain-http");
    assert_eq!(exit, 0);
    let (exit, said) = run("remote add bad http://127.0.0.1:1 --jump a --token-env T");
    assert!(exit == 3 && said.contains("jump"), "{said}");
}

#[test]
fn a_run_whose_job_is_not_on_the_host_ends_wherever_it_is_taken_up_or_stopped() {
    let laptop = Laptop::new();
    let _worker = Worker::start(&laptop);
    let mut story = String::new();
    for (remote, then) in [("box", "attach"), ("box", "cancel"), ("local", "attach")] {
        let run = format!("{remote}-{then}");
        let line = format!("exec --detach --remote {remote} --run-id {run} -- true");
        assert_eq!(status(&laptop.run(&line)), 0);
        let job = laptop.path(format!("agent/jobs/{run}.1"));
        wait_for("the end of the job", || {
            let events = std::fs::read_to_string(job.join("events.jsonl")).ok()?;
            events.contains("\"ended\"").then_some(())
        });
        std::fs::remove_dir_all(&job).unwrap();
        story += &laptop.show(&format!("runs {then} {run}"));
        let record = laptop.project(format!("artifacts/runs/{run}/run.json"));
        let record: Value = serde_json::from_slice(&std::fs::read(record).unwrap()).unwrap();
        let ended = if then == "attach" { "failed" } else { "cancelled" };
        assert_eq!(record["state"], ended, "{run}");
    }
    let story = regex::Regex::new(r"127\.0\.0\.1:\d+").unwrap().replace_all(&story, "[HOST]");
    insta::assert_snapshot!(story);
}

/// A proxy before a worker's port. Once `drips` is set, it answers each request with a body of which
/// a byte comes every half second.
fn dripping_proxy(port: u16, drips: Arc<AtomicBool>) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let own = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for client in listener.incoming().flatten() {
            let drips = drips.clone();
            std::thread::spawn(move || carry_or_drip(client, port, &drips));
        }
    });
    own
}

/// Carries one connection, until the first request that comes while `drips` is set.
fn carry_or_drip(mut client: TcpStream, port: u16, drips: &AtomicBool) -> Option<()> {
    let mut worker = TcpStream::connect(("127.0.0.1", port)).ok()?;
    let (mut answers, mut to_client) = (worker.try_clone().ok()?, client.try_clone().ok()?);
    std::thread::spawn(move || std::io::copy(&mut answers, &mut to_client));
    let mut bytes = [0; 1 << 16];
    loop {
        let count = client.read(&mut bytes).ok().filter(|count| *count > 0)?;
        if drips.load(Ordering::SeqCst) && bytes[..count].starts_with(b"POST") {
            break;
        }
        worker.write_all(&bytes[..count]).ok()?;
    }
    let head = "HTTP/1.1 200 OK\r\nrgpu-mail: {\"taken\":0,\"from\":0,\"ended\":false}\r\n\
                content-length: 4000000\r\n\r\n";
    client.write_all(head.as_bytes()).ok()?;
    loop {
        client.write_all(b"x").ok()?;
        std::thread::sleep(Duration::from_millis(500));
    }
}

#[test]
fn a_second_ctrl_c_ends_a_command_at_once_although_the_host_drips() {
    let laptop = Laptop::new();
    let worker = Worker::start(&laptop);
    let drips = Arc::new(AtomicBool::new(false));
    add_remote_to_config(&laptop, dripping_proxy(worker.port, drips.clone()));
    let mut command =
        laptop.rgpu(["exec", "--remote", "box", "--", "sh", "-c", "echo on; sleep 60"]);
    command.stdout(std::fs::File::create(laptop.path("shown")).unwrap());
    let mut child = command.stderr(std::process::Stdio::null()).spawn().unwrap();
    let shown = || std::fs::read_to_string(laptop.path("shown")).unwrap_or_default();
    wait_for("the program's output", || shown().contains("on").then_some(()));
    drips.store(true, Ordering::SeqCst);
    let interrupt = || kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    interrupt();
    // The command has asked the host to cancel, and waits for its confirmation.
    std::thread::sleep(Duration::from_secs(2));
    interrupt();
    let asked_at = Instant::now();
    let status = child.wait().unwrap();
    let took = asked_at.elapsed();
    assert!(took < Duration::from_millis(2500), "{took:?}");
    assert_eq!(status.code(), Some(130), "{}", shown());
}
