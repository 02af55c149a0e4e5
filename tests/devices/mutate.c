/* mutate <images> <seed> <file>...: opens so many mutated images; sanitizers watch.
 * mutate -<images> <seed> <file>...: opens so many whose programs are damaged and whose other
 * checksums are made right; prints how many were accepted, and how many of these gave a program
 * that isn't the original one. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "crt_image.h"

#define ALIGNED __attribute__((aligned(16)))

static uint64_t state;

static uint32_t next(uint32_t below)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (uint32_t)(state >> 32) % below;
}

static void put(uint8_t *at, uint32_t value)
{
    for (int i = 0; i < 4; i++) {
        at[i] = (uint8_t)(value >> 8 * i);
    }
}

static uint32_t get(const uint8_t *at)
{
    return at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

/* Heap blocks of exactly the sizes in use, so that every step outside is seen. */
static int32_t open_one(const uint8_t *image, size_t size)
{
    uint8_t *copy = malloc(size + !size);
    struct crt_image_info info;
    const void *program = NULL;
    uint8_t *buffer;
    size_t room;
    int32_t status;

    memcpy(copy, image, size);
    room = crt_image_info(copy, size, &info) == 0 && info.original_size < 1u << 20
        ? info.original_size : 64u;
    room -= room && next(16) == 0; /* sometimes too small */
    buffer = malloc(room + !room);
    status = crt_image_open(copy, size, buffer, room, &program);
    if ((status == 0) != (program != NULL)) {
        abort();
    }
    /* What is accepted is the program that the header tells of. */
    if (status == 0 && crt_image_crc32c(program, info.original_size) != get(copy + 16)) {
        abort();
    }
    free(buffer);
    free(copy);
    return status;
}

/* Reads a file of at most room bytes; returns how many there are. */
static size_t slurp(const char *path, uint8_t *bytes, size_t room)
{
    FILE *file = fopen(path, "rb");
    size_t size = fread(bytes, 1, room, file);

    fclose(file);
    return size;
}

/* Damages what follows the header and makes all checksums right but the program's own. */
static int damaged(unsigned long images, int files, char **names)
{
    static uint8_t original[1 << 20] ALIGNED, mutated[1 << 20] ALIGNED;
    static uint8_t right[1 << 20] ALIGNED, buffer[1 << 20] ALIGNED;
    unsigned long accepted = 0, wrong = 0;

    for (unsigned long i = 0; i < images; i++) {
        size_t size = slurp(names[i % (unsigned long)files], original, sizeof(original));
        size_t stored = size - CRT_IMAGE_HEADER_SIZE;
        uint32_t length = get(original + 8);
        const void *program;

        if (crt_image_open(original, size, right, sizeof(right), &program) != 0) {
            return 1;
        }
        memmove(right, program, length);
        memcpy(mutated, original, size);
        for (uint32_t edits = 1 + next(8); edits != 0; edits--) {
            uint8_t *at = mutated + CRT_IMAGE_HEADER_SIZE + next((uint32_t)stored);

            *at ^= (uint8_t)(1 + next(255));
        }
        put(mutated + 20, crt_image_crc32c(mutated + CRT_IMAGE_HEADER_SIZE, stored));
        put(mutated + 28, crt_image_crc32c(mutated, 28));
        if (crt_image_open(mutated, size, buffer, sizeof(buffer), &program) == 0) {
            accepted++;
            wrong += memcmp(program, right, length) != 0;
        }
    }
    printf("%lu %lu\n", accepted, wrong);
    return 0;
}

int main(int argc, char **argv)
{
    unsigned long counts[6] = {0};
    unsigned long images = strtoul(argv[1], NULL, 0);
    static uint8_t original[1 << 20], mutated[1 << 20];

    state = strtoull(argv[2], NULL, 0) * 2654435769u + 1u;
    if (argv[1][0] == '-') {
        return damaged(strtoul(argv[1] + 1, NULL, 0), argc - 3, argv + 3);
    }
    for (unsigned long i = 0; i < images; i++) {
        size_t size = slurp(argv[3 + i % (unsigned long)(argc - 3)], original, sizeof(original));
        int32_t status;

        memcpy(mutated, original, size);
        for (uint32_t edits = 1 + next(8); edits != 0; edits--) {
            mutated[next((uint32_t)size)] = (uint8_t)next(256);
        }
        if (next(8) == 0) {
            size = next((uint32_t)size + 1u);
        }
        /* Checksums made right, so that what is behind them is reached. */
        if (size >= CRT_IMAGE_HEADER_SIZE && next(8) != 0) {
            memcpy(mutated, original, 8);
            mutated[6] = (uint8_t)next(3);
            if (next(2)) {
                put(mutated + 12, (uint32_t)(size - CRT_IMAGE_HEADER_SIZE));
                put(mutated + 20, crt_image_crc32c(mutated + CRT_IMAGE_HEADER_SIZE,
                                                   size - CRT_IMAGE_HEADER_SIZE));
            }
            if (next(4)) {
                memcpy(mutated + 6, original + 6, 6);
            }
            put(mutated + 28, crt_image_crc32c(mutated, 28));
        }
        status = open_one(mutated, size);
        counts[status ? -100 - status : 0]++;
    }
    for (int i = 0; i < 6; i++) {
        printf("%d %lu\n", i ? -100 - i : 0, counts[i]);
    }
    return 0;
}
