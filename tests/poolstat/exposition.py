# SPDX-License-Identifier: MIT
"""A strict reader of Prometheus' text form 0.0.4: what it does not accept, poolstat must not write."""
import re
from collections import namedtuple

Family = namedtuple("Family", "type help samples")
Sample = namedtuple("Sample", "name labels value")

NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\\\|\\"|\\n)*)"(,|$)')
VALUE = re.compile(r"[0-9]+(\.[0-9]+)?")  # ours are never negative, and need no exponent
SAMPLE = re.compile(r"(?P<name>[^{ ]+)(?:\{(?P<labels>.*)\})? (?P<value>[^ ]+)")
UNITS_OF_OTHERS = ("_ns", "_ms", "_us", "_milliseconds", "_nanoseconds", "_kib", "_mib", "_percent")


def require(condition, what):
    if not condition:
        raise AssertionError(what)


def parse_labels(text):
    labels = {}
    while text:
        found = LABEL.match(text)
        require(found, f"labels at {text!r}")
        name, value, _ = found.groups()
        require(name not in labels, f"label {name} twice")
        labels[name] = re.sub(r"\\(.)", lambda escape: "\n" if escape[1] == "n" else escape[1], value)
        text = text[found.end():]
    return labels


def parse_sample(line, family, kind):
    found = SAMPLE.fullmatch(line)
    require(found, f"sample {line!r}")
    suffixes = ("_bucket", "_sum", "_count") if kind == "histogram" else ("",)
    require(found["name"] in [family + suffix for suffix in suffixes], f"{line!r} stands in {family}")
    require(VALUE.fullmatch(found["value"]), f"value of {line!r}")
    return Sample(found["name"], parse_labels(found["labels"] or ""), found["value"])


def check_names(name, kind):
    require(NAME.fullmatch(name) and name.startswith("poolcuda_"), f"name {name!r}")
    require(name.endswith("_total") == (kind == "counter"), f"{name} is a {kind}")
    plain = name.removesuffix("_total")
    require(not plain.endswith(UNITS_OF_OTHERS), f"unit of {name}")
    require(not plain.endswith(("_sum", "_count", "_bucket")), f"end of {name}")


def check_histogram(name, samples):
    """The buckets of one set of labels stand together, grow, and end with what _count says."""
    series = {}
    for sample in samples:
        labels = {key: value for key, value in sample.labels.items() if key != "le"}
        part = series.setdefault(tuple(sorted(labels.items())), {"bounds": [], "counts": [], "sum": None, "count": None})
        if sample.name.endswith("_bucket"):
            part["bounds"].append(float(sample.labels["le"]))
            part["counts"].append(int(sample.value))
        else:
            part[sample.name.rsplit("_", 1)[1]] = float(sample.value)
    for labels, part in series.items():
        require(part["bounds"] and part["bounds"] == sorted(set(part["bounds"])), f"bounds of {name} {labels}")
        require(part["bounds"][-1] == float("inf"), f"last bound of {name} {labels}")
        require(part["counts"] == sorted(part["counts"]), f"buckets of {name} {labels} do not grow")
        require(part["counts"][-1] == part["count"], f"{name}_count of {labels}")


def parse(text):
    """Families by name."""
    require(text.endswith("\n") and "\r" not in text and "\n\n" not in text, "ends of lines")
    require(not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]", text), "control characters")
    families, seen, name = {}, set(), None
    lines = iter(text[:-1].split("\n"))
    for line in lines:
        if line.startswith("# HELP "):
            name, _, help_text = line.removeprefix("# HELP ").partition(" ")
            found = re.fullmatch(f"# TYPE {re.escape(name)} (counter|gauge|histogram)", next(lines))
            require(found and help_text, f"help and type of {name}")
            require(name not in families, f"{name} begins twice")
            check_names(name, found[1])
            families[name] = Family(found[1], help_text, [])
            continue
        require(name is not None and not line.startswith("#"), f"line {line!r}")
        sample = parse_sample(line, name, families[name].type)
        series = (sample.name, *sorted(sample.labels.items()))
        require(series not in seen, f"{line!r} is there twice")
        seen.add(series)
        families[name].samples.append(sample)
    for name, family in families.items():
        if family.type == "histogram":
            check_histogram(name, family.samples)
    return families


def values(families, name, **labels):
    """Values of a metric (for histograms: with its suffix) whose labels are these, among others."""
    found = [family for family in families if name in (family, f"{family}_bucket", f"{family}_sum", f"{family}_count")]
    return [float(sample.value) for family in found for sample in families[family].samples
            if sample.name == name and labels.items() <= sample.labels.items()]
