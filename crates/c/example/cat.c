/*
 * Writes a part of an array to standard output: cat OFFSET LENGTH MEMBER...
 *
 * The members are opened for reading, and nothing is written to them. The exit status is that of `mdspace read`: 2 if the
 * array cannot be opened, 1 if its data cannot be read.
 */

#include <inttypes.h>
#include <mdspace.h>
#include <stdio.h>
#include <stdlib.h>

/* Prints an error and frees it. */
static void explain(mdspace_error *error)
{
    fprintf(stderr, "cat: %s\n", mdspace_error_text(error));
    mdspace_error_free(error);
}

/* Copies `bytes` bytes from `at` on, in pieces that the array reads fast. */
static int copy(const mdspace_array *array, uint64_t at, uint64_t bytes)
{
    size_t piece_bytes = 16 * (size_t)mdspace_preferred_bytes(array);
    char *piece = malloc(piece_bytes);
    int status = piece == NULL;
    while (status == 0 && bytes > 0) {
        size_t now = bytes < piece_bytes ? (size_t)bytes : piece_bytes;
        mdspace_error *error;
        if (mdspace_read_at(array, piece, now, at, &error) != 0) {
            explain(error);
            status = 1;
        } else if (fwrite(piece, 1, now, stdout) != now) {
            perror("cat");
            status = 1;
        }
        at += now;
        bytes -= now;
    }
    free(piece);
    return status;
}

int main(int argc, char **argv)
{
    if (argc < 4) {
        fprintf(stderr, "usage: cat OFFSET LENGTH MEMBER...\n");
        return 2;
    }
    mdspace_error *error;
    mdspace_array *array = mdspace_open((const char *const *)argv + 3, (size_t)argc - 3, 0, &error);
    if (array == NULL) {
        explain(error);
        return 2;
    }
    fprintf(stderr, "%" PRIu64 " bytes\n", mdspace_size(array));
    int status = copy(array, strtoull(argv[1], NULL, 10), strtoull(argv[2], NULL, 10));
    if (mdspace_close(array, &error) != 0) {
        explain(error);
        status = 1;
    }
    return status;
}
