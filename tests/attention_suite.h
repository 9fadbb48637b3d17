// What the test files of the rungs share.
#pragma once

#include <cstdint>
#include <functional>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "harness/dtype.h"
#include "operations/attention/inputs.h"
#include "operations/attention/run.h"
#include "operations/attention/stage.h"
#include "suite.h"
#include "test_seed.h"

#ifndef FLASHLADDER_GPU
#include "emulator/counters.h"
#include "emulator/emulator.h"
#endif

namespace flashladder::attention {

/// The stage under test: the only one that is linked into the program.
const Stage& stage_under_test();

/// Its variant of this name.
const Stage& variant(std::string_view name);

/// A shape with this many heads in one batch, of the first dtype that the stage under test supports.
AttentionShape shape_of(int heads, int n_q, int n_k, int head_dim);

/// The same with so many heads that there are 32 rows: the worst of one or two rows, ours or the yardstick's, is mere
/// luck.
AttentionShape with_enough_rows(AttentionShape shape);

/// Q, K and V of such a shape.
Inputs inputs(int heads, int n_q, int n_k, int d, bool causal, std::uint64_t seed, Values values = Values::normal);

/// The score of each key in base 2, scaled: queries are (4, noise), keys (score / 4, noise), and noise moves a score by
/// about `spread`.
Inputs inputs_with_scores(const AttentionShape& shape, const std::function<double(int key)>& score_log2,
                          std::uint64_t seed, double spread = 0.5);

/// The scores of keys that a maximum which is not the largest has to stand, in base 2, by block of keys as it comes:
/// from the last one to the first.
struct Scores {
    const char* name;
    std::function<double(int block, int key)> log2;  // key: within the block
};
std::vector<Scores> adverse_scores();
constexpr int adverse_blocks = 6;
/// Such scores for blocks of B_c keys: so many, less 5 keys.
Inputs adverse_inputs(const Scores& scores, int n_q, int B_c, int d, DType dtype, bool causal, std::uint64_t seed);
/// The stage under test agrees with the reference on such inputs, in its worst row too.
void check_adverse(const Inputs& inputs, const Scores& scores);

#ifndef FLASHLADDER_GPU
/// What a stage does, counted, with LSE; nothing where the kernel stops, and then the test has failed.
emulator::Work work_of(const Stage& stage, const Inputs& inputs);

/// All but LSE goes by TMA, so many bytes each way; without bank conflicts, and with so many barriers of all threads.
void check_by_tma(const emulator::Work& work, std::uint64_t loaded_bytes, std::uint64_t stored_bytes,
                  std::uint64_t barriers, const std::string& where);

/// Causal, the stage under test asks for each block of B_c keys that one of B_r queries sees, and for none behind.
void check_no_keys_behind_the_diagonal(int d, int B_r, int B_c);

/// The report of a race or of anything else that goes wrong while a stage runs, with LSE; "" if nothing does.
std::string race(const Stage& stage, const Inputs& inputs);
#endif

/// Runs a stage and compares O and LSE. What is wrong, in words; "" if nothing is. Which of the two is right says where
/// to look. A tile that is read before it has come makes wrong results on a GPU; the emulator may stop the kernel, and
/// says who has read what, or who waits for what.
std::string fault(const Stage& stage, const Inputs& inputs, Layout layout = Layout::heads_first);

/// The same of LSE alone.
std::string lse_fault(const Stage& stage, const Inputs& inputs);

/// O and LSE are the same. Else: "O has other bits than in the run before: element 7 is 1, expected 2 (where)".
void check_same_bits(const Outputs& found, const Outputs& expected, const std::string& than, const std::string& where);

/// The same of barriers, but that more of them are a remark: they take time, and are not wrong.
void check_barriers(const std::string& what, std::uint64_t found, std::uint64_t least, std::uint64_t most);

/// By how many keys exceed queries: multiples of `tile` with 0, +1, -1 and -2 more, any number, and less keys than
/// queries. Which multiples and numbers, by the seed.
std::vector<int> more_keys_near(int tile, std::uint64_t seed);

/// The stage under test agrees with the reference on such lengths, drawn anew by each seed, causal too. For one head
/// dimension, or for all.
void check_lengths_near(int B_r, int B_c, int head_dim = 0);

/// The same where blocks of threads take several tasks, on one multiprocessor and on two: five heads, with so many
/// whole blocks of keys and units of 64 queries, and a drawn length more of each.
void check_many_tasks(int head_dim, int B_c, const std::vector<int>& blocks, const std::vector<int>& units);

/// Causal, the stage under test: the first `rows` queries are the same to the bit with NaN in K and V from key `seen`
/// on; query `later` sees them.
void check_hidden_keys_reach_nobody(AttentionShape shape, int seen, int rows, int later);

/// The stage under test gives the same to the bit whatever its scratch holds, also in a launch behind another one.
void check_ignores_scratch(const Inputs& inputs);

}  // namespace flashladder::attention
