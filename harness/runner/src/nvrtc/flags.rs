//! Translates nvcc's flags into NVRTC's.
//!
//! A kernel.toml has one list of flags for both compilers. NVRTC knows fewer options, needs a value
//! in the same word as its option, and compiles nothing for the host. Flags that are not in the
//! table are passed unchanged: NVRTC itself rejects those it does not know.
//!
//! Sources: the options NVRTC 13.5 and 12.9 accepted and refused when tried, `nvcc --help` 13.5.

/// How an option is translated.
#[derive(Clone, Copy)]
enum Rule {
    /// NVRTC has this option, by this name and without a value.
    Word(&'static str),
    /// It has a value; NVRTC's word is this text and the value.
    Value(&'static str),
    /// Its value is a comma-separated list of options; each becomes a word of its own.
    ValueList(&'static str),
    /// NVRTC does not need it: the option is dropped with a note. A value, if any, is part of the
    /// same word.
    Drop,
    /// Like `Drop`, with a value in the next word unless `=` follows.
    DropWithValue,
}

/// Options with their rules.
const RULES: &[(&[&str], Rule)] = &[
    (&["-arch", "--gpu-architecture"], Rule::Value("--gpu-architecture=")),
    (&["-I", "--include-path", "-isystem", "--system-include"], Rule::Value("--include-path=")),
    (&["-D", "--define-macro"], Rule::Value("--define-macro=")),
    (&["-U", "--undefine-macro"], Rule::Value("--undefine-macro=")),
    (&["-include", "--pre-include"], Rule::Value("--pre-include=")),
    (&["-std", "--std"], Rule::Value("--std=")),
    (&["-maxrregcount", "--maxrregcount"], Rule::Value("--maxrregcount=")),
    (&["-ftz", "--ftz"], Rule::Value("--ftz=")),
    (&["-fmad", "--fmad"], Rule::Value("--fmad=")),
    (&["-prec-div", "--prec-div"], Rule::Value("--prec-div=")),
    (&["-prec-sqrt", "--prec-sqrt"], Rule::Value("--prec-sqrt=")),
    (&["-diag-suppress", "--diag-suppress"], Rule::Value("--diag-suppress=")),
    (&["-diag-error", "--diag-error"], Rule::Value("--diag-error=")),
    (&["-diag-warn", "--diag-warn"], Rule::Value("--diag-warn=")),
    (&["-rdc", "--relocatable-device-code"], Rule::Value("--relocatable-device-code=")),
    (&["-Xptxas", "--ptxas-options"], Rule::ValueList("--ptxas-options=")),
    (&["-res-usage", "--resource-usage"], Rule::Word("--ptxas-options=-v")),
    (&["-lineinfo", "--generate-line-info"], Rule::Word("--generate-line-info")),
    // There is no host code: a function without annotations is a device function.
    (&["-expt-relaxed-constexpr", "--expt-relaxed-constexpr"], Rule::Word("-default-device")),
    // NVRTC supports device lambdas without a flag, and refuses annotated ones regardless.
    (&["-extended-lambda", "--extended-lambda", "--expt-extended-lambda"], Rule::Drop),
    (&["-g", "--debug", "-m64", "-shared", "--shared", "-cubin", "--cubin"], Rule::Drop),
    (&["-keep", "--keep", "-save-temps", "--save-temps"], Rule::Drop),
    (&["-O", "--optimize", "-t", "--threads", "-m", "--machine"], Rule::DropWithValue),
    (&["-Xcompiler", "--compiler-options", "-ccbin", "--compiler-bindir"], Rule::DropWithValue),
    (
        &["-Xlinker", "--linker-options", "-l", "--library", "-L", "--library-path"],
        Rule::DropWithValue,
    ),
    (&["-cudart", "--cudart", "-Xfatbin", "--fatbin-options"], Rule::DropWithValue),
    (&["-Xcudafe", "--cudafe-options"], Rule::DropWithValue),
];

/// Options whose value follows without a separator (`-DX`, `-O3`), as with other compilers.
const PREFIX_OPTIONS: [&str; 6] = ["-I", "-D", "-U", "-O", "-l", "-L"];

/// Whole options that begin like one of those.
const NOT_PREFIXED: [&str; 2] = ["-lto", "-Ofc"];

/// The result of [`translate`].
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct TranslatedFlags {
    /// Flags in NVRTC's form, without the architecture.
    pub(super) flags: Vec<String>,
    /// The architecture that a flag names.
    pub(super) arch: Option<String>,
    /// Folders of `-I` and similar flags, in order; they are also in `flags`.
    pub(super) include: Vec<String>,
    /// Flags that were left out, as written.
    pub(super) dropped: Vec<String>,
}

/// Translates nvcc's flags. The error is one line for the user.
pub(super) fn translate(flags: &[String]) -> Result<TranslatedFlags, String> {
    let mut out = TranslatedFlags::default();
    let mut rest = flags.iter();
    while let Some(flag) = rest.next() {
        let Some((rule, glued)) = rule_of(flag) else {
            out.flags.push(flag.clone());
            continue;
        };
        let mut value = || {
            let next = || rest.next().map(String::as_str);
            glued.or_else(next).ok_or_else(|| format!("the flag `{flag}` needs a value"))
        };
        match rule {
            Rule::Word(word) => out.flags.push(word.to_owned()),
            Rule::Drop => out.dropped.push(flag.clone()),
            Rule::DropWithValue => {
                let words = match glued {
                    Some(_) => flag.clone(),
                    None => format!("{flag} {}", value()?),
                };
                out.dropped.push(words);
            }
            Rule::ValueList(name) => {
                let options = value()?.split(',').filter(|option| !option.is_empty());
                out.flags.extend(options.map(|option| format!("{name}{option}")));
            }
            Rule::Value(name) => {
                let value = value()?;
                match name {
                    "--gpu-architecture=" => out.arch = Some(value.to_owned()),
                    _ => out.flags.push(format!("{name}{value}")),
                }
                if name == "--include-path=" {
                    out.include.push(value.to_owned());
                }
            }
        }
    }
    Ok(out)
}

/// The rule of a flag, and its value if it is part of the same word.
fn rule_of(flag: &str) -> Option<(Rule, Option<&str>)> {
    let find = |name: &str| RULES.iter().find(|(names, _)| names.contains(&name));
    if let Some((_, rule)) = find(flag) {
        return Some((*rule, None));
    }
    if let Some((name, value)) = flag.split_once('=')
        && let Some((_, rule)) = find(name)
        && !matches!(rule, Rule::Word(_) | Rule::Drop)
    {
        return Some((*rule, Some(value)));
    }
    let name = PREFIX_OPTIONS.into_iter().find(|name| flag.starts_with(name))?;
    if NOT_PREFIXED.iter().any(|name| flag.starts_with(name)) {
        return None;
    }
    find(name).map(|(_, rule)| (*rule, Some(&flag[2..])))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn translate_line(line: &str) -> TranslatedFlags {
        let flags: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        translate(&flags).unwrap()
    }

    #[test]
    fn values_move_into_the_word_of_their_option() {
        for (nvcc, nvrtc) in [
            ("-std=c++17", "--std=c++17"),
            ("-std c++17", "--std=c++17"),
            ("--maxrregcount 32", "--maxrregcount=32"),
            ("-maxrregcount=32", "--maxrregcount=32"),
            ("-I inc -Iinc2", "--include-path=inc --include-path=inc2"),
            ("-DX=1 -D Y", "--define-macro=X=1 --define-macro=Y"),
            ("-include a.h", "--pre-include=a.h"),
            ("-Xptxas -v", "--ptxas-options=-v"),
            ("-Xptxas=-v,-O2", "--ptxas-options=-v --ptxas-options=-O2"),
            ("-lineinfo -use_fast_math", "--generate-line-info -use_fast_math"),
            ("--expt-relaxed-constexpr", "-default-device"),
        ] {
            assert_eq!(translate_line(nvcc).flags.join(" "), nvrtc, "{nvcc}");
        }
        assert_eq!(translate_line("-I inc -isystem sys").include, ["inc", "sys"]);
    }

    #[test]
    fn the_architecture_is_taken_out_in_every_spelling() {
        for line in ["-arch=sm_90a", "-arch sm_90a", "--gpu-architecture=sm_90a"] {
            let translated = translate_line(line);
            assert_eq!((translated.arch.as_deref(), translated.flags.len()), (Some("sm_90a"), 0));
        }
    }

    #[test]
    fn what_concerns_the_host_is_left_out_and_listed() {
        let translated = translate_line("-O3 -g -Xcompiler -fPIC -lcudart -L/usr/lib -t 4 -DX");
        assert_eq!(translated.flags, ["--define-macro=X"]);
        let dropped = ["-O3", "-g", "-Xcompiler -fPIC", "-lcudart", "-L/usr/lib", "-t 4"];
        assert_eq!(translated.dropped, dropped);
    }

    #[test]
    fn unknown_flags_and_nvrtcs_own_go_through_as_they_are() {
        for flag in ["--no-such-flag", "-Ofc=max", "--device-debug", "-no-source-include"] {
            assert_eq!(translate_line(flag).flags, [flag]);
        }
    }

    #[test]
    fn a_missing_value_is_named() {
        let error = translate(&["-Xptxas".to_owned()]).unwrap_err();
        assert!(error.contains("`-Xptxas`"), "{error}");
    }
}
