//! Chromium by its DevTools protocol: messages of JSON over a pipe, each ended by a zero byte.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use nix::sys::signal::{Signal, killpg};
use nix::sys::wait::{Id, WaitPidFlag, waitid};
use nix::unistd::Pid;
use serde_json::{Value, json};

use crate::{Doing, Error, Result};

/// Gives Chromium the pipe as descriptors 3 and 4, where it expects it.
const START: &str = r#"exec "$0" "$@" 3<&0 4>&1 </dev/null >/dev/null"#;

/// Settings of Chromium: nothing that it does by itself is a part of what is measured.
const SETTINGS: &[&str] = &[
    "--headless=new",
    "--remote-debugging-pipe",
    "--no-first-run",
    "--no-default-browser-check",
    "--no-service-autorun",
    // a run is root's, for which Chromium's sandbox does not start
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-breakpad",
    "--disable-client-side-phishing-detection",
    "--disable-component-extensions-with-background-pages",
    "--disable-component-update",
    "--disable-default-apps",
    "--disable-domain-reliability",
    "--disable-extensions",
    "--disable-sync",
    "--disable-features=OptimizationHints,MediaRouter,Translate,DialMediaRouteProvider,WebRtcHideLocalIpsWithMdns",
    "--metrics-recording-only",
    "--mute-audio",
    "--password-store=basic",
    "--use-mock-keychain",
    "--proxy-server=direct://",
    // the certificate is the run's own; the page pins that of WebTransport itself
    "--ignore-certificate-errors",
    // a tab that nobody looks at is as fast as another
    "--disable-background-timer-throttling",
    "--disable-backgrounding-occluded-windows",
    "--disable-renderer-backgrounding",
    "about:blank",
];

/// `<!doctype html><link rel=icon href=data:,>` in base64: a page that asks for nothing.
const EMPTY_PAGE: &str = "PCFkb2N0eXBlIGh0bWw+PGxpbmsgcmVsPWljb24gaHJlZj1kYXRhOiw+";

/// The most bytes of one message that the browser sends.
const MAX_MESSAGE: u64 = 4 << 20;

/// The longest path of a folder for temporary files in which Chromium can make its socket, whose
/// name has 46 bytes more: addresses of sockets have 108 (unix(7)).
const MAX_TEMPORARY: usize = 60;

/// A browser that runs. It ends when this is dropped.
pub(crate) struct Browser {
    process: Child,
    commands: Option<ChildStdin>,
    messages: BufReader<ChildStdout>,
    next: u64,
}

/// A page in it.
pub(crate) struct Page<'a> {
    browser: &'a mut Browser,
    session: String,
}

impl Browser {
    /// Starts it with a profile in this folder.
    pub(crate) fn start(chromium: &Path, profile: &Path) -> Result<Self> {
        let absolute = |path: &Path| {
            std::path::absolute(path).doing(|| format!("name {} from the root", path.display()))
        };
        let (chromium, profile) = (&absolute(chromium)?, &absolute(profile)?);
        let mut command = Command::new("sh");
        let temporary = std::env::temp_dir();
        if temporary.as_os_str().len() > MAX_TEMPORARY {
            command.current_dir(temporary).env("TMPDIR", "/proc/self/cwd");
        }
        let mut process = command
            .args(["-c", START])
            .arg(chromium)
            .arg(format!("--user-data-dir={}", profile.join("data").display()))
            .args(SETTINGS)
            .env("HOME", profile)
            .env("XDG_CONFIG_HOME", profile.join("config"))
            .env("XDG_CACHE_HOME", profile.join("cache"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            // one process group, which ends as a whole
            .process_group(0)
            .spawn()
            .doing(|| format!("start {}", chromium.display()))?;
        let pipe = process.stdin.take().zip(process.stdout.take());
        let (commands, messages) = pipe.ok_or_else(|| Error::Browser("has no pipe".to_owned()))?;
        let messages = BufReader::new(messages);
        Ok(Self { process, commands: Some(commands), messages, next: 0 })
    }

    /// Returns its name and version.
    pub(crate) fn version(&mut self) -> Result<String> {
        let version = self.call(None, "Browser.getVersion", &json!({}))?;
        Ok(version["product"].as_str().unwrap_or("unknown").replace('/', " "))
    }

    /// Makes a page.
    pub(crate) fn page(&mut self) -> Result<Page<'_>> {
        let made = self.call(None, "Target.createTarget", &json!({"url": "about:blank"}))?;
        let target = json!({"targetId": made["targetId"], "flatten": true});
        let attached = self.call(None, "Target.attachToTarget", &target)?;
        let session = attached["sessionId"].as_str().unwrap_or_default().to_owned();
        let mut page = Page { browser: self, session };
        page.send("Page.enable", &json!({}))?;
        Ok(page)
    }

    /// Lets pages of an origin know the addresses of this host, as those do that may use a camera.
    pub(crate) fn show_addresses(&mut self, origin: &str) -> Result<()> {
        let grant = json!({"origin": origin, "permissions": ["audioCapture", "videoCapture"]});
        self.call(None, "Browser.grantPermissions", &grant).map(drop)
    }

    /// Ends it in order, so that its files are complete.
    pub(crate) fn close(mut self) -> Result<()> {
        self.call(None, "Browser.close", &json!({}))?;
        self.end().doing(|| "wait for the browser".to_owned())
    }

    /// Waits for its first process, and kills those that it started and left: they would go on
    /// writing to the profile.
    fn end(&mut self) -> std::io::Result<()> {
        // it ends when its pipe does
        self.commands = None;
        let group = i32::try_from(self.process.id()).map_err(std::io::Error::other)?;
        // until it is reaped no other group has its number
        waitid(Id::Pid(Pid::from_raw(group)), WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT)?;
        let _ = killpg(Pid::from_raw(group), Signal::SIGKILL);
        self.process.wait().map(drop)
    }

    /// Sends a command, and returns its number.
    fn post(&mut self, session: Option<&str>, method: &str, parameters: &Value) -> Result<u64> {
        let id = self.next;
        self.next += 1;
        let mut command = json!({"id": id, "method": method, "params": parameters});
        if let Some(session) = session {
            command["sessionId"] = json!(session);
        }
        let pipe = self.commands.as_mut().ok_or_else(|| Error::Browser("has ended".to_owned()))?;
        let bytes = [command.to_string().as_bytes(), b"\0"].concat();
        let written = pipe.write_all(&bytes);
        written.map_err(|error| Error::Browser(format!("takes no commands: {error}")))?;
        Ok(id)
    }

    /// Sends a command and waits for its result.
    fn call(&mut self, session: Option<&str>, method: &str, parameters: &Value) -> Result<Value> {
        let id = self.post(session, method, parameters)?;
        loop {
            let mut message = self.receive()?;
            if message["id"] != json!(id) {
                continue;
            }
            if let Some(error) = message.get("error") {
                return Err(Error::Browser(format!("refuses {method}: {}", error["message"])));
            }
            return Ok(message["result"].take());
        }
    }

    /// Waits until an event of this name comes, and returns its parameters.
    fn wait_for(&mut self, event: &str) -> Result<Value> {
        loop {
            let mut message = self.receive()?;
            if message["method"] == json!(event) {
                return Ok(message["params"].take());
            }
        }
    }

    fn receive(&mut self) -> Result<Value> {
        let mut bytes = Vec::new();
        let mut limited = std::io::Read::take(&mut self.messages, MAX_MESSAGE);
        limited.read_until(0, &mut bytes).doing(|| "read from the browser".to_owned())?;
        if bytes.pop() != Some(0) {
            return Err(Error::Browser("ended".to_owned()));
        }
        serde_json::from_slice(&bytes)
            .map_err(|error| Error::Browser(format!("sends no JSON: {error}")))
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // after `close` both do nothing
        let _ = self.process.kill();
        let _ = self.end();
    }
}

impl Page<'_> {
    fn send(&mut self, method: &str, parameters: &Value) -> Result<Value> {
        self.browser.call(Some(&self.session), method, parameters)
    }

    /// Opens an address, and waits until it has loaded.
    pub(crate) fn open(&mut self, url: &str) -> Result<()> {
        let opened = self.send("Page.navigate", &json!({"url": url}))?;
        if let Some(error) = opened["errorText"].as_str() {
            return Err(Error::Page(format!("{url} does not open: {error}")));
        }
        self.browser.wait_for("Page.loadEventFired").map(drop)
    }

    /// Opens an empty page at an address of which nothing is asked.
    pub(crate) fn open_empty(&mut self, url: &str) -> Result<()> {
        self.send("Fetch.enable", &json!({"patterns": [{"urlPattern": url}]}))?;
        // it has no result before the page has its content
        self.browser.post(Some(&self.session), "Page.navigate", &json!({"url": url}))?;
        let paused = self.browser.wait_for("Fetch.requestPaused")?;
        let content = json!({
            "requestId": paused["requestId"],
            "responseCode": 200,
            "responseHeaders": [{"name": "content-type", "value": "text/html"}],
            "body": EMPTY_PAGE,
        });
        self.send("Fetch.fulfillRequest", &content)?;
        self.browser.wait_for("Page.loadEventFired").map(drop)
    }

    /// Calls an asynchronous function of JavaScript, and returns what it resolves with.
    pub(crate) fn call(&mut self, function: &str, argument: &Value) -> Result<Value> {
        let wanted = json!({
            "expression": format!("({function})({argument})"),
            "awaitPromise": true,
            "returnByValue": true,
        });
        let mut result = self.send("Runtime.evaluate", &wanted)?;
        if let Some(thrown) = result.get("exceptionDetails") {
            let words = &thrown["exception"]["description"];
            let words = words.as_str().or(thrown["text"].as_str()).unwrap_or("an exception");
            return Err(Error::Page(words.lines().next().unwrap_or_default().to_owned()));
        }
        Ok(result["result"]["value"].take())
    }

    /// Gives the page a file, in an element that only its script knows.
    pub(crate) fn pick(&mut self, path: &Path) -> Result<()> {
        let input =
            "globalThis.picked = Object.assign(document.createElement('input'), { type: 'file' })";
        let made = self.send("Runtime.evaluate", &json!({"expression": input}))?;
        let object = &made["result"]["objectId"];
        let path = path.canonicalize().doing(|| format!("find {}", path.display()))?;
        let files = json!({"files": [path], "objectId": object});
        self.send("DOM.setFileInputFiles", &files).map(drop)
    }
}
