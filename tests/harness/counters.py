"""What a sidecar has counted, read from its metrics."""

import re

from harness.mesh import Sidecar, get

_SAMPLE = re.compile(r"^(\w+)(?:\{(.*)\})? (\S+)$", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="([^"]*)"')


def counted(sidecar: Sidecar, name: str, **labels: str) -> float:
    """The sum of all samples of this name that have these labels."""
    _, text = get(f"{sidecar.admin}/metrics")
    total = 0.0
    for found, given, value in _SAMPLE.findall(str(text)):
        if found == name and labels.items() <= dict(_LABEL.findall(given)).items():
            total += float(value)
    return total
