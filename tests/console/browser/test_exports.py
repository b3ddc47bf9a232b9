"""A download in a real browser is whole, byte for byte what the server made."""

from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Page

from tests.console.served import Served
from tests.waiting import MAX_SECONDS

WINDOW = "from=2026-11-20T00:00:00&to=2026-11-20T06:00:00"
EXPORTS = (
    "/api/v1/audit/export?format=csv&to=2031-01-01T00:00:00Z&action=user",
    "/api/v1/audit/export?format=json&action=user",
    "/api/v1/ledger/export?format=csv",
    "/api/v1/ledger/export?format=json",
    "/alerts/review/?format=csv&from=2026-11-20T00:00:00&to=2026-11-20T06:00:00",
    f"/timeline/table.csv?what=events&{WINDOW}",
    f"/timeline/table.csv?what=figures&{WINDOW}",
)
FILL = """
from datetime import UTC, datetime, timedelta
from console.audit import audit_log
from console.accounts.access import Actor
from console.models import Mark
from workers.models import LedgerEntry, Loop
who = Actor("desk-2", "operator", address="192.0.2.7")
for number in range(300):
    audit_log.record(who, "user.create", f"person-{number}", reason="for the test " * 5)
loop = Loop.objects.create(name="worker_rate/filled/n1", law="worker_rate")
begin = datetime(2026, 11, 20, tzinfo=UTC)
LedgerEntry.objects.bulk_create(
    LedgerEntry(loop=loop, at=begin + timedelta(seconds=number), mode="auto", observation={"number": number},
                parameters={}, reason="because it had to be done", action={"start": 1})
    for number in range(5_000)
)
Mark.objects.create(kind="note", title="a mark", at=begin, author="desk-2")
"""


@pytest.fixture(scope="module")
def filled(served: Served) -> Served:
    import subprocess
    import sys

    from tests.console.served import ROOT

    command = [sys.executable, "manage.py", "shell", "-c", FILL]
    subprocess.run(command, cwd=ROOT, env=served.environment, check=True, capture_output=True)
    return served


def headers_of(served: Served, session: dict, encoding: str) -> dict[str, str]:
    cookies = "; ".join(f"{each['name']}={each['value']}" for each in session["cookies"])
    return {"Cookie": cookies, "Accept-Encoding": encoding}


@pytest.mark.sweep(8)
@pytest.mark.parametrize("address", EXPORTS)
def test_an_export_is_the_same_compressed_plain_and_in_the_browser(
    address: str, filled: Served, session: dict, open_page: Callable[..., Page], tmp_path: Path
):
    url = f"http://127.0.0.1:{filled.port}{address}"
    plain = httpx.get(url, headers=headers_of(filled, session, "identity"), timeout=MAX_SECONDS)
    packed = httpx.get(url, headers=headers_of(filled, session, "gzip"), timeout=MAX_SECONDS)
    assert plain.status_code == 200 and plain.headers["Content-Disposition"].startswith("attachment")
    assert "Content-Encoding" not in plain.headers and packed.headers["Content-Encoding"] == "gzip"
    assert len(plain.content) > 60 and packed.content == plain.content

    page = open_page("/settings/")
    with page.expect_download() as expected:
        page.evaluate("address => { const a = document.createElement('a'); a.href = address; a.click(); }", address)
    saved = tmp_path / "saved"
    expected.value.save_as(saved)
    assert saved.read_bytes() == plain.content
    fetched = page.evaluate("address => fetch(address).then(answer => answer.text())", address)
    assert fetched.encode() == plain.content


@pytest.mark.parametrize("address", EXPORTS)
def test_a_head_answers_the_headers_of_the_export_and_nothing_more(address: str, filled: Served, session: dict):
    url = f"http://127.0.0.1:{filled.port}{address}"
    asked = httpx.head(url, headers=headers_of(filled, session, "gzip"), timeout=MAX_SECONDS)
    assert (asked.status_code, asked.content) == (200, b"")
    assert asked.headers["Content-Disposition"].startswith("attachment")
