//! `completion`: a script that completes commands and flags in a shell, generated from the definition of the command line.

use std::io::Write;

use clap::{Args, Command};
use clap_complete::Shell;

use crate::cli::output::Outcome;

/// The flags of the command `completion`.
#[derive(Clone, Debug, Args)]
pub struct Completion {
    /// Shell that runs the script: bash, zsh, fish.
    #[arg(value_name = "SHELL", value_parser = shell)]
    pub shell: Shell,
}

fn shell(text: &str) -> Result<Shell, String> {
    match text {
        "bash" => Ok(Shell::Bash),
        "zsh" => Ok(Shell::Zsh),
        "fish" => Ok(Shell::Fish),
        _ => Err("must be bash, zsh or fish".to_owned()),
    }
}

/// Runs the command and prints the script for a command line with this definition.
pub fn run(flags: &Completion, mut definition: Command, out: &mut impl Write) -> anyhow::Result<Outcome> {
    let name = definition.get_name().to_owned();
    let mut script = Vec::new();
    clap_complete::generate(flags.shell, &mut definition, name, &mut script);
    out.write_all(&script)?;
    Ok(Outcome::Fine)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_shell_gets_a_script_with_commands_and_flags() {
        for name in ["bash", "zsh", "fish"] {
            let flags = Completion { shell: shell(name).unwrap() };
            let mut out = Vec::new();
            run(&flags, crate::cli::definition::definition(), &mut out).unwrap();
            let script = String::from_utf8(out).unwrap();
            for word in ["accept-loss", "rotate-ca", "secure-port", "skip-damaged"] {
                assert!(script.contains(word), "{name}: {word}");
            }
        }
        assert!(shell("powershell").is_err());
    }
}
