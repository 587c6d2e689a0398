"""Configuration texts with one mistake, marked where it is."""

from collections.abc import Callable

import pytest

from reach_core.settings.complaint import Complaint, ConfigError


def complaint_at_mark(parse: Callable[[str], object], marked: str) -> Complaint:
    """The only complaint about the text, which must point at the character after its ▸."""
    before, _, after = marked.partition("▸")
    with pytest.raises(ConfigError) as caught:
        parse(before + after)
    assert len(caught.value.complaints) == 1, str(caught.value)
    complaint = caught.value.complaints[0]
    assert (complaint.line, complaint.column) == (before.count("\n") + 1, len(before) - before.rfind("\n")), str(complaint)
    return complaint
