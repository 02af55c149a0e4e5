// SPDX-License-Identifier: Apache-2.0
// Commands that end with %: name, timestamp, profile, db load N, db HEX, infer N W, results.
#include "api/internally_implemented.h"
#include "api/submitter_implemented.h"

static char line[81];
static size_t length;
static uint8_t buffer[MAX_DB_INPUT_SIZE];
static size_t filled;

void ee_serial_callback(char character)
{
    if (character != '%') {
        if (length < sizeof(line) - 1) {
            line[length++] = character;
        }
        return;
    }
    line[length] = 0;
    length = 0;
    th_command_ready(line);
}

static void infer(long count, long warm)
{
    th_load_tensor();
    th_printf("m-warmup-start-%ld\r\n", warm);
    while (warm-- > 0) {
        th_infer();
    }
    th_printf("m-warmup-done\r\nm-infer-start-%ld\r\n", count);
    th_timestamp();
    th_pre();
    while (count-- > 0) {
        th_infer();
    }
    th_post();
    th_timestamp();
    th_printf("m-infer-done\r\n");
    th_results();
}

static void load(const char *digits)
{
    char byte[3] = {0, 0, 0};

    for (; digits[0] && digits[1] && filled < sizeof(buffer); digits += 2) {
        th_memcpy(byte, digits, 2);
        buffer[filled++] = static_cast<uint8_t>(strtol(byte, nullptr, 16));
    }
}

void ee_serial_command_parser_callback(char *command)
{
    char *word = th_strtok(command, " ");
    char *next = th_strtok(nullptr, " ");

    if (th_strncmp(word, "name", 5) == 0) {
        th_printf("m-name-dut-[%s]\r\n", TH_VENDOR_NAME_STRING);
    } else if (th_strncmp(word, "timestamp", 10) == 0) {
        th_timestamp();
    } else if (th_strncmp(word, "profile", 8) == 0) {
        th_printf("m-model-[%s]\r\n", TH_MODEL_VERSION);
    } else if (th_strncmp(word, "db", 3) == 0 && th_strncmp(next, "load", 5) == 0) {
        filled = 0;
        th_printf("m-[Expecting %d bytes]\r\n", th_atoi(th_strtok(nullptr, " ")));
    } else if (th_strncmp(word, "db", 3) == 0) {
        load(next);
    } else if (th_strncmp(word, "infer", 6) == 0) {
        infer(th_atoi(next), th_atoi(th_strtok(nullptr, " ")));
    } else if (th_strncmp(word, "results", 8) == 0) {
        th_results();
    } else {
        th_printf("e-[Unknown command: %s]\r\n", word);
    }
    th_printf("m-ready\r\n");
}

void ee_benchmark_initialize(void)
{
    th_serialport_initialize();
    th_timestamp_initialize();
    th_final_initialize();
    th_printf("m-init-done\r\nm-ready\r\n");
}

size_t ee_get_buffer(uint8_t *to, size_t most)
{
    size_t size = most < filled ? most : filled;

    th_memcpy(to, buffer, size);
    return size;
}
