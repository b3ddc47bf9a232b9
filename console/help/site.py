"""The site: a hook of MkDocs (mkdocs.yml) that gives it the order of `contents` and the generated pages.

.venv/bin/python -m mkdocs build --strict
"""

import tempfile
from typing import Any

import django
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

from queues import environment as variables

# Reading the settings makes a data folder, which is none of a plant's; it is gone when the process ends.
_data = tempfile.TemporaryDirectory(prefix="weir-docs-")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """The table of contents."""
    variables.PROCESS.setdefault(variables.DATA.name, _data.name)
    variables.PROCESS.setdefault("DJANGO_SETTINGS_MODULE", "console.settings")
    django.setup()
    from console.help import contents

    config.nav = contents.navigation()
    return config


def on_files(files: Files, config: MkDocsConfig, **_: Any) -> Files:
    """The pages that no file holds."""
    from console.help import reference

    for source, text in reference.build_pages().items():
        files.append(File.generated(config, source, content=text))
    return files
