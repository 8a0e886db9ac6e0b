//! `completion`: prints a script that completes commands and flags in a shell. The script is generated from the
//! definition of the command line.

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
    clap_complete::generate(flags.shell, &mut definition, name.as_str(), &mut script);
    if flags.shell == Shell::Bash {
        script = repaired(&String::from_utf8(script)?, &name).into_bytes();
    }
    out.write_all(&script)?;
    Ok(Outcome::Fine)
}

/// Repairs the script for bash. If the name of the program has a dash, clap_complete 4.6 writes the names of
/// states in two ways: it replaces the dash by `__` where the script enters a state, and by `__subcmd__`
/// where the script tests for the state. Then no subcommand would be completed. This function uses one
/// spelling.
fn repaired(script: &str, name: &str) -> String {
    let tested = format!("{}__subcmd__", name.replace('-', "__subcmd__"));
    let entered = format!("{}__subcmd__", name.replace('-', "__"));
    script.replace(&tested, &entered)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_shell_gets_a_completion_script_with_commands_and_flags() {
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

    #[test]
    fn the_bash_completion_script_handles_every_state_that_it_enters() {
        let mut out = Vec::new();
        run(&Completion { shell: Shell::Bash }, crate::cli::definition::definition(), &mut out).unwrap();
        let script = String::from_utf8(out).unwrap();
        let lines = || script.lines().map(str::trim);
        let tested: Vec<&str> = lines().filter_map(|line| line.strip_suffix(')')).collect();
        let entered = lines().filter_map(|line| line.strip_prefix("cmd=\"")?.strip_suffix('"'));
        let entered: Vec<&str> = entered.filter(|state| !state.is_empty()).collect();
        assert!(entered.len() > 30, "{entered:?}");
        for state in entered {
            assert!(tested.contains(&state), "{state}");
        }
    }
}
