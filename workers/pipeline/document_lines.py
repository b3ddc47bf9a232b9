"""Where in a YAML text a field stands: `rules[0].enrich.table` → its line, for messages and editors."""

import re

import yaml

_STEP = re.compile(r"\[(?P<place>\d+)\]|(?P<name>[^.\[\]]+)")


def line_of(text: str, field: str) -> int:
    """The line (from 1) of a field, or of the innermost part of it that is there."""
    node = yaml.compose(text, Loader=yaml.SafeLoader)
    line = 1
    for step in _STEP.finditer(field):
        found = _inside(node, step)
        if found is None:
            break
        line, node = found
    return line


def _inside(node: yaml.Node | None, step: re.Match) -> tuple[int, yaml.Node] | None:
    """(line, node) of one step, where there is one."""
    if step["place"] is not None:
        items = node.value if isinstance(node, yaml.SequenceNode) else []
        place = int(step["place"])
        return (items[place].start_mark.line + 1, items[place]) if place < len(items) else None
    pairs = node.value if isinstance(node, yaml.MappingNode) else []
    for key, value in pairs:
        if key.value == step["name"]:
            return key.start_mark.line + 1, value
    return None
