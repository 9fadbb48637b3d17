// docs/see/softmax: the order of the tiles and the bytes are those of rungs on the emulator, the states of a row those
// of the reference and of what rung 01 keeps in device memory.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "../test_seed.h"
#include "emulator/activity.h"
#include "emulator/emulator.h"
#include "launch.h"
#include "operations/attention/closed_forms.h"
#include "operations/attention/counts.h"
#include "operations/attention/inputs.h"
#include "operations/attention/run.h"
#include "vectors.h"

namespace flashladder::attention {
namespace {

using Json = nlohmann::json;

/// A rung, the order that the page calls so, and the blocks that it has for a head dimension.
struct Rung {
    const char* stage;
    const char* order;
    int d, B_r, B_c;
    int shared_kilobytes = 227;  // rung 02 has as many keys a block as fit
};
const Rung rungs[] = {
    {"01-minimal-flash", "01", 32, 32, 32},           {"02-shared-memory-tiling", "02", 64, 64, 256},
    {"02-shared-memory-tiling", "02", 64, 64, 64, 80}, {"03-row-swapped-loops", "03", 64, 64, 64},
    {"03-row-swapped-loops", "03", 128, 64, 32},      {"04-tensor-cores", "03", 64, 32, 32},
    {"04-tensor-cores", "03", 128, 32, 16},           {"05-warp-partitioning", "03", 128, 128, 16},
    {"09-warpgroup-mma", "03", 64, 64, 128},
};

struct WithSharedKilobytes {
    explicit WithSharedKilobytes(int kilobytes) { emulator::settings().shared_bytes_per_block = kilobytes * 1024; }
    ~WithSharedKilobytes() { emulator::settings().shared_bytes_per_block = before; }
    const std::size_t before = emulator::settings().shared_bytes_per_block;
};

AttentionShape shape_of(const Rung& rung, int N_q, int N_k, bool causal) {
    AttentionShape shape;
    shape.n_q = N_q, shape.n_k = N_k, shape.head_dim = rung.d, shape.causal = causal;
    shape.dtype = find_stage(rung.stage).supports.dtypes.front();
    return shape;
}
Json problem(const Rung& rung, const AttentionShape& shape) {
    return {{"order", rung.order}, {"N_q", shape.n_q}, {"N_k", shape.n_k}, {"B_r", rung.B_r}, {"B_c", rung.B_c},
            {"causal", shape.causal}};
}
int blocks(int n, int block) { return (n + block - 1) / block; }
/// Keys that a query sees.
int seen(const AttentionShape& shape, int query) {
    return int(std::clamp<long long>(visible_keys(shape)(query), 0, shape.n_k));
}

// ---- which tiles, and in which order

/// Tiles (i, j) in the order in which the first thread of warp 0 reads their rows, block by block of the grid.
std::vector<std::pair<int, int>> visited_tiles(const Rung& rung, const AttentionShape& shape) {
    const Stage& stage = find_stage(rung.stage);
    const DeviceProblem problem(stage, make_inputs(shape, Values::normal, test_seed()), false);
    const std::ptrdiff_t row_bytes = std::ptrdiff_t(shape.head_dim) * std::ptrdiff_t(bytes_per_element(shape.dtype));
    const auto row_in = [&](const void* address, const DeviceBuffer& tensor) -> int {
        const std::ptrdiff_t byte = static_cast<const char*>(address) - static_cast<const char*>(tensor.data());
        return address && byte >= 0 && byte < std::ptrdiff_t(tensor.bytes()) ? int(byte / row_bytes) : -1;
    };
    const bool keys_outside = rung.order[1] != '3';
    std::vector<std::pair<int, int>> tiles;
    for (int block = 0; block < (keys_outside ? 1 : blocks(shape.n_q, rung.B_r)); ++block) {
        int i = -1, j = -1;
        const auto launches = emulator::record_activity(std::uint64_t(block), [&] { stage.launch(problem.args()); });
        for (const auto& launch : launches)
            for (const auto& activity : launch.activities) {
                if (activity.warp != 0 || !activity.tensor) continue;
                const int query = row_in(activity.tensor, problem.Q), key = row_in(activity.tensor, problem.K);
                if (activity.what != emulator::Doing::load && activity.what != emulator::Doing::copy) continue;
                const auto before = std::pair(i, j);
                if (query >= 0) i = query / rung.B_r;
                if (key >= 0) j = key / rung.B_c;
                if (keys_outside && key >= 0) i = -1;  // its queries come behind it
                if (i >= 0 && j >= 0 && std::pair(i, j) != before) tiles.push_back({i, j});
            }
        if (!keys_outside) CHECK(i == block);
    }
    return tiles;
}

void add_tiles(Vectors& vectors, const Rung& rung, int N_q, int N_k, bool causal) {
    const AttentionShape shape = shape_of(rung, N_q, N_k, causal);
    Json steps = Json::array();
    int whole = 0, masked = 0;
    for (const auto& [i, j] : visited_tiles(rung, shape)) {
        // Of a block the first query sees least. Rung 01 looks at no key that does not exist.
        const bool hides = rung.order[1] != '1' && seen(shape, i * rung.B_r) < (j + 1) * rung.B_c;
        ++(hides ? masked : whole);
        steps.push_back({i, j, hides});
    }
    Json query = problem(rung, shape);
    query["kind"] = "tiles";
    const int all = blocks(N_q, rung.B_r) * blocks(N_k, rung.B_c);
    vectors.add(query, {{"steps", steps}, {"whole", whole}, {"masked", masked}, {"skipped", all - whole - masked}});
}

// ---- bytes

Json bytes_of(const StageCounts& counts) {
    const std::pair<const char*, const char*> names[] = {{"Q", "Q"}, {"K", "K"}, {"V", "V"}, {"O", "O"},
                                                         {"scratch", "l and m"}, {"lse", "LSE"}};
    Json bytes;
    for (const auto& [tensor, name] : names) {
        const auto found = counts.tensors.find(tensor);
        const TensorWork work = found == counts.tensors.end() ? TensorWork{} : found->second;
        bytes[name] = {{"read", work.read.requested_bytes}, {"written", work.written.requested_bytes}};
    }
    bytes["all"] = counts.requested_bytes();
    return bytes;
}
StageCounts counted(const Rung& rung, const AttentionShape& shape, bool lse) {
    return count_stage(find_stage(rung.stage), make_inputs(shape, Values::normal, test_seed()), lse);
}

void add_bytes(Vectors& vectors, const Rung& rung, int N_q, int N_k, bool causal, bool lse, std::mt19937_64& random) {
    const AttentionShape shape = shape_of(rung, N_q, N_k, causal);
    Json query = problem(rung, shape);
    query["kind"] = "bytes", query["d"] = shape.head_dim, query["LSE"] = lse;
    query["bytes"] = bytes_per_element(shape.dtype);
    const StageCounts all = counted(rung, shape, lse);
    const auto form = closed_form(rung.stage, shape, std::size_t(rung.shared_kilobytes) * 1024, lse);
    REQUIRE(form);
    CHECK(double(all.requested_bytes()) == form->requested_bytes);
    CHECK(all.tensors.at("K").read.requested_bytes == all.tensors.at("V").read.requested_bytes);
    vectors.add(query, bytes_of(all));
    if (causal) return;
    // What the first blocks of the outer loop move is what a problem moves that has no more of them.
    AttentionShape part = shape;
    int &length = rung.order[1] == '3' ? part.n_q : part.n_k, block = rung.order[1] == '3' ? rung.B_r : rung.B_c;
    const int outer = 1 + int(random() % std::uint64_t(blocks(length, block)));
    query["outer"] = outer;
    length = std::min(length, outer * block);
    vectors.add(query, bytes_of(counted(rung, part, lse)));
}

// ---- m, l and O of a row

/// One-hot queries: the score of query i and key j is K[j][i], to the bit.
struct Scores {
    int N_q, N_k;
    std::vector<std::vector<float>> of;        // (N_q, N_k)
    std::vector<std::array<float, 2>> values;  // (N_k, 2)
};
Scores drawn_scores(int N_q, int N_k, int temperament, std::mt19937_64& random) {
    std::normal_distribution<float> normal;
    Scores scores{N_q, N_k, {}, {}};
    for (int i = 0; i < N_q; ++i) {
        auto& row = scores.of.emplace_back();
        for (int j = 0; j < N_k; ++j) {
            const float x = normal(random);
            row.push_back(temperament == 0   ? x
                          : temperament == 1 ? 20 * x
                          : temperament == 2 ? x + float(j)
                          : temperament == 3 ? x - float(2 * j)
                          : temperament == 4 ? x + (i % 2 ? -200 : 200)
                                             : 0.5f);
        }
    }
    for (int j = 0; j < N_k; ++j) scores.values.push_back({10 * normal(random), 10 * normal(random)});
    return scores;
}
Inputs inputs_of(const Scores& scores, int d, int N_k, bool causal) {
    Inputs in;
    in.shape.n_q = scores.N_q, in.shape.n_k = N_k, in.shape.head_dim = d, in.shape.causal = causal;
    in.Q.assign(in.shape.q_elements(), 0);
    in.K.assign(in.shape.kv_elements(), 0), in.V.assign(in.shape.kv_elements(), 0);
    for (int i = 0; i < scores.N_q; ++i) in.Q[std::size_t(i * d + i)] = 1;
    for (int j = 0; j < N_k; ++j) {
        for (int i = 0; i < scores.N_q; ++i) in.K[std::size_t(j * d + i)] = scores.of[std::size_t(i)][std::size_t(j)];
        for (int x = 0; x < 2; ++x) in.V[std::size_t(j * d + x)] = scores.values[std::size_t(j)][std::size_t(x)];
    }
    in.scale = 1;
    return in;
}

/// Of each row, what is known of the first `keys` keys: by the reference, but m, which rung 01 leaves in device memory.
/// It leaves l and O too, of float.
struct Known {
    std::vector<double> m, l;
    std::vector<std::array<double, 2>> O;  // divided by l
};
Known known(const Scores& scores, int keys) {
    constexpr int d = 32;
    Known all;
    const auto N_q = std::size_t(scores.N_q);
    if (keys == 0)
        return {std::vector<double>(N_q), std::vector<double>(N_q), std::vector<std::array<double, 2>>(N_q)};
    const Inputs in = inputs_of(scores, d, keys, false);
    const AttentionRows reference = reference_attention(in, rows_to_check(in.shape, 1));
    const Stage& minimal = find_stage("01-minimal-flash");
    const DeviceProblem problem(minimal, in, false);
    minimal.launch(problem.args());
    check_cuda(cudaDeviceSynchronize(), "rung 01");
    const auto l_and_m = problem.scratch.download(2 * N_q, DType::f32);
    const Outputs outputs = problem.outputs();
    for (std::size_t i = 0; i < N_q; ++i) {
        all.m.push_back(l_and_m[N_q + i]);
        all.l.push_back(std::exp(reference.lse[i] - all.m[i]));
        all.O.push_back({reference.O[i * d], reference.O[i * d + 1]});
        CHECK(double(l_and_m[i]) == doctest::Approx(all.l[i]).epsilon(1e-4));
        for (std::size_t x = 0; x < 2; ++x)
            CHECK(double(outputs.O[i * d + x]) == doctest::Approx(all.O[i][x]).epsilon(1e-3).scale(10));
    }
    return all;
}

void add_rows(Vectors& vectors, std::mt19937_64& random, int temperament) {
    const auto draw = [&](int most) { return 1 + int(random() % std::uint64_t(most)); };
    const Scores scores = drawn_scores(draw(10), draw(24), temperament, random);
    std::vector<Known> after;  // so many keys
    for (int keys = 0; keys <= scores.N_k; ++keys) after.push_back(known(scores, keys));
    for (int i = 0; i < scores.N_q; ++i)
        for (const char* order : {"01", "02", "03"}) {
            const bool swapped = order[1] == '3', causal = swapped && random() % 2;
            const int B_r = draw(scores.N_q + 1), B_c = draw(scores.N_k + 1);
            const Inputs in = inputs_of(scores, 64, scores.N_k, causal);
            const auto row = std::size_t(i);
            Json steps = Json::array();
            const auto state = [&](int keys, bool divided) -> Json {
                const Known& now = after[std::size_t(keys)];
                const double factor = divided ? 1 : now.l[row];
                return {{"m", keys == 0 ? Json() : Json(now.m[row])},
                        {"l", now.l[row]},
                        {"O", {now.O[row][0] * factor, now.O[row][1] * factor}}};
            };
            // The block walks as far as its last query sees: add_tiles holds the rungs against that.
            const int last = std::min(i / B_r * B_r + B_r, scores.N_q) - 1, end = seen(in.shape, last);
            for (int j = 0; j * B_c < end; ++j) {
                Json step = state(std::min(seen(in.shape, i), (j + 1) * B_c), !swapped);
                step["j"] = j;
                steps.push_back(step);
            }
            Json finish;
            if (swapped) {
                const AttentionRows reference = reference_attention(in, {row});
                finish = {{"O", {reference.O[0], reference.O[1]}},
                          {"LSE", seen(in.shape, i) == 0 ? Json() : Json(reference.lse[0])}};
            }
            vectors.add({{"kind", "row"}, {"order", order}, {"N_q", scores.N_q}, {"N_k", scores.N_k}, {"B_r", B_r},
                         {"B_c", B_c}, {"causal", causal}, {"row", i}, {"scores", scores.of[row]},
                         {"values", scores.values}},
                        {{"steps", steps}, {"end", finish}});
        }
    // Rungs 02 and 03 say the same of all keys.
    const Known& all = after.back();
    for (const char* name : {"02-shared-memory-tiling", "03-row-swapped-loops"}) {
        const Outputs outputs = run(find_stage(name), inputs_of(scores, 64, scores.N_k, false), name[1] == '3');
        for (std::size_t i = 0; i < std::size_t(scores.N_q); ++i) {
            CHECK(double(outputs.O[i * 64]) == doctest::Approx(all.O[i][0]).epsilon(1e-3).scale(10));
            if (name[1] == '3')
                CHECK(double(outputs.lse[i]) == doctest::Approx(all.m[i] + std::log(all.l[i])).epsilon(1e-4));
        }
    }
}

TEST_CASE("see: softmax") {
    Vectors vectors("softmax");
    std::mt19937_64 random(test_seed());
    const auto draw = [&](int most) { return 1 + int(random() % std::uint64_t(most)); };
    for (const Rung& rung : rungs) {
        const WithSharedKilobytes shared(rung.shared_kilobytes);
        CAPTURE(rung.stage);
        const bool causal = find_stage(rung.stage).supports.causal, lse = find_stage(rung.stage).supports.lse;
        std::vector<std::array<int, 2>> lengths = {{1, 1}, {rung.B_r, rung.B_c}, {2 * rung.B_r + 1, 2 * rung.B_c - 1}};
        for (int k = 0; k < 3; ++k) lengths.push_back({draw(3 * rung.B_r), draw(4 * rung.B_c)});
        for (const auto& [N_q, N_k] : lengths)
            for (const bool with_mask : {false, true}) {
                if (with_mask && !causal) continue;
                CAPTURE(to_string(shape_of(rung, N_q, N_k, with_mask)));
                add_tiles(vectors, rung, N_q, N_k, with_mask);
                add_bytes(vectors, rung, N_q, N_k, with_mask, lse && random() % 2, random);
            }
    }
    for (int k = 0; k < 12; ++k) add_rows(vectors, random, k % 6);
}

}  // namespace
}  // namespace flashladder::attention
