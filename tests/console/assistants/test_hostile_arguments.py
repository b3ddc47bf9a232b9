"""Whatever a model sends as arguments, a tool answers with a sentence, and never with a traceback."""

import asyncio
import logging
import re
from typing import Any

import pytest

from console.api.request.calls import RequestRejected
from console.assistants.server import ToolError, build_server
from tests.console.assistants.test_tools import LOOP
from tests.console.assistants.test_tools import assistant as assistant
from tests.console.assistants.test_tools import loop as loop
from tests.console.assistants.test_tools import tools as tools

pytestmark = pytest.mark.django_db(transaction=True)
MANY = 20_000


def nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = {"value": value}
    return value


SILENCE = {"minutes": 5, "matchers": [{"label": "queue", "is": "=", "value": "alert"}] * MANY}
HOSTILE = {
    "what_if of many values": ("what_if", {"loop": LOOP, "values": {f"v{n}": 1.0 for n in range(MANY)}}),
    "what_if of a long name": ("what_if", {"loop": LOOP, "values": {"v" * 200_000: 1.0}}),
    "what_if of no number": ("what_if", {"loop": LOOP, "values": {"upper_limit": "NaN"}}),
    "what_if of a list": ("what_if", {"loop": LOOP, "values": [1.0] * MANY}),
    "what_if of depth": ("what_if", {"loop": LOOP, "values": nested(500)}),
    "propose many values": (
        "propose",
        {"act": "override", "arguments": {f"v{n}": n for n in range(MANY)}, "reason": "x"},
    ),
    "propose many matchers": ("propose", {"act": "silence", "arguments": SILENCE, "reason": "x"}),
    "propose depth": ("propose", {"act": "override", "arguments": nested(500), "reason": "x"}),
    "propose a huge number": ("propose", {"act": "hold", "arguments": {"minutes": 10**400}, "reason": "x"}),
    "propose a long reason": ("propose", {"act": "hold", "arguments": {"loop": LOOP}, "reason": "x" * 3_000_000}),
    "propose a surrogate": ("propose", {"act": "hold", "arguments": {"loop": "\ud800"}, "reason": "x"}),
    "a huge number": ("proposal", {"number": 10**400}),
    "a long number": ("proposal", {"number": "9" * 5_000}),
    "a long subject": ("subject", {"kind": "node", "name": "n" * 1_000_000}),
    "a surrogate": ("subject", {"kind": "node", "name": "\ud800"}),
    "no rows": ("search_ledger", {"rows": 10**400}),
    "an alert of a size": ("what_changed", {"alert": 10**400}),
    "an alert that is a list": ("what_changed", {"alert": [1] * MANY}),
    "a tool that is none": ("x" * 1_000, {}),
    "what_if of a name that no database stores": ("what_if", {"loop": LOOP, "values": {"\ud800": 1.0}}),
    "an argument that is none": ("plant_state", {f"v{n}": n for n in range(MANY)}),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_a_hostile_argument_is_answered_by_a_sentence(case, tools, loop, caplog):
    name, arguments = HOSTILE[case]
    with caplog.at_level(logging.WARNING):
        try:
            answer = asyncio.run(build_server(tools).call_tool(name, arguments))
            said = str(answer)
        except ToolError as error:
            said = str(error)
    assert not [record for record in caplog.records if record.exc_info]
    # A library that hides an error of ours says no more than "Error executing tool NAME".
    assert not re.fullmatch(r"Error executing tool \w+", said)
    assert "Traceback" not in said and len(said) < 3_000


def test_too_many_values_are_refused_by_the_field_with_both_numbers(tools, loop):
    with pytest.raises(RequestRejected, match="values: must have at most 100 values, not 20,000"):
        tools.what_if(LOOP, {f"v{number}": 1.0 for number in range(MANY)})


@pytest.mark.parametrize("path", ["/api/v1/loops", "/login/", "/nowhere/", "/mcp/x"])
def test_an_address_with_too_many_parameters_is_refused_without_a_traceback(path, client, caplog):
    with caplog.at_level(logging.WARNING):
        answer = client.get(f"{path}?{'&'.join(['a=1'] * 1_001)}")
    assert answer.status_code == 400 and b"must have at most 1,000 parameters" in answer.content
    assert not [record for record in caplog.records if record.exc_info]
