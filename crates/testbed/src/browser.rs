//! A real browser: Chromium without a window, driven by its own protocol over a pipe.
//!
//! ```text
//!  test ─► Tab: click, press, type, evaluate ─► pipe ─► Chromium ─► page ─► server under test
//!            ▲                                                       │
//!            └──────── what the page says: values, errors ◄──────────┘
//! ```
//!
//! The protocol is <https://chromedevtools.github.io/devtools-protocol/>: JSON, with a zero byte after each message.
//!
//! All tabs of a test process are in one browser, since to start one takes longer than most tests need it. Each tab has a
//! browser context of its own, as a private window has: storage, cookies and downloads are not shared.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use base64::Engine;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::process::Remover;
use crate::programs::installed;

/// Longer than anything takes, even on a busy machine.
const TIMEOUT: Duration = Duration::from_secs(120);
const POLL: Duration = Duration::from_millis(30);

/// The names that distributions give it.
const NAMES: [&str; 3] = ["chromium", "chromium-browser", "google-chrome"];

/// A tab of the browser. It is closed with this value, and the browser ends with the process of the test.
pub struct Tab {
    browser: Arc<Browser>,
    /// Its browser context.
    context: String,
    session: String,
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
    /// Opens an empty tab, in a browser that is started if none runs.
    ///
    /// # Errors
    /// If there is no Chromium, or it does not start.
    pub fn start() -> Result<Self> {
        let browser = Browser::running()?;
        let call = |method: &str, parameters: Value| browser.call("", method, &parameters);
        let context = call("Target.createBrowserContext", json!({"disposeOnDetach": true}))?;
        let context = text(&context, "browserContextId")?;
        let empty = json!({"url": "about:blank", "browserContextId": context});
        let target = call("Target.createTarget", empty)?;
        let attach = json!({"targetId": target["targetId"], "flatten": true});
        let session = text(&call("Target.attachToTarget", attach)?, "sessionId")?;
        browser.complaints.lock().insert(session.clone(), Vec::new());
        let mut tab = Self { browser, context, session };
        for domain in ["Page.enable", "Runtime.enable", "Log.enable"] {
            tab.call(domain, &json!({}))?;
        }
        // A tab that is not the last one opened is as alive as if it were.
        tab.call("Emulation.setFocusEmulationEnabled", &json!({"enabled": true}))?;
        tab.size(1280, 800)?;
        Ok(tab)
    }

    /// Sends a command and waits for its answer.
    ///
    /// # Errors
    /// If the browser refuses it, or has ended.
    pub fn call(&mut self, method: &str, parameters: &Value) -> Result<Value> {
        self.browser.call(&self.session, method, parameters)
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

    /// Allows the page what a user would be asked for.
    ///
    /// # Errors
    /// If the browser has ended.
    pub fn grant(&mut self, permissions: &[&str]) -> Result<()> {
        let parameters = json!({"permissions": permissions, "browserContextId": self.context});
        self.browser.call("", "Browser.grantPermissions", &parameters).map(drop)
    }

    /// Where files are saved that the page offers.
    ///
    /// # Errors
    /// If the browser has ended.
    pub fn save_files_in(&mut self, folder: &Path) -> Result<()> {
        let parameters = json!({
            "behavior": "allow", "downloadPath": folder, "browserContextId": self.context,
        });
        self.browser.call("", "Browser.setDownloadBehavior", &parameters).map(drop)
    }

    /// Errors of scripts, of the policy and of the network that the page has met so far.
    pub fn complaints(&self) -> Vec<String> {
        self.browser.complaints.lock().get(&self.session).cloned().unwrap_or_default()
    }
}

impl Drop for Tab {
    fn drop(&mut self) {
        let context = json!({"browserContextId": self.context});
        let _ = self.browser.call("", "Target.disposeBrowserContext", &context);
        self.browser.complaints.lock().remove(&self.session);
    }
}

/// The browser of this process.
static BROWSER: Mutex<Option<Arc<Browser>>> = Mutex::new(None);

/// A running browser.
struct Browser {
    process: Mutex<Child>,
    input: Mutex<ChildStdin>,
    asked: Mutex<Asked>,
    /// What the tabs have complained about, by session.
    complaints: Mutex<BTreeMap<String, Vec<String>>>,
    _home: TempDir,
    /// A static is not dropped: the home is removed when this process ends.
    _remover: Remover,
}

/// Commands without an answer.
#[derive(Default)]
struct Asked {
    /// The number of the last command.
    last: u64,
    /// Where answers go, by the number of the command.
    waiting: BTreeMap<u64, Sender<Value>>,
}

impl Browser {
    /// The browser of this process; starts it if there is none, or if it has ended.
    fn running() -> Result<Arc<Self>> {
        let mut browser = BROWSER.lock();
        if let Some(running) = &*browser
            && running.process.lock().try_wait()?.is_none()
        {
            return Ok(Arc::clone(running));
        }
        let started = Self::start()?;
        *browser = Some(Arc::clone(&started));
        Ok(started)
    }

    fn start() -> Result<Arc<Self>> {
        let program = NAMES.iter().find_map(|name| installed(name).ok());
        let program =
            program.context("Chromium is needed: run scripts/setup tests, which installs it")?;
        let home = tempfile::tempdir()?;
        let remover = Remover::of(home.path())?;
        let mut process = spawn(&program, home.path())?;
        let input = process.stdin.take().context("no pipe to the browser")?;
        let output = process.stdout.take().context("no pipe from the browser")?;
        let browser = Arc::new(Self {
            process: Mutex::new(process),
            input: Mutex::new(input),
            asked: Mutex::default(),
            complaints: Mutex::default(),
            _home: home,
            _remover: remover,
        });
        let listening = Arc::clone(&browser);
        std::thread::spawn(move || listening.listen(output));
        Ok(browser)
    }

    /// Hands on what the browser says, until it ends.
    fn listen(&self, output: impl Read) {
        for message in BufReader::new(output).split(0).map_while(Result::ok) {
            let Ok(message) = serde_json::from_slice::<Value>(&message) else { continue };
            if let Some(number) = message["id"].as_u64() {
                if let Some(waiting) = self.asked.lock().waiting.remove(&number) {
                    let _ = waiting.send(message);
                }
            } else if let Some(text) = complaint(&message) {
                let session = message["sessionId"].as_str().unwrap_or_default();
                if let Some(heard) = self.complaints.lock().get_mut(session) {
                    heard.push(text);
                }
            }
        }
        // Whoever still waits is told that nothing will come.
        self.asked.lock().waiting.clear();
    }

    /// Sends a command of a session, or of the browser if that is empty, and waits for its answer.
    fn call(&self, session: &str, method: &str, parameters: &Value) -> Result<Value> {
        let (sender, answers) = channel();
        let number = {
            let mut asked = self.asked.lock();
            asked.last += 1;
            let number = asked.last;
            asked.waiting.insert(number, sender);
            number
        };
        let mut message = json!({"id": number, "method": method, "params": parameters});
        if !session.is_empty() {
            message["sessionId"] = json!(session);
        }
        let mut bytes = message.to_string().into_bytes();
        bytes.push(0);
        let written = self.input.lock().write_all(&bytes);
        written.with_context(|| format!("{method}: the browser has ended"))?;
        let answer = match answers.recv_timeout(TIMEOUT) {
            Ok(answer) => answer,
            Err(RecvTimeoutError::Timeout) => bail!("{method}: the browser does not answer"),
            Err(RecvTimeoutError::Disconnected) => bail!("{method}: the browser has ended"),
        };
        if !answer["error"].is_null() {
            bail!("{method}: {}", answer["error"]);
        }
        Ok(answer["result"].clone())
    }
}

/// A text of an answer.
fn text(answer: &Value, field: &str) -> Result<String> {
    answer[field].as_str().map(str::to_owned).with_context(|| format!("no {field} in {answer}"))
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
