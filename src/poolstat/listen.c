/* SPDX-License-Identifier: MIT
 *
 * Addresses are numbers, and no names, so that no look-up decides who can reach us; but "localhost" is clear.
 */
#include "listen.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "report.h"

#define BACKLOG 128

union address {
    struct sockaddr any;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
};

static bool parse_port(const char *text, in_port_t *port) {
    const size_t length = strlen(text);
    const unsigned long number = strtoul(text, NULL, 10);
    if (length == 0 || length > 5 || text[strspn(text, "0123456789")] != '\0' || number > UINT16_MAX) return false;
    *port = htons((uint16_t)number);
    return true;
}

/* What stands before the port, without brackets. False when it is too long to be an address. */
static bool take_host(const char *text, const char *colon, char *host, size_t size) {
    size_t length = (size_t)(colon - text);
    if (text[0] == '[' && length >= 2 && colon[-1] == ']') {
        text++;
        length -= 2;
    }
    if (length >= size) return false;
    memcpy(host, text, length);
    host[length] = '\0';
    if (strcmp(host, "localhost") == 0) snprintf(host, size, "127.0.0.1");
    return true;
}

static bool parse(const char *text, union address *address) {
    const char *colon = strrchr(text, ':');
    char host[INET6_ADDRSTRLEN];
    in_port_t port;
    *address = (union address){.any.sa_family = AF_UNSPEC};
    if (colon == NULL || !parse_port(colon + 1, &port) || !take_host(text, colon, host, sizeof(host))) return false;
    if (text[0] == '[' ? inet_pton(AF_INET6, host, &address->v6.sin6_addr) == 1 : false) {
        address->v6.sin6_family = AF_INET6;
        address->v6.sin6_port = port;
        return true;
    }
    if (text[0] == '[' || inet_pton(AF_INET, host, &address->v4.sin_addr) != 1) return false;
    address->v4.sin_family = AF_INET;
    address->v4.sin_port = port;
    return true;
}

static socklen_t length_of(const union address *address) {
    return address->any.sa_family == AF_INET ? sizeof(address->v4) : sizeof(address->v6);
}

static bool is_loopback(const union address *address) {
    return address->any.sa_family == AF_INET ? ntohl(address->v4.sin_addr.s_addr) >> 24 == IN_LOOPBACKNET
                                             : IN6_IS_ADDR_LOOPBACK(&address->v6.sin6_addr);
}

/* With the port that the kernel chose, where any was asked for. */
static void describe(struct listener *listener) {
    union address address = {.any.sa_family = AF_UNSPEC};
    socklen_t length = sizeof(address);
    char host[INET6_ADDRSTRLEN] = "";
    getsockname(listener->fd, &address.any, &length);
    listener->loopback = is_loopback(&address);
    if (address.any.sa_family == AF_INET) {
        inet_ntop(AF_INET, &address.v4.sin_addr, host, sizeof(host));
        snprintf(listener->where, sizeof(listener->where), "%s:%u", host, ntohs(address.v4.sin_port));
    } else {
        inet_ntop(AF_INET6, &address.v6.sin6_addr, host, sizeof(host));
        snprintf(listener->where, sizeof(listener->where), "[%s]:%u", host, ntohs(address.v6.sin6_port));
    }
}

static bool open_socket(const union address *address, struct listener *listener) {
    const int yes = 1;
    listener->fd = socket(address->any.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (listener->fd < 0) return false;
    /* Not refused for connections of an exporter that has just ended; one that still listens is. */
    setsockopt(listener->fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
    if (address->any.sa_family == AF_INET6) setsockopt(listener->fd, IPPROTO_IPV6, IPV6_V6ONLY, &yes, sizeof(yes));
    if (bind(listener->fd, &address->any, length_of(address)) == 0 && listen(listener->fd, BACKLOG) == 0) return true;
    const int error = errno;
    close(listener->fd);
    errno = error;
    return false;
}

enum code listen_open(const struct options *options, const char *text, struct listener *listener) {
    union address address;
    if (!parse(text, &address))
        return (enum code)report(options, CODE_USAGE,
                                 "--listen '%.100s': ADDRESS:PORT is wanted, as in 127.0.0.1:9178 or [::1]:9178", text);
    if (!open_socket(&address, listener))
        return (enum code)report(options, errno == EACCES ? CODE_DENIED : CODE_FAILED, "cannot listen on %s: %s%s",
                                 text, strerror(errno),
                                 errno == EADDRINUSE ? "; another one can be said: --listen 127.0.0.1:PORT" : "");
    describe(listener);
    return CODE_OK;
}
