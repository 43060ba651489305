//! A real browser: Chromium without a window, driven by its own protocol over a pipe.
//!
//! ```text
//!  test ─► Tab: click, press, type, evaluate ─► pipe ─► Chromium ─► page ─► server under test
//!            ▲                                                       │
//!            └──────── what the page says: values, errors ◄──────────┘
//! ```
//!
//! The protocol is <https://chromedevtools.github.io/devtools-protocol/>: JSON, with a zero byte after each message.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use base64::Engine;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::programs::installed;

/// Longer than anything takes, even on a busy machine.
const TIMEOUT: Duration = Duration::from_secs(120);
const POLL: Duration = Duration::from_millis(30);

/// The names that distributions give it.
const NAMES: [&str; 3] = ["chromium", "chromium-browser", "google-chrome"];

/// A running browser with one tab. It ends with this value, and with the process of the test.
pub struct Tab {
    browser: Child,
    input: ChildStdin,
    messages: Receiver<Value>,
    session: String,
    next: u64,
    complaints: Arc<Mutex<Vec<String>>>,
    _home: TempDir,
}

/// A key of the keyboard.
#[derive(Clone, Copy, Debug)]
pub struct Keystroke {
    key: &'static str,
    code: &'static str,
    number: u32,
    text: &'static str,
}

impl Keystroke {
    /// Tab.
    pub const TAB: Self = Self { key: "Tab", code: "Tab", number: 9, text: "" };
    /// Enter.
    pub const ENTER: Self = Self { key: "Enter", code: "Enter", number: 13, text: "\r" };
    /// Escape.
    pub const ESCAPE: Self = Self { key: "Escape", code: "Escape", number: 27, text: "" };
    /// Arrow to the right.
    pub const RIGHT: Self = Self { key: "ArrowRight", code: "ArrowRight", number: 39, text: "" };
    /// Arrow to the left.
    pub const LEFT: Self = Self { key: "ArrowLeft", code: "ArrowLeft", number: 37, text: "" };
    /// Arrow down.
    pub const DOWN: Self = Self { key: "ArrowDown", code: "ArrowDown", number: 40, text: "" };
    /// End.
    pub const END: Self = Self { key: "End", code: "End", number: 35, text: "" };
    /// A slash.
    pub const SLASH: Self = Self { key: "/", code: "Slash", number: 191, text: "/" };
}

impl Tab {
    /// Starts a browser with an empty tab.
    ///
    /// # Errors
    /// If there is no Chromium, or it does not start.
    pub fn start() -> Result<Self> {
        let program = NAMES.iter().find_map(|name| installed(name).ok());
        let program =
            program.context("Chromium is needed: run scripts/setup tests, which installs it")?;
        let home = tempfile::tempdir()?;
        let mut browser = spawn(&program, home.path())?;
        let input = browser.stdin.take().context("no pipe to the browser")?;
        let output = browser.stdout.take().context("no pipe from the browser")?;
        let complaints = Arc::new(Mutex::new(Vec::new()));
        let (sender, messages) = channel();
        let heard = Arc::clone(&complaints);
        std::thread::spawn(move || {
            for message in BufReader::new(output).split(0).map_while(Result::ok) {
                let Ok(message) = serde_json::from_slice::<Value>(&message) else { continue };
                if message["id"].is_u64() {
                    if sender.send(message).is_err() {
                        return;
                    }
                } else if let Some(text) = complaint(&message) {
                    heard.lock().push(text);
                }
            }
        });
        let session = String::new();
        let mut tab = Self { browser, input, messages, session, next: 0, complaints, _home: home };
        tab.open_tab()?;
        Ok(tab)
    }

    fn open_tab(&mut self) -> Result<()> {
        let target = self.call("Target.createTarget", &json!({"url": "about:blank"}))?;
        let attach = json!({"targetId": target["targetId"], "flatten": true});
        let attached = self.call("Target.attachToTarget", &attach)?;
        self.session = attached["sessionId"].as_str().context("no session")?.to_owned();
        for domain in ["Page.enable", "Runtime.enable", "Log.enable"] {
            self.call(domain, &json!({}))?;
        }
        self.size(1280, 800)
    }

    /// Sends a command and waits for its answer.
    ///
    /// # Errors
    /// If the browser refuses it, or has ended.
    pub fn call(&mut self, method: &str, parameters: &Value) -> Result<Value> {
        self.next += 1;
        let mut message = json!({"id": self.next, "method": method, "params": parameters});
        if !self.session.is_empty() {
            message["sessionId"] = json!(self.session);
        }
        let mut bytes = message.to_string().into_bytes();
        bytes.push(0);
        self.input.write_all(&bytes).with_context(|| format!("{method}: the browser has ended"))?;
        loop {
            let answer = self.messages.recv_timeout(TIMEOUT);
            let answer =
                answer.with_context(|| format!("{method}: the browser does not answer"))?;
            if answer["id"] == self.next {
                if !answer["error"].is_null() {
                    bail!("{method}: {}", answer["error"]);
                }
                return Ok(answer["result"].clone());
            }
        }
    }

    /// Goes to an address, and waits until its files are loaded.
    ///
    /// # Errors
    /// If that fails.
    pub fn open(&mut self, url: &str) -> Result<()> {
        let answer = self.call("Page.navigate", &json!({"url": url}))?;
        if let Some(error) = answer["errorText"].as_str() {
            bail!("{url}: {error}");
        }
        self.until("document.readyState === 'complete'").map(drop)
    }

    /// Loads the page again.
    ///
    /// # Errors
    /// If that fails.
    pub fn reload(&mut self) -> Result<()> {
        self.evaluate("window.loadedBefore = true")?;
        self.call("Page.reload", &json!({}))?;
        self.until("!window.loadedBefore && document.readyState === 'complete'").map(drop)
    }

    /// The value of an expression in the page. Promises are waited for.
    ///
    /// # Errors
    /// If it throws.
    pub fn evaluate(&mut self, expression: &str) -> Result<Value> {
        let parameters =
            json!({"expression": expression, "returnByValue": true, "awaitPromise": true});
        let answer = self.call("Runtime.evaluate", &parameters)?;
        if !answer["exceptionDetails"].is_null() {
            let thrown = &answer["exceptionDetails"]["exception"]["description"];
            bail!("{expression}: {thrown}");
        }
        Ok(answer["result"]["value"].clone())
    }

    /// Waits until an expression is true (or anything but false, null, zero and empty), and returns its value.
    ///
    /// # Errors
    /// If it has not become so, with what the page shows.
    pub fn until(&mut self, expression: &str) -> Result<Value> {
        let deadline = Instant::now() + TIMEOUT;
        let asked = format!(
            "(() => {{ try {{ return {expression} }} catch (error) {{ return null }} }})()"
        );
        loop {
            // While a page is loaded, there may be no place to evaluate in.
            let value = self.evaluate(&asked).unwrap_or_default();
            if is_true(&value) {
                return Ok(value);
            }
            if Instant::now() > deadline {
                let shown =
                    self.evaluate("document.body.innerText.slice(0, 4000)").unwrap_or_default();
                bail!(
                    "not within {} s: {expression}\n{shown}\n{:?}",
                    TIMEOUT.as_secs(),
                    self.complaints()
                );
            }
            std::thread::sleep(POLL);
        }
    }

    /// Waits until the first element that matches a selector has this text in it.
    ///
    /// # Errors
    /// If it has not.
    pub fn until_text(&mut self, selector: &str, text: &str) -> Result<()> {
        let (selector, text) = (json!(selector), json!(text));
        self.until(&format!("document.querySelector({selector})?.innerText.includes({text})"))
            .map(drop)
    }

    /// The text of the first element that matches a selector.
    ///
    /// # Errors
    /// If there is none.
    pub fn text(&mut self, selector: &str) -> Result<String> {
        self.until(&format!("document.querySelector({}) !== null", json!(selector)))?;
        let found =
            self.evaluate(&format!("document.querySelector({}).innerText", json!(selector)))?;
        found.as_str().map(str::to_owned).with_context(|| format!("{selector} has no text"))
    }

    /// Clicks on the first element that matches a selector, with the mouse.
    ///
    /// # Errors
    /// If there is none that can be seen.
    pub fn click(&mut self, selector: &str) -> Result<()> {
        let (x, y) = self.place(selector)?;
        self.mouse("mouseMoved", x, y, false)?;
        self.mouse("mousePressed", x, y, true)?;
        self.mouse("mouseReleased", x, y, false)
    }

    /// Drags the knob of a slider to a part of its length.
    ///
    /// # Errors
    /// If there is no such slider.
    pub fn drag(&mut self, selector: &str, part: f64) -> Result<()> {
        self.place(selector)?;
        let expression = format!(
            "(() => {{ const s = document.querySelector({}); const b = s.getBoundingClientRect(); \
             const now = (s.value - s.min) / (s.max - s.min); \
             return [b.x + 8 + now * (b.width - 16), b.x + 8 + {part} * (b.width - 16), b.y + b.height / 2] }})()",
            json!(selector)
        );
        let at = self.evaluate(&expression)?;
        let at = |index: usize| at[index].as_f64().context("no place");
        let (from, to, y) = (at(0)?, at(1)?, at(2)?);
        self.mouse("mouseMoved", from, y, false)?;
        self.mouse("mousePressed", from, y, true)?;
        for step in 1..=10 {
            self.mouse("mouseMoved", from + (to - from) * f64::from(step) / 10.0, y, true)?;
        }
        self.mouse("mouseReleased", to, y, false)
    }

    /// The middle of an element, scrolled to where it can be seen, once it has stopped moving: what is loaded beside it may
    /// push it away.
    fn place(&mut self, selector: &str) -> Result<(f64, f64)> {
        let selector = json!(selector);
        let shown =
            format!("document.querySelector({selector})?.getBoundingClientRect().width > 0");
        let expression = format!(
            "(() => {{ const e = document.querySelector({selector}); e.scrollIntoView({{block: 'center'}}); \
             const b = e.getBoundingClientRect(); return [b.x + b.width / 2, b.y + b.height / 2] }})()"
        );
        let mut before = Value::Null;
        loop {
            self.until(&shown)?;
            let at = self.evaluate(&expression)?;
            if at == before {
                let coordinate = |index: usize| at[index].as_f64().context("no place");
                return Ok((coordinate(0)?, coordinate(1)?));
            }
            before = at;
            std::thread::sleep(POLL);
        }
    }

    /// Something that happens to the mouse; `held` says whether its button is down after it.
    fn mouse(&mut self, kind: &str, x: f64, y: f64, held: bool) -> Result<()> {
        let button = if kind == "mouseMoved" && !held { "none" } else { "left" };
        let parameters = json!({
            "type": kind, "x": x, "y": y, "button": button, "buttons": u8::from(held), "clickCount": 1,
        });
        self.call("Input.dispatchMouseEvent", &parameters).map(drop)
    }

    /// Presses a key.
    ///
    /// # Errors
    /// If the browser has ended.
    pub fn press(&mut self, key: Keystroke) -> Result<()> {
        let Keystroke { key, code, number, text } = key;
        let mut parameters = json!({
            "type": if text.is_empty() { "rawKeyDown" } else { "keyDown" },
            "key": key, "code": code, "windowsVirtualKeyCode": number,
        });
        if !text.is_empty() {
            parameters["text"] = json!(text);
        }
        self.call("Input.dispatchKeyEvent", &parameters)?;
        parameters["type"] = json!("keyUp");
        self.call("Input.dispatchKeyEvent", &parameters).map(drop)
    }

    /// Types a text into what has the focus.
    ///
    /// # Errors
    /// If the browser has ended.
    pub fn write(&mut self, text: &str) -> Result<()> {
        self.call("Input.insertText", &json!({"text": text})).map(drop)
    }

    /// Gives the window a size.
    ///
    /// # Errors
    /// If the browser has ended.
    pub fn size(&mut self, width: u32, height: u32) -> Result<()> {
        let parameters = json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600});
        self.call("Emulation.setDeviceMetricsOverride", &parameters).map(drop)
    }

    /// Lets the page think that the user likes dark or light pages.
    ///
    /// # Errors
    /// If the browser has ended.
    pub fn dark(&mut self, dark: bool) -> Result<()> {
        let value = if dark { "dark" } else { "light" };
        let features = json!({"features": [{"name": "prefers-color-scheme", "value": value}]});
        self.call("Emulation.setEmulatedMedia", &features).map(drop)
    }

    /// A picture of what is seen, as a PNG file.
    ///
    /// # Errors
    /// If the browser has ended.
    pub fn picture(&mut self) -> Result<Vec<u8>> {
        let answer = self.call("Page.captureScreenshot", &json!({"format": "png"}))?;
        let data = answer["data"].as_str().context("no picture")?;
        Ok(base64::engine::general_purpose::STANDARD.decode(data)?)
    }

    /// Where files are saved that the page offers.
    ///
    /// # Errors
    /// If the browser has ended.
    pub fn save_files_in(&mut self, folder: &Path) -> Result<()> {
        let parameters = json!({"behavior": "allow", "downloadPath": folder});
        let session = std::mem::take(&mut self.session);
        let answer = self.call("Browser.setDownloadBehavior", &parameters);
        self.session = session;
        answer.map(drop)
    }

    /// Errors of scripts, of the policy and of the network that the page has met so far.
    pub fn complaints(&self) -> Vec<String> {
        self.complaints.lock().clone()
    }
}

impl Drop for Tab {
    fn drop(&mut self) {
        let _ = self.browser.kill();
        let _ = self.browser.wait();
    }
}

/// Starts the browser. It ends when its pipe does, so that it does not outlive a test that is killed.
fn spawn(program: &Path, home: &Path) -> Result<Child> {
    let program: PathBuf = program.to_owned();
    Command::new("sh")
        // It speaks its protocol on the descriptors 3 and 4.
        .args(["-c", "exec \"$@\" 3<&0 4>&1 </dev/null >/dev/null 2>\"$HOME/log\"", "browser"])
        .arg(&program)
        .args([
            "--headless=new",
            "--remote-debugging-pipe",
            "--no-sandbox",
            "--no-first-run",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--disable-background-networking",
            "--disable-component-update",
            "--hide-scrollbars",
            "--force-color-profile=srgb",
            "--ignore-certificate-errors",
        ])
        .arg(format!("--user-data-dir={}", home.join("profile").display()))
        .env("HOME", home)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot start {}", program.display()))
}

fn is_true(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Bool(value) => *value,
        Value::Number(number) => number.as_f64() != Some(0.0),
        Value::String(text) => !text.is_empty(),
        Value::Array(_) | Value::Object(_) => true,
    }
}

/// What a message of the browser complains about.
fn complaint(message: &Value) -> Option<String> {
    let parameters = &message["params"];
    match message["method"].as_str()? {
        "Runtime.exceptionThrown" => Some(format!(
            "exception: {}",
            parameters["exceptionDetails"]["exception"]["description"]
        )),
        "Log.entryAdded" if parameters["entry"]["level"] == "error" => {
            Some(format!("{} {}", parameters["entry"]["text"], parameters["entry"]["url"]))
        }
        "Runtime.consoleAPICalled"
            if ["error", "warning"].contains(&parameters["type"].as_str()?) =>
        {
            Some(format!("console: {}", parameters["args"]))
        }
        _ => None,
    }
}
