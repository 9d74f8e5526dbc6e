/* SPDX-License-Identifier: MIT
 *
 * dlsym as we export it. What is not ours is *jumped* to, with the caller's return address still on the stack: libc
 * finds the caller by it, and RTLD_NEXT, RTLD_DEFAULT and dlerror depend on that. Another architecture brings a file of
 * the same meaning.
 */
        .text
        .globl  dlsym
        .type   dlsym, @function
        .p2align 4
dlsym:
        .cfi_startproc
        endbr64
        pushq   %rdi
        .cfi_adjust_cfa_offset 8
        pushq   %rsi
        .cfi_adjust_cfa_offset 8
        subq    $8, %rsp
        .cfi_adjust_cfa_offset 8
        movq    24(%rsp), %rdx                  /* the caller */
        call    hook_pick
        addq    $8, %rsp
        .cfi_adjust_cfa_offset -8
        popq    %rsi
        .cfi_adjust_cfa_offset -8
        popq    %rdi
        .cfi_adjust_cfa_offset -8
        testq   %rax, %rax
        jnz     1f
        movq    entry_real_dlsym(%rip), %rax
        testq   %rax, %rax
        jz      1f                              /* no dlsym anywhere: not found */
        jmp     *%rax
1:      ret
        .cfi_endproc
        .size   dlsym, .-dlsym

        .section .note.GNU-stack, "", @progbits
