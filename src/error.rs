//! The one error type of the library. Every message names what is wrong, the place
//! (path, row, field) and what to do about it; the binary maps it to an exit code.

use std::fmt;

/// A described problem: what is wrong, where, and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// What is wrong, in one sentence.
    pub what: String,
    /// Where: a path, optionally with row or field, such as `data/x/experiment.toml: [seeds] evaluate`.
    pub place: Option<String>,
    /// What the reader can do about it.
    pub remedy: Option<String>,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(place) = &self.place {
            write!(f, "{place}: ")?;
        }
        write!(f, "{}", self.what)?;
        if let Some(remedy) = &self.remedy {
            write!(f, "\nhint: {remedy}")?;
        }
        Ok(())
    }
}

/// Why an operation of the library did not succeed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Bad usage or input; nothing was changed. Exit code 2.
    #[error("{0}")]
    Invalid(Box<Problem>),
    /// A check did not hold: a gate refused a stage, an audit found a mismatch. Exit code 1.
    #[error("{0}")]
    Refused(Box<Problem>),
    /// An operating-system error; the message carries the path (`fs-err`). Exit code 2.
    #[error("{}{}", .0, remedy(.0.kind()))]
    Io(#[from] std::io::Error),
    /// Stopped by the user (Ctrl-C); everything finished is on disk. Exit code 130.
    #[error("stopped: the same command goes on from what is finished")]
    Interrupted,
}

/// What can be done about an operating-system error, as the hint below its message.
fn remedy(kind: std::io::ErrorKind) -> String {
    use std::io::ErrorKind::*;
    let hint = match kind {
        NotFound => "check the name and the folder, or restore the file from version control",
        PermissionDenied => {
            "you may not do this here: check the owner and the permissions, or use another folder"
        }
        ReadOnlyFilesystem => "nothing can be written here: use another folder",
        StorageFull | QuotaExceeded => {
            "free some space and run the same command again: what was there is untouched"
        }
        IsADirectory => "a file belongs here, and there is a folder: move it away",
        NotADirectory => "a folder belongs here, and there is a file: move it away",
        InvalidFilename => "use a shorter name",
        InvalidData => "the file is no UTF-8 text: save it as UTF-8, or restore it from version control",
        UnexpectedEof => "the file is cut short: restore it from version control",
        _ => return String::new(),
    };
    format!("\nhint: {hint}")
}

/// The library's result type.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// Bad input: `what` is one sentence in lower case without a full stop.
    pub fn invalid(what: impl Into<String>) -> Self {
        Error::Invalid(Box::new(Problem { what: what.into(), place: None, remedy: None }))
    }

    /// A gate or check that did not hold.
    pub fn refused(what: impl Into<String>) -> Self {
        Error::Refused(Box::new(Problem { what: what.into(), place: None, remedy: None }))
    }

    /// Adds the place (outermost caller wins only if none is set yet).
    #[must_use]
    pub fn at(mut self, place: impl fmt::Display) -> Self {
        if let Error::Invalid(p) | Error::Refused(p) = &mut self {
            p.place.get_or_insert_with(|| place.to_string());
        }
        self
    }

    /// Adds what to do about it, if nothing was said yet.
    #[must_use]
    pub fn hint(mut self, remedy: impl Into<String>) -> Self {
        if let Error::Invalid(p) | Error::Refused(p) = &mut self {
            p.remedy.get_or_insert_with(|| remedy.into());
        }
        self
    }

    /// The process exit code that this error asks for.
    pub fn exit_code(&self) -> u8 {
        match self {
            Error::Invalid(_) | Error::Io(_) => 2,
            Error::Refused(_) => 1,
            Error::Interrupted => 130,
        }
    }
}

/// The candidate nearest to `name` by edit distance, for "did you mean" hints;
/// `None` when nothing is within a third of the name's length (at least 2).
pub fn nearest<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let bound = (name.chars().count() / 3).max(2);
    candidates
        .into_iter()
        .map(|c| (edit_distance(name, c), c))
        .filter(|(d, _)| *d <= bound)
        .min()
        .map(|(_, c)| c)
}

/// The candidate that a value was meant to be, where it looks misspelt: nearly the same letters, and not only other digits.
pub fn misspelt<'a>(value: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let letters = |text: &str| text.chars().filter(|c| !c.is_ascii_digit()).collect::<String>();
    let bound = value.chars().count() / 4;
    let near = nearest(value, candidates)?;
    if value.eq_ignore_ascii_case(near) {
        return Some(near);
    }
    (edit_distance(value, near) <= bound && letters(value) != letters(near)).then_some(near)
}

fn edit_distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, ca) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, cb) in b.iter().enumerate() {
            let substitute = diagonal + usize::from(ca != *cb);
            diagonal = row[j + 1];
            row[j + 1] = substitute.min(row[j] + 1).min(row[j + 1] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn message_names_place_and_remedy() {
        let e =
            Error::invalid("unknown key `sead`").at("experiment.toml: [seeds]").hint("did you mean `seed`?");
        assert_eq!(e.to_string(), "experiment.toml: [seeds]: unknown key `sead`\nhint: did you mean `seed`?");
        assert_eq!(e.exit_code(), 2);
    }

    #[test]
    fn errors_of_the_system_say_what_to_do() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log.md");
        fs_err::create_dir(&path).unwrap();
        let read = || fs_err::read_to_string(&path).map_err(Error::from).unwrap_err().to_string();
        assert!(read().contains("log.md") && read().contains("hint: a file belongs here"), "{}", read());
        fs_err::remove_dir(&path).unwrap();
        assert!(read().contains("hint: check the name"));
        fs_err::write(&path, [0xff, 0xfe]).unwrap();
        assert!(read().contains("hint: the file is no UTF-8 text"));
        let full = Error::from(std::io::Error::from(std::io::ErrorKind::StorageFull));
        assert!(full.to_string().contains("free some space"));
    }

    #[test]
    fn nearest_finds_typos_and_refuses_strangers() {
        assert_eq!(nearest("sead", ["seed", "task"]), Some("seed"));
        assert_eq!(nearest("zzzzzz", ["seed", "task"]), None);
    }
}
