"""The console as people and programs reach it: through the proxy, over TLS, by a token of the API."""

import json
import secrets
import ssl
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Self

import httpx
from playwright.sync_api import Page

from bench.console.browser import chromium
from tests.production.engine import Stack

# Where the proxy's own authority keeps its certificate (Caddy's "tls internal").
AUTHORITY = "/data/caddy/pki/authorities/local/root.crt"

HANDLED = """
import json, sqlite3
database = sqlite3.connect("/var/lib/weir/handled.sqlite3")
there = database.execute("SELECT 1 FROM sqlite_master WHERE name = 'handled'").fetchone()
chosen = "SELECT key FROM handled WHERE queue = 'alert' AND type = 'walk'"
print(json.dumps([key for key, in database.execute(chosen)] if there else []))
"""


class Console:
    """Answers of the API, asked as the host that people would open."""

    def __init__(self, client: httpx.Client, host: str) -> None:
        self._client = client
        self._host = host

    @classmethod
    def over_tls(cls, stack: Stack, host: str, port: int) -> Self:
        trust = ssl.create_default_context(cadata=stack.inside("proxy", "cat", AUTHORITY))
        made = json.loads(
            stack.manage("token", f"walk-{secrets.token_hex(4)}", "--role", "administrator", "--days", "1", "--json")
        )
        headers = {"Host": host, "Authorization": f"Bearer {made['token']}"}
        client = httpx.Client(base_url=f"https://127.0.0.1:{port}", headers=headers, verify=trust, timeout=30)
        return cls(client, host)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def request(self, method: str, path: str, **options: Any) -> httpx.Response:
        return self._client.request(method, path, extensions={"sni_hostname": self._host}, **options)

    def snapshot(self) -> dict[str, Any] | None:
        """The newest state of the plant; None while there is none or the console does not answer."""
        try:
            answer = self.request("GET", "/api/v1/live")
        except httpx.TransportError:
            return None
        return answer.json()["snapshot"] if answer.status_code == 200 else None

    def ask(self, method: str, path: str, **body: Any) -> Any:
        """The answer of an address below /api/v1; refusals fail, in their own words."""
        answer = self.request(method, f"/api/v1{path}", **({"json": body} if body else {}))
        assert answer.is_success, f"{method} {path}: {answer.status_code} {answer.text}"
        return answer.json()

    def publish(self, queue: str, events: list[dict[str, Any]]) -> int:
        """How many of the events were acknowledged."""
        lines = "\n".join(map(json.dumps, events))
        answer = self.request("POST", f"/api/v1/queues/{queue}/events", content=lines)
        assert answer.status_code == 202, answer.text
        return answer.json()["published"]


@contextmanager
def first_administrator(stack: Stack, host: str, port: int) -> Iterator[Page]:
    """A browser in which the first administrator has signed in, at a live overview."""
    lines = (stack.folder / ".env").read_text().splitlines()
    settings = dict(line.split("=", 1) for line in lines if "=" in line)
    with chromium(f"--host-resolver-rules=MAP {host} 127.0.0.1") as browser:
        context = browser.new_context(ignore_https_errors=True, base_url=f"https://{host}:{port}")
        page = context.new_page()
        page.goto("/login/")
        page.fill("input[name=username]", "admin")
        page.fill("input[name=password]", settings["WEIR_ADMIN_PASSWORD"])
        page.press("input[name=password]", "Enter")
        page.wait_for_selector("[data-bind]", timeout=60_000)
        page.locator("#connection[data-connection=live]").wait_for(timeout=60_000)
        yield page


def effects_of(stack: Stack) -> Counter[str]:
    """Key of each of this walk's events: how many times it took effect."""
    return Counter(json.loads(stack.inside("worker-jobs", "python", "-c", HANDLED)))
