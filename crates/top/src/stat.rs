//! `bursar stat`: a server's groups, once.

use std::borrow::Cow;
use std::process::ExitCode;

use bursar::Bytes;

use crate::args::{Stat, Target};
use crate::client::Client;
use crate::document::{Decision, Document, Group, Leftover, Waiter};
use crate::model::Model;
use bursar_term::failure::Failure;
use bursar_term::grid::Grid;
use bursar_term::markup::Markup;
use bursar_term::options::Global;
use bursar_term::output::Output;
use bursar_term::units::{counted, elapsed, percent};

/// Groups that a table shows, unless -v is given.
const ROWS: usize = 40;
/// Groups with leftovers that are named.
const LEFTOVERS: usize = 5;
/// Waiters that a table shows, unless -v is given.
const WAITERS: usize = 10;
/// Decisions that a table shows, unless -v is given.
const DECISIONS: usize = 5;

pub fn stat(stat: &Stat, global: &Global) -> Result<ExitCode, Failure> {
    print(&stat.target, global)
}

/// Prints the groups of a server.
pub fn print(target: &Target, global: &Global) -> Result<ExitCode, Failure> {
    let is_json = global.is_json()?;
    let output = Output::open(global)?;
    let client = Client::of(target)?;
    let (document, sent) = client.tree()?;
    let table = |markup| table(&document, &client.leftovers(), markup, global.verbose);
    let text = match is_json {
        true => escaped(&sent),
        false => table(output.terminal()),
    };
    output.write(&text, table)?;
    Ok(ExitCode::SUCCESS)
}

/// All tables of the answers.
pub fn table(
    document: &Document,
    leftovers: &[Leftover],
    markup: Markup,
    is_whole: bool,
) -> String {
    let groups = text(document.clone(), markup, is_whole);
    let waiting = waiting(&document.waiters, markup, is_whole);
    let decided = decided(&document.decisions, markup, is_whole);
    groups + &waiting + &decided + &left_behind(leftovers, markup)
}

/// The server's JSON without characters that a terminal obeys. Carriage returns and tabs can only be space between its texts.
pub fn escaped(json: &str) -> String {
    let mut text = String::with_capacity(json.len());
    for character in json.chars() {
        match character {
            '\n' => text.push('\n'),
            '\r' | '\t' => text.push(' '),
            _ if is_escaped(character) => text += &format!("\\u{:04x}", u32::from(character)),
            _ => text.push(character),
        }
    }
    text
}

fn is_escaped(character: char) -> bool {
    matches!(
        bursar::printable(character.encode_utf8(&mut [0; 4])),
        Cow::Owned(_)
    )
}

/// Usage against the limit, as people read it.
pub fn of_limit(group: &Group) -> String {
    match group.limits.max {
        Some(max) => format!("of {}", Bytes(max)),
        None => String::new(),
    }
}

pub fn share(group: &Group) -> String {
    group.share().map_or_else(String::new, percent)
}

pub fn pressure(group: &Group) -> Cow<'_, str> {
    match group.pressure.level.as_str() {
        "none" => "".into(),
        level => bursar::printable(level),
    }
}

/// Cells of a row for one that waits.
pub fn waiter(waiter: &Waiter) -> [String; 4] {
    [
        bursar::printable(&waiter.path).into_owned(),
        Bytes(waiter.bytes).to_string(),
        elapsed(waiter.waited_ns as f64 / 1e9),
        bursar::printable(&waiter.limited).into_owned(),
    ]
}

/// Those that wait for memory, as a table.
fn waiting(waiters: &[Waiter], markup: Markup, is_whole: bool) -> String {
    if waiters.is_empty() {
        return String::new();
    }
    let mut table = Grid::new(["waiting", "for", "since", "limit of"]).right(1..3);
    let shown = if is_whole { usize::MAX } else { WAITERS };
    for one in waiters.iter().take(shown) {
        table.row(waiter(one));
    }
    let mut text = format!("\n{}", markup.table(&table));
    let left = waiters.len().saturating_sub(shown);
    if left > 0 {
        let more = format!("{} more: -v shows all.", counted(left, "waiter"));
        text += &format!("\n{}", markup.paragraph(&more));
    }
    text
}

/// Cells of a row for a decision: kind, query, bytes that came back, age, and for which query or limit.
pub fn decision(decision: &Decision) -> [String; 5] {
    let sake = match decision.needed_by.as_str() {
        "" => &decision.limited,
        query => query,
    };
    [
        bursar::printable(&decision.decided).into_owned(),
        bursar::printable(&decision.query).into_owned(),
        decision
            .seen
            .map_or_else(String::new, |bytes| Bytes(bytes).to_string()),
        elapsed(decision.age_ns as f64 / 1e9),
        bursar::printable(sake).into_owned(),
    ]
}

/// The last decisions of the arbiter, as a table.
fn decided(decisions: &[Decision], markup: Markup, is_whole: bool) -> String {
    if decisions.is_empty() {
        return String::new();
    }
    let mut table = Grid::new(["decided", "about", "gave back", "ago", "for"]).right(2..4);
    let shown = if is_whole { usize::MAX } else { DECISIONS };
    for one in decisions.iter().take(shown) {
        table.row(decision(one));
    }
    let mut text = format!("\n{}", markup.table(&table));
    let left = decisions.len().saturating_sub(shown);
    if left > 0 {
        let more = format!("{} before: -v shows all.", counted(left, "decision"));
        text += &format!("\n{}", markup.paragraph(&more));
    }
    text
}

/// The groups that have ended with bytes charged, in a sentence.
fn left_behind(leftovers: &[Leftover], markup: Markup) -> String {
    if leftovers.is_empty() {
        return String::new();
    }
    let named = leftovers.iter().take(LEFTOVERS).map(|leftover| {
        let seconds = leftover.age_ns as f64 / 1e9;
        let path = bursar::printable(&leftover.path);
        format!("{path} {} for {}", Bytes(leftover.bytes), elapsed(seconds))
    });
    let named: Vec<String> = named.collect();
    let more = match leftovers.len().saturating_sub(LEFTOVERS) {
        0 => String::new(),
        more => format!(", and {more} more"),
    };
    let text = format!(
        "{} ended with bytes that are still charged: {}{more}.",
        counted(leftovers.len(), "group"),
        named.join(", ")
    );
    format!("\n{}", markup.paragraph(&text))
}

/// The answer in a sentence, and the groups as a tree, the biggest first.
fn text(document: Document, markup: Markup, is_whole: bool) -> String {
    let mut model = Model::default();
    model.unfold_all();
    model.update(document);
    let document = model.document().expect("it was just given");
    let top = &document.groups[0];
    // The biggest group that has none below: it holds the memory itself.
    let is_leaf = |at: usize| {
        document
            .groups
            .get(at + 1)
            .is_none_or(|next| next.depth <= document.groups[at].depth)
    };
    let leaves = (0..document.groups.len())
        .filter(|&at| is_leaf(at))
        .map(|at| &document.groups[at]);
    let biggest = leaves.max_by_key(|group| group.usage());
    let mut text = markup.paragraph(&format!(
        "{}, process {}: {} in use{}, by {}.{}",
        bursar::printable(&document.program),
        document.pid,
        Bytes(top.usage()),
        top.limits
            .max
            .map_or_else(String::new, |max| format!(" of {}", Bytes(max))),
        counted(document.groups.len(), "group"),
        match biggest {
            Some(biggest) if biggest.usage() > 0 => format!(
                " {} has most: {}.",
                bursar::printable(&biggest.path),
                Bytes(biggest.usage())
            ),
            _ => String::new(),
        }
    ));
    text.push('\n');
    let mut table = Grid::new([
        "group", "in use", "limit", "used", "peak", "pressure", "refused",
    ])
    .right(1..5);
    let shown = if is_whole { usize::MAX } else { ROWS };
    for &row in model.rows().iter().take(shown) {
        let group = model.group(row);
        let refused = match group.events.refused {
            0 => String::new(),
            count => count.to_string(),
        };
        table.row([
            format!(
                "{:indent$}{}",
                "",
                group.name(),
                indent = 2 * group.depth.min(16)
            ),
            Bytes(group.usage()).to_string(),
            of_limit(group),
            share(group),
            Bytes(group.peak).to_string(),
            pressure(group).into_owned(),
            refused,
        ]);
    }
    text += &markup.table(&table);
    let left = model.rows().len().saturating_sub(shown);
    if left > 0 {
        text.push('\n');
        text += &markup.paragraph(&format!(
            "{} more: -v shows all, --path and --depth some.",
            counted(left, "group")
        ));
    }
    text
}
