//! What serves the page of `margay view`, and a real browser without a window for it, as far as one
//! is installed: Chromium, through the pipe of its DevTools.

use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

use crate::{command, stage};

/// `margay view`, which ends with the value.
pub struct View {
    child: Child,
    address: String,
}

impl View {
    /// Serves the page of a trace.
    ///
    /// # Panics
    /// When it does not start.
    pub fn of(trace: &Path) -> View {
        let mut child = Command::new(stage().join("bin/margay"))
            .arg("view")
            .arg(trace)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut address = String::new();
        BufReader::new(child.stdout.as_mut().unwrap())
            .read_line(&mut address)
            .unwrap();
        let address = address.trim().to_owned();
        View { child, address }
    }

    /// Where the page is, as the program prints it.
    pub fn address(&self) -> &str {
        &self.address
    }
}

impl Drop for View {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A page in a browser, which ends with the value.
pub struct Browser {
    child: Child,
    to: File,
    from: BufReader<File>,
    session: Option<String>,
    number: u64,
    /// What the page's script has thrown.
    pub thrown: Vec<String>,
    _folder: tempfile::TempDir,
}

/// The browser's program: `MARGAY_TEST_BROWSER`, else a Chromium in `PATH`.
fn installed() -> Option<PathBuf> {
    if let Some(named) = std::env::var_os("MARGAY_TEST_BROWSER") {
        return Some(named.into());
    }
    let folders = std::env::var_os("PATH")?;
    ["chromium-headless-shell", "chromium", "google-chrome"]
        .into_iter()
        .flat_map(|name| std::env::split_paths(&folders).map(move |folder| folder.join(name)))
        .find(|path| path.is_file())
}

impl Browser {
    /// Starts one; none, with a note, where none is installed.
    ///
    /// # Panics
    /// When one is installed and cannot be used.
    pub fn start() -> Option<Browser> {
        let Some(program) = installed() else {
            eprintln!(
                "skipped: no browser; apt-get install chromium-headless-shell (300 MB), or set MARGAY_TEST_BROWSER"
            );
            return None;
        };
        let folder = crate::scratch();
        let pipes = ["in", "out"].map(|name| folder.path().join(name));
        crate::succeed(command("mkfifo", 10).args(&pipes));
        let script = "exec \"$0\" --headless --no-sandbox --disable-gpu --remote-debugging-pipe \
                      --window-size=1600,1000 --user-data-dir=\"$1/profile\" about:blank 3<\"$1/in\" 4>\"$1/out\"";
        let child = command("sh", 300)
            .args(["-c", script])
            .arg(program)
            .arg(folder.path())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("the browser is started");
        let to = OpenOptions::new().write(true).open(&pipes[0]);
        let from = File::open(&pipes[1]).expect("the browser answers");
        let mut browser = Browser {
            child,
            to: to.expect("the browser listens"),
            from: BufReader::new(from),
            session: None,
            number: 0,
            thrown: Vec::new(),
            _folder: folder,
        };
        let target = browser.ask("Target.createTarget", json!({ "url": "about:blank" }));
        let wanted = json!({ "targetId": target["targetId"], "flatten": true });
        let attached = browser.ask("Target.attachToTarget", wanted);
        browser.session = attached["sessionId"].as_str().map(str::to_owned);
        browser.ask("Runtime.enable", json!({}));
        browser.ask("Page.enable", json!({}));
        Some(browser)
    }

    /// Asks the browser for something, and waits for its answer.
    ///
    /// # Panics
    /// When it refuses or has ended.
    pub fn ask(&mut self, method: &str, params: Value) -> Value {
        self.number += 1;
        let mut message = json!({ "id": self.number, "method": method, "params": params });
        if let Some(session) = &self.session {
            message["sessionId"] = json!(session);
        }
        let bytes = [message.to_string().as_bytes(), b"\0"].concat();
        self.to.write_all(&bytes).expect("the browser listens");
        loop {
            let mut bytes = Vec::new();
            self.from
                .read_until(0, &mut bytes)
                .expect("the browser answers");
            assert_eq!(bytes.pop(), Some(0), "{method}: the browser has ended");
            let mut answer: Value = serde_json::from_slice(&bytes).expect("it speaks JSON");
            if answer["method"] == "Runtime.exceptionThrown" {
                self.thrown.push(answer["params"].to_string());
            }
            if answer["id"] == self.number {
                assert!(answer["error"].is_null(), "{method}: {answer}");
                return answer["result"].take();
            }
        }
    }

    /// Goes to a page.
    pub fn go(&mut self, address: &str) {
        self.ask("Page.navigate", json!({ "url": address }));
        self.until("document.body && document.body.dataset.ready === '1'");
    }

    /// The value of an expression in the page.
    ///
    /// # Panics
    /// When it throws.
    pub fn value(&mut self, expression: &str) -> Value {
        let params =
            json!({ "expression": expression, "returnByValue": true, "awaitPromise": true });
        let mut answer = self.ask("Runtime.evaluate", params);
        let thrown = &answer["exceptionDetails"];
        assert!(thrown.is_null(), "{expression}: {thrown}");
        answer["result"]["value"].take()
    }

    /// The text of an element of the page.
    pub fn text(&mut self, id: &str) -> String {
        let text = self.value(&format!("document.getElementById('{id}').innerText"));
        text.as_str().unwrap_or_default().to_owned()
    }

    /// Waits until an expression is true in the page.
    ///
    /// # Panics
    /// When it is not after a minute.
    pub fn until(&mut self, expression: &str) {
        let is_true = self.value(&format!(
            "new Promise(done => {{ const began = performance.now(), look = () => {{ if ({expression}) done(true); \
             else if (performance.now() - began > 60000) done(false); else setTimeout(look, 10); }}; look(); }})"
        ));
        let text = "document.body ? document.body.innerText.slice(0, 2000) : ''";
        if is_true != true {
            panic!(
                "{expression} is not true after a minute: {}",
                self.value(text)
            );
        }
    }

    /// Presses a key, and waits until the page has been drawn.
    pub fn key(&mut self, key: &str) {
        for kind in ["keyDown", "keyUp"] {
            let mut params = json!({ "type": kind, "key": key });
            if key.chars().count() == 1 && kind == "keyDown" {
                params["text"] = json!(key);
            } else if key == "Enter" && kind == "keyDown" {
                params["text"] = json!("\r");
            }
            self.ask("Input.dispatchKeyEvent", params);
        }
        self.drawn();
    }

    /// Presses the mouse's button somewhere on an element, counted from its corner.
    pub fn click(&mut self, id: &str, x: f64, y: f64) {
        let place = self.value(&format!(
            "(() => {{ const box = document.getElementById('{id}').getBoundingClientRect(); return [box.left, box.top]; }})()"
        ));
        let at = |index: usize| place[index].as_f64().unwrap_or(0.0);
        for kind in ["mousePressed", "mouseReleased"] {
            let params = json!({ "type": kind, "x": at(0) + x, "y": at(1) + y, "button": "left", "clickCount": 1 });
            self.ask("Input.dispatchMouseEvent", params);
        }
        self.drawn();
    }

    fn drawn(&mut self) {
        self.value("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(1))))");
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self
            .to
            .write_all(b"{\"id\":0,\"method\":\"Browser.close\"}\0");
        let _ = self.child.wait();
    }
}
