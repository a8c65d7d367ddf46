/*
 * mdspace: arrays in the on-disk format of Linux md, opened, read and written by this program.
 *
 * cbindgen makes this file from crates/c/src; do not edit it.
 *
 * Results. A function that returns `int` returns 0, or the code of the error. A function that returns a pointer returns
 * NULL on an error. `error`, the last argument, may be NULL. Otherwise `*error` is set in each call: to NULL, or to an
 * error, which the caller frees with mdspace_error_free().
 *
 * Threads. Any number of threads may use an array at the same time. mdspace_close() is the last call, after all others
 * have returned. The library has threads of its own. They call nothing of the program and receive no signals.
 *
 * Forks. Only the process that opened an array can use it. In its forks every call fails with MDSPACE_STOPPED.
 *
 * Pointers. Strings end with a zero byte. Pointers must be valid, and are used only during the call.
 */

#ifndef MDSPACE_H
#define MDSPACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/**
 * The request was refused, and no member was changed.
 */
#define MDSPACE_REFUSED 1

/**
 * The range runs past the array's end.
 */
#define MDSPACE_OUT_OF_RANGE 2

/**
 * The array is open for reading only.
 */
#define MDSPACE_READ_ONLY 3

/**
 * The remaining members cannot supply the data, or too many have failed. A write with this error may or may not be on
 * the members.
 */
#define MDSPACE_IO 4

/**
 * A member has no room for a write. The array keeps the member; repeat the write when there is room.
 */
#define MDSPACE_NO_SPACE 5

/**
 * The array is not running here: its thread ended by a bug, or this process is a fork of the one that opened it.
 */
#define MDSPACE_STOPPED 6

/**
 * An argument is none that the function takes, such as a null pointer.
 */
#define MDSPACE_INVALID 7

/**
 * A bug in mdspace.
 */
#define MDSPACE_BUG 8

/**
 * Flag of mdspace_open(): the array may be written to. Its members are locked exclusively, otherwise shared with other
 * readers.
 */
#define MDSPACE_WRITE 1

/**
 * Flag: assemble an array that may have lost data, as `--force` of the command. What may be lost is in the `warnings` of
 * the status.
 */
#define MDSPACE_FORCE 2

/**
 * Flag: open an array with fewer members than it needs. What these hold is read, everything else fails with MDSPACE_IO.
 * Only for reading.
 */
#define MDSPACE_PARTIAL 4

/**
 * An open array.
 */
typedef struct mdspace_array mdspace_array;

/**
 * Why a call failed.
 */
typedef struct mdspace_error mdspace_error;

/**
 * How an array is opened.
 */
typedef struct mdspace_options mdspace_options;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * The version of the library, such as "0.2.0".
 */
const char *mdspace_version(void);

/**
 * Opens the array of `count` members: files, block devices, or disks with members in their partitions, in any order. As
 * many may be missing as the level allows. `flags` are 0 for reading, or MDSPACE_WRITE, MDSPACE_FORCE, MDSPACE_PARTIAL.
 *
 * The array is to be closed with mdspace_close(). On an error no byte of any member was changed.
 */
mdspace_array *mdspace_open(const char *const *members,
                            size_t count,
                            uint32_t flags,
                            mdspace_error **error);

/**
 * The length of the array in bytes; 0 for NULL.
 */
uint64_t mdspace_size(const mdspace_array *array);

/**
 * The unit for fast large requests: multiples of this length, aligned to it; 0 for NULL.
 */
uint64_t mdspace_preferred_bytes(const mdspace_array *array);

/**
 * Whether writes are refused.
 */
bool mdspace_is_read_only(const mdspace_array *array);

/**
 * Fills `bytes` bytes of memory from byte `at` of the array on, at any position and length. A range that runs past the
 * end is refused. After an error the memory has any contents.
 */
int mdspace_read_at(const mdspace_array *array,
                    void *into,
                    size_t bytes,
                    uint64_t at,
                    mdspace_error **error);

/**
 * Writes `bytes` bytes at byte `at`, at any position and length. A range that runs past the end is refused, with nothing
 * written. After mdspace_flush() the data survives a loss of power.
 */
int mdspace_write_at(const mdspace_array *array,
                     const void *from,
                     size_t bytes,
                     uint64_t at,
                     mdspace_error **error);

/**
 * Discards `bytes` bytes from `at` on: members may free their space. They then read as zeros or stay as they are; without
 * redundancy they may read as anything.
 */
int mdspace_discard(const mdspace_array *array,
                    uint64_t at,
                    uint64_t bytes,
                    mdspace_error **error);

/**
 * Brings every write that completed before this call to stable storage.
 */
int mdspace_flush(const mdspace_array *array, mdspace_error **error);

/**
 * The status of the array and its members as JSON: the fields of `mdspace status --json`, without those of a server. To
 * be freed with mdspace_string_free(); NULL on an error.
 */
char *mdspace_status_json(const mdspace_array *array,
                          mdspace_error **error);

/**
 * Everything on `count` disks, their images, or files of any kind, as JSON: the fields of `mdspace detect --json`,
 * without containers of firmware RAID and without commands. It only reads, and members may be in use. A disk that cannot
 * be looked at is listed in it, and is no error. To be freed with mdspace_string_free(); NULL on an error.
 */
char *mdspace_detect_json(const char *const *disks,
                          size_t count,
                          mdspace_error **error);

/**
 * Frees a string that mdspace_status_json() or mdspace_detect_json() returned. NULL is none.
 */
void mdspace_string_free(char *string);

/**
 * Flushes, marks the array clean, closes its members and frees the handle, also on an error. MDSPACE_IO: it could not be
 * marked clean, and its next opening for writing resyncs it. NULL is none.
 */
int mdspace_close(mdspace_array *array,
                  mdspace_error **error);

/**
 * The error's code: one of the MDSPACE_ constants; 0 for NULL.
 */
int mdspace_error_code(const mdspace_error *error);

/**
 * All of it as one text, in the words of the command `mdspace`: member, field, reason, what was changed, advice. Valid
 * until the error is freed.
 */
const char *mdspace_error_text(const mdspace_error *error);

/**
 * The member concerned, by the name under which it was opened; NULL if there is none. Valid until the error is freed.
 */
const char *mdspace_error_member(const mdspace_error *error);

/**
 * The field of the member's metadata concerned, by md's name; NULL if there is none. Valid until the error is freed.
 */
const char *mdspace_error_field(const mdspace_error *error);

/**
 * The reason, without the member and the field. Valid until the error is freed.
 */
const char *mdspace_error_reason(const mdspace_error *error);

/**
 * What had been changed before the failure; NULL if nothing was. Valid until the error is freed.
 */
const char *mdspace_error_changed(const mdspace_error *error);

/**
 * What to do next; NULL if nothing is known. Valid until the error is freed.
 */
const char *mdspace_error_advice(const mdspace_error *error);

/**
 * Frees an error. NULL is none.
 */
void mdspace_error_free(mdspace_error *error);

/**
 * Options with these flags, 0 or more of MDSPACE_WRITE, MDSPACE_FORCE and MDSPACE_PARTIAL; to be freed with
 * mdspace_options_free().
 */
mdspace_options *mdspace_options_new(uint32_t flags, mdspace_error **error);

/**
 * Opens something inside of the array: the number of a partition, `GROUP/VOLUME` of LVM, or the name or UUID of an array
 * inside. The members may be of several arrays then.
 */
int mdspace_options_inner(mdspace_options *options,
                          const char *name,
                          mdspace_error **error);

/**
 * The directory that takes every write, so that members stay as they are: `--overlay` of the command.
 */
int mdspace_options_overlay(mdspace_options *options, const char *directory, mdspace_error **error);

/**
 * The file with the write-intent bitmap, if the array has its bitmap in a file. Only writing needs it.
 */
int mdspace_options_bitmap(mdspace_options *options, const char *file, mdspace_error **error);

/**
 * The file that `mdadm --grow --backup-file` named, for reading an array in the middle of a reshape.
 */
int mdspace_options_backup_file(mdspace_options *options, const char *file, mdspace_error **error);

/**
 * The map of a member that is the image of a failing disk: the mapfile of GNU ddrescue. What it does not call finished
 * comes from the other members. May be called for several images.
 */
int mdspace_options_map(mdspace_options *options,
                        const char *image,
                        const char *mapfile,
                        mdspace_error **error);

/**
 * Opens an array with these options, which may be used again. Otherwise as mdspace_open().
 */
mdspace_array *mdspace_options_open(const mdspace_options *options,
                                    const char *const *members,
                                    size_t count,
                                    mdspace_error **error);

/**
 * Frees options. NULL is none.
 */
void mdspace_options_free(mdspace_options *options);

#ifdef __cplusplus
} // extern "C"
#endif // __cplusplus

#endif /* MDSPACE_H */
