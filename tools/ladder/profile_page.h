// What a page shows of a profile: a source, and what each of its lines asks for.
#pragma once

#ifndef FLASHLADDER_GPU

#include <nlohmann/json.hpp>
#include <string>

#include "emulator/counters.h"

namespace flashladder {

/// {counts, files} of a kernel whose own file, a path from the project's folder, is the first. A count has name,
/// meaning, total, and, where there is a solution beside, what that asks for. A file has path, text and lines: [number,
/// one for each count]; text is null where the file is none of the project's, and its lines then end in what stands
/// there.
nlohmann::json profile_page(const emulator::CountedWork& work, const std::string& own_file,
                            const emulator::CountedWork* solution = nullptr);

}  // namespace flashladder

#endif
