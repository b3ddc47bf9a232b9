"""Markdown of docs/ as HTML for the console's frame, with the extensions that MkDocs uses by default."""

import posixpath
from dataclasses import dataclass
from functools import cache
from xml.etree.ElementTree import Element

from django.utils.safestring import SafeString, mark_safe
from markdown import Markdown
from markdown.extensions import Extension
from markdown.postprocessors import Postprocessor
from markdown.treeprocessors import Treeprocessor

from console.help.contents import HelpPage, load_pages
from console.help.diagrams import Diagrams

EXTENSIONS = ("tables", "fenced_code", "toc", "sane_lists")
WIDE = {"table": "Table"}  # may be wider than a phone: they scroll separately, as code does
CODE_BOX = '<div class="scroll" tabindex="0" role="group" aria-label="Code">'


@dataclass(frozen=True)
class RenderedPage:
    """`body` starts below the title. `headings`: (id, text) of its sections."""

    body: SafeString
    headings: tuple[tuple[str, str], ...]


@cache
def render_markdown(source: str, base: str) -> RenderedPage:
    """Return the page of that source. base: the address of Help, the prefix of links and pictures."""
    page = load_pages()[source]
    markdown = Markdown(extensions=[*EXTENSIONS, Diagrams(), InFrame(page, base)])
    body = markdown.convert(page.text.partition("\n")[2])
    headings = tuple((toc_token["id"], toc_token["name"]) for toc_token in markdown.toc_tokens)  # type: ignore[attr-defined]
    # It comes from our own files, which visitors can't write.
    return RenderedPage(mark_safe(body), headings)


class InFrame(Extension):
    """Converts links between files to links between pages; wide parts scroll, also by keyboard."""

    def __init__(self, page: HelpPage, base: str) -> None:
        super().__init__()
        self._page, self._base = page, base

    def extendMarkdown(self, md: Markdown) -> None:  # noqa: N802 (its name)
        md.treeprocessors.register(Addresses(self._page, self._base), "weir-addresses", 1)
        md.treeprocessors.register(WideTables(), "weir-wide", 0)
        md.postprocessors.register(WideCode(), "weir-wide-code", 0)


class Addresses(Treeprocessor):
    def __init__(self, page: HelpPage, base: str) -> None:
        super().__init__()
        self._folder, self._base = posixpath.dirname(page.source), base

    def run(self, root: Element) -> None:
        for name, attribute in (("a", "href"), ("img", "src")):
            for element in root.iter(name):
                element.set(attribute, self._resolve_link(element.get(attribute, "")))
        for element in root.iter("a"):
            element.set("class", "link")

    def _resolve_link(self, link: str) -> str:
        if "://" in link or link.startswith(("#", "/", "mailto:")):
            return link
        path, mark, fragment = link.partition("#")
        source = posixpath.normpath(posixpath.join(self._folder, path))
        known = load_pages().get(source)
        return f"{self._base}{known.address if known else source}{mark}{fragment}"


class WideCode(Postprocessor):
    """Inserts fenced code last, as text, with its angle brackets escaped, since it is in no tree."""

    def run(self, text: str) -> str:
        return text.replace("<pre>", f"{CODE_BOX}<pre>").replace("</pre>", "</pre></div>")


class WideTables(Treeprocessor):
    def run(self, root: Element) -> None:
        for parent in list(root.iter()):
            for place, child in enumerate(list(parent)):
                if child.tag in WIDE:
                    parent[place] = self._make_scrollable(child)

    @staticmethod
    def _make_scrollable(child: Element) -> Element:
        box = Element("div", {"class": "scroll", "tabindex": "0", "role": "group"})
        box.set("aria-label", WIDE[child.tag])
        box.tail, child.tail = child.tail, None
        box.append(child)
        return box
