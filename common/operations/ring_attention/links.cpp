#include "operations/ring_attention/links.h"

#include <fmt/format.h>

#include <stdexcept>

#include "launch.h"

namespace flashladder::ring_attention {
namespace {

/// `device` is to read what `other` has.
void let_read(int device, int other) {
    int can = 0;
    check_cuda(cudaDeviceCanAccessPeer(&can, device, other),
               fmt::format("asking whether device {} reaches the memory of device {}", device, other).c_str());
    if (!can) return;
    const OnDevice on(device);
    const cudaError_t error = cudaDeviceEnablePeerAccess(other, 0);
    if (error == cudaErrorPeerAccessAlreadyEnabled)
        (void)cudaGetLastError();
    else
        check_cuda(error, fmt::format("letting device {} reach the memory of device {}", device, other).c_str());
}

}  // namespace

OnDevice::OnDevice(int device) {
    check_cuda(cudaGetDevice(&before_), "asking for the device");
    if (device != before_) check_cuda(cudaSetDevice(device), fmt::format("changing to device {}", device).c_str());
}
OnDevice::~OnDevice() { (void)cudaSetDevice(before_); }

Links::Links(const std::vector<Rank>& ranks, int rounds)
    : ranks_(ranks), rounds_(rounds), events_(ranks.size() * std::size_t(rounds) * events) {
    for (std::size_t g = 0; g < ranks.size(); ++g) {
        const int device = ranks[g].device, before = ranks[(g + ranks.size() - 1) % ranks.size()].device;
        if (device != before) let_read(device, before), let_read(before, device);
        const OnDevice on(device);
        check_cuda(cudaStreamCreateWithFlags(&copies_.emplace_back(), cudaStreamNonBlocking), "a stream for copies");
    }
}

Links::~Links() {
    for (const cudaEvent_t event : events_)
        if (event) (void)cudaEventDestroy(event);
    for (const cudaStream_t stream : copies_) (void)cudaStreamDestroy(stream);
}

void Links::record(Event event, int rank, int round, cudaStream_t stream) {
    const OnDevice on(ranks_[std::size_t(rank)].device);
    cudaEvent_t& recorded = events_.at(place(event, rank, round));
    if (!recorded) check_cuda(cudaEventCreateWithFlags(&recorded, cudaEventDisableTiming), "making an event");
    check_cuda(cudaEventRecord(recorded, stream), "recording an event");
}

void Links::wait(cudaStream_t stream, Event event, int rank, int round) const {
    const cudaEvent_t recorded = events_.at(place(event, rank, round));
    if (!recorded) throw std::logic_error("a stream is to wait for an event that nobody has recorded");
    check_cuda(cudaStreamWaitEvent(stream, recorded, 0), "waiting for an event");
}

}  // namespace flashladder::ring_attention
