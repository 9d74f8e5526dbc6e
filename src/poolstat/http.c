/* SPDX-License-Identifier: MIT
 *
 * Routes, and the bounds that keep one client from hurting others: every connection is for one request and ends after
 * some seconds, whatever it does; when many are open the oldest one is cut, so that a new one always gets in; and
 * answers made at nearly one time are one answer, so that no number of requests costs more than some looks a second.
 */
#include "http.h"

#include <arpa/inet.h>
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <microhttpd.h>

#include "choose.h"
#include "ending.h"
#include "list.h"
#include "memory.h"
#include "metrics.h"
#include "page.h"
#include "report.h"

#define CONNECTIONS 256u /* at most */
#define CROWD 192u       /* so many, and the oldest one has to go */
#define CONNECTION_BYTES ((size_t)16 * 1024)
#define LIFE_NS UINT64_C(10000000000)
#define LOOK_NS UINT64_C(250000000) /* how often lives are looked at */
#define FRESH_NS UINT64_C(200000000)

struct client {
    int fd;
    bool cut;
    uint64_t since_ns;
};

/* An answer, and when it was made. */
struct answer {
    struct MHD_Response *response;
    uint64_t made_ns;
};

struct server {
    const struct options *options;
    bool loopback;
    struct metrics metrics;
    struct answer answers[2]; /* by enum made */
    struct client clients[CONNECTIONS];
    size_t client_count; /* oldest first */
};

enum made { MADE_METRICS, MADE_PROCESSES };

static uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* ---- connections --------------------------------------------------------------------------------------------------
 */

static void note_connection(void *context, struct MHD_Connection *connection, void **of_connection,
                            enum MHD_ConnectionNotificationCode code) {
    struct server *server = context;
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    size_t i = 0;
    (void)of_connection;
    if (info == NULL) return;
    if (code == MHD_CONNECTION_NOTIFY_STARTED) {
        if (server->client_count < CONNECTIONS)
            server->clients[server->client_count++] = (struct client){.fd = info->connect_fd, .since_ns = now_ns()};
        return;
    }
    while (i < server->client_count && server->clients[i].fd != info->connect_fd) i++;
    if (i == server->client_count) return;
    server->client_count--;
    memmove(&server->clients[i], &server->clients[i + 1], (server->client_count - i) * sizeof(server->clients[0]));
}

/* The daemon sees the end of the connection, and gives it up. */
static void cut(struct client *client) {
    client->cut = true;
    shutdown(client->fd, SHUT_RDWR);
}

static void cut_connections(struct server *server) {
    const uint64_t now = now_ns();
    size_t open = 0;
    for (size_t i = 0; i < server->client_count; i++) open += !server->clients[i].cut;
    for (size_t i = 0; i < server->client_count; i++) {
        struct client *client = &server->clients[i];
        if (client->cut || (now - client->since_ns < LIFE_NS && open <= CROWD)) continue;
        cut(client);
        open--;
    }
}

/* ---- answers ------------------------------------------------------------------------------------------------------
 */

static void add_headers(struct MHD_Response *response, const char *type) {
    static const struct {
        const char *name, *value;
    } headers[] = {{"Content-Security-Policy", PAGE_POLICY},
                   {"X-Content-Type-Options", "nosniff"},
                   {"X-Frame-Options", "DENY"},
                   {"Referrer-Policy", "no-referrer"},
                   {"Cross-Origin-Resource-Policy", "same-origin"},
                   {"Cache-Control", "no-store"},
                   {"Connection", "close"}};
    MHD_add_response_header(response, "Content-Type", type);
    for (size_t i = 0; i < sizeof(headers) / sizeof(headers[0]); i++)
        MHD_add_response_header(response, headers[i].name, headers[i].value);
}

/* Of a text that lasts as long as we do. */
static enum MHD_Result answer_text(struct MHD_Connection *connection, unsigned status, const char *type,
                                   const char *text, size_t length) {
    struct MHD_Response *response =
        MHD_create_response_from_buffer(length, (void *)(uintptr_t)text, MHD_RESPMEM_PERSISTENT);
    if (response == NULL) return MHD_NO;
    add_headers(response, type);
    if (status == MHD_HTTP_METHOD_NOT_ALLOWED) MHD_add_response_header(response, "Allow", "GET, HEAD");
    const enum MHD_Result result = MHD_queue_response(connection, status, response);
    MHD_destroy_response(response);
    return result;
}

static enum MHD_Result answer_line(struct MHD_Connection *connection, unsigned status, const char *line) {
    return answer_text(connection, status, "text/plain; charset=utf-8", line, strlen(line));
}

/* The text becomes the response's. */
static struct MHD_Response *response_of(char *text, size_t length, const char *type) {
    struct MHD_Response *response = MHD_create_response_from_buffer(length, text, MHD_RESPMEM_MUST_FREE);
    if (response == NULL)
        free(text);
    else
        add_headers(response, type);
    return response;
}

static struct MHD_Response *make_metrics(struct server *server) {
    struct exposition text = {0};
    metrics_write(&server->metrics, server->options, &text);
    return response_of(text.text, text.length, EXPOSITION_TYPE);
}

static struct MHD_Response *make_processes(struct server *server) {
    struct collection collection;
    choose_collect(&server->options->choice, &collection);
    json_t *document = list_document(server->options, &collection);
    char *text = json_dumps(document, JSON_COMPACT | JSON_REAL_PRECISION(6));
    json_decref(document);
    collect_free(&collection);
    return text == NULL ? NULL : response_of(text, strlen(text), "application/json");
}

static enum MHD_Result answer_made(struct server *server, struct MHD_Connection *connection, enum made which) {
    struct answer *answer = &server->answers[which];
    if (answer->response != NULL && now_ns() - answer->made_ns >= FRESH_NS) {
        MHD_destroy_response(answer->response); /* whoever is still sending it keeps it */
        answer->response = NULL;
    }
    if (answer->response == NULL) {
        answer->response = which == MADE_METRICS ? make_metrics(server) : make_processes(server);
        answer->made_ns = now_ns();
    }
    return answer->response == NULL ? MHD_NO : MHD_queue_response(connection, MHD_HTTP_OK, answer->response);
}

/* ---- requests -----------------------------------------------------------------------------------------------------
 */

static bool is_address(const char *host) {
    unsigned char address[sizeof(struct in6_addr)];
    char bare[INET6_ADDRSTRLEN + 1];
    const size_t length = strlen(host);
    if (host[0] != '[') return inet_pton(AF_INET, host, address) == 1;
    if (length < 3 || length - 2 >= sizeof(bare) || host[length - 1] != ']') return false;
    memcpy(bare, host + 1, length - 2);
    bare[length - 2] = '\0';
    return inet_pton(AF_INET6, bare, address) == 1;
}

/* A page from elsewhere, whose name was made to lead to this machine, asks under that name: a browser would let it
 * read our answers. */
static bool is_for_us(const struct server *server, struct MHD_Connection *connection) {
    const char *asked = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, "Host");
    char host[128];
    if (!server->loopback || asked == NULL) return true;
    if (strlen(asked) >= sizeof(host)) return false;
    strcpy(host, asked);
    char *colon = strrchr(host, ':');
    if (colon != NULL && colon[1 + strspn(colon + 1, "0123456789")] == '\0') *colon = '\0';
    return strcasecmp(host, "localhost") == 0 || is_address(host);
}

static enum MHD_Result answer(struct server *server, struct MHD_Connection *connection, const char *url,
                              const char *method) {
    if (!is_for_us(server, connection))
        return answer_line(connection, MHD_HTTP_FORBIDDEN,
                           "ask by the address, or as localhost: this server is for its own machine\n");
    const bool known = strcmp(url, "/") == 0 || strcmp(url, "/metrics") == 0 || strcmp(url, "/api/processes") == 0 ||
                       strcmp(url, "/-/healthy") == 0;
    if (!known)
        return answer_line(connection, MHD_HTTP_NOT_FOUND, "there is / and /metrics, /api/processes, /-/healthy\n");
    if (strcmp(method, "GET") != 0 && strcmp(method, "HEAD") != 0)
        return answer_line(connection, MHD_HTTP_METHOD_NOT_ALLOWED, "GET and HEAD are allowed\n");
    if (strcmp(url, "/metrics") == 0) return answer_made(server, connection, MADE_METRICS);
    if (strcmp(url, "/api/processes") == 0) return answer_made(server, connection, MADE_PROCESSES);
    if (strcmp(url, "/") == 0)
        return answer_text(connection, MHD_HTTP_OK, "text/html; charset=utf-8", page, sizeof(page) - 1);
    return answer_line(connection, MHD_HTTP_OK, "healthy\n");
}

/* Called when the head of a request is there, for each piece of a body, and at its end. */
static enum MHD_Result take_request(void *context, struct MHD_Connection *connection, const char *url,
                                    const char *method, const char *version, const char *body, size_t *body_bytes,
                                    void **seen) {
    static char head;
    (void)version;
    (void)body;
    if (*seen == NULL) {
        *seen = &head;
        return MHD_YES;
    }
    if (*body_bytes != 0) {
        *body_bytes = 0; /* nobody wants it */
        return MHD_YES;
    }
    return answer(context, connection, url, method);
}

/* ---- the loop -----------------------------------------------------------------------------------------------------
 */

static void run(struct server *server, struct MHD_Daemon *daemon) {
    const int fd = MHD_get_daemon_info(daemon, MHD_DAEMON_INFO_EPOLL_FD)->epoll_fd;
    while (!ending_came()) {
        MHD_UNSIGNED_LONG_LONG pending_ms;
        uint64_t wait_ns = server->client_count == 0 ? UINT64_MAX : LOOK_NS;
        if (MHD_get_timeout(daemon, &pending_ms) == MHD_YES && pending_ms < LOOK_NS / 1000000u)
            wait_ns = pending_ms * 1000000u;
        ending_wait(fd, wait_ns);
        MHD_run(daemon);
        cut_connections(server);
    }
}

static void say_where(const struct listener *listener) {
    report_note("serving http://%s/ and http://%s/metrics until SIGINT or SIGTERM", listener->where, listener->where);
    if (!listener->loopback)
        report_note("other machines can reach this address: whoever does sees the processes, their commands and their "
                    "figures, without a password");
}

int http_serve(const struct options *options, const struct listener *listener) {
    struct server *server = memory_new(1, sizeof(*server));
    server->options = options;
    server->loopback = listener->loopback;
    ending_watch();
    signal(SIGPIPE, SIG_IGN);                /* of a client that has gone */
    const int listening = dup(listener->fd); /* the daemon closes its own */
    struct MHD_Daemon *daemon = MHD_start_daemon(
        MHD_USE_EPOLL, 0, NULL, NULL, take_request, server, MHD_OPTION_LISTEN_SOCKET, listening,
        MHD_OPTION_CONNECTION_LIMIT, CONNECTIONS, MHD_OPTION_CONNECTION_MEMORY_LIMIT, CONNECTION_BYTES,
        MHD_OPTION_NOTIFY_CONNECTION, note_connection, server, MHD_OPTION_STRICT_FOR_CLIENT, 1, MHD_OPTION_END);
    if (daemon == NULL) {
        if (listening >= 0) close(listening);
        free(server);
        return report(options, CODE_FAILED, "the server could not be started: %s", strerror(errno));
    }
    say_where(listener);
    run(server, daemon);
    for (size_t i = 0; i < sizeof(server->answers) / sizeof(server->answers[0]); i++)
        if (server->answers[i].response != NULL) MHD_destroy_response(server->answers[i].response);
    MHD_stop_daemon(daemon);
    metrics_free(&server->metrics);
    free(server);
    return CODE_OK;
}
