//! How a place is told: its file relative to the program's folder, its line and its function.

use rgpu_model::finding::CodePlace;
use rgpu_model::trace::CodeFrame;

use super::is_own::plain_function;

/// Names that a folder has at least to be the program's: `/home` is nobody's program.
const MIN_FOLDERS: usize = 2;

/// The folder that holds all of these files, with a `/` at its end; empty if it is too far up, or
/// the files have no folder in common.
pub(super) fn root<'f>(files: impl Iterator<Item = &'f str>) -> String {
    let folder = |file: &'f str| file.rsplit_once('/').map_or("", |(folder, _)| folder);
    let Some(common) = files.map(folder).reduce(common_folder) else { return String::new() };
    let depth = common.split('/').filter(|part| !part.is_empty()).count();
    if depth < MIN_FOLDERS { String::new() } else { format!("{common}/") }
}

/// The folder that has both folders inside, or is one of them.
fn common_folder<'f>(a: &'f str, b: &str) -> &'f str {
    let same = a.split('/').zip(b.split('/')).take_while(|(a, b)| a == b);
    let length = same.map(|(part, _)| part.len() + 1).sum::<usize>();
    a.get(..length.saturating_sub(1)).unwrap_or(a)
}

/// A frame, whose file is told relative to `root`.
pub(super) fn of_frame(frame: &CodeFrame, root: &str) -> CodePlace {
    let file = if frame.is_python {
        frame.file.strip_prefix(root).unwrap_or(&frame.file)
    } else {
        frame.file.rsplit('/').next().unwrap_or_default()
    };
    let function = match frame.function.split_once("::{lambda") {
        Some((outer, _)) if !frame.is_python => format!("{}::{{lambda}}", plain_function(outer)),
        _ if frame.is_python => frame.function.to_string(),
        _ => plain_function(&frame.function).to_owned(),
    };
    CodePlace {
        file: file.to_owned(),
        line: frame.line,
        function: Some(function).filter(|function| !function.is_empty()),
        ..CodePlace::default()
    }
}

/// A function as torch's traces name it: `net.py(9): forward`, or `train.py: <module>`.
pub(super) fn of_function(text: &str) -> CodePlace {
    let (place, function) = text.rsplit_once(": ").unwrap_or((text, ""));
    let line = place.strip_suffix(')').and_then(|place| place.rsplit_once('('));
    let line = line.and_then(|(file, line)| Some((file, line.parse::<u32>().ok()?)));
    let (file, line) = line.map_or((place, None), |(file, line)| (file, Some(line)));
    CodePlace {
        file: file.to_owned(),
        line,
        function: (!function.is_empty()).then(|| function.to_owned()),
        ..CodePlace::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_told_relative_to_the_folder_that_holds_them_all() {
        let root = |files: &[&'static str]| root(files.iter().copied());
        assert_eq!(root(&["/w/p/train.py"]), "/w/p/");
        assert_eq!(root(&["/w/p/train.py", "/w/p/lib/model.py"]), "/w/p/");
        assert_eq!(root(&["/w/p/scripts/train.py", "/w/p/src/model.py"]), "/w/p/");
        assert_eq!(root(&["/w/pa/a.py", "/w/pb/b.py"]), "");
        assert_eq!(root(&["/home/a.py"]), "");
        assert_eq!(root(&["train.py"]), "");
        assert_eq!(root(&[]), "");
    }

    #[test]
    fn native_functions_are_told_without_arguments() {
        let told = |function: &str| {
            let file = "/w/job/hops".into();
            let frame = CodeFrame { file, line: None, function: function.into(), is_python: false };
            let place = of_frame(&frame, "/w/");
            (place.file, place.line, place.function.unwrap_or_default())
        };
        let hops = |function: &str| ("hops".to_owned(), None, function.to_owned());
        assert_eq!(told("Feed::send(int, float*)"), hops("Feed::send"));
        assert_eq!(told("main::{lambda(int)#1}::operator()(int) const"), hops("main::{lambda}"));
        assert_eq!(told(""), hops(""));
    }

    #[test]
    fn functions_of_torchs_traces_are_taken_apart() {
        let told = |text| {
            let place = of_function(text);
            (place.file, place.line, place.function.unwrap_or_default())
        };
        assert_eq!(told("net.py(9): forward"), ("net.py".into(), Some(9), "forward".into()));
        assert_eq!(told("/a/train.py: <module>"), ("/a/train.py".into(), None, "<module>".into()));
        assert_eq!(told("odd"), ("odd".into(), None, String::new()));
    }
}
