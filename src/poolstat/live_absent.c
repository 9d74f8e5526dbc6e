/* SPDX-License-Identifier: MIT
 *
 * In place of the live view where ncurses was not there to build it.
 */
#include "commands.h"
#include "live.h"
#include "report.h"

bool live_is_wanted(const struct options_taken *taken) {
    (void)taken;
    return false;
}

int command_live(const struct options *options, int argc, char **argv) {
    (void)argc;
    (void)argv;
    return report(options, CODE_USAGE,
                  "the live view is not built in: it needs ncursesw (libncurses-dev), then meson setup -Dtui=enabled; "
                  "the table again and again: poolstat ls -d 1");
}
