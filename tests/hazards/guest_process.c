/* SPDX-License-Identifier: MIT
 *
 * Makes children in every way that a program has, before and after it has used CUDA, and amid what its other threads
 * do; and prints what each child's calls answer. The first argument says what, the second how a child is made.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cuda.h>
#include <cuda_runtime_api.h>

#define KIB ((size_t)1 << 10)

static char **own_arguments, *own_path;
static void *parents, *cached; /* the parent's: live and freed */

/* Whole lines: parents and children share the descriptor. */
static void __attribute__((format(printf, 1, 2))) say(const char *format, ...) {
    char line[256];
    va_list arguments;
    va_start(arguments, format);
    const int length = vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    if (write(STDOUT_FILENO, line, (size_t)length) != length) _exit(98);
}

static void wait_for_reader(void) {
    char byte = 0;
    say("ready\n");
    while (read(STDIN_FILENO, &byte, 1) == 1 && byte != '\n') continue;
}

/* What the children inherit. */
static int prepare(void) {
    return cudaMalloc(&parents, 4 * KIB) || cudaMalloc(&cached, 64 * KIB) || cudaFree(cached);
}

/* ---- what a child does ---- */

/* Every door: the runtime, the driver, and a look-up. */
static void use(const char *who) {
    void *p = NULL, *q = NULL;
    CUdeviceptr d = 0;
    size_t free_bytes = 0, total = 0;
    int code = cudaMalloc(&p, 4 * KIB);
    say("%s: cudaMalloc: %d\n", who, code);
    say("%s: cudaMallocAsync: %d\n", who, code = cudaMallocAsync(&q, 4 * KIB, NULL));
    if (q) say("%s: cudaFreeAsync: %d\n", who, (int)cudaFreeAsync(q, NULL));
    if (p) say("%s: cudaFree: %d\n", who, (int)cudaFree(p));
    CUresult (*alloc)(CUdeviceptr *, size_t) =
        (CUresult(*)(CUdeviceptr *, size_t))dlsym(dlopen("libcuda.so.1", RTLD_NOW), "cuMemAlloc_v2");
    say("%s: found: %d\n", who, alloc != NULL);
    say("%s: cuMemAlloc: %d\n", who, code = (int)alloc(&d, 4 * KIB));
    if (d) say("%s: cuMemFree: %d\n", who, (int)cuMemFree(d));
    say("%s: cuMemGetInfo: %d\n", who, (int)cuMemGetInfo(&free_bytes, &total));
    if (parents) say("%s: cudaFree of its parent's: %d\n", who, (int)cudaFree(parents));
    if (parents) say("%s: cuMemFree of its parent's: %d\n", who, (int)cuMemFree((CUdeviceptr)(uintptr_t)parents));
    say("%s: cuMemGetAddressRange: %d\n", who, (int)cuMemGetAddressRange(&d, &total, (CUdeviceptr)(uintptr_t)parents));
}

static int use_as_child(void *unused) {
    (void)unused;
    use("child");
    exit(3);
}

static int use_and_wait(void *unused) {
    (void)unused;
    use("child");
    void *kept = NULL;
    say("child: keeps: %d\n", (int)cudaMalloc(&kept, 4 * KIB));
    say("pid %d\n", (int)getpid());
    wait_for_reader();
    exit(3);
}

static int has_children(void *way);

/* ---- ways to make one ---- */

enum { STACK_BYTES = 256 << 10 };

static int ended(pid_t child) {
    int status = 0;
    while (waitpid(child, &status, __WALL) < 0 && errno == EINTR) continue;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

/* A daemon: the parent sees its end by a pipe. */
static int daemonise(int (*body)(void *), void *arg) {
    int ends[2], status = -99;
    if (pipe(ends)) return -98;
    if (fork() == 0) {
        setsid();
        const pid_t daemon = fork();
        if (daemon != 0) _exit(0);
        if (fork() == 0) _exit(body(arg)); /* and a child of the daemon's */
        int left;
        wait(&left);
        status = WEXITSTATUS(left);
        if (write(ends[1], &status, sizeof status) != sizeof status) _exit(1);
        _exit(0);
    }
    wait(NULL);
    if (read(ends[0], &status, sizeof status) != sizeof status) return -97;
    return status;
}

/* Run `body` in a child made in this way; its exit status, or the signal that ended it, negative. */
static int in_child(const char *way, int (*body)(void *), void *arg) {
    if (strcmp(way, "daemon") == 0) return daemonise(body, arg);
    if (strcmp(way, "clone") == 0) {
        char *stack = malloc(STACK_BYTES);
        const int status = ended(clone(body, stack + STACK_BYTES, SIGCHLD, arg));
        free(stack);
        return status;
    }
    pid_t child;
    if (strcmp(way, "raw") == 0) {
        child = (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
    } else if (strcmp(way, "raw_fork") == 0) {
#ifdef SYS_fork
        child = (pid_t)syscall(SYS_fork);
#else
        child = (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
#endif
    } else {
        child = fork();
    }
    if (child == 0) _exit(body(arg));
    return ended(child);
}

static int has_children(void *way) {
    say("child: grandchild: %d\n", in_child(way, use_as_child, NULL));
    return 4;
}

/* ---- programs started ---- */

static int exec_shared(void *argv) {
    execv(own_path, argv);
    _exit(97);
}

/* Another program under the same preload, started in each way; the parent goes on as if nothing had been. */
static int start_program(char *const argv[]) {
    const char *const ways[] = {"fork", "vfork", "posix_spawn", "clone_vm", "system"};
    for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
        const char *way = ways[i];
        int status = 0;
        pid_t child = -1;
        if (strcmp(way, "fork") == 0) {
            child = fork();
            if (child == 0) exec_shared((void *)argv);
        } else if (strcmp(way, "vfork") == 0) {
            child = vfork();
            if (child == 0) {
                execv(own_path, argv);
                _exit(97);
            }
        } else if (strcmp(way, "posix_spawn") == 0) {
            if (posix_spawn(&child, own_path, NULL, NULL, argv, environ)) return 1;
        } else if (strcmp(way, "clone_vm") == 0) {
            static char stack[STACK_BYTES] __attribute__((aligned(64)));
            child = clone(exec_shared, stack + sizeof stack, CLONE_VM | CLONE_VFORK | SIGCHLD, (void *)argv);
        } else {
            char command[4200];
            snprintf(command, sizeof command, "'%s' use", own_path);
            status = system(command);
            say("%s: status %d\n", way, WEXITSTATUS(status));
            continue;
        }
        say("%s: status %d\n", way, ended(child));
        void *p = NULL;
        say("%s: parent allocates: %d\n", way, (int)cudaMalloc(&p, 4 * KIB));
        say("%s: parent frees: %d\n", way, (int)cudaFree(p));
    }
    return 0;
}

/* ---- amid what other threads do ---- */

static atomic_bool stop;
static atomic_ulong rounds;

/* Hits, under the pool's lock most of the time. */
static void *hit_for_ever(void *unused) {
    for (void *p; !atomic_load(&stop); atomic_fetch_add(&rounds, 1))
        if (cudaMalloc(&p, 4 * KIB) || cudaFree(p)) _exit(96);
    return unused;
}

/* Misses: with SIM_LATENCY in the driver most of the time. */
static void *miss_for_ever(void *unused) {
    for (void *p; !atomic_load(&stop); atomic_fetch_add(&rounds, 1))
        if (cudaMalloc(&p, 400 << 20) || cudaFree(p)) _exit(96);
    return unused;
}

static void *look_up_for_ever(void *unused) {
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    for (; !atomic_load(&stop); atomic_fetch_add(&rounds, 1))
        if (!dlsym(library, "cuMemAlloc_v2") || !dlsym(library, "cuMemFree_v2")) _exit(96);
    return unused;
}

static int call_and_end(void *door) {
    void *p = NULL;
    CUdeviceptr d = 0;
    alarm(20);
    const int code = door ? (int)cuMemAlloc(&d, 4 * KIB) : (int)cudaMalloc(&p, 4 * KIB);
    _exit(code == 3 ? 42 : code);
}

static int fork_amid(const char *way, const char *what) {
    enum { THREADS = 2, FORKS = 24 };
    pthread_t threads[THREADS];
    void *(*body)(void *) = strcmp(what, "hits") == 0     ? hit_for_ever
                            : strcmp(what, "misses") == 0 ? miss_for_ever
                                                          : look_up_for_ever;
    for (int i = 0; i < THREADS; i++) pthread_create(&threads[i], NULL, body, NULL);
    while (atomic_load(&rounds) < THREADS) usleep(1000);
    int right = 0;
    for (int i = 0; i < FORKS; i++) {
        right += in_child(way, call_and_end, i % 2 ? own_arguments : NULL) == 42;
        usleep((useconds_t)(i * 97 % 500));
    }
    atomic_store(&stop, true);
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    say("children that came back with 3: %d of %d\n", right, FORKS);
    return 0;
}

/* ---- work for many processes ---- */

static void *work_for_ever(void *number) {
    enum { KEPT = 32 };
    void *kept[KEPT] = {NULL};
    unsigned seed = (unsigned)(uintptr_t)number;
    cudaStream_t stream;
    if (cudaStreamCreate(&stream)) return NULL;
    for (unsigned i = 0;; i++) {
        void **p = &kept[i % KEPT];
        if (*p && (i & 32 ? cudaFreeAsync(*p, stream) : cudaFree(*p))) _exit(96);
        if (i & 64 ? cudaMalloc(p, 1u + (unsigned)rand_r(&seed) % (1u << 21))
                   : cudaMallocAsync(p, 1u + (unsigned)rand_r(&seed) % (1u << 21), stream))
            _exit(96);
    }
}

static int work(void) {
    pthread_t threads[2];
    for (uintptr_t i = 0; i < 2; i++) pthread_create(&threads[i], NULL, work_for_ever, (void *)i);
    pthread_join(threads[0], NULL);
    return 1;
}

/* Contexts and streams, for figures of their own. */
static void use_every_record(void) {
    enum { STREAMS = 200 };
    cudaStream_t streams[STREAMS];
    void *p[STREAMS] = {NULL};
    int failed = 0;
    for (int i = 0; i < STREAMS; i++) {
        failed += cudaStreamCreate(&streams[i]) != 0;
        failed += cudaMallocAsync(&p[i], 100 * KIB, streams[i]) != 0;
    }
    for (int i = 0; i < STREAMS; i++) failed += cudaFreeAsync(p[i], streams[i]) || cudaStreamDestroy(streams[i]);
    for (int i = 0; i < 40; i++) failed += cudaDeviceReset() || cudaMalloc(&p[0], KIB);
    say("calls that failed: %d\n", failed);
    parents = NULL;
}

/* One that is over soon: all begin at once, are there at once, and end at once. */
static int come_and_go(void) {
    wait_for_reader();
    for (int i = 0; i < 20; i++) {
        void *p = NULL;
        if (cudaMalloc(&p, 100 * KIB) || cudaFree(p)) return 1;
    }
    if (prepare()) return 1;
    wait_for_reader();
    return 0;
}

/* ---- handlers of the program ---- */

static void call_in(const char *where) {
    void *p = NULL;
    const int code = cudaMalloc(&p, 4 * KIB);
    say("%s: cudaMalloc: %d, cudaFree: %d\n", where, code, (int)cudaFree(p));
}
static void first_prepares(void) {
    call_in("first prepares");
}
static void first_in_parent(void) {
    call_in("first in parent");
}
static void first_in_child(void) {
    call_in("first in child");
}
static void last_prepares(void) {
    call_in("last prepares");
}
static void last_in_parent(void) {
    call_in("last in parent");
}
static void last_in_child(void) {
    call_in("last in child");
}

static bool handlers_wanted;

/* Before the constructor of any library, so before any library's own handlers. */
static void register_first(int argc, char **argv, char **envp) {
    (void)envp;
    handlers_wanted = argc > 1 && strcmp(argv[1], "handlers") == 0;
    if (handlers_wanted) pthread_atfork(first_prepares, first_in_parent, first_in_child);
}
__attribute__((section(".preinit_array"), used)) static void (*preinit)(int, char **, char **) = register_first;

/* ---- */

int main(int argc, char **argv) {
    const char *what = argc > 1 ? argv[1] : "", *way = argc > 2 ? argv[2] : "fork";
    own_arguments = argv;
    own_path = argv[0];
    if (strcmp(what, "use") == 0) {
        use("program");
    } else if (strcmp(what, "before") == 0) { /* the child uses CUDA before its parent does */
        say("child: %d\n", in_child(way, argc > 3 ? use_and_wait : use_as_child, NULL));
        use("parent");
        if (argc > 3) wait_for_reader();
    } else if (strcmp(what, "looked") == 0) { /* the parent has looked functions up, and not initialised */
        void *get = dlsym(dlopen("libcuda.so.1", RTLD_NOW), "cuGetProcAddress_v2"), *found = NULL;
        say("found: %d\n", (int)((CUresult(*)(const char *, void **, int, cuuint64_t, void *))get)("cuMemAlloc", &found,
                                                                                                   12000, 1, NULL));
        say("child: %d\n", in_child(way, argc > 3 ? use_and_wait : use_as_child, NULL));
        use("parent");
    } else if (strcmp(what, "after") == 0) { /* the figures are looked at before and after */
        if (prepare()) return 1;
        if (argc > 3) wait_for_reader();
        say("child: %d\n", in_child(way, use_as_child, NULL));
        say("child: %d\n", in_child(way, has_children, (void *)way));
        if (argc > 3) wait_for_reader();
        say("parent frees: %d\n", (int)cudaFree(parents));
        parents = NULL;
        use("parent");
    } else if (strcmp(what, "programs") == 0) {
        char *const arguments[] = {argv[0], "use", NULL};
        if (prepare() || start_program(arguments)) return 1;
        wait_for_reader();
        use("parent");
    } else if (strcmp(what, "exec") == 0) { /* another program in the same process */
        char *const arguments[] = {argv[0], "execed", NULL};
        if (prepare()) return 1;
        execv(own_path, arguments);
        return 1;
    } else if (strcmp(what, "execed") == 0) {
        use("program");
        wait_for_reader();
    } else if (strcmp(what, "amid") == 0) {
        if (prepare()) return 1;
        return fork_amid(way, argc > 3 ? argv[3] : "");
    } else if (strcmp(what, "work") == 0) {
        return work();
    } else if (strcmp(what, "come_and_go") == 0) {
        return come_and_go();
    } else if (strcmp(what, "later") == 0) { /* something happens to /dev/shm while it waits */
        if (prepare()) return 1;
        wait_for_reader();
        use_every_record();
        use("program");
    } else if (strcmp(what, "handlers") == 0) {
        if (prepare()) return 1;
        pthread_atfork(last_prepares, last_in_parent, last_in_child);
        say("child: %d\n", in_child(way, use_as_child, NULL));
    } else {
        return 2;
    }
    return 0;
}
