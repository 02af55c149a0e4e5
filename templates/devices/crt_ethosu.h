/* SPDX-License-Identifier: Apache-2.0 */
/*
 * crt_ethosu.h: runs an exported model's commands on an Arm Ethos-U with Arm's core driver.
 *
 * In one source file, with the driver's headers on the include path:
 *
 *     #include <ethosu_driver.h>
 *     #define CRT_ETHOSU_IMPLEMENTATION
 *     #include <crt_ethosu.h>
 *
 * The model's device context is a struct ethosu_driver * that the application has reserved, or NULL:
 * then each run of commands takes a driver that is free and gives it back. Names and types are
 * those of microTVM's bare-metal runtime. The driver must have been initialised (ethosu_init).
 */
#ifndef CRT_ETHOSU_H_
#define CRT_ETHOSU_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

int32_t TVMDeviceEthosUActivate(void *context);
int32_t TVMDeviceEthosUOpen(void *context);
int32_t TVMDeviceEthosUClose(void *context);
int32_t TVMDeviceEthosUDeactivate(void *context);

/*
 * Runs `commands`, a payload for the driver ("COP1") aligned to 16 bytes. `addresses` are the base
 * addresses: constant data, arena, fast memory, then inputs and outputs, which lie in the arena;
 * `sizes` has the bytes behind each. 0, or what the driver returns. The driver may change
 * `addresses`: it puts its own fast memory there, if it has one.
 */
int32_t TVMEthosULaunch(
    void *context, void *commands, size_t commands_size, uint64_t *addresses, size_t *sizes,
    int count);

#ifdef CRT_ETHOSU_IMPLEMENTATION

int32_t TVMDeviceEthosUActivate(void *context)
{
    (void)context;
    return 0;
}

int32_t TVMDeviceEthosUOpen(void *context)
{
    (void)context;
    return 0;
}

int32_t TVMDeviceEthosUClose(void *context)
{
    (void)context;
    return 0;
}

int32_t TVMDeviceEthosUDeactivate(void *context)
{
    (void)context;
    return 0;
}

int32_t TVMEthosULaunch(
    void *context, void *commands, size_t commands_size, uint64_t *addresses, size_t *sizes,
    int count)
{
    struct ethosu_driver *const driver =
        (context != NULL) ? (struct ethosu_driver *)context : ethosu_reserve_driver();
    const int status = ethosu_invoke_v3(
        driver, commands, (int)commands_size, addresses, sizes, count, NULL);

    if (context == NULL) {
        ethosu_release_driver(driver);
    }
    return (int32_t)status;
}

#endif /* CRT_ETHOSU_IMPLEMENTATION */

#ifdef __cplusplus
}
#endif

#endif /* CRT_ETHOSU_H_ */
