//! `history undo`: brings back everything that was created, changed or deleted since a point.
//!
//! ```text
//! types of now and then ─► survey: lists of both ─► compare ─► changes ─► order ─► plan ─► confirm ─► carry out
//! ```
//!
//! The command compares lists that any client may read, and does not need a log of the server. So the usual permissions
//! apply to each resource, and the command also works with a store that records no authors, such as etcd. Only `--by`
//! needs authors. The command stores nothing between two runs. After an interruption, a new run makes a new plan, which
//! no longer contains the objects that were brought back.

mod authors;
mod carry;
mod order;
mod owners;
mod plan;
mod step;
mod survey;

use std::io::{self, BufRead, IsTerminal, Write};

use anyhow::bail;
use clap::Args;
use serde::Serialize;

use self::step::{UndoAction, UndoPlan, UndoStep};
use super::colour::{self, Colour, ColouredCell};
use super::point::{Point, point};
use crate::cli::connect::{Connect, block_on};
use crate::cli::output::{self, Format, Outcome, parse_format};
use crate::cli::report;
use crate::remote::client::Client;

/// The flags of the command `history undo`.
#[derive(Clone, Debug, Args)]
pub struct Undo {
    #[command(flatten)]
    pub connect: Connect,

    /// Types to bring back, such as deployments or cm, separated by spaces or commas. Default: all types.
    #[arg(value_name = "TYPE", value_delimiter = ',')]
    pub types: Vec<String>,

    /// The point: a revision, a time, or a duration before now (10m).
    #[arg(long, value_name = "POINT", value_parser = point, allow_hyphen_values = true)]
    pub since: Point,

    /// Bring back only objects in this namespace, and the namespace itself if it was deleted. Default: all namespaces, and
    /// objects without a namespace.
    #[arg(long, short, value_name = "NAMESPACE")]
    pub namespace: Option<String>,

    /// Bring back only objects that match this label selector, now or at the point.
    #[arg(long, short = 'l', value_name = "SELECTOR")]
    pub selector: Option<String>,

    /// Bring back only objects that this user changed. Each object gets the state before the first change of the user,
    /// so later changes of other users to the object are undone as well.
    #[arg(long, value_name = "USER")]
    pub by: Option<String>,

    /// Print the plan without executing it.
    #[arg(long)]
    pub dry_run: bool,

    /// Do not ask for a confirmation.
    #[arg(long, short)]
    pub yes: bool,

    /// Output format of the plan and the result. Possible values: text, json, yaml.
    #[arg(long, short, value_name = "FORMAT", default_value = "text", value_parser = parse_format)]
    pub output: Format,
}

/// The report of the command.
#[derive(Serialize)]
struct UndoReport<'p> {
    /// The steps of the plan, in their order.
    steps: &'p [UndoStep],
    /// Remarks about objects and types that the plan leaves out.
    remarks: &'p [String],
    dry_run: bool,
    /// Number of executed steps.
    done: usize,
    /// Warnings of the server about restored states.
    warnings: &'p [String],
    /// Reason why the command stopped before the last step.
    stopped: Option<&'p str>,
}

/// The result of executing a plan.
#[derive(Debug, Default)]
pub struct UndoResult {
    /// Number of executed steps.
    pub done: usize,
    /// Warnings of the server.
    pub warnings: Vec<String>,
    /// Reason why the command stopped before the last step.
    pub stopped: Option<String>,
}

/// Runs the command: prints the plan, asks for a confirmation, and executes the plan.
pub fn run(flags: &Undo, out: &mut impl Write) -> anyhow::Result<Outcome> {
    block_on(async {
        let client = flags.connect.client()?;
        let plan = plan::make(&client, flags).await?;
        if flags.output == Format::Text {
            text(&plan, out)?;
            out.flush()?;
        }
        let progressed = if flags.dry_run || plan.steps.is_empty() {
            UndoResult::default()
        } else {
            confirmed(flags, &client, &plan).await?
        };
        let report = UndoReport {
            steps: &plan.steps,
            remarks: &plan.remarks,
            dry_run: flags.dry_run,
            done: progressed.done,
            warnings: &progressed.warnings,
            stopped: progressed.stopped.as_deref(),
        };
        output::write(out, flags.output, &report, |out| result(&report, out))?;
        Ok(if report.stopped.is_some() { Outcome::Failed } else { Outcome::Fine })
    })
}

/// Asks for a confirmation, and executes the plan.
async fn confirmed(flags: &Undo, client: &Client, plan: &UndoPlan) -> anyhow::Result<UndoResult> {
    if !flags.yes && !is_confirmed(plan.steps.len())? {
        bail!("nothing was changed");
    }
    carry::carry_out(client, plan).await
}

/// Asks for a confirmation on the terminal.
///
/// # Errors
/// Standard input is not a terminal.
fn is_confirmed(count: usize) -> anyhow::Result<bool> {
    let input = io::stdin();
    if !input.is_terminal() {
        bail!("not confirmed, because there is no terminal: run the command with --yes, or with --dry-run");
    }
    let changes = report::count(count as u64, "change", "changes");
    write!(io::stderr(), "Carry out {changes}? [y/N] ")?;
    let mut answer = String::new();
    input.lock().read_line(&mut answer)?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

/// Writes the plan as text for people.
fn text(plan: &UndoPlan, out: &mut impl Write) -> io::Result<()> {
    for remark in &plan.remarks {
        writeln!(out, "note: {remark}")?;
    }
    if plan.steps.is_empty() {
        return writeln!(out, "nothing to undo");
    }
    let heading = ["ACTION", "RESOURCE", "NAMESPACE", "NAME", "TO REVISION"];
    let mut rows = vec![heading.map(|name| ColouredCell::from(name.to_owned()))];
    for step in &plan.steps {
        let (action, colour) = match step.action {
            UndoAction::Create => ("create", Colour::Green),
            UndoAction::Restore => ("restore", Colour::Yellow),
            UndoAction::Delete => ("delete", Colour::Red),
        };
        let namespace = if step.namespace.is_empty() { "-" } else { &step.namespace };
        rows.push([
            ColouredCell { text: action.to_owned(), colour },
            step.resource.clone().into(),
            namespace.to_owned().into(),
            step.name.clone().into(),
            step.revision.map_or_else(|| "-".to_owned(), |revision| revision.to_string()).into(),
        ]);
    }
    colour::table(out, colour::is_enabled(), &rows)
}

/// Writes the result as text for people.
fn result(report: &UndoReport<'_>, out: &mut impl Write) -> io::Result<()> {
    for warning in report.warnings {
        writeln!(out, "warning: {warning}")?;
    }
    let all = report.steps.len();
    match (report.stopped, report.dry_run) {
        (Some(why), _) => {
            writeln!(out, "stopped after {} of {all} changes: {why}", report.done)?;
            writeln!(out, "correct the cause and run the command again: it continues with the other changes")
        }
        (None, true) => writeln!(out, "{} (dry run)", report::count(all as u64, "change", "changes")),
        (None, false) if all == 0 => Ok(()),
        (None, false) => writeln!(out, "{} undone", report::count(all as u64, "change", "changes")),
    }
}
