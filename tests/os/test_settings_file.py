"""What cannot be read is a complaint about that file."""

from pathlib import Path

import pytest

from reach_core.settings.complaint import ConfigError
from reach_core.settings.document import MAX_BYTES
from reach_os.settings_file import read_settings_file


def test_the_text(tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    file.write_text("cluster: é\n", encoding="utf-8")
    assert read_settings_file(file) == read_settings_file(str(file)) == "cluster: é\n"


@pytest.mark.parametrize("content", [None, b"\xff\xfe\xff", b"#" * (MAX_BYTES + 1)], ids=["absent", "no text", "long"])
def test_what_cannot_be_read(tmp_path: Path, content: bytes | None) -> None:
    file = tmp_path / "a.yaml"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(ConfigError) as caught:
        read_settings_file(file)
    assert [complaint.file for complaint in caught.value.complaints] == [str(file)]
