/* crt_simulated.c: see crt_simulated.h. */
#include "crt_simulated.h"

#include <stddef.h>

static struct crt_simulated_call calls[CRT_SIMULATED_CALLS];
static int32_t count;
static int32_t failing = -1;
static int32_t failure;

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
