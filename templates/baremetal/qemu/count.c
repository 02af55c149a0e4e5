/* SPDX-License-Identifier: Apache-2.0 */
/* QEMU plugin: how many instructions were executed when functions are called.
 *
 *   -plugin ./count.so,marks=<file>,out=<file>
 *
 * The first file holds the functions' addresses, one hexadecimal number per line, ascending. The
 * second gets one line per call of any of them: its address and the number of instructions before.
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

extern void qemu_plugin_register_vcpu_tb_trans_cb(qemu_plugin_id_t, tb_callback);
extern void qemu_plugin_register_vcpu_tb_exec_cb(struct qemu_plugin_tb *, exec_callback,
                                                 enum qemu_plugin_cb_flags, void *);
extern void qemu_plugin_register_vcpu_insn_exec_cb(struct qemu_plugin_insn *, exec_callback,
                                                   enum qemu_plugin_cb_flags, void *);
extern size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *);
extern struct qemu_plugin_insn *qemu_plugin_tb_get_insn(const struct qemu_plugin_tb *, size_t);
extern uint64_t qemu_plugin_insn_vaddr(const struct qemu_plugin_insn *);

__attribute__((visibility("default"))) int qemu_plugin_version = QEMU_PLUGIN_API;

static uint64_t executed;
static uint64_t *marks;
static size_t mark_count;
static FILE *out;

static void count(unsigned int cpu, void *instructions)
{
    (void)cpu;
    executed += (uintptr_t)instructions;
}

static void report(unsigned int cpu, void *mark)
{
    (void)cpu;
    fprintf(out, "%" PRIx64 " %" PRIu64 "\n", *(const uint64_t *)mark, executed);
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

static void translated(qemu_plugin_id_t id, struct qemu_plugin_tb *block)
{
    size_t instructions = qemu_plugin_tb_n_insns(block);

    (void)id;
    if (!holds_mark(block, instructions)) {
        qemu_plugin_register_vcpu_tb_exec_cb(block, count, QEMU_PLUGIN_CB_NO_REGS,
                                             (void *)(uintptr_t)instructions);
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
                                               (void *)(uintptr_t)1);
    }
}

static bool read_marks(const char *path)
{
    uint64_t address;
    size_t room = 0;
    FILE *in = fopen(path, "r");

    if (in == NULL) {
        return false;
    }
    while (fscanf(in, "%" SCNx64, &address) == 1) {
        if (mark_count == room) {
            room = 2 * room + 16;
            marks = realloc(marks, room * sizeof(*marks));
            if (marks == NULL) {
                abort();
            }
        }
        marks[mark_count++] = address;
    }
    fclose(in);
    return true;
}

__attribute__((visibility("default"))) int qemu_plugin_install(qemu_plugin_id_t id,
                                                               const qemu_info_t *info, int argc,
                                                               char **argv)
{
    (void)info;
    for (int i = 0; i < argc; i++) {
        if (strncmp(argv[i], "marks=", 6) == 0 && !read_marks(argv[i] + 6)) {
            fprintf(stderr, "count: can't read the file of addresses\n");
            return -1;
        }
        if (strncmp(argv[i], "out=", 4) == 0) {
            out = fopen(argv[i] + 4, "w");
        }
    }
    if (out == NULL) {
        fprintf(stderr, "count: can't write the file of counts\n");
        return -1;
    }
    qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
    return 0;
}
