"""What `reach sidecar` and `reach control` share: complaints about their files, their note while they run."""

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from reach_cli.failure import Failed, WrongFlags
from reach_cli.run_directory import forget, note
from reach_cli.terminal import say
from reach_core.settings.complaint import ConfigError

Ready = Callable[[Mapping[str, Any]], None]


def complain(error: ConfigError) -> Failed:
    """Every complaint on a line of its own, then what follows from them.

    Exit code 1 for mistakes in a file: the command line was right. 2 where only flags are wrong.
    """
    for complaint in error.complaints:
        print(complaint, file=sys.stderr)
    count = len(error.complaints)
    mistakes = f"{count} mistake{'' if count == 1 else 's'}"
    if all(complaint.file.startswith("--") for complaint in error.complaints):
        return WrongFlags(f"{mistakes} in the command line; --help shows an example.")
    return Failed(f"{mistakes} in the configuration: mend and start again.")


@contextmanager
def noted(kind: str, identity: str) -> Iterator[Ready]:
    """A function to call when ready; the note it writes is removed on leaving.

    A daemon serves without its note too: where none can be written, the other verbs need --admin.
    """
    written: list[Path] = []

    def on_ready(ready: Mapping[str, Any]) -> None:
        try:
            written.append(note(kind, identity, ready))
        except OSError as error:
            say(f"reach: other verbs will not find this {kind} by themselves and need --admin: {error}.")

    try:
        yield on_ready
    finally:
        for path in written:
            forget(path)
