// How much of a softmax runs under the consumer's own product.
#pragma once

namespace flashladder::attention {

/// Of a step's B_c keys, those whose exponentials do not wait for O += P V of the step before, where O has d columns. Three
/// consumers of 64 queries on a multiprocessor, or four, give the tensor cores enough to do meanwhile, if P V is short. And
/// what does not wait needs registers: a single consumer has most, and at d = 256 there are none.
constexpr int early_keys(int consumers, int d, int B_c) {
    if (d > 128 || (d <= 64 && consumers > 2)) return 0;
    return consumers == 1 ? B_c / 2 : B_c / 4;
}

}  // namespace flashladder::attention
