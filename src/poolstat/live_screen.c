/* SPDX-License-Identifier: MIT
 *
 * Colours are those that the terminal's user has chosen for these names, on the user's own background.
 */
#include "live_screen.h"

#include <langinfo.h>
#include <locale.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "live_keys.h"
#include "map_model.h"
#include "memory.h"

/* Functions alone: the macros of this header have names such as `move` and `clear`. */
#define NCURSES_NOMACROS
#define NCURSES_WIDECHAR 1
#include <curses.h>
#include <term.h>

#define ESCAPE_DELAY_MS 25 /* within which the bytes of a key's sequence come */

static const struct look {
    short colour; /* −1: the terminal's own */
    attr_t attributes, without_colours;
} looks[STYLE_COUNT] = {
    [STYLE_PLAIN] = {-1, A_NORMAL, A_NORMAL},
    [STYLE_DIM] = {-1, A_DIM, A_DIM},
    [STYLE_TITLE] = {-1, A_BOLD, A_BOLD},
    [STYLE_SORTED] = {COLOR_CYAN, A_BOLD, A_BOLD | A_UNDERLINE},
    [STYLE_FRAME] = {-1, A_REVERSE, A_REVERSE},
    [STYLE_KEY] = {COLOR_CYAN, A_BOLD, A_BOLD},
    [STYLE_LIVE] = {COLOR_GREEN, A_NORMAL, A_NORMAL},
    [STYLE_CACHED] = {COLOR_YELLOW, A_NORMAL, A_NORMAL},
    [STYLE_RESERVED] = {COLOR_BLUE, A_NORMAL, A_NORMAL},
    [STYLE_HISTORY] = {COLOR_CYAN, A_NORMAL, A_NORMAL},
    [STYLE_GOOD] = {COLOR_GREEN, A_BOLD, A_BOLD},
    [STYLE_WARNING] = {COLOR_YELLOW, A_BOLD, A_BOLD},
    [STYLE_ALARM] = {COLOR_RED, A_BOLD, A_BOLD},
    [STYLE_SELECTED] = {-1, A_REVERSE, A_REVERSE},
    [STYLE_HEAT_1] = {COLOR_BLUE, A_NORMAL, A_NORMAL},
    [STYLE_HEAT_2] = {COLOR_CYAN, A_NORMAL, A_NORMAL},
    [STYLE_HEAT_3] = {COLOR_YELLOW, A_NORMAL, A_NORMAL},
    [STYLE_HEAT_4] = {COLOR_RED, A_NORMAL, A_NORMAL},
};

static SCREEN *screen;
static bool has_colours;

bool screen_is_utf8(void) {
    if (setlocale(LC_CTYPE, "") != NULL) return strcmp(nl_langinfo(CODESET), "UTF-8") == 0;
    /* A locale that is not installed here: what the terminal takes is told by its name. */
    static const char *const names[] = {"LC_ALL", "LC_CTYPE", "LANG"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        const char *name = getenv(names[i]);
        if (name == NULL || name[0] == '\0') continue;
        return strcasestr(name, "utf-8") != NULL || strcasestr(name, "utf8") != NULL;
    }
    return false;
}

const char *screen_refusal(void) {
    const char *name = getenv("TERM");
    int answer = 0;
    if (!isatty(STDIN_FILENO) || !isatty(STDOUT_FILENO)) return "stdin and stdout must be a terminal";
    if (name == NULL || name[0] == '\0') return "TERM does not say what terminal this is";
    if (strcmp(name, "dumb") == 0) return "a terminal without a cursor (TERM=dumb)";
    if (setupterm(name, STDOUT_FILENO, &answer) != OK || answer != 1)
        return answer == 0 ? "this terminal (TERM) is in no terminfo database here"
                           : "there is no terminfo database here: install ncurses-base, or set TERMINFO";
    const bool can_move = cursor_address != NULL && clear_screen != NULL;
    del_curterm(cur_term);
    return can_move ? NULL : "this terminal (TERM) cannot move its cursor";
}

static void start_map_colours(void) {
    _Static_assert(STYLE_MAP_LAST - STYLE_MAP + 1 == MAP_STATES, "there is a style for each state");
    for (unsigned i = 0; i < MAP_STATES; i++) {
        const struct map_look *look = map_look((enum map_state)i);
        const short ink = look->ink < COLORS ? look->ink : COLOR_WHITE;
        init_pair((short)(STYLE_MAP + i), ink, look->background);
    }
}

static void start_colours(void) {
    has_colours = has_colors() && start_color() == OK;
    if (!has_colours) return;
    const bool own_background = use_default_colors() == OK;
    for (int i = 1; i < STYLE_MAP; i++)
        init_pair((short)i, looks[i].colour < 0 && !own_background ? COLOR_WHITE : looks[i].colour,
                  own_background ? -1 : COLOR_BLACK);
    start_map_colours();
}

const char *screen_start(bool coloured) {
    static bool is_registered;
    use_env(FALSE); /* LINES and COLUMNS are of another time */
    screen = newterm(NULL, stdout, stdin);
    if (screen == NULL) return "the terminal could not be taken over";
    if (!is_registered) atexit(screen_stop);
    is_registered = true;
    set_escdelay(ESCAPE_DELAY_MS);
    cbreak();
    noecho();
    nonl();
    keypad(stdscr, TRUE);
    nodelay(stdscr, TRUE);
    curs_set(0);
    has_colours = false;
    if (coloured) start_colours();
    return NULL;
}

void screen_stop(void) {
    if (screen == NULL) return;
    curs_set(1);
    endwin();
    delscreen(screen);
    screen = NULL;
}

void screen_measure(size_t *width, size_t *height) {
    struct winsize size;
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_row > 0 && size.ws_col > 0 &&
        (size.ws_row != getmaxy(stdscr) || size.ws_col != getmaxx(stdscr))) {
        resizeterm(size.ws_row, size.ws_col);
        screen_repaint();
    }
    *width = (size_t)getmaxx(stdscr);
    *height = (size_t)getmaxy(stdscr);
}

static void set_style(unsigned char style) {
    const struct look *look = &looks[style < STYLE_COUNT ? style : STYLE_PLAIN];
    attr_set(has_colours ? look->attributes : look->without_colours, has_colours ? (short)style : 0, NULL);
}

static bool is_blank(const struct canvas_cell *cell) {
    return cell->style == STYLE_PLAIN && cell->glyph[0] == ' ';
}

/* Cells of one style together; the blank ones at the end are there already. */
static void paint_row(const struct canvas *canvas, size_t row, char *text) {
    const struct canvas_cell *cells = &canvas->cells[row * canvas->width];
    size_t width = canvas->width;
    while (width > 0 && is_blank(&cells[width - 1])) width--;
    for (size_t column = 0, end; column < width; column = end) {
        char *to = text;
        for (end = column; end < width && cells[end].style == cells[column].style; end++)
            to = stpcpy(to, cells[end].glyph);
        set_style(cells[column].style);
        mvaddstr((int)row, (int)column, text);
    }
}

void screen_paint(const struct canvas *canvas) {
    char *text = memory_new(canvas->width + 1, sizeof(canvas->cells->glyph));
    erase();
    for (size_t row = 0; row < canvas->height; row++) paint_row(canvas, row, text);
    free(text);
    attr_set(A_NORMAL, 0, NULL);
    refresh();
}

void screen_repaint(void) {
    clearok(curscr, TRUE);
}

uint32_t screen_key(void) {
    static const struct {
        wint_t code;
        uint32_t key;
    } keys[] = {{KEY_UP, LIVE_KEY_UP},
                {KEY_DOWN, LIVE_KEY_DOWN},
                {KEY_LEFT, LIVE_KEY_LEFT},
                {KEY_RIGHT, LIVE_KEY_RIGHT},
                {KEY_PPAGE, LIVE_KEY_PAGE_UP},
                {KEY_NPAGE, LIVE_KEY_PAGE_DOWN},
                {KEY_HOME, LIVE_KEY_HOME},
                {KEY_END, LIVE_KEY_END},
                {KEY_ENTER, LIVE_KEY_ENTER},
                {KEY_A1, LIVE_KEY_HOME},
                {KEY_BACKSPACE, LIVE_KEY_BACKSPACE},
                {KEY_C1, LIVE_KEY_END}};
    wint_t code;
    for (;;) {
        const int kind = get_wch(&code);
        if (kind == ERR) return LIVE_KEY_NONE;
        if (kind == OK) return code;
        if (code >= (wint_t)KEY_F(1) && code <= (wint_t)KEY_F(12)) return LIVE_KEY_F1 + code - (uint32_t)KEY_F(1);
        for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
            if (keys[i].code == code) return keys[i].key;
    }
}
