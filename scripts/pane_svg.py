# SPDX-License-Identifier: MIT
"""Draws a terminal's screen as an SVG picture: reads what `tmux capture-pane -e -p` printed from stdin, writes the SVG to
stdout. Blocks and shades are drawn as shapes, so that they join whatever the font of the reader.

    tmux capture-pane -e -p | python3 scripts/pane_svg.py "the title" >picture.svg
"""
import re
import sys
import unicodedata
from xml.sax.saxutils import escape, quoteattr

CELL_WIDTH, CELL_HEIGHT, BASELINE, MARGIN = 8.4, 18, 13.5, 12
INK, GROUND = "#d8dee9", "#1b1f27"
COLOURS = ["#2e3440", "#e06c75", "#98c379", "#e5c07b", "#61afef", "#c678dd", "#56b6c2", "#d8dee9"]
SHADES = {"░": 0.3, "▒": 0.55, "▓": 0.8}


class Look:
    """Of a cell: what the escape sequences before it say."""

    def __init__(self):
        self.ink = self.ground = None
        self.bold = self.dim = self.reverse = self.underlined = False

    def apply(self, codes):
        for code in codes:
            if code == 0:
                self.__init__()
            elif code in (1, 2, 4, 7):
                setattr(self, {1: "bold", 2: "dim", 4: "underlined", 7: "reverse"}[code], True)
            elif code == 22:
                self.bold = self.dim = False
            elif code in (24, 27):
                setattr(self, {24: "underlined", 27: "reverse"}[code], False)
            elif 30 <= code <= 37 or 90 <= code <= 97:
                self.ink = COLOURS[code % 10]
            elif 40 <= code <= 47 or 100 <= code <= 107:
                self.ground = COLOURS[code % 10]
            elif code in (39, 49):
                setattr(self, {39: "ink", 49: "ground"}[code], None)
            else:
                raise ValueError(f"the escape sequence {code} has no meaning here")

    def colours(self):
        ink, ground = self.ink or INK, self.ground
        if self.reverse:
            ink, ground = ground or GROUND, ink
        return ink, ground

    def key(self):
        return (*self.colours(), self.bold, self.dim, self.underlined)


def columns_of(character):
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def cells_of(line, look):
    """(column, character, columns, look) of each character."""
    column = 0
    for part in re.finditer(r"\x1b\[([0-9;]*)m|(.)", line):
        if part.group(2) is None:
            look.apply([int(code or 0) for code in part.group(1).split(";")])
            continue
        character = part.group(2)
        columns = columns_of(character)
        yield column, character, columns, look.key()
        column += columns


def number(value):
    return f"{value:.1f}".rstrip("0").rstrip(".")


def rectangle(column, columns, top, height, colour, opacity=1.0):
    shade = "" if opacity == 1 else f' opacity="{opacity:.2g}"'
    return (f'<rect x="{number(MARGIN + column * CELL_WIDTH)}" y="{number(top)}" width="{number(columns * CELL_WIDTH)}" '
            f'height="{number(height)}" fill="{colour}"{shade}/>')


def shape(character):
    """(height in eighths, opacity) of a block; None for other characters."""
    if character in SHADES:
        return 8, SHADES[character]
    return (ord(character) - 0x2580, 1.0) if "▁" <= character <= "█" else None


def runs(cells, kind):
    """Neighbours of one kind together: (column, columns, characters, kind)."""
    found = []
    for column, character, columns, key in cells:
        this = kind(character, key)
        if this is None:
            continue
        if found and found[-1][3] == this and found[-1][0] + found[-1][1] == column:
            start, length, text, _ = found[-1]
            found[-1] = (start, length + columns, text + character, this)
        else:
            found.append((column, columns, character, this))
    return found


def words(column, text):
    """(column, columns, word): what readers of SVG may make of several blanks differs, so that words stand alone."""
    for part in re.finditer(r"( +)|([^ ]+)", text):
        length = sum(columns_of(character) for character in part.group())
        if part.group(2) is not None:
            yield column, length, part.group(2)
        column += length


def draw_line(cells, top):
    # A bit more above and below: lines are to touch whatever the rounding.
    for column, columns, _, ground in runs(cells, lambda character, key: key[1]):
        yield rectangle(column, columns, top - 0.2, CELL_HEIGHT + 0.4, ground)
    for column, columns, _, (ink, height, opacity) in runs(
            cells, lambda character, key: (key[0], *shape(character)) if shape(character) else None):
        yield rectangle(column, columns, top + CELL_HEIGHT * (8 - height) / 8, CELL_HEIGHT * height / 8, ink, opacity)
    for column, columns, text, (ink, _, bold, dim, underlined) in runs(
            cells, lambda character, key: None if shape(character) else key):
        style = "".join([' font-weight="bold"' if bold else "", ' opacity="0.55"' if dim else "",
                         ' text-decoration="underline"' if underlined else ""])
        for start, length, word in words(column, text):
            yield (f'<text x="{number(MARGIN + start * CELL_WIDTH)}" y="{number(top + BASELINE)}" fill="{ink}"{style} '
                   f'textLength="{number(length * CELL_WIDTH)}">{escape(word)}</text>')


def picture(text, title):
    lines = text.rstrip("\n").split("\n")
    look, rows, width = Look(), [], 0
    for number_of_line, line in enumerate(lines):
        cells = list(cells_of(line, look))
        width = max([width, *(column + columns for column, _, columns, _ in cells)])
        rows.extend(draw_line(cells, MARGIN + number_of_line * CELL_HEIGHT))
    size = number(2 * MARGIN + width * CELL_WIDTH), number(2 * MARGIN + len(lines) * CELL_HEIGHT)
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{size[0]}" height="{size[1]}" '
        f'viewBox="0 0 {size[0]} {size[1]}" role="img" aria-label={quoteattr(title)}>',
        f"<title>{escape(title)}</title>",
        f'<rect width="100%" height="100%" rx="8" fill="{GROUND}"/>',
        '<g font-family="DejaVu Sans Mono,Menlo,Consolas,monospace" font-size="14" xml:space="preserve">',
        *rows, "</g>", "</svg>", ""])


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("Usage: pane_svg.py TITLE <SCREEN >PICTURE")
    sys.stdout.write(picture(sys.stdin.read(), sys.argv[1]))
