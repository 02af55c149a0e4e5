/* SPDX-License-Identifier: Apache-2.0 */
/*
 * crt_simulated.h: a device that is none, for tests of what runs on devices.
 *
 * CRT_SIMULATED_DEVICE(EthosU) in one source file defines the hooks of devices of the kind
 * "ethos-u". They record each call and can fail at any. Contexts are struct crt_simulated_device,
 * or NULL. No memory is allocated, and nothing of the C library is used.
 */
#ifndef CRT_SIMULATED_H_
#define CRT_SIMULATED_H_

#include <stdint.h>

#include "crt_device.h"

#ifdef __cplusplus
extern "C" {
#endif

/* How many calls are recorded; later ones are only counted. */
#ifndef CRT_SIMULATED_CALLS
#define CRT_SIMULATED_CALLS 256
#endif

/* What a hook returns that is called when it must not be, e.g. Open of an inactive device. */
#define CRT_SIMULATED_MISUSE (-1000)

enum crt_simulated_verb {
    CRT_SIMULATED_ACTIVATE = 1,
    CRT_SIMULATED_OPEN = 2,
    CRT_SIMULATED_CLOSE = 3,
    CRT_SIMULATED_DEACTIVATE = 4,
    CRT_SIMULATED_RUN = 5, /* a function on the device: see crt_simulated_run */
    CRT_SIMULATED_LOAD = 6
};

/* A context; all zero is a device that is neither active nor open. */
struct crt_simulated_device {
    int32_t number; /* the caller's, for the record */
    int32_t active;
    int32_t open;
};

struct crt_simulated_call {
    int32_t verb;
    int32_t number; /* of the device, -1 if the context is NULL */
    int32_t status; /* what it returned */
};

/* Forgets all calls. */
void crt_simulated_reset(void);

/* Lets call number `call` (from 0 on, since the reset) return `status`, which isn't 0. */
void crt_simulated_fail(int32_t call, int32_t status);

/* How many calls there were. */
int32_t crt_simulated_count(void);

/* The record of call number `call`, NULL if there is none. */
const struct crt_simulated_call *crt_simulated_call(int32_t call);

/* What hooks do. A failing Activate or Open leaves the device as it was; a failing Close or
 * Deactivate does its work all the same. */
int32_t crt_simulated_hook(void *context, int32_t verb);

/* What functions of the device call first: records, fails where told to, or if it isn't open. */
int32_t crt_simulated_run(void *context);

/* Programs of the simulated device: "CRTS", a number of functions (u32), for each a name (24 bytes,
 * zeros at its end), a number of bytes and where in the program a table of 256 bytes begins (u32
 * both); numbers are little-endian. A function looks up so many bytes of its input in its table.
 * Another program, or none, is this: */
#define CRT_SIMULATED_NO_PROGRAM (-1001)

/* What the hook Load does: the program is there until the device is closed. */
int32_t crt_simulated_load(void *context, const struct crt_device_image *image,
                           const void *program);

/* What the hook Launch does. */
int32_t crt_simulated_launch(void *context, const struct crt_device_function *function,
                             const void *const *inputs, void *const *outputs);

#define CRT_SIMULATED_DEVICE(Kind)                                          \
    int32_t TVMDevice##Kind##Activate(void *context);                       \
    int32_t TVMDevice##Kind##Open(void *context);                           \
    int32_t TVMDevice##Kind##Close(void *context);                          \
    int32_t TVMDevice##Kind##Deactivate(void *context);                     \
    int32_t TVMDevice##Kind##Load(                                          \
        void *context, const struct crt_device_image *image,                \
        const void *program);                                               \
    int32_t TVMDevice##Kind##Launch(                                        \
        void *context, const struct crt_device_function *function,          \
        const void *const *inputs, void *const *outputs);                   \
    int32_t TVMDevice##Kind##Load(                                          \
        void *context, const struct crt_device_image *image,                \
        const void *program)                                                \
    {                                                                       \
        return crt_simulated_load(context, image, program);                 \
    }                                                                       \
    int32_t TVMDevice##Kind##Launch(                                        \
        void *context, const struct crt_device_function *function,          \
        const void *const *inputs, void *const *outputs)                    \
    {                                                                       \
        return crt_simulated_launch(context, function, inputs, outputs);    \
    }                                                                       \
    int32_t TVMDevice##Kind##Activate(void *context)                        \
    {                                                                       \
        return crt_simulated_hook(context, CRT_SIMULATED_ACTIVATE);         \
    }                                                                       \
    int32_t TVMDevice##Kind##Open(void *context)                            \
    {                                                                       \
        return crt_simulated_hook(context, CRT_SIMULATED_OPEN);             \
    }                                                                       \
    int32_t TVMDevice##Kind##Close(void *context)                           \
    {                                                                       \
        return crt_simulated_hook(context, CRT_SIMULATED_CLOSE);            \
    }                                                                       \
    int32_t TVMDevice##Kind##Deactivate(void *context)                      \
    {                                                                       \
        return crt_simulated_hook(context, CRT_SIMULATED_DEACTIVATE);       \
    }

#ifdef __cplusplus
}
#endif

#endif /* CRT_SIMULATED_H_ */
