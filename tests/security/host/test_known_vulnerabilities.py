"""What is known of the locked packages is found, where a database is at hand; a bill names them all."""

import importlib.util
import json
import re
import shutil
import subprocess
import sys
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
