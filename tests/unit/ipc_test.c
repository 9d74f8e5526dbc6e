/* SPDX-License-Identifier: MIT
 *
 * Records that processes share: who can open them, who is known to have them open, and what is left when one dies.
 * Child processes are importers; a child answers with its exit status.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ipc/exports.h"
#include "ipc/imports.h"
#include "testing.h"

static unsigned char segment_handle[IPC_HANDLE_BYTES];

static uint64_t add(uint64_t address, unsigned char handle[IPC_HANDLE_BYTES]) {
    for (int i = 0; i < IPC_HANDLE_BYTES; i++) segment_handle[i] = (unsigned char)(i + (int)address);
    const struct ipc_export export = {address, 512 * address, 100 + address, segment_handle};
    const uint64_t number = exports_add(&export, handle);
    assert_int_not_equal(number, 0);
    assert_true(number < UINT64_C(1) << 41); /* what the pool can note of a block */
    return number;
}

static const char *hold(const unsigned char bytes[IPC_HANDLE_BYTES], struct import_hold *held) {
    struct ipc_handle handle;
    const char *why = "damaged";
    if (!ipc_handle_read(bytes, &handle)) return why;
    return imports_hold(&handle, held, &why) ? NULL : why;
}

/* An importer that has it open until it is told to go on. */
struct importer {
    pid_t pid;
    int ready[2], go[2];
};

static void importer_begin(struct importer *importer, const unsigned char handle[IPC_HANDLE_BYTES]) {
    char byte = 0;
    assert_int_equal(pipe(importer->ready) + pipe(importer->go), 0);
    importer->pid = fork();
    if (importer->pid == 0) {
        exports_forget_in_child();
        imports_forget_in_child();
        struct import_hold held;
        close(importer->ready[0]);
        close(importer->go[1]);
        byte = hold(handle, &held) == NULL;
        if (write(importer->ready[1], &byte, 1) != 1 || read(importer->go[0], &byte, 1) != 1) _exit(2);
        if (byte == 'c') imports_give_up(&held);
        if (write(importer->ready[1], &byte, 1) != 1 || read(importer->go[0], &byte, 1) != 1) _exit(2);
        _exit(0);
    }
    close(importer->ready[1]);
    close(importer->go[0]);
    assert_int_equal(read(importer->ready[0], &byte, 1), 1);
    assert_int_equal(byte, 1);
}

static void importer_close(const struct importer *importer) {
    char byte = 'c';
    assert_int_equal(write(importer->go[1], &byte, 1), 1);
    assert_int_equal(read(importer->ready[0], &byte, 1), 1);
}

static void importer_kill(const struct importer *importer) {
    kill(importer->pid, SIGKILL);
    assert_int_equal(waitpid(importer->pid, NULL, 0), importer->pid);
    close(importer->ready[0]);
    close(importer->go[1]);
}

static void file_path(const unsigned char bytes[IPC_HANDLE_BYTES], char path[128]) {
    struct ipc_handle handle;
    char name[IPC_NAME_BYTES];
    assert_true(ipc_handle_read(bytes, &handle));
    ipc_file_name(name, geteuid(), handle.file);
    snprintf(path, 128, "/dev/shm%s", name);
}

static void a_handle_says_what_its_record_says(void **state) {
    (void)state;
    unsigned char handle[IPC_HANDLE_BYTES], again[IPC_HANDLE_BYTES];
    const uint64_t export = add(7, handle);
    assert_true(ipc_handle_is_ours(handle));
    assert_true(exports_handle(export, again));
    assert_memory_equal(handle, again, IPC_HANDLE_BYTES);
    struct import_hold held;
    assert_null(hold(handle, &held));
    assert_int_equal(held.offset, 512 * 7);
    assert_int_equal(held.requested, 107);
    assert_memory_equal(held.driver_handle, segment_handle, IPC_HANDLE_BYTES);
    imports_give_up(&held);
    assert_true(exports_over(export));
    assert_false(exports_handle(export, again));
}

static void a_changed_byte_makes_no_handle(void **state) {
    (void)state;
    unsigned char handle[IPC_HANDLE_BYTES];
    const uint64_t export = add(8, handle);
    struct ipc_handle read;
    for (int i = 0; i < IPC_HANDLE_BYTES; i++) {
        handle[i] ^= 1;
        assert_false(ipc_handle_read(handle, &read));
        handle[i] ^= 1;
    }
    assert_true(ipc_handle_read(handle, &read));
    assert_true(exports_over(export));
}

static void an_export_that_is_over_opens_no_more(void **state) {
    (void)state;
    unsigned char handle[IPC_HANDLE_BYTES], next[IPC_HANDLE_BYTES];
    struct import_hold held;
    assert_true(exports_over(add(9, handle)));
    assert_non_null(hold(handle, &held));
    const uint64_t other = add(10, next); /* takes the same record */
    assert_memory_not_equal(handle, next, IPC_HANDLE_BYTES);
    assert_non_null(hold(handle, &held));
    assert_null(hold(next, &held));
    imports_give_up(&held);
    assert_true(exports_over(other));
    assert_true(exports_over(other)); /* a number that means nothing any more */
    const uint64_t owner = add(10, next);
    assert_true(exports_over(other)); /* and not the record's next owner */
    assert_null(hold(next, &held));
    imports_give_up(&held);
    assert_true(exports_over(owner));
}

static void hazard_34_it_is_over_when_every_importer_has_closed(void **state) {
    (void)state;
    unsigned char handle[IPC_HANDLE_BYTES];
    struct importer one, other;
    const uint64_t export = add(11, handle), beside = add(12, segment_handle);
    importer_begin(&one, handle);
    importer_begin(&other, handle);
    assert_false(exports_over(export));
    importer_close(&one);
    assert_false(exports_over(export));
    importer_close(&other);
    assert_true(exports_over(export));
    assert_true(exports_over(beside));
    importer_kill(&one);
    importer_kill(&other);
}

static void hazard_34_the_death_of_an_importer_closes(void **state) {
    (void)state;
    unsigned char handle[IPC_HANDLE_BYTES];
    struct importer importer;
    const uint64_t export = add(13, handle);
    importer_begin(&importer, handle);
    assert_false(exports_over(export));
    importer_kill(&importer);
    assert_true(exports_over(export));
}

static void freed_memory_is_not_opened_though_another_has_it_open(void **state) {
    (void)state;
    unsigned char handle[IPC_HANDLE_BYTES];
    struct importer importer;
    struct import_hold held;
    const uint64_t export = add(14, handle);
    importer_begin(&importer, handle);
    assert_false(exports_over(export));
    assert_non_null(hold(handle, &held));
    importer_kill(&importer);
    assert_true(exports_over(export));
}

static bool knows_odd(void *arg, uint64_t export, uint64_t address) {
    (void)export;
    ++*(unsigned *)arg;
    return address % 2;
}

static void a_sweep_ends_what_is_not_known(void **state) {
    (void)state;
    unsigned char odd[IPC_HANDLE_BYTES], even[IPC_HANDLE_BYTES];
    struct import_hold held;
    const uint64_t export = add(21, odd), unknown = add(22, even);
    unsigned questions = 0;
    exports_sweep(knows_odd, &questions);
    assert_int_equal(questions, 0); /* their blocks do not know of them yet */
    exports_noted(export);
    exports_noted(unknown);
    exports_sweep(knows_odd, &questions);
    assert_int_equal(questions, 2);
    assert_non_null(hold(even, &held));
    assert_null(hold(odd, &held));
    imports_give_up(&held);
    assert_true(exports_over(export));
}

static void records_that_are_over_are_used_again(void **state) {
    (void)state;
    unsigned char handle[IPC_HANDLE_BYTES];
    struct ipc_handle first, last;
    const uint64_t export = add(30, handle);
    assert_true(ipc_handle_read(handle, &first));
    assert_true(exports_over(export));
    for (int i = 0; i < 1000; i++) assert_true(exports_over(add(30, handle)));
    assert_true(ipc_handle_read(handle, &last));
    assert_int_equal(first.number, last.number);
    assert_int_not_equal(first.serial, last.serial);
}

static void many_at_once_are_kept_apart(void **state) {
    (void)state;
    enum { COUNT = 300 };
    static unsigned char handles[COUNT][IPC_HANDLE_BYTES];
    static uint64_t exports[COUNT];
    struct import_hold held;
    for (uint64_t i = 0; i < COUNT; i++) exports[i] = add(1000 + i, handles[i]);
    for (uint64_t i = 0; i < COUNT; i++) {
        assert_null(hold(handles[i], &held));
        assert_int_equal(held.requested, 1100 + i);
        imports_give_up(&held);
    }
    for (int i = 0; i < COUNT; i++) assert_true(exports_over(exports[i]));
}

static void what_was_opened_twice_is_held_until_the_second_close(void **state) {
    (void)state;
    unsigned char handle[IPC_HANDLE_BYTES];
    struct import_hold one, two;
    struct import_info info;
    static const int context;
    const struct import_life life = {&context, 1}, next_life = {&context, 2};
    const uint64_t export = add(40, handle);
    assert_null(hold(handle, &one));
    assert_null(hold(handle, &two));
    assert_true(imports_opened(&one, 0x100000, life) && imports_opened(&two, 0x100000, life));
    const uint64_t address = 0x100000 + 512 * 40;
    assert_true(imports_find(address + 139, &info));
    assert_true(info.address == address && info.requested == 140 && info.base == 0x100000);
    assert_false(imports_find(address + 140, &info));
    assert_true(imports_close(address, &info));
    imports_close_ended(&info, true);
    assert_true(imports_find(address, &info));
    assert_true(imports_close(address, &info));
    imports_close_ended(&info, false); /* the driver refused: it is open */
    assert_true(imports_close(address, &info));
    imports_close_ended(&info, true);
    assert_false(imports_find(address, &info));
    assert_false(imports_close(address, &info));
    imports_context_gone(next_life);
    assert_true(exports_over(export));
}

/* The driver gives the address of what it has just closed to another opening, before the first close has ended. */
static void an_address_that_is_being_closed_may_be_anothers(void **state) {
    (void)state;
    unsigned char handle[IPC_HANDLE_BYTES], other[IPC_HANDLE_BYTES];
    struct import_hold one, two;
    struct import_info closing, info;
    static const int context;
    const struct import_life life = {&context, 1};
    const uint64_t export = add(41, handle), next = add(41, other);
    assert_null(hold(handle, &one));
    assert_true(imports_opened(&one, 0x100000, life));
    const uint64_t address = 0x100000 + 512 * 41;
    assert_true(imports_close(address, &closing));
    assert_false(imports_find(address, &info));
    assert_null(hold(other, &two));
    assert_true(imports_opened(&two, 0x100000, life));
    assert_false(exports_over(export));
    imports_close_ended(&closing, true);
    assert_true(exports_over(export));
    assert_false(exports_over(next));
    assert_true(imports_find(address, &info));
    assert_int_not_equal(info.id, closing.id);
    assert_true(imports_close(address, &info));
    imports_close_ended(&info, true);
    assert_true(exports_over(next));
}

static void what_ends_while_it_is_closed_is_not_open_again(void **state) {
    (void)state;
    unsigned char handle[IPC_HANDLE_BYTES];
    struct import_hold held;
    struct import_info info;
    static const int context;
    const struct import_life life = {&context, 1};
    const uint64_t export = add(42, handle);
    assert_null(hold(handle, &held));
    assert_true(imports_opened(&held, 0x100000, life));
    assert_true(imports_close(0x100000 + 512 * 42, &info));
    imports_context_gone(life);
    imports_close_ended(&info, false);
    assert_false(imports_find(0x100000 + 512 * 42, &info));
    assert_true(exports_over(export));
}

static void the_end_of_a_context_closes_what_was_opened_in_it(void **state) {
    (void)state;
    unsigned char handle[IPC_HANDLE_BYTES], other[IPC_HANDLE_BYTES];
    struct import_hold held;
    struct import_info info;
    static const char contexts[2];
    const uint64_t export = add(50, handle), stays = add(51, other);
    for (int i = 0; i < 3; i++) {
        assert_null(hold(i < 2 ? handle : other, &held));
        assert_true(imports_opened(&held, i < 2 ? 0x200000 : 0x400000, (struct import_life){&contexts[i / 2], 7}));
    }
    imports_context_gone((struct import_life){&contexts[0], 6}); /* an earlier life */
    assert_true(imports_find(0x200000 + 512 * 50, &info));
    imports_context_gone((struct import_life){&contexts[0], 7});
    assert_false(imports_find(0x200000 + 512 * 50, &info));
    assert_true(imports_find(0x400000 + 512 * 51, &info));
    imports_context_gone((struct import_life){&contexts[1], 7});
    assert_true(exports_over(export) && exports_over(stays));
}

static void own_handles_are_known(void **state) {
    (void)state;
    unsigned char bytes[IPC_HANDLE_BYTES];
    struct ipc_handle handle;
    const uint64_t export = add(60, bytes);
    assert_true(ipc_handle_read(bytes, &handle));
    assert_true(exports_is_own(&handle));
    handle.file.words[0]++;
    assert_false(exports_is_own(&handle));
    assert_true(exports_over(export));
}

/* Makes an export in a child, which then dies or finishes. */
static void export_in_child(bool finish, unsigned char handle[IPC_HANDLE_BYTES]) {
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    const pid_t pid = fork();
    if (pid == 0) {
        exports_forget_in_child();
        const struct ipc_export export = {1, 512, 1, segment_handle};
        if (!exports_add(&export, handle) || write(ends[1], handle, IPC_HANDLE_BYTES) != IPC_HANDLE_BYTES) _exit(1);
        if (finish) exports_finish();
        _exit(0);
    }
    assert_int_equal(read(ends[0], handle, IPC_HANDLE_BYTES), IPC_HANDLE_BYTES);
    close(ends[0]);
    close(ends[1]);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
}

static void hazard_36_the_file_of_a_dead_process_opens_nothing_and_is_removed_by_the_next(void **state) {
    (void)state;
    unsigned char dead[IPC_HANDLE_BYTES], next[IPC_HANDLE_BYTES];
    char path[128];
    struct import_hold held;
    struct stat status;
    export_in_child(false, dead);
    file_path(dead, path);
    assert_non_null(hold(dead, &held));
    export_in_child(true, next);
    assert_int_equal(stat(path, &status), -1);
    file_path(next, path);
    assert_int_equal(stat(path, &status), -1); /* an end as any other unlinks it */
    assert_non_null(hold(next, &held));
}

static void a_strangers_file_is_not_read(void **state) {
    (void)state;
    struct ipc_handle handle = {.file = {{0x1234, (uint64_t)getpid()}}, .serial = 1, .version = IPC_VERSION};
    char name[IPC_NAME_BYTES];
    memcpy(handle.magic, IPC_MAGIC, sizeof handle.magic);
    handle.checksum = ipc_checksum(&handle, offsetof(struct ipc_handle, checksum));
    ipc_file_name(name, geteuid(), handle.file);
    struct import_hold held;
    assert_non_null(hold((const unsigned char *)&handle, &held)); /* there is none */
    const int fd = shm_open(name, O_RDWR | O_CREAT | O_EXCL, 0600);
    assert_true(fd >= 0);
    assert_true(ipc_lock(fd, 0, true));
    assert_non_null(hold((const unsigned char *)&handle, &held)); /* an empty one */
    assert_int_equal(ftruncate(fd, 4096), 0);
    assert_non_null(hold((const unsigned char *)&handle, &held)); /* one of zeros */
    shm_unlink(name);
    close(fd);
}

/* The program closes descriptors that it does not know, and opens a file of its own under the number. */
static int take_over_descriptor(void) {
    char path[64], link[128];
    int taken = -1;
    const int own = open("/tmp", O_TMPFILE | O_RDWR, 0600);
    assert_true(own >= 0);
    for (int fd = 3; fd < 1000; fd++) {
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
        const ssize_t length = readlink(path, link, sizeof link - 1);
        if (length <= 0) continue;
        link[length] = '\0';
        if (!strstr(link, IPC_FILE_PREFIX)) continue;
        assert_int_equal(dup2(own, fd), fd);
        taken = fd;
    }
    close(own);
    return taken;
}

static void a_descriptor_that_the_program_has_taken_is_not_written_to(void **state) {
    (void)state;
    unsigned char handle[IPC_HANDLE_BYTES], other[IPC_HANDLE_BYTES];
    struct importer importer;
    struct stat status;
    const uint64_t export = add(80, handle);
    importer_begin(&importer, handle);
    const int taken = take_over_descriptor();
    assert_true(taken >= 100);          /* not a number that programs give themselves */
    assert_false(exports_over(export)); /* found again: the importer has it open */
    char path[128];
    file_path(handle, path);
    const int again = open(path, O_RDONLY);
    assert_true(again >= 0 && ipc_is_locked(again, 0)); /* it is not left behind */
    close(again);
    assert_true(exports_over(add(81, other)));
    importer_kill(&importer);
    assert_true(exports_over(export));
    assert_int_equal(fstat(taken, &status), 0);
    assert_int_equal(status.st_size, 0);
    close(taken);
}

/* Its lock is gone with the descriptor, and so it was taken for left behind. */
static void a_file_that_others_have_removed_is_replaced(void **state) {
    (void)state;
    unsigned char lost[IPC_HANDLE_BYTES], handle[IPC_HANDLE_BYTES];
    char path[128];
    struct import_hold held;
    const uint64_t old = add(85, lost);
    exports_noted(old);
    file_path(lost, path);
    close(take_over_descriptor());
    assert_int_equal(unlink(path), 0);
    const uint64_t export = add(86, handle);
    assert_null(hold(handle, &held));
    imports_give_up(&held);
    assert_true(exports_over(export));
    assert_false(exports_over(old)); /* who has it open cannot be told */
    assert_false(exports_handle(old, lost));
    unsigned questions = 0;
    exports_sweep(knows_odd, &questions); /* 85 is known */
    exports_sweep(knows_odd, &questions);
    assert_int_equal(questions, 2);
}

static void errno_is_kept(void **state) {
    (void)state;
    unsigned char handle[IPC_HANDLE_BYTES];
    struct import_hold held;
    errno = 77;
    const uint64_t export = add(70, handle);
    assert_int_equal(errno, 77);
    assert_null(hold(handle, &held));
    imports_give_up(&held);
    assert_true(exports_over(export));
    assert_non_null(hold(handle, &held));
    assert_int_equal(errno, 77);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_handle_says_what_its_record_says),
    cmocka_unit_test(a_changed_byte_makes_no_handle),
    cmocka_unit_test(an_export_that_is_over_opens_no_more),
    cmocka_unit_test(hazard_34_it_is_over_when_every_importer_has_closed),
    cmocka_unit_test(hazard_34_the_death_of_an_importer_closes),
    cmocka_unit_test(freed_memory_is_not_opened_though_another_has_it_open),
    cmocka_unit_test(a_sweep_ends_what_is_not_known),
    cmocka_unit_test(records_that_are_over_are_used_again),
    cmocka_unit_test(many_at_once_are_kept_apart),
    cmocka_unit_test(what_was_opened_twice_is_held_until_the_second_close),
    cmocka_unit_test(an_address_that_is_being_closed_may_be_anothers),
    cmocka_unit_test(what_ends_while_it_is_closed_is_not_open_again),
    cmocka_unit_test(the_end_of_a_context_closes_what_was_opened_in_it),
    cmocka_unit_test(own_handles_are_known),
    cmocka_unit_test(hazard_36_the_file_of_a_dead_process_opens_nothing_and_is_removed_by_the_next),
    cmocka_unit_test(a_strangers_file_is_not_read),
    cmocka_unit_test(a_descriptor_that_the_program_has_taken_is_not_written_to),
    cmocka_unit_test(a_file_that_others_have_removed_is_replaced),
    cmocka_unit_test(errno_is_kept),
};

TESTING_MAIN(tests)
