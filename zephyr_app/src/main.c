/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the test images of the digits model, says what they show, how long that took and which
 * memory the model has.
 */
#include <zephyr/kernel.h>
#include <zephyr/sys/printk.h>

#include <crtexport/measure.h>
#include <tvmgen_digits.h>

#include "images.h"
#include "leave.h"

static int8_t scores[TVMGEN_DIGITS_PROBABILITIES_SIZE];

static int best(void)
{
	int found = 0;

	for (int i = 1; i < TVMGEN_DIGITS_PROBABILITIES_ELEMENTS; i++) {
		if (scores[i] > scores[found]) {
			found = i;
		}
	}
	return found;
}

int main(void)
{
	int right = 0;

	printk("digits on %s: %d bytes of constants, %d of workspace\n", CONFIG_BOARD,
	       TVMGEN_DIGITS_CONSTANTS_SIZE, TVMGEN_DIGITS_WORKSPACE_SIZE);
	for (int i = 0; i < IMAGES; i++) {
		struct tvmgen_digits_inputs inputs = {.image = images[i]};
		struct tvmgen_digits_outputs outputs = {.probabilities = scores};
		int32_t status = CRTEXPORT_RUN(digits, &inputs, &outputs);

		if (status != TVMGEN_DIGITS_OK) {
			printk("image %d: run returned %d\n", i, (int)status);
			break;
		}
		printk("image %d shows %d, predicted %d\n", i, labels[i], best());
		right += best() == labels[i];
	}
	printk("%d of %d right\n", right, IMAGES);
	printk("%s\n", right == IMAGES ? "PASSED" : "FAILED");
	leave(right == IMAGES ? 0 : 1);
	return 0;
}
