/* SPDX-License-Identifier: Apache-2.0 */
/* Device images: programs of accelerators, stored as they are or compressed.
 *
 * An image begins with a header of 32 bytes, all numbers little-endian:
 *
 *   0  4 bytes  "CRTI"
 *   4  u16      version, 1
 *   6  u16      method: 0 stored, 1 LZ4 block, 2 zlib
 *   8  u32      bytes of the program
 *  12  u32      bytes that follow the header
 *  16  u32      CRC-32C of the program
 *  20  u32      CRC-32C of what follows the header
 *  24  u32      alignment of the program, a power of two
 *  28  u32      CRC-32C of the 28 bytes before
 *
 * so that the start address alone tells everything. Nothing here allocates, recurses or trusts the
 * bytes: an image that is damaged gives an error, and nothing outside of the buffers is touched.
 */
#ifndef CRT_IMAGE_H_
#define CRT_IMAGE_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define CRT_IMAGE_HEADER_SIZE 32u

enum crt_image_method { CRT_IMAGE_STORED = 0, CRT_IMAGE_LZ4 = 1, CRT_IMAGE_ZLIB = 2 };

enum crt_image_status {
    CRT_IMAGE_OK = 0,
    CRT_IMAGE_NULL = -101,      /* an argument is NULL */
    CRT_IMAGE_NO_IMAGE = -102,  /* no header, or a damaged one */
    CRT_IMAGE_METHOD = -103,    /* a method or version that this decoder does not know */
    CRT_IMAGE_BUFFER = -104,    /* the buffer is too small, or not aligned as the program needs */
    CRT_IMAGE_DAMAGED = -105    /* the bytes are not what was stored */
};

/* What the header says. */
struct crt_image_info {
    enum crt_image_method method;
    uint32_t original_size; /* of the program */
    uint32_t stored_size;   /* of what follows the header */
    uint32_t align;
};

/* Reads the header. No more than limit bytes are read from image on, here and below; SIZE_MAX where
 * the image lies in flash that can be trusted to hold all of it. */
int32_t crt_image_info(const void *image, size_t limit, struct crt_image_info *info);

/* Makes the program of an image available at *program. A stored one is used where it is; another is
 * inflated into buffer, which holds its original size and is not written otherwise.
 * Both checksums, of the stored bytes and of the program, are compared each time. Compiled with
 * CRT_IMAGE_TRUSTED the bytes of a stored one are not read for that, only the header: a program of
 * any size is there at once. */
int32_t crt_image_open(const void *image, size_t limit, void *buffer, size_t buffer_size,
                       const void **program);

/* CRC-32C (Castagnoli) of size bytes. */
uint32_t crt_image_crc32c(const void *bytes, size_t size);

#ifdef __cplusplus
}
#endif

#endif
