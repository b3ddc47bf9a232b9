"""Shared code of all commands: an invalid command line is rejected in one line, with exit code 2."""

from typing import NoReturn

from django.core.management.base import BaseCommand, CommandParser

# The prefixes of argparse's messages on arguments, and Weir's endings.
WORDS = {"the following arguments are required: ": "is missing", "unrecognized arguments: ": "is unknown"}


class OneLineCommand(BaseCommand):
    """A command without argparse's usage paragraph, which --help prints."""

    def create_parser(self, prog_name: str, subcommand: str, **kwargs: object) -> CommandParser:
        parser = super().create_parser(prog_name, subcommand, **kwargs)
        if getattr(self, "_called_from_command_line", False):  # otherwise Django raises an error

            def error(message: str) -> NoReturn:
                parser.exit(2, f"{format_usage_error(message)}; see {parser.prog} --help\n")

            parser.error = error  # type: ignore[method-assign]
        return parser


def format_usage_error(message: str) -> str:
    """Return argparse's message as `field: message` in one line."""
    text = format_one_line(message)
    for begin, words in WORDS.items():
        if text.startswith(begin):
            return f"{text.removeprefix(begin)}: {words}"
    return text.removeprefix("argument ")


def format_one_line(text: str) -> str:
    """Return the text without line breaks, and with terminal control characters spelled out."""
    return "".join(sign if sign.isprintable() else ascii(sign)[1:-1] for sign in " ".join(text.split()))


def format_plain_text(value: object, longest: int = 2000) -> str:
    """Return the value in one line of printable characters.

    Control characters and those that change the reading direction become question marks.
    """
    return format_plain_line(" ".join(str(value)[:longest].split()))


def format_plain_line(text: str) -> str:
    """Return a line likewise, of any length and with its spaces."""
    return text if text.isprintable() else "".join(sign if sign.isprintable() else "?" for sign in text)
