"""What is known of the locked packages is found, where a database is at hand; a bill names them all."""

import gzip
import importlib.util
import json
import re
import shutil
import subprocess
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.machinery import SourceFileLoader
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
SCRIPT = "plotly.js-basic-dist-min"


def loaded():
    loader = SourceFileLoader("vulnerabilities", str(ROOT / "bin/vulnerabilities"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("vulnerabilities", loader))
    loader.exec_module(module)
    return module


@pytest.mark.parametrize("program", ["print('[]')", "print('not found')", "raise SystemExit(1)", ""])
def test_a_tool_that_gives_no_document_found_no_database(program):
    assert loaded().run_json_command([sys.executable, "-S", "-c", program]) == {}


def test_a_tool_that_is_not_there_found_no_database():
    assert loaded().run_json_command(["no-such-tool"]) == {}


class Databases(ThreadingHTTPServer):
    """An OSV service that knows something of `knows`, and npm's list of advisories likewise."""

    daemon_threads = True

    def __init__(self, knows: set[str]) -> None:
        super().__init__(("127.0.0.1", 0), _Asked)
        self.knows = knows


class _Asked(BaseHTTPRequestHandler):
    server: Databases

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.headers["Content-Encoding"] == "gzip":
            body = gzip.decompress(body)
        question = json.loads(body)
        self._answer(self._of_scripts(question) if "advisories" in self.path else self._of_python(question))

    def _of_python(self, question) -> dict:
        name = question["package"]["name"]
        ranges = [{"type": "ECOSYSTEM", "events": [{"introduced": "0"}, {"fixed": "999"}]}]
        affected = [{"package": {"name": name, "ecosystem": "PyPI"}, "ranges": ranges}]
        known = {"id": f"TEST-{name}", "modified": "2026-01-01T00:00:00Z", "details": "", "affected": affected}
        return {"vulns": [known]} if name in self.server.knows else {}

    def _of_scripts(self, question) -> dict:
        known = {"id": 1, "url": "", "title": "t", "severity": "high", "vulnerable_versions": "<999"}
        return {name: [known] for name in question if name in self.server.knows}

    def _answer(self, document: dict) -> None:
        body = json.dumps(document).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Nothing: the tests read what bin/vulnerabilities says."""


@pytest.mark.slow
def test_the_bill_of_materials_names_every_package_of_the_locks(tmp_path):
    if shutil.which("npm") is None:
        pytest.skip("npm is not installed")
    made = subprocess.run([ROOT / "bin/sbom", tmp_path], capture_output=True, text=True)
    assert made.returncode == 0, made.stderr
    python, scripts = (json.loads(next(tmp_path.glob(f"*-{part}.cdx.json")).read_text()) for part in ("python", "npm"))
    locked = re.findall(r"^([\w.-]+)(?:\[.*?\])?==", (ROOT / "requirements.lock").read_text(), re.M)
    assert {each["name"] for each in python["components"]} == set(locked)
    assert [each["name"] for each in scripts["components"]] == [SCRIPT]
    assert python["bomFormat"] == scripts["bomFormat"] == "CycloneDX"
