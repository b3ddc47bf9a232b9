"""The site: a hook of MkDocs (mkdocs.yml) that sets the order of `contents` and adds the generated pages.

.venv/bin/python -m mkdocs build --strict
"""

import tempfile

import django
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

from common import environment as variables

# Reading the settings creates a data folder that belongs to no plant; it is deleted when the process ends.
_data = tempfile.TemporaryDirectory(prefix="weir-docs-")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Set the table of contents."""
    variables.PROCESS.setdefault(variables.DATA.name, _data.name)
    variables.PROCESS.setdefault("DJANGO_SETTINGS_MODULE", "console.settings")
    django.setup()
    from console.help import contents

    config.nav = contents.build_navigation()
    return config


def on_files(files: Files, config: MkDocsConfig, **_: object) -> Files:
    """Add the generated pages."""
    from console.help import reference

    for source, text in reference.build_pages().items():
        files.append(File.generated(config, source, content=text))
    return files
