// What the emulator's counts say of neighbouring loads and stores that nvcc may make one, in words.
#pragma once

#include <filesystem>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "machine_code.h"

namespace flashladder {

/// A line of text for each source line, or group of lines, with such accesses, and one above them; at most `most`,
/// those first that save most. "" if there are none: only otherwise is `machine_code` called. `launches` are those of
/// emulator::to_json(); names of files in it are relative to `root`.
std::string describe_mergeable(const nlohmann::json& launches, const std::filesystem::path& root, std::size_t most,
                               const std::function<std::optional<MachineCode>()>& machine_code);

}  // namespace flashladder
