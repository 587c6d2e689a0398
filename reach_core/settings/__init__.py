"""Configuration: YAML text in, typed structs out, or every complaint about it with line and column.

`document` composes the text, `shape` knows the types, `reading` walks both side by side; `schema` and `show`
walk the types alone.
"""
