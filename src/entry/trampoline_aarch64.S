/* SPDX-License-Identifier: MIT
 *
 * dlsym as we export it. What is not ours is *jumped* to, with the caller's return address in the link register: libc
 * finds the caller by it, and RTLD_NEXT, RTLD_DEFAULT and dlerror depend on that. Return addresses in memory are signed
 * and the entry is a landing pad, where the processor knows of that; else these instructions do nothing.
 */
        .arch   armv8.5-a
        .text
        .globl  dlsym
        .type   dlsym, %function
        .p2align 4
dlsym:
        .cfi_startproc
        bti     c
        mov     x2, x30                         /* the caller */
        paciasp
        .cfi_negate_ra_state
        stp     x29, x30, [sp, #-32]!
        .cfi_def_cfa_offset 32
        .cfi_offset 29, -32
        .cfi_offset 30, -24
        mov     x29, sp
        stp     x0, x1, [sp, #16]
        bl      hook_pick
        mov     x16, x0
        ldp     x0, x1, [sp, #16]
        ldp     x29, x30, [sp], #32
        .cfi_restore 30
        .cfi_restore 29
        .cfi_def_cfa_offset 0
        autiasp
        .cfi_negate_ra_state
        cbnz    x16, 1f
        adrp    x16, entry_real_dlsym
        ldr     x16, [x16, :lo12:entry_real_dlsym]
        cbz     x16, 1f                         /* no dlsym anywhere: not found */
        br      x16                             /* by x16: such a jump may land where calls do */
1:      mov     x0, x16
        ret
        .cfi_endproc
        .size   dlsym, .-dlsym

        .section .note.gnu.property, "a"
        .p2align 3
        .word   4, 16, 5                        /* bytes of the name, of what follows it; NT_GNU_PROPERTY_TYPE_0 */
        .asciz  "GNU"
        .word   0xc0000000, 4, 3, 0             /* GNU_PROPERTY_AARCH64_FEATURE_1_AND: BTI, PAC */

        .section .note.GNU-stack, "", %progbits
