"""Asynchronous copies from global to shared memory, as device functions that wrap PTX (sm_80 and newer).

The text is the same for every consumer; the emulator defines EMULATOR and functions of the same names.
"""

from __future__ import annotations

ASYNC_FUNCTIONS = """\
#ifndef EMULATOR  // which has its own
// Starts copying BYTES bytes to shared memory; zeros where not `inside`, and then nothing is read.
template <int BYTES>
__device__ __forceinline__ void copy_async(void *to, const void *from, bool inside = true) {
  const unsigned address = static_cast<unsigned>(__cvta_generic_to_shared(to));
  const int read = inside ? BYTES : 0;
  if constexpr (BYTES == 16)
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(address), "l"(from), "r"(read) : "memory");
  else
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(address), "l"(from), "n"(BYTES), "r"(read) : "memory");
}

// Ends a group of copies.
__device__ __forceinline__ void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// Until all copies of this thread but those of the newest LEFT groups have arrived.
template <int LEFT>
__device__ __forceinline__ void wait_for_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(LEFT) : "memory");
}
#endif

"""
