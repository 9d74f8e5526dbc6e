/* SPDX-License-Identifier: MIT
 *
 * What an old driver does not export, dlsym must not find: the names that this one is set to lack are taken out of the
 * library's table of symbols when it is loaded. Programs bound to such a name before that, by the dynamic linker, keep
 * it, and the call answers 801; in reality they would not start.
 */
#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "driver.h"

/* The table lies in memory that may only be read. */
static void symbol_remove(ElfW(Sym) * symbol) {
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    const uintptr_t first = (uintptr_t)symbol & ~(page - 1), end = (uintptr_t)(symbol + 1);
    if (mprotect((void *)first, end - first, PROT_READ | PROT_WRITE) != 0) return;
    symbol->st_shndx = SHN_UNDEF;
    symbol->st_value = 0;
    mprotect((void *)first, end - first, PROT_READ);
}

void exports_hide_missing(void) {
    for (unsigned i = 0; i < NAME_COUNT; i++) {
        Dl_info library;
        void *symbol = NULL;
        if (!symbols_is_missing(&name_table[i])) continue;
        if (dladdr1((const void *)name_table[i].function, &library, &symbol, RTLD_DL_SYMENT) != 0 && symbol != NULL &&
            strcmp(library.dli_sname, name_table[i].symbol) == 0)
            symbol_remove(symbol);
    }
}
