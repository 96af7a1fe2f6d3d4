// Launches of `stub_cuda.cpp` run by the emulator: `functions` has every entry of every cubin, work is captured and replayed.
#pragma once
#include <cuda.h>

#include <cstdio>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

struct Function {
    const char *cubin, *entry;
    int arrays;
    void (*body)(void **);
    unsigned char *shared;
};
extern const std::vector<Function> functions;
static std::vector<std::function<void()>> *capturing = nullptr;

static CUresult work(std::function<void()> what) {
    capturing ? capturing->push_back(what) : what();
    return CUDA_SUCCESS;
}

extern "C" {
CUresult cuModuleLoad(CUmodule *module, const char *path) {
    std::FILE *file = std::fopen(path, "rb");
    if (file == nullptr) return CUDA_ERROR_FILE_NOT_FOUND;
    const char *name = std::strrchr(path, '/') + 1;
    return *module = reinterpret_cast<CUmodule>(strdup(name)), std::fclose(file), CUDA_SUCCESS;
}
CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *entry) {
    for (const Function &one : functions)
        if (!std::strcmp(one.cubin, reinterpret_cast<const char *>(module)) && !std::strcmp(one.entry, entry))
            return *function = reinterpret_cast<CUfunction>(const_cast<Function *>(&one)), CUDA_SUCCESS;
    return CUDA_ERROR_NOT_FOUND;
}
CUresult cuLaunchKernel(CUfunction function, unsigned x, unsigned y, unsigned z, unsigned a, unsigned b, unsigned c,
                        unsigned shared, CUstream, void **arguments, void **) {
    const Function one = *reinterpret_cast<const Function *>(function);
    std::vector<void *> given;
    for (int i = 0; i < one.arrays; i++) given.push_back(*static_cast<void **>(arguments[i]));
    for (void *array : given)
        if (reinterpret_cast<unsigned long long>(array) % 16) return CUDA_ERROR_MISALIGNED_ADDRESS;
    return work([=]() mutable { emulator::launch(one.body, given.data(), dim3{x, y, z}, dim3{a, b, c}, one.shared, shared, 1); });
}
CUresult cuMemcpyDtoDAsync(CUdeviceptr to, CUdeviceptr of, size_t bytes, CUstream) {
    return work([=] { std::memcpy(reinterpret_cast<void *>(to), reinterpret_cast<const void *>(of), bytes); });
}
CUresult cuMemsetD8(CUdeviceptr to, unsigned char value, size_t bytes) {
    return std::memset(reinterpret_cast<void *>(to), value, bytes), CUDA_SUCCESS;
}
CUresult cuStreamCreate(CUstream *stream, unsigned) { return *stream = nullptr, CUDA_SUCCESS; }
CUresult cuStreamDestroy(CUstream) { return CUDA_SUCCESS; }
CUresult cuStreamBeginCapture(CUstream, CUstreamCaptureMode) {
    return capturing = new std::vector<std::function<void()>>, CUDA_SUCCESS;
}
CUresult cuStreamEndCapture(CUstream, CUgraph *graph) {
    *graph = reinterpret_cast<CUgraph>(capturing);
    return capturing = nullptr, CUDA_SUCCESS;
}
CUresult cuGraphInstantiateWithFlags(CUgraphExec *made, CUgraph graph, unsigned long long) {
    return *made = reinterpret_cast<CUgraphExec>(graph), CUDA_SUCCESS;
}
CUresult cuGraphDestroy(CUgraph) { return CUDA_SUCCESS; }
CUresult cuGraphExecDestroy(CUgraphExec) { return CUDA_SUCCESS; }
CUresult cuGraphLaunch(CUgraphExec graph, CUstream) {
    for (const auto &one : *reinterpret_cast<const std::vector<std::function<void()>> *>(graph)) one();
    return CUDA_SUCCESS;
}
}
