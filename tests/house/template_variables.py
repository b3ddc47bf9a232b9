"""Which names a template reads that it does not make itself: those that its context must have."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from django.template import Variable, engines
from django.template.base import FilterExpression, Node, NodeList, Template
from django.template.base import VariableNode as Printed
from django.template.defaulttags import ForNode, RegroupNode, WithNode
from django.template.loader_tags import BlockNode, ExtendsNode, IncludeNode
from django.template.smartif import TokenBase

LITERALS = ("True", "False", "None")
# The attributes by which Django's tags name what they make: {% url … as NAME %} and its like.
MADE_BY = ("asvar", "target_var", "var_name", "variable_name", "varname")


@dataclass
class TemplateReader:
    """Collects the names that one template reads, with the parts that it includes.

    `chosen`: the templates that a part named by a variable may be, by that variable.
    """

    chosen: Mapping[str, Collection[str]] = field(default_factory=dict)
    found: dict[str, set[str]] = field(default_factory=dict)  # name → templates that read it
    seen: set[tuple[str, frozenset[str]]] = field(default_factory=set)

    def template(self, name: str, made: frozenset[str] = frozenset()) -> "TemplateReader":
        if (name, made) not in self.seen:
            self.seen.add((name, made))
            self._nodes(compiled(name).nodelist, set(made), name)
        return self

    def source(self, text: str) -> dict[str, set[str]]:
        """Of a template that is no file."""
        self._nodes(engines["django"].from_string(text).template.nodelist, set(), "")
        return self.found

    def _nodes(self, nodes: NodeList, made: set[str], place: str) -> None:
        """What a tag makes is there for those that follow it."""
        for node in nodes:
            self._node(node, made, place)
            made |= {name for attribute in MADE_BY if (name := getattr(node, attribute, None))}

    def _node(self, node: Node, made: set[str], place: str) -> None:
        match node:
            case ForNode():
                self._read(node.sequence, made, place)
                self._nodes(node.nodelist_loop, made | {*node.loopvars, "forloop"}, place)
                self._nodes(node.nodelist_empty, set(made), place)
            case WithNode():
                self._read(list(node.extra_context.values()), made, place)
                self._nodes(node.nodelist, made | node.extra_context.keys(), place)
            case IncludeNode():
                self._included(node, made, place)
            case ExtendsNode():
                self._nodes(node.nodelist, set(made), place)
                self.template(node.parent_name.resolve({}), frozenset(made))
            case RegroupNode():
                self._read(node.target, made, place)
            case BlockNode() | NodeList():
                self._nodes(getattr(node, "nodelist", node), made | {"block"}, place)
            case Printed():
                self._read(node.filter_expression, made, place)
            case _:
                self._read(vars(node), made, place)

    def _included(self, node: IncludeNode, made: set[str], place: str) -> None:
        self._read(list(node.extra_context.values()), made, place)
        named = node.template.var
        if isinstance(named, Variable):
            self._read(node.template, made, place)
        names = self.chosen[named.var] if isinstance(named, Variable) else [named]
        inner = set() if node.isolated_context else made
        for name in names:
            self.template(name, frozenset(inner | node.extra_context.keys()))

    def _read(self, value: Any, made: set[str], place: str) -> None:
        """Variables anywhere in what a tag holds."""
        match value:
            case FilterExpression():
                self._read(value.var, made, place)
                arguments = [each for _, given in value.filters for is_variable, each in given if is_variable]
                self._read(arguments, made, place)
            case Variable():
                first = value.var.partition(".")[0] if value.lookups else ""
                if first and first not in made and first not in LITERALS:
                    self.found.setdefault(first, set()).add(place)
            case NodeList():
                self._nodes(value, set(made), place)
            case Node():
                self._node(value, set(made), place)
            case TokenBase():
                self._read(vars(value), made, place)
            case dict():
                self._read([each for key, each in value.items() if key not in MADE_BY], made, place)
            case list() | tuple():
                for each in value:
                    self._read(each, made, place)


@cache
def compiled(name: str) -> Template:
    return engines["django"].get_template(name).template


def parameters_of_parts(names: Collection[str]) -> dict[str, set[str]]:
    """Part → the names that any template gives it with `with`: the part may do without them."""
    given: dict[str, set[str]] = {}
    for name in names:
        for node in includes(compiled(name)):
            if isinstance(node.template.var, str):
                given.setdefault(node.template.var, set()).update(node.extra_context)
    return given


def includes(template: Template) -> Iterator[IncludeNode]:
    yield from template.nodelist.get_nodes_by_type(IncludeNode)
