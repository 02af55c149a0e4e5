/* SPDX-License-Identifier: Apache-2.0 */
/* One model in several threads at once, each with a workspace of its own; from a work queue; and in
 * user mode, with the workspace in a memory partition.
 */
#include <string.h>

#include <zephyr/kernel.h>
#include <zephyr/sys/printk.h>
#ifdef CONFIG_USERSPACE
#include <zephyr/app_memory/app_memdomain.h>
#endif

#include <tvmgen_digits.h>

#include "images.h"
#include "leave.h"

#define ROUNDS 10
#define THREADS 2
#define STACK_SIZE 2048
#define WORKSPACE __aligned(TVMGEN_DIGITS_WORKSPACE_ALIGN)

struct job {
	uint8_t workspace[TVMGEN_DIGITS_WORKSPACE_SIZE] WORKSPACE;
	int8_t scores[TVMGEN_DIGITS_PROBABILITIES_SIZE];
	volatile bool busy;
	int overlaps; /* inferences that began while another thread was within one */
	int wrong;
	int done;
};

static struct job jobs[THREADS];
static struct job queued;
static struct k_thread threads[THREADS];
static K_THREAD_STACK_ARRAY_DEFINE(stacks, THREADS, STACK_SIZE);
static K_SEM_DEFINE(work_done, 0, 1);

static int best(const int8_t *scores)
{
	int found = 0;

	for (int i = 1; i < TVMGEN_DIGITS_PROBABILITIES_ELEMENTS; i++) {
		if (scores[i] > scores[found]) {
			found = i;
		}
	}
	return found;
}

/* Reads image i with what memory job has. */
static void infer(struct job *job, int i)
{
	struct tvmgen_digits_inputs inputs = {.image = images[i]};
	struct tvmgen_digits_outputs outputs = {.probabilities = job->scores};
	struct tvmgen_digits_workspace_pools pools = {.workspace = job->workspace};

	memset(job->scores, 0, sizeof(job->scores));
	job->busy = true;
	int32_t status = tvmgen_digits_run(&inputs, &outputs, &pools);

	job->busy = false;
	job->wrong += status != 0 || best(job->scores) != labels[i];
	job->done++;
}

static void thread(void *first, void *second, void *third)
{
	struct job *own = first;
	struct job *other = second;

	ARG_UNUSED(third);
	for (int round = 0; round < ROUNDS; round++) {
		for (int i = 0; i < IMAGES; i++) {
			own->overlaps += other->busy;
			infer(own, i);
		}
	}
}

static bool two_threads(void)
{
	for (int i = 0; i < THREADS; i++) {
		k_thread_create(&threads[i], stacks[i], STACK_SIZE, thread, &jobs[i],
				&jobs[THREADS - 1 - i], NULL, K_PRIO_PREEMPT(5), 0, K_NO_WAIT);
	}
	for (int i = 0; i < THREADS; i++) {
		k_thread_join(&threads[i], K_FOREVER);
	}
	int overlaps = jobs[0].overlaps + jobs[1].overlaps;

	printk("threads: %d and %d inferences, %d begun within another's, %d wrong\n", jobs[0].done,
	       jobs[1].done, overlaps, jobs[0].wrong + jobs[1].wrong);
	/* No time passes on native_sim while code runs, so that nothing is interrupted there. */
	return jobs[0].wrong + jobs[1].wrong == 0 && jobs[0].done + jobs[1].done == 2 * ROUNDS * IMAGES &&
	       (overlaps > 0 || IS_ENABLED(CONFIG_ARCH_POSIX));
}

static void work(struct k_work *item)
{
	ARG_UNUSED(item);
	for (int i = 0; i < IMAGES; i++) {
		infer(&queued, i);
	}
	k_sem_give(&work_done);
}

static K_WORK_DEFINE(item, work);

static bool work_queue(void)
{
	k_work_submit(&item);
	k_sem_take(&work_done, K_FOREVER);
	printk("work queue: %d inferences, %d wrong\n", queued.done, queued.wrong);
	return queued.wrong == 0 && queued.done == IMAGES;
}

#ifdef CONFIG_USERSPACE

/* All that a user thread may write, besides its stack. */
K_APPMEM_PARTITION_DEFINE(model_partition);
static K_APP_BMEM(model_partition) struct job user_job;
static K_APP_BMEM(model_partition) bool in_user_mode;

static void user(void *first, void *second, void *third)
{
	ARG_UNUSED(first);
	ARG_UNUSED(second);
	ARG_UNUSED(third);
	in_user_mode = k_is_user_context();
	for (int i = 0; i < IMAGES; i++) {
		infer(&user_job, i);
	}
}

static bool user_space(void)
{
	int refused = k_mem_domain_add_partition(&k_mem_domain_default, &model_partition);

	k_thread_create(&threads[0], stacks[0], STACK_SIZE, user, NULL, NULL, NULL,
			K_PRIO_PREEMPT(5), K_USER, K_NO_WAIT);
	k_thread_join(&threads[0], K_FOREVER);
	printk("user mode: %d inferences, %d wrong\n", user_job.done, user_job.wrong);
	return refused == 0 && in_user_mode && user_job.wrong == 0 && user_job.done == IMAGES;
}

#else

static bool user_space(void)
{
	return true;
}

#endif

int main(void)
{
	bool passed = two_threads();

	passed = work_queue() && passed;
	passed = user_space() && passed;
	printk("%s\n", passed ? "PASSED" : "FAILED");
	leave(passed ? 0 : 1);
	return 0;
}
