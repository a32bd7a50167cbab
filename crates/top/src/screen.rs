//! The screen of `bursar top`: as many columns as the terminal has room for.

use bursar::Bytes;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::{Paragraph, Sparkline};

use crate::model::{Model, Row};
use crate::stat;
use bursar_term::units::{counted, elapsed, percent, quantity};
use bursar_term::width::columns;

/// Lines of the picture of the selected group's usage; a small terminal has none.
const SPARKLINE_LINES: u16 = 3;
const LINES_FOR_SPARKLINE: u16 = 14;
/// Lines for those that wait, at most, below the groups; a small terminal has none.
const WAITER_LINES: usize = 5;
/// Lines for decisions.
const DECISION_LINES: usize = 2;
/// Age from which on a decision is not shown: a minute, in nanoseconds.
const NEWS_NS: u64 = 60_000_000_000;

/// Something to tell besides the groups.
#[derive(Debug, Default)]
pub struct Notes {
    /// Reason for which there is no new look.
    pub trouble: Option<String>,
    pub is_paused: bool,
    /// Whether the text of the filter is being typed.
    pub is_typing: bool,
    /// Whether words may be coloured.
    pub has_color: bool,
}

/// Draws everything.
pub fn draw(frame: &mut Frame<'_>, model: &Model, notes: &Notes) {
    let area = frame.area();
    let has_sparkline = area.height >= LINES_FOR_SPARKLINE;
    let sparkline_lines = if has_sparkline { SPARKLINE_LINES } else { 0 };
    let width = usize::from(area.width);
    let waiting = match has_sparkline {
        true => waiting(model, width).chain(decided(model, width)).collect(),
        false => Vec::<Line>::new(),
    };
    let parts = [
        Constraint::Length(2),
        Constraint::Min(1),
        Constraint::Length(waiting.len() as u16),
        Constraint::Length(sparkline_lines),
        Constraint::Length(1),
    ];
    let [head, body, below, picture, foot] = Layout::vertical(parts).areas(area);
    let bold = Style::new().add_modifier(Modifier::BOLD);
    let lines = [
        Line::from(cut(&summary(model, notes), width)),
        Line::styled(cut(&header(width), width), bold),
    ];
    frame.render_widget(Paragraph::new(lines.to_vec()), head);
    draw_rows(frame, body, model, notes);
    frame.render_widget(Paragraph::new(waiting), below);
    if has_sparkline {
        let [label, bars] =
            Layout::vertical([Constraint::Length(1), Constraint::Min(1)]).areas(picture);
        let history = model.history();
        let last: Vec<u64> = history.iter().rev().take(width).rev().copied().collect();
        let most = last.iter().copied().max().unwrap_or(0);
        let text = model
            .rows()
            .get(model.selected())
            .map_or_else(String::new, |&row| {
                format!(
                    "{}: usage at the last {}, at most {}",
                    bursar::printable(&model.group(row).path),
                    counted(last.len(), "look"),
                    Bytes(most)
                )
            });
        frame.render_widget(Paragraph::new(cut(&text, width)), label);
        frame.render_widget(Sparkline::default().data(&last).max(most.max(1)), bars);
    }
    let keys = match (notes.is_typing, model.filter()) {
        (true, filter) => format!("show paths with: {filter}_   Enter keeps, Esc shows all"),
        (false, "") => format!(
            "s sort ({})  / filter  Left Right fold  Space pause  q end",
            model.sort.name()
        ),
        (false, filter) => format!(
            "only paths with {filter:?}: Esc shows all  s sort ({})  q end",
            model.sort.name()
        ),
    };
    frame.render_widget(Paragraph::new(cut(&keys, width)), foot);
}

fn summary(model: &Model, notes: &Notes) -> String {
    if let Some(trouble) = &notes.trouble {
        return trouble.clone();
    }
    let Some(document) = model.document() else {
        return "asking...".to_owned();
    };
    let top = &document.groups[0];
    format!(
        "{}{} of {} in use  {} {}  up {}  {}",
        if notes.is_paused { "PAUSED  " } else { "" },
        Bytes(top.usage()),
        Bytes::display_limit(top.limits.max.unwrap_or(u64::MAX)),
        bursar::printable(&document.program),
        document.pid,
        elapsed(document.uptime_ns as f64 / 1e9),
        counted(document.groups.len(), "group"),
    )
}

/// A column: the least width of a terminal that shows it, its own width, and its title.
type Column = (usize, usize, &'static str);

const USAGE: Column = (0, 9, "in use");
const SHARE: Column = (32, 6, "limit");
const CHANGE: Column = (60, 11, "change/s");
const PRESSURE: Column = (48, 8, "pressure");
const REFUSED: Column = (68, 9, "refused/s");
const LIMIT: Column = (90, 9, "limit");
const RECLAIMED: Column = (110, 11, "reclaimed/s");
const COLUMNS: [Column; 7] = [USAGE, LIMIT, SHARE, CHANGE, PRESSURE, REFUSED, RECLAIMED];

fn shown(width: usize) -> impl Iterator<Item = Column> {
    COLUMNS
        .into_iter()
        .filter(move |(least, ..)| width >= *least)
}

/// Columns that names have.
fn name_width(width: usize) -> usize {
    let others: usize = shown(width).map(|(_, width, _)| width + 1).sum();
    width.saturating_sub(others)
}

fn header(width: usize) -> String {
    let cells = shown(width).map(|(least, width, title)| match (least, title) {
        (least, _) if least == SHARE.0 => format!(" {:>width$}", "used"),
        (_, title) => format!(" {title:>width$}"),
    });
    format!(
        "{:name$}{}",
        "group",
        cells.collect::<String>(),
        name = name_width(width)
    )
}

fn draw_rows(frame: &mut Frame<'_>, area: Rect, model: &Model, notes: &Notes) {
    let height = usize::from(area.height);
    let width = usize::from(area.width);
    if model.rows().is_empty() && model.document().is_some() {
        frame.render_widget(Paragraph::new(cut("no group matches", width)), area);
        return;
    }
    // The selected row is in the middle, but at both ends.
    let last = model.rows().len().saturating_sub(height);
    let first = model.selected().saturating_sub(height / 2).min(last);
    let lines = model
        .rows()
        .iter()
        .enumerate()
        .skip(first)
        .take(height)
        .map(|(position, &row)| {
            let line = Line::from(line(model, row, width));
            let group = model.group(row);
            let style = match (notes.has_color, group.pressure()) {
                (true, 3) => Style::new().red(),
                (true, 2) => Style::new().yellow(),
                _ => Style::new(),
            };
            match position == model.selected() {
                true => line.style(style.add_modifier(Modifier::REVERSED)),
                false => line.style(style),
            }
        });
    frame.render_widget(Paragraph::new(lines.collect::<Vec<_>>()), area);
}

/// A line for each of the first that wait for memory, and one for the number of the others.
fn waiting(model: &Model, width: usize) -> impl Iterator<Item = Line<'static>> + use<> {
    let waiters = model.document().map_or(&[][..], |it| &it.waiters);
    let mut lines: Vec<Line> = waiters
        .iter()
        .take(WAITER_LINES)
        .map(|waiter| {
            let [path, bytes, since, limited] = stat::waiter(waiter);
            let text = format!("waits {since} for {bytes} of {limited}: {path}");
            Line::from(cut(&text, width))
        })
        .collect();
    if waiters.len() > WAITER_LINES {
        let left = waiters.len() - (WAITER_LINES - 1);
        let text = format!("{} more", counted(left, "waiter"));
        lines[WAITER_LINES - 1] = Line::from(cut(&text, width));
    }
    lines.into_iter()
}

/// A line for each of the last decisions of the arbiter, as long as it is news.
fn decided(model: &Model, width: usize) -> impl Iterator<Item = Line<'static>> + '_ {
    let decisions = model.document().map_or(&[][..], |it| &it.decisions);
    let news = decisions.iter().filter(|one| one.age_ns < NEWS_NS);
    news.take(DECISION_LINES).map(move |one| {
        let [kind, query, gave, ago, sake] = stat::decision(one);
        let gave = match &*gave {
            "" => gave,
            bytes => format!(" ({bytes} came back)"),
        };
        Line::from(cut(
            &format!("{kind} {ago} ago{gave} for {sake}: {query}"),
            width,
        ))
    })
}

fn line(model: &Model, row: Row, width: usize) -> String {
    let group = model.group(row);
    let rates = model.rates(row);
    let mark = match (row.has_children, row.is_folded) {
        (true, true) => '+',
        (true, false) => '-',
        (false, _) => ' ',
    };
    let name_width = name_width(width);
    // Deep groups are indented less where there is no room.
    let indent = group
        .depth
        .saturating_mul(2)
        .min(name_width.saturating_sub(10));
    let name = cut(
        &format!("{:indent$}{mark} {}", "", group.name()),
        name_width,
    );
    let mut text = format!(
        "{name}{}",
        " ".repeat(name_width.saturating_sub(columns(&name)))
    );
    let per_second = |value: Option<f64>, shown: fn(f64) -> String| match value {
        Some(value) if value != 0.0 => shown(value),
        _ => String::new(),
    };
    for column in shown(width) {
        let cell = match column {
            USAGE => Bytes(group.usage()).to_string(),
            LIMIT => group
                .limits
                .max
                .map_or_else(String::new, |max| Bytes(max).to_string()),
            SHARE => group.share().map_or_else(String::new, short_share),
            CHANGE => per_second(rates.map(|rates| rates.usage_bytes), |bytes| {
                let sign = if bytes < 0.0 { '-' } else { '+' };
                format!("{sign}{}", Bytes(bytes.abs() as u64))
            }),
            PRESSURE => stat::pressure(group).into_owned(),
            REFUSED => per_second(rates.map(|rates| rates.refused), quantity),
            _ => per_second(rates.map(|rates| rates.reclaimed_bytes), |bytes| {
                Bytes(bytes as u64).to_string()
            }),
        };
        let (_, width, _) = column;
        text += &format!(" {:>width$}", cut(&cell, width));
    }
    text
}

/// A share in at most six columns.
fn short_share(share: f64) -> String {
    let text = percent(share);
    match share {
        _ if columns(&text) <= 6 => text,
        ..0.5 => "< 1 %".to_owned(),
        ..1.0 => "> 99 %".to_owned(),
        ..99.0 => format!("{:.0} %", (share * 100.0).ceil()),
        _ => "> 99 x".to_owned(),
    }
}

/// A text in at most so many columns.
fn cut(text: &str, width: usize) -> String {
    if columns(text) <= width {
        return text.to_owned();
    }
    let mut kept = String::new();
    for character in text.chars() {
        kept.push(character);
        if columns(&kept) > width.saturating_sub(2) {
            kept.pop();
            break;
        }
    }
    kept + &".."[..width.min(2)]
}

#[cfg(test)]
mod tests {
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::*;
    use crate::document::{Decision, Waiter};
    use crate::model::tests::{document, group, two_tenants};

    fn drawn(model: &Model, notes: &Notes, width: u16, height: u16) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("memory");
        terminal
            .draw(|frame| draw(frame, model, notes))
            .expect("memory");
        let buffer = terminal.backend().buffer();
        let lines = buffer.content.chunks(usize::from(width)).map(|line| {
            let line: String = line.iter().map(|cell| cell.symbol()).collect();
            line.trim_end().to_owned()
        });
        lines.collect::<Vec<_>>().join("\n")
    }

    fn model() -> Model {
        let mut model = Model::default();
        model.update(two_tenants());
        model
    }

    /// A server may send any depth.
    #[test]
    fn a_group_may_be_at_any_depth() {
        let mut deep = group("/a", 1, None, 0, "none");
        deep["depth"] = u64::MAX.into();
        let mut model = Model::default();
        model.update(document(1, 1, &[group("/", 1, None, 0, "none"), deep]));
        let screen = drawn(&model, &Notes::default(), 80, 8);
        assert!(screen.contains("  a "), "{screen}");
    }

    #[test]
    fn eighty_columns() {
        let expected = "\
70.0 MiB of 96.0 MiB in use  server 1  up 1 s  5 groups
group                               in use   used    change/s pressure refused/s
- /                               70.0 MiB 72.9 %
  - acme                          40.0 MiB 83.3 %                 high
      report\\u{202e}\\n            30.0 MiB
      dashboard                   10.0 MiB
    umbrella                      30.0 MiB
s sort (usage)  / filter  Left Right fold  Space pause  q end";
        assert_eq!(drawn(&model(), &Notes::default(), 80, 8), expected);
    }

    #[test]
    fn twenty_columns_have_name_and_usage() {
        let expected = "\
70.0 MiB of 96.0 M..
group         in use
- /         70.0 MiB
- acme      40.0 MiB
  report..  30.0 MiB
  dashbo..  10.0 MiB
  umbrella  30.0 MiB
s sort (usage)  / ..";
        assert_eq!(drawn(&model(), &Notes::default(), 20, 8), expected);
    }

    /// No size and no name makes it panic, and no line is too wide for its columns.
    #[test]
    fn any_size() {
        let mut model = model();
        let wide = "\u{5bbd}".repeat(80);
        model.update(document(
            1,
            3,
            &[
                group("/", 5, Some(0), 9, "critical"),
                group(&format!("/{wide}"), 1, None, 0, "none"),
            ],
        ));
        for width in [1, 2, 5, 12, 33, 61, 95, 200] {
            for height in [1, 2, 3, 6, 15, 50] {
                drawn(&model, &Notes::default(), width, height);
            }
        }
        for width in [40, 41] {
            let line = line(&model, model.rows()[1], width);
            assert_eq!(columns(&line), width, "{line}");
            assert!(line.ends_with("1 B       "), "{line}");
        }
    }

    #[test]
    fn trouble_is_told_above_the_last_look() {
        let notes = Notes {
            trouble: Some("no server listens there any more".to_owned()),
            ..Notes::default()
        };
        let shown = drawn(&model(), &notes, 80, 20);
        assert!(
            shown.starts_with("no server listens there any more\n"),
            "{shown}"
        );
        assert!(
            shown.contains("umbrella") && shown.contains("/: usage at the last 1 look"),
            "{shown}"
        );
        let paused = Notes {
            is_paused: true,
            ..Notes::default()
        };
        assert!(drawn(&model(), &paused, 80, 20).starts_with("PAUSED  70.0 MiB"));
    }

    #[test]
    fn those_that_wait_are_below_the_groups() {
        let ask = |name: String| {
            let ask = serde_json::json!({
                "group": "/acme", "name": name, "least": 8 << 20, "waited_ns": 2_000_000_000_u64, "blocked_by": "/acme",
            });
            Waiter::parse(&serde_json::json!({"waiting": [ask]}).to_string()).remove(0)
        };
        let mut look = two_tenants();
        look.waiters = vec![ask("sum\u{202e}".to_owned())];
        let mut model = Model::default();
        model.update(look.clone());
        let shown = drawn(&model, &Notes::default(), 80, 20);
        let line = "\nwaits 2 s for 8.00 MiB of /acme: /acme/sum\\u{202e}\n";
        assert!(shown.contains(line), "{shown}");
        look.waiters = (0..9).map(|number| ask(format!("q{number}"))).collect();
        model.update(look);
        let shown = drawn(&model, &Notes::default(), 80, 20);
        assert!(shown.contains("/acme/q3\n5 waiters more\n"), "{shown}");
        assert!(!drawn(&model, &Notes::default(), 80, 10).contains("waits"));
    }

    #[test]
    fn decisions_are_shown_for_a_minute() {
        let made = |query: &str, age_s: u64, seen: Option<u64>| {
            let one = serde_json::json!({
                "decided": "ask", "query": query, "needed_by": "/acme/join", "limited": "/acme", "seen": seen,
                "age_ns": age_s * 1_000_000_000,
            });
            Decision::parse(&serde_json::json!({"decisions": [one]}).to_string()).remove(0)
        };
        let mut look = two_tenants();
        look.decisions = vec![
            made("/acme/sort\u{202e}", 3, Some(8 << 20)),
            made("/acme/q", 5, None),
            made("/acme/third", 6, None),
        ];
        let mut model = Model::default();
        model.update(look.clone());
        let shown = drawn(&model, &Notes::default(), 80, 20);
        let lines = "\nask 3 s ago (8.00 MiB came back) for /acme/join: /acme/sort\\u{202e}\nask 5 s ago for /acme/join: /acme/q\n";
        assert!(shown.contains(lines) && !shown.contains("third"), "{shown}");
        look.decisions = vec![made("/acme/sort", 60, None)];
        model.update(look);
        assert!(!drawn(&model, &Notes::default(), 80, 20).contains("ago"));
    }

    #[test]
    fn a_share_fits_its_column_and_tells_less_from_more() {
        let shown = [0.0, 1e-9, 0.5, 0.9997, 1.0, 1.000_1, 1.5, 12.0, 1e6].map(short_share);
        assert_eq!(
            shown,
            [
                "0 %", "< 1 %", "50.0 %", "> 99 %", "100 %", "101 %", "150 %", "1200 %", "> 99 x"
            ]
        );
    }

    #[test]
    fn a_filter_without_a_match_says_so() {
        let mut model = model();
        model.set_filter("nobody".to_owned());
        let expected = "\
70.0 MiB of 96.0 MiB in use  server 1 ..
group                      in use   used
no group matches












only paths with \"nobody\": Esc shows al..";
        assert_eq!(drawn(&model, &Notes::default(), 40, 16), expected);
    }
}
