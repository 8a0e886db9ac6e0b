//! Gathers the flags of a server from its configuration file, the environment and the command line.
//!
//! Values from the file and the environment are inserted as words before the words of the command line. If
//! several sources set a flag, only the words of the strongest source are used, so that a list is replaced
//! and not extended.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::path::Path;

use crate::flags::sources::{Field, FlagValues, Origin, SourceError, read_environment, read_file};

/// Name of the flag for the path of the configuration file.
pub const CONFIG: &str = "config";

/// A command line with the flags from all sources.
#[derive(Clone, Debug)]
pub struct Gathered {
    /// The program name, then the flags. Each flag and its value are one word.
    pub words: Vec<OsString>,
    /// The source of each flag that is set. All other flags have their defaults.
    pub origins: Origins,
}

/// The sources of the flags that are set.
#[derive(Clone, Debug, Default)]
pub struct Origins(BTreeMap<String, Origin>);

impl Origins {
    /// Returns the source of the value of a flag.
    pub fn origin(&self, flag: &str) -> Origin {
        self.0.get(flag).cloned().unwrap_or(Origin::Default)
    }
}

/// The sources of flags that supplement the command line, and the check of their values.
pub struct Sources<'s> {
    /// The flags that may be set.
    pub fields: &'s [Field],
    /// The variables of the environment.
    pub variables: Vec<(String, String)>,
    /// A function that checks a command line with a single flag, and returns the error.
    pub check: &'s dyn Fn(&[OsString]) -> Option<String>,
}

impl Sources<'_> {
    /// Adds the flags of the other sources to a command line. The first word is the program name.
    ///
    /// # Errors
    /// The file or the variables have errors. The returned list has all of them.
    pub fn gather(self, words: Vec<OsString>) -> Result<Gathered, Vec<SourceError>> {
        let (program, own) =
            words.split_first().map_or((OsString::new(), &[][..]), |(p, own)| (p.clone(), own));
        let mut origins: BTreeMap<String, Origin> =
            own.iter().filter_map(|word| Some((name_of(word)?, Origin::CommandLine))).collect();
        let (environment, mut errors) = read_environment(self.variables.into_iter(), self.fields);
        let named = own.iter().rev().find_map(|word| value_of(word, CONFIG));
        let in_environment = environment.iter().find(|given| given.flag == CONFIG);
        let path =
            named.or_else(|| in_environment.and_then(|given| given.values.first().map(OsString::from)));
        let file =
            match path.filter(|path| !path.is_empty()).map(|path| read_file(Path::new(&path), self.fields)) {
                Some(Err(wrong)) => {
                    errors.extend(wrong);
                    Vec::new()
                }
                Some(Ok(given)) => given,
                None => Vec::new(),
            };
        let mut all = vec![program.clone()];
        let stronger: BTreeSet<&str> = environment.iter().map(|given| given.flag.as_str()).collect();
        for given in file.iter().chain(&environment) {
            let words: Vec<OsString> = given.words().map(OsString::from).collect();
            errors.extend(wrong(given, &program, &words, self.fields, self.check));
            let is_file = matches!(given.origin, Origin::File { .. });
            if origins.get(&given.flag) != Some(&Origin::CommandLine)
                && !(is_file && stronger.contains(&*given.flag))
            {
                origins.insert(given.flag.clone(), given.origin.clone());
                all.extend(words);
            }
        }
        if !errors.is_empty() {
            return Err(errors);
        }
        all.extend(own.iter().cloned());
        Ok(Gathered { words: all, origins: Origins(origins) })
    }
}

/// Returns the error if the value of a flag is invalid.
fn wrong(
    given: &FlagValues,
    program: &OsStr,
    words: &[OsString],
    fields: &[Field],
    check: &dyn Fn(&[OsString]) -> Option<String>,
) -> Option<SourceError> {
    let mut line = vec![program.to_owned()];
    line.extend(words.iter().cloned());
    check(&line)
        .map(|why| SourceError::of_value(fields, &given.flag, &given.values.join(","), &given.origin, &why))
}

/// Checks each flag of a command line separately, and returns the errors. The first word is the program name.
pub fn wrong_words(
    words: &[OsString],
    fields: &[Field],
    check: &dyn Fn(&[OsString]) -> Option<String>,
) -> Vec<SourceError> {
    let Some((program, own)) = words.split_first() else { return Vec::new() };
    let error = |word: &OsString| {
        let why = check(&[program.clone(), word.clone()])?;
        let name = name_of(word).unwrap_or_default();
        let value = value_of(word, &name).unwrap_or_default();
        Some(SourceError::of_value(fields, &name, &value.to_string_lossy(), &Origin::CommandLine, &why))
    };
    own.iter().filter_map(error).collect()
}

/// Returns the name of the flag in a word: `secure-port` for `--secure-port=1`, `v` for `-v=1`.
fn name_of(word: &OsStr) -> Option<String> {
    let text = word.to_str()?;
    let flag = text.strip_prefix("--").or_else(|| text.strip_prefix('-'))?;
    let name = flag.split('=').next().unwrap_or_default();
    // The only flag with two names.
    let name = if name == "logging-format" { "log-format" } else { name };
    Some(name.to_owned())
}

/// Returns the value in a word, if the word is the flag `flag` with a value.
fn value_of(word: &OsStr, flag: &str) -> Option<OsString> {
    let (name, value) = word.to_str()?.split_once('=')?;
    (name.trim_start_matches('-') == flag).then(|| value.into())
}
