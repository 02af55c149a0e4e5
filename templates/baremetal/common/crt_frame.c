/* SPDX-License-Identifier: Apache-2.0 */
#include "crt_frame.h"

#include "crt_platform.h"

#define LINE_SIZE 160u

static char line[LINE_SIZE];
static uint32_t length;
static uint32_t checksum = 0;

static const char digits[16] = "0123456789abcdef";

static void put(char character)
{
    if (length < LINE_SIZE - 2u) {
        line[length++] = character;
    }
}

void crt_frame_text(const char *text)
{
    while (*text != '\0') {
        put(*text++);
    }
}

void crt_frame_number(uint64_t value)
{
    int shift = 60;

    while (shift > 0 && (value >> shift) == 0u) {
        shift -= 4;
    }
    put(' ');
    for (; shift >= 0; shift -= 4) {
        put(digits[(uint32_t)(value >> shift) & 15u]);
    }
}

void crt_frame_bytes(const uint8_t *bytes, uint32_t count)
{
    put(' ');
    for (uint32_t i = 0; i < count; i++) {
        put(digits[bytes[i] >> 4]);
        put(digits[bytes[i] & 15u]);
    }
}

/* CRC-32 as in zlib, bit by bit: short, and speed is of no matter here. */
static void add_to_checksum(void)
{
    uint32_t crc = ~checksum;

    for (uint32_t i = 0; i < length; i++) {
        crc ^= (uint8_t)line[i];
        for (int bit = 0; bit < 8; bit++) {
            crc = (crc >> 1) ^ (0xEDB88320u & (0u - (crc & 1u)));
        }
    }
    checksum = ~crc;
}

static void flush(void)
{
    line[length++] = '\n';
    line[length] = '\0';
}

void crt_frame_line(void)
{
    flush();
    add_to_checksum();
    crt_write(line);
    length = 0;
}

void crt_frame_end(void)
{
    crt_frame_text("CRT:END");
    crt_frame_number(checksum);
    flush();
    crt_write(line);
    length = 0;
}

void crt_fault(const char *what, uint32_t code, uintptr_t pc)
{
    length = 0;
    crt_frame_text("CRT:FAULT ");
    crt_frame_text(what);
    crt_frame_number(code);
    crt_frame_number(pc);
    flush();
    crt_write(line);
    crt_exit(2);
}
