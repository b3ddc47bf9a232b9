"""What the console says to strangers, and what it tells browsers to keep, run and frame."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from django.test import Client

from console.web import response_headers

ROOT = Path(__file__).resolve().parents[3]
pytestmark = pytest.mark.django_db
PRODUCTION = {
    "WEIR_PRODUCTION": "1",
    "WEIR_SECRET_KEY": "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMN",
    "WEIR_HOSTS": "console.example.org",
    "DATABASE_URL": "postgres://weir:secret@database:5432/weir",
    "REDIS_URL": "redis://127.0.0.1:1/0",
}


def in_production(*command, **environment):
    """A command of Weir in the environment of production."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("WEIR_")}
    data = os.environ.get("WEIR_DATA", "")
    return subprocess.run(
        [sys.executable, *command], cwd=ROOT, env={**kept, **PRODUCTION, "WEIR_DATA": data, **environment},
        capture_output=True, text=True,
    )  # fmt: skip


def test_strangers_hear_names_and_states_of_parts_and_no_errors_of_servers(settings):
    settings.REDIS_URL = "redis://user:secret@127.0.0.1:1/0"
    answer = Client().get("/readyz")
    assert answer.status_code == 503
    parts = answer.json()["parts"]
    assert parts["control"] == {"ok": False, "age_seconds": None}
    assert {name for part in parts.values() for name in part} == {"ok", "age_seconds"}
    assert not re.search(r"127\.0\.0\.1|secret|refused|connect", answer.content.decode())


def test_who_may_read_the_plant_reads_why_it_is_not_ready(settings, browsers, secrets):
    settings.REDIS_URL = "redis://127.0.0.1:1/0"
    assert "is not responding" in browsers["viewer"].get("/readyz").json()["parts"]["control"]["message"]
    token = {"HTTP_AUTHORIZATION": f"Bearer {secrets['viewer']}"}
    assert Client().get("/readyz", **token).json()["parts"]["control"]["message"]
    producer = {"HTTP_AUTHORIZATION": f"Bearer {secrets['producer']}"}
    for stranger in (Client().get("/readyz", **producer), browsers["stranger"].get("/readyz")):
        assert "message" not in stranger.json()["parts"]["control"]


PAGES = ["/", "/audit/", "/api/v1/live", "/api/schema", "/nowhere/", "/login/"]


@pytest.mark.parametrize("page", PAGES)
def test_no_browser_keeps_a_page_or_an_answer(browsers, stored_snapshot, page):
    for browser in (browsers["administrator"], Client()):
        answer = browser.get(page)
        assert "no-store" in answer["Cache-Control"], page
        for name in ("Content-Security-Policy", "Permissions-Policy", "Cross-Origin-Resource-Policy"):
            assert answer[name] == response_headers.HEADERS[name]
        assert answer["X-Content-Type-Options"] == "nosniff"
        assert answer["X-Frame-Options"] == "DENY"
        assert answer["Cross-Origin-Opener-Policy"] == "same-origin"
        assert answer["Referrer-Policy"] == "same-origin"


def test_refused_requests_carry_the_same_headers(browsers):
    refused = [
        Client(HTTP_HOST="elsewhere.example").get("/"),
        Client(enforce_csrf_checks=True).post("/login/", {"username": "admin"}),
        Client().get("/api/v1/live"),
    ]
    assert [answer.status_code for answer in refused] == [400, 403, 401]
    for answer in refused:
        assert "no-store" in answer["Cache-Control"] and answer["Content-Security-Policy"]


def test_the_policy_lets_only_our_own_scripts_run_and_nobody_frame_us():
    policy = dict(part.split(" ", 1) for part in response_headers.CONTENT_SECURITY_POLICY.split("; "))
    assert policy["script-src"] == policy["default-src"] == policy["form-action"] == "'self'"
    assert policy["frame-ancestors"] == policy["base-uri"] == policy["object-src"] == "'none'"
    assert not any("unsafe" in value for name, value in policy.items() if name != "style-src")


@pytest.mark.thorough
def test_static_files_are_kept_by_browsers_and_read_by_our_pages_only(served):
    connection = served.connection()
    manifest = json.loads((Path(served.environment["WEIR_DATA"]) / "static" / "staticfiles.json").read_text())
    connection.request("GET", f"/static/{manifest['paths']['js/frame/live.js']}")
    answer = connection.getresponse()
    answer.read()
    connection.close()
    assert answer.status == 200 and "immutable" in answer.headers["Cache-Control"]
    assert "Access-Control-Allow-Origin" not in answer.headers
    assert "Server" not in answer.headers


@pytest.mark.thorough
def test_djangos_deployment_check_finds_nothing_in_production():
    answer = in_production("manage.py", "check", "--deploy", "--fail-level", "INFO")
    assert answer.returncode == 0, answer.stderr
    assert "no issues" in answer.stdout + answer.stderr


ASKED = """
import os, django, json
os.environ["DJANGO_SETTINGS_MODULE"] = "console.settings"
django.setup()
from django.test import Client
told = {}
for name in ("http", "https"):
    for page in ("/", "/healthz"):
        answer = Client(HTTP_HOST="console.example.org").get(page, secure=name == "https")
        kept = answer.get("Strict-Transport-Security")
        told[name + page] = [answer.status_code, answer.get("Location"), kept]
told["health check"] = Client(HTTP_HOST="127.0.0.1:8000").get("/healthz").status_code
print(json.dumps(told))
"""


def told_in_production(tmp_path, **environment):
    (tmp_path / "static").mkdir()
    (tmp_path / "static" / "staticfiles.json").write_text('{"paths": {}, "version": "1.1"}')
    sqlite = {"WEIR_DATA": str(tmp_path), "DATABASE_URL": f"sqlite:///{tmp_path}/weir.sqlite3", **environment}
    answer = in_production("-c", ASKED, **sqlite)
    assert answer.stdout, answer.stderr
    return json.loads(answer.stdout.splitlines()[-1])


@pytest.mark.slow
def test_in_production_http_leads_to_https_and_browsers_stay_there(tmp_path):
    told = told_in_production(tmp_path)
    assert told["http/"][:2] == [301, "https://console.example.org/"]
    assert told["https/healthz"] == [200, None, "max-age=31536000; includeSubDomains"]
    assert told["http/healthz"][0] == 200, "a health check asks by http"
    assert told["health check"] == 200, "and by the address of its own machine"


@pytest.mark.parametrize(
    ("name", "value", "takes"),
    [
        ("WEIR_SECRET_KEY", "a" * 60, "50 or more"),
        ("WEIR_HSTS_SECONDS", "9" * 5000, "whole number"),
        ("WEIR_PRODUCTION", "true", "1 or 0"),
    ],
)
def test_a_wrong_setting_ends_the_start_and_names_its_variable(name, value, takes):
    answer = in_production("manage.py", "check", **{name: value})
    assert answer.returncode != 0
    assert name in answer.stderr and takes in answer.stderr and "a" * 60 not in answer.stderr
