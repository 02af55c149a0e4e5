/* SPDX-License-Identifier: Apache-2.0 */
/* crt_simulated.c: see crt_simulated.h. */
#include "crt_simulated.h"

#include <stddef.h>

static struct crt_simulated_call calls[CRT_SIMULATED_CALLS];
static int32_t count;
static int32_t failing = -1;
static int32_t failure;

/* The program of the device that is open: only one is. */
static const uint8_t *loaded;
static uint32_t loaded_size;

void crt_simulated_reset(void)
{
    count = 0;
    failing = -1;
    failure = 0;
}

void crt_simulated_fail(int32_t call, int32_t status)
{
    failing = call;
    failure = status;
}

int32_t crt_simulated_count(void)
{
    return count;
}

const struct crt_simulated_call *crt_simulated_call(int32_t call)
{
    if ((call < 0) || (call >= count) || (call >= CRT_SIMULATED_CALLS)) {
        return NULL;
    }
    return &calls[call];
}

/* Whether `verb` may be called now; NULL contexts have no state. */
static int allowed(const struct crt_simulated_device *device, int32_t verb)
{
    if (device == NULL) {
        return 1;
    }
    switch (verb) {
    case CRT_SIMULATED_ACTIVATE:
        return !device->active && !device->open;
    case CRT_SIMULATED_OPEN:
        return device->active && !device->open;
    case CRT_SIMULATED_CLOSE:
    case CRT_SIMULATED_LOAD:
    case CRT_SIMULATED_RUN:
        return device->active && device->open;
    case CRT_SIMULATED_DEACTIVATE:
        return device->active && !device->open;
    default:
        return 0;
    }
}

static int32_t record(const struct crt_simulated_device *device, int32_t verb)
{
    int32_t status = allowed(device, verb) ? 0 : CRT_SIMULATED_MISUSE;

    if ((status == 0) && (count == failing)) {
        status = failure;
    }
    if (count < CRT_SIMULATED_CALLS) {
        calls[count].verb = verb;
        calls[count].number = (device != NULL) ? device->number : -1;
        calls[count].status = status;
    }
    ++count;
    return status;
}

int32_t crt_simulated_hook(void *context, int32_t verb)
{
    struct crt_simulated_device *const device = (struct crt_simulated_device *)context;
    const int32_t status = record(device, verb);

    if (verb == CRT_SIMULATED_CLOSE) {
        loaded = NULL;
    }
    if ((device == NULL) || (status == CRT_SIMULATED_MISUSE)) {
        return status;
    }
    if (verb == CRT_SIMULATED_CLOSE) {
        device->open = 0;
    } else if (verb == CRT_SIMULATED_DEACTIVATE) {
        device->active = 0;
    } else if (status == 0) {
        if (verb == CRT_SIMULATED_ACTIVATE) {
            device->active = 1;
        } else {
            device->open = 1;
        }
    }
    return status;
}

int32_t crt_simulated_run(void *context)
{
    return record((const struct crt_simulated_device *)context, CRT_SIMULATED_RUN);
}

int32_t crt_simulated_load(void *context, const struct crt_device_image *image,
                           const void *program)
{
    const int32_t status =
        record((const struct crt_simulated_device *)context, CRT_SIMULATED_LOAD);

    if (status == 0) {
        loaded = (const uint8_t *)program;
        loaded_size = image->original_size;
    }
    return status;
}

static uint32_t read_u32(const uint8_t *bytes)
{
    return (uint32_t)bytes[0] | (uint32_t)bytes[1] << 8 | (uint32_t)bytes[2] << 16
        | (uint32_t)bytes[3] << 24;
}

/* Whether the 24 bytes of a name are those of text. */
static int named(const uint8_t *name, const char *text)
{
    uint32_t i = 0;

    while ((i < 23u) && (text[i] != '\0') && (name[i] == (uint8_t)text[i])) {
        ++i;
    }
    return (text[i] == '\0') && (name[i] == 0u);
}

/* The row of a function in the program that is loaded, or NULL. */
static const uint8_t *find(const char *name)
{
    if ((loaded == NULL) || (loaded_size < 8u) || (loaded[0] != 'C') || (loaded[1] != 'R')
        || (loaded[2] != 'T') || (loaded[3] != 'S')
        || (read_u32(loaded + 4) > (loaded_size - 8u) / 32u)) {
        return NULL;
    }
    for (uint32_t i = 0; i < read_u32(loaded + 4); ++i) {
        const uint8_t *const row = loaded + 8u + 32u * i;

        if (named(row, name) && (loaded_size >= 256u)
            && (read_u32(row + 28) <= loaded_size - 256u)) {
            return row;
        }
    }
    return NULL;
}

int32_t crt_simulated_launch(void *context, const struct crt_device_function *function,
                             const void *const *inputs, void *const *outputs)
{
    const int32_t status = crt_simulated_run(context);
    const uint8_t *row;
    const uint8_t *table;

    if (status != 0) {
        return status;
    }
    row = find(function->name);
    if ((row == NULL) || (function->inputs != 1u) || (function->outputs != 1u)) {
        return CRT_SIMULATED_NO_PROGRAM;
    }
    table = loaded + read_u32(row + 28);
    for (uint32_t i = 0; i < read_u32(row + 24); ++i) {
        ((uint8_t *)outputs[0])[i] = table[((const uint8_t *)inputs[0])[i]];
    }
    return 0;
}
