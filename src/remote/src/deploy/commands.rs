//! Installs the agent with commands that take no input and only return output. Each command brings
//! one piece of the program in base64 and reports success.

use std::io::Write;

use base64ct::{Base64, Encoding};
use flate2::Compression;
use flate2::write::GzEncoder;

use super::{ABSENT, AgentStart, FIND, NO_FOLDER, READY_TO_RECEIVE, any_shell_word, with_looks};
use crate::RemoteError;

/// Bytes of the compressed program per command. A command is one argument of a shell on the host,
/// which takes at most 128 KiB.
pub(crate) const PIECE_BYTES: usize = 84 << 10;

/// Finds the first folder that can hold and run the program, and prints it after
/// [`READY_TO_RECEIVE`].
const CHOOSE: &str = concat!(
    r#"umask 077;u=$(id -u);why=;for d in FOLDERS;do t=$d/bin/.new.$$;"#,
    r#"mkdir -p "$d/bin" 2>/dev/null||{ why="$why$d cannot be made; ";continue;};LOOKREFUSE"#,
    r#"chmod 700 "$d" "$d/bin";"#,
    r##"printf "#""!/bin/sh\nexit 0\n" 2>/dev/null >"$t"&&chmod 700 "$t"&&"$t" 2>/dev/null||{ rm -f "$t";why="$why$d is full or may not run programs; ";continue;};rm -f "$t";"##,
    r#"k=$(df -Pk "$d" 2>/dev/null|awk "NR==2{print \$4}");if [ -n "$k" ]&&[ "$k" -lt KILOS ];then why="$why$d has $k KiB left; ";continue;fi;"#,
    r#"echo "SEND $d";echo "END";exit 0;done;echo "NO_FOLDER $why";echo "END""#,
);

/// The reply of a command that found no agent or chose a folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CommandReply {
    /// No folder has the agent; the text names system, machine and C library.
    Absent(String),
    /// The program goes into this folder.
    Into(String),
    /// No folder can hold the program; the text names the error for each.
    NoFolder(String),
}

impl CommandReply {
    /// The first reply among the lines of a command's output.
    pub(crate) fn find(lines: &[String]) -> Option<Self> {
        lines.iter().find_map(|line| {
            let line = line.trim();
            let reply_text =
                |word| line.strip_prefix(word).map(|rest: &str| rest.trim().to_owned());
            reply_text(ABSENT)
                .map(Self::Absent)
                .or_else(|| reply_text(READY_TO_RECEIVE).map(Self::Into))
                .or_else(|| reply_text(NO_FOLDER).map(Self::NoFolder))
        })
    }
}

impl AgentStart {
    /// The command that executes the agent with the arguments `words` and `input` as its standard
    /// input. If no folder has the agent, it prints [`ABSENT`] and then `end`. We choose both
    /// `words` and `end`.
    pub(crate) fn once(&self, words: &str, input: &[u8], end: &str) -> String {
        let find = with_looks(FIND)
            .replace("SHA", self.digest.as_str())
            .replace("ABSENT", ABSENT)
            .replace("FOLDERS", &self.folders)
            .replace("VERB", words);
        let input = Base64::encode_string(input);
        format!("printf '%s' '{input}' | {}/bin/sh -c '{find};echo {end}'", self.via)
    }

    /// The command that chooses the folder for the program.
    pub(crate) fn choose(&self, end: &str) -> String {
        let script = with_looks(CHOOSE)
            .replace("KILOS", &(self.program.len() / 1024 * 2 + 1024).to_string())
            .replace("NO_FOLDER", NO_FOLDER)
            .replace("SEND", READY_TO_RECEIVE)
            .replace("END", end)
            .replace("FOLDERS", &self.folders);
        format!("{}/bin/sh -c '{script}'", self.via)
    }

    /// The compressed program in pieces of [`PIECE_BYTES`].
    pub(crate) fn pieces(&self) -> Result<Vec<Vec<u8>>, RemoteError> {
        let failed = |source| RemoteError::Spawn { program: "gzip".to_owned(), source };
        let mut packed = GzEncoder::new(Vec::new(), Compression::default());
        packed.write_all(&self.program).map_err(failed)?;
        let packed = packed.finish().map_err(failed)?;
        Ok(packed.chunks(PIECE_BYTES).map(<[u8]>::to_vec).collect())
    }

    /// The command that stores one piece in `folder`, under a name made from `upload`.
    pub(crate) fn put(
        &self,
        folder: &str,
        upload: &str,
        at: usize,
        piece: &[u8],
        end: &str,
    ) -> Result<String, RemoteError> {
        let part = any_shell_word(&format!("{folder}/bin/.{upload}.{at}"))?;
        let (bytes, len) = (Base64::encode_string(piece), piece.len());
        // The piece gets its name only once complete, so it may be sent twice.
        let script = format!(
            "umask 077;p=\"$1\";printf %s {bytes}|base64 -d >\"$p.$$\"&&\
             [ \"$(wc -c <\"$p.$$\")\" -eq {len} ]&&mv -f \"$p.$$\" \"$p\"&&echo {end}"
        );
        Ok(format!("{}/bin/sh -c '{script}' put {part}", self.via))
    }

    /// The command that joins the pieces, checks that they are the program, and renames it.
    pub(crate) fn assemble(
        &self,
        folder: &str,
        upload: &str,
        pieces: usize,
        end: &str,
    ) -> Result<String, RemoteError> {
        let bin = any_shell_word(&format!("{folder}/bin"))?;
        let sha = &self.digest;
        let script = format!(
            "umask 077;cd \"$1\"||exit 1;f=agent-{sha};t=.{upload}.new;\
             if [ ! -x \"$f\" ];then i=0;while [ $i -lt {pieces} ];do cat .{upload}.$i||exit 1;i=$((i+1));done|\
             gzip -dc >\"$t\"&&chmod 700 \"$t\"||exit 1;\
             w=$(\"./$t\" --version 2>&1 </dev/null|head -n1|cut -c1-200);\
             case $w in *sha256:{sha}*);;*)rm -f .{upload}.*;echo \"the copy does not run: $w\";exit 1;;esac;\
             mv -f \"$t\" \"$f\"||exit 1;fi;rm -f .{upload}.*;echo {end}"
        );
        Ok(format!("{}/bin/sh -c '{script}' assemble {bin}", self.via))
    }

    /// Whether the program can run on a host described by `host`.
    pub(crate) fn fits(&self, host: &str) -> Result<(), RemoteError> {
        self.needs.check(host)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RemoteSpec;

    #[test]
    fn no_script_holds_what_would_end_its_quotes_and_none_is_too_long() {
        let start =
            AgentStart::new(&RemoteSpec::new("x", "wafer://x"), &std::env::current_exe().unwrap())
                .unwrap();
        let piece = vec![0xff; PIECE_BYTES];
        let put = start.put("/home/u/.cache/rgpu", "ab", 7, &piece, "end-ab").unwrap();
        let once = start.once("mail ab 0 0 0 cd", &piece, "end-ab");
        for command in [put, once, start.choose("e"), start.assemble("/r", "ab", 3, "e").unwrap()] {
            assert!(command.len() < 128 << 10, "{}", command.len());
            let (_, script) = command.split_once("/bin/sh -c '").unwrap();
            assert!(script.matches('\'').count() == 1, "{script}");
        }
        assert!(start.put("/it's", "ab", 0, &[], "e").is_err());
    }

    #[test]
    fn what_a_command_says_is_found_among_other_lines() {
        let lines = ["hello", "rgpu-agent-send-1 /home/u/.cache/rgpu"].map(str::to_owned);
        assert_eq!(
            CommandReply::find(&lines),
            Some(CommandReply::Into("/home/u/.cache/rgpu".to_owned()))
        );
        assert_eq!(CommandReply::find(&lines[..1]), None);
    }
}
