"""Readers of files that others may have written, with limits on size, nesting and decompression. Nothing is read as code.

All packages of this project read such files through these functions, so the limits are defined once.
"""

from gensor_gym.foreign.files import MOST_BYTES, read_bytes, read_lines, read_text, unfolded
from gensor_gym.foreign.jsons import MOST_NESTING, parse_json, parse_object, read_fields, read_json, read_objects
from gensor_gym.foreign.meaning import meant
from gensor_gym.foreign.yamls import read_yaml

__all__ = [
    "MOST_BYTES", "MOST_NESTING", "meant", "parse_json", "parse_object", "read_bytes", "read_fields", "read_json", "read_lines",
    "read_objects", "read_text", "read_yaml", "unfolded",
]  # fmt: skip
