#include "harness/asked.h"

#include <optional>
#include <utility>

namespace flashladder {
namespace {

std::optional<Asked> asked;

}  // namespace

const Asked* last_asked() { return asked ? &*asked : nullptr; }
void note_asked(Asked now) { asked = std::move(now); }
void forget_asked() { asked.reset(); }

}  // namespace flashladder
