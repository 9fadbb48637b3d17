// CUDA's own syntax as C++ that the emulator's compiler understands: for `ladder check`.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace flashladder {

/// Where an #include leads to: the path to write in its place, or nothing if it stays as it is.
using ResolveInclude = std::function<std::optional<std::string>(std::string_view name, bool in_quotes)>;

/// The same source with this translated, and every line where it was:
///
///   kernel<<<grid, block>>>(a)          ::emulator::prepare(FLASHLADDER_KERNEL(kernel), grid, block)(a)
///   extern __shared__ float tile[];     auto* tile = ::emulator::dynamic_array<float>();
///   asm volatile("..." : ...);          ::emulator::inline_ptx("...");, an error once it is called
///   void __launch_bounds__(128) kernel() {          the same, and ::emulator::check_launch_bounds(128);
///
/// And a few words that a host compiler would take amiss.
///
/// Works on tokens: strings and comments stay what they are, and macros are not expanded, but their bodies are
/// translated. Names are those of emulator/checked_program.h.
std::string translate(std::string_view source, const ResolveInclude& resolve = {});

}  // namespace flashladder
