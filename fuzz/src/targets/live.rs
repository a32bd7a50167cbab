//! Documents that `bursar top` and `bursar stat` read.

use bursar_term::markup::Markup;
use ratatui::Terminal;
use ratatui::backend::TestBackend;

use crate::common::{assert_harmless, parts, text};
use crate::document::{Decision, Document, Leftover, Waiter, is_below};
use crate::model::Model;
use crate::screen::{Notes, draw};
use crate::stat;

/// A document, the one of the next look, admissions, decisions and leftovers. Empty: as the first.
pub(super) fn run(input: &[u8]) {
    let [first, next, admissions, decisions, leftovers] = parts(input).map(text);
    let first = first.unwrap_or_default();
    let mut document = match Document::parse(first) {
        Ok(document) => document,
        Err(error) => return assert_harmless(&error),
    };
    assert_harmless(&stat::escaped(first));
    let top = document.groups[0].path.clone();
    let mut waiters = Waiter::parse(admissions.unwrap_or_default());
    waiters.retain(|waiter| is_below(&waiter.path, &top));
    document.waiters.splice(..0, waiters);
    document.decisions = Decision::parse(decisions.unwrap_or_default());
    let leftovers = Leftover::parse(leftovers.unwrap_or_default());
    for is_whole in [false, true] {
        let markup = Markup::Terminal {
            color: false,
            width: Some(80),
        };
        assert_harmless(&stat::table(&document, &leftovers, markup, is_whole));
        let _ = stat::table(&document, &leftovers, Markup::Html, is_whole);
    }
    let mut model = Model::default();
    let next = Document::parse(next.unwrap_or_default()).unwrap_or_else(|_| document.clone());
    model.update(document);
    show(&model);
    model.select(1);
    model.fold(true);
    model.update(next);
    show(&model);
    model.fold(false);
    for _ in 0..5 {
        model.sort_by_next();
    }
    model.set_filter("a".to_owned());
    model.select(-1);
    show(&model);
}

fn show(model: &Model) {
    for (width, height) in [(100, 24), (30, 5), (1, 1)] {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("a screen");
        let drawn = terminal.draw(|frame| draw(frame, model, &Notes::default()));
        let drawn = drawn.expect("drawn").buffer.content();
        drawn.iter().for_each(|cell| assert_harmless(cell.symbol()));
    }
}
