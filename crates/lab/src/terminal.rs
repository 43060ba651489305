//! The terminal: draws the screen and reads keys.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use parking_lot::Mutex;
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{Clear, ClearType};
use tokio::sync::watch;
use zonewise_telemetry::shutdown::Shutdown;

use crate::board::Board;
use crate::runner::{Controls, Runner};
use crate::screen::{draw, monochrome};
use crate::view::View;

/// How long to wait for a key before the screen is drawn again.
const FRAME: Duration = Duration::from_millis(100);

/// What a key means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    Quit,
    Next,
    Pause,
    Up,
    Down,
    Help,
}

/// Draws a run until the user quits. The terminal is restored afterwards, also after a panic.
///
/// # Errors
/// If the terminal cannot be drawn on.
pub(crate) fn show(
    runner: &Runner,
    quit: Shutdown,
) -> std::io::Result<std::thread::JoinHandle<()>> {
    let mut terminal = ratatui::try_init()?;
    // Not every terminal hands out an empty screen, and not every one says where its cursor is.
    execute!(std::io::stdout(), Clear(ClearType::All))?;
    let (views, controls, board) = (runner.views(), runner.controls(), runner.board());
    Ok(std::thread::spawn(move || {
        let result = watch_and_draw(&mut terminal, &views, &controls, &board, &quit);
        ratatui::restore();
        if let Err(error) = result {
            tracing::error!(%error, "the terminal is gone");
        }
        quit.trigger();
    }))
}

fn watch_and_draw(
    terminal: &mut DefaultTerminal,
    views: &watch::Receiver<View>,
    controls: &Arc<Controls>,
    board: &Arc<Mutex<Board>>,
    quit: &Shutdown,
) -> std::io::Result<()> {
    let colour = std::env::var_os("NO_COLOR").is_none_or(|set| set.is_empty());
    let mut help = false;
    while !quit.is_down() {
        let mut view = views.borrow().clone();
        view.help = help;
        terminal.draw(|frame| {
            draw(frame, &view);
            if !colour {
                monochrome(frame.buffer_mut());
            }
        })?;
        if !event::poll(FRAME)? {
            continue;
        }
        let Event::Key(key) = event::read()? else { continue };
        match action(key) {
            // The key that leaves a page first leaves the help.
            Some(Action::Quit) if help && key.code == KeyCode::Esc => help = false,
            Some(Action::Quit) => return Ok(()),
            Some(Action::Next) => controls.next.store(true, Ordering::Relaxed),
            Some(Action::Pause) => drop(controls.paused.fetch_xor(true, Ordering::Relaxed)),
            Some(Action::Up) => board.lock().select(-1),
            Some(Action::Down) => board.lock().select(1),
            Some(Action::Help) => help = !help,
            None => {}
        }
    }
    Ok(())
}

fn action(key: KeyEvent) -> Option<Action> {
    if key.kind == KeyEventKind::Release {
        return None;
    }
    match key.code {
        KeyCode::Char('c' | 'd') if key.modifiers.contains(KeyModifiers::CONTROL) => {
            Some(Action::Quit)
        }
        KeyCode::Char('q') | KeyCode::Esc => Some(Action::Quit),
        KeyCode::Char('n') | KeyCode::Right => Some(Action::Next),
        KeyCode::Char(' ' | 'p') => Some(Action::Pause),
        KeyCode::Char('?' | 'h') => Some(Action::Help),
        KeyCode::Up | KeyCode::Char('k') => Some(Action::Up),
        KeyCode::Down | KeyCode::Char('j') => Some(Action::Down),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_wishes() {
        let key = |code, modifiers| action(KeyEvent::new(code, modifiers));
        let plain = KeyModifiers::NONE;
        assert_eq!(key(KeyCode::Char('q'), plain), Some(Action::Quit));
        assert_eq!(key(KeyCode::Char('c'), KeyModifiers::CONTROL), Some(Action::Quit));
        assert_eq!(key(KeyCode::Char('c'), plain), None);
        assert_eq!(key(KeyCode::Char('n'), plain), Some(Action::Next));
        assert_eq!(key(KeyCode::Char(' '), plain), Some(Action::Pause));
        assert_eq!(key(KeyCode::Down, plain), Some(Action::Down));
        assert_eq!(key(KeyCode::Char('?'), KeyModifiers::SHIFT), Some(Action::Help));
    }
}
