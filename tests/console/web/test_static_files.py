"""The compressed forms of static files."""

from pathlib import Path

import pytest
from django.core.files.base import ContentFile

from console.web.static_files import StaticStorage


@pytest.fixture
def storage(tmp_path, monkeypatch):
    found = StaticStorage(location=str(tmp_path))
    compressed = []
    monkeypatch.setattr(
        found, "create_compressor", lambda **more: Counted(StaticStorage.create_compressor(found, **more), compressed)
    )
    found.compressed = compressed
    return found


class Counted:
    """A compressor that notes the names of the files."""

    def __init__(self, compressor, names):
        self.should_compress, self._compress, self._names = compressor.should_compress, compressor.compress, names

    def compress(self, path):
        self._names.append(Path(path).name)
        return self._compress(path)


def test_a_file_and_its_copy_with_a_hash_are_compressed_once(storage, tmp_path):
    text = b"const a = 1;\n" * 200
    for name in ("a.js", "a.0123.js", "b.js"):
        storage.save(name, ContentFile(text if name != "b.js" else text[::-1]))
    forms = set(storage.compress_files(["a.js", "a.0123.js", "b.js"]))
    assert len(storage.compressed) == 2
    assert forms == {(name, name + form) for name in ("a.js", "a.0123.js", "b.js") for form in (".br", ".gz")}
    assert (tmp_path / "a.js.br").read_bytes() == (tmp_path / "a.0123.js.br").read_bytes()
    assert list(storage.compress_files(["a.js", "a.0123.js", "b.js"])) == []
