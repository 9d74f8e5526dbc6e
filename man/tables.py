# SPDX-License-Identifier: MIT
"""The tables of poolstat and of the public headers, for what is made from them: manuals and completions. Commands, options,
variables and fields are as poolstat prints them; figures are as the header declares them. What cannot be understood is an
error: nothing may be left out in silence."""
import re
import subprocess
from collections import namedtuple

Command = namedtuple("Command", "name arguments help options")  # options: their long names
Option = namedtuple("Option", "name letter argument help group")
Variable = namedtuple("Variable", "name default accepted help")
Field = namedtuple("Field", "name unit help")
Figure = namedtuple("Figure", "name unit kind help")

OPTION = re.compile(r"^  (?:-(?P<letter>\S), |    )?--(?P<name>[a-z][a-z-]*)(?: (?P<argument>\S+))?  +(?P<help>\S.*)$")
COMMAND = re.compile(r"^  poolstat (?P<name>[a-z]+)(?P<rest>.*)$")
FURTHER = ("Columns", "Exit codes", "Environment")  # paragraphs of --help that are no options


def run(poolstat, *arguments):
    return subprocess.run([poolstat, *arguments], check=True, capture_output=True, text=True).stdout


def paragraphs(text):
    """[(title, lines)] of a text in paragraphs, each under a title."""
    found = []
    for line in text.splitlines():
        if line and not line.startswith(" "):
            found.append((line.rstrip(":"), []))
        elif line:
            found[-1][1].append(line)
    return found


def parse_options(help_text):
    options = []
    for title, lines in paragraphs(help_text):
        if title == "Usage" or title.startswith(FURTHER):
            continue
        for line in lines:
            match = OPTION.match(line)
            if match is None:
                raise ValueError(f"no option: {line!r}")
            options.append(Option(match["name"], match["letter"] or "", match["argument"] or "", match["help"], title))
    return options


def parse_commands(help_text):
    """[(name, arguments, help)]"""
    commands = []
    for title, lines in paragraphs(help_text):
        for line in lines if title == "Usage" else ():
            match = COMMAND.match(line)
            if match is None and line.startswith("  poolstat ["):
                continue  # what poolstat without a command does
            if match is None:  # the help of the line before
                commands[-1][2] = line.strip()
                continue
            usage, _, text = match["rest"].partition("  ")
            commands.append([match["name"], usage.replace("[OPTION]...", "").strip(), text.strip()])
    return commands


def commands_and_options(poolstat):
    text = run(poolstat, "--help")
    options = parse_options(text)
    commands = []
    for name, arguments, help_line in parse_commands(text):
        own = parse_options(run(poolstat, name, "--help"))
        commands.append(Command(name, arguments, help_line, [option.name for option in own]))
    return commands, options


def variables(poolstat):
    header, *lines = run(poolstat, "help", "config").splitlines()
    starts = [header.index(title) for title in ("VARIABLE", "DEFAULT", "ACCEPTED", "MEANING")]
    ends = [*starts[1:], None]
    return [Variable(*(line[start:end].strip() for start, end in zip(starts, ends))) for line in lines]


def fields(poolstat):
    """[(title, [Field])]"""
    return [(title, [Field(*re.split(r"  +", line.strip(), maxsplit=2)) for line in lines])
            for title, lines in paragraphs(run(poolstat, "help", "fields"))]


def keys(poolstat):
    """[(names, help)] of the live view."""
    return [re.split(r"  +", line.strip(), maxsplit=1)
            for line in run(poolstat, "help", "keys").splitlines() if line.startswith("  ")]


def columns(poolstat):
    """The names that -o takes, as it says them of a wrong one."""
    done = subprocess.run([poolstat, "ls", "-o", "?"], capture_output=True, text=True)
    return re.search(r"columns: (.*)", done.stderr)[1].split()


def header_list(text, name):
    """The entries of a list of the header, X(a, b, "text" "more"), each as the list of its parts."""
    match = re.search(rf"#define {name}\(X\)((?:.*\\\n)*.*\n)", text)
    if match is None:
        raise ValueError(f"the header has no list {name}")
    body = match[1].replace("\\\n", "\n")
    entries = []
    for arguments in re.findall(r"X\(((?:[^()\"]|\"[^\"]*\")*)\)", body):
        parts = [part.strip() for part in re.findall(r"(?:[^,\"]|\"[^\"]*\")+", arguments)]
        entries.append(["".join(re.findall(r'"([^"]*)"', part)) if '"' in part else part for part in parts])
    if not entries:
        raise ValueError(f"the list {name} is empty")
    return entries


def figures(header_text, name):
    return [Figure(*entry) for entry in header_list(header_text, name)]
