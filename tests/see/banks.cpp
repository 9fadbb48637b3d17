// docs/see/banks.js: where common/tile puts what lanes ask for, and how many turns the emulator counts for it.
#include <doctest/doctest.h>

#include <algorithm>
#include <fstream>
#include <random>
#include <utility>

#include "../test_seed.h"
#include "emulator/warp_access.h"
#include "harness/project_root.h"
#include "kernels.h"
#include "operations/attention/counts.h"
#include "operations/attention/inputs.h"
#include "vectors.h"

namespace flashladder {
namespace {

using emulator::Access, emulator::Wavefronts, nlohmann::json;

/// A tile, in bytes, and what the lanes of a warp ask of it.
struct Question {
    int width, padding, swizzle, rows, element;
    std::string access;  // load, store, matrices
    int bytes, matrices;
    Places places;
};

constexpr int all_rows[] = {16, 32, 64, 128};

json answer(const Question& q) {
    const bool matrices = q.access == "matrices";
    const int lanes = matrices ? q.matrices * int(emulator::matrix_rows) : emulator::warp_size;
    const int bytes = matrices ? int(emulator::matrix_row_bytes) : q.bytes;
    emulator::WarpAccess all{};
    std::vector<std::uintptr_t> address;
    const auto refused = [](const char* what, int lane) { return json{{"refused", what}, {"lane", lane}}; };
    for (int lane = 0; lane < lanes; ++lane) {
        const auto [row, column] = q.places[static_cast<std::size_t>(lane)];
        if (row < 0 || row >= q.rows) return refused("row", lane);
        if (column < 0 || column * q.element + bytes > q.width) return refused("column", lane);
        address.push_back(address_in_tile(q.width, q.padding, q.swizzle, q.rows, row, column * q.element));
        if (address.back() % static_cast<unsigned>(bytes) != 0) return refused("alignment", lane);
    }
    std::copy(address.begin(), address.end(), all.address.begin());
    Wavefronts total;
    std::vector<unsigned> turns;
    const auto add = [&](const Wavefronts& of_group) {
        REQUIRE(of_group.needed == 1);
        total.needed += of_group.needed, total.extra += of_group.extra;
        turns.push_back(1 + of_group.extra);
    };
    if (matrices) {
        for (auto row = address.begin(); row != address.end(); row += emulator::matrix_rows) {
            std::array<std::uintptr_t, emulator::matrix_rows> rows;
            std::copy_n(row, rows.size(), rows.begin());
            add(emulator::shared_wavefronts(rows));
        }
    } else {
        const Access kind = q.access == "load" ? Access::read : Access::write;
        const auto of = [&](emulator::Lanes some) {
            emulator::WarpAccess access = all;
            access.lanes = some;
            return emulator::shared_wavefronts(access, static_cast<std::size_t>(bytes), kind);
        };
        const Wavefronts whole = of(~emulator::Lanes(0));
        const unsigned together = emulator::warp_size / whole.needed;
        for (unsigned first = 0; first < emulator::warp_size; first += together)
            add(of(emulator::Lanes((std::uint64_t(1) << together) - 1) << first));
        REQUIRE(total.needed == whole.needed);
        REQUIRE(total.extra == whole.extra);
    }
    return {{"needed", total.needed}, {"extra", total.extra}, {"turns", turns}, {"address", address}};
}

/// A formula as its text and as what the compiler makes of it.
struct Formula {
    const char* text;
    int (*of)(int lane, int chunk, int chunks);
};
#define FORMULA(...)                                                            \
    {                                                                           \
#__VA_ARGS__, []([[maybe_unused]] int lane, [[maybe_unused]] int chunk, \
                         [[maybe_unused]] int chunks) { return __VA_ARGS__; }   \
    }

const Formula row_formulas[] = {FORMULA(lane),
                                FORMULA(0),
                                FORMULA(lane / 4),
                                FORMULA(lane % 16),
                                FORMULA(lane % 8),
                                FORMULA(lane / 8),
                                FORMULA(2 * lane),
                                FORMULA(lane / chunks),
                                FORMULA(lane / 16 * 8 + lane % 8),
                                FORMULA(31 - lane),
                                FORMULA(lane ^ lane >> 1),
                                FORMULA(lane * 7 % 32),
                                FORMULA((lane & 3) << 2 | lane >> 3),
                                FORMULA(lane * 5 & 15),
                                FORMULA(lane - lane % 2),
                                FORMULA(3),
                                FORMULA((lane + 1) % 8 + lane / 8 * (2 - 1)),
                                FORMULA(40 + lane)};
const Formula column_formulas[] = {FORMULA(0),
                                   FORMULA(lane),
                                   FORMULA(lane % 4 * 2),
                                   FORMULA(lane / 16 * chunk),
                                   FORMULA(lane / 8 % 2 * chunk),
                                   FORMULA(lane % chunks * chunk),
                                   FORMULA((lane % 8 ^ lane / 8) * chunk),
                                   FORMULA(lane % 2 * chunk),
                                   FORMULA(chunk),
                                   FORMULA(lane * 2),
                                   FORMULA(lane* chunk),
                                   FORMULA(lane % 8 * chunk),
                                   FORMULA(lane >> 2 << 1),
                                   FORMULA(lane * 3 % 16),
                                   FORMULA(lane / 2),
                                   FORMULA(2 * chunk - 1 - lane % chunk),
                                   FORMULA(lane - 1)};

json query_of(const Question& q) {
    json query = {{"width", q.width}, {"padding", q.padding}, {"swizzle", q.swizzle},
                  {"rows", q.rows},   {"element", q.element}, {"access", q.access}};
    if (q.access == "matrices")
        query["matrices"] = q.matrices;
    else
        query["bytes"] = q.bytes;
    return query;
}

void add_drawn(Vectors& vectors, int most) {
    std::mt19937_64 random(test_seed());
    const auto draw = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
    const auto one_of = [&](const auto& all) -> const auto& {
        return all[static_cast<std::size_t>(draw(int(std::size(all))))];
    };
    int answered = 0, in_conflict = 0;
    for (int i = 0; i < most; ++i) {
        Question q{};
        q.swizzle = draw(2) ? 0 : 16 << (1 + draw(3));
        const int unit = q.swizzle ? q.swizzle : 16;
        q.width = draw(2) ? std::max(unit, 16 << draw(7)) : unit * (1 + draw(1024 / unit));
        q.padding = q.swizzle || draw(2) ? 0 : draw(3) ? 16 * draw(5) : 4 * draw(17);
        q.rows = one_of(all_rows);
        q.element = 1 << draw(4);
        q.access = std::array{"load", "store", "matrices"}[static_cast<std::size_t>(draw(3))];
        q.bytes = 1 << draw(5);
        q.matrices = 1 << draw(3);
        const Formula &row = one_of(row_formulas), &column = one_of(column_formulas);
        for (int lane = 0; lane < emulator::warp_size; ++lane)
            q.places[static_cast<std::size_t>(lane)] = {row.of(lane, 16 / q.element, q.width / 16),
                                                        column.of(lane, 16 / q.element, q.width / 16)};
        json query = query_of(q);
        query["row"] = row.text, query["column"] = column.text;
        const json found = answer(q);
        if (found.contains("refused") && draw(4)) continue;
        answered += !found.contains("refused");
        in_conflict += found.value("extra", 0) > 0;
        vectors.add(query, found);
    }
    CHECK(answered > most / 8);
    CHECK(in_conflict > most / 32);
}

/// Patterns by name, for the places that the operations of common/tile have named to a tile of 64 columns.
void add_patterns(Vectors& vectors, const TilePlaces& places) {
    const std::pair<const char*, Question> patterns[] = {
        {"ldmatrix-A", {128, 0, 0, 64, 2, "matrices", 16, 4, places.load}},
        {"ldmatrix", {128, 0, 0, 64, 2, "matrices", 16, 4, places.multiply_transposed}},
        {"ldmatrix-trans", {128, 0, 0, 64, 2, "matrices", 16, 4, places.multiply}},
        {"accumulator", {128, 0, 0, 64, 2, "store", 4, 0, places.store}},
        {"copy", {128, 0, 0, 64, 2, "store", 16, 0, places.copy_in}}};
    for (const auto& [name, q] : patterns)
        for (const int swizzle : {0, 32, 64, 128})
            for (const int padding : {0, 16, 48}) {
                if (swizzle && padding) continue;
                Question asked = q;
                asked.swizzle = swizzle, asked.padding = padding;
                vectors.add({{"pattern", name}, {"width", 128}, {"padding", padding}, {"swizzle", swizzle}},
                            answer(asked));
            }
}

/// What the emulator counts of a rung, of one kind of access, at the lines with these words.
emulator::SharedWork counted(const std::string& stage, int d, Access kind, const std::string& words) {
    using namespace attention;
    AttentionShape shape;
    shape.n_q = shape.n_k = 128, shape.head_dim = d, shape.dtype = stage < "04" ? DType::f32 : DType::bf16;
    const auto counts = count_stage(attention::find_stage(stage), make_inputs(shape, Values::normal, test_seed()));
    emulator::SharedWork sum;
    for (const auto& launch : counts.work.launches)
        for (const auto& [line, work] : launch.lines) {
            const std::size_t colon = line.rfind(':');
            std::ifstream file(project_root() + "/" + line.substr(0, colon));
            std::string text;
            for (int n = std::stoi(line.substr(colon + 1)); n > 0; --n) std::getline(file, text);
            if (text.find(words) != std::string::npos) sum += work.shared_of(kind);
        }
    return sum;
}

Places places(int (*row)(int), int (*column)(int)) {
    Places all;
    for (int lane = 0; lane < emulator::warp_size; ++lane)
        all[static_cast<std::size_t>(lane)] = {row(lane), column(lane)};
    return all;
}

/// Presets of the page, and the line of a rung that each is about: every access of that line takes as many turns as the
/// page says. Matrices are counted one by one.
void add_presets(Vectors& vectors, const TilePlaces& of) {
    const auto zero = [](int) { return 0; };
    const auto itself = [](int lane) { return lane; };
    const auto of_16 = [](int lane) { return lane % 16; };
    const auto half = [](int lane) { return lane / 16; };
    const auto matrices = [](int width, int padding, int swizzle, const Places& places, int n = 4) {
        return Question{width, padding, swizzle, 64, 2, "matrices", 16, n, places};
    };
    const std::string K = "ptx::ldmatrix(b, B.at(lane / 16 * 8", V = "ptx::ldmatrix_trans(b, B.at(lane % 16",
                      O = "*reinterpret_cast<std::uint32_t*>(pair) =",
                      copy = "*reinterpret_cast<uint4*>(tile.at(row, column)";
    const Question store_O{128, 0, 0, 64, 2, "store", 4, 0, of.store},
        copy_K{128, 0, 128, 64, 2, "store", 16, 0, of.copy_in};
    Question swizzled_O = store_O, narrow_copy = copy_K;
    swizzled_O.swizzle = 128, narrow_copy.swizzle = 32;
    struct Preset {
        const char *name, *stage;
        int d;
        Access kind;
        std::string words;
        Question question;
    };
    const Preset presets[] = {
        {"00-B",
         "00-standard-attention",
         64,
         Access::write,
         "B_smem[tx][ty] =",
         {64, 4, 0, 16, 4, "store", 4, 0, places(of_16, half)}},
        {"01-S",
         "01-minimal-flash",
         64,
         Access::write,
         "S[r * B_c + c] = scale * dot;",
         {128, 0, 0, 32, 4, "store", 4, 0, places(itself, zero)}},
        {"02-K",
         "02-shared-memory-tiling",
         64,
         Access::read,
         "const float4 k = reinterpret_cast<const float4&>(K_j[",
         {256, 16, 0, 64, 4, "load", 16, 0, places(of_16, zero)}},
        {"02-K",
         "03-row-swapped-loops",
         64,
         Access::read,
         "const float4 k = reinterpret_cast<const float4&>(K_j[",
         {256, 16, 0, 64, 4, "load", 16, 0, places(of_16, zero)}},
        {"02-P",
         "02-shared-memory-tiling",
         64,
         Access::write,
         "P[(row + r) * B_c + tx + c * threads_x] = p;",
         {1024, 0, 0, 64, 4, "store", 4, 0, places([](int lane) { return lane / 16 * 4; }, of_16)}},
        {"05-K", "04-tensor-cores", 64, Access::read, "ptx::ldmatrix(", matrices(128, 0, 0, of.multiply_transposed)},
        {"05-K", "05-warp-partitioning", 64, Access::read, K, matrices(128, 0, 0, of.multiply_transposed)},
        {"05-V", "05-warp-partitioning", 64, Access::read, V, matrices(128, 0, 0, of.multiply)},
        {"05-O", "05-warp-partitioning", 64, Access::write, O, store_O},
        {"06-padded", "06-swizzling/padded", 64, Access::read, K, matrices(128, 16, 0, of.multiply_transposed)},
        {"06-K", "06-swizzling", 64, Access::read, K, matrices(128, 0, 128, of.multiply_transposed)},
        {"06-V", "06-swizzling", 64, Access::read, V, matrices(128, 0, 128, of.multiply)},
        {"06-O", "06-swizzling", 64, Access::write, O, swizzled_O},
        {"06-copy", "06-swizzling", 64, Access::write, copy, copy_K},
        {"06-narrow", "06-swizzling/32 bytes", 64, Access::write, copy, narrow_copy},
        {"08-V", "08-bulk-tensor-copies", 128, Access::read, V, matrices(256, 0, 128, of.multiply)},
        {"09-K", "09-warpgroup-mma", 64, Access::wgmma_operand, "columns_of(K, k)",
         matrices(128, 0, 128, places(itself, zero), 1)},
        {"09-O", "09-warpgroup-mma", 64, Access::write, O, swizzled_O}};
    for (const Preset& preset : presets) {
        INFO(std::string(preset.name), ", ", std::string(preset.stage));
        const json said = answer(preset.question);
        const auto lines = counted(preset.stage, preset.d, preset.kind, preset.words);
        const std::uint64_t units = preset.question.access == "matrices" ? std::uint64_t(preset.question.matrices) : 1;
        const auto needed = said["needed"].get<std::uint64_t>(), extra = said["extra"].get<std::uint64_t>();
        CHECK(lines.accesses > 0);
        CHECK(units * lines.wavefronts == (needed + extra) * lines.accesses);
        CHECK(units * lines.conflicts == extra * lines.accesses);
        vectors.add({{"preset", preset.name}}, said);
    }
    vectors.add({{"preset", "02-unpadded"}}, answer({256, 0, 0, 64, 4, "load", 16, 0, places(of_16, zero)}));
}

TEST_CASE("see: banks answers what the emulator counts, of any access, of common/tile's and of the rungs' lines") {
    Vectors vectors("banks");
    const TilePlaces places = record_places();
    add_presets(vectors, places);
    add_patterns(vectors, places);
    add_drawn(vectors, 6000);
}

}  // namespace
}  // namespace flashladder
