"""`manage.py lab`, to the contract."""

import gzip
import io
import json

import pytest
from django.core.management import call_command

from controllers.simulation.catalog import SCENARIOS
from controllers.simulation.scenario import ScenarioOutcome
from workers.twin import catalog


def lab(*arguments):
    """Exit code, output, error."""
    out, err = io.StringIO(), io.StringIO()
    try:
        call_command("lab", *arguments, stdout=out, stderr=err)
    except SystemExit as end:
        return end.code, out.getvalue(), err.getvalue()
    return 0, out.getvalue(), err.getvalue()


def run(*arguments):
    code, out, err = lab("run", *arguments, "--json")
    assert (code, err) == (0, "")
    return json.loads(out)


@pytest.mark.parametrize(
    ("field", "arguments"),
    [("SCENARIO", ["flow"]), ("--set", ["--set", "zz=1"]), ("--law", ["--law", "pi"]), ("--seed", ["--seed", "0"])],
)
def test_the_list_takes_nothing_that_is_for_a_run(field, arguments):
    code, out, err = lab("list", *arguments)
    assert (code, out) == (2, "") and err.startswith(f"{field}: applies to lab run only")


def test_a_run_answers_with_the_metrics_of_the_contract_for_each_law():
    document = run("queues", "--law", "greedy-band", "--law", "random-40", "--set", "configuration=2", "--seed", "4")
    assert (document["scenario"], document["seed"]) == ("queues", 4)
    assert document["parameters"]["configuration"] == 2
    assert list(document["results"]) == ["greedy-band", "random-40"]
    promised = set(json.loads(lab("list", "--json")[1])["scenarios"]["queues"]["metrics"])
    assert all(promised <= set(metrics) for metrics in document["results"].values())


def test_without_a_law_ours_and_all_rivals_run():
    assert list(run("crash")["results"]) == ["rebalancing", "thesis"]


def test_series_and_page_are_written(tmp_path):
    series, page = tmp_path / "day.csv", tmp_path / "day.html"
    run("queues", "--law", "greedy-band", "--series", str(series), "--html", str(page))
    lines = series.read_text().splitlines()
    assert lines[0].startswith("law,seconds,arrivals_per_second") and len(lines) == 1 + 24 * 60
    assert "greedy-band" in page.read_text() and "http" not in page.read_text()[:200]


@pytest.mark.parametrize(
    ("scenario", "law", "words"), [("ladder", "none", "cap = shed"), ("concurrency", "aimd", "ratio = 1")]
)
def test_a_page_names_settings_that_are_words(tmp_path, scenario, law, words):
    page = tmp_path / "run.html"
    run(scenario, "--law", law, "--html", str(page))
    assert words in page.read_text()


def test_no_file_is_written_where_the_other_one_can_not_be(tmp_path):
    series = tmp_path / "day.csv"
    code, out, err = lab("run", "crash", "--series", str(series), "--html", str(tmp_path / "no" / "day.html"))
    assert (code, out) == (2, "") and err.startswith("--html: ")
    assert not series.exists()


@pytest.mark.parametrize("name", ["day.csv", "day.csv.gz"])
def test_a_real_trace_shapes_the_day(tmp_path, name):
    text = "time,value\n" + "".join(f"{i},{i % 3 + 1}\n" for i in range(50))
    path = tmp_path / name
    path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    shaped = run("queues", "--law", "greedy-band", "--trace", str(path), "--column", "value")
    assert shaped["results"] != run("queues", "--law", "greedy-band")["results"]


def test_a_traces_header_may_have_a_byte_order_mark_and_spaces(tmp_path):
    rows = "".join(f"{i},{i % 3 + 1}\n" for i in range(50))
    answers = []
    for header in ("time,value", "\ufefftime, value", "\ufeffvalue,time"):
        path = tmp_path / "day.csv"
        path.write_text(f"{header}\n{rows}")
        column = "time" if header.endswith("time") else "value"
        answers.append(run("crash", "--law", "thesis", "--trace", str(path), "--column", column)["results"])
    assert answers[0] == answers[1] == answers[2]


def test_a_damaged_trace_is_refused(tmp_path):
    path, packed = tmp_path / "day.csv.gz", bytearray(gzip.compress(b"value\n" + b"1\n2\n3\n7\n" * 300))
    packed[20:25] = b"weird"
    path.write_bytes(packed)
    code, out, err = lab("run", "crash", "--trace", str(path), "--column", "value")
    assert (code, out) == (2, "") and err.startswith("--trace: ") and err.count("\n") == 1


def written(tmp_path, values):
    path = tmp_path / "trace.csv"
    path.write_text("value\n" + "".join(f"{value}\n" for value in values))
    return str(path)


SHORT = {
    "shedding": ["--set", "seconds=600", "--set", "interval_seconds=20"],
    "elasticity": ["--set", "compression=1000", "--set", "days=2", "--set", "interval_seconds=10"],
}
IDLE = {"in the middle": [9.0] * 20 + [0.0] * 40 + [5.0] * 20, "but for one value": [0.0] * 30 + [7.0] + [0.0] * 40}


@pytest.mark.sweep(4)
@pytest.mark.parametrize("shape", IDLE)
@pytest.mark.parametrize(
    "scenario", ["manager", "queues", "crash", "flow", "balance", "shedding", "elasticity", "ladder"]
)
def test_every_law_of_a_scenario_takes_a_trace_with_an_idle_window(tmp_path, scenario, shape):
    trace = written(tmp_path, IDLE[shape])
    document = run(scenario, "--trace", trace, "--column", "value", *SHORT.get(scenario, []))
    scenarios = json.loads(lab("list", "--json")[1])["scenarios"]
    assert list(document["results"]) == scenarios[scenario]["laws"]


def test_a_trace_is_scaled_so_that_its_maximum_is_the_scenarios(tmp_path):
    # More rows than steps: the highest lies between two of them.
    trace, series = written(tmp_path, [1.0] * 30_001 + [7.0] + [2.0] * 20_000), tmp_path / "series.csv"
    run("manager", "--law", "static", "--trace", trace, "--column", "value", "--series", str(series))
    rates = [float(line.split(",")[2]) for line in series.read_text().splitlines()[1:]]
    # The scenario's own sine reaches max_rate too.
    own = tmp_path / "own.csv"
    run("manager", "--law", "static", "--series", str(own))
    assert max(rates) == max(float(line.split(",")[2]) for line in own.read_text().splitlines()[1:])


@pytest.mark.parametrize(
    ("field", "arguments"),
    [
        ("SCENARIO", ["weather"]),
        ("--law", ["queues", "--law", "luck"]),
        ("--set configuration", ["queues", "--set", "configuration=5"]),
        ("--set colour", ["queues", "--set", "colour=1"]),
        ("--set", ["queues", "--set", "noise"]),
        ("--set noise", ["queues", "--set", "noise=nan"]),
        ("--set", ["queues", "--set", "noise=1", "--set", "noise=1"]),
        ("--seed", ["queues", "--seed", "-1"]),
        ("--trace", ["queues", "--trace", "nowhere.csv", "--column", "x"]),
        ("--column", ["queues", "--column", "x"]),
        # As a shell writes it where a variable is empty: no other run than the one that was asked for.
        ("--trace", ["crash", "--trace", "", "--column", "x"]),
        ("--html", ["crash", "--html", ""]),
        ("--html", ["crash", "--html", "/tmp"]),
        *(("--set p", ["concurrency", "--law", law, "--set", "p=0.17"]) for law in ("tcc", "aimd", "envoy")),
    ],
)
def test_bad_input_ends_with_2_and_one_line_that_names_the_field(field, arguments):
    code, out, err = lab("run", *arguments)
    assert (code, out) == (2, "")
    assert err.startswith(f"{field}: ") and err.count("\n") == 1


def test_a_figure_answers_with_the_paper_s_values_and_ours():
    code, out, err = lab("figure", "houtman-figures-b-18-to-b-19", "--seeds", "2", "--seed", "3", "--json")
    assert (code, err) == (0, "")
    document = json.loads(out)
    assert (document["seed"], document["seeds"], document["scenario"]) == (3, 2, "crash")
    (row,) = (row for row in document["values"] if (row["metric"], row["run"]) == ("seconds_to_divert", "thesis"))
    assert (row["low"], row["high"]) == (0.0, 5.0) and row["band"][0] <= row["ours"] <= row["band"][1]
    assert document["agreeing"] == document["reported"] == 2


@pytest.mark.parametrize(
    ("field", "arguments"),
    [
        ("FIGURE", ["figure", "weather"]),
        ("--law", ["figure", "xu-figure-6", "--law", "pi"]),
        ("--seeds", ["figure", "xu-figure-6", "--seeds", "0"]),
        ("--seeds", ["run", "flow", "--seeds", "2"]),
        ("--seeds", ["list", "--seeds", "2"]),
    ],
)
def test_an_option_of_another_command_is_refused(field, arguments):
    code, out, err = lab(*arguments)
    assert (code, out) == (2, "") and err.startswith(f"{field}: ")


def test_the_shipped_loops_are_refused_for_a_scenario_without_them(monkeypatch):
    monkeypatch.setattr(catalog, "find_shipped_runs", dict)
    code, out, err = lab("run", "crash", "--shipped")
    assert (code, out) == (2, "") and err.startswith("--shipped: is not available for the scenario crash yet")


def test_the_shipped_loops_add_a_result_beside_the_laws(monkeypatch):
    outcome = ScenarioOutcome({"events_lost": 7})
    shipped = catalog.ShippedRun(SCENARIOS["crash"], lambda settings, seed, trace: outcome)
    monkeypatch.setattr(catalog, "find_shipped_runs", lambda: {"crash": shipped})
    results = run("crash", "--law", "rebalancing", "--shipped")["results"]
    assert list(results) == ["rebalancing", "shipped"] and results["shipped"] == {"events_lost": 7}
