"""The library of declared plants: the commands that each example asks to allow suffice for its calls."""

import re

import pytest

from common.errors import Forbidden
from workers.plants.foreign.declared.call import check_allowed
from workers.plants.foreign.declared.declaration import parse_declaration
from workers.plants.foreign.declared.examples import EXAMPLES

ASKED = re.compile(r'WEIR_PLANT_COMMANDS=(?:"([^"]*)"|(\S+))')


def asked_for(text):
    comment = " ".join(line.removeprefix("#").strip() for line in text.splitlines() if line.startswith("#"))
    found = ASKED.search(comment)
    return (found[1] or found[2]) if found else ""


@pytest.mark.parametrize("name", EXAMPLES)
def test_what_an_example_asks_to_be_allowed_suffices_for_its_calls(name, monkeypatch, tmp_path):
    monkeypatch.setenv("WEIR_PLANT_COMMANDS", asked_for(EXAMPLES[name]))
    monkeypatch.setenv("WEIR_PLANT_FILES", str(tmp_path))
    parse_declaration(re.sub("/var/lib/(scan|spark)/", f"{tmp_path}/", EXAMPLES[name]))


def test_who_allows_a_command_without_its_option_is_shown_the_option(monkeypatch):
    monkeypatch.setenv("WEIR_PLANT_COMMANDS", "/usr/local/bin/scan-workers")
    with pytest.raises(Forbidden, match=r"each option must be listed there \(--read=2\)"):
        check_allowed(["/usr/local/bin/scan-workers", "--read=2"], "command")
