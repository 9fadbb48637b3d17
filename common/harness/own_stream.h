// A stream of the caller's own, as PyTorch has: kernels that do not go there are wrong, though their numbers are right.
#pragma once

#include <stdexcept>
#include <string>

#include "launch.h"

namespace flashladder {

class OwnStream {
public:
    OwnStream() {
        check_cuda(cudaStreamCreate(&stream_), "making a stream");
        last_launch = {};
    }
    ~OwnStream() { cudaStreamDestroy(stream_); }
    OwnStream(const OwnStream&) = delete;

    /// Until what was launched there is done. Throws CudaError, also where the emulator alone can launch a kernel and none was
    /// launched; and std::logic_error if the last one went elsewhere.
    void wait(const std::string& stage) const {
        check_cuda(cudaDeviceSynchronize(), stage.c_str());
#ifndef FLASHLADDER_GPU
        if (!last_launch.entry)
            throw CudaError(cudaErrorNotReady, stage + ": launch() has launched no kernel, so nobody has written anything");
#endif
        if (last_launch.entry && last_launch.stream != stream_)
            throw std::logic_error(stage + ": a kernel was launched on another stream than args.stream: it does not wait for "
                                           "what its caller has put there before, nor does what comes behind wait for it");
    }
    cudaStream_t get() const { return stream_; }

private:
    cudaStream_t stream_ = nullptr;
};

}  // namespace flashladder
