/* SPDX-License-Identifier: Apache-2.0 */
/* QEMU plugin: what was executed before functions are called, in instructions, cycles and misses.
 *
 *   -plugin ./count.so,marks=<file>,out=<file>[,times=<file>][,top=<address>,code=<lines>,
 *           data=<lines>,line=<log2 of bytes>]
 *
 * The first file holds the functions' addresses, one hexadecimal number per line, ascending. The
 * second gets one line per call of any of them: its address, the instructions before, then in three
 * bounds their cycles, and the misses of a cache for code, those of them that follow one another,
 * and misses of one for data. What wasn't asked for is 0.
 *
 * "times" has for each instruction, by ascending addresses, its cycles in three bounds behind the
 * one before it, the same where a branch leads to it, and what it takes more when it branches
 * itself. Caches are fully associative, drop what was used least recently, and lie before the
 * memory below "top".
 *
 * The few prototypes that are needed are declared here, because distributions ship no
 * qemu-plugin.h.
 */
#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef uint64_t qemu_plugin_id_t;
typedef struct qemu_info_t qemu_info_t;
struct qemu_plugin_tb;
struct qemu_plugin_insn;
enum qemu_plugin_cb_flags { QEMU_PLUGIN_CB_NO_REGS = 0 };
typedef void (*tb_callback)(qemu_plugin_id_t, struct qemu_plugin_tb *);
typedef void (*exec_callback)(unsigned int, void *);
typedef void (*memory_callback)(unsigned int, uint32_t, uint64_t, void *);

extern void qemu_plugin_register_vcpu_tb_trans_cb(qemu_plugin_id_t, tb_callback);
extern void qemu_plugin_register_vcpu_tb_exec_cb(struct qemu_plugin_tb *, exec_callback,
                                                 enum qemu_plugin_cb_flags, void *);
extern void qemu_plugin_register_vcpu_insn_exec_cb(struct qemu_plugin_insn *, exec_callback,
                                                   enum qemu_plugin_cb_flags, void *);
extern size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *);
extern struct qemu_plugin_insn *qemu_plugin_tb_get_insn(const struct qemu_plugin_tb *, size_t);
extern uint64_t qemu_plugin_insn_vaddr(const struct qemu_plugin_insn *);
extern size_t qemu_plugin_insn_size(const struct qemu_plugin_insn *);
extern void qemu_plugin_register_vcpu_mem_cb(struct qemu_plugin_insn *, memory_callback,
                                             enum qemu_plugin_cb_flags, int, void *);

__attribute__((visibility("default"))) int qemu_plugin_version = QEMU_PLUGIN_API;

enum { BOUNDS = 3, MOST_LINES = 4096, READS_AND_WRITES = 3 };

struct instruction_time {
    uint64_t address;
    unsigned int behind[BOUNDS];  /* the instruction before it */
    unsigned int entered[BOUNDS]; /* by a branch */
    unsigned int taken[BOUNDS];   /* more, if it branches */
};

struct cache {
    size_t lines;
    uint64_t tag[MOST_LINES], used[MOST_LINES], misses, following, last;
};

/* Instructions that are executed one after the other. */
struct run {
    uint64_t start, end;
    size_t instructions;
    const struct instruction_time *first, *last;
    unsigned int rest[BOUNDS]; /* cycles of all but the first */
};

static uint64_t executed, cycles[BOUNDS];
static uint64_t *marks;
static size_t mark_count;
static struct instruction_time *times;
static size_t time_count;
static const struct run *before;
static struct cache code, data;
static uint64_t top, now;
static unsigned int line_bits = 4;
static FILE *out;

static void touch(struct cache *cache, uint64_t line)
{
    size_t oldest = 0;

    now++;
    for (size_t i = 0; i < cache->lines; i++) {
        if (cache->tag[i] == line + 1) {
            cache->used[i] = now;
            return;
        }
        if (cache->used[i] < cache->used[oldest]) {
            oldest = i;
        }
    }
    cache->tag[oldest] = line + 1;
    cache->used[oldest] = now;
    cache->misses++;
    cache->following += line == cache->last + 1;
    cache->last = line;
}

static void spend(const struct run *run)
{
    bool fell = before != NULL && before->end == run->start;

    for (int bound = 0; bound < BOUNDS; bound++) {
        if (run->first != NULL) {
            cycles[bound] += fell ? run->first->behind[bound] : run->first->entered[bound];
            cycles[bound] += run->rest[bound];
        }
        if (!fell && before != NULL && before->last != NULL) {
            cycles[bound] += before->last->taken[bound];
        }
    }
    before = run;
}

static void count(unsigned int cpu, void *executed_run)
{
    const struct run *run = executed_run;

    (void)cpu;
    executed += run->instructions;
    if (times != NULL) {
        spend(run);
    }
    if (run->start < top) {
        for (uint64_t line = run->start >> line_bits; line <= (run->end - 1) >> line_bits; line++) {
            touch(&code, line);
        }
    }
}

static void load(unsigned int cpu, uint32_t info, uint64_t address, void *unused)
{
    (void)cpu;
    (void)info;
    (void)unused;
    if (address < top) {
        touch(&data, address >> line_bits);
    }
}

static void report(unsigned int cpu, void *mark)
{
    (void)cpu;
    fprintf(out, "%" PRIx64 " %" PRIu64, *(const uint64_t *)mark, executed);
    for (int bound = 0; bound < BOUNDS; bound++) {
        fprintf(out, " %" PRIu64, cycles[bound]);
    }
    fprintf(out, " %" PRIu64 " %" PRIu64 " %" PRIu64 "\n", code.misses, code.following, data.misses);
    fflush(out);
}

static int compare(const void *a, const void *b)
{
    uint64_t left = *(const uint64_t *)a;
    uint64_t right = *(const uint64_t *)b;

    return (left > right) - (left < right);
}

/* The mark at an instruction, NULL if it has none. */
static uint64_t *mark_at(const struct qemu_plugin_insn *instruction)
{
    uint64_t address = qemu_plugin_insn_vaddr(instruction);

    return bsearch(&address, marks, mark_count, sizeof(*marks), compare);
}

static bool holds_mark(const struct qemu_plugin_tb *block, size_t instructions)
{
    for (size_t i = 0; i < instructions; i++) {
        if (mark_at(qemu_plugin_tb_get_insn(block, i)) != NULL) {
            return true;
        }
    }
    return false;
}

static int compare_times(const void *a, const void *b)
{
    uint64_t left = ((const struct instruction_time *)a)->address;
    uint64_t right = ((const struct instruction_time *)b)->address;

    return (left > right) - (left < right);
}

static const struct instruction_time *time_of(const struct qemu_plugin_insn *instruction)
{
    struct instruction_time wanted = {.address = qemu_plugin_insn_vaddr(instruction)};

    return bsearch(&wanted, times, time_count, sizeof(*times), compare_times);
}

/* The run of some instructions of a block. It is kept as long as this program runs. */
static struct run *run_of(const struct qemu_plugin_tb *block, size_t begin, size_t end)
{
    struct run *run = calloc(1, sizeof(*run));

    if (run == NULL) {
        abort();
    }
    run->instructions = end - begin;
    for (size_t i = begin; i < end; i++) {
        const struct qemu_plugin_insn *instruction = qemu_plugin_tb_get_insn(block, i);
        const struct instruction_time *time = time_of(instruction);

        if (i == begin) {
            run->start = qemu_plugin_insn_vaddr(instruction);
            run->first = time;
        } else if (time != NULL) {
            for (int bound = 0; bound < BOUNDS; bound++) {
                run->rest[bound] += time->behind[bound];
            }
        }
        run->end = qemu_plugin_insn_vaddr(instruction) + qemu_plugin_insn_size(instruction);
        run->last = time;
    }
    return run;
}

static void translated(qemu_plugin_id_t id, struct qemu_plugin_tb *block)
{
    size_t instructions = qemu_plugin_tb_n_insns(block);

    (void)id;
    for (size_t i = 0; data.lines != 0 && i < instructions; i++) {
        /* QEMU 7.2 doesn't report reads alone. */
        qemu_plugin_register_vcpu_mem_cb(qemu_plugin_tb_get_insn(block, i), load,
                                         QEMU_PLUGIN_CB_NO_REGS, READS_AND_WRITES, NULL);
    }
    if (!holds_mark(block, instructions)) {
        qemu_plugin_register_vcpu_tb_exec_cb(block, count, QEMU_PLUGIN_CB_NO_REGS,
                                             run_of(block, 0, instructions));
        return;
    }
    /* One by one, so that the count is right in the middle of a block. */
    for (size_t i = 0; i < instructions; i++) {
        struct qemu_plugin_insn *instruction = qemu_plugin_tb_get_insn(block, i);
        uint64_t *mark = mark_at(instruction);

        if (mark != NULL) {
            qemu_plugin_register_vcpu_insn_exec_cb(instruction, report, QEMU_PLUGIN_CB_NO_REGS,
                                                   mark);
        }
        qemu_plugin_register_vcpu_insn_exec_cb(instruction, count, QEMU_PLUGIN_CB_NO_REGS,
                                               run_of(block, i, i + 1));
    }
}

/* Makes room for one more of "size" bytes behind "count" of them. */
static void *grown(void *all, size_t count, size_t size)
{
    if ((count & (count - 1)) != 0) {
        return all;
    }
    all = realloc(all, (count == 0 ? 1 : 2 * count) * size);
    if (all == NULL) {
        abort();
    }
    return all;
}

static bool read_times(const char *path)
{
    FILE *in = fopen(path, "r");
    struct instruction_time one;

    if (in == NULL) {
        return false;
    }
    while (fscanf(in, "%" SCNx64 " %u %u %u %u %u %u %u %u %u", &one.address, &one.behind[0],
                  &one.behind[1], &one.behind[2], &one.entered[0], &one.entered[1],
                  &one.entered[2], &one.taken[0], &one.taken[1], &one.taken[2]) == 10) {
        times = grown(times, time_count, sizeof(*times));
        times[time_count++] = one;
    }
    fclose(in);
    return true;
}

static bool read_marks(const char *path)
{
    uint64_t address;
    FILE *in = fopen(path, "r");

    if (in == NULL) {
        return false;
    }
    while (fscanf(in, "%" SCNx64, &address) == 1) {
        marks = grown(marks, mark_count, sizeof(*marks));
        marks[mark_count++] = address;
    }
    fclose(in);
    return true;
}

/* The value of an argument by that name, NULL for others. */
static const char *value_of(const char *argument, const char *name)
{
    size_t length = strlen(name);

    return strncmp(argument, name, length) == 0 ? argument + length : NULL;
}

static bool take(const char *argument)
{
    const char *value;

    if ((value = value_of(argument, "marks=")) != NULL) {
        return read_marks(value);
    }
    if ((value = value_of(argument, "times=")) != NULL) {
        return read_times(value);
    }
    if ((value = value_of(argument, "out=")) != NULL) {
        out = fopen(value, "w");
        return out != NULL;
    }
    if ((value = value_of(argument, "top=")) != NULL) {
        top = strtoull(value, NULL, 0);
    } else if ((value = value_of(argument, "code=")) != NULL) {
        code.lines = strtoull(value, NULL, 0);
    } else if ((value = value_of(argument, "data=")) != NULL) {
        data.lines = strtoull(value, NULL, 0);
    } else if ((value = value_of(argument, "line=")) != NULL) {
        line_bits = (unsigned int)strtoull(value, NULL, 0);
    }
    return code.lines <= MOST_LINES && data.lines <= MOST_LINES;
}

__attribute__((visibility("default"))) int qemu_plugin_install(qemu_plugin_id_t id,
                                                               const qemu_info_t *info, int argc,
                                                               char **argv)
{
    (void)info;
    for (int i = 0; i < argc; i++) {
        if (!take(argv[i])) {
            fprintf(stderr, "count: can't do %s\n", argv[i]);
            return -1;
        }
    }
    if (out == NULL) {
        fprintf(stderr, "count: there is no file for counts\n");
        return -1;
    }
    qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
    return 0;
}
