"""The texts that people read, collected from the sources: templates, scripts, and Python code.

A text is a phrase of two words or more, or a label. Placeholders are in braces. Names, queries, patterns, and
docstrings are not texts.
"""

import ast
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path

PYTHON_FOLDERS = ("common", "queues", "controllers", "workers", "console")
READ_ATTRIBUTES = ("title", "placeholder", "alt", "aria-label", "aria-description", "data-confirm", "content")
PHRASE = re.compile(r"[A-Za-z}][,.:;)]? [(]?[A-Za-z{]")
LABEL = re.compile(r"[A-Z][a-z]+( [a-z]+)*[.:]?")
CODE = re.compile(
    r"^\s*(SELECT|INSERT|UPDATE|DELETE|CREATE|ALTER|DROP|REVOKE|GRANT|WITH|PRAGMA|SET|local|return|function|default-src)\b"
    r"|redis\.call|^([a-z0-9_]+ ){11}|^queue, id, time|^[\w.-]+/[\w.+-]+;|^[\w./ -]*=[\w./ -]*$|^\^|\\d|\(\?"
)
# Calls whose strings are patterns, formats, or names.
SILENT_CALLS = frozenset(
    ("compile", "Struct", "getattr", "setattr", "strptime", "strftime", "register_script", "split", "namedtuple")
)
TEMPLATE_TAG = re.compile(r"{%-?\s*(\w+)(.*?)-?%}|{{(.*?)}}|{#.*?#}", re.DOTALL)
COMMENT = re.compile(r"{% comment.*?endcomment %}|{#.*?#}", re.DOTALL)
SCRIPT_STRING = re.compile(
    r"""//[^\n]*|/\*.*?\*/|"((?:[^"\\\n]|\\.)*)"|'((?:[^'\\\n]|\\.)*)'|`((?:[^`\\]|\\.)*)`""", re.DOTALL
)


@dataclass(frozen=True)
class Text:
    """A text and its first line in a file below the root."""

    file: str
    line: int
    text: str


def collect_texts(root: Path, start: str = "") -> Iterator[Text]:
    """Yield the texts of the files below the root whose path begins with `start`, each once per file."""
    readers = (
        (_read_template, ("templates",), ("*.html", "*.txt")),
        (_read_script, ("static/js",), ("*.js",)),
        (_read_python, PYTHON_FOLDERS, ("*.py",)),
    )
    for read, folders, patterns in readers:
        for path, name in _list_files(root, folders, *patterns):
            if name.startswith(start) and "migrations" not in path.parts:
                yield from _collect(name, read(path.read_text(encoding="utf-8")))


def _list_files(root: Path, folders: Iterable[str], *patterns: str) -> Iterator[tuple[Path, str]]:
    for folder in folders:
        paths = sorted(path for pattern in patterns for path in (root / folder).rglob(pattern))
        yield from ((path, str(path.relative_to(root))) for path in paths)


def _collect(file: str, lines: Iterable[tuple[int, str]]) -> Iterator[Text]:
    seen: set[str] = set()
    for line, text in lines:
        phrase = " ".join(text.split())
        if phrase in seen:
            continue
        seen.add(phrase)
        if (PHRASE.search(phrase) or LABEL.fullmatch(phrase)) and not CODE.search(phrase):
            yield Text(file, line, phrase)


def _read_template(source: str) -> Iterator[tuple[int, str]]:
    without_comments = COMMENT.sub(_keep_lines, source)
    for tag in TEMPLATE_TAG.finditer(without_comments):
        line = without_comments.count("\n", 0, tag.start()) + 1
        for quoted in re.findall(r'"([^"]*)"', tag.group(2) or tag.group(3) or ""):
            yield line, quoted
    parser = _PageTexts()
    parser.feed(TEMPLATE_TAG.sub(_make_placeholder, without_comments))
    parser.close()
    yield from parser.texts


def _make_placeholder(tag: re.Match[str]) -> str:
    lines = "\n" * tag.group().count("\n")
    if tag.group(3) is None:
        return " " + lines  # a block tag
    return "{" + tag.group(3).split("|")[0].strip().replace('"', "").replace("<", "") + "}" + lines


def _keep_lines(match: re.Match[str]) -> str:
    return "\n" * match.group().count("\n")


class _PageTexts(HTMLParser):
    """Collects the texts of a page by block: inline elements don't end a sentence."""

    INLINE = {"a", "abbr", "b", "code", "em", "i", "kbd", "span", "strong", "sub", "sup", "time", "var", "wbr", "data"}

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[tuple[int, str]] = []
        self._parts: list[str] = []
        self._line = 1
        self._silent = False

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        line = self.getpos()[0]
        self.texts.extend((line, value) for name, value in attributes if name in READ_ATTRIBUTES and value)
        if tag not in self.INLINE:
            self._end_block()
        if tag == "code":
            self._parts.append("`")
        self._silent = tag in ("script", "style")

    def handle_endtag(self, tag: str) -> None:
        self._silent = False
        if tag == "code":
            self._parts.append("`")
        if tag not in self.INLINE:
            self._end_block()

    def handle_data(self, data: str) -> None:
        if self._silent:
            return
        if not "".join(self._parts).strip():
            self._parts, self._line = ([], self.getpos()[0] + data[: len(data) - len(data.lstrip())].count("\n"))
        self._parts.append(data)

    def close(self) -> None:
        super().close()
        self._end_block()

    def _end_block(self) -> None:
        self.texts.append((self._line, "".join(self._parts)))
        self._parts = []


def _read_script(source: str) -> Iterator[tuple[int, str]]:
    for match in SCRIPT_STRING.finditer(source):
        text = next((group for group in match.groups() if group), "")
        yield source.count("\n", 0, match.start()) + 1, re.sub(r"\$\{([^}]*)\}", r"{\1}", text)


def _read_python(source: str) -> Iterator[tuple[int, str]]:
    nodes = tuple(ast.walk(ast.parse(source)))
    skipped = set(_list_skipped(nodes))
    for node in nodes:
        if id(node) not in skipped and isinstance(node, ast.JoinedStr | ast.Constant):
            text = _format_string(node)
            if text:
                yield node.lineno, text


def _list_skipped(nodes: Iterable[ast.AST]) -> Iterator[int]:
    """Yield the ids of docstrings, of the parts of formatted strings, and of the arguments of silent calls."""
    for node in nodes:
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            yield id(node.value)
        elif isinstance(node, ast.JoinedStr):
            yield from (id(part) for part in ast.walk(node) if part is not node)
        elif isinstance(node, ast.Call) and _name_of(node.func) in SILENT_CALLS:
            yield from (id(part) for argument in node.args for part in ast.walk(argument))


def _name_of(function: ast.expr) -> str:
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def _format_string(node: ast.JoinedStr | ast.Constant) -> str:
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else ""
    return "".join(
        str(part.value) if isinstance(part, ast.Constant) else "{" + ast.unparse(part.value) + "}"
        for part in node.values
        if isinstance(part, ast.Constant | ast.FormattedValue)
    )
