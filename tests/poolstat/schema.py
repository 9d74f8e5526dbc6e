# SPDX-License-Identifier: MIT
"""Checks documents against share/poolstat.schema.json, with no field beyond it: what poolstat writes has to be declared
there. Without the package jsonschema only that they are JSON is checked."""
import json
from pathlib import Path

try:
    import jsonschema
except ImportError:
    jsonschema = None

SCHEMA = json.loads((Path(__file__).resolve().parents[2] / "share/poolstat.schema.json").read_text())


def closed(node):
    """The same schema with every object closed: a field that it does not name is an error. What it refers to is put in
    the reference's place, since a part of an object (allOf) that were closed would know nothing of the rest; it makes the
    checks faster, too."""
    if isinstance(node, list):
        return [closed(item) for item in node]
    if not isinstance(node, dict):
        return node
    if "$ref" in node:
        return closed(SCHEMA["$defs"][node["$ref"].rsplit("/", 1)[1]])
    node = {name: closed(item) for name, item in node.items() if name != "$defs"}
    for part in node.pop("allOf", []):
        node["properties"].update(part["properties"])
        node["required"] += part["required"]
    if "properties" in node and "type" in node:
        node["additionalProperties"] = False
    return node


VALIDATOR = jsonschema and jsonschema.Draft202012Validator(closed(SCHEMA))


def check(document):
    if VALIDATOR is None:
        return
    for error in VALIDATOR.iter_errors(document):
        raise AssertionError(f"against the schema, at {list(error.absolute_path)}: {error.message[:500]}")


def check_text(text):
    """One document after the other. Returns their number."""
    decoder, at, count = json.JSONDecoder(), 0, 0
    while text[at:].strip():
        at += len(text[at:]) - len(text[at:].lstrip())
        document, at = decoder.raw_decode(text, at)
        check(document)
        count += 1
    return count
