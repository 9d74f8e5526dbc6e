#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Makes a manual page (mdoc) of its template: a line such as @OPTIONS@ becomes what poolstat and the public headers say.

    make.py --poolstat PROGRAM --headers FOLDER --version VERSION TEMPLATE OUTPUT
"""
import argparse
import re
import textwrap
from pathlib import Path

import tables

HERE = Path(__file__).resolve().parent
UNITS = {"BYTES": "bytes", "COUNT": "count", "NS": "ns"}
KINDS = {"COUNTER": "only grows", "GAUGE": "present value", "PEAK": "highest value", "TAG": "identity"}


def escaped(line):
    line = line.replace("\\", "\\e")
    return "\\&" + line if line[:1] in (".", "'") else line


def prose(text):
    """Lines of text, which no macro begins."""
    return [escaped(line) for line in textwrap.wrap(text, 78, break_long_words=False, break_on_hyphens=False)]


def sentence(text):
    return text[0].upper() + text[1:] + ("" if text.endswith(".") else ".")


# What --help says of itself, where it is not the text at hand.
IN_MANUAL = {"help": "Usage in short; behind a command, what that takes."}


def synopsis(page):
    for command in page.commands:
        yield ".Nm"
        yield f".Cm {command.name}"
        if set(command.options) - {option.name for option in page.options if option.group in ("General", "Of run")}:
            yield ".Op Ar OPTION ..."
        yield from prose(command.arguments)


def commands(page):
    for command in page.commands:
        name = command.name
        yield f".Ss {name}"
        own = HERE / "commands" / f"{name}.mdoc"
        if own.exists():
            text = own.read_text().splitlines()
            yield from text[next(i for i, line in enumerate(text) if not line.startswith('.\\"')):]
        else:
            yield from prose(sentence(command.help))


def options(page):
    group = None
    for option in page.options:
        if option.group != group:
            if group is not None:
                yield ".El"
            group = option.group
            yield f".Ss {group}"
            yield ".Bl -tag -width Ds"
        letter = f"{option.letter} , Fl " if option.letter else ""
        yield f".It Fl {letter}-{option.name}" + (f" Ar {option.argument}" if option.argument else "")
        yield from prose(IN_MANUAL.get(option.name, sentence(option.help)))
        users = [command.name for command in page.commands if option.name in command.options]
        if users and len(users) < len(page.commands):
            yield from prose(f"Taken by: {', '.join(users)}.")
    yield ".El"


def variables(page):
    yield ".Bl -tag -width Ds"
    for variable in page.variables:
        yield f".It Ev {variable.name}"
        yield from prose(sentence(variable.help))
        yield from prose(f"Accepted: {variable.accepted}.")
        yield from prose(f"Default: {variable.default}.")
    yield ".El"


def fields(page):
    for title, entries in page.fields:
        yield f".Ss {title}"
        yield ".Bl -tag -width Ds"
        for field in entries:
            yield f".It Va {field.name} Pq {field.unit}"
            yield from prose(sentence(field.help))
        yield ".El"


def figures(page, name):
    yield ".Bl -tag -width Ds"
    for figure in tables.figures(page.stats, name):
        yield f".It Va {figure.name} Pq {UNITS[figure.unit]}, {KINDS[figure.kind]}"
        yield from prose(sentence(figure.help))
    yield ".El"


def names(page, name):
    yield ".Bl -tag -width Ds"
    for entry in tables.header_list(page.stats, name):
        yield f".It Va {entry[0]}"
        yield from prose(sentence(entry[-1]))
    yield ".El"


def number(page, name):
    yield from prose(re.search(rf"#define {name} (\S+)", page.stats)[1].rstrip("u") + ".")


EXITS = {
    "0": "It was shown, or holds.",
    "1": "Nothing matched, or it does not hold, or there is a problem.",
    "2": "The command line is wrong.",
    "3": "No permission.",
    "4": "A segment of figures is incompatible or damaged.",
    "5": "The process went away.",
    "6": "check: a figure is not known, so that it cannot be told whether the condition holds.",
    "125": "poolstat itself failed; run: the library was not found.",
    "126": "run: the program cannot be executed.",
    "127": "run: the program was not found.",
    "128": "run: 128 and the number of the signal that ended the program.",
}


def keys(page):
    yield ".Bl -tag -width Ds"
    for names_of_key, meaning in page.keys:
        yield f".It {escaped(names_of_key)}"
        yield from prose(sentence(meaning))
    yield ".El"


def exits(page):
    """Those of which --help tells, in these words."""
    told = "\n".join(next(lines for title, lines in tables.paragraphs(page.help) if title.startswith("Exit codes")))
    yield ".Bl -tag -width Ds"
    for code in sorted(set(re.findall(r"\b\d+\b", told)), key=int):
        yield f".It {code}"
        yield from prose(EXITS[code])
    yield ".El"


PARTS = {"EXITS": exits, "SYNOPSIS": synopsis, "COMMANDS": commands, "OPTIONS": options, "VARIABLES": variables, "FIELDS": fields,
         "FIGURES": figures, "NAMES": names, "NUMBER": number, "KEYS": keys}


class Page:
    def __init__(self, poolstat, headers):
        self.commands, self.options = tables.commands_and_options(poolstat)
        self.help = tables.run(poolstat, "--help")
        self.variables = tables.variables(poolstat)
        self.fields = tables.fields(poolstat)
        self.keys = tables.keys(poolstat)
        self.stats = (Path(headers) / "poolcuda" / "stats.h").read_text()


def main():
    parser = argparse.ArgumentParser()
    for name in ("--poolstat", "--headers", "--version"):
        parser.add_argument(name, required=True)
    parser.add_argument("template")
    parser.add_argument("output")
    arguments = parser.parse_args()
    page = Page(arguments.poolstat, arguments.headers)
    lines = []
    for line in Path(arguments.template).read_text().splitlines():
        match = re.fullmatch(r"@([A-Z]+)(?: (\w+))?@", line)
        if match is None:
            lines.append(line.replace("@VERSION@", arguments.version))
        else:
            lines += PARTS[match[1]](page, *filter(None, [match[2]]))
    Path(arguments.output).write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
