# SPDX-License-Identifier: MIT
"""Makes the version script and the unsimulated functions from exports.txt, the names that the real runtime exports.

    generate.py exports.txt map|functions OUTPUT
"""
import sys

NODE = "libcudart.so.13"
EXTRA = ["sim_runtime_unsimulated_calls"]


def read_names(path):
    """Pairs (name, simulated), in the order of the file."""
    with open(path, encoding="ascii") as lines:
        words = [line.split() for line in lines if line.strip() and not line.startswith("#")]
    return [(word[0], word[1:] != ["unsimulated"]) for word in words]


def version_script(names):
    exported = "".join(f"        {name};\n" for name in [name for name, _ in names] + EXTRA)
    return f"{NODE} {{\n    global:\n{exported}    local:\n        *;\n}};\n"


def functions(names):
    missing = [name for name, simulated in names if not simulated]
    table = "".join(f'    {{"{name}", 0}},\n' for name in missing)
    bodies = "".join(
        f'__attribute__((visibility("default"))) int {name}(void);\n'
        f"int {name}(void) {{ return simrt_unsimulated_call(&simrt_unsimulated_names[{index}]); }}\n"
        for index, name in enumerate(missing))
    return ('#include "unsimulated.h"\n\n'
            f"struct simrt_unsimulated simrt_unsimulated_names[] = {{\n{table}}};\n"
            f"const size_t simrt_unsimulated_count = {len(missing)};\n\n{bodies}")


def main():
    source, kind, output = sys.argv[1:]
    text = {"map": version_script, "functions": functions}[kind](read_names(source))
    with open(output, "w", encoding="ascii") as file:
        file.write(text)


main()
