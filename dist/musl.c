/* For static programs: what musl lacks.
 *
 * - GCC's unwinder (libgcc_eh.a of GCC 12 and later) asks glibc's _dl_find_object where an address's unwind information
 *   is. musl has dl_iterate_phdr, by which this one answers. Without an answer a panic could not unwind.
 * - The unwinder refers to functions of threads weakly, which brings no part of a static library into a program. It
 *   calls them nevertheless. So this refers to them, too.
 * - musl's memcmp compares byte by byte, at 2.4 GB/s; a scrub of parity spends most of its time there. This one compares
 *   32 bytes at a time.
 *
 * Facts: glibc's manual, "Dynamic Linker Introspection"; ld's manual, --eh-frame-hdr. */
#include <link.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

__attribute__((used)) static void *const of_threads[] = {
    (void *)pthread_once,        (void *)pthread_key_create, (void *)pthread_getspecific,
    (void *)pthread_setspecific, (void *)pthread_mutex_lock, (void *)pthread_mutex_unlock,
};

static uint64_t word(const unsigned char *at) {
    uint64_t word;
    __builtin_memcpy(&word, at, sizeof word);
    return word;
}

int memcmp(const void *left, const void *right, size_t bytes) {
    const unsigned char *a = left, *b = right;
    for (; bytes >= 32; a += 32, b += 32, bytes -= 32) {
        if ((word(a) ^ word(b)) | (word(a + 8) ^ word(b + 8)) | (word(a + 16) ^ word(b + 16)) |
            (word(a + 24) ^ word(b + 24)))
            break;
    }
    for (; bytes; a++, b++, bytes--) {
        if (*a != *b)
            return *a - *b;
    }
    return 0;
}

int bcmp(const void *left, const void *right, size_t bytes) {
    return memcmp(left, right, bytes);
}

/* glibc's `struct dl_find_object` on x86-64 and aarch64. */
struct found {
    unsigned long long flags;
    void *begin, *end;
    struct link_map *map;
    void *unwind_table;
    unsigned long long reserved[7];
};

struct search {
    ElfW(Addr) address;
    struct found *found;
};

static int look(struct dl_phdr_info *object, size_t bytes, void *argument) {
    struct search *search = argument;
    ElfW(Addr) begin = 0, end = 0, table = 0;
    (void)bytes;
    for (int number = 0; number < object->dlpi_phnum; number++) {
        const ElfW(Phdr) *segment = &object->dlpi_phdr[number];
        ElfW(Addr) at = object->dlpi_addr + segment->p_vaddr;
        if (segment->p_type == PT_LOAD && search->address >= at && search->address - at < segment->p_memsz) {
            begin = at;
            end = at + segment->p_memsz;
        }
        if (segment->p_type == PT_GNU_EH_FRAME)
            table = at;
    }
    if (!end || !table)
        return 0;
    *search->found = (struct found){.begin = (void *)begin, .end = (void *)end, .unwind_table = (void *)table};
    return 1;
}

int _dl_find_object(void *address, struct found *found) {
    struct search search = {(ElfW(Addr))address, found};
    return dl_iterate_phdr(look, &search) ? 0 : -1;
}
