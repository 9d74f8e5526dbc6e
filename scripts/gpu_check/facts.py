# SPDX-License-Identifier: MIT
"""Facts: every question of tests/driver-facts.md, asked by its few lines (tests/gpu/facts), beside what was assumed."""

import json
import re
import subprocess

import doors
import identity
from part import Skip
from programs import CompileError, program
from stage import die_with_parent

AS_ASSUMED, DIFFERS, NOT_ASKED = "as assumed", "DIFFERS", "not asked"


def questions(stage):
    """number: (question, assumed), as the table of the tree has them."""
    text = (stage.tree / "tests/driver-facts.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| *(\d+) *\| *(.*?) *\| *(.*?) *\|", text, re.MULTILINE)
    return {int(number): (question, assumed) for number, question, assumed in rows}


def environment(stage):
    """The variables of tests/gpu/facts, with what could be compiled."""
    variables = {"GPU_CHECK_PROGRAMS": stage.out / "programs"}
    if stage.simulated:
        variables["SIM_DEVICES"] = 2
    for name in "late", "door-driver", "injected.so", "kernels.cubin":
        try:
            path = program(stage, name)
        except (Skip, CompileError):
            continue
        if name == "kernels.cubin":
            variables["GPU_CHECK_KERNELS"] = path
    # It is named by its path: a program of the questions preloads it itself.
    variables["GPU_CHECK_POOL"] = stage.library
    return variables


def by_other_parts(stage):
    """The two questions that whole parts answer."""
    found = identity.look(stage, False)
    answers = [
        {"what": "look-ups that gave another address than dlsym", "assumed": 0, "found": len(found["exceptions"])}
    ]
    yield {"number": 3, "answers": answers}
    answers = []
    for way in "shared runtime", "static runtime":
        counts, values, figures = doors.look(stage, way)
        answers.append(
            {"what": f"{way}: allocations that the pool saw", "assumed": doors.ALLOCATIONS, "found": counts["allocs"]}
        )
        held = counts["reserved_bytes"] - doors.total(figures, "releasable_bytes")
        around = values["before"] - values["live"] - held
        answers.append(
            {
                "what": f"{way}: 2 MiB steps of memory that went around it",
                "assumed": 0,
                "found": int(around / doors.STEP),
            }
        )
    yield {"number": 2, "answers": answers}


def asked(stage, numbers=()):
    """Each answer as it comes."""
    command = [str(word) for word in [*stage.python("facts/main.py"), *numbers]]
    with open(stage.out / "logs/facts.txt", "w", encoding="utf-8") as log:
        process = subprocess.Popen(
            command,
            env=stage.environment(toolkit=True, **environment(stage)),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            preexec_fn=die_with_parent,
        )
        for line in process.stdout:
            log.write(line)
            yield json.loads(line)
        process.wait()
    for_parts = by_other_parts(stage)
    for number in 3, 2:
        try:
            yield next(for_parts)
        except (RuntimeError, Skip, CompileError) as reason:
            yield {"number": number, "answers": [], "error": str(reason)}
        except StopIteration:
            yield {"number": number, "answers": [], "error": "not asked, since the question before it failed"}


def verdict(answer):
    judged = [line for line in answer["answers"] if line["assumed"] is not None]
    if answer.get("lacking"):
        return NOT_ASKED
    if answer.get("error") or not judged or any(line["assumed"] != line["found"] for line in judged):
        return DIFFERS
    return AS_ASSUMED


def short(value):
    return json.dumps(value) if not isinstance(value, str) else value


def found_text(answer):
    """What the table says was found: where it differs, these answers, else a few words."""
    if answer.get("lacking"):
        return answer["lacking"]
    wrong = [line for line in answer["answers"] if line["assumed"] is not None and line["assumed"] != line["found"]]
    text = [f"{line['what']}: {short(line['found'])}, not {short(line['assumed'])}" for line in wrong]
    if answer.get("error"):
        text.append(answer["error"].strip().splitlines()[-1])
    notes = [f"{line['what']}: {short(line['found'])}" for line in answer["answers"] if line["assumed"] is None]
    judged = len([line for line in answer["answers"] if line["assumed"] is not None])
    return "; ".join([*(text or [f"yes, in {judged} answer{'s' if judged != 1 else ''}"]), *notes])[:700]


def run(stage, part):
    stage.need_device()
    (stage.out / "logs").mkdir(exist_ok=True)
    table, answers = questions(stage), {}
    for answer in asked(stage):
        answers[answer["number"]] = {**answer, "verdict": verdict(answer)}
        part.data("answers", answers)
    rows, counts = [], {AS_ASSUMED: 0, DIFFERS: 0, NOT_ASKED: 0}
    for number, (question, assumed) in table.items():
        answer = answers.get(number, {"answers": [], "error": "the question is not written down", "verdict": DIFFERS})
        counts[answer["verdict"]] += 1
        rows.append([number, question, assumed, answer["verdict"], found_text(answer)])
        # A fact that differs is what the check is for: it is told, and the simulator and the code follow.
        if answer["verdict"] == DIFFERS:
            part.fail(f"{number}: {found_text(answer)}")
    part.say(
        f"{len(table)} questions: {counts[AS_ASSUMED]} as assumed, {counts[DIFFERS]} differ, {counts[NOT_ASKED]} not asked."
    )
    part.data("counts", counts)
    part.table("Questions of tests/driver-facts.md", ["", "question", "assumed", "", "found"], rows)
