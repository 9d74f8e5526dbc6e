/* SPDX-License-Identifier: MIT
 *
 * How one process reaches device memory of another, by a handle of 64 bytes. Device memory
 * lies in a file that has no name, so its descriptor must be handed over: a thread of the exporter serves it, with the
 * place of the memory in it, on a unix-domain socket in the abstract namespace. Fetching the descriptor from outside
 * (/proc/PID/fd, pidfd_getfd) would need the right to trace the exporter, which containers and Yama withhold; the
 * socket needs none, leaves no file behind, and goes with its process, so that a handle of a process that is gone finds
 * nobody, whoever has its pid now. The name is random, and each side lets only processes of its own user go on. What is
 * mapped stays, even when the exporter has ended. The two processes must share a network namespace, not a pid
 * namespace.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "driver.h"

enum { PATIENCE_SECONDS = 10, CLIENT_SECONDS = 1, BACKLOG = 64 };

struct request {
    uint64_t pool, address, buffer_id; /* as in a handle */
};

static pthread_mutex_t service_lock = PTHREAD_MUTEX_INITIALIZER;
static struct shares_process self; /* constant once `serving` */
static _Atomic(bool) serving;
static int listening = -1;
static struct file_identity listening_file;

struct file_identity shares_file_identity(int descriptor) {
    struct stat file;
    if (fstat(descriptor, &file) != 0) return (struct file_identity){0, 0};
    return (struct file_identity){file.st_dev, file.st_ino};
}

bool shares_file_is(int descriptor, struct file_identity file) {
    const struct file_identity now = shares_file_identity(descriptor);
    return now.inode != 0 && now.device == file.device && now.inode == file.inode;
}

static socklen_t address_of(const struct shares_process *process, struct sockaddr_un *address) {
    *address = (struct sockaddr_un){.sun_family = AF_UNIX};
    char *const name = address->sun_path + 1; /* behind the zero that marks the abstract namespace */
    int length = snprintf(name, sizeof(address->sun_path) - 1, "simulated-gpu-");
    for (size_t i = 0; i < sizeof(process->name); i++, length += 2)
        snprintf(name + length, sizeof(address->sun_path) - 1 - (size_t)length, "%02x", process->name[i]);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length);
}

static void set_patience(int connection, time_t seconds) {
    const struct timeval time = {.tv_sec = seconds};
    setsockopt(connection, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof(time));
    setsockopt(connection, SOL_SOCKET, SO_SNDTIMEO, &time, sizeof(time));
}

static bool is_own_user(int connection) {
    struct ucred other;
    socklen_t size = sizeof(other);
    return getsockopt(connection, SOL_SOCKET, SO_PEERCRED, &other, &size) == 0 && other.uid == geteuid();
}

/* The exporter's side. */

/* The device of the memory that was asked for, if that still lives, and the place there. Under memory_lock. */
static const struct device *find_memory(const struct request *request, struct shares_place *place) {
    const struct allocation *const allocation = memory_find(request->address);
    if (allocation == NULL || allocation->buffer_id != request->buffer_id || allocation->leaving) return NULL;
    const bool wanted = request->pool == 0
                            ? allocation->kind == ALLOCATION_PLAIN
                            : allocation->kind == ALLOCATION_POOL && allocation->pool->id == request->pool;
    if (!wanted) return NULL;
    const uint64_t first = allocation->address & ~(uint64_t)(CHUNK_BYTES - 1);
    place->device = allocation->device->physical;
    place->offset = first - allocation->device->base;
    place->inside = allocation->address - first;
    place->bytes = allocation->bytes;
    backing_touch(allocation->address, allocation->bytes); /* what others write there is punched out, too */
    return allocation->device;
}

static void answer(int connection) {
    struct request request;
    struct shares_place place = {0};
    set_patience(connection, CLIENT_SECONDS);
    if (!is_own_user(connection) || recv(connection, &request, sizeof(request), 0) != sizeof(request)) return;
    pthread_mutex_lock(&memory_lock);
    const struct device *const device = find_memory(&request, &place);
    pthread_mutex_unlock(&memory_lock);
    if (device == NULL || !shares_file_is(device->memory_file, device->memory_file_identity)) return;
    const int file = device->memory_file;
    union {
        struct cmsghdr header;
        char space[CMSG_SPACE(sizeof(int))];
    } control = {.space = {0}};
    struct iovec data = {.iov_base = &place, .iov_len = sizeof(place)};
    struct msghdr message = {
        .msg_iov = &data, .msg_iovlen = 1, .msg_control = control.space, .msg_controllen = sizeof(control.space)};
    struct cmsghdr *const rights = CMSG_FIRSTHDR(&message);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(rights), &file, sizeof(file));
    sendmsg(connection, &message, MSG_NOSIGNAL);
}

static void *service_main(void *unused) {
    (void)unused;
    while (shares_file_is(listening, listening_file)) {
        const int connection = accept4(listening, NULL, NULL, SOCK_CLOEXEC);
        if (connection >= 0) {
            answer(connection);
            close(connection);
        } else if (errno != EINTR && errno != ECONNABORTED) {
            nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL); /* no descriptor left, for the moment */
        }
    }
    return NULL;
}

/* A child must not keep the name of its parent alive. */
static void leave_to_parent(void) {
    if (listening >= 0 && shares_file_is(listening, listening_file)) close(listening);
    listening = -1;
}

static bool start_listening(void) {
    struct sockaddr_un address;
    if (getrandom(self.name, sizeof(self.name), 0) != sizeof(self.name)) return false;
    const socklen_t size = address_of(&self, &address);
    listening = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    listening_file = shares_file_identity(listening);
    return listening >= 0 && bind(listening, (const struct sockaddr *)&address, size) == 0 &&
           listen(listening, BACKLOG) == 0;
}

static bool start_thread(void) {
    sigset_t all, before;
    pthread_t thread;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before);
    const bool made = pthread_create(&thread, NULL, service_main, NULL) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (!made) return false;
    pthread_setname_np(thread, "simulated-ipc");
    pthread_detach(thread);
    return true;
}

bool shares_start(struct shares_process *process) {
    const int before = errno;
    pthread_mutex_lock(&service_lock);
    if (!atomic_load(&serving)) {
        const bool started = start_listening() && pthread_atfork(NULL, NULL, leave_to_parent) == 0 && start_thread();
        if (!started && listening >= 0) close(listening);
        if (!started) listening = -1;
        atomic_store(&serving, started);
    }
    *process = self;
    pthread_mutex_unlock(&service_lock);
    errno = before;
    return atomic_load(&serving);
}

bool shares_is_self(const struct shares_process *process) {
    return atomic_load(&serving) && memcmp(process, &self, sizeof(self)) == 0;
}

/* The importer's side. */

static bool connect_to(int connection, const struct shares_process *process) {
    struct sockaddr_un address;
    const socklen_t size = address_of(process, &address);
    int result;
    do {
        result = connect(connection, (const struct sockaddr *)&address, size);
    } while (result != 0 && errno == EINTR);
    return result == 0 && is_own_user(connection);
}

static int receive_place(int connection, struct shares_place *place) {
    union {
        struct cmsghdr header;
        char space[CMSG_SPACE(sizeof(int))];
    } control;
    struct iovec data = {.iov_base = place, .iov_len = sizeof(*place)};
    struct msghdr message;
    ssize_t length;
    do {
        message = (struct msghdr){
            .msg_iov = &data, .msg_iovlen = 1, .msg_control = control.space, .msg_controllen = sizeof(control.space)};
        length = recvmsg(connection, &message, MSG_CMSG_CLOEXEC);
    } while (length < 0 && errno == EINTR);
    const struct cmsghdr *const rights = length > 0 ? CMSG_FIRSTHDR(&message) : NULL;
    if (rights == NULL || rights->cmsg_type != SCM_RIGHTS) return -1;
    int file;
    memcpy(&file, CMSG_DATA(rights), sizeof(file));
    if (length == sizeof(*place)) return file;
    close(file);
    return -1;
}

int shares_ask(const struct shares_handle *handle, struct shares_place *place) {
    const struct request request = {handle->pool, handle->address, handle->buffer_id};
    const int before = errno;
    const int connection = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    int file = -1;
    if (connection >= 0) {
        set_patience(connection, PATIENCE_SECONDS);
        if (connect_to(connection, &handle->process) &&
            send(connection, &request, sizeof(request), MSG_NOSIGNAL) == sizeof(request))
            file = receive_place(connection, place);
        close(connection);
    }
    errno = before;
    return file;
}

CUresult shares_map(struct context *context, int file, const struct shares_place *place,
                    struct allocation **allocation) {
    struct device *const device = device_on_machine(place->device);
    if (device == NULL) return CUDA_ERROR_INVALID_VALUE;
    const size_t chunks = (place->inside + place->bytes + CHUNK_BYTES - 1) >> CHUNK_SHIFT;
    const uint64_t first = backing_map(device, file, place->offset, chunks);
    if (first == 0) return CUDA_ERROR_MAP_FAILED;
    *allocation = memory_add(first + place->inside, place->bytes, ALLOCATION_OPENED, device, context);
    if (*allocation != NULL) {
        (*allocation)->taken_bytes = chunks << CHUNK_SHIFT;
        return CUDA_SUCCESS;
    }
    backing_unmap(device, first, chunks);
    return CUDA_ERROR_MAP_FAILED;
}

void shares_unmap(const struct allocation *allocation) {
    backing_unmap(allocation->device, allocation->address & ~(uint64_t)(CHUNK_BYTES - 1),
                  allocation->taken_bytes >> CHUNK_SHIFT);
}

/* Handles. */

static uint64_t checksum(const struct shares_handle *handle) {
    struct shares_handle unsealed = *handle;
    unsealed.checksum = 0;
    const unsigned char *const bytes = (const unsigned char *)&unsealed;
    uint64_t sum = UINT64_C(0xcbf29ce484222325); /* FNV-1a */
    for (size_t i = 0; i < sizeof(unsealed); i++) sum = (sum ^ bytes[i]) * UINT64_C(0x100000001b3);
    return sum;
}

void shares_seal(struct shares_handle *handle, const char *mark) {
    memcpy(handle->mark, mark, sizeof(handle->mark));
    handle->checksum = checksum(handle);
}

bool shares_read(struct shares_handle *handle, const void *bytes, const char *mark) {
    memcpy(handle, bytes, sizeof(*handle));
    return memcmp(handle->mark, mark, sizeof(handle->mark)) == 0 && handle->checksum == checksum(handle);
}
