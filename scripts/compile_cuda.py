#!/usr/bin/env python3
"""Compiles CUDA sources with NVRTC alone, without a GPU, to machine code.

usage: compile_cuda.py FOLDER ARCH...       as in: compile_cuda.py /tmp/sources sm_75 sm_80 sm_90

FOLDER holds NAME.cu and NAME.opts (options, one a line), as `dump_sources` writes them. libnvrtc comes from the PyPI
wheel nvidia-cuda-nvrtc of the running Python, else from the loader's path. The exit code is 1 where anything failed.
"""
import ctypes
import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path


def open_library() -> ctypes.CDLL:
    for folder in sys.path:
        for file in sorted(Path(folder or ".").glob("nvidia/*/lib/libnvrtc.so.*")):
            # NVRTC looks for its builtins by name alone: opened before, they are found.
            for builtins in file.parent.glob("libnvrtc-builtins.so.*"):
                ctypes.CDLL(str(builtins))
            return ctypes.CDLL(str(file))
    return ctypes.CDLL("libnvrtc.so")


def call(nvrtc, name, *args):
    status = getattr(nvrtc, name)(*args)
    if status != 0:
        raise RuntimeError(f"{name} returned {status}")


def text_of(nvrtc, program, what) -> bytes:
    size = ctypes.c_size_t()
    call(nvrtc, f"nvrtcGet{what}Size", program, ctypes.byref(size))
    buffer = ctypes.create_string_buffer(size.value)
    call(nvrtc, f"nvrtcGet{what}", program, buffer)
    return buffer.raw


def compile_one(job):
    """Returns (title, seconds, bytes of machine code or None, log)."""
    path, arch = job
    nvrtc = open_library()
    program = ctypes.c_void_p()
    call(nvrtc, "nvrtcCreateProgram", ctypes.byref(program), path.read_bytes(), path.name.encode(), 0, None, None)
    options = [o for o in path.with_suffix(".opts").read_text().splitlines() if o] + [f"--gpu-architecture={arch}"]
    array = (ctypes.c_char_p * len(options))(*[o.encode() for o in options])
    start = time.monotonic()
    status = nvrtc.nvrtcCompileProgram(program, len(options), array)
    seconds = time.monotonic() - start
    log = text_of(nvrtc, program, "ProgramLog").rstrip(b"\0").decode(errors="replace").strip()
    size = len(text_of(nvrtc, program, "CUBIN")) if status == 0 else None
    call(nvrtc, "nvrtcDestroyProgram", ctypes.byref(program))
    return f"{path.stem} for {arch}", seconds, size, log


def main() -> int:
    if len(sys.argv) < 3:
        print(__doc__, file=sys.stderr)
        return 2
    sources = sorted(Path(sys.argv[1]).glob("*.cu"))
    jobs = [(source, arch) for arch in sys.argv[2:] for source in sources]
    if not jobs:
        print(f"no sources in {sys.argv[1]}", file=sys.stderr)
        return 1
    failed = 0
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        for title, seconds, size, log in pool.map(compile_one, jobs):
            failed += size is None
            if size is None or log:
                print(f"{'FAILED' if size is None else 'warnings'}: {title} ({seconds:.2f} s)\n{log}")
    print(f"{len(jobs) - failed} of {len(jobs)} compiled")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
