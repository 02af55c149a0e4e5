/* What crt_ethosu.h uses of Arm's core driver, as that declares it. */
#ifndef ETHOSU_DRIVER_H
#define ETHOSU_DRIVER_H

#include <stddef.h>
#include <stdint.h>

struct ethosu_driver;

struct ethosu_driver *ethosu_reserve_driver(void);
void ethosu_release_driver(struct ethosu_driver *driver);
int ethosu_invoke_v3(struct ethosu_driver *driver, const void *commands, const int size,
                     uint64_t *const addresses, const size_t *const sizes, const int count,
                     void *user);

#endif
