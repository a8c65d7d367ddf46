/* For static programs by musl: where an address's unwind information is.
 *
 * GCC's unwinder (libgcc_eh.a of GCC 12 and later) asks glibc by _dl_find_object. musl has no such function, but it has
 * dl_iterate_phdr, by which this one answers. Without an answer a panic could not unwind.
 *
 * Facts: glibc's manual, "Dynamic Linker Introspection"; ld's manual, --eh-frame-hdr. */
#include <link.h>
#include <stddef.h>

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
