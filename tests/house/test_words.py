"""One term for one thing: no text that people read, and no public name, uses a retired term.

`docs/glossary.md` says which term is used instead. Texts are what templates show, the sentences of static/js
and of Python, its docstrings and comments, and the documentation. Names are those of modules, classes,
functions and what classes hold, of tests and benches too; helpers of tests are free. A stored name in
`backquotes` is no word.
"""

import ast
import io
import re
import tokenize
from collections.abc import Collection, Iterator
from pathlib import Path

from tests.house import sources

ROOT = Path(__file__).parents[2]
PACKAGES = ("queues", "controllers", "workers", "console")

# Terms that no sentence needs; as words of their own.
RETIRED_IN_TEXTS = (
    r"deeds?|hindrances?|sights?|foresight|foresees?|foreseen|prospects?|relief|optimum|rungs?|seats?|desks?"
    r"|portions?|fates?|bury|buried|buries|survey(s|ed)?|trickles?|told|tells?|tellers?|telling|standing"
    r"|couriers?|moments?|looks?|looked|wakes?|woken|troubles?|troubled|quiet|spared|concerning|offered work"
    r"|misfit|unfit|fits?|gravest|(?<!dead )letters(?!, digits)|turned round|finders?|state machines?"
)
# Words of plain English that docstrings and comments may use beside their retired meaning.
ORDINARY = {"fit", "fits", "quiet", "optimum", "moments", "look", "looks"}
RETIRED_IN_NAMES = {
    *("deed", "deeds", "hindrance", "hindrances", "sight", "sights", "foresight", "foreseen", "foresee"),
    *("prospect", "prospects", "relief", "optimum", "remedies", "seat", "seats", "desk", "desks", "portion"),
    *(
        "portions",
        "fate",
        "fates",
        "bury",
        "buried",
        "survey",
        "surveys",
        "surveyed",
        "trickle",
        "told",
        "tell",
    ),
    *("tells", "teller", "telling", "standing", "courier", "moment", "moments", "look", "looks", "looked"),
    *("wake", "wakes", "woken", "trouble", "troubled", "quiet", "kept", "spared", "concerning", "concerns"),
    *("misfit", "unfit", "machine", "machines", "way", "ways", "turn", "turns", "finder", "finders", "rung"),
    *("rungs",),
}
# Words of plain English that private names and names of tests may use beside their retired meaning.
ORDINARY_IN_NAMES = {"kept", "way", "ways", "turn", "turns"}
# What stays, and what replaces the retired.
TERMS = (
    *(
        "law",
        "loop",
        "points",
        "container",
        "block",
        "segment",
        "plan",
        "ledger",
        "guard",
        "override",
        "hold",
    ),
    *("recent actions", "stall reason", "inputs", "forecast", "predicted throughput", "greedy rebalancer"),
    *("MILP rebalancer", "action summary", "remedy ladder", "level", "chunk lease", "batch assignment"),
    *("shed decision", "dead letter", "scan", "anti-stall admission", "notify", "open alerts", "worst first"),
    *("dispatcher", "timestamp", "check", "timer", "last error", "suppression interval", "control keys"),
    *("relevant", "offered load", "valid", "automaton", "branch", "matcher"),
)
# Where a word has another, honest meaning, or stands for something stored or published under it.
ALLOWED_TEXTS = {
    "workers/batch/catalog.py": "moments",  # of a distribution
    "console/management/commands/lab.py": "rungs",  # the lab's metric, part of the contract
}
ALLOWED_NAMES = {
    "told_from",  # a column of alerts
    "tells_resolved",  # a column of receivers
    "looked_at",  # a column of the alerts' watch
    "spared_keys_share",  # a key of the pipeline's controls
    "under_way",  # work in progress
    # Keys of stored and published documents.
    *("deeds", "hindrance", "trouble", "quiet", "quiet_until", "spared", "kept_per_second"),
    "machine",  # the computer of a bench
    "STATICFILES_FINDERS",  # a setting of Django
}


def words_of(name: str) -> list[str]:
    """DeadLetter, dead_letter and DEAD_LETTER as their words."""
    return [word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)]


def modules() -> Iterator[Path]:
    for package in PACKAGES:
        yield from (path for path in (ROOT / package).rglob("*.py") if "migrations" not in path.parts)


def docstrings(nodes: tuple[ast.AST, ...]) -> set[ast.AST]:
    found = set()
    for node in nodes:
        body = getattr(node, "body", None)
        if isinstance(body, list) and body and isinstance(body[0], ast.Expr):
            found.add(body[0].value)
    return found


def sentences(nodes: tuple[ast.AST, ...]) -> Iterator[tuple[int, str]]:
    """String literals of two words or more, with the constant parts of f-strings joined."""
    skip = docstrings(nodes)
    for node in nodes:
        if node in skip:
            continue
        if isinstance(node, ast.JoinedStr):
            skip |= {part for part in node.values if isinstance(part, ast.Constant)}
            text = "…".join(part.value for part in node.values if isinstance(part, ast.Constant))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            text = node.value
        else:
            continue
        if re.search(r"[a-zA-Z…] [a-zA-Z…]", text):
            yield node.lineno, text


def explanations(path: Path) -> Iterator[tuple[int, str]]:
    """Docstrings and comments, without what they quote."""
    for node in docstrings(sources.nodes(path)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, unquoted(node.value)
    for token in tokenize.generate_tokens(io.StringIO(path.read_text()).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], unquoted(token.string)


def unquoted(text: str) -> str:
    """The text without `stored_names` and "stored values"."""
    return re.sub(r'`[^`]*`|"\w+"', "…", text)


def visible(template: str) -> str:
    """What a template shows: its text, and the attributes that are read out or shown."""
    text = re.sub(
        r"\{#.*?#\}|<script.*?</script>|<style.*?</style>|<!--.*?-->", " ", template, flags=re.DOTALL
    )
    text = re.sub(r"\{%\s*comment.*?endcomment\s*%\}", " ", text, flags=re.DOTALL)
    text = re.sub(r"\{%.*?%\}|\{\{.*?\}\}", "\u2026", text, flags=re.DOTALL)
    shown = re.findall(r'\b(?:title|aria-label|placeholder|alt)="([^"]*)"', text)
    return " ".join([re.sub(r"<[^>]*>", " ", text, flags=re.DOTALL), *shown])


def literals(script: str) -> Iterator[str]:
    """String literals of a module that read as a sentence, without their tags and inserted values."""
    code = re.sub(r"(?m)^\s*(//|\*|/\*).*$", "", script)
    strings = r"'(?:[^'\\\n]|\\.)*'|" + r'"(?:[^"\\\n]|\\.)*"|`(?:[^`\\]|\\.)*`'
    for literal in re.findall(strings, code):
        text = re.sub(r"<[^>]*>", " ", re.sub(r"\$\{[^}]*\}", "…", literal[1:-1]))
        if re.search(r"[a-zA-Z…] [a-zA-Z…]", text):
            yield text


def prose(page: str) -> Iterator[tuple[int, str]]:
    """(line, text) of a Markdown page without code and the targets of links."""
    blank = re.sub(r"```.*?```", lambda code: "\n" * code.group().count("\n"), page, flags=re.DOTALL)
    blank = re.sub(r"`[^`]*`|\]\([^)]*\)", lambda code: "…" + "\n" * code.group().count("\n"), blank)
    yield from enumerate(blank.splitlines(), 1)


def pages() -> Iterator[Path]:
    """The documentation, without the glossary, which names what is retired."""
    yield from (path for path in ROOT.glob("*.md"))
    yield from (path for path in (ROOT / "docs").rglob("*.md") if path.name != "glossary.md")


def texts() -> Iterator[tuple[str, str]]:
    """(where, text) of all that people read."""
    for path in (ROOT / "templates").rglob("*.html"):
        yield str(path.relative_to(ROOT)), visible(path.read_text())
    for path in (ROOT / "static/js").rglob("*.js"):
        yield from ((str(path.relative_to(ROOT)), text) for text in literals(path.read_text()))
    for path in modules():
        for line, text in sentences(sources.nodes(path)):
            yield f"{path.relative_to(ROOT)}:{line}", unquoted(text)
    for path in pages():
        for line, text in prose(path.read_text()):
            yield f"{path.relative_to(ROOT)}:{line}", text


def names(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Functions, classes, constants, and what classes hold."""

    def of(body: list[ast.stmt]) -> Iterator[tuple[int, str]]:
        for node in body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                yield node.lineno, node.name
            elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                yield node.lineno, node.target.id
            elif isinstance(node, ast.Assign):
                yield from ((node.lineno, each.id) for each in node.targets if isinstance(each, ast.Name))
            if isinstance(node, ast.ClassDef):
                yield from of(node.body)

    yield from of(tree.body)


def test_no_text_uses_a_retired_term():
    pattern = re.compile(rf"\b({RETIRED_IN_TEXTS})\b", re.IGNORECASE)
    found = [
        f"{where}: {match.group()!r} in {text[max(0, match.start() - 60) : match.end() + 40]!r}"
        for where, text in texts()
        for match in pattern.finditer(text)
        if ALLOWED_TEXTS.get(where.partition(":")[0]) != match.group().lower()
    ]
    assert not found, "\n".join(found)


def test_no_docstring_or_comment_uses_a_retired_term():
    pattern = re.compile(rf"\b({RETIRED_IN_TEXTS})\b", re.IGNORECASE)
    found = [
        f"{path.relative_to(ROOT)}:{line}: {match.group()!r} in {text[:80]!r}"
        for path in modules()
        for line, text in explanations(path)
        for match in pattern.finditer(text)
        if match.group().lower() not in ORDINARY
    ]
    assert not found, "\n".join(found)


def is_retired(name: str, ordinary: Collection[str] = ()) -> bool:
    return bool(RETIRED_IN_NAMES.difference(ordinary) & set(words_of(name))) and name not in ALLOWED_NAMES


def test_no_file_or_folder_is_named_by_a_retired_term():
    parts = {part for path in modules() for part in path.relative_to(ROOT).with_suffix("").parts}
    assert not (found := sorted(part for part in parts if is_retired(part))), found


def test_no_public_name_uses_a_retired_term():
    found = [
        f"{path.relative_to(ROOT)}:{line}: {name}"
        for path in modules()
        for line, name in names(sources.tree(path))
        if not name.startswith("_")
        and is_retired(name)
        # Fields of answers keep the names that programs read them by.
        and not (path.is_relative_to(ROOT / "console/api/schemas") and name.islower())
    ]
    assert not found, "\n".join(found)


def test_no_private_name_uses_a_retired_term():
    found = [
        f"{path.relative_to(ROOT)}:{line}: {name}"
        for path in modules()
        for line, name in names(sources.tree(path))
        if name.startswith("_") and is_retired(name, ORDINARY_IN_NAMES)
    ]
    assert not found, "\n".join(found)


def test_no_test_and_no_bench_is_named_by_a_retired_term():
    paths = [path for root in ("tests", "bench") for path in (ROOT / root).rglob("*.py")]
    found = [str(path.relative_to(ROOT)) for path in paths if is_retired(path.stem, ORDINARY_IN_NAMES)]
    found += [
        f"{path.relative_to(ROOT)}:{line}: {name}"
        for path in paths
        for line, name in names(sources.tree(path))
        if is_retired(name, ORDINARY_IN_NAMES)
        and (name.startswith("test_") or path.is_relative_to(ROOT / "bench"))
    ]
    assert not found, "\n".join(found)


def test_the_glossary_has_a_line_for_each_term_and_none_twice():
    rows = re.findall(
        r"^\| (?!term|name|-)([^|`]+) \|", (ROOT / "docs/glossary.md").read_text(), re.MULTILINE
    )
    terms = [term.strip() for row in rows for term in row.split(",")]
    assert len(terms) == len(set(terms))
    assert set(TERMS) <= set(terms), set(TERMS) - set(terms)
