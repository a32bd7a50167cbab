//! `bursar top`: a server's groups, as they change.
//!
//! One thread asks the server, and the other draws and reads keys. So keys work while a server is slow or gone.

use std::io::{self, IsTerminal};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::Duration;

use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::{DefaultTerminal, Terminal};

use crate::args::Top;
use crate::client::Client;
use crate::document::Document;
use crate::model::Model;
use crate::screen::{self, Notes};
use crate::stat;
use bursar_term::failure::{Failure, INTERRUPTED};
use bursar_term::interruption;
use bursar_term::options::{Color, Global};

/// The longest wait for a key before the program looks at everything else.
const KEY_WAIT: Duration = Duration::from_millis(50);
/// Rows of a page.
const PAGE: isize = 10;

/// A look at the server, or why there is none.
type Look = Result<Document, String>;

/// End of the view.
enum Ended {
    Quit,
    /// By a signal, or by Ctrl-C, which is a key here.
    Interrupted,
}

pub fn top(top: &Top, global: &Global) -> Result<ExitCode, Failure> {
    if top.once {
        return stat::print(&top.target, global);
    }
    if global.format.is_some() || global.output.is_some() {
        return Err(Failure::usage(
            "-f and -o need --once: without it, the groups are shown on a terminal",
        ));
    }
    if !io::stdout().is_terminal() || !io::stdin().is_terminal() {
        return Err(Failure::usage(
            "this is no terminal: --once prints the groups once, and so does `bursar stat`",
        ));
    }
    let client = Client::of(&top.target)?;
    // A wrong path or socket is told before the screen is taken.
    let first = client.tree()?.0;
    let unwanted = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let has_color = match global.color {
        Color::Always => true,
        Color::Never => false,
        Color::Auto => !unwanted,
    };
    let (wanted, wants) = mpsc::channel();
    let (found, looks) = mpsc::channel();
    let every = top.every;
    thread::spawn(move || ask(&client, every, &wants, &found));
    let mut view = View {
        model: Model::default(),
        notes: Notes {
            has_color,
            ..Notes::default()
        },
        is_signalled: Arc::default(),
    };
    view.model.update(first);
    // Relaxed: nothing else is passed with it.
    let signalled = Arc::clone(&view.is_signalled);
    interruption::catch(move || !signalled.swap(true, Ordering::Relaxed))?;
    // Restores the terminal at a panic, too.
    let mut terminal = ratatui::try_init()
        .map_err(|error| Failure::unavailable(format!("cannot use the terminal: {error}")))?;
    let ended = view.run(&mut terminal, &looks, &wanted);
    ratatui::restore();
    // Shows the cursor again.
    drop(terminal);
    match ended {
        Ok(Ended::Quit) => Ok(ExitCode::SUCCESS),
        Ok(Ended::Interrupted) => Ok(ExitCode::from(INTERRUPTED)),
        Err(error) => Err(Failure::unavailable(format!(
            "the terminal is gone: {error}"
        ))),
    }
}

/// Asks the server again and again, until nobody looks: a slow server less often. A message in `wants` says whether to go on or to pause.
fn ask(client: &Client, every: Duration, wants: &Receiver<bool>, found: &Sender<Look>) {
    let mut is_paused = false;
    loop {
        match wants.recv_timeout(every) {
            Ok(paused) => is_paused = paused,
            Err(mpsc::RecvTimeoutError::Disconnected) => return,
            Err(mpsc::RecvTimeoutError::Timeout) if is_paused => {}
            Err(mpsc::RecvTimeoutError::Timeout) => {
                let look = client.tree().map(|(document, _)| document);
                let look = look.map_err(|failure| failure.message().to_owned());
                if found.send(look).is_err() {
                    return;
                }
            }
        }
    }
}

/// The model and what is told besides.
struct View {
    model: Model,
    notes: Notes,
    /// Whether SIGINT or SIGTERM has come. The view ends as by Ctrl-C, so that the terminal is restored.
    is_signalled: Arc<AtomicBool>,
}

impl View {
    fn run(
        &mut self,
        terminal: &mut DefaultTerminal,
        looks: &Receiver<Look>,
        wanted: &Sender<bool>,
    ) -> io::Result<Ended> {
        self.draw(terminal)?;
        loop {
            let mut is_changed = false;
            while let Ok(look) = looks.try_recv() {
                self.take(look);
                is_changed = true;
            }
            // Relaxed: see where it is set.
            if self.is_signalled.load(Ordering::Relaxed) {
                return Ok(Ended::Interrupted);
            }
            if event::poll(KEY_WAIT)? {
                match event::read()? {
                    Event::Key(key) if key.kind != KeyEventKind::Release => {
                        let was_paused = self.notes.is_paused;
                        if let Some(ended) = self.press(key) {
                            return Ok(ended);
                        }
                        if was_paused != self.notes.is_paused {
                            // The other thread ends only with this one.
                            let _ = wanted.send(self.notes.is_paused);
                        }
                        is_changed = true;
                    }
                    Event::Resize(..) => is_changed = true,
                    _ => {}
                }
            }
            if is_changed {
                self.draw(terminal)?;
            }
        }
    }

    fn draw<B: ratatui::backend::Backend>(
        &self,
        terminal: &mut Terminal<B>,
    ) -> Result<(), B::Error> {
        terminal.draw(|frame| screen::draw(frame, &self.model, &self.notes))?;
        Ok(())
    }

    /// Takes a look. A server that is gone leaves the last one on the screen.
    fn take(&mut self, look: Look) {
        match look {
            Ok(document) => {
                self.notes.trouble = None;
                self.model.update(document);
            }
            Err(trouble) => self.notes.trouble = Some(trouble),
        }
    }

    /// Does what a key asks for.
    fn press(&mut self, key: KeyEvent) -> Option<Ended> {
        let (model, notes) = (&mut self.model, &mut self.notes);
        if key.modifiers.contains(KeyModifiers::CONTROL) && key.code == KeyCode::Char('c') {
            return Some(Ended::Interrupted);
        }
        if notes.is_typing {
            let mut filter = model.filter().to_owned();
            match key.code {
                KeyCode::Char(character) => filter.push(character),
                KeyCode::Backspace => drop(filter.pop()),
                KeyCode::Enter => notes.is_typing = false,
                KeyCode::Esc => {
                    notes.is_typing = false;
                    filter.clear();
                }
                _ => {}
            }
            model.set_filter(filter);
            return None;
        }
        match key.code {
            KeyCode::Char('q') => return Some(Ended::Quit),
            KeyCode::Up | KeyCode::Char('k') => model.select(-1),
            KeyCode::Down | KeyCode::Char('j') => model.select(1),
            KeyCode::PageUp => model.select(-PAGE),
            KeyCode::PageDown => model.select(PAGE),
            KeyCode::Home => model.select(isize::MIN),
            KeyCode::End => model.select(isize::MAX),
            KeyCode::Left => model.fold(true),
            KeyCode::Right => model.fold(false),
            KeyCode::Enter => {
                let is_folded = model
                    .rows()
                    .get(model.selected())
                    .is_some_and(|row| row.is_folded);
                model.fold(!is_folded);
            }
            KeyCode::Char('s') => model.sort_by_next(),
            KeyCode::Char('/') => notes.is_typing = true,
            KeyCode::Esc => model.set_filter(String::new()),
            KeyCode::Char(' ') => notes.is_paused = !notes.is_paused,
            _ => {}
        }
        None
    }
}
