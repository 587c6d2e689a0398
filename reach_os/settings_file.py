"""A configuration file as text."""

from pathlib import Path

from reach_core.settings.document import MAX_BYTES, decode, unreadable


def read_settings_file(path: str | Path) -> str:
    """The text of the file. Raises ConfigError where it cannot be read, is too long or is not UTF-8."""
    try:
        with open(path, "rb") as file:
            data = file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        raise unreadable(error, str(path)) from None
    return decode(data, str(path))
