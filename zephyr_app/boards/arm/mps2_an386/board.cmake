set(SUPPORTED_EMU_PLATFORMS qemu)
set(QEMU_FLAGS_${ARCH} -machine mps2-an386 -nographic -vga none)
board_set_debugger_ifnset(qemu)
