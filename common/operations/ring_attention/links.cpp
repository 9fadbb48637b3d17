#include "operations/ring_attention/links.h"

#include <fmt/format.h>

#include <stdexcept>
#include <string>

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

/// "`arrived` of rank 1 in round 0".
std::string words_of(Links::Event event, int rank, int round) {
    const char* const names[] = {"begun", "arrived", "computed"};
    return fmt::format("`{}` of rank {} in round {}", names[event], rank, round);
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
        name_stream(copies_.back(), fmt::format("links.copies({})", g));
        name_stream(ranks[g].stream, fmt::format("stream({})", g));
    }
}

Links::~Links() {
    for (const cudaEvent_t event : events_)
        if (event) (void)cudaEventDestroy(event);
    for (const cudaStream_t stream : copies_) (void)cudaStreamDestroy(stream);
}

std::size_t Links::place(Event event, int rank, int round) const {
    const int ranks = static_cast<int>(ranks_.size());
    if (rank < 0 || rank >= ranks || round < 0 || round >= rounds_)
        throw std::out_of_range(
            fmt::format("{}: ranks are 0 to {}, and rounds 0 to {}", words_of(event, rank, round), ranks - 1, rounds_ - 1));
    return (std::size_t(rank) * std::size_t(rounds_) + std::size_t(round)) * events + event;
}

void Links::record(Event event, int rank, int round, cudaStream_t stream) {
    const OnDevice on(ranks_[std::size_t(rank)].device);
    cudaEvent_t& recorded = events_[place(event, rank, round)];
    if (!recorded) check_cuda(cudaEventCreateWithFlags(&recorded, cudaEventDisableTiming), "making an event");
    check_cuda(cudaEventRecord(recorded, stream), "recording an event");
}

void Links::wait(cudaStream_t stream, Event event, int rank, int round) const {
    const cudaEvent_t recorded = events_[place(event, rank, round)];
    if (!recorded)
        throw std::logic_error(
            fmt::format("a stream is to wait for {}, which nobody has recorded so far", words_of(event, rank, round)));
    check_cuda(cudaStreamWaitEvent(stream, recorded, 0), "waiting for an event");
}

}  // namespace flashladder::ring_attention
