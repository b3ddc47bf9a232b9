"""What every command shares: a command line that can't be read is refused in one line, and ends with 2."""

from typing import Any, NoReturn

from django.core.management.base import BaseCommand, CommandParser

# As argparse begins what it says of arguments, and as Weir ends it.
WORDS = {
    "the following arguments are required: ": "is missing",
    "unrecognized arguments: ": "is not known",
}


class OneLineCommand(BaseCommand):
    """A command without argparse's paragraph on its usage, which --help prints."""

    def create_parser(self, prog_name: str, subcommand: str, **kwargs: Any) -> CommandParser:
        parser = super().create_parser(prog_name, subcommand, **kwargs)
        if getattr(self, "_called_from_command_line", False):  # else Django raises what its caller handles

            def error(message: str) -> NoReturn:
                parser.exit(2, f"{refusal(message)}; {parser.prog} --help says what it takes\n")

            parser.error = error  # type: ignore[method-assign]
        return parser


def refusal(message: str) -> str:
    """What argparse says, as `field: message` in one line."""
    text = one_line(message)
    for begin, words in WORDS.items():
        if text.startswith(begin):
            return f"{text.removeprefix(begin)}: {words}"
    return text.removeprefix("argument ")


def one_line(text: str) -> str:
    """The same without line breaks, and without signs by which a terminal is steered: they are spelled."""
    return "".join(sign if sign.isprintable() else ascii(sign)[1:-1] for sign in " ".join(text.split()))
