# SPDX-License-Identifier: MIT
"""The schema of the documents: sound, in step with the glossary, and fit to find what is wrong. That the documents keep to
it is checked wherever the tests of poolstat ask for one."""
import copy
import json
import re

import schema
from common import document, expect, expect_in, folder_of_segments, guest, one_guest, poolstat
from tap import case, main, skip


def need_package():
    if schema.jsonschema is None:
        skip("the Python package jsonschema is not installed")


def names_in(node, commands):
    """All names of fields; of the document's own only those of commands that this poolstat has."""
    if "$ref" in node:
        yield from names_in(schema.SCHEMA["$defs"][node["$ref"].rsplit("/", 1)[1]], commands)
    for part in node.get("allOf", []):
        yield from names_in(part, commands)
    if "items" in node:
        yield from names_in(node["items"], commands)
    for name, definition in node.get("properties", {}).items():
        owner = re.match(r"of ([a-z]+)", definition.get("description", ""))
        if node is schema.SCHEMA and owner and owner[1] not in commands:
            continue
        yield name
        yield from names_in(definition, commands)


@case
def schema_is_one():
    need_package()
    schema.jsonschema.Draft202012Validator.check_schema(schema.SCHEMA)
    for name, definition in schema.SCHEMA["$defs"].items():
        expect(sorted(definition.get("required", [])), sorted(definition.get("properties", [])), f"required in {name}")


@case
def names_are_those_of_the_glossary():
    with folder_of_segments() as folder:
        lines = poolstat("help", "fields", folder=folder).out.splitlines()
        commands = re.findall(r"^  poolstat ([a-z]+)", poolstat("--help", folder=folder).out, re.MULTILINE)
    glossary, group = set(), ""
    for line in lines:
        if line.startswith("  ") and not group.startswith("Types") and " of tables " not in line:
            glossary.add(line.split()[0])
        elif line and not line.startswith(" "):
            group = line
    names = set(names_in(schema.SCHEMA, commands))
    expect(sorted(names - glossary), [], "in the schema and not in the glossary")
    expect(sorted(glossary - names), [], "in the glossary and not in the schema")


@case
def definitions_are_all_used():
    text = json.dumps(schema.SCHEMA)
    expect([name for name in schema.SCHEMA["$defs"] if f'"#/$defs/{name}"' not in text], [])


@case
def documents_of_every_kind_fit():
    need_package()
    with folder_of_segments() as folder, guest(folder), guest(folder, "hostile") as other, guest(folder, "ring"):
        documents = [document(folder=folder), document("show", other.pid, folder=folder),
                     json.loads(poolstat("doctor", "--json", folder=folder).out),
                     document("show", 4194305, folder=folder, code=5), document("show", "x", folder=folder, code=2)]
        other.path.write_bytes(b"x" * 4096)
        documents.append(document(folder=folder, code=4))
    for one in documents:
        schema.check(one)


def paths(node, at=()):
    if at:
        yield at
    for key, value in node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else []:
        yield from paths(value, (*at, key))


def changed(node, path, change):
    node = copy.deepcopy(node)
    parent = node
    for key in path[:-1]:
        parent = parent[key]
    change(parent, path[-1])
    return node


def is_refused(node):
    try:
        schema.check(node)
    except AssertionError:
        return True
    return False


@case
def wrong_documents_are_refused():
    need_package()

    def negate(parent, key):
        parent[key] = -1

    def remove(parent, key):
        del parent[key]

    def add(parent, key):
        parent[key + "x"] = 0

    with one_guest() as (folder, started):
        for good in (document("show", started.pid, folder=folder), document(folder=folder)):
            expect(is_refused(good), False, "the document itself")
            tried = 0
            # One of each name is enough.
            for path in {path[-1]: path for path in paths(good) if isinstance(path[-1], str)}.values():
                for change in (negate, remove, add):
                    expect(is_refused(changed(good, path, change)), True, f"{change.__name__} at {path}")
                    tried += 1
            if tried < 100:
                raise AssertionError(f"only {tried} changes were tried")


@case
def documents_one_after_the_other_are_read():
    expect(schema.check_text(""), 0)
    if schema.jsonschema is None:
        expect(schema.check_text("{}\n{}\n"), 2)
    with folder_of_segments() as folder, guest(folder):
        text = poolstat("--json", folder=folder).out
    expect(schema.check_text(text + text), 2)
    try:
        schema.check_text(text + "x")
    except ValueError as error:
        expect_in("Expecting value", str(error))
    else:
        raise AssertionError("what is no JSON was accepted")


main()
