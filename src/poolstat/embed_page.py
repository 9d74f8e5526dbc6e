# SPDX-License-Identifier: MIT
"""Turns the live page into a header: its text, and the policy that lets a browser run its own script and style, known
by their digests, and nothing else.

    embed_page.py PAGE HEADER
"""
import base64
import hashlib
import re
import sys
from pathlib import Path

LINE = 80  # bytes of the page in each line of the header


def digest(page, tag):
    parts = re.findall(f"<{tag}>(.*?)</{tag}>", page, re.DOTALL)
    if len(parts) != 1 or len(re.findall(f"<{tag}\\b", page)) != 1:
        sys.exit(f"embed_page: the page must have one <{tag}> without attributes")
    return "'sha256-" + base64.b64encode(hashlib.sha256(parts[0].encode()).digest()).decode() + "'"


def quoted(piece):
    # Octal escapes end after three digits; hexadecimal ones would go on into what follows.
    return '"' + "".join(chr(b) if 32 <= b < 127 and chr(b) not in '"\\?' else f"\\{b:03o}" for b in piece) + '"'


def main():
    page = Path(sys.argv[1]).read_text(encoding="utf-8")
    policy = "; ".join(["default-src 'none'", f"script-src {digest(page, 'script')}",
                        f"style-src {digest(page, 'style')}", "connect-src 'self'", "base-uri 'none'",
                        "form-action 'none'", "frame-ancestors 'none'"])
    data = page.encode()
    pieces = [quoted(data[at:at + LINE]) for at in range(0, len(data), LINE)]
    Path(sys.argv[2]).write_text(f'#define PAGE_POLICY "{policy}"\n'
                                 "static const char page[] =\n    " + "\n    ".join(pieces) + ";\n")


main()
