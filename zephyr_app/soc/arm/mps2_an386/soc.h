/* What CMSIS wants to know of the processor. */
#ifndef SOC_H
#define SOC_H

#define __MPU_PRESENT 1
#define __FPU_PRESENT 1

#endif
