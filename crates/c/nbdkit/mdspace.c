/*
 * A plugin of nbdkit that serves an array: nbdkit ./nbdkit-mdspace-plugin.so MEMBER... [PARAMETER=VALUE...]
 *
 * So nbdkit's filters and other ways in work on an array. The array is open for reading, unless write=true. Other
 * parameters are options of mdspace's commands: inner=NAME, overlay=DIRECTORY, bitmap=FILE, force=true, partial=true.
 *
 * Only the process that opens an array can use it. So the array is opened for a look before nbdkit goes into the
 * background, and to be served behind that. Facts: nbdkit-plugin(3), and mdspace.h.
 */

#define _POSIX_C_SOURCE 200809L /* strdup */
#define NBDKIT_API_VERSION 2

#include <errno.h>
#include <mdspace.h>
#include <nbdkit-plugin.h>
#include <stdlib.h>
#include <string.h>

#define THREAD_MODEL NBDKIT_THREAD_MODEL_PARALLEL

static char **members;
static size_t count;
static char *inner, *overlay, *bitmap;
static int writes, force, partial;
static mdspace_array *array;

/* Tells nbdkit what failed, and with which number. */
static int failed(mdspace_error *error)
{
    int code = mdspace_error_code(error);
    nbdkit_error("%s", mdspace_error_text(error));
    nbdkit_set_error(code == MDSPACE_NO_SPACE ? ENOSPC : code == MDSPACE_READ_ONLY ? EROFS : EIO);
    mdspace_error_free(error);
    return -1;
}

static int add_member(const char *path)
{
    char **more = realloc(members, (count + 1) * sizeof *more);
    if (more == NULL) {
        nbdkit_error("no memory for the names of the members");
        return -1;
    }
    members = more;
    members[count] = nbdkit_realpath(path); /* nbdkit changes its directory */
    return members[count] == NULL ? -1 : (count++, 0);
}

static int set(char **parameter, char *value)
{
    free(*parameter);
    *parameter = value;
    return value == NULL ? -1 : 0;
}

static int set_switch(int *parameter, const char *value)
{
    *parameter = nbdkit_parse_bool(value);
    return *parameter < 0 ? -1 : 0;
}

static int config(const char *key, const char *value)
{
    if (strcmp(key, "member") == 0)
        return add_member(value);
    if (strcmp(key, "inner") == 0)
        return set(&inner, strdup(value));
    if (strcmp(key, "overlay") == 0)
        return set(&overlay, nbdkit_absolute_path(value));
    if (strcmp(key, "bitmap") == 0)
        return set(&bitmap, nbdkit_absolute_path(value));
    if (strcmp(key, "write") == 0)
        return set_switch(&writes, value);
    if (strcmp(key, "force") == 0)
        return set_switch(&force, value);
    if (strcmp(key, "partial") == 0)
        return set_switch(&partial, value);
    nbdkit_error("%s: no such parameter; there are member, write, inner, overlay, bitmap, force and partial", key);
    return -1;
}

static int config_complete(void)
{
    if (count == 0) {
        nbdkit_error("no members: name the files or devices of the array");
        return -1;
    }
    return 0;
}

/* Opens the array with the parameters that were given, and `flags` besides. Returns NULL, or why it is refused. */
static mdspace_error *open_array(uint32_t flags, const char *directory)
{
    flags |= (force ? MDSPACE_FORCE : 0) | (partial ? MDSPACE_PARTIAL : 0);
    mdspace_error *error;
    mdspace_options *options = mdspace_options_new(flags, &error);
    if (options != NULL && (inner == NULL || mdspace_options_inner(options, inner, &error) == 0) &&
        (directory == NULL || mdspace_options_overlay(options, directory, &error) == 0) &&
        (bitmap == NULL || mdspace_options_bitmap(options, bitmap, &error) == 0))
        array = mdspace_options_open(options, (const char *const *)members, count, &error);
    mdspace_options_free(options);
    return error;
}

static int close_array(void)
{
    mdspace_error *error;
    int status = mdspace_close(array, &error);
    array = NULL;
    return status == 0 ? 0 : failed(error);
}

/* Refuses what cannot be opened while the user still sees it. An overlay may be there only once it is written to. */
static int get_ready(void)
{
    mdspace_error *error = open_array(0, overlay);
    if (error != NULL && writes && overlay != NULL) {
        mdspace_error_free(error);
        error = open_array(0, NULL);
    }
    return error == NULL ? close_array() : failed(error);
}

static int after_fork(void)
{
    mdspace_error *error = open_array(writes ? MDSPACE_WRITE : 0, overlay);
    return error == NULL ? 0 : failed(error);
}

/* The last connection has ended. */
static void unload(void)
{
    close_array();
    for (size_t number = 0; number < count; number++)
        free(members[number]);
    free(members);
    free(inner);
    free(overlay);
    free(bitmap);
}

static void *open_connection(int readonly)
{
    (void)readonly;
    return NBDKIT_HANDLE_NOT_NEEDED;
}

static int64_t get_size(void *handle)
{
    (void)handle;
    return (int64_t)mdspace_size(array);
}

static int block_size(void *handle, uint32_t *minimum, uint32_t *preferred, uint32_t *maximum)
{
    (void)handle;
    uint64_t stripe = mdspace_preferred_bytes(array);
    *minimum = 1;
    *preferred = stripe >= 4096 && stripe <= 1 << 25 && (stripe & (stripe - 1)) == 0 ? (uint32_t)stripe : 4096;
    *maximum = 0xffffffff;
    return 0;
}

static int can_write(void *handle)
{
    (void)handle;
    return !mdspace_is_read_only(array);
}

/* All connections are served from one array. */
static int can_multi_conn(void *handle)
{
    (void)handle;
    return 1;
}

static int read_at(void *handle, void *buffer, uint32_t bytes, uint64_t at, uint32_t flags)
{
    (void)handle, (void)flags;
    mdspace_error *error;
    return mdspace_read_at(array, buffer, bytes, at, &error) == 0 ? 0 : failed(error);
}

static int write_at(void *handle, const void *buffer, uint32_t bytes, uint64_t at, uint32_t flags)
{
    (void)handle, (void)flags; /* nbdkit flushes where a request asks for it */
    mdspace_error *error;
    return mdspace_write_at(array, buffer, bytes, at, &error) == 0 ? 0 : failed(error);
}

static int trim(void *handle, uint32_t bytes, uint64_t at, uint32_t flags)
{
    (void)handle, (void)flags;
    mdspace_error *error;
    return mdspace_discard(array, at, bytes, &error) == 0 ? 0 : failed(error);
}

static int flush(void *handle, uint32_t flags)
{
    (void)handle, (void)flags;
    mdspace_error *error;
    return mdspace_flush(array, &error) == 0 ? 0 : failed(error);
}

static struct nbdkit_plugin plugin = {
    .name = "mdspace",
    .longname = "arrays in the format of Linux md",
    .description = "Serves an array of the members that are named.",
    .config = config,
    .config_complete = config_complete,
    .config_help = "member=PATH       (required) a file or device of the array; several, and `member=` may be left out\n"
                   "write=true        Open the array for writing.\n"
                   "inner=NAME        Serve a partition or logical volume inside of it.\n"
                   "overlay=DIRECTORY Write there, and leave the members as they are.\n"
                   "bitmap=FILE       The array's write-intent bitmap, if it is in a file.\n"
                   "force=true        Accept members that may lack writes.\n"
                   "partial=true      Serve what the members hold, although others are missing.",
    .magic_config_key = "member",
    .get_ready = get_ready,
    .after_fork = after_fork,
    .unload = unload,
    .open = open_connection,
    .get_size = get_size,
    .block_size = block_size,
    .can_write = can_write,
    .can_multi_conn = can_multi_conn,
    .pread = read_at,
    .pwrite = write_at,
    .trim = trim,
    .flush = flush,
};

NBDKIT_REGISTER_PLUGIN(plugin)
