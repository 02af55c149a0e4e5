/* SPDX-License-Identifier: Apache-2.0 */
/* Ends the program where something waits for that, QEMU or the shell; returns on boards. */
#ifndef LEAVE_H
#define LEAVE_H

void leave(int status);

#endif
