/*
 * Claims about the C library: claims VERSION LETTER MEMBER MEMBER MEMBER
 *
 * The members are of a RAID-5 whose byte at any position is that position modulo 251. LETTER is a file that is no member.
 * A claim that does not hold ends the program with the line of the claim.
 */

#define _GNU_SOURCE
#include <mdspace.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define CLAIM(holds)                                                        \
    do {                                                                    \
        if (!(holds)) {                                                     \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #holds); \
            _exit(1);                                                       \
        }                                                                   \
    } while (0)

#define MIB ((uint64_t)1 << 20)
#define THREADS 4
#define READS 64

static const char *const *members;

/* Opens the array, which must succeed. */
static mdspace_array *opened(size_t count, uint32_t flags)
{
    mdspace_error *error = NULL;
    mdspace_array *array = mdspace_open(members, count, flags, &error);
    if (array == NULL)
        fprintf(stderr, "%s\n", mdspace_error_text(error));
    CLAIM(array != NULL && error == NULL);
    return array;
}

/* Whether a call failed with `code`, and said so in each way. Frees the error. */
static int failed_with(int code, int returned, mdspace_error *error)
{
    int right = returned == code && mdspace_error_code(error) == code && strlen(mdspace_error_text(error)) > 0
        && strstr(mdspace_error_text(error), mdspace_error_reason(error)) != NULL;
    mdspace_error_free(error);
    return right;
}

static int is_pattern(const unsigned char *bytes, size_t count, uint64_t at)
{
    for (size_t index = 0; index < count; index++)
        if (bytes[index] != (at + index) % 251)
            return 0;
    return 1;
}

static void *read_much(void *array)
{
    static const size_t bytes = 70001;
    unsigned char *into = malloc(bytes);
    for (uint64_t number = 0; number < READS; number++) {
        uint64_t at = number * 199999 % (mdspace_size(array) - bytes);
        CLAIM(mdspace_read_at(array, into, bytes, at, NULL) == 0 && is_pattern(into, bytes, at));
    }
    free(into);
    return NULL;
}

static void threads_read_through_one_handle_without_a_member(void)
{
    mdspace_array *array = opened(2, 0);
    CLAIM(mdspace_is_read_only(array) && mdspace_preferred_bytes(array) > 0 && mdspace_size(array) > 8 * MIB);
    pthread_t threads[THREADS];
    for (int index = 0; index < THREADS; index++)
        CLAIM(pthread_create(&threads[index], NULL, read_much, array) == 0);
    for (int index = 0; index < THREADS; index++)
        CLAIM(pthread_join(threads[index], NULL) == 0);
    CLAIM(mdspace_close(array, NULL) == 0);
}

static void what_does_not_fit_is_refused_with_its_code(void)
{
    mdspace_array *array = opened(3, 0);
    uint64_t end = mdspace_size(array);
    char bytes[16] = { 0 };
    mdspace_error *error;
    int code = mdspace_read_at(array, bytes, sizeof bytes, end - 1, &error);
    CLAIM(failed_with(MDSPACE_OUT_OF_RANGE, code, error));
    code = mdspace_write_at(array, bytes, sizeof bytes, 0, &error);
    CLAIM(failed_with(MDSPACE_READ_ONLY, code, error));
    code = mdspace_read_at(array, NULL, 1, 0, &error);
    CLAIM(failed_with(MDSPACE_INVALID, code, error));
    code = mdspace_read_at(array, bytes, SIZE_MAX, 0, &error);
    CLAIM(failed_with(MDSPACE_INVALID, code, error));
    CLAIM(mdspace_read_at(array, NULL, 0, end, &error) == 0 && error == NULL);
    CLAIM(mdspace_close(array, &error) == 0 && error == NULL);

    code = mdspace_read_at(NULL, bytes, 1, 0, &error);
    CLAIM(failed_with(MDSPACE_INVALID, code, error));
    CLAIM(mdspace_status_json(NULL, &error) == NULL && failed_with(MDSPACE_INVALID, MDSPACE_INVALID, error));
    CLAIM(mdspace_size(NULL) == 0 && mdspace_close(NULL, NULL) == 0);
    CLAIM(mdspace_open(members, 3, 1u << 31, &error) == NULL && failed_with(MDSPACE_INVALID, MDSPACE_INVALID, error));
    CLAIM(mdspace_open(NULL, 3, 0, &error) == NULL && failed_with(MDSPACE_INVALID, MDSPACE_INVALID, error));
    const char *holes[] = { members[0], NULL };
    CLAIM(mdspace_open(holes, 2, 0, &error) == NULL && failed_with(MDSPACE_INVALID, MDSPACE_INVALID, error));
    CLAIM(mdspace_error_text(NULL) == NULL && mdspace_error_code(NULL) == 0);
    mdspace_error_free(NULL);
    mdspace_string_free(NULL);
}

static void a_refusal_names_member_and_field(const char *letter)
{
    const char *given[] = { members[0], letter };
    mdspace_error *error = NULL;
    CLAIM(mdspace_open(given, 2, 0, &error) == NULL);
    CLAIM(strcmp(mdspace_error_member(error), letter) == 0);
    CLAIM(strcmp(mdspace_error_field(error), "superblock.magic") == 0);
    CLAIM(mdspace_error_changed(error) == NULL);
    printf("%s\n", mdspace_error_text(error)); /* the caller compares it */
    CLAIM(failed_with(MDSPACE_REFUSED, MDSPACE_REFUSED, error));
}

static void what_is_written_and_flushed_is_there_without_a_member(void)
{
    static const char text[] = "hello, array";
    static const uint64_t at = 12345;
    char found[sizeof text];
    mdspace_array *array = opened(3, MDSPACE_WRITE);
    mdspace_error *error;
    CLAIM(!mdspace_is_read_only(array));
    CLAIM(mdspace_open(members, 3, MDSPACE_WRITE, &error) == NULL);
    CLAIM(failed_with(MDSPACE_REFUSED, MDSPACE_REFUSED, error)); /* in use */
    CLAIM(mdspace_write_at(array, text, sizeof text, at, NULL) == 0 && mdspace_flush(array, NULL) == 0);
    int code = mdspace_discard(array, mdspace_size(array), 1, &error);
    CLAIM(failed_with(MDSPACE_OUT_OF_RANGE, code, error));
    char *status = mdspace_status_json(array, NULL);
    CLAIM(status[0] == '{' && strstr(status, "\"level\":\"raid5\"") != NULL);
    mdspace_string_free(status);
    CLAIM(mdspace_close(array, NULL) == 0);

    array = opened(2, 0);
    CLAIM(mdspace_read_at(array, found, sizeof found, at, NULL) == 0 && memcmp(found, text, sizeof text) == 0);
    CLAIM(mdspace_close(array, NULL) == 0);
}

static void what_is_on_disks_is_told_without_a_change(void)
{
    const char *disks[] = { members[0], members[2], "there-is-none" };
    mdspace_error *error;
    char *found = mdspace_detect_json(disks, 3, &error);
    CLAIM(found != NULL && error == NULL);
    CLAIM(strstr(found, "\"level\":\"raid5\"") != NULL && strstr(found, "\"missing\":[1]") != NULL);
    CLAIM(strstr(found, "there-is-none") != NULL && strstr(found, "\"next\"") == NULL);
    mdspace_string_free(found);
    CLAIM(mdspace_detect_json(NULL, 1, &error) == NULL && failed_with(MDSPACE_INVALID, MDSPACE_INVALID, error));
}

static void options_are_those_of_the_command(void)
{
    static const char text[] = "tried";
    char found[sizeof text];
    mdspace_error *error;
    mdspace_options *options = mdspace_options_new(MDSPACE_WRITE, NULL);
    CLAIM(mdspace_options_overlay(options, "overlay", NULL) == 0);
    mdspace_array *array = mdspace_options_open(options, members, 3, NULL);
    CLAIM(mdspace_write_at(array, text, sizeof text, 0, NULL) == 0 && mdspace_close(array, NULL) == 0);
    array = opened(3, 0);
    CLAIM(mdspace_read_at(array, found, sizeof found, 0, NULL) == 0 && is_pattern((void *)found, sizeof found, 0));
    CLAIM(mdspace_close(array, NULL) == 0);
    array = mdspace_options_open(options, members, 3, NULL);
    CLAIM(mdspace_read_at(array, found, sizeof found, 0, NULL) == 0 && memcmp(found, text, sizeof text) == 0);
    CLAIM(mdspace_close(array, NULL) == 0);
    mdspace_options_free(options);

    options = mdspace_options_new(0, NULL);
    int code = mdspace_options_inner(options, "\xff", &error);
    CLAIM(failed_with(MDSPACE_INVALID, code, error));
    CLAIM(mdspace_options_inner(options, "7", NULL) == 0);
    CLAIM(mdspace_options_open(options, members, 3, &error) == NULL);
    CLAIM(strcmp(mdspace_error_field(error), "--inner 7") == 0 && failed_with(MDSPACE_REFUSED, MDSPACE_REFUSED, error));
    mdspace_options_free(options);

    options = mdspace_options_new(0, NULL);
    code = mdspace_options_map(options, members[0], NULL, &error);
    CLAIM(failed_with(MDSPACE_INVALID, code, error));
    CLAIM(mdspace_options_map(options, members[0], members[1], NULL) == 0); /* which is no map */
    CLAIM(mdspace_options_open(options, members, 3, &error) == NULL);
    CLAIM(strcmp(mdspace_error_member(error), members[1]) == 0);
    mdspace_error_free(error);
    mdspace_options_free(options);
    CLAIM(mdspace_options_new(8, &error) == NULL && failed_with(MDSPACE_INVALID, MDSPACE_INVALID, error));
    code = mdspace_options_bitmap(NULL, "file", &error);
    CLAIM(failed_with(MDSPACE_INVALID, code, error));
}

static volatile sig_atomic_t handled;

static void handle(int number)
{
    (void)number;
    handled = 1;
}

static void no_thread_of_the_library_receives_a_signal(void)
{
    sigset_t one, pending;
    sigemptyset(&one);
    sigaddset(&one, SIGUSR1);
    CLAIM(signal(SIGUSR1, handle) != SIG_ERR);
    mdspace_array *array = opened(3, 0);
    CLAIM(pthread_sigmask(SIG_BLOCK, &one, NULL) == 0); /* only threads of the library could receive it from here on */
    CLAIM(kill(getpid(), SIGUSR1) == 0);
    read_much(array);
    CLAIM(!handled && sigpending(&pending) == 0 && sigismember(&pending, SIGUSR1));
    CLAIM(mdspace_close(array, NULL) == 0);
    CLAIM(pthread_sigmask(SIG_UNBLOCK, &one, NULL) == 0 && handled);
}

static void a_fork_is_told_so_and_the_parent_goes_on(void)
{
    mdspace_array *array = opened(3, 0);
    pid_t child = fork();
    if (child == 0) {
        char byte;
        mdspace_error *error;
        int code = mdspace_read_at(array, &byte, 1, 0, &error);
        CLAIM(failed_with(MDSPACE_STOPPED, code, error));
        code = mdspace_close(array, &error);
        CLAIM(failed_with(MDSPACE_STOPPED, code, error));
        _exit(0);
    }
    int status;
    CLAIM(child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    read_much(array);
    CLAIM(mdspace_close(array, NULL) == 0);
}

int main(int argc, char **argv)
{
    CLAIM(argc == 6);
    members = (const char *const *)argv + 3;
    CLAIM(strcmp(mdspace_version(), argv[1]) == 0);
    threads_read_through_one_handle_without_a_member();
    what_does_not_fit_is_refused_with_its_code();
    a_refusal_names_member_and_field(argv[2]);
    no_thread_of_the_library_receives_a_signal();
    a_fork_is_told_so_and_the_parent_goes_on();
    what_is_on_disks_is_told_without_a_change();
    options_are_those_of_the_command();
    what_is_written_and_flushed_is_there_without_a_member(); /* last, as it changes the pattern */
    return 0;
}
