#include "operations/attention/closed_forms.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>

#include "operations/attention/configurations.h"
#include "operations/attention/parts.h"
#include "operations/attention/stage.h"
#include "launch.h"

namespace flashladder::attention {
namespace {

constexpr double float_bytes = 4, half_bytes = 2;  // of an element, f32 and 16 bits

/// One head of a problem, in the letters of the papers.
struct Head {
    double N_q, N_k, d;
    bool causal, lse;
    double M;      // bytes of shared memory that a block may have
    double group;  // heads that share one K and V
};

double blocks(double n, double block) { return std::ceil(n / block); }

ClosedForm standard_attention(const Head& h) {
    constexpr double tile = 16;
    const auto& [N_q, N_k, d, causal, lse, M, group] = h;
    const double T_q = blocks(N_q, tile), T_k = blocks(N_k, tile), S = N_q * N_k;
    const double scores = T_k * N_q * d + T_q * N_k * d + S;
    const double softmax = 3 * S + 2 * S;
    const double output = blocks(d, tile) * S + T_q * N_k * d + N_q * d;
    const double distinct = (N_q * d + N_k * d + S) + 2 * S + (S + N_k * d + N_q * d);
    return {float_bytes * (scores + softmax + output), float_bytes * distinct, S, S};
}

ClosedForm minimal_flash(const Head& h) {
    constexpr double B_c = 32;
    const auto& [N_q, N_k, d, causal, lse, M, group] = h;
    const double T_c = blocks(N_k, B_c);
    const double Q = T_c * N_q * d, K_and_V = 2 * N_k * d;
    const double O = T_c * N_q * d + (T_c + 1) * N_q * d;
    const double l_and_m = 2 * (T_c * N_q + (T_c + 1) * N_q);
    const double distinct = (2 * N_q * d + 2 * N_k * d + 2 * N_q) + (N_q * d + 2 * N_q);
    return {float_bytes * (Q + K_and_V + O + l_and_m), float_bytes * distinct, N_q * N_k + 2 * T_c * N_q,
            T_c * N_q * d};
}

constexpr double B_r = 64, threads_a_row = 16;  // of rungs 02 and 03

/// The largest of the block sizes that rung 02 has whose tiles fit into M.
double tiled_block_columns(double d, double M) {
    for (const double B_c : {256, 128, 64, 32})
        if (B_c * d <= 128 * 128 && float_bytes * (B_r * d + B_c * (d + 4) + B_c * d + B_r * B_c + 2 * B_r) <= M)
            return B_c;
    return 0;
}

ClosedForm tiled_flash(const Head& h) {
    const auto& [N_q, N_k, d, causal, lse, M, group] = h;
    const double B_c = tiled_block_columns(d, M);
    const double T_r = blocks(N_q, B_r), T_c = blocks(N_k, B_c);
    const double Q = T_c * N_q * d, K_and_V = 2 * N_k * d;
    const double O = (T_c - 1) * N_q * d + T_c * N_q * d;
    const double l_and_m = 2 * ((T_c - 1) * N_q + T_c * N_q);
    const double read_again = T_c > 1 ? N_q * d + 2 * N_q : 0;
    const double distinct = N_q * d + 2 * N_k * d + read_again + (N_q * d + 2 * N_q);
    // Every tile is computed whole, past the end too; each of the threads of a row finds the factor for itself.
    const double exponentials = T_r * T_c * (B_r * B_c + B_r * threads_a_row);
    return {float_bytes * (Q + K_and_V + O + l_and_m), float_bytes * distinct, exponentials, T_c * N_q * threads_a_row};
}

/// What blocks of queries look at that walk over the keys.
struct Walk {
    double tiles = 0, keys = 0, most_keys = 0;  // of all blocks of queries, and of the one that sees most
};

Walk walk_over_keys(const Head& h, double B_r, double B_c) {
    Walk walk;
    for (double i = 0; i < h.N_q; i += B_r) {
        const double end = h.causal ? std::clamp(i + B_r + h.N_k - h.N_q, 0.0, h.N_k) : h.N_k;
        const double loaded = std::min(h.N_k, B_c * blocks(end, B_c));
        walk.tiles += blocks(end, B_c);
        walk.keys += loaded;
        walk.most_keys = std::max(walk.most_keys, loaded);
    }
    return walk;
}

ClosedForm swapped_flash(const Head& h) {
    const auto& [N_q, N_k, d, causal, lse, M, group] = h;
    const double B_c = d == 64 ? 64 : 32;
    const auto [tiles, keys, most_keys] = walk_over_keys(h, B_r, B_c);
    const double rows_with_keys = causal ? std::min(N_q, N_k) : N_q;
    const double Q_and_O = 2 * N_q * d, LSE = lse ? N_q : 0;
    return {float_bytes * (Q_and_O + 2 * keys * d + LSE), float_bytes * (Q_and_O + 2 * most_keys * d / group + LSE),
            tiles * (B_r * B_c + B_r * threads_a_row), rows_with_keys * threads_a_row};
}

/// From rung 04 on: blocks of B_r queries walk over blocks of B_c keys.
ClosedForm tensor_core_flash(const Head& h, double B_r, double B_c) {
    constexpr double lanes_a_row = 4;
    const auto& [N_q, N_k, d, causal, lse, M, group] = h;
    const auto [tiles, keys, most_keys] = walk_over_keys(h, B_r, B_c);
    // Rows past the end are computed too, as queries that are 0.
    const double rows_without_keys = causal ? std::max(0.0, N_q - N_k) : 0;
    const double rows_with_keys = B_r * blocks(N_q, B_r) - rows_without_keys;
    const double Q_and_O = 2 * N_q * d, LSE = float_bytes * (lse ? N_q : 0);
    return {half_bytes * (Q_and_O + 2 * keys * d) + LSE, half_bytes * (Q_and_O + 2 * most_keys * d / group) + LSE,
            tiles * B_r * (B_c + lanes_a_row), rows_with_keys * lanes_a_row};
}

/// Rung 11: as rung 10, but tasks without a key do not ask for their queries, and each task asks for the next one.
ClosedForm persistent_flash(const Head& h) {
    const double B_r = h.d == 64 ? 128 : 192, B_c = h.d == 64 ? 64 : 128;
    ClosedForm form = tensor_core_flash(h, B_r, B_c);
    const double unseeing = h.causal ? std::floor(std::max(0.0, h.N_q - h.N_k) / B_r) * B_r : 0;
    const double asked = float_bytes * blocks(h.N_q, B_r);
    form.requested_bytes += asked - half_bytes * unseeing * h.d;
    form.distinct_bytes -= half_bytes * unseeing * h.d;
    return form;
}
/// From rung 12 on: as rung 11, but a task without keys has one block of them too, which nobody sees, and its queries.
ClosedForm overlapped_flash(const Head& h, double B_r, double B_c) {
    ClosedForm form = tensor_core_flash(h, B_r, B_c);
    constexpr double lanes_a_row = 4;
    const double unseeing = h.causal ? std::floor(std::max(0.0, h.N_q - h.N_k) / B_r) : 0;  // blocks of queries
    const double keys = std::min(B_c, h.N_k);
    form.requested_bytes += float_bytes * blocks(h.N_q, B_r) + half_bytes * 2 * unseeing * keys * h.d;
    form.exponentials += unseeing * B_r * (B_c + lanes_a_row);
    return form;
}
/// From rung 13 on: tasks of as many units of 64 queries as there are consumers, or one less. All consumers are sent
/// queries, also where one has none to compute with. Blocks of keys that no query of a unit sees are skipped, but one always
/// remains. A warp raises m, with an exponential a row and lane, in its first step; that is all for scores which then grow
/// little. Where rows have not seen a key yet, rung 13 raises it before the next block of keys; rung 14 when one of these rows
/// sees its first key there, and then it weighs this block again.
ClosedForm lean_flash(const Head& h, double consumers, double B_c, double T_r, double low, bool asks_for_tasks,
                      bool weighs_again) {
    constexpr double unit = 64, warp_rows = 16, lanes_a_row = 4;
    const auto& [N_q, N_k, d, causal, lse, M, group] = h;
    double Q = 0, keys = 0, most_keys = 0, rows = 0, exponentials = 0;
    for (double block = 0; block < T_r; ++block) {
        const double units = consumers - (block < low), i = block * consumers * unit - std::min(block, low) * unit;
        const double end = causal ? std::min(N_k, i + units * unit + N_k - N_q) : N_k;
        const double T_c = std::max(1.0, blocks(end, B_c)), loaded = std::min(N_k, T_c * B_c);
        Q += std::min(consumers * unit, N_q - i);
        keys += loaded;
        most_keys = std::max(most_keys, loaded);
        rows += units * unit;
        for (double row = i; row < i + units * unit; row += warp_rows) {
            const double last_of_unit = i + std::floor((row - i) / unit) * unit + unit - 1;
            const double last_seen = causal ? last_of_unit + N_k - N_q : N_k;  // by the unit's last query
            const double seen_by_all = causal ? row + N_k - N_q : N_k;         // by the warp's first one
            for (double t = T_c - 1; t >= 0; --t) {
                if (t > 0 && t * B_c > last_seen) continue;
                const bool first = t == T_c - 1 || (t + 1) * B_c > std::max(0.0, last_seen);
                const bool unseeing = !first && seen_by_all < (t + 1) * B_c;  // until this block
                const bool again = weighs_again && unseeing && seen_by_all + warp_rows > t * B_c;
                const bool raised = first || again || (unseeing && !weighs_again);
                exponentials += warp_rows * (B_c + (raised ? lanes_a_row : 0) + (again ? B_c : 0));
            }
        }
    }
    const double rows_without_keys = causal ? std::max(0.0, N_q - N_k) : 0;
    const double LSE = float_bytes * (lse ? N_q : 0);
    return {half_bytes * d * (Q + N_q + 2 * keys) + LSE + (asks_for_tasks ? float_bytes * T_r : 0),
            half_bytes * 2 * (N_q * d + most_keys * d / group) + LSE, exponentials,
            (rows - rows_without_keys) * lanes_a_row};
}
/// Rung 27, of all heads: tiles whose rows are heads of a group for some queries, each in as many tasks as there are parts;
/// then the merge, whose warps each read LSE of all parts twice, and each its own parts' O and LSE.
ClosedForm split_flash(const AttentionShape& s, bool wants_lse) {
    constexpr int warp_rows = 16;
    constexpr int lanes = 32, lanes_a_row = 4, merge_warps = 4, at_once = 4;
    const int parts = int(find_stage("27-merge").scratch_bytes(s) / bytes_of_partial_results(s, 1));
    const int d = s.head_dim, B_c = block_of_keys;
    const Packing packing = packing_of(s);
    const int heads = packing.heads, group = packing.group, tiles_of_group = packing.tiles_of_group;
    const int queries = packing.queries();
    double loaded = 0, most_keys = 0, exponentials = 0, divisions = 0;
    for (int tile = 0; tile < s.kv_heads * tiles_of_group; ++tile)
        for (int i = 0; i < s.n_q; i += queries) {
            const int first_head = tile / tiles_of_group * group + tile % tiles_of_group * heads;
            const auto last_seen = [&](int row) {
                return s.causal ? std::min(i + row / heads + s.n_k - s.n_q, s.n_k - 1) : s.n_k - 1;
            };
            const int behind = std::min(i + queries, s.n_q);
            const int seen = s.causal ? std::max(behind + s.n_k - s.n_q, 0) : s.n_k, T_c = (seen + B_c - 1) / B_c;
            const double keys = std::min(s.n_k, T_c * B_c);
            most_keys = std::max(most_keys, keys);
            loaded += parts * double(std::min(heads, s.heads - first_head)) * (behind - i) + 2 * keys;
            for (int part = 0; part < parts; ++part) {
                const int begin = part * T_c / parts, end = (part + 1) * T_c / parts;
                exponentials += (begin == end) * tile_rows * (B_c + lanes_a_row);
                for (int row = 0; row < tile_rows; ++row) {
                    if (begin < end && last_seen(row) >= begin * B_c) divisions += lanes_a_row;
                    for (int j = begin; j < end; ++j) {
                        const int seen_by_all = last_seen(row / warp_rows * warp_rows);
                        const int seen_by_any = last_seen(row / warp_rows * warp_rows + warp_rows - 1);
                        const bool first = j == end - 1;  // else: some rows of the warp see their first key here
                        const bool again = !first && seen_by_all < (j + 1) * B_c && seen_by_any >= j * B_c;
                        exponentials += B_c + (first ? lanes_a_row : 0) + (again ? B_c + lanes_a_row : 0);
                    }
                }
            }
        }
    const double rows = double(s.heads) * s.n_q;
    const double unseeing = s.causal ? s.heads * std::max(0.0, double(s.n_q) - s.n_k) : 0;
    const double LSE = float_bytes * (wants_lse ? rows : 0);
    double partial = 0, LSE_again = 0;  // what lies between the kernels; that all lanes of a warp read LSE of a part
    if (parts > 1) {
        partial = float_bytes * rows * parts * (d + 1);
        LSE_again = float_bytes * rows * parts * (lanes - 1);
        for (int warp = 0; warp < std::min(parts, merge_warps); ++warp)  // a factor and the weights of so many parts
            exponentials += rows * ((parts - warp - 1) / (merge_warps * at_once) + 1) * lanes * (1 + at_once);
        exponentials += rows * merge_warps * d / 2;
        divisions += (rows - unseeing) * d / 2;
    }
    return {s.batch * (half_bytes * d * (loaded + rows) + 2 * partial + LSE_again + LSE),
            s.batch * (half_bytes * d * 2 * (rows + s.kv_heads * most_keys) + 2 * partial + LSE),
            s.batch * exponentials, s.batch * divisions};
}
bool is_dynamic(const Configuration& c) { return c.schedule == lcsf::Schedule::dynamic; }
/// What rung 14 takes on this device.
const Configuration& chosen(const AttentionShape& s) {
    const int best = configuration_for(s, device_attribute(cudaDevAttrMultiProcessorCount));
    return configurations.at(static_cast<std::size_t>(best));
}
/// Of a launch, whatever its heads: the word that counts the tasks is read and written. From rung 14 on a kernel before
/// sets it to 0.
ClosedForm of_launch(const std::string& stage, const AttentionShape& s) {
    constexpr double word = float_bytes;
    if (stage >= "14") return is_dynamic(chosen(s)) ? ClosedForm{word, 3 * word} : ClosedForm{};
    return stage >= "11" ? ClosedForm{0, 2 * word} : ClosedForm{};
}

}  // namespace

std::optional<ClosedForm> closed_form(const std::string& stage, const AttentionShape& s, std::size_t shared_bytes,
                                      bool wants_lse) {
    if (stage == "27-merge") return split_flash(s, wants_lse);  // whose tasks are not of one head
    const std::map<std::string, std::function<ClosedForm(const Head&)>> forms = {
        {"00-standard-attention", standard_attention},
        {"01-minimal-flash", minimal_flash},
        {"02-shared-memory-tiling", tiled_flash},
        {"03-row-swapped-loops", swapped_flash},
        {"04-tensor-cores", [](const Head& h) { return tensor_core_flash(h, 32, h.d == 64 ? 32 : 16); }},
        {"05-warp-partitioning", [](const Head& h) { return tensor_core_flash(h, 128, h.d == 64 ? 64 : 16); }},
        {"06-swizzling", [](const Head& h) { return tensor_core_flash(h, 128, 64); }},
        {"07-async-copies", [](const Head& h) { return tensor_core_flash(h, 128, 64); }},
        {"08-bulk-tensor-copies", [](const Head& h) { return tensor_core_flash(h, 128, 64); }},
        {"09-warpgroup-mma", [](const Head& h) { return tensor_core_flash(h, 64, h.d == 64 ? 128 : 64); }},
        {"10-warp-specialization",
         [](const Head& h) { return h.d == 64 ? tensor_core_flash(h, 128, 64) : tensor_core_flash(h, 192, 128); }},
        {"11-persistent-grid", persistent_flash},
        {"12-overlap", [](const Head& h) { return overlapped_flash(h, h.d == 64 ? 192 : 128, 128); }},
        {"13-lean-softmax",
         [](const Head& h) {
             const double T_r = blocks(h.N_q, 192), low = std::min(T_r, 3 * T_r - blocks(h.N_q, 64));
             return lean_flash(h, 3, h.d == 64 ? 128 : 64, T_r, low, true, false);
         }},
        {"14-lcsf",
         [&](const Head& h) {
             const Configuration& best = chosen(s);
             const QueryTasks of_head = query_tasks(best, s, device_attribute(cudaDevAttrMultiProcessorCount));
             return lean_flash(h, best.consumers, best.B_c, of_head.tasks, of_head.low, is_dynamic(best), true);
         }},
    };
    const auto form = forms.find(stage);
    if (form == forms.end()) return std::nullopt;
    const ClosedForm of_head = form->second({double(s.n_q), double(s.n_k), double(s.head_dim), s.causal, wants_lse,
                                             double(shared_bytes), double(s.heads) / s.kv_heads});
    const double heads = double(s.batch) * s.heads;
    const ClosedForm once = of_launch(stage, s);
    return ClosedForm{once.requested_bytes + heads * of_head.requested_bytes,
                      once.distinct_bytes + heads * of_head.distinct_bytes, heads * of_head.exponentials, heads * of_head.divisions};
}

}  // namespace flashladder::attention
