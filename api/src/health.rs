//! Health endpoints: `/livez`, `/readyz`, `/healthz` and their single checks (docs/api/operations.md#health).
//!
//! Checks tell the truth about this process: whether start-up finished, whether the store takes writes, and
//! whether it is on its way out.

use engine::{Durability, Engine};
use http::StatusCode;

use crate::query::Query;
use crate::response::{Response, respond_text};
use crate::server::{Lifecycle, Stage};

/// What the checks look at.
pub struct Checked<'c> {
    /// The store.
    pub engine: &'c Engine,
    /// Stage of the process.
    pub lifecycle: &'c Lifecycle,
}

/// What one check says: fine, or why not.
type Verdict = Result<(), String>;

/// One named check.
struct Check {
    name: &'static str,
    run: fn(&Checked<'_>) -> Verdict,
    /// Part of liveness as well; the others concern readiness alone.
    live: bool,
}

/// All checks in the order in which they are listed.
const CHECKS: &[Check] = &[
    Check { name: "ping", run: |_| Ok(()), live: true },
    Check { name: "log", run: |_| Ok(()), live: true },
    Check {
        name: "store",
        run: |checked| checked.engine.health().map_err(|error| error.to_string()),
        live: false,
    },
    Check { name: "poststarthook/bootstrap", run: bootstrapped, live: true },
    Check { name: "shutdown", run: not_leaving, live: false },
];

fn bootstrapped(checked: &Checked<'_>) -> Verdict {
    if checked.lifecycle.stage() == Stage::Starting { Err("not finished".to_owned()) } else { Ok(()) }
}

fn not_leaving(checked: &Checked<'_>) -> Verdict {
    if checked.lifecycle.stage() >= Stage::Leaving {
        Err("process is shutting down".to_owned())
    } else {
        Ok(())
    }
}

/// Answers a health path; `None` for every other.
pub fn respond(checked: &Checked<'_>, path: &str, query: &Query) -> Option<Response> {
    let (endpoint, single) = path.trim_matches('/').split_once('/').unwrap_or((path.trim_matches('/'), ""));
    if !matches!(endpoint, "livez" | "readyz" | "healthz") {
        return None;
    }
    let applies = |check: &Check| check.live || endpoint != "livez";
    if !single.is_empty() {
        let check = CHECKS.iter().find(|check| check.name == single && applies(check))?;
        return Some(match (check.run)(checked) {
            Ok(()) => respond_text(StatusCode::OK, "ok"),
            Err(why) => {
                respond_text(StatusCode::INTERNAL_SERVER_ERROR, format!("internal server error: {why}\n"))
            }
        });
    }
    let mut excluded: Vec<&str> = query.all("exclude").collect();
    let mut failed = false;
    let mut lines = String::new();
    for check in CHECKS.iter().filter(|check| applies(check)) {
        let name = check.name;
        if let Some(at) = excluded.iter().position(|wanted| *wanted == name) {
            excluded.swap_remove(at);
            lines.push_str(&format!("[+]{name} excluded: ok\n"));
            continue;
        }
        match (check.run)(checked) {
            Ok(()) => lines.push_str(&format!("[+]{name} ok\n")),
            Err(why) => {
                tracing::debug!(endpoint, check = name, %why, "health check failed");
                failed = true;
                lines.push_str(&format!("[-]{name} failed: reason withheld\n"));
            }
        }
    }
    if checked.engine.durability() == Durability::Relaxed {
        // Not a failure, but nobody who looks should believe that acknowledged means on disk.
        lines.push_str("[+]durability relaxed: a machine crash may lose the last acknowledged writes\n");
    }
    if !excluded.is_empty() {
        let names: Vec<String> = excluded.iter().map(|name| crate::field::go_quote(name)).collect();
        lines.push_str(&format!(
            "warn: some health checks cannot be excluded: no matches for {}\n",
            names.join(", ")
        ));
    }
    if failed {
        return Some(respond_text(
            StatusCode::INTERNAL_SERVER_ERROR,
            format!("{lines}{endpoint} check failed\n"),
        ));
    }
    Some(if query.first("verbose").is_some() {
        respond_text(StatusCode::OK, format!("{lines}{endpoint} check passed\n"))
    } else {
        respond_text(StatusCode::OK, "ok")
    })
}

/// Paths outside the resource API that the list of paths shows.
pub fn paths() -> Vec<String> {
    let mut paths = vec!["/openapi/v2".to_owned(), "/openapi/v3".to_owned(), "/version".to_owned()];
    paths.push("/metrics".to_owned());
    paths.push(crate::backup::PATH.to_owned());
    for endpoint in ["healthz", "livez", "readyz"] {
        paths.push(format!("/{endpoint}"));
        let own = CHECKS.iter().filter(|check| check.live || endpoint != "livez");
        paths.extend(own.map(|check| format!("/{endpoint}/{}", check.name)));
    }
    paths
}
