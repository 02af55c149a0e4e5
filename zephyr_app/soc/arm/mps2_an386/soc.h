/* SPDX-License-Identifier: Apache-2.0 */
/* Properties of the processor that CMSIS needs. */
#ifndef SOC_H
#define SOC_H

#define __MPU_PRESENT 1
#define __FPU_PRESENT 1

#endif
