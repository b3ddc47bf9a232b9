#!/usr/bin/env python
"""Entry to Weir's commands."""

from console.command_line import manage

if __name__ == "__main__":
    manage()
