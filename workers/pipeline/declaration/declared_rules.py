"""Parses declared rules; `declaration` describes their syntax."""

import re
from pathlib import Path
from typing import Any

from common import checks
from common.errors import BadInput
from workers.pipeline.declaration import fields
from workers.pipeline.rules.reference import ReferenceTable, get_table_path
from workers.pipeline.rules.rule_language import MAX_CHARACTERS
from workers.pipeline.rules.rules import Cleanse, Enrich, Filter, Project, Rule, Sample

COLUMN = re.compile(r"\A[A-Za-z]\w{0,63}\Z", re.ASCII)
MAX_EXPRESSIONS = 64
RULES = ("discard", "keep", "project", "enrich", "sample", "cleanse")


def read_rule(document: Any, where: str, folder: Path) -> Rule:
    fields.check_mapping(document, where, ("name", *RULES), required=("name",))
    name = fields.validate_text(document["name"], f"{where}.name")
    kinds = [key for key in document if key != "name"]
    if len(kinds) != 1:
        found = f", not {', '.join(kinds)}" if kinds else "; it has none"
        raise BadInput(where, f"must have exactly one of {', '.join(RULES)}{found}")
    kind, value = kinds[0], document[kinds[0]]
    if kind in ("discard", "keep"):
        return Filter(name, fields.validate_text(value, f"{where}.{kind}", MAX_CHARACTERS), kind == "discard")
    if kind == "sample":
        return _sample(name, value, f"{where}.sample")
    if kind == "cleanse":
        return Cleanse(name, _parse_expressions(value, f"{where}.cleanse"))
    if kind == "project":
        return _project(name, value, f"{where}.project")
    return _parse_enrichment(name, value, f"{where}.enrich", folder)


def _project(name: str, document: Any, where: str) -> Project:
    fields.check_mapping(document, where, ("compute", "drop"), required=())
    compute = _parse_expressions(document.get("compute", {}), f"{where}.compute")
    drop = [
        fields.validate_name(column, f"{where}.drop", COLUMN)
        for column in fields.validate_items(document.get("drop", []), f"{where}.drop", 0)
    ]
    return Project(name, compute, tuple(drop))


def _sample(name: str, value: Any, where: str) -> Sample:
    checks.accept_greater_than(0, 1, "a share").validate(value, where)
    return Sample(name, float(value))


def _parse_expressions(document: Any, where: str) -> dict[str, str]:
    expressions_by_column: dict[str, str] = fields.validate_pairs(
        document, where, "column: expression", MAX_EXPRESSIONS
    )
    for column, text in expressions_by_column.items():
        fields.validate_name(column, where, COLUMN)
        fields.validate_text(text, f"{where}.{column}", MAX_CHARACTERS)
    return expressions_by_column


def _parse_enrichment(name: str, document: Any, where: str, folder: Path) -> Enrich:
    fields.check_mapping(
        document, where, ("table", "using", "by", "columns"), required=("table", "using", "by", "columns")
    )
    columns = [
        fields.validate_name(column, f"{where}.columns", COLUMN)
        for column in fields.validate_items(document["columns"], f"{where}.columns")
    ]
    path = get_table_path(folder, fields.validate_text(document["table"], f"{where}.table"), f"{where}.table")
    by = fields.validate_text(document["by"], f"{where}.by")
    using = fields.validate_name(document["using"], f"{where}.using", COLUMN)
    table = ReferenceTable.open(path, by, tuple(columns), f"{where}.table")
    return Enrich(name, using, table)
