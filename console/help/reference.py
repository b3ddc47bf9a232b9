"""The generated pages: made from the declarations themselves, so they can't differ from them.

A value's name, unit, default, range, and help text are at its declaration (`common.parameter`); here
they become tables. The map is ARCHITECTURE.md.
"""

import ast
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path

from django.conf import settings

from common import environment as variables
from common.parameter import Parameter
from console.help import documents, glossary
from controllers.catalog import LAWS
from controllers.framework import guard
from controllers.framework.law import Law
from controllers.simulation.catalog import SCENARIOS
from queues import keys
from workers.alerts.conditions.catalog import CONDITIONS
from workers.alerts.rules.rules import FIRST_RULES, NUMBERS
from workers.consumer.registry import HANDLERS
from workers.control.kinds import registry
from workers.pipeline.rules.rule_functions import FUNCTIONS
from workers.steering.plant_settings import DECLARED

NUMERIC = ("number", "integer", "numbers", "table")


@cache
def build_pages() -> Mapping[str, str]:
    """Return every generated page: source → Markdown."""
    links = "\n".join(f"- [{title}]({page})" for page, (title, _) in PAGES.items())
    return {
        "reference/index.md": "# Reference\n\nThese pages are generated from the program each time the documentation is"
        f" built. The HTTP API describes itself: `/api/schema` is its OpenAPI document.\n\n{links}\n",
        **{f"reference/laws/{name}.md": build_law_page(law) for name, law in LAWS.items()},
        **{f"reference/{page}": build() for page, (_, build) in PAGES.items()},
        "understand/map.md": build_map_page(),
        "glossary.md": glossary.build_page(),
    }


def build_laws_index() -> str:
    rows = []
    for name, law in LAWS.items():
        documented = inspect.getdoc(inspect.getmodule(type(law))) or ""
        first_paragraph = " ".join(documented.split("\n\n")[0].split())
        rows.append((f"[{name}]({name}.md)", first_paragraph, f"`{law.actuator or '-'}`"))
    return "# Control laws\n\n" + format_table(("Law", "Decision", "Actuator"), rows)


def build_law_page(law: Law) -> str:
    steered = f"Its actuator is `{law.actuator}`." if law.actuator else "Its action is not a single number."
    return "\n".join(
        (
            f"# Law {law.name}\n",
            f"{inspect.getdoc(inspect.getmodule(type(law)))}\n",
            f"{steered} Try it with `manage.py decide {law.name}`.\n",
            "## Parameters\n",
            build_parameter_table(law.parameters),
            "## Guard\n",
            "A guard limits the actions of the law. Override its settings as `guard.NAME`.\n",
            build_parameter_table(guard.list_guard_settings(law), law.guard_defaults),
            "## Observation\n",
            build_parameter_table(law.observation),
        )
    )


def build_loops_page() -> str:
    heads = ("Law", "Scope", "Purpose", "Measures", "Sets", "Interval", "Initial mode")
    rows = (
        (
            f"[{name}](laws/{name}.md)",
            kind.display.of_each,
            kind.display.purpose,
            kind.display.lanes.measured,
            kind.display.lanes.actuator,
            f"{kind.interval_seconds} s",
            str(kind.defaults.mode),
        )
        for name, kind in registry.KINDS.items()
    )
    return (
        "# Control loops\n\nCommon properties, and who may set what: "
        "[kinds of loops](../understand/how/kinds-of-loops.md).\n\n" + format_table(heads, rows)
    )


def build_parameter_table(declared: Sequence[Parameter], defaults: Mapping[str, object] | None = None) -> str:
    """Return a table of declared values; `defaults` replace their own."""
    rows = (
        (
            f"`{parameter.name}`",
            parameter.help,
            _format_default((defaults or {}).get(parameter.name, parameter.default), parameter),
            _takes(parameter),
        )
        for parameter in declared
    )
    return format_table(("Name", "Meaning", "Default", "Allowed values"), rows)


def _format_default(value: object, declared: Parameter) -> str:
    if value is None:
        return "required" if declared.required else "-"
    return f"`{format_number(value)}`" if isinstance(value, float) else f"`{value}`"


def format_number(value: float) -> str:
    """Return a number written out if it is whole and short enough to be read: 400,000,000."""
    return f"{value:,.0f}" if abs(value) < 1e15 and value == round(value) else f"{value:g}"


def _takes(declared: Parameter) -> str:
    if declared.kind in NUMERIC:
        numbers = f"{format_number(declared.minimum)} to {format_number(declared.maximum)}"
        return numbers if declared.unit in ("1", numbers) else f"{numbers} {declared.unit}".strip()
    inner = ", ".join(f"`{item.name}`" for item in declared.items)
    said = declared.takes().removeprefix("must be ")
    return f"{said}: {inner}" if inner and declared.kind != "map" else said


def build_alert_rules_page() -> str:
    defaults = {number_field.name: number_field.default for number_field in NUMBERS}
    rows = (
        (
            f"[{name}](../operate/alerts/{name}.md)",
            f"`{rule['condition']}` {'≥' if CONDITIONS[rule['condition']].above else '≤'} "
            f"{rule['threshold']:g} {CONDITIONS[rule['condition']].unit}",
            f"{rule['clear_threshold']:g}",
            f"{rule.get('for_seconds', defaults['for_seconds']):g} s",
            rule.get("severity", "warning"),
        )
        for name, rule in FIRST_RULES.items()
    )
    heads = ("Rule", "Fires", "Clears at", "Duration", "Severity")
    return (
        "# Alert rules\n\nA plant starts with these rules; users change them under *Alerts, Rules*.\n\n"
        + format_table(heads, rows)
        + "\n## Numeric fields of a rule\n\n"
        + build_parameter_table(NUMBERS)
    )


def build_conditions_page() -> str:
    rows = (
        (f"`{condition.name}`", condition.help, condition.unit or "-", condition.label or "the plant", condition.source)
        for condition in CONDITIONS.values()
    )
    return "# Alert conditions\n\n" + format_table(("Condition", "Meaning", "Unit", "Subject", "Source"), rows)


def build_handlers_page() -> str:
    modules = {name: inspect.getmodule(make) for name, make in HANDLERS.items()}
    told = (f"## {name}\n\n{inspect.getdoc(module)}\n" for name, module in modules.items())
    return (
        "# Handlers\n\nThe `handler` of a jobs queue is a name from this page, or `python:dotted.path` of a"
        " callable ([how to write one](../extend/a-handler.md)).\n\n" + "\n".join(told)
    )


def build_rule_functions_page() -> str:
    rows = ((f"`{name}`", function.takes()) for name, function in sorted(FUNCTIONS.items()))
    return (
        "# Functions of pipeline rules\n\nThe functions have the semantics of Spark SQL and process one event"
        " at a time. `in_subnet(address, '10.0.0.0/8')` is specific to Weir.\n\n"
        + format_table(("Function", "Arguments"), rows)
    )


def build_scenarios_page() -> str:
    told = (
        f"## {scenario.name}\n\n{scenario.about}\n\nLaws: {', '.join(scenario.laws)}. "
        f"Metrics: {', '.join(scenario.metrics)}.\n\n{build_parameter_table(scenario.settings)}"
        for scenario in SCENARIOS.values()
    )
    return "# Scenarios of the lab\n\n`manage.py lab run NAME` runs a scenario.\n\n" + "\n".join(told)


def build_commands_page() -> str:
    console = Path(__file__).resolve().parents[1]
    files = [path for path in console.glob("**/management/commands/*.py") if path.stem != "__init__"]
    told = {file.stem: ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) for file in files}
    rows = ((f"`{name}`", " ".join((text or "").split("\n\n")[0].split())) for name, text in sorted(told.items()))
    return (
        "# Commands\n\n`manage.py NAME --help` lists the options. Input and output are JSON documents; exit"
        " status 0: done, 1: failed, 2: invalid input.\n\n" + format_table(("Command", "Purpose"), rows)
    )


def build_plant_settings_page() -> str:
    return (
        "# Settings of the plant\n\nUnder *Settings, Plant*; administrators change them.\n\n"
        + build_parameter_table(DECLARED)
    )


def build_environment_page() -> str:
    rows = ((f"`{name}`", default, meaning) for name, default, meaning in variables.iterate_reference_rows())
    return (
        "# Environment variables\n\nAn empty variable counts as not set. Handlers, receivers, and "
        "plants name the variables of their secrets, `WEIR_SECRET_…` or `WEIR_…_TOKEN`. The passwords of"
        " the servers' users are in `WEIR_PASSWORD_…`.\n\n" + format_table(("Variable", "Default", "Meaning"), rows)
    )


def build_keys_page() -> str:
    """Return every key on the control server, then those of a queue on its nodes (`queues.keys`)."""
    heads = ("Key", "Type", "Written by", "Read by", "Content")
    parts = []
    for title, on_nodes in (("On the control server", False), ("On a queue's nodes", True)):
        rows = (
            (f"`{key}`", key.kind, ", ".join(key.writers), ", ".join(key.readers), key.holds)
            for key in keys.KEYS
            if key.on_nodes is on_nodes
        )
        parts.append(f"## {title}\n\n{format_table(heads, rows)}")
    return (
        "# Keys on the servers\n\nProcesses of other versions use these names, so a released name does not"
        " change. The roles are the servers' users.\n\n" + "\n".join(parts)
    )


def list_stored_documents() -> str:
    heads = ("Key", "Value", "Meaning", "If absent")
    tables = (
        f"## {kind.cls.__name__}\n\n{documents.describe_document(kind)}\n\n"
        f"{format_table(heads, documents.iterate_field_rows(kind))}"
        for kind in documents.iterate_document_types()
    )
    return (
        "# Documents\n\nProcesses exchange these documents through the control server, as JSON. Unknown is"
        " null, never 0. A reader ignores unknown keys, and has a default for each key that an older"
        " process omits.\n\n" + "\n".join(tables)
    )


def build_map_page() -> str:
    """Return ARCHITECTURE.md, its links relative to docs/understand/."""
    text = (Path(settings.BASE_DIR) / "ARCHITECTURE.md").read_text(encoding="utf-8")
    return text.replace("](docs/understand/", "](").replace("](docs/", "](../")


def format_table(heads: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a Markdown table; vertical bars in cells are escaped."""
    lines = [heads, ["---"] * len(heads), *rows]
    cells = ([str(cell).replace("|", "\\|").replace("\n", " ") for cell in line] for line in lines)
    return "".join(f"| {' | '.join(line)} |\n" for line in cells)


# Page → its title in the index, and the function that makes it.
PAGES: Mapping[str, tuple[str, Callable[[], str]]] = {
    "laws/index.md": ("Control laws: parameters, guard settings, observations", build_laws_index),
    "loops.md": ("Control loops: their subjects, what they set, how often", build_loops_page),
    "alert-rules.md": ("The initial alert rules of a plant", build_alert_rules_page),
    "conditions.md": ("Alert conditions: what a rule can watch", build_conditions_page),
    "handlers.md": ("Handlers of jobs queues and their options", build_handlers_page),
    "rule-functions.md": ("Functions of pipeline rules", build_rule_functions_page),
    "scenarios.md": ("Scenarios of the lab", build_scenarios_page),
    "commands.md": ("Commands of manage.py", build_commands_page),
    "plant-settings.md": ("Settings of the plant", build_plant_settings_page),
    "environment.md": ("Environment variables", build_environment_page),
    "keys.md": ("Keys on the servers: their writers and readers", build_keys_page),
    "documents.md": ("Documents that processes exchange", list_stored_documents),
}
