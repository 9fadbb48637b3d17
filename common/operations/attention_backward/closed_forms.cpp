#include "operations/attention_backward/closed_forms.h"

#include <algorithm>
#include <cmath>

#include "launch.h"
#include "operations/attention_backward/section.h"
#include "operations/attention_backward/split.h"

namespace flashladder::attention_backward {
namespace {

constexpr double float_bytes = 4;

double blocks(double n, double block) { return std::ceil(n / block); }

/// Rung 15, a head of K with all queries that see it: five kernels, in tiles of 64 x 64.
ClosedForm standard_backward(double N_q, double N_k, double d) {
    constexpr double tile = 64, threads_x = 16;
    const double T_q = blocks(N_q, tile), T_k = blocks(N_k, tile), T_d = blocks(d, tile), S = N_q * N_k;
    // A product reads a factor anew for each tile of the other one.
    const double along_keys = T_k * N_q * d, along_queries = T_q * N_k * d, along_d = T_d * S;
    const double P = along_keys + along_queries + T_k * threads_x * N_q + S;
    const double dS = along_keys + along_queries + 2 * along_keys + 2 * S;
    const double dV = along_d + along_keys + N_k * d, dQ = along_d + along_queries + N_q * d, dK = dV;
    const double distinct = (N_q * d + N_k * d + N_q + S) + (2 * N_q * d + N_k * d + 2 * S) +
                            2 * (S + N_q * d + N_k * d) + (S + N_k * d + N_q * d);
    return {float_bytes * (P + dS + dV + dQ + dK), float_bytes * distinct, S, 0};
}

/// The largest of the block sizes that rung 16 has whose tiles fit into M.
double recomputed_block(double d, double M) {
    for (const double B : {64, 32, 16})
        if (float_bytes * (4 * B * (d + 1) + 2 * B * d + B * B + 2 * B) <= M) return B;
    return 0;
}

/// Rung 16, a head: dQ is begun with zeros, then for each block of keys Q, O, dO, LSE and dQ pass by, and dQ back.
ClosedForm recomputation(double N_q, double N_k, double d, bool causal, double M) {
    const double B = recomputed_block(d, M);
    double rows = 0, most_rows = 0, scores = 0;  // of queries that are loaded for all blocks of keys, and for the first one
    for (double j = 0; j < N_k; j += B) {
        const double first_query = causal ? std::max(0.0, j - (N_k - N_q)) : 0, loaded = N_q - std::floor(first_query / B) * B;
        rows += loaded;
        most_rows = std::max(most_rows, loaded);
    }
    for (double i = 0; i < N_q; ++i) scores += causal ? std::clamp(i + 1 + N_k - N_q, 0.0, N_k) : N_k;
    const double once = N_q * d + 4 * N_k * d;
    return {float_bytes * (once + rows * (5 * d + 1)), float_bytes * (once + most_rows * (4 * d + 1)), scores, 0};
}

/// Rung 17, a head of K with a group of heads that see it: D once a query; then for each block of 64 keys K, V and their
/// gradients once, and Q, dO, LSE, D and dQ's additions for each query of the blocks that see one of these.
ClosedForm key_blocks(double N_q, double N_k, double d, double group, bool causal) {
    constexpr double B = 64;
    double rows = 0, most_rows = 0, scores = 0;  // of queries that are loaded for all blocks of keys, and for the first one
    for (double j = 0; j < N_k; j += B) {
        const double first_query = causal ? std::max(0.0, j - (N_k - N_q)) : 0, loaded = N_q - std::floor(first_query / B) * B;
        rows += loaded;
        most_rows = std::max(most_rows, loaded);
    }
    for (double i = 0; i < N_q; ++i) scores += causal ? std::clamp(i + 1 + N_k - N_q, 0.0, N_k) : N_k;
    const double D = N_q * (2 * d + 1), keys = 4 * N_k * d, queries = 3 * d + 2;
    return {float_bytes * (group * (D + rows * queries) + keys),
            float_bytes * (group * (D + most_rows * (queries + d)) + keys),  // what is added to is read and written
            group * scores, 0};
}

/// Queries, and steps of B_r of them, that pass by blocks of B_c keys: by all, and by the first one, which has the most.
struct Passing {
    double rows = 0, most_rows = 0, steps = 0, most_steps = 0;
};
Passing passing(double N_q, double N_k, bool causal, double B_r, double B_c) {
    Passing all;
    for (double j = 0; j < N_k; j += B_c) {
        const double first_step = std::floor((causal ? std::max(0.0, j - (N_k - N_q)) : 0) / B_r);
        const double loaded = std::max(0.0, N_q - first_step * B_r),
                     taken = std::max(0.0, blocks(N_q, B_r) - first_step);
        all.rows += loaded, all.steps += taken;
        all.most_rows = std::max(all.most_rows, loaded), all.most_steps = std::max(all.most_steps, taken);
    }
    return all;
}

/// Rungs 18 to 20, a head of K as above, 16-bit tensors. A step is B_r queries, all of whose sums of dQ grow, also of those
/// that are none; the last kernel reads the sums and writes dQ. Each pair of a step and a block of B_c keys has an exponential
/// for every score. `statistics`: bytes of them, for each query, that the first kernel reads and writes. Rung 20's are padded:
/// written and read for whole steps.
ClosedForm in_steps(double N_q, double N_k, double d, double group, bool causal, double B_r, double B_c,
                    double statistics, bool padded = false) {
    constexpr double bytes = 2;
    const auto [rows, most_rows, steps, most_steps] = passing(N_q, N_k, causal, B_r, B_c);
    constexpr double of_query = 2 * float_bytes;  // LSE and D
    const double keys = bytes * 4 * N_k * d, a_row = bytes * 2 * d, sums = float_bytes * B_r * d;
    const double padding = padded ? (blocks(N_q, B_r) * B_r - N_q) * of_query : 0;
    const double dQ = blocks(N_q, B_r) * sums + bytes * N_q * d;  // at the end
    const double once = N_q * (bytes * 2 * d + statistics) + padding + dQ;
    const auto tiles = [&](double rows, double steps) { return rows * a_row + (padded ? steps * B_r : rows) * of_query; };
    return {group * (once + tiles(rows, steps) + steps * sums) + keys,
            group * (once + tiles(most_rows, most_steps) + 2 * most_steps * sums) + keys, group * steps * B_r * B_c, 0};
}

/// Rungs 21 and 22, a head of K as above. Of each step that queries have, sums are stored once, added to by all other
/// blocks, and read once by the last block; with it 128 threads each ask for the state of every step. A block claims a
/// step; it waits for who was first, or says that it is done: two words of 4 bytes each.
ClosedForm by_writers(double N_q, double N_k, double d, double group, bool causal) {
    constexpr double bytes = 2, B_r = 64, word = 4, statistics = 2 * float_bytes, threads = 128;
    const double B_c = 128 * (128 / d), T_q = blocks(N_q, B_r), T_k = blocks(N_k, B_c);
    const auto [rows, most_rows, steps, most_steps] = passing(N_q, N_k, causal, B_r, B_c);
    const double sums = float_bytes * B_r * d, of_step = B_r * statistics, a_row = bytes * 2 * d;
    // Before: O, dO and LSE are read; statistics, states and a counter are written.
    const double before = N_q * (a_row + float_bytes) + T_q * (of_step + word) + word;
    const double keys = bytes * 4 * N_k * d, dQ = bytes * N_q * d;
    const double requested = before + rows * a_row + steps * (of_step + sums + 2 * word) + most_steps * sums +
                             T_q * threads * word + dQ;
    const double distinct =
        before + most_rows * a_row + most_steps * (of_step + 2 * sums + word) + T_q * word + dQ;
    return {group * requested + keys + T_k * word, group * distinct + keys + 2 * word, group * steps * B_r * B_c, 0};
}

/// Rung 25 has so many consumers, of 64 keys each.
int consumers_on_the_template(double d) { return d == 64 ? 3 : 2; }
/// The same, but dQ is made of the sums by later tasks, which ask for no state. A task is asked for behind each one, and its
/// writers, as many as consumers, count themselves. A query's statistics are operands of 8 elements. A consumer has no
/// exponentials of a step that sees none of its keys.
ClosedForm on_the_template(double N_q, double N_k, double d, double group, bool causal) {
    constexpr double bytes = 2, B_r = 64, word = 4, statistics = 8 * bytes, unit = 64;
    const double writers = consumers_on_the_template(d), B_c = writers * unit, T_q = blocks(N_q, B_r), T_k = blocks(N_k, B_c);
    const auto [rows, most_rows, steps, most_steps] = passing(N_q, N_k, causal, B_r, B_c);
    const double sums = float_bytes * B_r * d, of_step = B_r * statistics, a_row = bytes * 2 * d;
    const double before = N_q * (a_row + float_bytes) + T_q * (of_step + word) + word;
    const double keys = bytes * 4 * N_k * d, dQ = bytes * N_q * d;
    const double requested = before + rows * a_row + steps * (of_step + sums + 2 * word) + most_steps * sums + dQ;
    const double distinct = before + most_rows * a_row + most_steps * (of_step + 2 * (sums + word)) + dQ;
    double seen = 0;  // steps, by all consumers
    for (double j = 0; j < N_k; j += unit)
        seen += std::max(0.0, T_q - std::floor((causal ? std::max(0.0, j - (N_k - N_q)) : 0) / B_r));
    return {group * requested + keys + T_k * (1 + writers) * word, group * distinct + keys + 2 * word,
            group * seen * B_r * unit, 0};
}
/// Its blocks of keys, in the order of tasks; heads are those of K of all batches. As lcsf::TaskOrder, for the host.
struct KeyBlocks {
    int consumers, T_k, heads, section;

    KeyBlocks(const AttentionShape& s, bool all_heads_take_turns)
        : consumers(consumers_on_the_template(s.head_dim)), T_k(int(blocks(s.n_k, 64 * consumers))),
          heads(s.kv_heads * s.batch),
          section(all_heads_take_turns ? heads : heads_that_take_turns(s)) {}
    int all() const { return T_k * heads; }
    int first_head_of_section(int n) const { return n / (section * T_k) * section; }
    int turns(int n) const { return std::min(section, heads - first_head_of_section(n)); }
    int head(int n) const { return first_head_of_section(n) + (n - first_head_of_section(n) * T_k) % turns(n); }
    int block(int n) const { return (n - first_head_of_section(n) * T_k) / turns(n); }
};
/// Words that threads ask for who wait until a head has ended, for its shares of dQ: one for a share that a task makes; for each
/// last one, which belongs to no later task, one of each warp of the consumers. But who asks for the same word again, and has
/// done nothing since, is counted once. From block of keys `first` on tasks make no share.
double words_of_shares(const AttentionShape& s, const KeyBlocks& keys, const Split& split) {
    const int multiprocessors = device_attribute(cudaDevAttrMultiProcessorCount);
    const int by_tasks = std::max(0, split.first - keys.section * keys.T_k - multiprocessors);
    const int grid = std::min(split.tasks, multiprocessors);
    const int of_head = int(s.heads / s.kv_heads * blocks(s.n_q, 64)), of_share = int(blocks(of_head, keys.T_k));
    double words = by_tasks;
    for (int n = by_tasks; n < keys.all(); ++n) {
        const int before = n - grid;  // that this block of threads has made
        const bool same = before >= by_tasks && keys.head(before) == keys.head(n);
        const int made = same ? std::clamp(of_head - keys.block(before) * of_share, 0, of_share) : keys.consumers;
        words += 4 * std::min(made, keys.consumers);
    }
    return words;
}
/// What rung 25b asks for beside that: K and V once more for each further part; dK and dV of the parts, which are written and
/// read; a count for each warp, which is set before; a task more to ask for and its writers' counts. And the writers of a
/// group's heads have one count that is set before, not one for each.
ClosedForm of_split(const AttentionShape& s, const KeyBlocks& keys, const Split& split) {
    constexpr double word = 4, bytes = 2;
    const int B_c = 64 * keys.consumers;
    double rows = 0;  // of K in blocks that are split
    for (int n = split.first; n < split.first + split.blocks; ++n) rows += std::min(B_c, s.n_k - keys.block(n) * B_c);
    const double sums = float_bytes * split.all_parts * B_c * 2 * s.head_dim, warps = 4.0 * keys.consumers;
    const double further = split.all_parts - split.blocks, of_heads = word * keys.heads * (1 - double(s.heads) / s.kv_heads);
    const double zeros = word * split.blocks * warps + of_heads;
    return {zeros + (split.parts - 1) * rows * 2 * s.head_dim * bytes + 2 * sums + word * split.all_parts * warps +
                word * further * (1 + keys.consumers),
            zeros + 2 * (sums + word * split.blocks * warps), 0, 0};
}

}  // namespace

std::optional<ClosedForm> closed_form(const std::string& stage, const AttentionShape& s, std::size_t shared_bytes) {
    const double group = double(s.heads) / s.kv_heads, kv_heads = double(s.batch) * s.kv_heads;
    const auto times = [](double n, const ClosedForm& of_one) {
        return ClosedForm{n * of_one.requested_bytes, n * of_one.distinct_bytes, n * of_one.exponentials, n * of_one.divisions};
    };
    if (stage == "15-standard-backward") return times(kv_heads, standard_backward(group * s.n_q, s.n_k, s.head_dim));
    if (stage == "16-recomputation")
        return times(double(s.batch) * s.heads, recomputation(s.n_q, s.n_k, s.head_dim, s.causal, double(shared_bytes)));
    if (stage == "17-key-blocks") return times(kv_heads, key_blocks(s.n_q, s.n_k, s.head_dim, group, s.causal));
    // Rung 18 writes D before; rung 19 reads LSE too, and writes both.
    const bool narrow = s.head_dim == 64;
    if (stage == "18-transposed-scores")
        return times(kv_heads, in_steps(s.n_q, s.n_k, s.head_dim, group, s.causal, narrow ? 64 : 32, 64, float_bytes));
    if (stage == "19-staged-queries")
        return times(kv_heads, in_steps(s.n_q, s.n_k, s.head_dim, group, s.causal, 64, narrow ? 128 : 64, 3 * float_bytes));
    if (stage == "20-warpgroup-backward")
        return times(kv_heads, in_steps(s.n_q, s.n_k, s.head_dim, group, s.causal, narrow ? 128 : 64, 128, 3 * float_bytes,
                                        true));
    if (stage == "21-dq-writer" || stage == "22-out-of-step")
        return times(kv_heads, by_writers(s.n_q, s.n_k, s.head_dim, group, s.causal));
    if (stage == "25-lcsf-backward" || stage == "25b-split-queries") {
        ClosedForm form = times(kv_heads, on_the_template(s.n_q, s.n_k, s.head_dim, group, s.causal));
        constexpr double word = 4;
        KeyBlocks keys(s, false);
        Split split{keys.all(), 0, 1, 0, keys.all()};
        if (stage == "25b-split-queries") {
            split = split_of(s, 64, 64 * keys.consumers, device_attribute(cudaDevAttrMultiProcessorCount));
            keys = KeyBlocks(s, s.causal && split.blocks > 0);
            const ClosedForm more = of_split(s, keys, split);
            form.requested_bytes += more.requested_bytes;
            form.distinct_bytes += more.distinct_bytes;
        }
        form.requested_bytes += word * (1 + words_of_shares(s, keys, split));  // `taken` is set before, then read and written
        form.distinct_bytes += 3 * word;
        return form;
    }
    return {};
}

}  // namespace flashladder::attention_backward
