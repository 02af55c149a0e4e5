/* SPDX-License-Identifier: Apache-2.0 */
/* Device programs in a model's code: constant tables, which need no initialisation.
 *
 * tvmgen_<model>_device_images has a row for each program, tvmgen_<model>_device_functions one for
 * each of their functions that the model calls.
 */
#ifndef CRT_DEVICE_H_
#define CRT_DEVICE_H_

#include <stdint.h>

#include "crt_image.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A program in read-only memory. */
struct crt_device_image {
    const char *kind;       /* of the device */
    const char *program;    /* its name */
    const void *image;      /* header and stored bytes: see crt_image.h */
    uint32_t id;            /* number of the device */
    uint32_t compression;   /* enum crt_image_method */
    uint32_t stored_size;   /* bytes behind the image's header */
    uint32_t original_size; /* bytes of the program */
    uint32_t crc32c;        /* of the program */
    uint32_t align;         /* what the program's address is a multiple of */
};

/* A function of a program. */
struct crt_device_function {
    const char *name;
    const struct crt_device_image *image;
    uint32_t inputs;  /* number of pointers that the hook Launch gets */
    uint32_t outputs;
};

#ifdef __cplusplus
}
#endif

#endif
