"""The listing of all texts: what it collects, and that no withdrawn text is left."""

import json
import re
from io import StringIO

import pytest
from django.conf import settings
from django.core.management import call_command

from console.help.texts import collect_texts
from tests.shared_data import DATA

PAGE = """{# not shown #}
<h1 title="Name of the queue">{{ queue.name }}
  is filling</h1>
<p>{% if full %}It is <b>full</b>.{% endif %}</p>
<script>const hidden = "not a text";</script>
"""
SCRIPT = 'const text = `${count} events wait`; // not a text\nshow("Not saved yet");'
CODE = '''"""Not a text."""
LABEL = "Backlog"
def explain(n):
    """Not a text."""
    return f"Backlog of {n:.1f} events" if re.compile("a b") else "SELECT a FROM b"
'''


@pytest.fixture
def sources(tmp_path):
    for name, text in (("templates/a.html", PAGE), ("static/js/a.js", SCRIPT), ("queues/a.py", CODE)):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    return tmp_path


def test_a_text_is_listed_with_its_place_and_its_placeholders(sources):
    assert [(text.file, text.line, text.text) for text in collect_texts(sources)] == [
        ("templates/a.html", 2, "Name of the queue"),
        ("templates/a.html", 2, "{queue.name} is filling"),
        ("templates/a.html", 4, "It is full."),
        ("static/js/a.js", 1, "{count} events wait"),
        ("static/js/a.js", 2, "Not saved yet"),
        ("queues/a.py", 2, "Backlog"),
        ("queues/a.py", 5, "Backlog of {n} events"),
    ]


def test_the_command_lists_the_texts_of_a_folder_by_file():
    printed, documents = StringIO(), StringIO()
    call_command("texts", "templates/loops", stdout=printed)
    call_command("texts", "templates/loops", "--json", stdout=documents)
    files = re.findall(r"^# (\S+)", printed.getvalue(), re.MULTILINE)
    assert "templates/loops/overrides.html" in files
    assert all(file.startswith("templates/loops") for file in files)
    assert {json.loads(line)["file"] for line in documents.getvalue().splitlines()} == set(files)


def test_no_withdrawn_text_is_left():
    path = DATA.parent / "ENGLISH.md"
    if not path.exists():
        pytest.skip(f"{path} is absent")
    guide = path.read_text(encoding="utf-8")
    rows = re.findall(r"^\| (.+?) \| (.+?) \|$", guide.partition("## Code")[0], re.MULTILINE)[2:]
    withdrawn = {text.strip() for row in rows for text in re.split(r" / | · ", row[0])}
    # These are words that other texts use properly.
    withdrawn -= {"Over", "Came", "Worked", "Began", "Coming", "Is", "Would be", "Gave on", "it", "Asked, /s"}
    for text in collect_texts(settings.BASE_DIR):
        assert not {words for words in withdrawn if re.search(rf"(?<!\w){re.escape(words)}(?!\w)", text.text)}, text
