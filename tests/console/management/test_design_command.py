"""`manage.py design`, to the contract: documents and CSV files in, designs out, bad input by name."""

import gzip
import io
import json
import sys

import numpy as np
import pytest
from django.core.management import call_command


def run(monkeypatch, text, *arguments):
    """Exit code, output, error of the command with the text on standard input."""
    monkeypatch.setattr(sys, "stdin", io.StringIO(text))
    out, err = io.StringIO(), io.StringIO()
    try:
        call_command("design", *arguments, stdout=out, stderr=err)
    except SystemExit as end:
        return end.code, out.getvalue(), err.getvalue()
    return 0, out.getvalue(), err.getvalue()


def answer(monkeypatch, text, *arguments):
    code, out, err = run(monkeypatch, text, *arguments)
    assert (code, err) == (0, "")
    return json.loads(out)


NETWORK = '{"stations": [{"name": "a", "service_seconds": %s, "visits": %s}], "customers": 3, "think_seconds": %s}'


def series(rows=300):
    chance = np.random.default_rng(2)
    u, y = chance.uniform(0, 10, rows), [0.0]
    for each in u[:-1]:
        y.append(0.985 * y[-1] - 134 * each + 5 * chance.standard_normal())
    return "u,y\n" + "".join(f"{one},{other}\n" for one, other in zip(u, y, strict=True))


def test_place_and_check_say_the_same_of_the_same_gains(monkeypatch):
    model = {"a": 0.985, "b": -134, "delay": 1}
    placed = answer(monkeypatch, json.dumps(model | {"poles": [0.55, [0.45, 0], 0.3]}), "place", "-")
    gains = {key: placed[key] for key in ("kp", "ki", "kd")}
    checked = answer(monkeypatch, json.dumps(model | gains | {"form": "i-p"}), "check", "-")
    assert checked == placed
    promised = {"spectral_radius", "stable", "settling_samples", "overshoot", "gain_margin"}
    assert placed.keys() == promised | gains.keys()


def test_a_regulator_comes_with_its_gain_cost_and_radius(monkeypatch):
    document = {"A": [[1]], "B": [[1]], "Q": [[1]], "R": [[1]]}
    found = answer(monkeypatch, json.dumps(document), "lqr", "-")
    golden = (1 + 5**0.5) / 2
    assert found["X"] == [[pytest.approx(golden)]] and found["K"] == [[pytest.approx(golden / (1 + golden))]]
    assert found["spectral_radius"] == pytest.approx(1 - golden / (1 + golden))


@pytest.mark.parametrize("suffix", [".csv", ".csv.gz"])
def test_a_model_is_identified_from_a_file(monkeypatch, tmp_path, suffix):
    path = tmp_path / f"run{suffix}"
    path.write_bytes(gzip.compress(series().encode()) if suffix.endswith("gz") else series().encode())
    found = answer(monkeypatch, "", "identify", str(path))
    assert found["a"] == pytest.approx(0.985, abs=0.001) and found["b"] == pytest.approx(-134, rel=0.01)
    assert found["samples"] == 299 and found["r2"] > 0.999
    assert found["residual_std"] == pytest.approx(5, rel=0.2)
    assert answer(monkeypatch, series(), "identify", "-") == found


@pytest.mark.parametrize("header", ["\ufeffu,y\n", "u, y\n", "\ufeff u ,\ty\n"])
def test_a_header_may_have_a_byte_order_mark_and_spaces(monkeypatch, tmp_path, header):
    text = series().replace("u,y\n", header)
    found = answer(monkeypatch, text, "identify", "-")
    assert found == answer(monkeypatch, series(), "identify", "-")
    path = tmp_path / "run.csv.gz"
    path.write_bytes(gzip.compress(text.encode()))
    assert answer(monkeypatch, "", "identify", str(path)) == found


def test_a_damaged_file_is_refused(monkeypatch, tmp_path):
    path, packed = tmp_path / "run.csv.gz", bytearray(gzip.compress(series().encode()))
    packed[40:60] = bytes(20)
    path.write_bytes(packed)
    code, out, err = run(monkeypatch, "", "identify", str(path))
    assert (code, out) == (2, "") and err.startswith("FILE: ") and err.count("\n") == 1


@pytest.mark.parametrize("name", ["identify", "place"])
def test_a_closed_standard_input_is_refused(monkeypatch, name):
    monkeypatch.setattr(sys, "stdin", None)
    out, err = io.StringIO(), io.StringIO()
    with pytest.raises(SystemExit) as end:
        call_command("design", name, "-", stdout=out, stderr=err)
    assert end.value.code == 2 and err.getvalue().startswith("FILE: standard input is closed")


@pytest.mark.parametrize(
    ("field", "text", "arguments"),
    [
        ("y", "u\n1\n", ["identify", "-"]),
        ("y", "u,y, y\n1,2,3\n", ["identify", "-"]),
        ("rows", "u,y\n1,2\n2,3\n", ["identify", "-"]),
        ("u", "u,y\n" + "1,{}\n" * 20, ["identify", "-"]),
        ("FILE", "u,y\n1,2\n1\n", ["identify", "-"]),
        ("FILE", "", ["identify", "/nowhere.csv"]),
        ("--delay", "", ["identify", "-", "--delay=99"]),
        ("poles", '{"a": 1, "b": 1}', ["place", "-"]),
        ("a", '{"a": NaN}', ["check", "-"]),
        ("NAME", "", ["sorcery"]),
        ("b", '{"a": 0.9, "b": 1e-320, "poles": [0.5, 0.4]}', ["place"]),
        ("a", '{"a": 1e-300, "b": 1, "poles": [0.5, 0.4, 0.3]}', ["place"]),
        ("stations[0].service_seconds", NETWORK % ("1e-310", 1, 0), ["network"]),
        ("think_seconds", NETWORK % (1, 1, "1e-320"), ["network"]),
    ],
)
def test_bad_input_ends_with_2_and_one_line_that_names_the_field(monkeypatch, field, text, arguments):
    text = text.format(*range(20)) if "{}" in text else text
    code, out, err = run(monkeypatch, text, *arguments)
    assert (code, out) == (2, "")
    assert err.startswith(f"{field}: ") and err.count("\n") == 1
