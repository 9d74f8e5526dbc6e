# SPDX-License-Identifier: MIT
"""The report of a check: report.json, report.md, and the lines on the terminal."""

import json


def one_line(found):
    """What the terminal says of a part."""
    text = f"{found['part']:<10} {found['state']:<12} {found['seconds']:6.1f} s"
    reason = " ".join((found["reason"] or (found["lines"] or [""])[0]).split())
    return f"{text}   {reason}"[:240].rstrip()


def cell(text):
    return str(text).replace("|", "\\|").replace("\n", " ")


def table_text(table):
    lines = [
        "| " + " | ".join(cell(word) for word in table["header"]) + " |",
        "| " + " | ".join("---" for _ in table["header"]) + " |",
    ]
    lines += ["| " + " | ".join(cell(word) for word in row) + " |" for row in table["rows"]]
    return "\n".join(lines)


def markdown(report):
    device = report["device"]
    where = (
        "the simulated CUDA"
        if report["simulated"]
        else f"{device['name']}, driver {device['driver']}" if device else "no GPU"
    )
    text = [
        f"# GPU check: {where}",
        "",
        f"{report['when']}; {report['host']}; version {report['version']}; {report['seconds']:.0f} s. {report['totals']}.",
        "",
        "| part | result | seconds | |",
        "| --- | --- | ---: | --- |",
    ]
    text += [
        f"| {found['part']} | {found['state']} | {found['seconds']} | {cell(found['reason'] or '')} |"
        for found in report["parts"]
    ]
    for found in report["parts"]:
        if not found["lines"] and not found["tables"] and not found["failures"]:
            continue
        text += ["", f"## {found['part']}: {found['state']}", ""]
        if found["failures"]:
            text += [f"- {failure}" for failure in found["failures"]] + [""]
        text += [f"{line}  " for line in found["lines"]]
        for table in found["tables"]:
            text += ["", f"**{table['title']}**", "", table_text(table)]
    return "\n".join(text) + "\n"


def write(report, out):
    (out / "report.json").write_text(json.dumps(report, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    (out / "report.md").write_text(markdown(report), encoding="utf-8")
