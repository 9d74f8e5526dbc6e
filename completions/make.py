#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Makes the completion of a shell of its template and of the tables that poolstat prints.

    make.py --poolstat PROGRAM --tables FOLDER SHELL TEMPLATE OUTPUT
"""
import argparse
import re
import sys
from pathlib import Path

# By the names of arguments in --help: what kind of value is completed. Of others nothing is known.
KINDS = {"PID": "pids", "PID[,PID]": "pids", "USER": "users", "COMMAND": "programs", "VAR=VALUE": "variables",
         "COLUMNS": "columns", "WHEN": "colours", "FILE": "files", "DIR": "folders", "DIRECTORY": "folders"}


def operands_of(command, commands):
    """Words, and kinds of values, that may be the arguments of a command."""
    if command.name == "help":
        return re.findall(r"[a-z]+", command.arguments) + [other.name for other in commands], []
    text = re.sub(r"\[-[^]]*\](\.\.\.)?", "", command.arguments)
    words = re.findall(r"(?<![A-Za-z-])[a-z][a-z-]*", text)
    kinds = [KINDS[name] for name in ("PID", "COMMAND", "FILE", "DIR") if re.search(rf"\b{name}\b", text)]
    return list(dict.fromkeys(words)), kinds


def of_command(command, options):
    return [option for option in options if option.name in command.options]


def forms(option):
    return ([f"-{option.letter}"] if option.letter else []) + [f"--{option.name}"]


def quoted(text):
    return "'" + text.replace("'", "'\\''") + "'"


# ---- bash ----

def bash(page):
    general = [form for option in page.options if option.group == "General" for form in forms(option)]
    options, kinds, operands = [], [], []
    everywhere = dict.fromkeys(form for option in page.options for form in forms(option))
    for command in page.commands:
        own = " ".join(form for option in of_command(command, page.options) for form in forms(option))
        options.append(f"    {command.name}) printf '%s\\n' {own} ;;")
        words, values = operands_of(command, page.commands)
        parts = ([f"printf '%s\\n' {' '.join(words)}"] if words else []) + [f'_poolstat_values {kind} "$2"' for kind in values]
        if parts:
            operands.append(f"    {command.name}) {'; '.join(parts)} ;;")
    # Before a command is named its options may stand too.
    options.append(f"    '') printf '%s\\n' {' '.join(everywhere)} ;;")
    for option in page.options:
        if option.argument:
            kinds.append(f"    {' | '.join(forms(option))}) echo {KINDS.get(option.argument, 'anything')} ;;")
    return {"OPTIONS": options, "GENERAL": " ".join(general), "KINDS": kinds, "OPERANDS": operands,
            "COMMANDS": " ".join(command.name for command in page.commands),
            "VARIABLES": " ".join(page.variables), "COLUMNS": " ".join(page.columns)}


# ---- zsh ----

ZSH_ACTIONS = {"pids": "_poolstat_pids", "users": "_users", "programs": "_command_names -e", "variables": "_poolstat_variables",
               "columns": "_poolstat_columns", "colours": "(auto always never)", "files": "_files", "folders": "_files -/"}


def zsh_text(text):
    return re.sub(r"([\\\[\]:])", r"\\\1", text)


def zsh_specification(option, inner):
    """As _arguments takes it. Within a command's own options, blanks before each line."""
    value = f":{zsh_text(option.argument)}:{ZSH_ACTIONS.get(KINDS.get(option.argument), ' ')}" if option.argument else ""
    name = f"--{option.name}" + ("=" if option.argument else "")
    names = f"{{-{option.letter}{'+' if option.argument else ''},{name}}}" if option.letter else name
    repeated = option.name == "env"
    excluded = "*" if repeated else f"({' '.join(forms(option))})"
    body = quoted(f"[{zsh_text(option.help)}]{value}")
    return f"{' ' * inner}{quoted(excluded)}{names}{body} \\"


def zsh_case(command, page):
    lines = [f"        {command.name})", "            _arguments \\"]
    lines += [zsh_specification(option, 16) for option in of_command(command, page.options)]
    words, kinds = operands_of(command, page.commands)
    if command.name == "run":
        lines.append("                '*::program:_normal'")
    elif words or kinds:
        actions = ([f"compadd {' '.join(words)}"] if words else []) + [ZSH_ACTIONS[kind] for kind in kinds]
        lines.append(f"                '*:argument:{{ {'; '.join(actions)} }}'")
    else:
        lines.append("                && return")
    return [*lines, "            ;;"]


def zsh(page):
    return {"COMMANDS": [f"        {quoted(command.name + ':' + zsh_text(command.help))}" for command in page.commands],
            "GENERAL": [zsh_specification(option, 8) for option in page.options],
            "CASES": [line for command in page.commands for line in zsh_case(command, page)],
            "VARIABLES": " ".join(page.variables), "COLUMNS": " ".join(page.columns)}


# ---- fish ----

def fish_values(kind, page):
    return {"pids": "'(__poolstat_pids)'", "users": "'(__fish_complete_users)'", "programs": "'(__fish_complete_command)'",
            "variables": quoted(" ".join(f"{name}=" for name in page.variables)), "columns": quoted(" ".join(page.columns)),
            "colours": "'auto always never'"}.get(kind)


def fish_option(option, page):
    users = [command.name for command in page.commands if option.name in command.options]
    condition = "" if option.group == "General" else f" -n {quoted('__poolstat_is ' + ' '.join(users) + ' ' + quoted(''))}"
    letter = f" -s {option.letter}" if option.letter else ""
    values = ""
    if option.argument:
        kind = KINDS.get(option.argument)
        listed = fish_values(kind, page)
        values = " -x" + (f" -a {listed}" if listed else "") if kind not in ("files", "folders") else " -r -F"
    return f"complete -c poolstat{condition}{letter} -l {option.name}{values} -d {quoted(option.help)}"


def fish(page):
    commands = [f"complete -c poolstat -n '__poolstat_is \"\"' -a {command.name} -d {quoted(command.help)}"
                for command in page.commands]
    operands = []
    for command in page.commands:
        words, kinds = operands_of(command, page.commands)
        condition = f"complete -c poolstat -n '__poolstat_is {command.name}'"
        if words:
            operands.append(f"{condition} -a {quoted(' '.join(words))}")
        operands += [f"{condition} -a {fish_values(kind, page)}" for kind in kinds if fish_values(kind, page)]
    valued = " ".join(form for option in page.options if option.argument for form in forms(option))
    return {"COMMANDS": commands, "OPTIONS": [fish_option(option, page) for option in page.options], "OPERANDS": operands,
            "VALUED": valued}


class Page:
    def __init__(self, tables, poolstat):
        self.commands, self.options = tables.commands_and_options(poolstat)
        self.variables = [variable.name for variable in tables.variables(poolstat)]
        self.columns = tables.columns(poolstat)


def filled(template, parts):
    """With each @NAME@ in place: a list as lines of its own, a text within a line."""
    lines = []
    for line in template.splitlines():
        whole = re.fullmatch(r"@([A-Z]+)@", line)
        if whole and isinstance(parts[whole[1]], list):
            lines += parts[whole[1]]
        else:
            lines.append(re.sub(r"@([A-Z]+)@", lambda match: parts[match[1]], line))
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--poolstat", required=True)
    parser.add_argument("--tables", required=True)
    parser.add_argument("shell", choices=["bash", "zsh", "fish"])
    parser.add_argument("template")
    parser.add_argument("output")
    arguments = parser.parse_args()
    sys.path.insert(0, arguments.tables)
    import tables
    page = Page(tables, arguments.poolstat)
    parts = {"bash": bash, "zsh": zsh, "fish": fish}[arguments.shell](page)
    Path(arguments.output).write_text(filled(Path(arguments.template).read_text(), parts))


if __name__ == "__main__":
    main()
