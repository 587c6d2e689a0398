"""Configuration: YAML text in, typed structs out, or every complaint about it with line and column.

`document` composes the text, `shape` knows the types, `reading` walks both side by side; `schema` and `show`
walk the types alone.
"""

from reach_core.settings.address import is_loopback, split_address
from reach_core.settings.complaint import Complaint, ConfigError
from reach_core.settings.document import MAX_BYTES, decode, unreadable
from reach_core.settings.log import LogConfig
from reach_core.settings.reading import Fault, read_settings
from reach_core.settings.schema import json_schema
from reach_core.settings.shape import Section
from reach_core.settings.show import show

__all__ = [
    "MAX_BYTES",
    "Complaint",
    "ConfigError",
    "Fault",
    "LogConfig",
    "Section",
    "decode",
    "is_loopback",
    "json_schema",
    "read_settings",
    "show",
    "split_address",
    "unreadable",
]
