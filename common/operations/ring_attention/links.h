// What ranks in one process send K and V with: a stream for copies beside each rank's own, and events between them.
#pragma once

#include <cstddef>
#include <vector>

#include "operations/ring_attention/problem.h"

namespace flashladder::ring_attention {

/// The current device is another one until the end of the scope. Throws CudaError.
class OnDevice {
public:
    explicit OnDevice(int device);
    ~OnDevice();
    OnDevice(const OnDevice&) = delete;

private:
    int before_ = 0;
};

/// Events are of one round of one rank. What is still under way when this ends goes on. Throws CudaError, as all of
/// this does.
class Links {
public:
    /// Lets neighbours reach each other's memory where the machine can; else copies go by the host's.
    Links(const std::vector<Rank>& ranks, int rounds);
    ~Links();
    Links(const Links&) = delete;

    /// The stream of a rank's copies.
    cudaStream_t copies(int rank) const { return copies_[std::size_t(rank)]; }

    enum Event { begun, arrived, computed, events };
    /// That what is in the stream so far is done.
    void record(Event event, int rank, int round, cudaStream_t stream);
    /// What comes into the stream from now on waits for an event that was recorded.
    void wait(cudaStream_t stream, Event event, int rank, int round) const;

private:
    std::size_t place(Event event, int rank, int round) const;

    const std::vector<Rank>& ranks_;
    int rounds_;
    std::vector<cudaStream_t> copies_;
    std::vector<cudaEvent_t> events_;
};

}  // namespace flashladder::ring_attention
