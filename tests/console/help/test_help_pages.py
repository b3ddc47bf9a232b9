"""Help behind the login, with nothing from elsewhere; and documents that are made or checked."""

import importlib
import inspect
import json
import re
from io import StringIO

import pytest
from django.apps import apps
from django.conf import settings
from django.core.management import call_command, get_commands
from markdown import Markdown

from bench.performance_page import SECTIONS, SPARK, page
from console.audit import witness
from console.help import contents, reference
from console.help.diagrams import Diagrams, draw, parse_arrows, rank_boxes
from console.help.rendering import render_markdown
from console.help.texts import collect_texts
from console.management.commands.bench import BENCHES, get_module_name
from console.navigation import help_of, on_rail
from console.release import ROOT
from queues import keys
from tests.shared_data import DATA
from workers.alerts.conditions.catalog import CONDITIONS
from workers.alerts.lifecycle.models import AlertRule
from workers.alerts.rules import rules
from workers.alerts.rules.rules import FIRST_RULES
from workers.batch import files
from workers.history import event_archive, snapshot_archive

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("stored_snapshot")]


def test_help_begins_with_the_four_parts_and_the_reference(viewer):
    context = viewer.get("/help/").context
    titles = [part.title for part in context["parts"]]
    assert titles[:5] == ["Start", "Operate", "Extend", "Understand", "Reference"]
    assert context["shown"].source == "index.md"


def test_every_page_of_help_is_shown_and_all_its_links_lead_somewhere(viewer):
    known = {f"/help/{address}" for address in contents.index_by_address()}
    known |= {f"/help/{picture}" for picture in contents.list_pictures()}
    for address in contents.index_by_address():
        answer = viewer.get(f"/help/{address}")
        assert answer.status_code == 200, address
        body = answer.context["rendered"].body
        for link in re.findall(r'(?:href|src)="(/help/[^"#]*)', body):
            assert link in known, (address, link)


def test_a_page_of_help_brings_no_script_and_nothing_from_elsewhere():
    for source in contents.load_pages():
        body = render_markdown(source, "/help/").body
        assert "<script" not in body and "style=" not in body, source
        assert not re.search(r'src="(?!/help/)', body), source


def test_code_of_every_page_scrolls_by_itself_also_from_the_keyboard():
    bodies = [str(render_markdown(source, "/help/").body) for source in contents.load_pages()]
    assert sum(body.count("<pre>") for body in bodies) > 20
    for body in bodies:
        assert len(re.findall(r'<div class="scroll" tabindex="0"[^>]*aria-label="Code"><pre>', body)) == body.count(
            "<pre>"
        )


def test_a_picture_is_served_and_nothing_else_of_the_folder(viewer):
    answer = viewer.get("/help/overview.png")
    assert answer["Content-Type"] == "image/png"
    assert b"".join(answer.streaming_content).startswith(b"\x89PNG")  # read to its end, which closes the file
    for address in ("nowhere/", "../console/settings.py", "index.md", "%2e%2e/mkdocs.yml"):
        assert viewer.get(f"/help/{address}").status_code == 404, address


def test_who_is_not_logged_in_reads_no_help(browsers):
    assert browsers["anonymous"].get("/help/start/").url == "/login/?next=/help/start/"


def test_search_finds_the_pages_that_hold_all_words_and_titles_first(viewer):
    found = viewer.get("/help/", {"q": "node lost"}).context["results"]
    assert found[0].title == "Node lost"
    assert viewer.get("/help/", {"q": "there-is-no-such-word"}).context["results"] == []


def test_every_page_of_the_console_has_its_page_in_help():
    """One that declares itself may name another, or Help as a whole."""
    for name in (*(name for name, *_ in on_rail()), "plants"):
        assert help_of(name) in contents.index_by_address(), name


def test_every_shipped_rule_has_its_runbook_in_help():
    for name in FIRST_RULES:
        assert f"operate/alerts/{name}/" in contents.index_by_address(), name


@pytest.mark.parametrize("condition", [*CONDITIONS, "one of an extension"])
def test_a_rule_without_a_runbook_of_its_own_links_a_page_that_is_there(condition):
    link = rules.get_help_path(AlertRule(name="mine", condition=condition))
    assert link.removeprefix("/help/") in contents.index_by_address()


def test_a_rule_may_name_another_runbook(settings):
    settings.WEIR_PUBLIC_URL = "https://weir.example"
    own = AlertRule(name="mine", condition="node_lost", runbook="https://wiki/nodes")
    assert rules.get_help_path(own) == rules.get_runbook_url(own) == "https://wiki/nodes"
    shipped = AlertRule(name="node-lost", condition="node_lost")
    assert rules.get_runbook_url(shipped) == "https://weir.example/help/operate/alerts/node-lost/"


def test_every_command_of_ours_is_on_the_page_of_commands():
    ours = {name for name, application in get_commands().items() if str(application).startswith("console")}
    assert {"weir", "assistant"} <= ours
    assert ours == set(re.findall(r"^\| `(\w+)` \|", reference.build_commands_page(), re.MULTILINE))


def test_a_box_stands_right_of_every_box_that_leads_to_it():
    arrows = parse_arrows("a -> b\nb -> d\na -> c\nc -> d\nd -> a: back")
    assert rank_boxes(arrows) == {"a": 0, "b": 1, "d": 2, "c": 1}


def test_labels_and_names_are_shown_as_text():
    picture = draw("<b> -> c: 1 < 2")
    assert "&lt;b&gt;" in picture and "1 &lt; 2" in picture and "<b>" not in picture


def test_a_line_that_is_no_arrow_is_named():
    with pytest.raises(ValueError, match="not 'a to b'"):
        draw("a to b")


def test_a_fence_becomes_a_picture_and_other_code_stays():
    text = "Words.\n\n```diagram\na -> b\n```\n\n```\na -> b\n```\n"
    html = Markdown(extensions=[Diagrams(), "fenced_code"]).convert(text)
    assert html.count("<svg") == 1 and "<code>a -&gt; b" in html


GROWTH = (ROOT / "docs" / "operate" / "growth.md").read_text()
ROW = re.compile(r"^\| `([^`]+)` \| ([^|]+) \| ([^|]+) \|$", re.M)


def listed(title):
    part = re.split(r"^## ", GROWTH.split(f"## {title}\n", 1)[1], maxsplit=1, flags=re.M)[0]
    return [name for name, _, _ in ROW.findall(part)]


def test_every_key_is_named_with_its_bound_on_the_server_that_it_is_on():
    known = [key for key in vars(keys).values() if isinstance(key, keys.Key)]
    assert sorted(listed("On the control server")) == sorted(key for key in known if not key.on_nodes)
    assert sorted(listed("On a node")) == sorted(key for key in known if key.on_nodes)


def test_every_table_is_named_with_its_bound():
    assert sorted(listed("In the database")) == sorted(model._meta.label for model in apps.get_models())


def test_every_folder_that_jobs_and_the_lab_write_is_named_with_its_bound():
    written = {*files.OUTPUT_ROOTS, event_archive.TRACES, event_archive.ROOT, snapshot_archive.ROOT}
    named = set(listed("In the data folder"))
    assert {f"{name}/" for name in written} | {witness.FILE} <= named


ROWS = [row for rows in SECTIONS.values() for row in rows]
MACHINE = {"cores": 2, "memory_bytes": 24 * 2**30, "python": "3.11", "system": "Linux", "load1": 0.5}


def document(value, times=1.0):
    """A run in which every figure of the page is the same. times: what it is of those of others."""
    benches = {}
    for row in ROWS:
        bench = benches.setdefault(row.bench, {"name": row.bench, "figures": {}, "peers": {}, "machine": MACHINE})
        bench["figures"][row.figure] = value
        if row.peer:
            bench["peers"][row.peer[1]] = value / times
    return {"benches": list(benches.values())}


@pytest.mark.parametrize("times", [1.0, 120.0])
@pytest.mark.parametrize("value", [0.0, 3.2e-7, 0.4, 7.0, 1_234_567.8, 9.87e9])
def test_every_row_is_on_the_page_and_no_line_is_too_wide(value, times):
    made = page([document(value, times)])
    assert max(map(len, made.splitlines())) <= 120
    assert len(re.findall(r"^\| (?!Metric|---)", made, re.MULTILINE)) == len(ROWS)


def test_what_was_not_measured_has_no_row_and_the_last_run_counts():
    first, second = document(1.0), document(2.0)
    second["benches"] = [each for each in second["benches"] if each["name"] == "tick"]
    made = page([{"benches": first["benches"][:1]}, *second["benches"]])
    assert "| tick of 100 loops | 2 s |" in made and "## The console" not in made
    with pytest.raises(ValueError, match="no bench"):
        page([{"benches": []}])


def test_the_bar_shows_the_lower_of_the_fixed_target_and_the_target_relative_to_a_peer():
    run = document(2e6)
    (bench,) = (each for each in run["benches"] if each["name"] == "pipeline")
    bench["peers"][SPARK[1]] = 8e6
    line = next(line for line in page([run]).splitlines() if line.startswith("| rules alone |"))
    assert line.endswith("| ≥ 1.2 M events/s, ≥ 0.9 × Spark alone | Spark alone: 8 M events/s | ██ |")


ASSEMBLED = ("shedding", "tick", "windows", "task_history")  # benches that put the names of figures together


def test_every_figure_is_one_that_its_bench_knows():
    """Names that a bench puts together stand in its source in pieces."""
    for row in ROWS:
        assert row.bench in BENCHES
        source = inspect.getsource(importlib.import_module(get_module_name(row.bench)))
        pieces = [row.figure, *(row.figure.split("_", n)[n] for n in range(1, row.figure.count("_") + 1))]
        assert any(piece in source for piece in pieces) or row.bench in ASSEMBLED, row.figure


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
    assert "templates/loops/manual_changes.html" in files
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
    # One pattern of all texts: one for each would be matched a million times.
    found = re.compile(rf"(?<!\w)(?:{'|'.join(map(re.escape, sorted(withdrawn)))})(?!\w)")
    assert [text for text in collect_texts(settings.BASE_DIR) if found.search(text.text)] == []
