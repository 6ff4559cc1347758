//! `rgpu worker`: serves this host over HTTP.
//!
//! Creates the token if there is none, then execs the agent's server, so that both share signals
//! and exit.

#![expect(clippy::disallowed_methods, reason = "files that the user named, or rgpu's own")]

use std::fs::OpenOptions;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use base64ct::{Base64UrlUnpadded, Encoding};
use clap::Args;

use super::support::app::{App, Status};
use super::support::session;
use rgpu_model::error::{Exit, Failure, Result, shell_word};

/// Let others run jobs on this host over HTTP, with a token
///
/// It has no TLS of its own: put a TLS server in front of it, or reach it through `ssh -L`.
#[derive(Args, Clone, Debug)]
#[command(after_long_help = examples!(
    "rgpu worker",
    "rgpu worker --listen 127.0.0.1:8791 --token-file team.token",
))]
pub(super) struct WorkerArgs {
    /// The address and port to listen on
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8790")]
    pub listen: SocketAddr,

    /// The file with the token, which is created if it does not exist [default: worker-token in
    /// rgpu's data folder]
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,

    /// A host name under which clients reach this host
    #[arg(long, value_name = "NAME")]
    pub allow_host: Vec<String>,
}

/// Random bytes of a new token.
const TOKEN_BYTES: usize = 32;

/// The server refuses shorter tokens.
const MIN_TOKEN_BYTES: usize = 16;

/// Execs the server. Returns only on failure.
pub(super) fn run(app: &App, args: &WorkerArgs) -> Result<Status> {
    let programs = session::programs(app)?;
    let Some(server) = programs.worker else {
        return Err(Failure::new(
            Exit::Config,
            "no_worker",
            "there is no `rgpu-agent-http` on this machine",
        )
        .cause(format!("looked beside `{}`", programs.agent.display()))
        .hint(
            "wheel and tarball have it, in `libexec/rgpu` beside `bin`: install one of these, or \
             set RGPU_LIBEXEC to the folder that it lies in",
        ));
    };
    let file = match &args.token_file {
        Some(file) => app.cwd.join(file),
        None => app.data.join("worker-token"),
    };
    let path_text = file.display();
    // The server checks both again, but its messages have no hints.
    check_address(args.listen)?;
    if args.token_file.is_some() {
        check_folder(&file)?;
    }
    if make_token(&file).map_err(|e| {
        Failure::new(Exit::Disk, "disk", "the token cannot be written").file(&path_text).cause(e)
    })? {
        app.print_note(&format!("a token was made: {path_text}"));
    }
    check_token(&file)?;
    app.print_note(&format!(
        "on the other side: rgpu remote add NAME {} --token-file FILE",
        if args.listen.ip().is_loopback() {
            format!("http://{}", args.listen)
        } else {
            "https://HOST".to_owned()
        }
    ));
    let mut command = Command::new(&server);
    command.arg("serve").arg("--listen").arg(args.listen.to_string());
    command.arg("--token-file").arg(&file);
    for name in &args.allow_host {
        command.arg("--allow-host").arg(name);
    }
    if app.global.json {
        command.arg("--json");
    }
    let error = command.exec();
    Err(Failure::new(Exit::Host, "spawn_failed", "the worker cannot be started")
        .file(server.display())
        .cause(error))
}

/// Checks that the server can listen on this address.
fn check_address(address: SocketAddr) -> Result<()> {
    let Err(error) = TcpListener::bind(address) else { return Ok(()) };
    let failure = |code: &str, what: String| Failure::new(Exit::Host, code, what).cause(&error);
    Err(match error.kind() {
        ErrorKind::AddrInUse => {
            let port = address.port();
            failure("address_in_use", format!("another program listens at `{address}`"))
                .hint("if that is your worker, use it: one worker serves many clients")
                .hint(format!(
                    "`ss -ltnp 'sport = :{port}'` shows which program; use another port with \
                     --listen"
                ))
        }
        ErrorKind::PermissionDenied => {
            failure("cannot_listen", format!("this user may not listen at `{address}`"))
                .hint("take a port of 1024 or more: --listen 127.0.0.1:8790")
        }
        ErrorKind::AddrNotAvailable => {
            failure("cannot_listen", format!("`{address}` is not an address of this machine"))
                .hint("`ip address` shows those it has; 0.0.0.0 stands for all of them")
        }
        _ => failure("cannot_listen", format!("nothing can listen at `{address}`")),
    })
}

/// Checks that the folder of a named file exists: a missing one is most likely a typo.
fn check_folder(file: &Path) -> Result<()> {
    match file.parent() {
        Some(folder) if !folder.is_dir() => {
            let message = "the token's folder does not exist";
            Err(Failure::new(Exit::Config, "no_folder", message)
                .file(folder.display())
                .hint(format!("if the path is right: mkdir -p {}", shell_word(folder.display()))))
        }
        _ => Ok(()),
    }
}

/// Checks that the server will accept the token in this file.
fn check_token(file: &Path) -> Result<()> {
    let unfit = |what: &str| Failure::new(Exit::Config, "unfit_token", what).file(file.display());
    let unread = |error: std::io::Error| unfit("the token cannot be read").cause(error);
    let mode = std::fs::metadata(file).map_err(unread)?.mode();
    if mode & 0o077 != 0 {
        return Err(unfit("others can read the token")
            .cause(format!("mode {:o}", mode & 0o7777))
            .hint(format!(
                "`chmod 600 {}`, and make a new token if others saw it",
                shell_word(file.display())
            )));
    }
    let len = std::fs::read_to_string(file).map_err(unread)?.trim().len();
    if len < MIN_TOKEN_BYTES {
        return Err(unfit("the token can be guessed")
            .cause(format!("it has {len} characters; at least {MIN_TOKEN_BYTES} are needed"))
            .hint("remove the file: `rgpu worker` makes a long one"));
    }
    Ok(())
}

/// Creates the token's file, readable by its user alone. Returns false if it exists.
fn make_token(file: &Path) -> std::io::Result<bool> {
    if let Some(folder) = file.parent() {
        std::fs::create_dir_all(folder)?;
    }
    let mut open = OpenOptions::new();
    let mut out = match open.write(true).create_new(true).mode(0o600).open(file) {
        Ok(out) => out,
        Err(e) if e.kind() == ErrorKind::AlreadyExists => return Ok(false),
        Err(e) => return Err(e),
    };
    let mut random = [0; TOKEN_BYTES];
    std::fs::File::open("/dev/urandom")?.read_exact(&mut random)?;
    writeln!(out, "{}", Base64UrlUnpadded::encode_string(&random))?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_folder_that_is_not_there_is_not_made_for_a_file_that_was_named() {
        let dir = tempfile::tempdir().unwrap();
        let failure = check_folder(&dir.path().join("typo/token")).unwrap_err();
        assert!(failure.hints[0].contains("mkdir -p"), "{failure}");
        check_folder(&dir.path().join("token")).unwrap();
    }

    #[test]
    fn a_token_is_made_once_and_for_its_user_alone() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("new/token");
        assert!(make_token(&file).unwrap());
        let token = std::fs::read_to_string(&file).unwrap();
        assert_eq!(token.trim().len(), 43);
        assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(!make_token(&file).unwrap());
        assert_eq!(std::fs::read_to_string(&file).unwrap(), token);
    }
}
