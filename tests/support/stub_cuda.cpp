// As much of CUDA's driver as an exported example calls: memory is the host's, launches and tensor maps are said, not made.
// With EMULATED launches are made: see `emulated_cuda.h`.
#include <cuda.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

template <class T> static void list(const char *name, const T *values, unsigned count) {
    std::printf(" %s=", name);
    for (unsigned i = 0; i < count; i++) std::printf("%s%llu", i ? "," : "", static_cast<unsigned long long>(values[i]));
}

extern "C" {
CUresult cuInit(unsigned) { return CUDA_SUCCESS; }
CUresult cuDeviceGet(CUdevice *device, int number) { return *device = number, CUDA_SUCCESS; }
CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice) { return *context = nullptr, CUDA_SUCCESS; }
CUresult cuCtxSetCurrent(CUcontext) { return CUDA_SUCCESS; }
CUresult cuGetErrorName(CUresult, const char **name) { return *name = "SAID", CUDA_SUCCESS; }
#ifndef EMULATED
CUresult cuModuleLoad(CUmodule *module, const char *path) {
    std::FILE *file = std::fopen(path, "rb");
    *module = nullptr;
    if (file == nullptr) return CUDA_ERROR_FILE_NOT_FOUND;
    return std::fclose(file), CUDA_SUCCESS;
}
#endif
CUresult cuModuleUnload(CUmodule) { return CUDA_SUCCESS; }
#ifndef EMULATED
CUresult cuModuleGetFunction(CUfunction *function, CUmodule, const char *name) {
    return *function = reinterpret_cast<CUfunction>(strdup(name)), CUDA_SUCCESS;
}
#endif
CUresult cuFuncSetAttribute(CUfunction function, CUfunction_attribute attribute, int value) {
    std::printf("attribute %s %d %d\n", reinterpret_cast<const char *>(function), attribute, value);
    return CUDA_SUCCESS;
}
CUresult cuMemAlloc(CUdeviceptr *pointer, size_t bytes) {
    *pointer = reinterpret_cast<CUdeviceptr>(std::aligned_alloc(256, (bytes + 255) / 256 * 256));
    std::printf("array %llu %zu\n", *pointer, bytes);
    return CUDA_SUCCESS;
}
CUresult cuMemFree(CUdeviceptr pointer) { return std::free(reinterpret_cast<void *>(pointer)), CUDA_SUCCESS; }
CUresult cuMemcpyHtoD(CUdeviceptr to, const void *from, size_t bytes) {
    return std::memcpy(reinterpret_cast<void *>(to), from, bytes), CUDA_SUCCESS;
}
CUresult cuMemcpyDtoH(void *to, CUdeviceptr from, size_t bytes) {
    return std::memcpy(to, reinterpret_cast<const void *>(from), bytes), CUDA_SUCCESS;
}
CUresult cuEventCreate(CUevent *event, unsigned) { return *event = nullptr, CUDA_SUCCESS; }
CUresult cuEventRecord(CUevent, CUstream) { return CUDA_SUCCESS; }
CUresult cuEventSynchronize(CUevent) { return CUDA_SUCCESS; }
CUresult cuEventElapsedTime(float *milliseconds, CUevent, CUevent) { return *milliseconds = 1, CUDA_SUCCESS; }
CUresult cuTensorMapEncodeTiled(CUtensorMap *map, CUtensorMapDataType type, cuuint32_t rank, void *address,
                                const cuuint64_t *sizes, const cuuint64_t *strides, const cuuint32_t *box,
                                const cuuint32_t *steps, CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
                                CUtensorMapL2promotion promotion, CUtensorMapFloatOOBfill fill) {
    static unsigned long long number = 0;
    map->opaque[0] = number;
    std::printf("map %llu address=%llu tensorDataType=%d tensorRank=%u", number++,
                reinterpret_cast<unsigned long long>(address), type, rank);
    list("globalDim", sizes, rank);
    list("globalStrides", strides, rank - 1);
    list("boxDim", box, rank);
    list("elementStrides", steps, rank);
    std::printf(" interleave=%d swizzle=%d l2Promotion=%d oobFill=%d\n", interleave, swizzle, promotion, fill);
    return CUDA_SUCCESS;
}
#ifndef EMULATED
/* Every argument is 8 bytes or begins with 8: a pointer, or a map with its number. $ENTRY says how many there are. */
CUresult cuLaunchKernel(CUfunction function, unsigned x, unsigned y, unsigned z, unsigned a, unsigned b, unsigned c,
                        unsigned shared, CUstream, void **arguments, void **) {
    std::printf("launch %s %u,%u,%u %u,%u,%u %u", reinterpret_cast<const char *>(function), x, y, z, a, b, c, shared);
    const char *count = std::getenv(reinterpret_cast<const char *>(function));
    for (int i = 0; i < std::atoi(count); i++) std::printf(" %llu", *static_cast<unsigned long long *>(arguments[i]));
    std::printf("\n");
    return CUDA_SUCCESS;
}
#endif
}
