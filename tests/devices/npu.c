/*
 * npu.c: stands in for Arm's driver of an Ethos-U and for the NPU behind it.
 *
 * It checks what the driver checks (ethosu_driver.c: payload, alignment, number of addresses) and
 * what the file of the model says (sizes, places in the arena), then spoils the arena, as commands
 * may, and computes what the commands stand for with the same layers as generated for a processor.
 *
 * The test defines before this text: LAUNCHES (how many per run), struct npu_launch's values in
 * npu_expected, and npu_compute.
 */
enum { COP_CONFIG = 1, COP_STREAM = 2, COP_NOP = 5 };

int32_t TVMDeviceEthosUActivate(void *context);
int32_t TVMDeviceEthosUOpen(void *context);
int32_t TVMDeviceEthosUClose(void *context);
int32_t TVMDeviceEthosUDeactivate(void *context);
int32_t TVMEthosULaunch(
    void *context, void *commands, size_t commands_size, uint64_t *addresses, size_t *sizes,
    int count);

static int active, open, launches;
static uint8_t given[MAX_GIVEN][MAX_BYTES] __attribute__((aligned(16)));
static uint8_t made[MAX_BYTES] __attribute__((aligned(16)));

int32_t TVMDeviceEthosUActivate(void *context)
{
    launches = 0;
    return ((context == NULL) || active++ || open) ? -101 : 0;
}

int32_t TVMDeviceEthosUOpen(void *context)
{
    return ((context == NULL) || !active || open++) ? -102 : 0;
}

int32_t TVMDeviceEthosUClose(void *context)
{
    return ((context == NULL) || !active || --open) ? -103 : 0;
}

int32_t TVMDeviceEthosUDeactivate(void *context)
{
    return ((context == NULL) || --active || open || (launches != LAUNCHES)) ? -104 : 0;
}

/* 0 if the driver would take the payload. */
static int32_t check_payload(const uint32_t *words, size_t bytes)
{
    const size_t total = bytes / 4u;
    size_t at = 1u;
    int configs = 0, streams = 0;

    if (((uintptr_t)words % 16u) || (bytes % 4u) || (bytes < 8u) || (words[0] != 0x31504F43u)) {
        return -110;
    }
    while (at < total) {
        size_t length = 1u;
        switch (words[at] & 0xFFu) {
        case COP_CONFIG:
            if ((at + 1u >= total) || (words[at + 1u] & 0xFu) != LOG2_MACS) {
                return -111;
            }
            length = 3u;
            ++configs;
            break;
        case COP_STREAM:
            if ((uintptr_t)&words[at + 1u] % 16u) {
                return -112;
            }
            length = 1u + ((((words[at] >> 8) & 0xFFu) << 16) | (words[at] >> 16));
            ++streams;
            break;
        case COP_NOP:
            break;
        default:
            return -113;
        }
        at += length;
    }
    return ((at == total) && (configs == 1) && (streams == 1)) ? 0 : -114;
}

int32_t TVMEthosULaunch(
    void *context, void *commands, size_t commands_size, uint64_t *addresses, size_t *sizes,
    int count)
{
    const struct npu_launch *const expected = &npu_expected[launches % LAUNCHES];
    const int32_t status = check_payload((const uint32_t *)commands, commands_size);
    int i;

    if ((context == NULL) || !active || !open) {
        return -120;
    }
    if (status != 0) {
        return status;
    }
    if ((count != expected->count) || (commands_size != expected->commands)) {
        return -121;
    }
    for (i = 0; i < count; ++i) {
        if (sizes[i] != expected->sizes[i]) {
            return -130 - i;
        }
        if (addresses[i] % 16u) {
            return -140 - i;
        }
        if ((i > 2) && (addresses[i] != addresses[1] + expected->places[i - 3])) {
            return -150 - i;
        }
    }
    if (addresses[2] != addresses[1] + FAST) {
        return -122;
    }
    for (i = 0; i < expected->inputs; ++i) {
        memcpy(given[i], (const void *)(uintptr_t)addresses[3 + i], sizes[3 + i]);
    }
    memset((void *)(uintptr_t)addresses[1], 0xA5, sizes[1]);
    if (FAST) {
        memset((void *)(uintptr_t)addresses[2], 0x5A, sizes[2]);
    }
    i = 3 + expected->inputs;
    if (npu_compute(launches) != 0) {
        return -123;
    }
    memcpy((void *)(uintptr_t)addresses[i], made, sizes[i]);
    ++launches;
    return 0;
}
