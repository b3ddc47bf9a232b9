#!/usr/bin/env python
"""Entry to Weir's commands; CONTRACT: one JSON document out, exit 2 for bad input."""

import os
import sys

from django.core.management import execute_from_command_line

if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "console.settings")
    execute_from_command_line(sys.argv)
