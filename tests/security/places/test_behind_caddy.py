"""The proxy of docker-compose.yml before a real console: what it passes on, and what the console believes.

Skipped where the program `caddy` is not installed (Debian's package is enough).
"""

import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest
import redis

from queues import keys
from queues.nodes.server import free_port
from tests.console.served import serving
from tests.security.places.test_http_parsing import BODIES, HOST, REFUSED, exchange, statuses
from tests.waiting import until

ROOT = Path(__file__).resolve().parents[3]
CADDY = shutil.which("caddy") or ""
CLIENT = "127.0.0.2"
# Caddy leaves a connection open, and what it answers there does not matter.
SILENCE = {"silence_seconds": 3.0, "rest_seconds": 1.0}
CHOSEN = b"chosen-by-a-client"
pytestmark = pytest.mark.skipif(not CADDY, reason="the program caddy is not installed")


@dataclass(frozen=True)
class Proxied:
    """A console behind Caddy, and the console's control server."""

    port: int
    control: redis.Redis

    def ask(self, *fields, path=b"/healthz", method=b"GET"):
        """Return the answer to a request of CLIENT."""
        head = [method + b" " + path + b" HTTP/1.1", HOST.strip(), b"Connection: close", *fields]
        return exchange(self.port, b"\r\n".join([*head, b"", b""]), CLIENT)


@pytest.fixture(scope="module")
def proxied(_control_server, _node_servers, tmp_path_factory):
    """Caddy with the Caddyfile that ships: without TLS, so that a test can send any bytes."""
    data, port = tmp_path_factory.mktemp("proxied"), free_port()
    with serving(_control_server, _node_servers, data, WEIR_TRUSTED_PROXIES="127.0.0.1/32") as console:
        text = (ROOT / "Caddyfile").read_text(encoding="utf-8")
        text = text.replace("{$WEIR_HOSTS}", f"http://localhost:{port}").replace("tls {$WEIR_TLS}", "")
        text = text.replace("web:8000", f"127.0.0.1:{console.port}")
        configuration = data / "Caddyfile"
        configuration.write_text(text, encoding="utf-8")
        command = [CADDY, "run", "--config", str(configuration), "--adapter", "caddyfile"]
        with (data / "caddy.log").open("wb") as log:
            environment = {"HOME": str(data), "XDG_DATA_HOME": str(data), "XDG_CONFIG_HOME": str(data)}
            process = subprocess.Popen(command, stdout=log, stderr=log, env=environment)
        try:
            control = redis.Redis.from_url(_control_server.url)
            found = Proxied(port, control)
            until(lambda: statuses(found.ask()) == [200])
            yield found
        finally:
            process.terminate()
            process.wait(20)


FORGED = {
    "the usual header": [b"X-Forwarded-For: 203.0.113.5"],
    "the header twice": [b"X-Forwarded-For: 203.0.113.5", b"X-Forwarded-For: 203.0.113.6"],
    "a list": [b"X-Forwarded-For: 203.0.113.5, 127.0.0.1"],
    "an underscore": [b"X_Forwarded_For: 203.0.113.5"],
    "both underscore and hyphen": [b"X-Forwarded_For: 203.0.113.5"],
    "a header that the hop removes": [b"Connection: close, X-Forwarded-For", b"X-Forwarded-For: 203.0.113.5"],
    "the proxy's own header removed": [b"Connection: X-Forwarded-For"],
    "Forwarded": [b"Forwarded: for=203.0.113.5"],
    "X-Real-IP": [b"X-Real-IP: 203.0.113.5"],
    "an empty one": [b"X-Forwarded-For: "],
}


@pytest.mark.parametrize("case", FORGED)
def test_no_header_of_a_client_changes_its_address(proxied, case):
    for key in proxied.control.scan_iter(keys.TOKEN_FAILURES.pattern):
        proxied.control.delete(key)
    answer = proxied.ask(b"Authorization: Bearer weir_x", *FORGED[case], path=b"/api/v1/loops")
    assert statuses(answer) == [401]
    counted = [key.decode() for key in proxied.control.scan_iter(keys.TOKEN_FAILURES.pattern)]
    assert counted == [keys.TOKEN_FAILURES.build(CLIENT)]


@pytest.mark.parametrize("field", [b"X-Request-ID: ", b"X_Request_ID: ", b"Connection: X-Request-ID\r\nX-Request-ID: "])
def test_a_client_does_not_choose_the_id_of_its_request(proxied, field):
    answer = proxied.ask(field + CHOSEN)
    assert statuses(answer) == [200] and CHOSEN not in answer


def test_metrics_are_not_open_behind_the_proxy(proxied):
    for fields in ([], [b"Connection: X-Forwarded-For, X-Forwarded-Proto, X-Forwarded-Host"]):
        assert statuses(proxied.ask(*fields, path=b"/metrics")) == [401]


def check_answers_belong_to_their_requests(proxied):
    """The proxy keeps connections to the console: one that is out of step gives somebody another's answer."""
    for _ in range(3):
        assert proxied.ask().endswith(b"ok\n")
        assert b"csrfmiddlewaretoken" in proxied.ask(path=b"/login/")


@pytest.mark.parametrize("case", REFUSED)
def test_an_ambiguous_request_leaves_proxy_and_console_in_step(proxied, case):
    exchange(proxied.port, REFUSED[case], CLIENT, **SILENCE)
    check_answers_belong_to_their_requests(proxied)


@pytest.mark.parametrize("upgrade", [b"h2c", b"other", b"websocket"])
@pytest.mark.parametrize("body", BODIES)
def test_a_body_with_an_upgrade_leaves_proxy_and_console_in_step(proxied, upgrade, body):
    header, content = BODIES[body]
    head = b"POST /login/ HTTP/1.1\r\n" + HOST + b"Connection: Upgrade\r\nUpgrade: " + upgrade + b"\r\n"
    answer = exchange(proxied.port, head + header + b"\r\n\r\n" + content, CLIENT, **SILENCE)
    assert not answer.endswith(b"ok\n")
    check_answers_belong_to_their_requests(proxied)


@pytest.mark.parametrize(
    "path", [b"/%2e%2e/metrics", b"//metrics", b"/;/metrics", b"/login/..%2fmetrics", b"/x/../metrics"]
)
def test_a_confusing_path_opens_nothing(proxied, path):
    answer = proxied.ask(path=path)
    assert statuses(answer)[0] in (301, 302, 308, 400, 401, 404)
    assert not re.search(rb"(?i)\r\nlocation: (https?:)?//", answer)
