//! Formats of tracefs, pages of trace buffers, and records.

use std::fmt::Write;

use bursar_watch::event::{
    CONTEXT_EVENTS, Decoder, FLUSH_EVENTS, HOLD_EVENTS, PAGE_EVENTS, TIMER_EVENTS, WAIT_EVENTS,
    WORK_EVENTS,
};
use bursar_watch::format::{EventFormat, Location};
use bursar_watch::page::PageLayout;
use bursar_watch::symbols::Symbols;

use crate::common::{parts, text};

/// A format file, a header of pages, addresses of functions, and a page.
pub(super) fn run(input: &[u8]) {
    let [format, layout, symbols, page] = parts(input);
    let symbols = Symbols::parse(text(symbols).unwrap_or_default());
    assert!(symbols.zone_lockers.iter().all(|(from, to)| from < to));
    let mut decoder = Decoder::default();
    if let Some(format) = text(format).and_then(|it| EventFormat::parse(it).ok()) {
        assert_eq!(EventFormat::parse(&print(&format)), Ok(format.clone()));
        let wanted = (WORK_EVENTS.iter().chain(&TIMER_EVENTS).chain(&FLUSH_EVENTS))
            .chain(PAGE_EVENTS.iter().chain(&CONTEXT_EVENTS))
            .chain(WAIT_EVENTS.iter().chain(&HOLD_EVENTS));
        for wanted in wanted.filter(|it| it.name == format.name) {
            let _ = decoder.learn(wanted, &format);
        }
        if format.name == "kernel_stack" {
            decoder.learn_stack(&format, symbols.zone_lockers);
        }
        for field in &format.fields {
            let _ = (field.number(page), field.bytes(page));
        }
        let _ = decoder.decode(0, 0, page);
    }
    if let Some(layout) = text(layout).and_then(|it| PageLayout::parse(it).ok()) {
        let mut recorded = 0;
        let summary = layout.decode(page, |time_ns, record| {
            recorded += record.len();
            if let Some(event) = decoder.decode(time_ns, 7, record) {
                assert_eq!((event.time_ns, event.cpu), (time_ns, 7));
            }
        });
        assert!(recorded + summary.undecoded <= page.len());
    }
}

fn print(format: &EventFormat) -> String {
    let mut text = format!("name: {}\nID: {}\nformat:\n", format.name, format.id);
    for field in &format.fields {
        let kind = match field.location {
            Location::Inline => "x",
            Location::Data => "__data_loc x",
            Location::Relative => "__rel_loc x",
        };
        let signed = u8::from(field.signed);
        let _ = writeln!(
            text,
            "\tfield:{kind} {};\toffset:{};\tsize:{};\tsigned:{signed};",
            field.name, field.offset, field.size
        );
    }
    text
}
