/* QEMU plugin: how many instructions were executed when a function is called.
 *
 *   -plugin ./count.so,mark=0x<address of the function>,out=<file>
 *
 * writes one line per call of the function: the number of instructions before it. The few
 * prototypes that are needed are declared here, because distributions ship no qemu-plugin.h.
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
static uint64_t mark;
static FILE *out;

static void count(unsigned int cpu, void *instructions)
{
    (void)cpu;
    executed += (uintptr_t)instructions;
}

static void report(unsigned int cpu, void *unused)
{
    (void)cpu;
    (void)unused;
    fprintf(out, "%" PRIu64 "\n", executed);
    fflush(out);
}

static bool holds_mark(const struct qemu_plugin_tb *block, size_t instructions)
{
    for (size_t i = 0; i < instructions; i++) {
        if (qemu_plugin_insn_vaddr(qemu_plugin_tb_get_insn(block, i)) == mark) {
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

        if (qemu_plugin_insn_vaddr(instruction) == mark) {
            qemu_plugin_register_vcpu_insn_exec_cb(instruction, report, QEMU_PLUGIN_CB_NO_REGS,
                                                   NULL);
        }
        qemu_plugin_register_vcpu_insn_exec_cb(instruction, count, QEMU_PLUGIN_CB_NO_REGS,
                                               (void *)(uintptr_t)1);
    }
}

__attribute__((visibility("default"))) int qemu_plugin_install(qemu_plugin_id_t id,
                                                               const qemu_info_t *info, int argc,
                                                               char **argv)
{
    (void)info;
    for (int i = 0; i < argc; i++) {
        if (strncmp(argv[i], "mark=", 5) == 0) {
            mark = strtoull(argv[i] + 5, NULL, 0);
        } else if (strncmp(argv[i], "out=", 4) == 0) {
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
