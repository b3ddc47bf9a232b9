"""A download in a real browser is whole, byte for byte what the server made."""

import httpx
import pytest

from tests.waiting import MAX_SECONDS

WINDOW = "from=2026-11-20T00:00:00&to=2026-11-20T06:00:00"
EXPORTS = (
    "/api/v1/audit/export?format=json&to=2031-01-01T00:00:00Z&action=user",
    f"/timeline/table.csv?what=figures&{WINDOW}",
)


def headers_of(session, encoding):
    cookies = "; ".join(f"{each['name']}={each['value']}" for each in session["cookies"])
    return {"Cookie": cookies, "Accept-Encoding": encoding}


@pytest.mark.sweep(2)
@pytest.mark.parametrize("address", EXPORTS)
def test_an_export_is_the_same_compressed_plain_and_in_the_browser(address, served, session, open_page, tmp_path):
    url = f"http://127.0.0.1:{served.port}{address}"
    plain = httpx.get(url, headers=headers_of(session, "identity"), timeout=MAX_SECONDS)
    packed = httpx.get(url, headers=headers_of(session, "gzip"), timeout=MAX_SECONDS)
    assert plain.status_code == 200 and plain.headers["Content-Disposition"].startswith("attachment")
    assert "Content-Encoding" not in plain.headers and packed.headers["Content-Encoding"] == "gzip"
    assert packed.content == plain.content

    page = open_page("/settings/")
    with page.expect_download() as expected:
        page.evaluate("address => { const a = document.createElement('a'); a.href = address; a.click(); }", address)
    saved = tmp_path / "saved"
    expected.value.save_as(saved)
    assert saved.read_bytes() == plain.content
