//! Starts the agent on a host, and uploads it first if it is missing.
//!
//! One command per connection, run by whatever shell the user has there: a single quoted word that
//! sh, bash, zsh, fish, csh and tcsh all read alike, passed to `/bin/sh`. It looks for the agent,
//! named by its sha256, in a list of folders and executes it. If no folder has it, the same command
//! says so, reads a script and the program from its standard input, stores the program in the first
//! folder that can hold and run it, and executes it. So a cold start needs no second command.
//!
//! On a long link, frames for the agent are sent before its hello. If there is no agent, the
//! command reads them as lines and skips them: it obeys only lines that begin with our prefix,
//! which no frame's bytes can put at the start of a line. The frames are then sent again.
//!
//! A folder must belong to the user and be closed to others (0700); a folder in a world-writable
//! directory must not be a link. The program is written under another name, checked against its
//! sha256 and run once before it gets its final name.

#![expect(clippy::disallowed_methods, reason = "the agent's program that came with rgpu")]

pub(super) mod commands;

use std::path::Path;
use std::time::Duration;

use rgpu_protocol::Digest;
use rgpu_protocol::frame::{FrameError, MAGIC, MAX_PREAMBLE};
use tokio::io::AsyncWriteExt;
use tokio::time::timeout;

use super::binary_requirements::BinaryRequirements;
use super::stream::{AgentStream, BoxWrite, FrameReader, FrameWriter, StreamEnd};
use super::{RemoteError, RemoteSpec, UserPrompt, limits};

/// The start command prints this if no folder has the agent; system, machine and C library follow.
const ABSENT: &str = "rgpu-agent-absent-1";
/// The prefix of lines that the start command obeys.
const COMMAND_PREFIX: &str = "rgpu-do-1 ";
/// The install script prints this when it is ready for the program's bytes.
const READY_TO_RECEIVE: &str = "rgpu-agent-send-1";
/// How often the install script may ask for the program: once for each folder.
const MAX_SENDS: usize = 4;
/// The install script prints this when no folder is left; the error for each follows.
const NO_FOLDER: &str = "rgpu-agent-nofolder-1";

/// The start command's script. Shells of any kind read it in single quotes, so it contains no
/// single quote, backslash, `!` or newline, and stays below csh's 1,024 bytes per word.
///
/// Containers may lack `getconf` and `ldd`, so glibc itself is run, which prints its version; musl
/// is known by its loader.
const FIND: &str = r#"u=$(id -u);for d in FOLDERS;do f=$d/bin/agent-SHA;if [ -x "$f" ];then LOOKcase $1,$3 in drwx------*,$u)exec "$f" VERB;;esac;fi;done;echo "ABSENT $(uname -sm) $({ getconf GNU_LIBC_VERSION||for l in /lib64/libc.so.6 /lib/*-gnu/libc.so.6 /lib/libc.so.6;do $l&&break;done||ls /lib/ld-musl-*||ldd --version 2>&1;} 2>/dev/null|head -n1)""#;

/// Looks at the folder `$d` once: `$1` becomes its mode and `$3` its owner, by number. One look
/// tells all, so nothing can take the place of what was looked at: in `/var/tmp` and `/tmp` only
/// its owner can remove or rename a folder. A link counts as what it leads to in the home only.
const LOOK: &str = r#"case $d in "$HOME"/*)o=L;;*)o=;;esac;set -- $(ls -ldn$o "$d");"#;

/// Refuses a folder `$d` that is not this user's alone to write to. `$why` collects the errors.
const REFUSE: &str = concat!(
    r#"case $1 in l*)why="$why$d is a link; ";continue;;esac;"#,
    r#"[ "$3" = "$u" ]||{ why="$why$d belongs to another user; ";continue;};"#,
    r#"case $1 in d????-??-*);;*)why="$why$d may be written by others; ";continue;;esac;"#,
);

/// The part of the start command that runs if no folder has the agent: it executes the lines sent.
const RUN_COMMANDS: &str =
    r#";while IFS= read -r l;do case $l in rgpu-do-1*)eval "${l#rgpu-do-1}";;esac;done"#;

/// The install script, one line, read by the start command.
const INSTALL: &str = concat!(
    r#"umask 077;why=;for d in FOLDERS;do f=$d/bin/agent-SHA;t=$d/bin/.new.$$;"#,
    r#"mkdir -p "$d/bin" 2>/dev/null||{ why="$why$d cannot be made; ";continue;};LOOKREFUSE"#,
    r#"chmod 700 "$d" "$d/bin";"#,
    r#"printf '%s\n' '#!/bin/sh' 'exit 0' 2>/dev/null >"$t"&&chmod 700 "$t"&&"$t" 2>/dev/null||{ rm -f "$t";why="$why$d is full or may not run programs; ";continue;};"#,
    r#"k=$(df -Pk "$d" 2>/dev/null|awk 'NR==2{print $4}');if [ -n "$k" ]&&[ "$k" -lt KILOS ];then rm -f "$t";why="$why$d has $k KiB left; ";continue;fi;"#,
    r#"echo "SEND $d";head -c BYTES|(cat >"$t";r=$?;cat >/dev/null;exit $r)||{ rm -f "$t";why="$why$d is full; ";continue;};"#,
    r#"chmod 700 "$t";w=$("$t" --version 2>&1 </dev/null|head -n1|cut -c1-200);case $w in *sha256:SHA*);;*)rm -f "$t";why="$why$d: the copy does not run: $w; ";continue;;esac;"#,
    r#"find "$d/bin" -name 'agent-*' -mtime +30 -exec rm -f {} + 2>/dev/null;"#,
    r#"mv -f "$t" "$f"&&exec "$f" stdio;done;echo "NO_FOLDER $why";exit 126"#,
);

/// The commands and the program that start the agent on one host.
pub struct AgentStart {
    command: String,
    install: String,
    program: Vec<u8>,
    needs: BinaryRequirements,
    digest: Digest,
    folders: String,
    /// The prefix command that each command runs through.
    via: String,
}

impl AgentStart {
    /// For a remote, with the agent's program at `agent`. Reads the program: blocks.
    pub fn new(spec: &RemoteSpec, agent: &Path) -> Result<Self, RemoteError> {
        let program = std::fs::read(agent)
            .map_err(|source| RemoteError::UnreadableAgent { path: agent.to_owned(), source })?;
        let needs = BinaryRequirements::read(&program).map_err(|why| RemoteError::Unfit {
            why: format!("`{}` is not a program for it: {why}", agent.display()),
            arch: None,
        })?;
        let digest = Digest::sha256(&program);
        let folders = folders(spec)?;
        let needed_kib = program.len() / 1024 + 1024;
        let fill = |script: &str| {
            with_looks(script)
                .replace("SHA", digest.as_str())
                .replace("ABSENT", ABSENT)
                .replace("SEND", READY_TO_RECEIVE)
                .replace("NO_FOLDER", NO_FOLDER)
                .replace("KILOS", &needed_kib.to_string())
                .replace("BYTES", &program.len().to_string())
                .replace("FOLDERS", &folders)
        };
        let mut via = String::from("exec ");
        for word in &spec.via {
            via.push_str(&any_shell_word(word)?);
            via.push(' ');
        }
        let command =
            format!("{via}/bin/sh -c '{}{RUN_COMMANDS}'", fill(FIND).replace("VERB", "stdio"));
        // Bytes received earlier may be an incomplete line.
        let install = format!("\n{COMMAND_PREFIX}{}\n", fill(INSTALL));
        Ok(Self { command, install, program, needs, digest, folders, via })
    }

    /// The name of the program in the folder `bin` on the host.
    pub(super) fn file_name(&self) -> String {
        format!("agent-{}", self.digest)
    }

    /// The command line for the host's login shell.
    pub fn command(&self) -> &str {
        &self.command
    }

    /// Talks to the start command until the agent's first line arrives. The first reply may take up
    /// to `login`.
    pub async fn run(
        &self,
        mut wire: AgentStream,
        user_prompt: &dyn UserPrompt,
        login: Duration,
    ) -> Result<AgentStream, RemoteError> {
        let AgentStream { reader, writer, ending } = &mut wire;
        let mut reply = next_reply(reader, ending, user_prompt, login).await?;
        if let StartReply::Absent(host) = &reply {
            self.check_needs(host, user_prompt)?;
            send(writer, self.install.as_bytes(), limits::AGENT_START_TIMEOUT).await?;
            reply = next_reply(reader, ending, user_prompt, limits::AGENT_START_TIMEOUT).await?;
        }
        // If a folder turns out to be full, the script asks again with the next one.
        for _ in 0..MAX_SENDS {
            let StartReply::Send(folder) = &reply else { break };
            user_prompt.verbose(&format!("installing the agent in `{folder}` on the host"));
            send(writer, &self.program, limits::AGENT_UPLOAD_TIMEOUT).await?;
            reply = next_reply(reader, ending, user_prompt, limits::AGENT_START_TIMEOUT).await?;
        }
        reply.magic()?;
        Ok(wire)
    }

    /// As [`Self::run`], for a stream on which frames were already sent. If the agent has to be
    /// installed, those frames were lost, and `early_frames` is set before the upload.
    pub(super) async fn run_after_first_frames(
        &self,
        reader: &mut FrameReader,
        writer: &FrameWriter,
        ending: &StreamEnd,
        user_prompt: &dyn UserPrompt,
        early_frames: &mut EarlyFrames,
    ) -> Result<(), RemoteError> {
        let first = next_reply(reader, ending, user_prompt, limits::AGENT_START_TIMEOUT).await;
        let mut reply = first.map_err(|error| match error {
            // The agent may have started and read everything.
            RemoteError::AgentStart { ended: why, .. } if ending.is_lost() => {
                RemoteError::LinkCut { doing: "starting the agent", why }
            }
            other => other,
        })?;
        if let StartReply::Absent(host) = &reply {
            *early_frames = EarlyFrames::Nothing;
            self.check_needs(host, user_prompt)?;
            writer.raw(self.install.as_bytes())?;
            reply = next_reply(reader, ending, user_prompt, limits::AGENT_START_TIMEOUT).await?;
        }
        for _ in 0..MAX_SENDS {
            let StartReply::Send(folder) = &reply else { break };
            user_prompt.verbose(&format!("installing the agent in `{folder}` on the host"));
            writer.raw(&self.program)?;
            let limit = limits::AGENT_UPLOAD_TIMEOUT + limits::AGENT_START_TIMEOUT;
            reply = next_reply(reader, ending, user_prompt, limit).await?;
        }
        reply.magic()
    }

    /// Waits for the first line of another agent on a host that already has the program.
    pub async fn wait_for_agent(
        &self,
        mut wire: AgentStream,
        user_prompt: &dyn UserPrompt,
    ) -> Result<AgentStream, RemoteError> {
        let AgentStream { reader, ending, .. } = &mut wire;
        match next_reply(reader, ending, user_prompt, limits::AGENT_START_TIMEOUT).await? {
            StartReply::Magic => Ok(wire),
            _ => Err(RemoteError::AgentStart {
                ended: "it does not exist".to_owned(),
                last: String::new(),
            }),
        }
    }

    fn check_needs(&self, host: &str, user_prompt: &dyn UserPrompt) -> Result<(), RemoteError> {
        self.needs.check(host)?;
        user_prompt.verbose(&format!(
            "the host has no agent of this version: sending {} bytes",
            self.program.len()
        ));
        Ok(())
    }
}

/// The outcome of frames that were sent before the agent's hello.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EarlyFrames {
    /// The agent reads them.
    All,
    /// No agent was there to read them.
    Nothing,
}

/// Waits for the first line of an agent that was started directly.
pub async fn await_magic(
    mut wire: AgentStream,
    user_prompt: &dyn UserPrompt,
) -> Result<AgentStream, RemoteError> {
    let AgentStream { reader, ending, .. } = &mut wire;
    match next_reply(reader, ending, user_prompt, limits::AGENT_START_TIMEOUT).await? {
        StartReply::Magic => Ok(wire),
        _ => Err(RemoteError::ProtocolViolation {
            what: "an agent that says it is absent".to_owned(),
        }),
    }
}

async fn send(writer: &mut BoxWrite, bytes: &[u8], limit: Duration) -> Result<(), RemoteError> {
    let doing = "sending the agent's program";
    timeout(limit, async {
        for piece in bytes.chunks(256 << 10) {
            writer.write_all(piece).await?;
        }
        writer.flush().await
    })
    .await
    .map_err(|_| RemoteError::Silent { doing, limit })?
    .map_err(|error| RemoteError::LinkCut { doing, why: error.to_string() })
}

/// A reply of the start command or the agent before frames begin.
#[derive(Debug, PartialEq, Eq)]
enum StartReply {
    Magic,
    Absent(String),
    Send(String),
    NoFolder(String),
}

impl StartReply {
    fn magic(self) -> Result<(), RemoteError> {
        match self {
            Self::Magic => Ok(()),
            Self::NoFolder(tried) => Err(RemoteError::not_installed(tried)),
            Self::Absent(_) | Self::Send(_) => Err(RemoteError::ProtocolViolation {
                what: "the start command started again".to_owned(),
            }),
        }
    }
}

async fn next_reply(
    reader: &mut FrameReader,
    ending: &StreamEnd,
    user_prompt: &dyn UserPrompt,
    limit: Duration,
) -> Result<StartReply, RemoteError> {
    let result = timeout(limit, read_until_reply(reader, user_prompt)).await;
    let ended = match result {
        Ok(Ok(Some(sign))) => return Ok(sign),
        Ok(Ok(None)) => {
            ending.settle().await;
            match ending.exit() {
                Some(126) => "the host does not let it run (status 126)".to_owned(),
                Some(127) => "a command was not found (status 127)".to_owned(),
                _ => ending.description(),
            }
        }
        Ok(Err(error)) => return Err(error),
        Err(_) => format!("nothing came within {} s", limit.as_secs()),
    };
    let mut last = ending.stderr_tail(200);
    if last.is_empty() {
        last = tail(reader.pending(), 200);
    }
    Err(RemoteError::AgentStart { ended, last })
}

/// Reads until a reply; shows and drops the text before it. `None`: the stream ended.
async fn read_until_reply(
    reader: &mut FrameReader,
    user_prompt: &dyn UserPrompt,
) -> Result<Option<StartReply>, RemoteError> {
    loop {
        if let Some((before, len, reply)) = find_reply(reader.pending()) {
            let preamble = String::from_utf8_lossy(&reader.pending()[..before]).into_owned();
            if !preamble.trim().is_empty() {
                user_prompt
                    .verbose(&format!("printed by the host's start-up files: {}", preamble.trim()));
            }
            reader.consume(before + len);
            tracing::debug!(?reply, "agent: the start command answers");
            return Ok(Some(reply));
        }
        if reader.pending().len() > MAX_PREAMBLE + MAGIC.len() {
            return Err(FrameError::NoMagic.into());
        }
        match reader.fill().await {
            Ok(0) => return Ok(None),
            Ok(_) => {}
            Err(error) => {
                let (doing, why) = ("starting the agent", error.to_string());
                return Err(RemoteError::LinkCut { doing, why });
            }
        }
    }
}

/// The first reply in `bytes`: the bytes before it, its length, and the reply.
fn find_reply(bytes: &[u8]) -> Option<(usize, usize, StartReply)> {
    let magic = bytes
        .windows(MAGIC.len())
        .position(|window| window == MAGIC)
        .map(|at| (at, MAGIC.len(), StartReply::Magic));
    let printed = [
        (ABSENT, StartReply::Absent as fn(String) -> StartReply),
        (READY_TO_RECEIVE, StartReply::Send),
        (NO_FOLDER, StartReply::NoFolder),
    ]
    .into_iter()
    .filter_map(|(word, variant)| {
        let at = bytes.windows(word.len()).position(|window| window == word.as_bytes())?;
        let len = bytes[at..].iter().position(|&b| b == b'\n')? + 1;
        let text = String::from_utf8_lossy(&bytes[at + word.len()..at + len]).trim().to_owned();
        Some((at, len, variant(text)))
    });
    magic.into_iter().chain(printed).min_by_key(|(at, ..)| *at)
}

fn tail(bytes: &[u8], n: usize) -> String {
    String::from_utf8_lossy(&bytes[bytes.len().saturating_sub(n)..]).trim().to_owned()
}

/// The folders for the agent's program, in order of preference, as words for `for d in`.
fn folders(spec: &RemoteSpec) -> Result<String, RemoteError> {
    let defaults = r#""$HOME/.cache/rgpu" "/var/tmp/rgpu-$u" "/tmp/rgpu-$u""#;
    let Some(own) = &spec.agent_folder else { return Ok(defaults.to_owned()) };
    let (home, rest) = match own.strip_prefix("~/") {
        Some(rest) => ("$HOME/", rest),
        None => ("", own.as_str()),
    };
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"_./@+,:=-".contains(&b);
    if rest.is_empty() || !rest.bytes().all(plain) || (home.is_empty() && !rest.starts_with('/')) {
        return Err(RemoteError::Setting {
            setting: "agent_folder".to_owned(),
            why: format!("`{own}` is not `/…` or `~/…` of letters, digits and `_./@+,:=-`"),
        });
    }
    Ok(format!(r#""{home}{rest}" {defaults}"#))
}

/// A script with its looks at folders.
fn with_looks(script: &str) -> String {
    script.replace("LOOK", LOOK).replace("REFUSE", REFUSE)
}

/// Quotes a word so that sh, bash, zsh, fish, csh and tcsh all read it the same.
fn any_shell_word(word: &str) -> Result<String, RemoteError> {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"_./@+,:=-%".contains(&b);
    if !word.is_empty() && word.bytes().all(plain) && !word.starts_with('=') {
        return Ok(word.to_owned());
    }
    // fish interprets `\` in single quotes, csh `!`; neither accepts a newline there.
    if word.contains(['\'', '\\', '!']) || word.chars().any(char::is_control) {
        return Err(RemoteError::Setting {
            setting: "via".to_owned(),
            why: format!("{word:?} cannot be quoted for every shell"),
        });
    }
    Ok(format!("'{word}'"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_start_command_is_one_word_for_every_shell() {
        let agent = std::env::current_exe().unwrap();
        let mut spec = RemoteSpec::new("x", "ssh://x");
        spec.via = vec!["docker".into(), "exec".into(), "-i".into(), "a b".into()];
        let start = AgentStart::new(&spec, &agent).unwrap();
        let rest = start.command().strip_prefix("exec docker exec -i 'a b' /bin/sh -c '").unwrap();
        let script = rest.strip_suffix('\'').unwrap();
        assert!(!script.contains(['\'', '\\', '!', '\n']), "{script}");
        assert!(script.len() < 1000, "{}", script.len());
    }

    #[test]
    fn a_program_that_is_there_but_not_found_lacks_its_loader() {
        let tried = |error: &str| {
            format!("/home/u/.cache/rgpu is full; /tmp/rgpu-0: the copy does not run: {error}; ")
        };
        let is_unfit = |error: &str| match RemoteError::not_installed(tried(error)) {
            RemoteError::Unfit { why, .. } => why.contains("musl"),
            RemoteError::NoFolder { tried: all } => {
                assert_eq!(all, tried(error));
                false
            }
            other => panic!("{other}"),
        };
        assert!(is_unfit("sh: /tmp/rgpu-0/bin/.new.7: not found"));
        assert!(is_unfit("/bin/sh: 1: /tmp/.new.7: No such file or directory"));
        assert!(!is_unfit("Segmentation fault"));
        assert!(!is_unfit("error while loading shared libraries: libx.so.1: not found"));
        assert!(!is_unfit("/lib/libc.so.6: version `GLIBC_2.34' not found"));
    }

    #[test]
    fn words_that_some_shell_would_misread_are_refused() {
        assert_eq!(any_shell_word("exec").unwrap(), "exec");
        assert_eq!(any_shell_word("").unwrap(), "''");
        assert_eq!(any_shell_word("a;b").unwrap(), "'a;b'");
        for bad in ["it's", "a\\b", "wow!", "a\nb"] {
            assert!(any_shell_word(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_sign_is_found_behind_what_start_up_files_print() {
        let bytes = b"hello\nrgpu-agent-absent-1 Linux x86_64 glibc 2.36\n";
        assert_eq!(
            find_reply(bytes),
            Some((6, bytes.len() - 6, StartReply::Absent("Linux x86_64 glibc 2.36".to_owned())))
        );
        assert_eq!(find_reply(&bytes[..30]), None);
    }
}
