/* SPDX-License-Identifier: MIT
 *
 * The terminal, by ncurses: the only part of the live view that knows it.
 */
#ifndef POOLSTAT_LIVE_SCREEN_H
#define POOLSTAT_LIVE_SCREEN_H

#include <stdbool.h>
#include <stdint.h>

#include "live_canvas.h"

/* Can a live view be shown on this terminal, with these stdin and stdout? NULL, or why not. */
const char *screen_refusal(void);

bool screen_is_utf8(void); /* as the user's locale says; before anything else has set it */

/* Takes the terminal over. NULL, or why it did not work. It is given back by screen_stop, and when the process exits.
 */
const char *screen_start(bool coloured);
void screen_stop(void);

void screen_measure(size_t *width, size_t *height); /* asks the terminal; to be called when it may have changed */
void screen_paint(const struct canvas *canvas);
void screen_repaint(void); /* the next paint writes everything: something else may have written, too */

/* The next key that is there (live_keys.h), LIVE_KEY_NONE when none is. */
uint32_t screen_key(void);

#endif
