// Results that must be equal on a GPU and on the emulator, as checksums. With FLASHLADDER_PTX_RECORD=FILE in the
// environment they are written there; docs/results/ptx.json is such a file, of a GPU, and every run is compared with
// it.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace flashladder {

/// Inputs of what is recorded are always the same.
constexpr unsigned long long recorded_seed = 20260101;

void check_recorded(const std::string& name, const void* data, std::size_t bytes);

template <class T>
void check_recorded(const std::string& name, const std::vector<T>& values) {
    check_recorded(name, values.data(), values.size() * sizeof(T));
}

}  // namespace flashladder
