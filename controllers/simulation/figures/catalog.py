"""The tables and figures by name: the modules in this folder with `FIGURES = (PaperFigure(…), …)`, by paper."""

from collections.abc import Mapping

from controllers.framework.discovery import import_modules
from controllers.simulation import figures
from controllers.simulation.figures.figure import PAPERS, PaperFigure


def find_figures() -> dict[str, PaperFigure]:
    """Return name → figure, in the order of the papers and within a paper as declared.

    Raise `ValueError` if two have the same name.
    """
    declared = [figure for module in import_modules(figures) for figure in getattr(module, "FIGURES", ())]
    declared.sort(key=lambda figure: PAPERS.index(figure.paper))
    by_name = {figure.name: figure for figure in declared}
    if len(by_name) < len(declared):
        raise ValueError("two figures have the same name")
    return by_name


FIGURES: Mapping[str, PaperFigure] = find_figures()
