#!/usr/bin/python3
"""The page of a served array in a real browser, and its metrics by a strict parser.

    page.py MDSPACE DIRECTORY [PICTURE]

With PICTURE nothing is compared: the page of an array under requests is drawn into that PNG (docs/images/page.png).
Chromium is driven over a pipe (--remote-debugging-pipe). What is shown is compared with what the command says; what is
changed through the page, too. Nothing waits on a sleep: the page is asked to tell when a condition holds.
"""

import base64
import contextlib
import json
import os
import subprocess
import sys
import threading

from prometheus_client.openmetrics.parser import text_string_to_metric_families

MDSPACE, DIRECTORY = os.path.abspath(sys.argv[1]), sys.argv[2]
PICTURE = os.path.abspath(sys.argv[3]) if len(sys.argv) > 3 else None
TOKEN = "correct-horse-battery"
# One of the members' names would be a tag, if it were taken for HTML.
MEMBERS = ["a.img", "b.img", "c.img" if PICTURE else "c<img src=x onerror=document.title='owned'>", "d.img"]


def run(*words):
    return subprocess.run([MDSPACE, *words], check=True, capture_output=True, text=True).stdout


def status():
    return json.loads(run("status", "--json", "--control", "control.sock"))


class Left(Exception):
    """The browser left the page before the page had answered."""


class Browser:
    """Chromium's debugging protocol: JSON messages that end with a zero byte."""

    def __init__(self):
        to_browser, self.output = os.pipe()
        self.input, from_browser = os.pipe()
        words = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe",
                 "--disable-dev-shm-usage", "--ignore-certificate-errors", "--user-data-dir=" + os.path.abspath("profile")]

        def as_three_and_four():
            os.dup2(to_browser, 63), os.dup2(from_browser, 64)
            os.dup2(63, 3), os.dup2(64, 4)

        with open("chromium.log", "w") as log:
            self.process = subprocess.Popen(words, preexec_fn=as_three_and_four, close_fds=False, stdout=log, stderr=log)
        os.close(to_browser), os.close(from_browser)
        self.left = b""
        self.number = 0
        self.session = None
        self.complaints = []
        self.asked = []

    def send(self, method, **parameters):
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.output, json.dumps(message).encode() + b"\0")
        return self.number

    def receive(self):
        while b"\0" not in self.left:
            more = os.read(self.input, 1 << 16)
            if not more:
                raise SystemExit("chromium ended: see chromium.log")
            self.left += more
        message, _, self.left = self.left.partition(b"\0")
        return json.loads(message)

    def call(self, method, **parameters):
        number = self.send(method, **parameters)
        while True:
            message = self.receive()
            if message.get("id") == number:
                if "navigated" in message.get("error", {}).get("message", ""):
                    raise Left(method)
                if "error" in message:
                    raise SystemExit(f"{method}: {message['error']}")
                return message["result"]
            self.note(message)

    def note(self, message):
        method, parameters = message.get("method"), message.get("params", {})
        if method == "Runtime.exceptionThrown":
            self.complaints.append(parameters["exceptionDetails"])
        elif method == "Log.entryAdded" and parameters["entry"]["level"] in ("error", "warning"):
            self.complaints.append(parameters["entry"])
        elif method == "Page.javascriptDialogOpening":
            self.asked.append(parameters["message"])
            self.send("Page.handleJavaScriptDialog", accept=True)

    def open(self, url):
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Accessibility"):
            self.call(domain + ".enable")
        self.call("Page.navigate", url=url)

    def value(self, expression):
        result = self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in result:
            raise SystemExit(f"{expression}: {result['exceptionDetails']}")
        return result["result"].get("value")

    def wait(self, condition):
        """Until the condition holds in the page; fails after 20 s. A link may lead to another page meanwhile."""
        question = (
            "new Promise(done => { const end = Date.now() + 20000; const look = () => {"
            f" let is = false; try {{ is = Boolean({condition}); }} catch {{}}"
            " if (is || Date.now() > end) done(is); else setTimeout(look, 20); }; look(); })")
        try:
            shown = self.value(question)
        except Left:
            shown = self.value(question)
        if not shown:
            raise SystemExit(f"the page never came to: {condition}\n{self.value('document.body.innerText')}")


def check(condition, what):
    if not condition:
        raise SystemExit(what)


# The least contrast between text and what is behind it, of everything that is shown (WCAG 2 AA: 4.5).
CONTRAST = """
(() => {
  const parse = (color) => color.match(/[\\d.]+/g).map(Number);
  const light = (color) => {
    const [r, g, b] = parse(color).map((v) => v / 255).map((v) => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const back = (element) => {
    for (; element; element = element.parentElement) {
      const color = getComputedStyle(element).backgroundColor;
      if (parse(color)[3] !== 0) return color;
    }
    return "rgb(255, 255, 255)";
  };
  let least = [99, ""];
  for (const element of document.body.querySelectorAll("*")) {
    if (!element.innerText || !element.checkVisibility()) continue;
    const [a, b] = [light(getComputedStyle(element).color), light(back(element))];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < least[0]) least = [ratio, element.outerHTML.slice(0, 80)];
  }
  return [...least, getComputedStyle(document.body).backgroundColor];
})()
"""


def main():
    os.chdir(DIRECTORY)
    run("create", "--level", "6", "--chunk", "64K", "--name", "shown", "--size", "32M", *MEMBERS)
    with open("token", "w") as file:
        file.write(TOKEN)
    server = subprocess.Popen(
        [MDSPACE, "serve", *MEMBERS, "--nbd", "unix:nbd.sock", "--control", "control.sock",
         "--http", "127.0.0.1:0", "--http-token-file", "token"], stdout=subprocess.PIPE, text=True)
    browser = None
    try:
        url = None
        for line in server.stdout:
            words = line.split()
            if words[0] == "HTTP":
                url = words[1].removesuffix("metrics")
            if words[0] == "control":
                break
        browser = Browser()
        if PICTURE:
            picture(browser, url)
            return
        visit(browser, url)
        metrics(url)
        server.terminate()
        server.wait()
        browser.call("Page.navigate", url="about:blank")
        guarded(browser)
        listed(browser)
        formed(browser)
        created(browser)
    finally:
        if browser:
            browser.process.kill()
            browser.process.wait()
        server.terminate()
        server.wait()
    print("a browser shows the array and changes it; its metrics are OpenMetrics")


@contextlib.contextmanager
def writing():
    """A client writes as long as the page has not shown it."""
    enough = threading.Event()

    def write():
        with open("data", "wb") as file:
            file.write(os.urandom(4 << 20))
        while not enough.is_set():
            subprocess.run(["nbdcopy", "data", "nbd+unix:///?socket=nbd.sock"], check=True)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        yield
    finally:
        enough.set()
        writer.join()


def picture(browser, url):
    browser.open(url)
    browser.call("Emulation.setDeviceMetricsOverride", width=960, height=600, deviceScaleFactor=1, mobile=False)
    browser.wait("document.querySelectorAll('#members tr').length === 4")
    scrubbed(browser)
    with writing():
        browser.wait("document.querySelector('#rates polyline').points.length >= 16")
        # Down to where changes are made.
        height = browser.value("document.querySelector('[aria-labelledby=change-title]').getBoundingClientRect().top")
        clip = {"x": 0, "y": 0, "width": 960, "height": height, "scale": 1}
        drawn = browser.call("Page.captureScreenshot", clip=clip, captureBeyondViewport=True)["data"]
    with open(PICTURE, "wb") as file:
        file.write(base64.b64decode(drawn))
    print(f"{PICTURE}: the page, {height} pixels high")


def visit(browser, url):
    browser.open(url)
    browser.wait("document.querySelectorAll('#members tr').length === 4")
    check(browser.value("document.title") == "shown: clean", browser.value("document.title"))
    names = browser.value("[...document.querySelectorAll('#members th')].map((name) => name.textContent)")
    check(names == MEMBERS, f"{names}")
    # Files have no label; that of a drive may say anything.
    row = "memberRow({...latest.members[0], model: 'WD <b>40', serial: 'X1'}).querySelector('th').textContent"
    label = browser.value(row)
    check(label == MEMBERS[0] + "WD <b>40, serial X1", label)
    for smart, words in [
        ("{failing: true, reallocated_sectors: 17, pending_sectors: 0, media_errors: null}", "SMART: failing, 17 sectors reallocated"),
        ("{failing: false, used_percent: 4}", "SMART: 4 % of its life used"),
        ("{failing: false, pending_sectors: 0}", "SMART: nothing"),
    ]:
        row = f"memberRow({{...latest.members[0], serial: 'X1', smart: {smart}}}).querySelector('th')"
        text, bad = browser.value(f"[{row}.textContent, {row}.querySelectorAll('.bad').length]")
        check(text == MEMBERS[0] + "serial X1" + words and bad == ("failing:" in words or "failing," in words), f"{text} {bad}")
    check(browser.value("document.getElementById('all').hidden"), "the page of one server links to a list")

    with writing():
        browser.wait("/writes [1-9.]+ [KMG]iB\\/s/.test(document.getElementById('rates-text').textContent)")
        browser.wait("document.querySelectorAll('#rates polyline').length === 2")

    scrubbed(browser)
    held(browser)

    # Changes: refused without the right token, made with it.
    field = "{{ const field = document.getElementById('{}'); field.value = {}; field.dispatchEvent(new Event('change')); }}"
    press = "document.querySelector('#set-form button').click()"
    browser.value(field.format("set-value", "'frozen'"))
    browser.value(press)
    browser.wait("/token/.test(document.getElementById('message').textContent)")
    check(status()["sync_action"] == "idle", "a change without the token was made")
    check(any("401" in str(complaint) for complaint in browser.complaints), f"{browser.complaints}")
    browser.complaints.clear()  # the browser's own word on the 401
    browser.value(field.format("token", json.dumps(TOKEN)))
    browser.value(press)
    browser.wait("document.getElementById('message').textContent === 'done'")
    check(status()["sync_action"] == "frozen", "the setting was not changed")
    browser.value("document.querySelector('[aria-label=\"fail b.img\"]').click()")
    browser.wait("/b\\.img\\s+faulty/.test(document.getElementById('members').innerText)")
    check(browser.asked == ["fail b.img?"], f"{browser.asked}")
    check(status()["missing"] == [1], "the member did not leave")
    check(browser.value("document.title") == "shown: clean, degraded"
          or browser.value("document.title") == "shown: active, degraded", browser.value("document.title"))

    # Everything that can be used has a name, for those who do not see it.
    nodes = browser.call("Accessibility.getFullAXTree")["nodes"]
    controls = [node for node in nodes if node.get("role", {}).get("value") in
                ("button", "textbox", "combobox", "progressbar", "image", "table")]
    check(len(controls) >= 12, f"{len(controls)} controls")
    nameless = [node for node in controls
                if not node.get("name", {}).get("value") and node["role"]["value"] != "table"]
    check(not nameless, f"without a name: {nameless}")

    grounds = set()
    for scheme in ("light", "dark"):
        browser.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        ratio, where, ground = browser.value(CONTRAST)
        check(ratio >= 4.5, f"{scheme}: contrast {ratio:.2f}: {where}")
        grounds.add(ground)
    check(len(grounds) == 2, "dark looks like light")
    browser.call("Emulation.setDeviceMetricsOverride", width=320, height=640, deviceScaleFactor=1, mobile=False)
    width = browser.value("document.documentElement.scrollWidth")
    check(width <= 320, f"a narrow window has to be scrolled sideways: {width}")
    check(not browser.complaints, f"the browser complains: {browser.complaints}")


def guarded(browser):
    """A server that other machines reach shows nothing until its token is entered, and then in this tab alone."""
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-noenc",
                    "-subj", "/CN=mdspace", "-days", "2", "-addext", "subjectAltName=IP:127.0.0.1",
                    "-keyout", "server-key.pem", "-out", "server-cert.pem"], check=True, capture_output=True)
    server = subprocess.Popen(
        [MDSPACE, "serve", *MEMBERS, "--nbd", "unix:nbd.sock", "--control", "control.sock", "--http", "0.0.0.0:0",
         "--http-token-file", "token", "--http-tls-certificates", "."], stdout=subprocess.PIPE, text=True)
    try:
        port = next(line.split()[1] for line in server.stdout if line.split()[0] == "HTTP").split(":")[-1]
        url = f"https://127.0.0.1:{port.removesuffix('/metrics')}/"
        browser.call("Page.navigate", url=url)
        locked = "document.body.className === 'locked' && {}.test(document.getElementById('message').textContent)"
        browser.wait(locked.format("/enter its token/"))
        shown = browser.value("document.body.innerText")
        check("shown" not in shown and "a.img" not in shown and "Members" not in shown, shown)
        enter = ("document.getElementById('token').value = '{}';"
                 " document.querySelector('#token-form button').click()")
        browser.value(enter.format("wrong-horse-battery"))
        browser.wait(locked.format("/not the server's token/"))
        browser.value(enter.format(TOKEN))
        browser.wait("document.querySelectorAll('#members tr').length === 5 && document.body.className === ''")
        check(browser.value("document.getElementById('message').textContent") == "", "a message stays")
        browser.call("Page.navigate", url=url)  # loaded again
        browser.wait("document.querySelectorAll('#members tr').length === 5")
        mended(browser)
        check(browser.value("document.cookie") == "", "a cookie would go to other ports, too")
        browser.open(url)  # another tab
        browser.wait(locked.format("/enter its token/"))
    finally:
        server.terminate()
        server.wait()


def listed(browser):
    """The list of all arrays: each links to its page, and trouble is seen at once."""
    run("create", "--level", "1", "--size", "8M", "--name", "listed", "one.img", "two.img")
    server = subprocess.Popen([MDSPACE, "serve", "one.img", "two.img", "--nbd", "unix:nbd.sock", "--control", "listed.sock"],
                              stdout=subprocess.PIPE, text=True)
    web = None
    try:
        next(line for line in server.stdout if line.split()[0] == "control")
        web = subprocess.Popen([MDSPACE, "web", "--http", "127.0.0.1:0", "--http-token-file", "token", "--control", "listed.sock"],
                               stdout=subprocess.PIPE, text=True, env={**os.environ, "XDG_RUNTIME_DIR": os.getcwd()})
        browser.complaints.clear()
        url = web.stdout.readline().strip()
        browser.open(url)
        row = "/{}/.test(document.getElementById('arrays').innerText)"
        browser.wait(row.format("^listed\\s+raid1\\s+[0-9.]+ MiB\\s+2 of 2\\s+healthy"))
        check(browser.value("document.title") == "mdspace: 1 arrays", browser.value("document.title"))
        for scheme in ("light", "dark"):
            browser.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
            ratio, where, _ = browser.value(CONTRAST)
            check(ratio >= 4.5, f"{scheme}: contrast {ratio:.2f}: {where}")
        browser.value("document.querySelector('#arrays a').click()")
        browser.wait("document.title === 'listed: clean'")
        browser.value(f"document.getElementById('token').value = '{TOKEN}'; document.querySelector('#token-form button').click()")
        browser.value("document.querySelector('[aria-label=\"fail two.img\"]').click()")
        browser.wait("/two\\.img\\s+faulty/.test(document.getElementById('members').innerText)")
        check(not browser.value("document.getElementById('all').hidden"), "the page of an array leads back to the list")
        browser.value("document.querySelector('#all a').click()")
        browser.wait(row.format("1 of 2; no more may fail\\s+degraded"))
        check("1 not healthy" in browser.value("document.title"), browser.value("document.title"))
        server.kill()
        server.wait()
        browser.wait(row.format("gone"))
        server = subprocess.Popen([MDSPACE, "serve", "--read-only", "one.img", "two.img", "--nbd", "unix:nbd.sock", "--control",
                                   "listed.sock"], stdout=subprocess.PIPE, text=True)
        browser.wait(row.format("1 of 2; no more may fail\\s+degraded, read-only"))
        # Other tabs still ask servers that have ended.
        complaints = [complaint for complaint in browser.complaints if complaint.get("url", url).startswith(url)]
        check(not complaints, f"the browser complains: {complaints}")
    finally:
        for process in (web, server):
            if process:
                process.terminate()
                process.wait()


def formed(browser):
    """Forms scrub, grow, set and stop an array. Each says first what it will do, and what only looks does not ask."""
    run("create", "--level", "1", "--size", "8M", "--name", "formed", "three.img", "four.img")
    server = subprocess.Popen(
        [MDSPACE, "serve", "three.img", "four.img", "--nbd", "unix:nbd.sock", "--control", "control.sock",
         "--http", "127.0.0.1:0", "--http-token-file", "token"], stdout=subprocess.PIPE, text=True)
    try:
        url = next(line.split()[1] for line in server.stdout if line.split()[0] == "HTTP").removesuffix("metrics")
        browser.open(url)
        browser.wait("document.title === 'formed: clean'")
        browser.value(f"document.getElementById('token').value = '{TOKEN}'; document.querySelector('#token-form button').click()")
        browser.asked.clear()
        choose = ("{{ const field = document.getElementById('{0}'); field.value = '{1}'; field.dispatchEvent(new Event('change')); }}"
                  " document.querySelector('#{2} button').click()")
        offered = "[...document.getElementById('{}').options].map((option) => option.value).join(' ')"
        browser.wait(offered.format("scrub-action") + " === 'check repair repair-parity'")
        run("set", "sync-speed-min=64K", "sync-speed-max=64K", "--control", "control.sock")
        browser.value(choose.format("scrub-action", "check", "scrub-form"))
        browser.wait(offered.format("scrub-action") + " === 'pause cancel'")
        browser.value(choose.format("scrub-action", "cancel", "scrub-form"))
        browser.wait("/check, cancelled/.test(document.getElementById('map-text').textContent)")
        check(browser.asked == [], f"what only looks asks: {browser.asked}")
        run("set", "sync-speed-min=1000K", "sync-speed-max=none", "--control", "control.sock")
        browser.value(choose.format("scrub-action", "repair", "scrub-form"))
        browser.wait("/repair, complete/.test(document.getElementById('map-text').textContent)")
        check(len(browser.asked) == 1 and browser.asked[0].startswith("Repair? Blocks are rewritten"), f"{browser.asked}")
        browser.value("{ const key = document.getElementById('set-key'); key.value = 'consistency-policy';"
                      " key.dispatchEvent(new Event('change')); }")
        check(browser.value(offered.format("set-values")) == "resync bitmap ppl log", "the choices of a setting")
        browser.value(choose.format("set-value", "bitmap", "set-form"))
        browser.wait("/bitmap 0 of/.test(document.getElementById('details').textContent)")
        browser.value(choose.format("grow-copies", "3", "grow-form"))
        browser.wait("/2 of 3 members/.test(document.getElementById('details').textContent)")
        check(browser.asked[1].startswith("Keep 3 copies instead of 2: 1 more"), f"{browser.asked}")
        check(status()["raid_disks"] == 3, f"{status()['raid_disks']}")
        browser.value("document.querySelector('#stop-form button').click()")
        server.wait(20)
        check(browser.asked[2].startswith("Stop formed? Its clients lose it."), f"{browser.asked}")
        browser.wait("document.title === 'The server: no answer'")
    finally:
        server.terminate()
        server.wait()


def created(browser):
    """An array is checked, and only then created. What holds data is refused, and nothing is changed by a check."""
    for name in ("five.img", "six.img", "seven.img"):
        with open(name, "wb") as file:
            file.truncate(8 << 20)
    with open("seven.img", "r+b") as file:
        file.seek(1080)
        file.write(b"\x53\xef" + b"x" * 100)
    words = [MDSPACE, "web", "--http", "127.0.0.1:0", "--http-token-file", "token", "--allow-create"]
    web = subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env={**os.environ, "XDG_RUNTIME_DIR": os.getcwd()})
    try:
        url = web.stdout.readline().strip()
        browser.open(url)
        browser.wait("!document.getElementById('create').hidden")
        browser.complaints.clear()
        browser.value(f"document.getElementById('token').value = '{TOKEN}'; document.querySelector('#token-form button').click()")
        fill = ("{{ const field = document.getElementById('{0}'); field.value = {1};"
                " field.dispatchEvent(new Event('input', {{ bubbles: true }})); }}")
        press = "document.getElementById('create-{}').click()"
        said = "/{}/.test(document.getElementById('create-text').textContent)"
        is_locked = "document.getElementById('create-now').disabled"
        paths = [os.path.abspath(name) for name in ("five.img", "seven.img")]
        browser.value(fill.format("create-others", json.dumps("\n".join(paths))))
        browser.value(fill.format("create-level", "'1'") + fill.format("create-name", "'made'"))
        browser.value(press.format("check"))
        browser.wait(said.format("seven.img: holds an ext2, ext3 or ext4 file system"))
        check(browser.value(is_locked), "what is refused can be created")
        check(any("409" in str(complaint) for complaint in browser.complaints), f"{browser.complaints}")
        browser.complaints.clear()  # the browser's own word on the 409
        paths[1] = os.path.abspath("six.img")
        browser.value(fill.format("create-others", json.dumps("\n".join(paths))))
        browser.value(press.format("check"))
        browser.wait(said.format("would create RAID-1 of 2 members"))
        ratio, where, _ = browser.value(CONTRAST)
        check(ratio >= 4.5, f"contrast {ratio:.2f}: {where}")
        width = browser.value("document.documentElement.scrollWidth <= innerWidth")
        check(width, "the form has to be scrolled sideways")
        for path in paths:
            with open(path, "rb") as file:
                check(not file.read().strip(b"\0"), f"a check has written to {path}")
        check(not browser.value(is_locked), "what was checked cannot be created")
        browser.value(fill.format("create-name", "'mode'"))
        check(browser.value(is_locked), "what was not checked can be created")
        browser.value(fill.format("create-name", "'made'") + press.format("check"))
        browser.wait("!" + is_locked)
        browser.value(press.format("now"))
        browser.wait(said.format("next: mdspace serve .*five.img .*six.img"))
        report = json.loads(run("examine", "--json", *paths))["arrays"][0]["status"]
        check((report["name"], report["level"], report["in_sync"]) == ("made", "raid1", 2), f"{report}")
        # Other tabs still ask servers that have ended.
        complaints = [complaint for complaint in browser.complaints if complaint.get("url", url).startswith(url)]
        check(not complaints, f"the browser complains: {complaints}")
    finally:
        web.terminate()
        web.wait()


def mended(browser):
    """A degraded array gets its members: each change says first what it will do, and is asked for once."""
    row = "[...document.querySelectorAll('#members tr')].some((row) => /{}/.test(row.innerText))"
    browser.wait(row.format("b.img.*not used: stale"))
    browser.asked.clear()
    browser.value("document.querySelector('[aria-label=\"re-add b.img\"]').click()")
    browser.wait("/bitmap/.test(document.getElementById('message').textContent)")  # there is none: refused
    check(status()["missing"] == [1], "a member was taken back without a bitmap")
    for name in ("e.img", "f.img"):
        with open(name, "wb") as file:
            file.truncate(os.path.getsize("a.img"))
    fill = "document.getElementById('{}').value = '{}'; document.querySelector('#{} button').click()"
    browser.value(fill.format("add-member", "a.img", "add-form"))
    browser.wait("/a\\.img/.test(document.getElementById('message').textContent)")
    check(status()["missing"] == [1], "a member in use was added")
    browser.value(fill.format("add-member", "e.img", "add-form"))
    browser.wait(row.format("e.img\\s+in sync"))
    check(status()["missing"] == [], f"{status()['missing']}")
    browser.value("document.getElementById('replace-member').value = 'a.img'")
    browser.value(fill.format("replace-with", "f.img", "replace-form"))
    browser.wait(row.format("f.img\\s+in sync"))
    browser.wait(row.format("a.img\\s+faulty"))
    texts = ["Re-add b.img?", "Add a.img for slot 1? ", "Add e.img for slot 1? ", "Replace a.img by f.img? a.img stays in use"]
    check(len(browser.asked) == len(texts) and all(asked.startswith(text) for asked, text in zip(browser.asked, texts)),
          f"{browser.asked}")


def scrubbed(browser):
    """A block that went wrong is on the map, at its place in the array, until it is healed; wrong parity at its stripe's."""
    browser.wait("document.getElementById('scrub').hidden")
    with open("a.img", "r+b") as member:
        data_at = json.loads(run("examine", "--json", *MEMBERS))["members"][0]["data_at"]
        for at in (4 << 20, 16 << 20):
            member.seek(data_at + at)
            member.write(b"wrong" * 819 + b"x")
    words = [MDSPACE, "scrub", "--json", "--control", "control.sock"]
    found = json.loads(subprocess.run(words, capture_output=True, text=True).stdout)["findings"]
    check(len(found) == 2 and all(finding["outcome"] == "left" for finding in found), f"{found}")
    stripe_bytes = 2 * (64 << 10)
    firsts = [finding["array"][0]["at"] if finding["array"] else finding["stripe"] * stripe_bytes for finding in found]
    cells = sorted(str(first * 400 // status()["array_bytes"]) for first in firsts)
    shown = "[...document.querySelectorAll('#map .{}')].map((one) => one.getAttribute('x')).sort()"
    browser.wait("document.querySelectorAll('#map .left').length === 2")
    check(browser.value(shown.format("left")) == cells, f"{browser.value(shown.format('left'))}, not {cells}")
    check(browser.value("document.querySelector('#map .seen').getAttribute('width')") == "400", "not all was gone over")
    check("2 places mismatched, 0 healed" in browser.value("document.getElementById('map-text').textContent"), "the words")
    listed_findings = browser.value("document.getElementById('findings-rows').textContent")
    check(listed_findings.count("a.img") == 2 and listed_findings.count("left") == 2, listed_findings)
    subprocess.run([*words, "--repair"], capture_output=True)
    browser.wait("document.querySelectorAll('#map .healed').length === 2")
    check(browser.value(shown.format("healed")) == cells, "healed elsewhere")
    check(browser.value("document.querySelectorAll('#map .left').length") == 0, "what is healed is still shown as wrong")


def held(browser):
    """What keeps a sweep from running faster is shown beside its rate."""
    control = ("--control", "control.sock")
    run("set", "sync-speed-min=64K", "sync-speed-max=64K", *control)
    run("scrub", "--no-wait", *control)
    browser.wait("document.getElementById('sweep-text').textContent.endsWith(', held by sync-speed-max')")
    run("scrub", "--cancel", *control)
    run("set", "sync-speed-min=1000K", "sync-speed-max=none", *control)
    browser.wait("document.getElementById('sweep').hidden")


def metrics(url):
    words = ["curl", "--silent", "--fail", "-H", "Accept: application/openmetrics-text", url + "metrics"]
    answer = subprocess.run(words, check=True, capture_output=True, text=True)
    families = {family.name: family for family in text_string_to_metric_families(answer.stdout)}
    slots = families["mdspace_array_in_sync"].samples[0]
    check((slots.value, slots.labels["array"]) == (3, "shown"), f"{slots}")
    members = {sample.labels["member"] for sample in families["mdspace_member_bytes"].samples}
    check(members == set(MEMBERS), f"{members}")
    written = sum(sample.value for sample in families["mdspace_request_bytes"].samples
                  if sample.labels["operation"] == "write")
    check(written >= 4 << 20, f"{written} bytes written")


main()
