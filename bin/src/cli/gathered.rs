//! Gathers the flags of a server from its configuration file, the environment and the command line.
//!
//! The weaker sources become words in front of those of the command line. A flag that a stronger source sets is left out
//! of the weaker ones, so that a list is replaced and not extended.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::path::Path;

use crate::flags::sources::{Field, Given, Origin, SourceError, read_environment, read_file};

/// Name of the flag that names the configuration file.
pub const CONFIG: &str = "config";

/// A command line with the flags of all sources.
#[derive(Clone, Debug)]
pub struct Gathered {
    /// The program, then the flags, each with its value in one word.
    pub words: Vec<OsString>,
    /// The source of each flag that is set; all others have their defaults.
    pub origins: Origins,
}

/// The sources of the flags that are set.
#[derive(Clone, Debug, Default)]
pub struct Origins(BTreeMap<String, Origin>);

impl Origins {
    /// Returns the source of the value of a flag.
    pub fn of(&self, flag: &str) -> Origin {
        self.0.get(flag).cloned().unwrap_or(Origin::Default)
    }
}

/// The sources of flags other than the command line.
pub struct Sources<'s> {
    /// The flags that may be set.
    pub fields: &'s [Field],
    /// The variables of the environment.
    pub variables: Vec<(String, String)>,
    /// Returns the error of a command line with a single flag.
    pub check: &'s dyn Fn(&[OsString]) -> Option<String>,
}

impl Sources<'_> {
    /// Gathers all sources for a command line, whose program name comes first.
    ///
    /// # Errors
    /// All errors in the file and in the variables.
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

/// Returns the error of the value of a flag.
fn wrong(
    given: &Given,
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

/// Returns the errors of the single flags of a command line, whose program name comes first.
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

/// Returns the value in a word, if the word is this flag with a value.
fn value_of(word: &OsStr, flag: &str) -> Option<OsString> {
    let (name, value) = word.to_str()?.split_once('=')?;
    (name.trim_start_matches('-') == flag).then(|| value.into())
}
