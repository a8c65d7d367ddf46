/*
 * Lets User Mode Linux 6.1 run on processors whose register file is larger than it expects.
 *
 * UML saves and restores each process's extended registers with PTRACE_GETREGSET and PTRACE_SETREGSET into a
 * buffer of fixed size. A processor with AMX has 8 KiB of tile registers more than that; the kernel then refuses
 * the write of a partial set with EFAULT or EINVAL, and UML dies at its first process.
 *
 * Preloaded into linux.uml, this wraps ptrace(2): a read hands over the part UML has room for; a write first reads
 * the complete set, replaces the part UML knows and writes the complete set back. Everything else goes straight to
 * the system call. It never touches a process that UML did not name.
 *
 * Source of the facts: ptrace(2), and the kernel's Documentation/arch/x86/xstate.rst.
 */
#include <errno.h>
#include <stdarg.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

enum { PEEK_TEXT = 1, PEEK_DATA = 2, PEEK_USER = 3, GET_REGISTER_SET = 0x4204, SET_REGISTER_SET = 0x4205 };
enum { NOTE_X86_XSTATE = 0x202 };

/*
 * Larger than any XSAVE area today (AMX: 11 KiB); aligned as XSAVE wants it. Not on the stack: UML calls this on its
 * kernel stacks of 16 KiB. One copy is enough: the UML kernel has one processor and one thread.
 */
static unsigned char complete[64 * 1024] __attribute__((aligned(64)));

static long transfer_xstate(long request, long pid, struct iovec *caller)
{
    struct iovec whole = { complete, sizeof complete };
    long result = syscall(SYS_ptrace, GET_REGISTER_SET, pid, NOTE_X86_XSTATE, &whole);
    if (result < 0)
        return result;
    size_t known = caller->iov_len < whole.iov_len ? caller->iov_len : whole.iov_len;
    if (request == GET_REGISTER_SET) {
        memcpy(caller->iov_base, complete, known);
        caller->iov_len = known;
        return 0;
    }
    memcpy(complete, caller->iov_base, known);
    return syscall(SYS_ptrace, SET_REGISTER_SET, pid, NOTE_X86_XSTATE, &whole);
}

long ptrace(int request, ...)
{
    va_list arguments;
    va_start(arguments, request);
    long pid = va_arg(arguments, int);
    long address = va_arg(arguments, long);
    long data = va_arg(arguments, long);
    va_end(arguments);

    if ((request == GET_REGISTER_SET || request == SET_REGISTER_SET) && address == NOTE_X86_XSTATE)
        return transfer_xstate(request, pid, (struct iovec *)data);

    /* The C library returns the word of a peek; the system call stores it through `data`. */
    if (request == PEEK_TEXT || request == PEEK_DATA || request == PEEK_USER) {
        long word = 0;
        long result = syscall(SYS_ptrace, (long)request, pid, address, &word);
        if (result < 0)
            return result;
        errno = 0;
        return word;
    }
    return syscall(SYS_ptrace, (long)request, pid, address, data);
}
