"""Control characters shown as escapes, so that a name from a file cannot steer the terminal.

Job logs, folders and policies name users, queues and files. Such a name may contain terminal escapes (``\\x1b[2J``
clears the screen), bidirectional overrides that reorder a line, or line separators that imitate another line.
"""

from __future__ import annotations

import re

__all__ = ["escaped", "escaped_line", "json_escaped"]

_STEERING = (
    r"\x00-\x09\x0b-\x1f\x7f-\x9f"  # C0 without line feed, DEL, C1
    r"\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"  # invisible, bidi, separators
    r"\U000e0000-\U000e0fff"  # tags
    r"\ud800-\udfff"  # surrogates: bytes of a file name that are no UTF-8
)
_CONTROL = re.compile(f"[{_STEERING}]")
_LINE_BREAKS = re.compile(r"[ \t\r\n]+")
_SHORT = {"\t": r"\t", "\r": r"\r"}


def escaped(text: str) -> str:
    """The text with every control character except the line feed as an escape; idempotent.

    >>> print(escaped("user\\x1b[31m \\u202e"))
    user\\x1b[31m \\u202e
    >>> print(escaped("a\\udcff"))  # the byte 0xff of a file name
    a\\xff
    """
    return _CONTROL.sub(_escape, text)


def escaped_line(text: str) -> str:
    """The text as one line: runs of blanks and line breaks become one blank, other control characters escapes.

    >>> print(escaped_line("first\\n  second\\x07"))
    first second\\x07
    """
    return escaped(_LINE_BREAKS.sub(" ", text).strip(" "))


def json_escaped(document: str, encoding: str = "utf-8") -> str:
    """A JSON document with JSON's own escapes for control characters and for what the encoding lacks.

    >>> json_escaped('{"a": "\\x7fé"}', "ascii")
    '{"a": "\\\\u007f\\\\u00e9"}'
    """
    document = _CONTROL.sub(_json_escape, document)
    try:
        document.encode(encoding)
    except UnicodeEncodeError:
        return re.sub(r"[^\x00-\x7f]", _json_escape, document)
    return document


def _escape(match: re.Match[str]) -> str:
    char = match[0]
    code = ord(char)
    if 0xDC80 <= code <= 0xDCFF:  # Python's form of an undecodable byte
        return f"\\x{code - 0xDC00:02x}"
    if code > 0xFFFF:
        return f"\\U{code:08x}"
    return _SHORT.get(char) or (f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}")


def _json_escape(match: re.Match[str]) -> str:
    units = match[0].encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[i]:02x}{units[i + 1]:02x}" for i in range(0, len(units), 2))
