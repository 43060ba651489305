//! The terminal: draws what there is to see, hears keys.

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

/// How long a key is waited for between two pictures.
const FRAME: Duration = Duration::from_millis(100);

/// What a key means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wish {
    Quit,
    Next,
    Pause,
    Up,
    Down,
}

/// Shows a run until somebody leaves. The terminal is as it was afterwards, also after a panic.
///
/// # Errors
/// If this is no terminal that can be drawn on.
pub fn show(runner: &Runner, quit: Shutdown) -> std::io::Result<std::thread::JoinHandle<()>> {
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
    while !quit.is_down() {
        let view = views.borrow().clone();
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
        match wish(key) {
            Some(Wish::Quit) => return Ok(()),
            Some(Wish::Next) => controls.next.store(true, Ordering::Relaxed),
            Some(Wish::Pause) => drop(controls.paused.fetch_xor(true, Ordering::Relaxed)),
            Some(Wish::Up) => select(board, |now, _| now.saturating_sub(1)),
            Some(Wish::Down) => select(board, |now, last| (now + 1).min(last)),
            None => {}
        }
    }
    Ok(())
}

fn select(board: &Mutex<Board>, to: impl Fn(usize, usize) -> usize) {
    let mut board = board.lock();
    let last = board.services().saturating_sub(1);
    board.selected = to(board.selected, last);
}

fn wish(key: KeyEvent) -> Option<Wish> {
    if key.kind == KeyEventKind::Release {
        return None;
    }
    match key.code {
        KeyCode::Char('c' | 'd') if key.modifiers.contains(KeyModifiers::CONTROL) => {
            Some(Wish::Quit)
        }
        KeyCode::Char('q') | KeyCode::Esc => Some(Wish::Quit),
        KeyCode::Char('n') | KeyCode::Right => Some(Wish::Next),
        KeyCode::Char(' ' | 'p') => Some(Wish::Pause),
        KeyCode::Up | KeyCode::Char('k') => Some(Wish::Up),
        KeyCode::Down | KeyCode::Char('j') => Some(Wish::Down),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_wishes() {
        let key = |code, modifiers| wish(KeyEvent::new(code, modifiers));
        let plain = KeyModifiers::NONE;
        assert_eq!(key(KeyCode::Char('q'), plain), Some(Wish::Quit));
        assert_eq!(key(KeyCode::Char('c'), KeyModifiers::CONTROL), Some(Wish::Quit));
        assert_eq!(key(KeyCode::Char('c'), plain), None);
        assert_eq!(key(KeyCode::Char('n'), plain), Some(Wish::Next));
        assert_eq!(key(KeyCode::Char(' '), plain), Some(Wish::Pause));
        assert_eq!(key(KeyCode::Down, plain), Some(Wish::Down));
    }
}
