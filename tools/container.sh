#!/bin/sh
# The command of the container. Its machine code is for x86-64-v3 (AVX2 and FMA, in every server since 2015), so
# that it serves other processors than the one that built the image; one without compiles for itself.
if /lib64/ld-linux-x86-64.so.2 --help 2>/dev/null | grep -q "x86-64-v3 (supported"; then
    export NUMBA_CPU_NAME=x86-64-v3 NUMBA_CPU_FEATURES=
fi
exec maxmargin "$@"
