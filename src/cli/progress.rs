//! Progress on the terminal: a bar with rate and time left, or plain lines when the error
//! stream is not a terminal. Results go to standard output, progress to standard error.

use crate::stages::Observer;
use indicatif::{HumanDuration, ProgressBar, ProgressStyle};
use std::cell::RefCell;
use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

/// Seconds between two lines where there is no terminal to draw a bar on.
const LINE_EVERY: Duration = Duration::from_secs(15);

/// A rate over less time than this says little.
const SETTLE: Duration = Duration::from_millis(1500);

/// Draws one piece of work after the other.
pub struct Terminal {
    quiet: bool,
    current: RefCell<Option<Current>>,
}

struct Current {
    what: String,
    unit: String,
    total: Option<u64>,
    bar: Option<ProgressBar>,
    started: Instant,
    printed: Instant,
    first: Option<(Instant, u64)>,
}

impl Terminal {
    /// Draws on standard error; nothing at all when `quiet`.
    pub fn new(quiet: bool) -> Self {
        Terminal { quiet, current: RefCell::new(None) }
    }

    /// A spinner with the time gone by, on a terminal that is not quiet.
    pub(super) fn waiting(&self, what: &'static str) -> Waiting {
        let bar = if self.quiet { ProgressBar::hidden() } else { ProgressBar::new_spinner() };
        let bar = bar.with_style(style("{prefix:<26} {spinner} {elapsed}", ""));
        bar.set_prefix(what);
        bar.enable_steady_tick(Duration::from_millis(250));
        Waiting(bar)
    }

    /// A remark between two pieces of work.
    pub fn say(&self, text: &str) {
        if !self.quiet {
            line(text);
        }
    }
}

/// Shows on a terminal that something of unknown length goes on; gone when it is dropped.
pub(super) struct Waiting(ProgressBar);

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

/// One line on standard error. Nobody has to read it: a closed stream ends no run.
pub(super) fn line(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

impl Observer for Terminal {
    fn begin(&self, what: &str, total: Option<u64>, unit: &str) {
        if self.quiet {
            return;
        }
        let bar = std::io::stderr().is_terminal().then(|| {
            let bar = match total {
                Some(total) => ProgressBar::new(total)
                    .with_style(style("{prefix:<26} {bar:24} {pos}/{len} {unit}  {msg}", unit)),
                None => ProgressBar::new_spinner()
                    .with_style(style("{prefix:<26} {spinner} {pos} {unit}  {elapsed}  {msg}", unit)),
            };
            bar.set_prefix(what.to_string());
            bar.enable_steady_tick(Duration::from_millis(250));
            bar
        });
        if bar.is_none() {
            match total {
                Some(total) => line(&format!("{what}: {total} {unit}")),
                None => line(&format!("{what} …")),
            }
        }
        let now = Instant::now();
        *self.current.borrow_mut() = Some(Current {
            what: what.into(),
            unit: unit.into(),
            total,
            bar,
            started: now,
            printed: now,
            first: None,
        });
    }

    fn advance(&self, done: u64, note: &str) {
        let mut current = self.current.borrow_mut();
        let Some(current) = current.as_mut() else { return };
        // Work found finished on disk must not count as speed.
        let (since, from) = *current.first.get_or_insert((Instant::now(), done));
        let fresh = done.saturating_sub(from);
        let rate = fresh as f64 / since.elapsed().as_secs_f64().max(1e-9);
        let speed = match current.total {
            Some(total) if fresh > 0 && since.elapsed() >= SETTLE => {
                let left = Duration::from_secs_f64((total.saturating_sub(done) as f64 / rate).min(1e7));
                format!("{rate:.1}/s, {} left", HumanDuration(Duration::from_secs(left.as_secs())))
            }
            _ if from > 0 && fresh == 0 => format!("{from} found finished"),
            _ => String::new(),
        };
        let message =
            [speed.as_str(), note].into_iter().filter(|s| !s.is_empty()).collect::<Vec<_>>().join(", ");
        if let Some(bar) = &current.bar {
            bar.set_position(done);
            bar.set_message(message);
            return;
        }
        if current.printed.elapsed() < LINE_EVERY {
            return;
        }
        current.printed = Instant::now();
        let total = current.total.map(|t| format!("/{t}")).unwrap_or_default();
        line(&format!("{}: {done}{total} {}, {message}", current.what, current.unit));
    }

    fn end(&self, summary: &str) {
        let Some(current) = self.current.borrow_mut().take() else { return };
        if let Some(bar) = &current.bar {
            bar.finish_and_clear();
        }
        line(&format!("{:<26} {summary} ({:.1} s)", current.what, current.started.elapsed().as_secs_f64()));
    }
}

fn style(template: &str, unit: &str) -> ProgressStyle {
    let style = ProgressStyle::with_template(&template.replace("{unit}", unit))
        .expect("the templates above are well formed");
    style.progress_chars("━╸─")
}
