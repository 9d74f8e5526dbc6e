/* SPDX-License-Identifier: MIT
 *
 * The test's side of another process: starts it, asks it, kills it. The program is named by IPC_PEER.
 */
#ifndef SIM_IPC_ASK_H
#define SIM_IPC_ASK_H

#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "fixture.h"
#include "ipc_peer.h"

extern char **environ;

struct peer {
    pid_t process;
    int connection;
};

static inline struct peer start_peer(void) {
    struct peer peer;
    int ends[2];
    char *const arguments[] = {getenv("IPC_PEER"), NULL};
    assert_non_null(arguments[0]);
    /* No peer has the connection of another, so that closing one here is its end. */
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], PEER_CONNECTION);
    assert_int_equal(posix_spawn(&peer.process, arguments[0], &actions, NULL, arguments, environ), 0);
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
    peer.connection = ends[0];
    return peer;
}

/* The answer, and the descriptor that came with it. */
static inline struct peer_answer ask(const struct peer *peer, struct peer_command command) {
    struct peer_answer answer = {.result = CUDA_ERROR_UNKNOWN};
    union {
        struct cmsghdr header;
        char space[CMSG_SPACE(sizeof(int))];
    } control;
    struct iovec data = {.iov_base = &answer, .iov_len = sizeof(answer)};
    struct msghdr message = {
        .msg_iov = &data, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof(control)};
    assert_int_equal(send(peer->connection, &command, sizeof(command), MSG_NOSIGNAL), sizeof(command));
    assert_int_equal(recvmsg(peer->connection, &message, MSG_CMSG_CLOEXEC), sizeof(answer));
    const struct cmsghdr *const rights = CMSG_FIRSTHDR(&message);
    answer.descriptor = -1;
    if (rights != NULL) memcpy(&answer.descriptor, CMSG_DATA(rights), sizeof(int));
    return answer;
}

static inline uint64_t ask_well(const struct peer *peer, struct peer_command command) {
    const struct peer_answer answer = ask(peer, command);
    CHECK(answer.result);
    return answer.value;
}

/* As the fields are named: ASK(peer, FILL, .address = a, .bytes = 1). */
#define COMMAND(what_, ...)               \
    (struct peer_command) {               \
        .what = PEER_##what_, __VA_ARGS__ \
    }
#define ASK(peer, ...) ask_well(peer, COMMAND(__VA_ARGS__))
#define ASK_CODE(peer, code, ...) CHECK_CODE(ask(peer, COMMAND(__VA_ARGS__)).result, code)

static inline void kill_peer(const struct peer *peer) {
    assert_int_equal(kill(peer->process, SIGKILL), 0);
    assert_int_equal(waitpid(peer->process, NULL, 0), peer->process);
    close(peer->connection);
}

#endif
