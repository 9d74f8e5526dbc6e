/* SPDX-License-Identifier: MIT
 *
 * `serve`: the figures for others, by HTTP or as a file.
 */
#include <unistd.h>

#include "commands.h"
#include "http.h"
#include "listen.h"
#include "report.h"
#include "textfile.h"

#define DEFAULT_LISTEN "127.0.0.1:9178"

/* NULL, or what does not go together. */
static const char *conflict(const struct options *options) {
    if (options->choice.all) return "serve tells of what runs: it does not go with --all";
    if (options->timestamps) return "serve does not take --timestamps: who gathers metrics notes the time";
    if (options->textfile != NULL)
        return options->listen == NULL ? NULL : "--textfile and --listen do not go together: start two of them";
    if (options->delay_ns != 0 || options->count != 0 || options->once)
        return "-d, -n and -1 are for --textfile: a server answers whenever it is asked";
    return NULL;
}

#ifdef HAVE_MICROHTTPD
static int serve(const struct options *options) {
    struct listener listener;
    const enum code code = listen_open(options, options->listen == NULL ? DEFAULT_LISTEN : options->listen, &listener);
    if (code != CODE_OK) return code;
    const int result = http_serve(options, &listener);
    close(listener.fd);
    return result;
}
#else
static int serve(const struct options *options) {
    return report(options, CODE_USAGE,
                  "this poolstat is built without libmicrohttpd and cannot serve: install libmicrohttpd-dev and "
                  "configure with meson setup -Dserve=enabled; or use --textfile");
}
#endif

int command_serve(const struct options *options, int argc, char **argv) {
    const char *wrong = conflict(options);
    (void)argc;
    (void)argv;
    if (wrong != NULL) return report(options, CODE_USAGE, "%s", wrong);
    return options->textfile != NULL ? textfile_write(options) : serve(options);
}
