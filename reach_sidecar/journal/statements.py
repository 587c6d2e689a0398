"""The statements of this package, out of its .sql files: each under the word of its `-- name:` line."""

import re
from importlib import resources


def statements(name: str) -> dict[str, str]:
    """Those of `sql/<name>.sql`."""
    text = resources.files("reach_sidecar.journal").joinpath(f"sql/{name}.sql").read_text(encoding="utf-8")
    parts = re.split(r"^-- name: (\w+)\n", text, flags=re.M)
    return dict(zip(parts[1::2], parts[2::2], strict=True))
